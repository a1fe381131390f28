//! The mean iteration of a cluster: contexts with their times, and calls and loops laid out over
//! the iteration.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use plimsoll_trees::{Content, Node, flattened};

use crate::loop_profile::LoopSlice;
use crate::profile::{self, NodeId, TemporalTreeKey};

/// Maximum number of slices of an iteration; the longest are kept.
pub(crate) const MAX_SLICES: usize = 48;
/// Maximum number of contexts of an iteration; the longest are kept.
pub(crate) const MAX_CONTEXTS: usize = 32;
/// A slice takes at least `1 / MIN_SLICE_PART` of its iteration.
const MIN_SLICE_PART: u64 = 200;

/// The mean iteration of a cluster.
pub(crate) struct MeanIteration {
    pub(crate) contexts: Vec<(NodeId, u64)>,
    pub(crate) slices: Vec<LoopSlice>,
}

/// Meaning of the keys of a temporal context tree.
#[derive(Clone, Copy)]
pub(crate) struct KeyContexts<'a> {
    pub(crate) keys: &'a [TemporalTreeKey],
    /// Contexts that the keys refer to.
    pub(crate) nodes: &'a [profile::Node],
}

impl KeyContexts<'_> {
    /// Returns the context of a tree node that lies in the context `around`. `None` if the node is
    /// none of the user's, or if its frames are left out of the user's paths: they have the context
    /// of their caller.
    pub(crate) fn within(&self, around: Option<NodeId>, node: &Node) -> Option<NodeId> {
        let context = self.keys.get(node.key().0 as usize)?.node?;
        let parent = |at: &NodeId| self.nodes.get(*at as usize)?.parent;
        let is_around = std::iter::successors(around, parent).any(|at| at == context);
        (!is_around).then_some(context)
    }
}

/// Returns the mean over the iterations summed up in `tree`. Where the tree does not know the order
/// of calls (profile nodes), the calls are laid out one after another.
pub(crate) fn mean_iteration(tree: &Node, contexts: KeyContexts<'_>) -> MeanIteration {
    let weight = tree.count().max(1);
    let mut layout = Layout { contexts, weight, slices: Vec::new() };
    layout.children(tree, 0, contexts.within(None, tree));
    let mut sums: BTreeMap<NodeId, u64> = BTreeMap::new();
    for slice in &layout.slices {
        *sums.entry(slice.node).or_default() += slice.duration_ns;
    }
    let mut contexts: Vec<(NodeId, u64)> = sums.into_iter().collect();
    contexts.sort_by_key(|(node, time)| (Reverse(*time), *node));
    contexts.truncate(MAX_CONTEXTS);
    contexts.sort_unstable();
    let least = tree.duration() / weight / MIN_SLICE_PART;
    MeanIteration { contexts, slices: longest(layout.slices, least) }
}

/// Keeps the longest slices in their order.
fn longest(mut slices: Vec<LoopSlice>, least_ns: u64) -> Vec<LoopSlice> {
    slices.retain(|slice| slice.duration_ns > least_ns);
    if slices.len() > MAX_SLICES {
        let mut order: Vec<usize> = (0..slices.len()).collect();
        order.sort_by_key(|at| (Reverse(slices[*at].duration_ns), *at));
        order.truncate(MAX_SLICES);
        order.sort_unstable();
        slices = order.into_iter().map(|at| slices[at]).collect();
    }
    slices
}

struct Layout<'a> {
    contexts: KeyContexts<'a>,
    /// Number of iterations that the tree sums up.
    weight: u64,
    slices: Vec<LoopSlice>,
}

impl Layout<'_> {
    /// Lays out what lies under `node`, in the context `around`; `begin` is the begin of the node,
    /// summed over all iterations.
    fn children(&mut self, node: &Node, begin: u64, around: Option<NodeId>) {
        match node.content() {
            Content::Ordered(_) => {
                for (offset, child) in node.children_by_time() {
                    self.slice(child, begin + offset, around);
                }
            }
            Content::Profile(children) => {
                let mut at = begin;
                for child in children {
                    self.slice(child, at, around);
                    at += child.duration();
                }
            }
            // The iterations of an inner loop are summed up.
            Content::Loop(_) => self.children(&flattened(node), begin, around),
        }
    }

    fn slice(&mut self, node: &Node, begin: u64, around: Option<NodeId>) {
        let mean = |sum: u64| sum / self.weight;
        let context = self.contexts.within(around, node);
        if let Some(context) = context {
            let (begin_ns, end_ns) = (mean(begin), mean(begin + node.duration()));
            let duration_ns = end_ns - begin_ns;
            self.slices.push(LoopSlice { node: context, begin_ns, duration_ns });
        }
        self.children(node, begin, context.or(around));
    }
}
