//! Times at which synchronisations may have released a rank, from its samples.
//!
//! A sample inside MPI shows a call that waits for other ranks; the call returned between the last
//! such sample and the next one. A call that was too short for a sample leaves two samples of its
//! caller between which the control flow leads through the call (PPoPP20, 4.2). Both times are
//! known to within a period.

use std::collections::BTreeSet;

use plimsoll_collector::profile::{ContextTree, Series};
use serde::{Deserialize, Serialize};

use crate::canonical::{Step, path};

/// Maximum length of a call instruction, in bytes.
const MAX_CALL_BYTES: u64 = 8;

/// A place that calls MPI to synchronise, equal on all ranks.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub(super) struct Site {
    /// Return addresses from main on.
    chain: Vec<u64>,
    /// Id of the MPI call.
    pub(super) call: u16,
    /// Frames of its context, each with the values that distinguish it from others.
    pub(super) path: Vec<Step>,
}

/// A possible end of a synchronisation. Times are in nanoseconds on a clock that the rank reads.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct End {
    /// Earliest time at which the rank may have started to wait in it.
    pub(super) since: i64,
    /// Earliest time of its return.
    pub(super) earliest: i64,
    /// Time from which on the following code is charged.
    pub(super) at: i64,
    /// Latest time of its return.
    pub(super) latest: i64,
    /// Numbers of the possible sites, ascending.
    pub(super) sites: Vec<u32>,
    /// Whether a sample saw the synchronisation; otherwise there may have been none.
    pub(super) is_sampled: bool,
    /// Index of the first sample after it.
    pub(super) sight: usize,
}

impl End {
    /// Returns the end on a clock that is ahead by `gap`.
    pub(super) fn moved(&self, gap: i64) -> Self {
        Self {
            since: self.since.saturating_add(gap),
            earliest: self.earliest.saturating_add(gap),
            at: self.at.saturating_add(gap),
            latest: self.latest.saturating_add(gap),
            sites: self.sites.clone(),
            ..*self
        }
    }
}

/// Returns the sites at which a rank was seen, in a form that is equal on all ranks.
pub(super) fn sites(series: &Series, tree: &ContextTree) -> Vec<Site> {
    let site = |site: &plimsoll_collector::profile::SyncSite| Site {
        chain: site.chain.clone(),
        call: site.call,
        path: path(tree, site.node),
    };
    series.sites.iter().map(site).collect()
}

/// Sites of all ranks, in the order of their numbers.
pub(super) type Sites = BTreeSet<Site>;

/// Returns all ends that a rank's samples allow, sorted by time. The run begins at `begin_ns`.
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
        // Between two calls of one site at this distance there is nothing that samples could show.
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

/// Returns whether the procedure reached by the calls `outer` has passed the call that leads to a
/// site.
fn passes(outer: &[u64], calls: &[u64], chain: &[u64]) -> bool {
    let Some([returns_to, ..]) = chain.strip_prefix(outer) else { return false };
    let before = calls.partition_point(|call| call < returns_to);
    let call = before.checked_sub(1).and_then(|at| calls.get(at));
    call.is_some_and(|call| returns_to - call <= MAX_CALL_BYTES)
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
