//! Inefficient segments (ICS18, 4.3.3): the phases in which contexts lose a significant part of the
//! run, with the row of ICS18's Table 2 that says where to look first.
//!
//! ICS18 adds up over single passes of a segment; here the imbalance of work is that of a phase's
//! instances, as for the losses. Even wait time in the ending synchronisation counts like other
//! wait time if it is significant: otherwise a synchronisation that is slow on all ranks would be
//! in no segment.

use std::collections::BTreeMap;

use plimsoll_collector::profile::NodeId;

use crate::attribution::{Category, Inefficiency, inefficiency, significant};
use crate::imbalance::PhaseImbalance;
use crate::labelling::ContextClass;
use crate::metrics::NS_PER_S;
use crate::owners::Owners;
use crate::summary::Segment;
use crate::thresholds::{MIN_SEGMENT_SYNC_FRACTION, MIN_SEVERITY, SIGNIFICANT_FRACTION};
use crate::totals::{PhaseTotals, Totals};

/// Returns the inefficient segments of a run, by phase. `places` holds the index of each context in
/// the summary's tree.
pub fn segments(
    totals: &Totals,
    imbalances: &BTreeMap<u64, PhaseImbalance>,
    context_classes: &[ContextClass],
    owners: &Owners,
    places: &[Option<u32>],
) -> Vec<Segment> {
    let (ranks, run_ns) = (totals.job.ranks.len(), totals.job.elapsed_ns as f64);
    let of_phase = |(id, (index, phase)): (u32, (&u64, &PhaseTotals))| {
        let measured = &imbalances[index];
        let found = contexts(totals, context_classes, owners, phase, measured);
        let sync = Inefficiency { imb_ns: measured.symptom_ns, wait_ns: measured.even_ns };
        let sum = |of: fn(&Inefficiency) -> f64| found.iter().map(|(_, it)| of(it)).sum::<f64>();
        let of_sync_ns = Some(sync.wait_ns).filter(|ns| *ns > SIGNIFICANT_FRACTION * run_ns);
        let imb_ns = sum(|it| it.imb_ns);
        let wait_ns = sum(|it| it.wait_ns) + of_sync_ns.unwrap_or(0.0);
        let is_high = high(sync.imb_ns / run_ns, imb_ns / run_ns, wait_ns / run_ns);
        let nodes = found.iter().filter_map(|(node, _)| places[*node as usize]);
        let segment = Segment {
            phase: id,
            imb_sync_s: sync.imb_ns / NS_PER_S,
            sum_imb_s: imb_ns / NS_PER_S,
            sum_wait_s: wait_ns / NS_PER_S,
            row: row(is_high),
            nodes: nodes.collect(),
        };
        is_high.contains(&true).then_some(segment)
    };
    if ranks < 2 || run_ns <= 0.0 {
        return Vec::new();
    }
    (0..).zip(&totals.sums.phases).filter_map(of_phase).collect()
}

/// Returns whether imb(S), the sum of imb(N) and the sum of wait(N) are high; all are fractions of
/// the run.
fn high(of_sync: f64, imb: f64, wait: f64) -> [bool; 3] {
    [
        of_sync > MIN_SEVERITY && of_sync >= MIN_SEGMENT_SYNC_FRACTION * imb,
        imb > MIN_SEVERITY,
        wait > MIN_SEVERITY,
    ]
}

/// Returns the row of ICS18's Table 2 for the three values of [`high`]; `None` if no row applies.
fn row(is_high: [bool; 3]) -> Option<u8> {
    match is_high {
        [false, false, true] => Some(1),
        [false, true, false] => Some(2),
        [true, true, false] => Some(3),
        [false, true, true] => Some(4),
        [true, true, true] => Some(5),
        _ => None,
    }
}

/// Returns the significant contexts of a phase except the ending synchronisation: calls, and work
/// at the depth at which its imbalance arises.
fn contexts(
    totals: &Totals,
    context_classes: &[ContextClass],
    owners: &Owners,
    phase: &PhaseTotals,
    measured: &PhaseImbalance,
) -> Vec<(NodeId, Inefficiency)> {
    let (ranks, run_ns) = (totals.job.ranks.len(), totals.job.elapsed_ns as f64);
    let workers: Vec<NodeId> = measured.nodes.keys().copied().collect();
    let at = |node: NodeId| workers.binary_search(&node).ok();
    let parents: Vec<Option<NodeId>> = workers
        .iter()
        .map(|node| owners.next_owner[*node as usize].and_then(at).map(|at| at as NodeId))
        .collect();
    let mut sums = vec![0.0; workers.len()];
    for (id, node) in workers.iter().enumerate().rev() {
        let it = measured.nodes[node];
        // The exclusive time of a context is one more leaf.
        let own_ns = if sums[id] > 0.0 { it.own_ns } else { it.inclusive_ns };
        sums[id] += own_ns;
        if let Some(parent) = parents[id] {
            sums[parent as usize] += sums[id];
        }
    }
    let imb_ns = |id: usize| measured.nodes[&workers[id]].inclusive_ns;
    let uneven = significant(&parents, |id| (imb_ns(id), sums[id]), run_ns);
    let uneven = uneven.into_iter().map(|id| {
        let it = Inefficiency { imb_ns: imb_ns(id as usize), wait_ns: 0.0 };
        (workers[id as usize], it)
    });
    let calls = phase.waits.iter().map(|(call, wait)| {
        (*call, inefficiency(Category::of(context_classes[*call as usize]), &wait.time, ranks))
    });
    // No context lies below a call.
    let calls = calls.filter(|(_, it)| it.imb_ns.max(it.wait_ns) > SIGNIFICANT_FRACTION * run_ns);
    uneven.chain(calls).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks ICS18, Tables 5 and 6, in percent, against the authors' reading in 5.1.
    #[test]
    fn the_papers_segments_have_the_rows_that_their_authors_read() {
        for (segment, truth) in [
            ([2.01, 61.6, 0.0], Some(2)),
            ([8.8, 8.8, 0.0], Some(3)),
            ([0.2, 11.3, 5.2], Some(4)),
            ([0.13, 33.4, 16.6], Some(4)),
            ([0.2, 30.3, 14.8], Some(4)),
            ([0.2, 33.3, 16.6], Some(4)),
            ([0.11, 19.6, 5.4], Some(4)),
            ([0.24, 2.01, 1.54], Some(4)),
        ] {
            let [of_sync, imb, wait] = segment.map(|percent: f64| percent / 100.0);
            assert_eq!(row(high(of_sync, imb, wait)), truth, "{segment:?}");
        }
        // Values near the thresholds.
        let is_high = |of_sync, imb, wait| high(of_sync, imb, wait).map(u8::from);
        assert_eq!(is_high(0.0101, 0.1, 0.0101), [1, 1, 1]);
        assert_eq!(is_high(0.0099, 0.0099, 0.0099), [0, 0, 0]);
        assert_eq!(is_high(0.02, 0.21, 0.0), [0, 1, 0]);
    }

    #[test]
    fn rows_are_those_of_table_2() {
        let rows = [
            ([false, false, true], Some(1)),
            ([false, true, false], Some(2)),
            ([true, true, false], Some(3)),
            ([false, true, true], Some(4)),
            ([true, true, true], Some(5)),
            ([false, false, false], None),
            ([true, false, false], None),
        ];
        for (is_high, truth) in rows {
            assert_eq!(row(is_high), truth, "{is_high:?}");
        }
    }
}
