//! Causes by the order of work and calls in time, which temporal context trees have (ICS18, 3.1).
//! The order tells work with an effect on other ranks from other work also where one function does
//! both, such as a main function with all of a time step. Such work is
//!
//! - the stage of a pipeline: what a rank does from the receive in which it waits to the send for
//!   which the next rank waits. Messages say how long a stage takes ([`crate::late_partners`]).
//! - what a rank does while it holds the lock of a window.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_calls::messages::{Messages, messages};
use plimsoll_calls::{CallId, call, id_of};
use plimsoll_collector::profile::{ContextTree, Frame, NodeId};
use plimsoll_trees::{Content, Key, Node};

use crate::clusters::Finished;
use crate::finding::Finding;
use crate::imbalance::Cause;
use crate::metrics::NS_PER_S;
use crate::owners::Owners;
use crate::partner_work::{call_id, is_one_of};
use crate::thresholds::{MIN_CAUSE_SHARE, MIN_PARTNER_WORK_FRACTION};
use crate::totals::PhaseTotals;

const LOCK: CallId = id_of("MPI_Win_lock");
const UNLOCK: CallId = id_of("MPI_Win_unlock");
/// Returns whether ranks may wait for the lock of a window in a call: it acquires the lock, needs
/// or releases it, as MPI may acquire it as late as that, and the run has a call that acquires a
/// lock that ranks need not share, as they do that of MPI_Win_lock_all.
pub fn may_wait_for_lock(contexts: &ContextTree, call: NodeId) -> bool {
    is_one_of(
        &contexts.frame_of(call).function,
        &["MPI_Win_lock", "MPI_Win_unlock", "MPI_Win_flush"],
    ) && contexts.frames.iter().any(|frame| call_id(frame) == LOCK)
}

/// Returns the work of a stage of `stage_ns` nanoseconds after the receives in which a loss shows,
/// largest first.
pub fn in_stages(
    (contexts, owners): (&ContextTree, &Owners),
    clusters: &Finished,
    finding: &Finding,
    stage_ns: f64,
) -> Vec<Cause> {
    let waits: BTreeSet<NodeId> =
        finding.shown_in().filter(|call| receives(contexts.frame_of(*call))).collect();
    let bound = |call: NodeId| {
        if waits.contains(&call) {
            Bound::Begin
        } else if receives(contexts.frame_of(call)) {
            Bound::None
        } else {
            Bound::End
        }
    };
    let work = Search::work_in((contexts, owners), clusters, &bound, stage_ns);
    causes(contexts, &work, finding.seconds * NS_PER_S)
}

/// Returns the work of ranks that hold the lock of a window for which others of the job's `ranks`
/// wait in `phase`, largest first. Returns nothing if the loss shows elsewhere, or if that work
/// does not explain it: ranks may also wait until the rank with the memory of the window calls MPI.
pub fn under_window_locks(
    (contexts, owners): (&ContextTree, &Owners),
    clusters: &Finished,
    finding: &Finding,
    (phase, ranks): (&PhaseTotals, u32),
) -> Vec<Cause> {
    let call_of = |call: NodeId| call_id(contexts.frame_of(call));
    if !may_wait_for_lock(contexts, finding.symptom) {
        return Vec::new();
    }
    let bound = |call: NodeId| match call_of(call) {
        LOCK => Bound::Begin,
        UNLOCK => Bound::End,
        _ => Bound::None,
    };
    let locks = phase.waits.iter().filter(|(call, _)| call_of(**call) == LOCK);
    let locks: u64 = locks.map(|(_, totals)| totals.calls).sum();
    // Calls that release the lock are mostly too short for temporal context trees. As one rank at a
    // time holds it, ranks hold it for at most this time in the mean.
    let most_ns = phase.duration.mean(ranks) / locks.max(1) as f64;
    let work = Search::work_in((contexts, owners), clusters, &bound, most_ns);
    // A rank waits at most while all others hold the lock, one after the other.
    let whole_ns = work.values().sum::<u64>() as f64;
    let of_others_ns = whole_ns * (1.0 - 1.0 / f64::from(ranks.max(1)));
    let lost_ns = finding.seconds * NS_PER_S;
    if of_others_ns < MIN_CAUSE_SHARE * lost_ns {
        return Vec::new();
    }
    causes(contexts, &work, lost_ns.min(of_others_ns))
}

