//! Causes of waiting for partners: the work that keeps a partner from the call in which others wait
//! for it.
//!
//! Messages say which ranks are late ([`crate::chains`]). Collectives, one-sided calls and messages
//! between jobs do not. A context is named as a cause only with evidence:
//!
//! - In point-to-point calls, the function that waits works too. It is the stage of a pipeline, in
//!   which each rank waits until its partner has done the same work. If all work of the phase is in
//!   one context, partners can be late in no other.
//! - In all calls, a rank works in the context for longer than the others, and waits less than
//!   they do: it comes last.
//!
//! Work that all ranks do alike is no evidence. Without evidence there is no cause.

use std::collections::BTreeMap;

use plimsoll_calls::messages::{Messages, messages};
use plimsoll_calls::{CallClass, CallId, call, id_of};
use plimsoll_collector::profile::{Frame, NodeId};

use crate::canonical::below;
use crate::finding::{Scope, cause_time};
use crate::frame_classes::is_loop;
use crate::imbalance::{Cause, shared_functions};
use crate::owners::{Owners, function_around};
use crate::thresholds::{
    MAX_LATE_WAIT_FRACTION, MIN_CAUSE_SHARE, MIN_INNER_FRACTION, MIN_PARTNER_WORK_FRACTION,
    NOISE_FRACTION,
};
use crate::totals::{PhaseNode, Totals};

/// Returns the work of the stage of a pipeline that waits in `symptom`, largest first; none if the
/// call names no partner.
pub fn of_stage(
    totals: &Totals,
    &Scope { phase, ranks, .. }: &Scope<'_>,
    symptom: NodeId,
    lost_ns: f64,
) -> Vec<Cause> {
    let contexts = &totals.tree.contexts;
    if !names_partner(totals, symptom) {
        return Vec::new();
    }
    let work_ns = |it: &(&NodeId, &PhaseNode)| it.1.own.mean(ranks);
    let all_ns = phase.work.mean(ranks);
    // The outermost function holds all work of the phase.
    let stage = function_around(contexts, symptom)
        .filter(|function| contexts.nodes[*function as usize].parent.is_some());
    let inside = below(contexts, stage);
    let mut workers: Vec<_> =
        phase.nodes.iter().filter(|(node, _)| inside[**node as usize]).collect();
    let mut whole_ns: f64 = workers.iter().map(work_ns).sum();
    // Ignore work that is small compared with the work of all ranks: ranks do not wait for it.
    if whole_ns < MIN_PARTNER_WORK_FRACTION * all_ns {
        let is_all = |ns: f64| ns > (1.0 - MIN_PARTNER_WORK_FRACTION) * all_ns;
        workers = phase.nodes.iter().filter(|it| is_all(work_ns(it))).collect();
        whole_ns = all_ns;
    }
    let part = |it: &(&NodeId, &PhaseNode)| work_ns(it) / whole_ns.max(1.0);
    let workers = workers.into_iter().filter(|it| part(it) >= MIN_PARTNER_WORK_FRACTION);
    let mut causes: Vec<Cause> =
        workers.map(|it| Cause::new(*it.0, true, part(&it) * lost_ns)).collect();
    causes.sort_by(Cause::larger_first);
    causes
}

/// Returns whether the arguments of a call may name the rank that it waits for: not those of
/// collectives and one-sided calls. Reads and writes of pipes wait for processes outside of the
/// job, such as commands that the program has started.
pub fn names_partner(totals: &Totals, symptom: NodeId) -> bool {
    let frame = totals.tree.contexts.frame_of(symptom);
    let id = call_id(frame);
    match call(id) {
        Some(call) if call.provider.is_mpi() => {
            !matches!(messages(id), None | Some(Messages::StartsOther))
        }
        Some(call) => call.class != CallClass::Io,
        None => true,
    }
}

/// Returns the id of the call that a frame stands for, by its name if no wrapper measured it; 0 if
/// the frame is no call.
pub fn call_id(frame: &Frame) -> CallId {
    frame.call.unwrap_or_else(|| id_of(&frame.function))
}

/// Returns whether a call is one of `calls` or a variant of one, such as `MPI_Testall`.
pub fn is_one_of(call: &str, calls: &[&str]) -> bool {
    calls.iter().any(|it| call.trim_start_matches('P').starts_with(it))
}

