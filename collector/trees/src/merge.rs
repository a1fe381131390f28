//! Merging of trees (ICS18, 4.2): the weighted average of two nodes, with children aligned as for
//! the difference.
//!
//! Times, counts and boundaries are sums, averaged only when they are read. Totals therefore do not
//! depend on the order of merging, to the stamp; the order of children without a partner and the
//! composition of clusters do.

use super::ControlFlow;
use super::child_alignment::{Step, Walk};
use super::flatten::{accumulate, flattened};
use super::loop_clusters;
use super::tree_node::{Boundary, Cluster, Content, Iterations, Node};

/// Merges all instances of two nodes with equal kind and key into one node.
///
/// A regular node and a profile node become a profile node. Linear in the sizes of both.
pub fn merged(mut one: Node, other: Node, flow: &dyn ControlFlow) -> Node {
    absorb(&mut one, other, flow);
    one
}

/// Merges in place: most merged trees have the same children.
pub(super) fn absorb(into: &mut Node, mut other: Node, flow: &dyn ControlFlow) {
    let content = std::mem::replace(&mut other.content, nothing());
    match (&mut into.content, content) {
        (Content::Ordered(left), Content::Ordered(right)) => {
            if left.iter().map(Node::id).eq(right.iter().map(Node::id)) {
                left.iter_mut().zip(right).for_each(|(ours, theirs)| absorb(ours, theirs, flow));
            } else {
                *left = interleaved(into.key, std::mem::take(left), right, flow);
            }
        }
        (Content::Loop(left), Content::Loop(right)) => {
            let ours = (into.count, std::mem::take(&mut **left));
            **left = loop_clusters::merge(ours, (other.count, *right), flow);
        }
        (_, content) => {
            other.content = content;
            let before = into.before + other.before;
            if !into.is_profile() {
                *into = flattened(into);
            }
            accumulate(into, &other);
            into.before = before;
            return;
        }
    }
    into.count += other.count;
    into.before += other.before;
    into.duration += other.duration;
    into.own += other.own;
    into.begin.add(other.begin);
    into.end.add(other.end);
}

fn nothing() -> Content {
    Content::Profile(Vec::new())
}

/// Returns the children of both in order of time. Each keeps the time before it: own time of a node
/// that lacks a child precedes its next child.
fn interleaved(
    parent: super::Key,
    left: Vec<Node>,
    right: Vec<Node>,
    flow: &dyn ControlFlow,
) -> Vec<Node> {
    let steps: Vec<Step> = Walk::new(parent, &left, &right, flow).collect();
    let mut children = Vec::with_capacity(steps.len());
    let (mut left, mut right) = (left.into_iter(), right.into_iter());
    for step in steps {
        // The walk visits each child once, in order.
        let (ours, theirs) = match step {
            Step::Both(..) => (left.next(), right.next()),
            Step::Left(..) => (left.next(), None),
            Step::Right(..) => (None, right.next()),
        };
        match (ours, theirs) {
            (Some(ours), Some(theirs)) => children.push(merged(ours, theirs, flow)),
            (ours, theirs) => children.extend(ours.or(theirs)),
        }
    }
    children
}

/// Splits a node of several instances into `part` of `whole` instances and the rest. Every sum is
/// divided in whole stamps; both parts add up to the node exactly.
pub(super) fn split(mut node: Node, part: u64, whole: u64) -> (Node, Node) {
    let share = |sum: u64| (u128::from(sum) * u128::from(part) / u128::from(whole.max(1))) as u64;
    let boundary = |rest: &mut Boundary| {
        let part = Boundary { earlier: share(rest.earlier), later: share(rest.later) };
        rest.earlier -= part.earlier;
        rest.later -= part.later;
        part
    };
    let content = std::mem::replace(&mut node.content, nothing());
    let divide = |nodes: Vec<Node>| {
        // `unzip` would begin with room for four nodes, and most nodes have one child.
        let one_each = || Vec::with_capacity(nodes.len());
        let (mut ours, mut theirs) = (one_each(), one_each());
        for node in nodes {
            let (part, rest) = split(node, part, whole);
            ours.push(part);
            theirs.push(rest);
        }
        (ours, theirs)
    };
    let (content, rest, duration) = match content {
        Content::Ordered(children) => {
            let (ours, theirs): (Vec<Node>, Vec<Node>) = divide(children);
            let duration: u64 = ours.iter().map(|child| child.before + child.duration).sum();
            (Content::Ordered(ours), Content::Ordered(theirs), duration)
        }
        Content::Profile(children) => {
            let (ours, theirs): (Vec<Node>, Vec<Node>) = divide(children);
            let duration: u64 = ours.iter().map(|child| child.duration).sum();
            (Content::Profile(ours), Content::Profile(theirs), duration)
        }
        Content::Loop(iterations) => {
            let mut rest = *iterations;
            let (rejected_children, left): (Vec<Node>, Vec<Node>) =
                divide(std::mem::take(&mut rest.rejected_children));
            rest.rejected_children = left;
            let mut clusters = Vec::with_capacity(rest.clusters.len());
            for cluster in &mut rest.clusters {
                let (tree, left) = split(cluster.tree.clone(), part, whole);
                cluster.tree = left;
                let (members, instances) = (cluster.members.clone(), cluster.instances.clone());
                clusters.push(Cluster { members, tree, instances });
            }
            let duration = rejected_children.iter().map(|child| child.duration).sum::<u64>()
                + clusters.iter().map(|cluster| cluster.tree.duration).sum::<u64>();
            let ours = Iterations {
                clusters,
                accepted: share(rest.accepted),
                rejected: share(rest.rejected),
                rejected_children,
                durations: rest.durations.split(share),
            };
            rest.accepted -= ours.accepted;
            rest.rejected -= ours.rejected;
            (Content::Loop(Box::new(ours)), Content::Loop(Box::new(rest)), duration)
        }
    };
    let (own, before) = (share(node.own), share(node.before));
    let duration = duration + own;
    let ours = Node {
        key: node.key,
        kind: node.kind,
        count: share(node.count),
        before,
        duration,
        own,
        begin: boundary(&mut node.begin),
        end: boundary(&mut node.end),
        content,
    };
    let theirs = Node {
        count: node.count - ours.count,
        before: node.before - before,
        duration: node.duration - duration,
        own: node.own - own,
        content: rest,
        ..node
    };
    (ours, theirs)
}
