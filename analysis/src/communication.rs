//! Losses to communication: time that ranks spend in calls of MPI although their work is even, because
//! they call often, because their partners come late, or because they move much (PPoPP20, 5.3.2 and
//! Table 2).
//!
//! PPoPP20 says of each call that it costs what it takes on average. Part of that may be the waiting
//! for uneven work, which is a loss of its own, so that seconds would count twice. Here a phase has
//! a budget: it lasts as long as its work evenly spread, plus what uneven work costs, plus the rest.
//! The rest is what even work would still leave of the time in calls, and only that is shared out among
//! them. What all ranks spend in a call alike (ICS18, Table 1: the least of a synchronisation is wait)
//! comes first. What is left of the rest is put down to the calls in which ranks wait unevenly: also
//! when it shows in the synchronisation at the end, where those wait whom the others' waiting has not
//! held up yet, as the first ranks of a pipeline do.

use std::collections::BTreeMap;

use plimsoll_collector::profile::{FrameKind, LONG_CALL_NS, NodeId};

use crate::bandwidth::Bandwidths;
use crate::canonical::{below, path};
use crate::finding::{Finding, Scope};
use crate::frames::is_system;
use crate::imbalance::{Cause, PhaseImbalance};
use crate::job::JobTotals;
use crate::label::Label;
use crate::labelling::Meaning;
use crate::metrics::NS_PER_S;
use crate::owners::function_around;
use crate::queries::Quantity;
use crate::summary::LossKind;
use crate::thresholds::{
    LONG_CALLS_FRACTION, MIN_FREQUENT_CALLS, MIN_FURTHER_SYMPTOM_FRACTION, MIN_LARGE_BYTES,
    MIN_PARTNER_WORK_FRACTION, MIN_TRANSFER_FRACTION,
};
use crate::totals::{PhaseNode, PhaseTotals, SyncTotals, Totals, uneven_ns};

/// Calls that wait for processes which are no ranks of the job (MPI-4.1, 11.8 and 11.9).
const AWAITS_OTHER_JOBS: [&str; 6] = [
    "MPI_Comm_spawn",
    "MPI_Comm_spawn_multiple",
    "MPI_Comm_accept",
    "MPI_Comm_connect",
    "MPI_Comm_join",
    "MPI_Comm_disconnect",
];

/// Why a call takes its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Reason {
    /// The kind of loss that it is.
    pub kind: LossKind,
    /// What is to blame: the loop around frequent calls, the function that makes long ones.
    pub cause: Option<NodeId>,
}

/// What all calls of a phase lose for one reason.
#[derive(Clone, Debug, Default)]
struct Lost {
    ns: f64,
    /// What is to blame, in each context.
    causes: BTreeMap<Option<NodeId>, f64>,
    calls: Vec<(NodeId, f64)>,
}

/// Of the time in a call, the part that moving its data takes.
pub fn transfer_part(call: &SyncTotals, bandwidths: &Bandwidths) -> f64 {
    let time_ns = call.time.sum as f64;
    if time_ns <= 0.0 {
        return 0.0;
    }
    let told = |(label, _): &(&Label, &u64)| label.is_a(Label::DataTransfer);
    let told_ns: u64 = call.by_label.iter().filter(told).map(|(_, ns)| ns).sum();
    let moved_ns = bandwidths.least_ns(call.calls, call.moved);
    (moved_ns.max(told_ns as f64) / time_ns).min(1.0)
}

/// What even work would leave of the time outside work, in nanoseconds.
pub fn rest_ns(phase: &PhaseTotals, imbalance: &PhaseImbalance, ranks: u32) -> f64 {
    let working_ns = phase.work.mean(ranks) + phase.run_delay.mean(ranks);
    (phase.duration.mean(ranks) - working_ns - imbalance.work_ns).max(0.0)
}

/// As [`rest_ns`], of ranks that have to share cores. Were those busy with nothing but work, what of it needs
/// a core would last so many times longer as there are threads for one, and that is no fault of calls.
fn rest_on_cores_ns(phase: &PhaseTotals, imbalance: &PhaseImbalance, job: &JobTotals) -> f64 {
    let ranks = job.ranks.len();
    let off_core_ns = phase.off_core.mean(ranks);
    let shared_ns = off_core_ns + (phase.work.mean(ranks) - off_core_ns) * job.crowding();
    let rest_ns = phase.duration.mean(ranks) - shared_ns - imbalance.work_ns;
    rest_ns.clamp(0.0, self::rest_ns(phase, imbalance, ranks))
}

/// What calls may lose in a phase: what even work would leave, in nanoseconds.
pub fn left_ns(totals: &Totals, Scope { phase, imbalance, ranks, .. }: &Scope<'_>) -> f64 {
    match totals.job.lacks_cores() {
        false => rest_ns(phase, imbalance, *ranks),
        true => rest_on_cores_ns(phase, imbalance, &totals.job),
    }
}

