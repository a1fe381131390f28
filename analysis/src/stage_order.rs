//! The work of a stage of a pipeline by its order in time: what a rank does from the receive in
//! which it waits to the send for which the next rank waits. Temporal context trees have that order
//! (ICS18, 3.1), and messages say how long a stage takes ([`crate::late_partners`]). They tell a
//! stage from other work also where one function does both, such as a main function with all of a
//! time step.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_calls::call;
use plimsoll_calls::messages::{Messages, messages};
use plimsoll_collector::profile::{ContextTree, Frame, NodeId};
use plimsoll_trees::{Content, Key, Node};

use crate::clusters::Finished;
use crate::finding::Finding;
use crate::imbalance::Cause;
use crate::metrics::NS_PER_S;
use crate::owners::Owners;
use crate::partner_work::call_id;
use crate::thresholds::MIN_PARTNER_WORK_FRACTION;

/// Returns the work of a stage of `stage_ns` nanoseconds after the receives in which a loss shows,
/// largest first.
pub fn causes(
    (contexts, owners): (&ContextTree, &Owners),
    clusters: &Finished,
    finding: &Finding,
    stage_ns: f64,
) -> Vec<Cause> {
    let waits = finding.shown_in().filter(|call| receives(contexts.frame_of(*call))).collect();
    let context_of = clusters.contexts();
    let mut search =
        Search { contexts, owners, context_of: &context_of, waits, stage_ns, work: Work::new() };
    for cluster in clusters.clusters() {
        search.follow_whole(&cluster.tree);
    }
    let lost_ns = finding.seconds * NS_PER_S;
    let whole_ns = search.work.values().sum::<u64>() as f64;
    // The outermost function holds all work: naming it gives no information.
    let is_inner = |node: &NodeId| contexts.nodes[*node as usize].parent.is_some();
    let parts = search.work.iter().map(|(node, ns)| (*node, *ns as f64 / whole_ns));
    let mut causes: Vec<Cause> = parts
        .filter(|(node, part)| *part >= MIN_PARTNER_WORK_FRACTION && is_inner(node))
        .map(|(node, part)| Cause::new(node, false, part * lost_ns))
        .collect();
    causes.sort_by(Cause::larger_first);
    causes
}

/// Work by responsible context, in nanoseconds, summed over ranks and instances.
type Work = BTreeMap<NodeId, u64>;

/// Work since a receive in which the rank waits.
struct Begun {
    work: Work,
    /// Time since the receive, summed like work.
    passed_ns: f64,
    /// Time after which the rank sends, summed like work.
    most_ns: f64,
}

struct Search<'a> {
    contexts: &'a ContextTree,
    owners: &'a Owners,
    context_of: &'a dyn Fn(Key) -> Option<NodeId>,
    /// Receives in which ranks wait.
    waits: BTreeSet<NodeId>,
    stage_ns: f64,
    work: Work,
}

impl Search<'_> {
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
            if self.waits.contains(&call) {
                self.end(begun);
                let most_ns = self.stage_ns * node.count() as f64;
                *begun = Some(Begun { work: Work::new(), passed_ns: 0.0, most_ns });
            } else if !receives(self.contexts.frame_of(call)) {
                self.end(begun);
            }
            return;
        }
        match (node.content(), &mut *begun) {
            (_, Some(stage)) if !node.any(|inner| self.calls(inner)) => {
                let duration_ns = node.duration() as f64;
                if stage.passed_ns + duration_ns / 2.0 > stage.most_ns {
                    return self.end(begun);
                }
                stage.passed_ns += duration_ns;
                let owner = context.and_then(|it| self.owners.owner_of[it as usize]);
                if let Some(owner) = owner {
                    *stage.work.entry(owner).or_default() += node.duration();
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

    /// Ends a stage: the rank sends, or does what others do not wait for.
    fn end(&mut self, begun: &mut Option<Begun>) {
        for (node, ns) in begun.take().into_iter().flat_map(|stage| stage.work) {
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
