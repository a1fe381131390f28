//! How the ranks' clocks stand to each other (PPoPP20, 4.1): for each the offset from the reference's,
//! which is the lowest rank's, and its drift.
//!
//! Phases and losses need none of this, for the k-th synchronisation is the same on every rank, and each
//! rank counts its time from its own begin. It is for who puts moments of different ranks side by side:
//! when the reference's clock says t, a rank's says t + offset + drift * (t - begin), where begin is that
//! of the reference's run.
//!
//! - Ranks that read one clock, that of their node, are exactly together: they are not compared.
//! - Who reads the reference's clock tells when it released somebody first from each synchronisation: the
//!   earliest return is the least delayed. All ranks are told, and [fit](fit()) what they saw.
//! - The ranks of another clock are then reduced to one line.
//! - Where a clock has too few synchronisations, [messages](exchange()) stand in for all; and where they
//!   contradict, they are believed.
//!
//! Where calls are not measured, [`crate::series`] finds the returns in the samples, to within a period; from
//! there on all is the same.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::communicator::{Communicator, CommunicatorError, broadcast, reduce};
use crate::input::{Exchange, RankInput};
use crate::ranks::RankSet;
use crate::summary::{ClockMethod, Clocks};

mod exchange;
mod fit;
mod line;

pub use exchange::exchange;
pub use fit::{FEWEST, Fit, fit};
use line::{Line, drifted_ns};

/// A clock: the ranks that read it have the same one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ClockName {
    host: String,
    id: String,
    /// Where it is not known who else reads it.
    rank: Option<u32>,
}

impl ClockName {
    /// The one that a rank reads.
    pub fn of(input: &RankInput) -> Self {
        let id = input.clock.id.clone();
        let rank = id.is_empty().then_some(input.rank);
        Self { host: input.host.clone(), id, rank }
    }
}

/// The lowest rank and its clock.
pub type Lowest = Option<(u32, ClockName)>;

/// The lowest of some ranks.
pub fn lowest(inputs: &[RankInput]) -> Lowest {
    inputs.iter().min_by_key(|input| input.rank).map(|input| (input.rank, ClockName::of(input)))
}

/// The lower one of two groups of ranks.
pub fn lower(ours: Lowest, theirs: Lowest) -> Lowest {
    ours.into_iter().chain(theirs).min()
}

/// The clock with which the others are compared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reference {
    lowest: Lowest,
    /// Run of the lowest rank, from its begin on and so long.
    run_ns: Option<(u64, u64)>,
    /// When somebody first returned, by the index of the synchronisation.
    ends: BTreeMap<u64, u64>,
    /// That was not measured: samples showed it.
    by_samples: bool,
}

impl Reference {
    /// What its ranks have to tell. Collective.
    pub fn learn(
        comm: &dyn Communicator,
        local: &[RankInput],
        lowest: Lowest,
        by_samples: bool,
    ) -> Result<Self, CommunicatorError> {
        let mut ours = Self { lowest, by_samples, ..Self::default() };
        local.iter().for_each(|input| ours.add_rank(input));
        let all = reduce(comm, ours, Self::combine);
        broadcast(comm, all)
    }

    fn add_rank(&mut self, input: &RankInput) {
        let Some((lowest, clock)) = &self.lowest else { return };
        let Some(releases) = input.profile.releases.as_ref() else { return };
        if *clock != ClockName::of(input) {
            return;
        }
        if *lowest == input.rank {
            self.run_ns = Some((releases.begin_ns, input.profile.elapsed_ns));
        }
        self.add(releases.ends.iter().copied());
    }

    fn add(&mut self, ends: impl Iterator<Item = (u64, u64)>) {
        for (index, end) in ends {
            let first = self.ends.entry(index).or_insert(end);
            *first = end.min(*first);
        }
    }

    fn combine(mut self, other: Self) -> Self {
        self.run_ns = self.run_ns.or(other.run_ns);
        self.add(other.ends.into_iter());
        self
    }

    /// Begin of the run, and its middle since then.
    fn run(&self) -> Option<(u64, i64)> {
        self.run_ns.map(|(begin, length)| (begin, signed(length / 2, 0)))
    }

