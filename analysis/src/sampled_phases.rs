//! Phases and releases from samples alone, for runs without measured calls (PPoPP20, 4.1 and 4.2).
//! Each process rewrites the profiles of its ranks to the form that measured synchronisations would
//! have given them. All later steps (clocks, phases, losses) use the same code for both.
//!
//! 1. All ranks learn the [sites](ends::Site) at which any rank was seen to synchronise.
//! 2. The [ends] of the reference, the lowest rank, are broadcast (4.1.2): times at which its
//!    samples saw a synchronisation return, or at which it may have passed one of these sites
//!    between two samples.
//! 3. Each rank [aligns](align()) its clock, if it differs from the reference's, and looks for an
//!    end of its own at the same time. A rank without such an end was not in that synchronisation.
//! 4. Votes are added up. An end that all ranks have in common was a synchronisation of all (4.2):
//!    each rank's run is [cut](cut()) there.
//! 5. Ends that only some ranks have in common divide the instances of these [subgroups].
//!
//! Differences from PPoPP20: PPoPP20 compares the ends of one site at a time, by iterations, and
//! then decides for each site whether all ranks leave it together. Here each end is decided
//! separately, so that an end that the samples of one rank do not show affects no other end, and
//! the site matters only if several are possible. Several synchronisations between two samples
//! count as one.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::clocks::{ClockName, Lowest};
use crate::communicator::{Communicator, CommunicatorError, broadcast, reduce};
use crate::input::RankInput;
use crate::map_merge::merge;

mod align;
mod cut;
mod ends;
mod subgroups;
#[cfg(test)]
mod tests;

use align::{Gaps, Pairs, align};
use cut::{Cut, cut};
use ends::{End, Sites, ends};

/// Maximum delay of a rank after a release, in periods: a rank without a core resumes only after
/// others have used theirs.
const MAX_DELAY_PERIODS: i64 = 8;
/// Minimum fraction of a site's sampled ends that all ranks must leave together: other sites
/// synchronise some ranks, and all ranks only occasionally, by chance.
const MIN_COMMON_FRACTION: f64 = 2.0 / 3.0;
/// Maximum number of ends of the reference: they are sent to all ranks.
const MAX_ENDS: usize = 1 << 17;

/// Data that ranks contribute before they are compared.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Seen {
    sites: Sites,
    ranks: u32,
    /// Number of ranks with missing samples.
    broken: u32,
    /// Maximum number of samples that one in the series of a rank stands for.
    stride: u32,
}

/// Rank that all others are compared with.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct Reference {
    clock: ClockName,
    begin: i64,
    /// Period of the rank's samples.
    period_ns: u64,
    /// Index and time of the synchronisation at the end of the run; `None` if not measured.
    last: Option<(u64, i64)>,
    ends: Vec<End>,
}

/// Votes of some ranks on one of the reference's ends.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Vote {
    /// Number of ranks that may have been released at that time.
    ranks: u32,
    /// Number of these ranks that may have been at each site.
    possible: BTreeMap<u32, u32>,
    /// Number of these ranks that a sample saw at each site.
    sampled: BTreeMap<u32, u32>,
}

/// Ends of a rank.
struct RankEnds {
    ends: Vec<End>,
    /// For each end of the reference, the index of the matching one.
    matches: Vec<Option<usize>>,
    /// The rank's clock against the reference's; `None` if their relation is unknown.
    gaps: Option<Gaps>,
}

