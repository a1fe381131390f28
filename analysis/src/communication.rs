//! Losses to communication: time in MPI calls although work is even, due to frequent calls, late
//! partners or large amounts of data (PPoPP20, 5.3.2 and Table 2).
//!
//! PPoPP20 charges each call its mean time. Part of that time may be waiting for uneven work, which
//! is a loss of its own, so that seconds would count twice. Here each phase has a budget: its
//! duration is the mean work, plus the cost of uneven work, plus the rest. The rest is the time in
//! calls that would remain with even work; only this rest is divided among the calls. The even part
//! of the time in a call, equal on all ranks (ICS18, Table 1: the minimum over ranks of a
//! synchronisation is wait), is charged first. The remainder is charged to the calls in which ranks
//! wait unevenly. This includes waiting that shows in the synchronisation at the end of the phase,
//! where ranks wait that were not held up by other ranks' waiting before, such as the first ranks
//! of a pipeline. What no call can take is the time by which ranks leave the ending synchronisation
//! after each other. It is charged to the synchronisation if it exceeds all work of the run: the
//! calls then cost most of the run. Less may be due to other programs on the ranks' cores.

use std::collections::BTreeMap;

use plimsoll_collector::profile::{FrameKind, LONG_CALL_NS, NodeId};

use crate::bandwidth::Bandwidths;
use crate::finding::{Finding, Scope, cause_time};
use crate::frame_classes::is_system;
use crate::imbalance::{Cause, PhaseImbalance};
use crate::job_totals::JobTotals;
use crate::label::Label;
use crate::labelling::ContextClass;
use crate::losses::slow_query;
use crate::metrics::NS_PER_S;
use crate::owners::{Owners, function_around};
use crate::partner_work::{of_late_ranks, of_stage};
use crate::queries::{Quantity, Query};
use crate::summary::LossKind;
use crate::thresholds::{
    LONG_CALLS_FRACTION, MIN_FREQUENT_CALLS, MIN_FURTHER_SYMPTOM_FRACTION, MIN_LARGE_BYTES,
    MIN_TRANSFER_FRACTION, MIN_UNEVEN_BYTES_FACTOR,
};
use crate::totals::{CallTotals, PhaseTotals, Totals, uneven_ns};

/// Calls that wait for processes outside the job (MPI-4.1, 11.8 and 11.9).
const AWAITS_OTHER_JOBS: [&str; 6] = [
    "MPI_Comm_spawn",
    "MPI_Comm_spawn_multiple",
    "MPI_Comm_accept",
    "MPI_Comm_connect",
    "MPI_Comm_join",
    "MPI_Comm_disconnect",
];

/// Reason for the time of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reason {
    /// Kind of the loss.
    pub kind: LossKind,
    /// Cause: the loop around frequent calls, or the function that makes long ones; `None` if the
    /// cause is other ranks.
    pub cause: Option<NodeId>,
}

/// Loss of all calls of a phase for one reason.
#[derive(Clone, Debug, Default)]
struct Lost {
    ns: f64,
    /// Loss by the context of the cause.
    causes: BTreeMap<Option<NodeId>, f64>,
    calls: Vec<(NodeId, f64)>,
}

/// Returns the fraction of a call's time that moving its data takes, 0 to 1.
pub fn transfer_part(call: &CallTotals, bandwidths: &Bandwidths) -> f64 {
    let time_ns = call.time.sum as f64;
    if time_ns <= 0.0 {
        return 0.0;
    }
    let labelled = |(label, _): &(&Label, &u64)| label.is_a(Label::DataTransfer);
    let labelled_ns: u64 = call.by_label.iter().filter(labelled).map(|(_, ns)| ns).sum();
    let moved_ns = bandwidths.least_ns(call.calls, call.moved);
    (moved_ns.max(labelled_ns as f64) / time_ns).min(1.0)
}

/// Returns the time outside work that even work would leave, in nanoseconds.
pub fn residual_ns(phase: &PhaseTotals, imbalance: &PhaseImbalance, ranks: u32) -> f64 {
    let working_ns = phase.work.mean(ranks) + phase.run_delay.mean(ranks);
    (phase.duration.mean(ranks) - working_ns - imbalance.work_ns).max(0.0)
}

/// As [`residual_ns`], for ranks that share cores. If cores executed nothing but work, the part of
/// the work that needs a core would last longer by the number of threads per core; the calls are
/// not charged for that time.
fn residual_on_cores_ns(phase: &PhaseTotals, imbalance: &PhaseImbalance, job: &JobTotals) -> f64 {
    let ranks = job.ranks.len();
    let off_core_ns = phase.off_core.mean(ranks);
    let shared_ns = off_core_ns + (phase.work.mean(ranks) - off_core_ns) * job.crowding();
    let residual_ns = phase.duration.mean(ranks) - shared_ns - imbalance.work_ns;
    residual_ns.clamp(0.0, self::residual_ns(phase, imbalance, ranks))
}