/// The losses of a phase.
///
/// `rest_ns` is what its calls may lose in all, in nanoseconds.
pub fn communication(
    totals: &Totals,
    meanings: &[Meaning],
    scope: &Scope<'_>,
    rest_ns: f64,
) -> Vec<Finding> {
    let phase = scope.phase;
    // By the kind and the source code of the cause, which calls may reach in several ways.
    let mut lost: BTreeMap<_, Lost> = BTreeMap::new();
    let frame = |node: NodeId| totals.tree.contexts.nodes[node as usize].frame;
    for (call, ns) in shares(scope, rest_ns) {
        let Some(time) = phase.wait(call).filter(|_| ns > 0.0) else { continue };
        let Some(reason) = reason(totals, meanings, (phase, call, time), ns) else { continue };
        let lost = lost.entry((reason.kind, reason.cause.map(frame))).or_default();
        lost.ns += ns;
        *lost.causes.entry(reason.cause).or_default() += ns;
        lost.calls.push((call, ns));
    }
    lost.into_iter()
        .filter_map(|((kind, _), lost)| finding(totals, meanings, scope, kind, lost))
        .collect()
}

/// What each call of a phase is put down of the time that even work would leave.
fn shares(scope: &Scope<'_>, rest_ns: f64) -> Vec<(NodeId, f64)> {
    let Scope { phase, imbalance, ranks, .. } = *scope;
    // The call, what is even and uneven of its time, and the most that the latter may stand for: a run is
    // shorter by the longest wait in a call if nobody waits in it (ICS18, 4.3.1).
    let ending = phase.ends_in.map(|ending| (ending, imbalance.even_ns, 0.0, 0.0));
    let others = phase.waits.iter().map(|(call, wait)| {
        let even_ns = wait.time.min(ranks) as f64;
        (*call, even_ns, uneven_ns(wait, ranks), wait.time.max as f64 - even_ns)
    });
    let calls: Vec<(NodeId, f64, f64, f64)> = others.chain(ending).collect();
    let even_ns: f64 = calls.iter().map(|(_, even_ns, ..)| even_ns).sum();
    let uneven_ns: f64 = calls.iter().map(|(_, _, uneven_ns, _)| uneven_ns).sum();
    let part = |ns: f64, of: f64| if of > 0.0 { ns / of } else { 0.0 };
    let of_even = part(rest_ns, even_ns).min(1.0);
    let left_ns = (rest_ns - even_ns).max(0.0);
    let of_uneven = part(left_ns, uneven_ns);
    let share = |(call, even, uneven, most): (NodeId, f64, f64, f64)| {
        (call, of_even * even + (of_uneven * uneven).min(most))
    };
    calls.into_iter().map(share).collect()
}

/// Why a call loses `ns` nanoseconds; `None` where it cannot be told.
fn reason(
    totals: &Totals,
    meanings: &[Meaning],
    (phase, call, time): (&PhaseTotals, NodeId, &SyncTotals),
    ns: f64,
) -> Option<Reason> {
    let contexts = &totals.tree.contexts;
    let meaning = meanings[call as usize];
    if meaning.between {
        return Some(frequent(totals, call));
    }
    let is_ending = phase.ends_in == Some(call);
    let per_call_ns = if is_ending {
        // The time in it that is put down to it is not that of those who wait for uneven work.
        ns / phase.instances.max(1) as f64
    } else {
        time.time.sum as f64 / time.calls.max(1) as f64
    };
    let is_short = per_call_ns < LONG_CALL_NS as f64
        && time.calls >= MIN_FREQUENT_CALLS * u64::from(time.time.ranks)
        && between_ns(phase, time) < LONG_CALL_NS as f64
        && (is_ending || (time.long_ns as f64) < LONG_CALLS_FRACTION * time.time.sum as f64);
    let of_function = |kind| Some(Reason { kind, cause: function_around(contexts, call) });
    if meaning.label.is_a(Label::Io) {
        return match is_short && time.bytes < MIN_LARGE_BYTES * time.calls {
            true => Some(frequent(totals, call)),
            false => of_function(LossKind::LargeIo),
        };
    }
    if meaning.polling || is_short {
        // Without calls nothing is frequent: a wait that the user names, and no wrapper counts.
        return (time.calls > 0).then(|| frequent(totals, call));
    }
    if transfer_part(time, &totals.bandwidths) >= MIN_TRANSFER_FRACTION {
        return of_function(LossKind::LargeMessage);
    }
    // Nor do they wait for each other where processes of another job have to come first.
    let frame = &contexts.frames[contexts.nodes[call as usize].frame as usize];
    if AWAITS_OTHER_JOBS.contains(&&*frame.function) {
        return None;
    }
    // What all ranks wait alike in a synchronisation, they wait for nobody.
    (!is_ending).then_some(Reason { kind: LossKind::WaitForPartner, cause: None })
}