/// Finds the phases of ranks with samples only, and rewrites their profiles. Returns notes for the
/// summary. Collective.
pub fn resolve(
    comm: &dyn Communicator,
    local: &mut [RankInput],
    lowest: &Lowest,
) -> Result<Vec<String>, CommunicatorError> {
    let ours = local.iter().fold(Seen::default(), Seen::add_rank);
    let seen = broadcast(comm, reduce(comm, ours, Seen::combine))?;
    if seen.broken > 0 {
        return Ok(vec![String::from(
            "Calls were not measured (PLIMSOLL_REGIONS=off), and the measurement was paused, or \
             samples were minutes apart: the run is one phase.",
        )]);
    }
    // What one sample of many shows, it shows to their common period.
    for input in local.iter_mut() {
        let stride = input.profile.series.as_ref().map_or(1, |series| series.stride.max(1));
        let period_ns = &mut input.profile.kept_period_ns;
        *period_ns = period_ns.saturating_mul(stride.into());
    }
    let reference = local.iter().find(|input| lowest.as_ref().is_some_and(|it| it.0 == input.rank));
    let reference = reference.map(|input| Reference::of(input, &seen.sites));
    let reference = broadcast(comm, reduce(comm, reference, Option::or))?;
    let Some(reference) = reference else { return Ok(Vec::new()) };
    let found: Vec<RankEnds> =
        local.iter().map(|input| reference.found_in(input, &seen.sites)).collect();
    let nobody = vec![Vote::default(); reference.ends.len()];
    let ours = found.iter().fold(nobody, |votes, RankEnds { ends, matches, .. }| {
        combine(votes, matches.iter().map(|at| Vote::of(at.map(|at| &ends[at]))).collect())
    });
    let votes = broadcast(comm, reduce(comm, ours, combine))?;
    let agreed = Agreed::new(&votes, seen.ranks, seen.sites.len());
    let agreed_by = |found: &RankEnds| -> BTreeSet<usize> {
        agreed.ends.iter().filter_map(|at| *found.matches.get(*at)?).collect()
    };
    let candidates = local.iter().zip(&found).map(|(input, found)| {
        (input.rank, period(input.profile.kept_period_ns), found, agreed_by(found))
    });
    let divisions = subgroups::find(comm, candidates.collect(), (seen.ranks, &seen.sites))?;
    let sites: Vec<_> = seen.sites.iter().collect();
    for (position, (input, found)) in local.iter_mut().zip(&found).enumerate() {
        let RankEnds { ends, matches, .. } = found;
        let Some(series) = input.profile.series.take() else { continue };
        let cuts: Vec<Cut<'_>> = (agreed.ends.iter())
            .filter_map(|at| {
                let end = &ends[(*matches.get(*at)?)?];
                Some(Cut { end, site: sites[agreed.site(*at, end)? as usize] })
            })
            .collect();
        // An agreed end has a vote of every rank, so each rank has all of them.
        if cuts.len() == agreed.ends.len() {
            let divisions = divisions.of(position, ends, &sites);
            cut(&mut input.profile, &series, (&cuts, &divisions));
        }
    }
    let thinned = (seen.stride > 1).then(|| {
        format!(
            "Calls were not measured (PLIMSOLL_REGIONS=off), and the memory holds one of every {} \
             samples: phases are as accurate as samples so far apart. A larger PLIMSOLL_MEMORY \
             holds more.",
            seen.stride
        )
    });
    let has_more = divisions.has_more.then(|| {
        String::from(
            "Calls were not measured (PLIMSOLL_REGIONS=off), and samples show more groups of \
             ranks than are followed: the synchronisations of some divide no phases.",
        )
    });
    Ok(thinned.into_iter().chain(has_more).collect())
}

/// Returns the begin of a rank's run, in nanoseconds on the rank's clock.
fn begin(input: &RankInput) -> i64 {
    let sync_returns = input.profile.sync_returns.as_ref();
    sync_returns.map_or(0, |sync_returns| i64::try_from(sync_returns.begin_ns).unwrap_or(i64::MAX))
}

impl Seen {
    fn add_rank(mut self, input: &RankInput) -> Self {
        let profile = &input.profile;
        self.ranks += 1;
        match profile.series.as_ref().filter(|series| series.is_whole) {
            Some(series) => {
                self.sites.extend(ends::sites(series, &profile.tree));
                self.stride = self.stride.max(series.stride);
            }
            None => self.broken += 1,
        }
        self
    }

    fn combine(mut self, other: Self) -> Self {
        self.sites.extend(other.sites);
        self.ranks += other.ranks;
        self.broken += other.broken;
        self.stride = self.stride.max(other.stride);
        self
    }
}

impl Reference {
    fn of(input: &RankInput, sites: &Sites) -> Self {
        let mut ends = ends_of(input, sites);
        ends.truncate(MAX_ENDS);
        Self {
            clock: ClockName::of(input),
            begin: begin(input),
            period_ns: input.profile.kept_period_ns,
            last: last(input),
            ends,
        }
    }

    /// Returns the ends of a rank, and which of them are the reference's.
    fn found_in(&self, input: &RankInput, sites: &Sites) -> RankEnds {
        let ours = ends_of(input, sites);
        let pairs = Pairs::new(&self.ends, &ours, sites);
        let period = period(input.profile.kept_period_ns.max(self.period_ns));
        let mut hints = vec![begin(input).saturating_sub(self.begin)];
        if let (Some((one, theirs)), Some((other, ours))) = (self.last, last(input))
            && one == other
        {
            hints.push(ours.saturating_sub(theirs));
        }
        let gaps = if self.clock == ClockName::of(input) {
            Some(Gaps::none())
        } else {
            align(&self.ends, &ours, &pairs, &hints, period)
        };
        let matches = match &gaps {
            Some(gaps) => matched(&self.ends, &ours, &pairs, gaps, period),
            None => vec![None; self.ends.len()],
        };
        RankEnds { ends: ours, matches, gaps }
    }
}

fn period(ns: u64) -> i64 {
    i64::try_from(ns).unwrap_or(i64::MAX / 16)
}

fn ends_of(input: &RankInput, sites: &Sites) -> Vec<End> {
    let series = input.profile.series.as_ref();
    let (tree, period_ns) = (&input.profile.tree, input.profile.kept_period_ns);
    series.map_or_else(Vec::new, |series| ends(series, tree, sites, begin(input), period_ns))
}

/// Returns the synchronisation that is measured even without measured calls: the one at the end of
/// the run.
fn last(input: &RankInput) -> Option<(u64, i64)> {
    let (index, end) = input.profile.sync_returns.as_ref()?.ends.last()?;
    Some((*index, i64::try_from(*end).ok()?))
}

