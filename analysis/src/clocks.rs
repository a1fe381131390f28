//! Offsets and drifts of the ranks' clocks (PPoPP20, 4.1), relative to the reference clock, which
//! is the lowest rank's.
//!
//! Phases and losses do not need aligned clocks: the k-th synchronisation is the same on every
//! rank, and each rank measures time from its own begin. Alignment serves readers that compare
//! times of different ranks: when the reference clock reads t, a rank's clock reads t + offset +
//! drift * (t - begin), where begin is the begin of the reference's run.
//!
//! - Ranks that read the same clock, that of their node, are exactly aligned and not compared.
//! - For each synchronisation the ranks on the reference clock determine the earliest return of any
//!   of them, which is the least delayed one. All ranks receive these times and [fit](fit()) their
//!   own returns to them.
//! - The fits of all ranks of another clock are then reduced to one line.
//! - If a clock has too few synchronisations, [messages](exchange()) replace synchronisations for
//!   all clocks. If messages and synchronisations contradict each other, messages are used.
//!
//! If calls are not measured, [`crate::sampled_phases`] finds the returns in the samples, with the
//! precision of a period; all later steps are the same.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::communicator::{Communicator, CommunicatorError, broadcast, reduce};
use crate::input::{Exchange, RankInput};
use crate::map_merge::merge;
use crate::ranks::RankSet;
use crate::summary::{ClockMethod, Clocks};

mod exchange;
mod fit;
mod line;
mod return_times;

pub use exchange::exchange;
pub use fit::{Fit, MIN_SYNCS, fit};
use line::{Line, drifted_ns};
use return_times::ReturnRange;

/// Identity of a clock: ranks with equal names read the same clock.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct ClockName {
    host: String,
    id: String,
    /// Set if it is not known which other ranks read the clock; the clock is then this rank's
    /// alone.
    rank: Option<u32>,
}

impl ClockName {
    /// Returns the name of the clock that a rank reads.
    pub fn of(input: &RankInput) -> Self {
        let id = input.clock.id.clone();
        let rank = id.is_empty().then_some(input.rank);
        Self { host: input.host.clone(), id, rank }
    }
}

/// Begin of a rank's run by its own clock.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RunBegin {
    clock: ClockName,
    /// In nanoseconds; `None` without synchronisations.
    at_ns: Option<u64>,
}

impl RunBegin {
    /// Returns the begin of a rank's run.
    pub fn of(input: &RankInput) -> Self {
        let sync_returns = input.profile.sync_returns.as_ref();
        Self { clock: ClockName::of(input), at_ns: sync_returns.map(|it| it.begin_ns) }
    }
}

/// Lowest rank and its clock; `None` without ranks.
pub type Lowest = Option<(u32, ClockName)>;

/// Returns the lowest of some ranks.
pub fn lowest(inputs: &[RankInput]) -> Lowest {
    inputs.iter().min_by_key(|input| input.rank).map(|input| (input.rank, ClockName::of(input)))
}

/// Returns the lower of two lowest ranks.
pub fn lower(ours: Lowest, theirs: Lowest) -> Lowest {
    ours.into_iter().chain(theirs).min()
}

/// Reference clock, with which all others are compared.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reference {
    lowest: Lowest,
    /// Begin of the lowest rank's run and its duration with pauses, in nanoseconds.
    run_ns: Option<(u64, u64)>,
    /// Earliest return of any rank on this clock, in nanoseconds, by index of the synchronisation.
    ends: BTreeMap<u64, u64>,
    /// Whether returns were found in samples instead of being measured.
    by_samples: bool,
}

impl Reference {
    /// Collects the returns of the ranks on the reference clock. Collective.
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
        let Some(sync_returns) = input.profile.sync_returns.as_ref() else { return };
        if *clock != ClockName::of(input) {
            return;
        }
        if *lowest == input.rank {
            self.run_ns = Some((sync_returns.begin_ns, input.profile.span_ns()));
        }
        self.add(sync_returns.ends.iter().copied());
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

    /// Returns the begin of the run and its middle, relative to the begin, in nanoseconds.
    fn run(&self) -> Option<(u64, i64)> {
        self.run_ns.map(|(begin, length)| (begin, signed(length / 2, 0)))
    }

    /// Fits a rank's clock to this one by the synchronisations that both recorded.
    fn fit(&self, input: &RankInput) -> Option<Fit> {
        let sync_returns = input.profile.sync_returns.as_ref()?;
        let (begin_ns, middle_ns) = self.run()?;
        let gap = |(index, end): &(u64, u64)| {
            let reference = *self.ends.get(index)?;
            Some((signed(reference, begin_ns), signed(*end, reference)))
        };
        let gaps: Vec<_> = sync_returns.ends.iter().filter_map(gap).collect();
        fit(&gaps, middle_ns)
    }
}

fn signed(one: u64, other: u64) -> i64 {
    let apart = i128::from(one) - i128::from(other);
    apart.clamp(i64::MIN.into(), i64::MAX.into()) as i64
}

/// Maximum number of ranks per clock with a fit. More ranks add little precision, and the root
/// holds the fits of as many clocks as there are nodes.
const MAX_FITS: usize = 16;

/// Fits and exchanges of the ranks of one clock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Known {
    ranks: RankSet,
    /// Fit by rank, for the lowest [`MAX_FITS`] ranks that share enough synchronisations.
    fits: BTreeMap<u32, Fit>,
    /// Exchanges of the lowest rank that has any.
    exchanges: Option<(u32, Vec<Exchange>)>,
    /// Returns of the ranks with a fit; `None` if no rank has one.
    returns: Option<ReturnRange>,
}