    /// How a rank's clock stands to this one, by the synchronisations that both kept.
    fn fit(&self, input: &RankInput) -> Option<Fit> {
        let releases = input.profile.releases.as_ref()?;
        let (begin_ns, middle_ns) = self.run()?;
        let gap = |(index, end): &(u64, u64)| {
            let reference = *self.ends.get(index)?;
            Some((signed(reference, begin_ns), signed(*end, reference)))
        };
        let gaps: Vec<_> = releases.ends.iter().filter_map(gap).collect();
        fit(&gaps, middle_ns)
    }
}

fn signed(one: u64, other: u64) -> i64 {
    let apart = i128::from(one) - i128::from(other);
    apart.clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

/// Ranks of one clock that are asked how it stands: more would tell little more, and the root has as many
/// clocks in memory as there are nodes.
const MOST_FITS: usize = 16;

/// What the ranks of one clock know of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Known {
    ranks: RankSet,
    /// By rank, of the lowest [`MOST_FITS`] that shared enough synchronisations.
    fits: BTreeMap<u32, Fit>,
    /// From the lowest rank that has any.
    exchanges: Option<(u32, Vec<Exchange>)>,
}

/// What some ranks know of their clocks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockTotals {
    clocks: BTreeMap<ClockName, Known>,
}

impl ClockTotals {
    /// Takes in one rank.
    pub fn add_rank(&mut self, input: &RankInput, reference: &Reference) {
        let is_lowest = reference.lowest.as_ref().is_some_and(|(rank, _)| *rank == input.rank);
        let fit = if is_lowest { None } else { reference.fit(input) };
        let exchanges = &input.clock.exchanges;
        let known = Known {
            ranks: RankSet::from_iter([input.rank]),
            fits: fit.into_iter().map(|fit| (input.rank, fit)).collect(),
            exchanges: (!exchanges.is_empty()).then(|| (input.rank, exchanges.clone())),
        };
        self.clocks.entry(ClockName::of(input)).or_default().combine(known);
    }

    /// Takes in the ranks of another group.
    pub fn combine(&mut self, other: Self) {
        for (name, known) in other.clocks {
            self.clocks.entry(name).or_default().combine(known);
        }
    }

    /// What it takes to put the ranks' times on the reference's clock.
    pub fn alignment(&self, reference: &Reference, period_ns: u64) -> Alignment {
        let lines = self.chosen_lines(reference, period_ns).map(|(_, lines)| lines);
        let lines = lines.into_iter().flatten().map(|(name, line)| {
            (name.clone(), Shift { begin_ns: line.begin_ns, drift_ppt: line.drift_ppt })
        });
        let ours = reference.lowest.as_ref().map(|(_, ours)| (ours.clone(), Shift::default()));
        Alignment {
            begin_ns: reference.run_ns.map(|(begin_ns, _)| begin_ns),
            shifts: lines.chain(ours).collect(),
        }
    }

    /// How all clocks stand, once all ranks are in. `period_ns` is what the times of samples are good for.
    pub fn conclude(&self, reference: &Reference, period_ns: u64) -> Clocks {
        let Some((lowest, ours)) = &reference.lowest else { return unknown(0) };
        let Some((method, lines)) = self.chosen_lines(reference, period_ns) else {
            return unknown(*lowest);
        };
        let home = self.clocks.get(ours);
        let by_ends = matches!(method, ClockMethod::Regions | ClockMethod::Samples);
        let at_home = home.filter(|_| by_ends);
        let spread = at_home.and_then(|known| line::spread(&known.fits, 0));
        let errors_ns = lines.values().map(|line| line.error_ns).chain(spread);
        let mut each: Vec<(u32, f64, f64)> = Vec::new();
        for (name, known) in &self.clocks {
            let line = lines.get(name).copied().unwrap_or_default();
            let (offset_us, drift_ppm) = (line.begin_ns as f64 / 1e3, line.drift_ppt as f64 / 1e6);
            each.extend(known.ranks.iter().map(|rank| (rank, offset_us, drift_ppm)));
        }
        each.sort_unstable_by_key(|(rank, _, _)| *rank);
        Clocks {
            reference: *lowest,
            offsets_us: each.iter().map(|(_, offset_us, _)| *offset_us).collect(),
            drift_ppm: each.iter().map(|(_, _, drift_ppm)| *drift_ppm).collect(),
            residual_us: errors_ns.max().map(|ns| ns as f64 / 1e3),
            method,
        }
    }