/// Returns the work in which a rank of `late` is longest and, meanwhile, waits for less than half
/// as long as the ranks of `waiting` do at most, before the phase ends. The most likely cause comes
/// first: a rank comes later than another by the difference of their work, and makes it wait for as
/// long.
pub fn of_late_ranks(
    (totals, owners): (&Totals, &Owners),
    late: &Scope<'_>,
    waiting: &Scope<'_>,
    symptom: NodeId,
    lost_ns: f64,
) -> Vec<Cause> {
    let Scope { phase, ranks, .. } = *late;
    let contexts = &totals.tree.contexts;
    let shared = shared_functions(contexts, owners, phase, ranks);
    let mut inner: BTreeMap<Option<NodeId>, Vec<NodeId>> = BTreeMap::new();
    for node in phase.nodes.keys().filter(|node| !shared.contains(node)) {
        inner.entry(owners.next_owner[*node as usize]).or_default().push(*node);
    }
    let error_ns = totals.job.kept_period_ns as f64 * (phase.instances as f64).sqrt();
    let search = Search {
        totals,
        late,
        inner,
        least_ns: error_ns.max(MIN_CAUSE_SHARE * lost_ns),
        longest_wait_ns: waiting.phase.waited.max,
    };
    let mut causes = search.causes();
    let longest_ns = waiting.phase.wait(symptom).map_or(0, |wait| wait.time.max);
    causes.sort_by_cached_key(|cause| {
        let time = cause_time(phase, cause);
        ((time.max - time.min(ranks)).abs_diff(longest_ns), cause.node)
    });
    causes.iter_mut().for_each(|cause| cause.ns = cause.ns.min(lost_ns));
    // Several causes that each explain the loss are alternatives.
    let whole_ns: f64 = causes.iter().map(|cause| cause.ns).sum();
    causes.iter_mut().for_each(|cause| cause.ns *= (lost_ns / whole_ns).min(1.0));
    causes
}

/// Search for the innermost contexts in which a rank is late.
struct Search<'a> {
    totals: &'a Totals,
    late: &'a Scope<'a>,
    /// Contexts that are responsible for work, by the next one outwards.
    inner: BTreeMap<Option<NodeId>, Vec<NodeId>>,
    least_ns: f64,
    longest_wait_ns: u64,
}

impl Search<'_> {
    /// Returns the causes in all contexts. Unlike uneven work ([`crate::imbalance`]), late work may
    /// lie in a context that is even as a whole, because others work longer after the call.
    ///
    /// Not recursive: the call paths of interpreters have thousands of functions and loops.
    fn causes(&self) -> Vec<Cause> {
        let inside = |outer| self.inner.get(&outer).map_or(&[][..], Vec::as_slice);
        // Each context after the one around it, with whether it is the outermost function.
        let mut order: Vec<(NodeId, bool)> = Vec::new();
        let mut next: Vec<(NodeId, bool)> = inside(None).iter().map(|node| (*node, true)).collect();
        while let Some((node, outermost)) = next.pop() {
            let is_loop = is_loop(self.totals.tree.contexts.frame_of(node));
            order.push((node, outermost));
            next.extend(inside(Some(node)).iter().map(|inner| (*inner, outermost && is_loop)));
        }
        let mut found: BTreeMap<NodeId, Vec<Cause>> = BTreeMap::new();
        let take_inside = |found: &mut BTreeMap<NodeId, Vec<Cause>>, outer| -> Vec<Cause> {
            inside(outer).iter().filter_map(|node| found.remove(node)).flatten().collect()
        };
        for (node, outermost) in order.into_iter().rev() {
            let within = take_inside(&mut found, Some(node));
            let causes = self.with_own(node, outermost, within);
            if !causes.is_empty() {
                found.insert(node, causes);
            }
        }
        take_inside(&mut found, None)
    }

    /// Returns the causes in a context, given those inside of it.
    fn with_own(&self, node: NodeId, outermost: bool, mut causes: Vec<Cause>) -> Vec<Cause> {
        let explained_ns: f64 = causes.iter().map(|cause| cause.ns).sum();
        // The outermost function holds all of the work: naming it gives no information.
        let whole = self.late_in(node, false).filter(|_| !outermost);
        match whole.filter(|whole| explained_ns < MIN_INNER_FRACTION * whole.ns) {
            Some(whole) => vec![whole],
            None => {
                causes.extend(self.late_in(node, true));
                causes
            }
        }
    }

    /// Returns the context as a cause if a rank is late in it.
    fn late_in(&self, node: NodeId, own: bool) -> Option<Cause> {
        let values = &self.late.phase.nodes[&node];
        let (time, slowest) = match own {
            true => (values.own, values.slowest_own),
            false => (values.inclusive, values.slowest),
        };
        let ns = time.imbalance(self.late.ranks);
        let is_notable = ns > self.least_ns && ns > NOISE_FRACTION * time.max as f64;
        let waits_ns = slowest.before_ns as f64;
        let comes_last = waits_ns < MAX_LATE_WAIT_FRACTION * self.longest_wait_ns as f64;
        (is_notable && comes_last).then(|| Cause::new(node, own, ns))
    }
}