/// Fits and exchanges of some ranks, by clock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClockTotals {
    clocks: BTreeMap<ClockName, Known>,
}

impl ClockTotals {
    /// Adds one rank.
    pub fn add_rank(&mut self, input: &RankInput, reference: &Reference) {
        let is_lowest = reference.lowest.as_ref().is_some_and(|(rank, _)| *rank == input.rank);
        let fit = reference.fit(input);
        let returns = fit.map(|fit| ReturnRange::of_rank(fit.middle_ns, input.rank));
        let fit = fit.filter(|_| !is_lowest);
        let exchanges = &input.clock.exchanges;
        let known = Known {
            ranks: RankSet::from_iter([input.rank]),
            fits: fit.into_iter().map(|fit| (input.rank, fit)).collect(),
            exchanges: (!exchanges.is_empty()).then(|| (input.rank, exchanges.clone())),
            returns,
        };
        self.clocks.entry(ClockName::of(input)).or_default().combine(known);
    }

    /// Merges the clocks of other ranks.
    pub fn combine(&mut self, other: Self) {
        merge(&mut self.clocks, other.clocks, Known::combine);
    }

    /// Returns the shifts that convert the ranks' times to the reference clock.
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

    /// Returns offsets and drifts of all clocks, once all ranks are added. `period_ns` is the
    /// precision of times from samples.
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

    /// Returns the sentence about ranks that do not leave the synchronisations together; `None` if
    /// all do.
    pub fn apart_note(&self, reference: &Reference, period_ns: u64) -> Option<String> {
        return_times::note(self.clocks.values(), reference, period_ns)
    }

    /// Returns the lines of all clocks except the reference, and the method that they come from;
    /// `None` if a clock has no line.
    fn chosen_lines(
        &self,
        reference: &Reference,
        period_ns: u64,
    ) -> Option<(ClockMethod, Lines<'_>)> {
        let (_, ours) = reference.lowest.as_ref()?;
        let by_releases = self.lines(ours, |known| Line::of_fits(&known.fits, reference));
        let home = self.clocks.get(ours);
        let home_exchanges = home.and_then(|known| known.exchanges.as_ref());
        let by_messages = self.lines(ours, |known| {
            Line::of_exchanges(&known.exchanges.as_ref()?.1, &home_exchanges?.1, reference)
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

    /// Returns the lines of all clocks except the reference; `None` if a clock has no line.
    fn lines(&self, ours: &ClockName, line: impl Fn(&Known) -> Option<Line>) -> Option<Lines<'_>> {
        let others = self.clocks.iter().filter(|(name, _)| *name != ours);
        others.map(|(name, known)| Some((name, line(known)?))).collect()
    }
}

type Lines<'a> = BTreeMap<&'a ClockName, Line>;

/// Lead of a clock over the reference clock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Shift {
    /// Lead at the begin of the reference's run, in nanoseconds.
    begin_ns: i64,
    /// Drift in parts per 10^12; positive if the clock is faster.
    drift_ppt: i64,
}

/// Shifts that convert the times of any rank to the reference clock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alignment {
    /// Begin of the reference's run on the reference clock, in nanoseconds.
    begin_ns: Option<u64>,
    shifts: BTreeMap<ClockName, Shift>,
}

impl Alignment {
    /// Returns the relation of a rank's times to the reference clock; `None` if unknown.
    pub fn clock(&self, input: &RankInput) -> Option<AlignedClock> {
        let begin_ns = input.profile.sync_returns.as_ref()?.begin_ns;
        let shift = *self.shifts.get(&ClockName::of(input))?;
        Some(AlignedClock { begin_ns: signed(begin_ns, self.begin_ns?), shift })
    }

    /// Returns the begin of a rank's run, in nanoseconds since the begin of the reference's run.
    /// Returns 0 if the rank's clock is unknown: MPI_Init returns at about the same time on all
    /// ranks.
    pub fn begin_ns(&self, input: &RankInput) -> i64 {
        self.begin_of_ns(&RunBegin::of(input))
    }

    /// Returns the same of a begin by the rank's own clock.
    pub fn begin_of_ns(&self, begin: &RunBegin) -> i64 {
        let shift = self.shifts.get(&begin.clock);
        let known = begin.at_ns.zip(self.begin_ns).zip(shift);
        known.map_or(0, |((at_ns, begin_ns), shift)| {
            let since_ns = signed(at_ns, begin_ns).saturating_sub(shift.begin_ns);
            since_ns.saturating_sub(drifted_ns(shift.drift_ppt, since_ns))
        })
    }
}

/// Relation of a rank's times to the reference clock.
#[derive(Clone, Copy, Debug)]
pub struct AlignedClock {
    /// Begin of the rank's run on its own clock, since the begin of the reference's run.
    begin_ns: i64,
    shift: Shift,
}

impl AlignedClock {
    /// Converts a time since the begin of the rank's run, in nanoseconds, to the time since the
    /// begin of the reference's run.
    pub fn reference_ns(&self, since_ns: u64) -> i64 {
        let own_ns = self.begin_ns.saturating_add_unsigned(since_ns);
        let about_ns = own_ns.saturating_sub(self.shift.begin_ns);
        about_ns.saturating_sub(drifted_ns(self.shift.drift_ppt, about_ns))
    }
}

/// Returns whether messages and synchronisations differ by more than the error of messages plus one
/// period. Messages have a bounded error, while ranks that share cores may return late from every
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
        while self.fits.len() > MAX_FITS {
            self.fits.pop_last();
        }
        self.exchanges = self.exchanges.take().into_iter().chain(other.exchanges).min();
        self.returns = self.returns.into_iter().chain(other.returns).reduce(ReturnRange::union);
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