/// Returns the parts of `work` that are large enough for a cause, largest first; all of `work`
/// explains `lost_ns` nanoseconds.
fn causes(contexts: &ContextTree, work: &Work, lost_ns: f64) -> Vec<Cause> {
    let whole_ns = work.values().sum::<u64>() as f64;
    // The outermost function holds all work: naming it gives no information.
    let is_inner = |node: &NodeId| contexts.nodes[*node as usize].parent.is_some();
    let parts = work.iter().map(|(node, ns)| (*node, *ns as f64 / whole_ns));
    let mut causes: Vec<Cause> = parts
        .filter(|(node, part)| *part >= MIN_PARTNER_WORK_FRACTION && is_inner(node))
        .map(|(node, part)| Cause::new(node, false, part * lost_ns))
        .collect();
    causes.sort_by(Cause::larger_first);
    causes
}

/// Work by responsible context, in nanoseconds, summed over ranks and instances.
type Work = BTreeMap<NodeId, u64>;

/// Meaning of a call for the work after it.
enum Bound {
    /// The work after it counts.
    Begin,
    /// The work after it does not count any more.
    End,
    /// Nothing.
    None,
}

/// Work since a call that begins it.
struct Begun {
    work: Work,
    /// Time since that call, summed like work.
    passed_ns: f64,
    /// Time after which work does not count any more, summed like work.
    most_ns: f64,
}

struct Search<'a> {
    contexts: &'a ContextTree,
    owners: &'a Owners,
    context_of: &'a dyn Fn(Key) -> Option<NodeId>,
    bound: &'a dyn Fn(NodeId) -> Bound,
    /// Largest duration of an instance of the work.
    most_ns: f64,
    work: Work,
}

impl<'a> Search<'a> {
    /// Returns the work between calls that begin and that end it, at most `most_ns` nanoseconds in
    /// each instance.
    fn work_in(
        (contexts, owners): (&'a ContextTree, &'a Owners),
        clusters: &Finished,
        bound: &'a dyn Fn(NodeId) -> Bound,
        most_ns: f64,
    ) -> Work {
        let context_of = clusters.contexts();
        let mut search =
            Search { contexts, owners, context_of: &context_of, bound, most_ns, work: Work::new() };
        for cluster in clusters.clusters() {
            search.follow_whole(&cluster.tree);
        }
        search.work
    }

    /// Follows the tree of a thread or an iteration.
    fn follow_whole(&mut self, tree: &Node) {
        let mut begun = None;
        self.follow(tree, &mut begun);
        self.end(&mut begun);
    }

    /// Follows a node in the order of time.
    fn follow(&mut self, node: &Node, begun: &mut Option<Begun>) {
        let context = (self.context_of)(node.key());
        if let Some(call) = context.filter(|it| is_call(self.contexts.frame_of(*it))) {
            match (self.bound)(call) {
                Bound::Begin => {
                    self.end(begun);
                    let most_ns = self.most_ns * node.count() as f64;
                    *begun = Some(Begun { work: Work::new(), passed_ns: 0.0, most_ns });
                }
                Bound::End => self.end(begun),
                Bound::None => {}
            }
            return;
        }
        match (node.content(), &mut *begun) {
            (_, Some(begun_work)) if !node.any(|inner| self.calls(inner)) => {
                let duration_ns = node.duration() as f64;
                if begun_work.passed_ns + duration_ns / 2.0 > begun_work.most_ns {
                    return self.end(begun);
                }
                begun_work.passed_ns += duration_ns;
                let owner = context.and_then(|it| self.owners.owner_of[it as usize]);
                if let Some(owner) = owner {
                    *begun_work.work.entry(owner).or_default() += node.duration();
                }
            }
            (Content::Ordered(children), _) => {
                children.iter().for_each(|child| self.follow(child, begun));
            }
            // Clusters of iterations are in no order.
            (Content::Loop(iterations), _) => {
                self.end(begun);
                iterations.clusters().iter().for_each(|it| self.follow_whole(&it.tree));
            }
            (Content::Profile(_), _) => self.end(begun),
        }
    }

    /// Ends the work since a call that begins it.
    fn end(&mut self, begun: &mut Option<Begun>) {
        for (node, ns) in begun.take().into_iter().flat_map(|it| it.work) {
            *self.work.entry(node).or_default() += ns;
        }
    }

    fn calls(&self, node: &Node) -> bool {
        (self.context_of)(node.key()).is_some_and(|it| is_call(self.contexts.frame_of(it)))
    }
}

/// Whether a frame is a call that may wait for another rank.
fn is_call(frame: &Frame) -> bool {
    call(call_id(frame)).is_some_and(|call| call.provider.is_mpi())
}

/// Whether a call receives before it returns, and does not send.
fn receives(frame: &Frame) -> bool {
    use Messages::{Matches, Probes, Receives, Takes};
    messages(call_id(frame)).is_some_and(|it| {
        matches!(it, Receives { .. } | Probes { .. } | Matches { .. } | Takes { .. })
    })
}