/// Time from one call to the next on a rank, itself included. PPoPP20 takes all short calls for
/// frequent, however rare; a short call once in a while that costs anything has waited.
fn between_ns(phase: &PhaseTotals, time: &SyncTotals) -> f64 {
    let of_ranks = f64::from(time.time.ranks) / f64::from(phase.duration.ranks.max(1));
    phase.duration.sum as f64 * of_ranks / time.calls.max(1) as f64
}

/// Frequent calls are the fault of the innermost loop that makes them, which may lie in a function
/// further out.
pub fn frequent(totals: &Totals, call: NodeId) -> Reason {
    let contexts = &totals.tree.contexts;
    let node = |id: &NodeId| &contexts.nodes[*id as usize];
    let outer = std::iter::successors(Some(call), |id| node(id).parent);
    // A loop of a library's is not the program's, whatever it is a part of.
    let is_loop = |id: &NodeId| {
        let frame = &contexts.frames[node(id).frame as usize];
        frame.kind == FrameKind::Loop && !is_system(frame)
    };
    let cause = outer.clone().find(is_loop).or_else(|| function_around(contexts, call));
    Reason { kind: LossKind::FrequentCommunication, cause }
}

fn finding(
    totals: &Totals,
    meanings: &[Meaning],
    scope: &Scope<'_>,
    kind: LossKind,
    mut lost: Lost,
) -> Option<Finding> {
    // What a loop spends between its calls is lost with them, and does not show in a call of its own.
    let between_ns: f64 =
        lost.calls.iter().filter(|(call, _)| meanings[*call as usize].between).map(|it| it.1).sum();
    lost.calls.retain(|(call, _)| !meanings[*call as usize].between);
    let called_ns = lost.ns - between_ns;
    lost.calls.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let (symptom, _) = *lost.calls.first()?;
    let also =
        lost.calls[1..].iter().filter(|(_, ns)| *ns >= MIN_FURTHER_SYMPTOM_FRACTION * called_ns);
    // Of the contexts of the cause the one with the most stands for it.
    let most = lost.causes.iter().max_by(|a, b| a.1.total_cmp(b.1).then(b.0.cmp(a.0)));
    let causes = match most.and_then(|(node, _)| *node) {
        Some(node) => vec![Cause::new(node, false, lost.ns)],
        None => partners(totals, scope, symptom, lost.ns),
    };
    let time = scope.phase.wait(symptom)?;
    let quantity = if scope.phase.ends_in == Some(symptom) {
        Quantity::Sync { phase: scope.index }
    } else {
        Quantity::Wait { phase: scope.index, path: path(&totals.tree.contexts, symptom) }
    };
    Some(Finding {
        also_in: also.map(|(call, _)| *call).collect(),
        causes,
        waiting: scope.half_query(quantity, time.time.max),
        group: scope.group_index(),
        ..Finding::new(kind, scope.index, lost.ns / NS_PER_S, symptom)
    })
}

/// Calls that the same source code makes too often are one loss, whatever phases they are in: the
/// phase where they cost most stands for all.
pub fn joined(findings: Vec<Finding>, totals: &Totals) -> Vec<Finding> {
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

/// What the ranks work meanwhile: a partner that is late is most likely there. If the function that waits
/// also works, it is that work, as of a stage in a pipeline; else all work may be.
fn partners(totals: &Totals, scope: &Scope<'_>, symptom: NodeId, lost_ns: f64) -> Vec<Cause> {
    let contexts = &totals.tree.contexts;
    let inside = below(contexts, function_around(contexts, symptom));
    let near = partners_among(scope, lost_ns, |node| inside[node as usize]);
    if near.is_empty() { partners_among(scope, lost_ns, |_| true) } else { near }
}

fn partners_among(
    &Scope { phase, ranks, .. }: &Scope<'_>,
    lost_ns: f64,
    chosen: impl Fn(NodeId) -> bool,
) -> Vec<Cause> {
    let work_ns = |it: &(&NodeId, &PhaseNode)| it.1.own.mean(ranks);
    let workers: Vec<_> = phase.nodes.iter().filter(|(node, _)| chosen(**node)).collect();
    let whole_ns: f64 = workers.iter().map(work_ns).sum();
    // A little beside what all others do is not what they wait for.
    if whole_ns < MIN_PARTNER_WORK_FRACTION * phase.work.mean(ranks) {
        return Vec::new();
    }
    let part = |it: &(&NodeId, &PhaseNode)| work_ns(it) / whole_ns.max(1.0);
    let workers = workers.into_iter().filter(|it| part(it) >= MIN_PARTNER_WORK_FRACTION);
    let mut causes: Vec<Cause> =
        workers.map(|it| Cause::new(*it.0, true, part(&it) * lost_ns)).collect();
    causes.sort_by(|a, b| b.ns.total_cmp(&a.ns).then(a.node.cmp(&b.node)));
    causes
}
