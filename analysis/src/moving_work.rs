//! Work that is uneven at any time, but even over the run: another rank is slow from time to time.
//!
//! Example: particles that wander from rank to rank. In total all ranks work and wait equally long,
//! and without a synchronisation of all ranks there are no instances to compare. The wait then
//! looks like the cost of the calls. But in each window of time somebody does not wait: the rank
//! that the others wait for. The uneven part of the wait, summed over the windows, tells such a
//! loss from frequent calls, in which all ranks are equally long at any time.

use plimsoll_collector::profile::NodeId;

use crate::finding::Finding;
use crate::frame_classes::is_part;
use crate::imbalance::Cause;
use crate::labelling::ContextClass;
use crate::metrics::NS_PER_S;
use crate::summary::LossKind;
use crate::thresholds::{MIN_MOVING_WAIT_FRACTION, MIN_MOVING_WORK_FRACTION};
use crate::timeline::{Plan, TimelineTotals};
use crate::totals::Totals;

/// Returns a loss in frequent calls as the load imbalance that it is, if another rank is slow from
/// time to time: at least [`MIN_MOVING_WAIT_FRACTION`] of the time in its calls is wait time that
/// is uneven within windows of the run, and even over the run.
///
/// `None` for all other losses: `findings` are those of the run. A poll waits for nobody. Where
/// much work is uneven in the whole phase, and where ranks lack cores, ranks make the same calls at
/// different times. Long waits for partners stay what they are: in a pipeline, ranks that are busy
/// in turn are not slow.
pub fn as_moving_work(
    finding: &Finding,
    findings: &[Finding],
    over_time: &Option<(Plan, TimelineTotals)>,
    (totals, context_classes): (&Totals, &[ContextClass]),
) -> Option<Finding> {
    let ranks = totals.job.ranks.len();
    let is_uneven = |other: &Finding| {
        use LossKind::{GroupImbalance, LoadImbalance, Serialization};
        let is_known = matches!(other.kind, LoadImbalance | GroupImbalance | Serialization);
        let is_much = other.own_s() >= MIN_MOVING_WAIT_FRACTION * finding.own_s();
        is_known && is_much && other.phase == finding.phase
    };
    if finding.kind != LossKind::FrequentCommunication
        || finding.group.is_some()
        || context_classes[finding.symptom as usize].polling
        || totals.job.lacks_cores()
        || findings.iter().any(is_uneven)
    {
        return None;
    }
    let (plan, timeline_totals) = over_time.as_ref()?;
    let (windows, _) = timeline_totals.in_symptom(plan, finding.symptom)?;
    let all_ns: u64 = windows.iter().map(|window| window.sum_ns).sum();
    let even_ns: u64 = windows.iter().map(|window| window.min_ns * u64::from(ranks)).sum();
    // Ranks that wait longer in the whole run wait for other reasons.
    let time = totals.nodes[finding.symptom as usize].inclusive;
    let even_in_all_ns = time.min(ranks) as f64 * f64::from(ranks);
    let uneven_ns = even_in_all_ns.min(all_ns as f64) - even_ns as f64;
    // Meanwhile another rank works: ranks may also take turns at the calls themselves.
    let uneven_work_ns = timeline_totals.uneven_useful_ns(plan) * f64::from(ranks);
    if uneven_ns < MIN_MOVING_WAIT_FRACTION * all_ns as f64
        || uneven_work_ns < MIN_MOVING_WAIT_FRACTION * uneven_ns
    {
        return None;
    }
    let cause = work_beside(finding, totals)?;
    Some(Finding {
        kind: LossKind::LoadImbalance,
        by_turns: true,
        causes: vec![Cause::new(cause, false, finding.seconds * NS_PER_S)],
        ..finding.clone()
    })
}

/// Returns the function with most of the work around a loss's calls: in the innermost loop or
/// function around them that holds [`MIN_MOVING_WORK_FRACTION`] of the phase's work. That itself if
/// no callee has as large a part of its work.
fn work_beside(finding: &Finding, totals: &Totals) -> Option<NodeId> {
    let contexts = &totals.tree.contexts;
    let phase = totals.sums.phases.get(&finding.phase)?;
    let work_ns = |node: &NodeId| phase.nodes.get(node).map_or(0, |it| it.inclusive.sum);
    let is_most = |node: &NodeId, of_ns: u128| {
        work_ns(node) as f64 >= MIN_MOVING_WORK_FRACTION * of_ns as f64
    };
    let mut callers = contexts.outwards(finding.symptom).skip(1);
    let caller = callers.find(|node| is_most(node, phase.work.sum))?;
    let is_inside = |node: NodeId| contexts.outwards(node).skip(1).any(|outer| outer == caller);
    let inside = phase.nodes.keys().copied().filter(|node| is_inside(*node));
    let whole = inside.filter(|node| !is_part(contexts.frame_of(*node)));
    let most = whole.max_by_key(|node| (work_ns(node), std::cmp::Reverse(*node)));
    Some(most.filter(|node| is_most(node, work_ns(&caller))).unwrap_or(caller))
}