/// Returns the budget of a phase's calls: the time in calls that even work would leave, in
/// nanoseconds.
pub fn left_ns(totals: &Totals, Scope { phase, imbalance, ranks, .. }: &Scope<'_>) -> f64 {
    match totals.job.lacks_cores() {
        false => residual_ns(phase, imbalance, *ranks),
        true => residual_on_cores_ns(phase, imbalance, &totals.job),
    }
}

/// Returns the communication losses of the ranks of `scope` in a phase. Their partners may be any
/// ranks of `whole`.
///
/// `residual_ns` is the budget: the maximum loss of all its calls together, in nanoseconds.
pub fn communication(
    totals: &Totals,
    (context_classes, owners): (&[ContextClass], &Owners),
    (scope, whole): (&Scope<'_>, &Scope<'_>),
    residual_ns: f64,
) -> Vec<Finding> {
    let phase = scope.phase;
    // Keyed by kind and source code of the cause: calls may reach the same code on several call
    // paths.
    let mut lost: BTreeMap<_, Lost> = BTreeMap::new();
    let frame = |node: NodeId| totals.tree.contexts.nodes[node as usize].frame;
    let run_work_ns = totals.job.useful.mean(totals.job.ranks.len());
    for (call, ns) in shares(scope, residual_ns, run_work_ns) {
        let Some(time) = phase.wait(call).filter(|_| ns > 0.0) else { continue };
        let Some(reason) = reason(totals, context_classes, (scope, call, time), ns) else {
            continue;
        };
        let lost = lost.entry((reason.kind, reason.cause.map(frame))).or_default();
        lost.ns += ns;
        *lost.causes.entry(reason.cause).or_default() += ns;
        lost.calls.push((call, ns));
    }
    lost.into_iter()
        .filter_map(|((kind, _), lost)| {
            let finding = finding(totals, context_classes, scope, kind, lost)?;
            Some(match kind {
                LossKind::WaitForPartner => {
                    with_partners((totals, owners), (scope, whole), finding)
                }
                _ => finding,
            })
        })
        .collect()
}

/// Divides the budget `residual_ns` among the calls of a phase of a run with `run_work_ns`
/// nanoseconds of work.
fn shares(scope: &Scope<'_>, residual_ns: f64, run_work_ns: f64) -> Vec<(NodeId, f64)> {
    let Scope { phase, imbalance, ranks, .. } = *scope;
    // Per call: context, even and uneven part of its time, and the maximum charge for the uneven
    // part. Without any waiting in a call, the run is shorter by at most the longest wait in it
    // (ICS18, 4.3.1).
    let ending = phase.ends_in.map(|ending| (ending, imbalance.even_ns, 0.0, 0.0));
    let others = phase.waits.iter().map(|(call, wait)| {
        let even_ns = wait.time.min(ranks) as f64;
        (*call, even_ns, uneven_ns(wait, ranks), wait.time.max as f64 - even_ns)
    });
    let calls: Vec<(NodeId, f64, f64, f64)> = others.chain(ending).collect();
    let even_ns: f64 = calls.iter().map(|(_, even_ns, ..)| even_ns).sum();
    let uneven_ns: f64 = calls.iter().map(|(_, _, uneven_ns, _)| uneven_ns).sum();
    let part = |ns: f64, of: f64| if of > 0.0 { ns / of } else { 0.0 };
    let of_even = part(residual_ns, even_ns).min(1.0);
    let left_ns = (residual_ns - even_ns).max(0.0);
    let of_uneven = part(left_ns, uneven_ns);
    let share = |(call, even, uneven, most): (NodeId, f64, f64, f64)| {
        (call, of_even * even + (of_uneven * uneven).min(most))
    };
    let mut shares: Vec<(NodeId, f64)> = calls.into_iter().map(share).collect();
    let rest_ns = residual_ns - shares.iter().map(|(_, ns)| ns).sum::<f64>();
    let busy_ns = run_work_ns + imbalance.work_ns;
    let ending = shares.last_mut().filter(|_| phase.ends_in.is_some() && rest_ns > busy_ns);
    ending.into_iter().for_each(|(_, ns)| *ns += rest_ns);
    shares
}