    /// The lines of all clocks but the reference's, and the method that they come from; `None` where
    /// one of them has none.
    fn chosen_lines(
        &self,
        reference: &Reference,
        period_ns: u64,
    ) -> Option<(ClockMethod, Lines<'_>)> {
        let (_, ours) = reference.lowest.as_ref()?;
        let by_releases = self.lines(ours, |known| Line::of_fits(&known.fits, reference));
        let home = self.clocks.get(ours);
        let told = home.and_then(|known| known.exchanges.as_ref());
        let by_messages = self.lines(ours, |known| {
            Line::of_exchanges(&known.exchanges.as_ref()?.1, &told?.1, reference)
        });
        match (by_releases, by_messages) {
            (Some(lines), Some(other)) if contradict(&lines, &other, period_ns) => {
                Some((ClockMethod::PingPong, other))
            }
            (Some(lines), _) => {
                let any = self.clocks.values().any(|known| !known.fits.is_empty());
                let method = match reference.by_samples {
                    _ if !any => ClockMethod::None,
                    true => ClockMethod::Samples,
                    false => ClockMethod::Regions,
                };
                Some((method, lines))
            }
            (None, Some(lines)) => Some((ClockMethod::PingPong, lines)),
            (None, None) => None,
        }
    }

    /// The lines of all clocks but the reference's; `None` if one of them has none.
    fn lines(&self, ours: &ClockName, line: impl Fn(&Known) -> Option<Line>) -> Option<Lines<'_>> {
        let others = self.clocks.iter().filter(|(name, _)| *name != ours);
        others.map(|(name, known)| Some((name, line(known)?))).collect()
    }
}

type Lines<'a> = BTreeMap<&'a ClockName, Line>;

/// By how much a clock is ahead of the reference's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Shift {
    /// At the begin of the reference's run, in nanoseconds.
    begin_ns: i64,
    /// By how much it runs faster, in parts per 10^12.
    drift_ppt: i64,
}

/// What it takes to put the times of any rank on the reference's clock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alignment {
    /// Begin of the reference's run on its clock.
    begin_ns: Option<u64>,
    shifts: BTreeMap<ClockName, Shift>,
}

impl Alignment {
    /// When a rank's run began, in nanoseconds since the begin of the reference's run. 0 where the
    /// rank's clock is not known: MPI_Init returns about the same time everywhere.
    pub fn begin_ns(&self, input: &RankInput) -> i64 {
        let releases = input.profile.releases.as_ref();
        let shift = self.shifts.get(&ClockName::of(input));
        let known = releases.zip(self.begin_ns).zip(shift);
        known.map_or(0, |((releases, begin_ns), shift)| {
            let since_ns = signed(releases.begin_ns, begin_ns).saturating_sub(shift.begin_ns);
            since_ns.saturating_sub(drifted_ns(shift.drift_ppt, since_ns))
        })
    }
}

/// Whether messages show that synchronisations are wrong by more than samples could show: what messages may
/// be wrong by is bounded, while ranks without cores of their own may be late from every single
/// synchronisation.
fn contradict(by_releases: &Lines<'_>, by_messages: &Lines<'_>, period_ns: u64) -> bool {
    by_releases.iter().any(|(name, line)| {
        by_messages
            .get(name)
            .is_some_and(|other| line.apart_ns(other) > other.error_ns.saturating_add(period_ns))
    })
}

impl Known {
    fn combine(&mut self, other: Self) {
        self.ranks = self.ranks.union(&other.ranks);
        self.fits.extend(other.fits);
        while self.fits.len() > MOST_FITS {
            self.fits.pop_last();
        }
        self.exchanges = self.exchanges.take().into_iter().chain(other.exchanges).min();
    }
}

fn unknown(reference: u32) -> Clocks {
    Clocks {
        reference,
        offsets_us: Vec::new(),
        drift_ppm: Vec::new(),
        residual_us: None,
        method: ClockMethod::None,
    }
}

#[cfg(test)]
mod tests;
