//! Pruning of trees when memory is short. The total time is unchanged: detail is summed up first
//! over time (a subtree becomes a profile node), then over contexts (the shortest contexts of a
//! profile become their parent's own time).

use serde::{Deserialize, Serialize};

use super::flatten::flattened;
use super::tree_node::{Content, Node};

/// Counts of the detail that was pruned.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pruned {
    /// Nodes that became profile nodes because their subtrees had too many nodes.
    pub collapsed: u64,
    /// Profile nodes that became their parents' own time.
    pub cut: u64,
}

impl Pruned {
    /// Adds the counts of another pruning.
    pub fn add(&mut self, other: Self) {
        self.collapsed += other.collapsed;
        self.cut += other.cut;
    }
}

/// Prunes a tree to at most `most` nodes (at least one); larger subtrees lose more nodes. Where
/// trees of ranks are merged, the caller decides the size of a representative.
pub fn prune_to(node: &mut Node, most: usize, pruned: &mut Pruned) {
    let mut sizes = Vec::new();
    measure(node, &mut sizes);
    if sizes[0] > most.max(1) {
        shrink(node, &sizes, most.max(1), pruned);
    }
}

/// Appends the numbers of nodes of all subtrees, each before those inside of it. Counted anew at
/// each level, the nodes of an interpreter's deep call paths would be counted thousands of times.
fn measure(node: &Node, sizes: &mut Vec<usize>) {
    let at = sizes.len();
    sizes.push(0);
    match &node.content {
        Content::Ordered(children) | Content::Profile(children) => {
            children.iter().for_each(|child| measure(child, sizes));
        }
        Content::Loop(iterations) => {
            let trees = iterations.clusters.iter().map(|cluster| &cluster.tree);
            trees.chain(&iterations.rejected_children).for_each(|child| measure(child, sizes));
        }
    }
    sizes[at] = sizes.len() - at;
}

/// Prunes a tree with more than `most` nodes. `sizes` are those that [`measure`] has found.
fn shrink(node: &mut Node, sizes: &[usize], most: usize, pruned: &mut Pruned) {
    let direct = match &node.content {
        Content::Ordered(children) | Content::Profile(children) => children.len(),
        Content::Loop(iterations) => iterations.clusters.len() + iterations.rejected_children.len(),
    };
    if direct >= most && !node.is_profile() {
        collapse(node);
        pruned.collapsed += 1;
        return prune_to(node, most, pruned);
    }
    if let Content::Profile(children) = &mut node.content
        && direct >= most
    {
        children.sort_by_key(|child| std::cmp::Reverse((child.duration, child.id())));
        for child in children.drain(most - 1..) {
            node.own += child.duration;
            pruned.cut += child.nodes() as u64;
        }
        children.sort_by_key(Node::id);
        return prune_to(node, most, pruned);
    }
    // Each child keeps its own node; the remaining nodes are shared out in proportion.
    let (under, may) = (sizes[0] - 1 - direct, most - 1 - direct);
    let mut rest = &sizes[1..];
    let shrink_child = |child: &mut Node| {
        let (sizes, others) = rest.split_at(rest[0]);
        rest = others;
        let most = 1 + (sizes[0] - 1) * may / under.max(1);
        if sizes[0] > most {
            shrink(child, sizes, most, pruned);
        }
    };
    match &mut node.content {
        Content::Ordered(children) | Content::Profile(children) => {
            children.iter_mut().for_each(shrink_child);
        }
        Content::Loop(iterations) => {
            let trees = iterations.clusters.iter_mut().map(|cluster| &mut cluster.tree);
            trees.chain(&mut iterations.rejected_children).for_each(shrink_child);
        }
    }
}

fn collapse(node: &mut Node) {
    *node = flattened(node);
}
