//! Profile nodes (ICS18, 3.2): what is left of a tree when its instances are no longer told apart
//! in time. Only durations are accumulated, by what the nodes stand for.
//!
//! Most iterations of inner loops end here, so what is accumulated is only read: nothing is taken apart
//! that has a place already.

use super::node::{Boundary, Content, Kind, Node};

/// The profile of a node. Sums stay exact.
pub(super) fn flattened(node: &Node) -> Node {
    let mut set = Vec::new();
    let own = dissolve(node, &mut set);
    let Node { key, kind, count, before, duration, begin, end, .. } = *node;
    Node { key, kind, count, before, duration, own, begin, end, content: Content::Profile(set) }
}

/// Adds the children of a node to a set of profile nodes; returns its own time.
pub(super) fn dissolve(node: &Node, set: &mut Vec<Node>) -> u64 {
    match &node.content {
        Content::Profile(children) => children.iter().for_each(|child| insert(set, child)),
        Content::Ordered(children) => return node.own + gather(children, set),
        Content::Loop(iterations) => {
            iterations.refused.iter().for_each(|child| insert(set, child));
            let trees = iterations.clusters.iter().map(|cluster| &cluster.tree);
            return node.own + trees.map(|tree| dissolve(tree, set)).sum::<u64>();
        }
    }
    node.own
}

/// Adds children by time to a set of profile nodes; returns the time before them, which is their
/// parent's own.
pub(super) fn gather(children: &[Node], set: &mut Vec<Node>) -> u64 {
    children.iter().for_each(|child| insert(set, child));
    children.iter().map(|child| child.before).sum()
}

/// Adds a node, as a profile node, to a set of such: they are sorted, and each is there once. The
/// time before it is its parent's, and not kept here.
pub(super) fn insert(set: &mut Vec<Node>, node: &Node) {
    let at = match set.binary_search_by_key(&node.id(), Node::id) {
        Ok(at) => at,
        Err(at) => {
            set.insert(at, empty(node.kind, node));
            at
        }
    };
    accumulate(&mut set[at], node);
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

/// A profile node without children and with no time yet.
pub(super) fn empty(kind: Kind, like: &Node) -> Node {
    Node {
        key: like.key,
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