/// Returns the reason for a call's loss of `ns` nanoseconds; `None` if it cannot be determined.
fn reason(
    totals: &Totals,
    context_classes: &[ContextClass],
    (scope, call, time): (&Scope<'_>, NodeId, &CallTotals),
    ns: f64,
) -> Option<Reason> {
    let phase = scope.phase;
    let contexts = &totals.tree.contexts;
    let context_class = context_classes[call as usize];
    if context_class.is_poll_gap {
        return Some(frequent(totals, call));
    }
    let is_ending = phase.ends_in == Some(call);
    let per_call_ns = if is_ending {
        // Only the time charged to the call counts, not the time of ranks that wait for uneven
        // work.
        ns / phase.instances.max(1) as f64
    } else {
        time.time.sum as f64 / time.calls.max(1) as f64
    };
    let is_short = per_call_ns < LONG_CALL_NS as f64
        && time.calls >= MIN_FREQUENT_CALLS * u64::from(time.time.ranks)
        && between_ns(phase, time) < LONG_CALL_NS as f64
        && (is_ending || (time.long_ns as f64) < LONG_CALLS_FRACTION * time.time.sum as f64);
    let of_function = |kind| Some(Reason { kind, cause: function_around(contexts, call) });
    if context_class.label.is_a(Label::Io) {
        return match is_short && time.bytes < MIN_LARGE_BYTES * time.calls {
            true => Some(frequent(totals, call)),
            false => of_function(LossKind::LargeIo),
        };
    }
    // All ranks stay in the ending call until the one with the most data has moved it.
    let most_bytes = time.most_bytes.saturating_mul(time.time.ranks.into());
    let (moved, bytes) = match is_ending {
        true => (most_bytes, most_bytes),
        false => (time.moved, time.bytes),
    };
    // Most of the ending call's time may be waiting for uneven work, which is not charged to it.
    let charged_ns = ns * f64::from(scope.ranks);
    let moved_ns = totals.bandwidths.least_ns(time.calls, moved);
    let is_transfer = transfer_part(time, &totals.bandwidths) >= MIN_TRANSFER_FRACTION
        || is_ending && moved_ns >= MIN_TRANSFER_FRACTION * charged_ns;
    let is_large = is_transfer && bytes >= MIN_LARGE_BYTES * time.calls;
    if context_class.polling || is_short && !is_large {
        // A wait without counted calls (one that a user's rule defines and no wrapper counts) is
        // not frequent.
        return (time.calls > 0).then(|| frequent(totals, call));
    }
    if is_transfer {
        return of_function(LossKind::LargeMessage);
    }
    // Ranks in calls that wait for processes of another job do not wait for each other.
    let frame = &contexts.frames[contexts.nodes[call as usize].frame as usize];
    if AWAITS_OTHER_JOBS.contains(&&*frame.function) {
        return None;
    }
    // Time that all ranks spend equally in the ending synchronisation is not spent waiting for a
    // rank.
    (!is_ending).then_some(Reason { kind: LossKind::WaitForPartner, cause: None })
}

/// Returns the mean time from one call to the next on a rank, the call included, in nanoseconds.
/// PPoPP20 classifies all short calls as frequent, however rare; a rare short call with a notable
/// cost has waited.
fn between_ns(phase: &PhaseTotals, time: &CallTotals) -> f64 {
    let of_ranks = f64::from(time.time.ranks) / f64::from(phase.duration.ranks.max(1));
    phase.duration.sum as f64 * of_ranks / time.calls.max(1) as f64
}

/// Returns the cause of frequent calls: the innermost loop that makes them, which may be in an
/// outer function.
pub fn frequent(totals: &Totals, call: NodeId) -> Reason {
    let contexts = &totals.tree.contexts;
    // Skip loops in the system's libraries: such a loop is not the program's.
    let is_loop = |id: &NodeId| {
        let frame = contexts.frame_of(*id);
        frame.kind == FrameKind::Loop && !is_system(frame)
    };
    let cause = contexts.outwards(call).find(is_loop).or_else(|| function_around(contexts, call));
    Reason { kind: LossKind::FrequentCommunication, cause }
}

fn finding(
    totals: &Totals,
    context_classes: &[ContextClass],
    scope: &Scope<'_>,
    kind: LossKind,
    mut lost: Lost,
) -> Option<Finding> {
    // Time that a loop spends between its calls is part of the loss but no symptom of its own.
    let between_ns: f64 = lost
        .calls
        .iter()
        .filter(|(call, _)| context_classes[*call as usize].is_poll_gap)
        .map(|it| it.1)
        .sum();
    lost.calls.retain(|(call, _)| !context_classes[*call as usize].is_poll_gap);
    let called_ns = lost.ns - between_ns;
    lost.calls.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let (symptom, _) = *lost.calls.first()?;
    let also =
        lost.calls[1..].iter().filter(|(_, ns)| *ns >= MIN_FURTHER_SYMPTOM_FRACTION * called_ns);
    // The context with the largest loss represents the cause.
    let most = lost.causes.iter().max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(a.0)));
    let cause = most.and_then(|(node, _)| *node).map(|node| Cause::new(node, false, lost.ns));
    let also_in: Vec<NodeId> = also.map(|(call, _)| *call).collect();
    let calls = [&[symptom], &also_in[..]].concat();
    Some(Finding {
        waiting: scope.calls_query(&totals.tree.contexts, &calls),
        also_in,
        causes: cause.into_iter().collect(),
        slow: most_data_query(scope, kind, symptom).into_iter().collect(),
        group: scope.group_index(),
        ..Finding::new(kind, scope.index, lost.ns / NS_PER_S, symptom)
    })
}

