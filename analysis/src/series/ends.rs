//! When synchronisations may have let a rank go, as its samples show it.
//!
//! A sample inside MPI shows a call that others are waited for in; the call has returned between the last
//! such sample and the next one. A call that was too short for a sample leaves two samples of its caller
//! between which the control flow leads through it (PPoPP20, 4.2). Both are known to within a period.

use std::collections::BTreeSet;

use plimsoll_collector::profile::{ContextTree, Series};
use serde::{Deserialize, Serialize};

use crate::canonical::{Step, path};

/// Longest instruction that calls, in bytes.
const LONGEST_CALL: u64 = 8;

/// A place from which MPI is called to synchronise, the same on all ranks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Site {
    /// Return addresses from main on.
    chain: Vec<u64>,
    /// The call of MPI.
    pub(super) call: u16,
    /// Frames of its context, each with what tells it from others.
    pub(super) path: Vec<Step>,
}

/// A synchronisation that may have ended. Times are nanoseconds on a clock that the rank reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct End {
    /// Since when the rank may have waited in it.
    pub(super) since: i64,
    /// When it returned at the earliest.
    pub(super) earliest: i64,
    /// When the time of what follows begins to count.
    pub(super) at: i64,
    /// When it had returned.
    pub(super) latest: i64,
    /// Which of them it may be, ascending.
    pub(super) sites: Vec<u32>,
    /// A sample saw it; else there may have been none at all.
    pub(super) is_sampled: bool,
    /// The first sight after it.
    pub(super) sight: usize,
}

/// The sites that a rank was seen at, in the terms of all ranks.
pub(super) fn sites(series: &Series, tree: &ContextTree) -> Vec<Site> {
    let site = |site: &plimsoll_collector::profile::SyncSite| Site {
        chain: site.chain.clone(),
        call: site.call,
        path: path(tree, site.node),
    };
    series.sites.iter().map(site).collect()
}

/// The sites of all ranks, in the order of their numbers.
pub(super) type Sites = BTreeSet<Site>;

/// All ends that a rank's samples allow, by time. The run begins at `begin_ns`.
pub(super) fn ends(
    series: &Series,
    tree: &ContextTree,
    sites: &Sites,
    begin_ns: i64,
    period_ns: u64,
) -> Vec<End> {
    let ours: Vec<Option<u32>> = self::sites(series, tree)
        .iter()
        .map(|site| sites.iter().position(|known| known == site).map(|number| number as u32))
        .collect();
    let passed: Vec<Vec<u32>> = series
        .passages
        .iter()
        .map(|passage| {
            let numbered = sites.iter().zip(0..);
            let passes = |site: &Site| passes(&passage.outer, &passage.calls, &site.chain);
            numbered.filter(|(site, _)| passes(site)).map(|(_, number)| number).collect()
        })
        .collect();
    let by_way = |way: &Vec<u32>| {
        let parts = way.iter().filter_map(|passage| passed.get(*passage as usize));
        parts.flatten().copied().collect::<BTreeSet<u32>>().into_iter().collect()
    };
    let ways: Vec<Vec<u32>> = series.ways.iter().map(by_way).collect();
    let mut ends = Vec::new();
    let (mut since, mut goes_on) = (0, false);
    for (sight, pair) in (1..).zip(series.sights.windows(2)) {
        let [last, next] = pair else { continue };
        if !std::mem::replace(&mut goes_on, false) {
            since = last.earliest_ns;
        }
        // Nothing that samples could show lies between two calls of one site so close to each other.
        let is_close = next.latest_ns - next.earliest_ns < period_ns / 2;
        goes_on = last.inside.is_some() && last.inside == next.inside && (next.goes_on || is_close);
        let left = last.inside.filter(|_| !goes_on);
        let sampled = left.and_then(|site| ours.get(site as usize).copied().flatten());
        let sites = match (sampled, goes_on, next.way) {
            (Some(site), ..) => vec![site],
            (None, false, Some(way)) => ways.get(way as usize).cloned().unwrap_or_default(),
            _ => Vec::new(),
        };
        if sites.is_empty() {
            continue;
        }
        let moment = |ns: u64| begin_ns.saturating_add_unsigned(ns);
        let is_sampled = sampled.is_some();
        ends.push(End {
            since: moment(if is_sampled { since } else { next.earliest_ns }),
            earliest: moment(next.earliest_ns),
            at: moment(next.at_ns),
            latest: moment(next.latest_ns),
            sites,
            is_sampled,
            sight,
        });
    }
    ends
}

/// Whether the procedure that the calls `outer` lead to has passed the call that leads to a site.
fn passes(outer: &[u64], calls: &[u64], chain: &[u64]) -> bool {
    let Some([returns_to, ..]) = chain.strip_prefix(outer) else { return false };
    let before = calls.partition_point(|call| call < returns_to);
    let call = before.checked_sub(1).and_then(|at| calls.get(at));
    call.is_some_and(|call| returns_to - call <= LONGEST_CALL)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_known_by_where_it_returns_to() {
        assert!(passes(&[], &[10, 40], &[45]));
        assert!(passes(&[7], &[10, 40], &[7, 15, 99]));
        // Another caller, another call, another way to it.
        assert!(!passes(&[8], &[10, 40], &[7, 15]));
        assert!(!passes(&[], &[10, 40], &[30]));
        assert!(!passes(&[7, 15], &[10], &[7, 15]));
        assert!(!passes(&[], &[], &[45]));
    }
}
