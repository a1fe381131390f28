//! Offset of another clock from the reference's, to the precision needed to match a rank's ends
//! with the reference's (PPoPP20, 4.1).
//!
//! PPoPP20 compares the ends of a site by iteration number, and accepts the site if the gap is
//! equal in all iterations. An iteration that the samples do not separate from the next shifts all
//! later ones. Here every pair of ends votes instead: the two ends are one if the clocks differ by
//! an amount that both samples allow, an interval of two periods. The truth is where most intervals
//! overlap (Marzullo 1984, also the method by which NTP finds the clocks that agree). A loop with
//! iterations of equal length can be shifted by a few of them at the cost of few votes: among gaps
//! with nearly as many votes, the one nearest to the gap at the begin and end of the run is taken,
//! where MPI released all ranks.
//!
//! A drifting clock is followed from block to block of ends. The precise gap and the drift come
//! from the code that also serves measured ends ([`crate::clocks`]).

use super::ends::{End, Sites};

/// Number of ends over which the first gap is searched, and over which it is followed.
const FIRST_BLOCK: usize = 256;
const BLOCK: usize = 64;
/// Maximum error of the gap at the begin and end of the run, in nanoseconds.
const MAX_GAP_ERROR_NS: i64 = 2_000_000_000;
/// Maximum change of a clock's gap from block to block, in periods.
const MAX_GAP_CHANGE_PERIODS: i64 = 5;
/// One of this number of ends may be missing.
const MISSING: u64 = 10;
/// Fraction of the most votes above which a gap has nearly as many.
const NEARLY: f64 = 0.9;

/// Times by which a clock is ahead, by the moments on the reference's clock at which they were
/// determined.
pub(super) struct Gaps(Vec<(i64, i64)>);

impl Gaps {
    /// Builds the gaps of a rank that reads the reference's clock.
    pub(super) fn none() -> Self {
        Self(vec![(0, 0)])
    }

    /// Returns the time by which the clock is ahead at a moment.
    pub(super) fn at(&self, moment: i64) -> i64 {
        let next = self.0.partition_point(|(known, _)| *known < moment);
        let (before, after) = (next.checked_sub(1).and_then(|at| self.0.get(at)), self.0.get(next));
        match (before, after) {
            (Some((from, one)), Some((to, other))) if to > from => {
                let part = (moment - from) as f64 / (to - from) as f64;
                one + ((other - one) as f64 * part).round() as i64
            }
            (Some((_, gap)), _) | (None, Some((_, gap))) => *gap,
            (None, None) => 0,
        }
    }
}

/// Pairs of sites of the reference and of a rank that may be the same synchronisation: equal sites;
/// and, for a rank that runs other code, sites of the same call with equally many ends (PPoPP20,
/// 4.1.1), or nearly so: ends shown by no sample and no control flow are missing.
pub(super) struct Pairs {
    pairs: Vec<(u32, u32)>,
}

impl Pairs {
    /// Builds the pairs for the ends of both ranks.
    pub(super) fn new(reference: &[End], ours: &[End], sites: &Sites) -> Self {
        let count = |ends: &[End]| {
            let mut counts = vec![0u64; sites.len()];
            for site in ends.iter().flat_map(|end| &end.sites) {
                if let Some(count) = counts.get_mut(*site as usize) {
                    *count += 1;
                }
            }
            counts
        };
        let nearly =
            |one: u64, other: u64| one.abs_diff(other) <= (one.max(other) / MISSING).max(1);
        let (theirs, ours) = (count(reference), count(ours));
        let calls: Vec<u16> = sites.iter().map(|site| site.call).collect();
        let mut pairs = Vec::new();
        for (one, count) in theirs.iter().enumerate().filter(|(_, count)| **count > 0) {
            for (other, equal) in ours.iter().enumerate() {
                let is_other_code = one != other && ours[one] == 0 && theirs[other] == 0;
                let are_pair = is_other_code && calls[one] == calls[other];
                let are_pair = are_pair && *equal > 0 && nearly(*equal, *count);
                if (one == other && *equal > 0) || are_pair {
                    pairs.push((one as u32, other as u32));
                }
            }
        }
        Self { pairs }
    }

