//! Times of one rank's threads over the whole run, by context: used by the totals and by the table
//! of single ranks.

use plimsoll_collector::profile::{ContextTree, NodeId, NodeValue};

use crate::frame_classes::is_part;

/// Times of some threads of one rank; all lists are by node of the rank's tree.
pub struct Times {
    /// Values measured in each context itself.
    pub own: Vec<NodeValue>,
    /// Whether the threads were in the context or in one of its callees.
    pub present: Vec<bool>,
    /// Wall time of the context, callees included, in nanoseconds.
    pub inclusive_ns: Vec<u64>,
    /// Wall time of the context itself, in nanoseconds; for a procedure including its own loops and
    /// inlined calls, for these without anything below (SC10's hybrid).
    pub exclusive_ns: Vec<u64>,
}

impl Times {
    /// Adds up measured values; `values` may list a context several times.
    pub fn new<'v>(
        tree: &ContextTree,
        values: impl Iterator<Item = &'v (NodeId, NodeValue)>,
    ) -> Self {
        let mut own = vec![NodeValue::default(); tree.nodes.len()];
        let mut present = vec![false; tree.nodes.len()];
        for (node, value) in values {
            own[*node as usize].add(value);
            present[*node as usize] = true;
        }
        for (index, node) in tree.nodes.iter().enumerate().rev() {
            if let Some(parent) = node.parent {
                present[parent as usize] |= present[index];
            }
        }
        let own_ns: Vec<u64> = own.iter().map(|value| value.exclusive_ns).collect();
        let (inclusive_ns, exclusive_ns) = rolled_up(tree, &own_ns);
        Self { own, present, inclusive_ns, exclusive_ns }
    }
}

/// Returns inclusive and exclusive values by context, from values measured in each context itself.
/// Exclusive is SC10's hybrid: a procedure includes its own loops and inlined calls.
pub fn rolled_up(tree: &ContextTree, own: &[u64]) -> (Vec<u64>, Vec<u64>) {
    let (mut inclusive, mut exclusive) = (own.to_vec(), own.to_vec());
    for (index, node) in tree.nodes.iter().enumerate().rev() {
        if let Some(parent) = node.parent {
            inclusive[parent as usize] =
                inclusive[parent as usize].saturating_add(inclusive[index]);
        }
    }
    for (index, node) in tree.nodes.iter().enumerate() {
        let mut outer = node.parent.filter(|_| is_part(&tree.frames[node.frame as usize]));
        while let Some(at) = outer {
            let it = &tree.nodes[at as usize];
            if !is_part(&tree.frames[it.frame as usize]) {
                exclusive[at as usize] = exclusive[at as usize].saturating_add(own[index]);
                break;
            }
            outer = it.parent;
        }
    }
    (inclusive, exclusive)
}
