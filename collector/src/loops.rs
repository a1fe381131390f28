//! The loops of a course: how often each ran, and what its iterations were.

use std::collections::BTreeMap;

use crate::profile::{CourseProfile, LoopProfile, NodeId};
use plimsoll_trees::{Content, Durations, Iterations, Node};

/// All loops of a course whose iterations were told apart, by their contexts: copies of one, and call
/// sites that are one context, are one.
pub(crate) fn loops(course: &CourseProfile) -> Vec<LoopProfile> {
    let mut found = BTreeMap::new();
    visit(&course.tree, course, &mut found);
    let told = found.into_values().map(|(it, durations)| LoopProfile {
        stride: durations.stride(),
        durations: durations.stretches().iter().map(|s| (s.sum, s.count)).collect(),
        ..it
    });
    told.collect()
}

fn visit(
    node: &Node,
    course: &CourseProfile,
    found: &mut BTreeMap<NodeId, (LoopProfile, Durations)>,
) {
    match node.content() {
        Content::Ordered(children) | Content::Profile(children) => {
            children.iter().for_each(|child| visit(child, course, found));
        }
        Content::Loop(iterations) => {
            if let Some(at) = course.keys[node.key().0 as usize].node {
                let (it, durations) =
                    found.entry(at).or_insert_with(|| (empty(at), <_>::default()));
                add(it, node, iterations);
                durations.merge(iterations.durations().clone());
            }
            iterations.clusters().iter().for_each(|cluster| visit(&cluster.tree, course, found));
            iterations.refused().iter().for_each(|child| visit(child, course, found));
        }
    }
}

fn add(it: &mut LoopProfile, node: &Node, iterations: &Iterations) {
    it.executions += node.count();
    it.duration_ns = it.duration_ns.saturating_add(node.duration());
    it.accepted += iterations.accepted();
    it.rejected += iterations.rejected();
    for cluster in iterations.clusters() {
        let (count, ns) = (cluster.tree.count(), cluster.tree.duration());
        // Executions that were clustered apart may have the same iterations alike.
        match it.clusters.iter_mut().find(|(known, _, _)| *known == cluster.members) {
            Some((_, number, sum)) => {
                *number += count;
                *sum = sum.saturating_add(ns);
            }
            None => it.clusters.push((cluster.members.clone(), count, ns)),
        }
    }
}

fn empty(node: NodeId) -> LoopProfile {
    LoopProfile {
        node,
        executions: 0,
        duration_ns: 0,
        accepted: 0,
        rejected: 0,
        stride: 1,
        durations: Vec::new(),
        clusters: Vec::new(),
    }
}