    /// Returns whether two ends may be one.
    pub(super) fn hold(&self, reference: &End, ours: &End) -> bool {
        let may_be = |(one, other): &(u32, u32)| {
            reference.sites.binary_search(one).is_ok() && ours.sites.binary_search(other).is_ok()
        };
        self.pairs.iter().any(may_be)
    }
}

/// Finds the time by which the clock of `ours` is ahead. `hints` holds the gaps at the begin and
/// end of the run. Returns `None` if the ends do not determine it.
pub(super) fn align(
    reference: &[End],
    ours: &[End],
    pairs: &Pairs,
    hints: &[i64],
    period_ns: i64,
) -> Option<Gaps> {
    let first = &reference[..reference.len().min(FIRST_BLOCK)];
    let (low, high) = (hints.iter().min()?, hints.iter().max()?);
    let window = (low.saturating_sub(MAX_GAP_ERROR_NS), high.saturating_add(MAX_GAP_ERROR_NS));
    let near = |gap: i64| hints.iter().map(|hint| hint.abs_diff(gap)).min().unwrap_or(0);
    let mut gap = most_votes(first, ours, pairs, window, near)?;
    let mut found = Vec::new();
    for block in reference.chunks(BLOCK) {
        let strayed = MAX_GAP_CHANGE_PERIODS.saturating_mul(period_ns);
        let window = (gap.saturating_sub(strayed), gap.saturating_add(strayed));
        let last = gap;
        if let Some(next) = most_votes(block, ours, pairs, window, |it| it.abs_diff(last)) {
            let middle = &block[block.len() / 2];
            found.push((middle.at, next));
            gap = next;
        }
    }
    Some(Gaps(found)).filter(|gaps| !gaps.0.is_empty())
}

/// Returns the gap within a window that most pairs of ends allow; of several, the nearest.
fn most_votes(
    reference: &[End],
    ours: &[End],
    pairs: &Pairs,
    window: (i64, i64),
    distance: impl Fn(i64) -> u64,
) -> Option<i64> {
    let mut bounds: Vec<(i64, i32)> = Vec::new();
    for end in reference {
        let begin = ours.partition_point(|it| it.at < end.at.saturating_add(window.0));
        let near = ours[begin..].iter().take_while(|it| it.at <= end.at.saturating_add(window.1));
        for it in near.filter(|it| pairs.hold(end, it)) {
            bounds.push((it.earliest - end.latest, 1));
            bounds.push((it.latest - end.earliest, -1));
        }
    }
    // Intervals that only touch also overlap.
    bounds.sort_unstable_by_key(|(bound, step)| (*bound, -step));
    let mut stretches: Vec<(i32, i64)> = Vec::new();
    let mut votes = 0;
    for pair in bounds.windows(2) {
        votes += pair[0].1;
        stretches.push((votes, pair[0].0 + (pair[1].0 - pair[0].0) / 2));
    }
    let most = stretches.iter().map(|(votes, _)| *votes).max()?;
    let enough = (f64::from(most) * NEARLY).ceil() as i32;
    let best = stretches.iter().filter(|(votes, _)| *votes >= enough);
    let nearest = best.min_by_key(|(_, gap)| distance(*gap))?.1;
    // The gaps around it with the most votes.
    let around = |(votes, gap): &&(i32, i64)| {
        *votes >= enough && gap.abs_diff(nearest) <= width(reference).unsigned_abs()
    };
    let highest = stretches.iter().filter(around).map(|(votes, _)| *votes).max()?;
    let top = stretches.iter().filter(around).filter(|(votes, _)| *votes == highest);
    let top: Vec<i64> = top.map(|(_, gap)| *gap).collect();
    top.get(top.len() / 2).copied()
}

/// Returns the typical uncertainty of the reference's ends.
fn width(reference: &[End]) -> i64 {
    let mut widths: Vec<i64> = reference.iter().map(|end| end.latest - end.earliest).collect();
    widths.sort_unstable();
    widths.get(widths.len() / 2).copied().unwrap_or(0)
}
