//! Profile nodes (ICS18, 3.2): what is left of a tree when its instances are no longer told apart
//! in time. Only durations are accumulated, by what the nodes stand for.

use super::node::{Content, Iterations, Kind, Node};

/// The profile of a node. Sums stay exact.
pub(super) fn flattened(mut node: Node) -> Node {
    let content = std::mem::replace(&mut node.content, Content::Profile(Vec::new()));
    let mut set = Vec::new();
    match content {
        Content::Profile(children) => set = children,
        Content::Ordered(children) => {
            for child in children {
                node.own += child.before;
                insert(&mut set, child);
            }
        }
        Content::Loop(iterations) => {
            let Iterations { clusters, refused, .. } = *iterations;
            set = refused;
            for cluster in clusters {
                node.own += dissolve(cluster.tree, &mut set);
            }
        }
    }
    node.content = Content::Profile(set);
    node
}

/// Puts the children of a node into a set of profile nodes; returns its own time.
pub(super) fn dissolve(node: Node, set: &mut Vec<Node>) -> u64 {
    let node = flattened(node);
    if let Content::Profile(children) = node.content {
        children.into_iter().for_each(|child| insert(set, child));
    }
    node.own
}

/// Puts a node, as a profile node, into a set of such: they are sorted, and each is there once. The
/// time before it is its parent's, and not kept here.
pub(super) fn insert(set: &mut Vec<Node>, mut node: Node) {
    node.before = 0;
    match set.binary_search_by_key(&node.id(), Node::id) {
        Ok(at) => accumulate(&mut set[at], node),
        Err(at) => set.insert(at, flattened(node)),
    }
}

/// Adds instances to a profile node of the same kind and key.
pub(super) fn accumulate(into: &mut Node, node: Node) {
    let node = flattened(node);
    into.count += node.count;
    into.duration += node.duration;
    into.own += node.own;
    into.begin.add(node.begin);
    into.end.add(node.end);
    if let (Content::Profile(ours), Content::Profile(theirs)) = (&mut into.content, node.content) {
        theirs.into_iter().for_each(|child| insert(ours, child));
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
        begin: Default::default(),
        end: Default::default(),
        content: Content::Profile(Vec::new()),
    }
}