/// Returns, for each end of the reference, the nearest of our ends at the same time. None of our
/// ends is used twice.
fn matched(
    reference: &[End],
    ours: &[End],
    pairs: &Pairs,
    gaps: &Gaps,
    period: i64,
) -> Vec<Option<usize>> {
    let mut takers: BTreeMap<usize, (u64, usize)> = BTreeMap::new();
    for (index, end) in reference.iter().enumerate() {
        let gap = gaps.at(end.at);
        let at = end.at.saturating_add(gap);
        let far = MAX_DELAY_PERIODS.saturating_mul(period);
        let begin = ours.partition_point(|it| it.at < at.saturating_sub(far));
        let near = ours.iter().enumerate().skip(begin);
        let near = near.take_while(|(_, it)| it.at <= at.saturating_add(far));
        let together = |it: &End| {
            it.since <= end.latest.saturating_add(gap).saturating_add(period)
                && end.since.saturating_add(gap) <= it.latest.saturating_add(period)
        };
        let best = near
            .filter(|(_, it)| pairs.hold(end, it) && together(it))
            .min_by_key(|(_, it)| it.at.abs_diff(at));
        if let Some((number, it)) = best {
            let claim = (it.at.abs_diff(at), index);
            let taker = takers.entry(number).or_insert(claim);
            *taker = claim.min(*taker);
        }
    }
    let mut matches = vec![None; reference.len()];
    let mut apart: BTreeMap<&[u32], Vec<u64>> = BTreeMap::new();
    for (number, (distance, index)) in takers {
        matches[index] = Some(number);
        apart.entry(&reference[index].sites).or_default().push(distance);
    }
    // A rank that typically returns later was not released by this synchronisation: a missing core
    // delays a rank only now and then.
    apart.values_mut().for_each(|distances| distances.sort_unstable());
    for (end, taken) in reference.iter().zip(&mut matches) {
        let distances = apart.get(&end.sites[..]).map_or(&[][..], Vec::as_slice);
        let typical = distances.get(distances.len() / 2);
        if typical.is_some_and(|typical| 2 * typical > 3 * period.unsigned_abs()) {
            *taken = None;
        }
    }
    // Matches must be in the order of time.
    let mut latest = None;
    for taken in &mut matches {
        if *taken <= latest {
            *taken = None;
        }
        latest = latest.max(*taken);
    }
    matches
}

impl Vote {
    fn of(end: Option<&End>) -> Self {
        let sites = |end: Option<&End>| -> BTreeMap<u32, u32> {
            end.into_iter().flat_map(|end| &end.sites).map(|site| (*site, 1)).collect()
        };
        let sampled = sites(end.filter(|end| end.is_sampled));
        Self { ranks: end.is_some().into(), possible: sites(end), sampled }
    }
}

fn combine(mut ours: Vec<Vote>, theirs: Vec<Vote>) -> Vec<Vote> {
    for (vote, other) in ours.iter_mut().zip(theirs) {
        vote.ranks += other.ranks;
        merge(&mut vote.possible, other.possible, |ours, ranks| *ours += ranks);
        merge(&mut vote.sampled, other.sampled, |ours, ranks| *ours += ranks);
    }
    ours
}

/// Ends that all ranks have in common.
struct Agreed<'a> {
    /// Indices of the reference's ends.
    ends: Vec<usize>,
    votes: &'a [Vote],
    /// Number of samples at each site.
    sampled: Vec<u64>,
}

impl<'a> Agreed<'a> {
    fn new(votes: &'a [Vote], ranks: u32, sites: usize) -> Self {
        let mut sampled = vec![0; sites];
        let mut ends_of = vec![(0u64, 0u64); sites];
        for vote in votes {
            for (site, ranks_there) in &vote.sampled {
                sampled[*site as usize] += u64::from(*ranks_there);
                let (all, together) = &mut ends_of[*site as usize];
                *all += 1;
                *together += u64::from(vote.ranks == ranks);
            }
        }
        let is_common = |site: &u32| {
            let (all, together) = ends_of[*site as usize];
            together as f64 >= MIN_COMMON_FRACTION * all as f64
        };
        let is_agreed = |vote: &Vote| vote.ranks == ranks && vote.sampled.keys().all(is_common);
        let ends = (0..).zip(votes).filter(|(_, vote)| is_agreed(vote)).map(|(at, _)| at).collect();
        Self { ends, votes, sampled }
    }

    /// Returns the site of an end for a rank: a site at which all ranks may have been, if there is
    /// one; of several, the one with the most samples, then or at other times.
    fn site(&self, at: usize, end: &End) -> Option<u32> {
        let seen = |site: &u32| {
            let now = self.votes[at].sampled.get(site).copied().unwrap_or(0);
            (now, self.sampled[*site as usize], std::cmp::Reverse(*site))
        };
        let vote = &self.votes[at];
        let common = vote.possible.iter().filter(|(_, ranks)| **ranks == vote.ranks);
        let common = common.map(|(site, _)| *site).max_by_key(seen);
        common.or_else(|| end.sites.iter().copied().max_by_key(seen))
    }
}