/// Returns the query for the ranks with the most data in a synchronisation that moves much and
/// uneven data; `None` for other losses.
fn most_data_query(scope: &Scope<'_>, kind: LossKind, symptom: NodeId) -> Option<Query> {
    let Scope { index, phase, .. } = *scope;
    let is_uneven = kind == LossKind::LargeMessage
        && Some(symptom) == phase.ends_in
        && phase.sync.uneven_bytes_factor() >= MIN_UNEVEN_BYTES_FACTOR;
    let mean = phase.sync.bytes / u64::from(phase.sync.time.ranks.max(1));
    is_uneven.then(|| Query {
        quantity: Quantity::SyncBytes { phase: index },
        at_least: mean.midpoint(phase.sync.most_bytes),
        among: scope.among(),
    })
}

/// Returns a loss in calls that looked frequent, or large, as the wait for late partners that
/// messages show it to be.
pub fn as_wait_for_partner(
    known: (&Totals, &Owners),
    scope: &Scope<'_>,
    finding: &Finding,
) -> Finding {
    let kind = LossKind::WaitForPartner;
    let finding = Finding { kind, causes: Vec::new(), ..finding.clone() };
    with_partners(known, (scope, scope), finding)
}

/// Adds the call that ends the phase to the calls in which stages wait for each other, if ranks
/// wait there, too, beyond what uneven work explains: the first ranks of a pipeline for the last
/// ones.
fn with_ending(scope: &Scope<'_>, mut finding: Finding) -> Finding {
    let Scope { phase, imbalance, ranks, .. } = *scope;
    let waits_ns = uneven_ns(&phase.sync, ranks) - imbalance.ending_ns;
    let is_much = waits_ns >= MIN_FURTHER_SYMPTOM_FRACTION * finding.seconds * NS_PER_S;
    finding.also_in.extend(phase.ends_in.filter(|_| is_much));
    finding
}

/// Adds the work in which partners are late, and the query for these ranks. Ranks of a group may
/// wait for each other or for ranks of other groups.
fn with_partners(
    known: (&Totals, &Owners),
    (scope, whole): (&Scope<'_>, &Scope<'_>),
    finding: Finding,
) -> Finding {
    let (symptom, lost_ns) = (finding.symptom, finding.seconds * NS_PER_S);
    let stage = of_stage(known.0, scope, symptom, lost_ns);
    if !stage.is_empty() {
        let finding = with_ending(scope, finding);
        return Finding { causes: stage, ..finding };
    }
    for late in [scope, whole] {
        let causes = of_late_ranks(known, late, scope, symptom, lost_ns);
        let Some(first) = causes.first() else { continue };
        let slow: Option<Query> = slow_query(known.0, late, first, &cause_time(late.phase, first));
        return Finding { slow: slow.into_iter().collect(), causes, ..finding };
    }
    finding
}

/// Merges the losses of frequent calls from the same source code in different phases into one loss,
/// assigned to the phase with the largest cost.
pub fn merge_by_source(findings: Vec<Finding>, totals: &Totals) -> Vec<Finding> {
    let contexts = &totals.tree.contexts;
    let source = |finding: &Finding| {
        let cause =
            finding.causes.first().filter(|_| finding.kind == LossKind::FrequentCommunication);
        cause.map(|cause| contexts.nodes[cause.node as usize].frame)
    };
    let mut kept: Vec<Finding> = Vec::new();
    let mut by_source: BTreeMap<u32, Vec<Finding>> = BTreeMap::new();
    for finding in findings {
        match source(&finding) {
            Some(frame) => by_source.entry(frame).or_default().push(finding),
            None => kept.push(finding),
        }
    }
    for mut same in by_source.into_values() {
        same.sort_by(|a, b| b.seconds.total_cmp(&a.seconds).then(a.phase.cmp(&b.phase)));
        let mut same = same.into_iter();
        let Some(mut whole) = same.next() else { continue };
        for part in same {
            whole.seconds += part.seconds;
            whole.causes[0].ns += part.causes[0].ns;
            whole.shows_also_where(&part);
        }
        kept.push(whole);
    }
    kept
}
