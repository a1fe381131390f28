//! Profile nodes (ICS18, 3.2): sums of instances without an order in time. Only durations are
//! accumulated, by kind and key of the nodes.
//!
//! Most iterations of inner loops are summed up here. The input is only read: a subtree is copied
//! only if the profile has no node for it yet.

use super::tree_node::{Boundary, Content, Key, Kind, Node};

/// Capacity up to which sets are allocated exactly.
const MAX_EXACT_CAPACITY: usize = 4;

/// Returns the node as a profile node: its children by kind and key, each once. Sums stay exact.
pub fn flattened(node: &Node) -> Node {
    let mut set = Vec::new();
    let own = dissolve(node, &mut set);
    let Node { key, kind, count, before, duration, begin, end, .. } = *node;
    Node { key, kind, count, before, duration, own, begin, end, content: Content::Profile(set) }
}

/// Adds the children of a node to a set of profile nodes; returns its own time.
pub(super) fn dissolve(node: &Node, set: &mut Vec<Node>) -> u64 {
    node.own + dissolve_content(&node.content, set)
}

/// Adds the nodes under a node to a set of profile nodes; returns the part of their time that is
/// the node's own.
pub(super) fn dissolve_content(content: &Content, set: &mut Vec<Node>) -> u64 {
    match content {
        Content::Profile(children) => {
            children.iter().for_each(|child| insert(set, child));
            0
        }
        Content::Ordered(children) => gather(children, set),
        Content::Loop(iterations) => {
            iterations.rejected_children.iter().for_each(|child| insert(set, child));
            let trees = iterations.clusters.iter().map(|cluster| &cluster.tree);
            trees.map(|tree| dissolve(tree, set)).sum()
        }
    }
}

/// Adds ordered children to a set of profile nodes. Returns the time before them, which is their
/// parent's own time.
pub(super) fn gather(children: &[Node], set: &mut Vec<Node>) -> u64 {
    children.iter().for_each(|child| insert(set, child));
    children.iter().map(|child| child.before).sum()
}

/// Adds a node as a profile node to a sorted set without duplicates. The time before the node is
/// its parent's and is not kept here.
pub(super) fn insert(set: &mut Vec<Node>, node: &Node) {
    accumulate(slot(set, node.kind, node.key), node);
}

/// Returns the set's node of this kind and key; creates it if missing.
pub(super) fn slot(set: &mut Vec<Node>, kind: Kind, key: Key) -> &mut Node {
    let at = match set.binary_search_by_key(&(kind, key), Node::id) {
        Ok(at) => at,
        Err(at) => {
            if set.len() == set.capacity() && set.len() < MAX_EXACT_CAPACITY {
                // A vector begins with room for four, and most nodes have one child.
                set.reserve_exact(1);
            }
            set.insert(at, empty(kind, key));
            at
        }
    };
    &mut set[at]
}

/// Adds instances to a profile node of the same kind and key.
pub(super) fn accumulate(into: &mut Node, node: &Node) {
    into.count += node.count;
    into.duration += node.duration;
    into.begin.add(node.begin);
    into.end.add(node.end);
    if let Content::Profile(set) = &mut into.content {
        into.own += dissolve(node, set);
    }
}

/// Creates a profile node without children and time.
pub(super) fn empty(kind: Kind, key: Key) -> Node {
    Node {
        key,
        kind,
        count: 0,
        before: 0,
        duration: 0,
        own: 0,
        begin: Boundary::default(),
        end: Boundary::default(),
        content: Content::Profile(Vec::new()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_of_few_has_no_room_to_spare() {
        let mut set = Vec::new();
        for number in 0..MAX_EXACT_CAPACITY {
            slot(&mut set, Kind::Call, Key(number as u32));
            slot(&mut set, Kind::Call, Key(0));
            assert_eq!((set.len(), set.capacity()), (number + 1, number + 1));
        }
    }
}
