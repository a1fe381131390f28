//! Canonical order of contexts. The reduction numbers contexts as they arrive; the conclusions use
//! a new numbering, so that equal runs give equal summaries: depth first, communicating threads
//! first, and among several callees the one with the most time first.

use std::cmp::Reverse;

use plimsoll_collector::profile::{ContextTree, NodeId};

use crate::canonical::{CanonicalTree, Threads};
use crate::totals::Totals;

/// Returns the totals with contexts in canonical order.
pub fn ordered(totals: Totals) -> Totals {
    let mut tree = CanonicalTree::default();
    tree.merge_in_order(&totals.tree, depth_first(&totals).into_iter());
    // Combining an empty run that already has all contexts with these totals renumbers them.
    Totals { tree, ..Totals::default() }.combine(totals)
}

fn depth_first(totals: &Totals) -> Vec<NodeId> {
    let ContextTree { frames, nodes } = &totals.tree.contexts;
    let mut inner: Vec<Vec<NodeId>> = vec![Vec::new(); nodes.len()];
    let mut outermost = Vec::new();
    for (node, id) in nodes.iter().zip(0..) {
        match node.parent {
            Some(parent) => inner[parent as usize].push(id),
            None => outermost.push(id),
        }
    }
    let key = |id: &NodeId| {
        let node = &nodes[*id as usize];
        let time = Reverse(totals.nodes[*id as usize].inclusive.sum);
        let threads: Threads = totals.tree.threads[*id as usize];
        (threads, time, &frames[node.frame as usize], node.site)
    };
    // The stack is read from its end: the first in order is pushed last.
    let push = |stack: &mut Vec<NodeId>, mut nodes: Vec<NodeId>| {
        nodes.sort_by(|a, b| key(b).cmp(&key(a)));
        stack.append(&mut nodes);
    };
    let (mut order, mut stack) = (Vec::with_capacity(nodes.len()), Vec::new());
    push(&mut stack, outermost);
    while let Some(node) = stack.pop() {
        order.push(node);
        push(&mut stack, std::mem::take(&mut inner[node as usize]));
    }
    order
}
