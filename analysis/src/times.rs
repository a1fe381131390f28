//! Where the time of one rank's threads went over the whole run, by context: what totals add up, and
//! what the side file of all ranks shows.

use plimsoll_collector::profile::{ContextTree, NodeId, NodeValue};

use crate::frames::is_part;

/// Times of some threads of one rank; all lists are by node of its tree.
pub struct Times {
    /// What was measured in each context itself.
    pub own: Vec<NodeValue>,
    /// Whether the threads were in it, or in what it calls.
    pub present: Vec<bool>,
    /// Wall time with the contexts that it calls.
    pub inclusive_ns: Vec<u64>,
    /// Wall time of itself: of a procedure with its own loops and inlined calls; these are alone
    /// (SC10's hybrid).
    pub exclusive_ns: Vec<u64>,
}

impl Times {
    /// Adds up what was measured; `values` may name a context several times.
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
        let mut inclusive_ns: Vec<u64> = own.iter().map(|value| value.exclusive_ns).collect();
        let mut exclusive_ns = inclusive_ns.clone();
        for (index, node) in tree.nodes.iter().enumerate().rev() {
            if let Some(parent) = node.parent {
                inclusive_ns[parent as usize] += inclusive_ns[index];
                present[parent as usize] |= present[index];
            }
        }
        for (index, node) in tree.nodes.iter().enumerate() {
            let mut outer = node.parent.filter(|_| is_part(&tree.frames[node.frame as usize]));
            while let Some(at) = outer {
                let it = &tree.nodes[at as usize];
                if !is_part(&tree.frames[it.frame as usize]) {
                    exclusive_ns[at as usize] += own[index].exclusive_ns;
                    break;
                }
                outer = it.parent;
            }
        }
        Self { own, present, inclusive_ns, exclusive_ns }
    }
}
