//! The loops of a course: how often each ran, and what its iterations were.

use std::collections::BTreeMap;

use crate::loop_profile::{LoopCluster, LoopProfile};
use crate::loop_slices::mean_iteration;
use crate::profile::{CourseProfile, NodeId};
use plimsoll_trees::{Content, Durations, Iterations, Node};

/// All loops of a course whose iterations were told apart, by their contexts: copies of one, and call
/// sites that are one context, are one.
pub(crate) fn loops(course: &CourseProfile) -> Vec<LoopProfile> {
    let mut found = BTreeMap::new();
    visit(&course.tree, course, &mut found);
    describe(&course.tree, course, &mut found);
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
        match it.clusters.iter_mut().find(|known| known.members == cluster.members) {
            Some(known) => {
                known.count += count;
                known.duration_ns = known.duration_ns.saturating_add(ns);
                known.instances.join(&cluster.instances);
            }
            None => it.clusters.push(LoopCluster {
                members: cluster.members.clone(),
                count,
                duration_ns: ns,
                instances: cluster.instances.clone(),
                contexts: Vec::new(),
                slices: Vec::new(),
            }),
        }
    }
}

/// Describes the mean iterations of the loops that take a significant part of the thread's run.
fn describe(
    node: &Node,
    course: &CourseProfile,
    found: &mut BTreeMap<NodeId, (LoopProfile, Durations)>,
) {
    match node.content() {
        Content::Ordered(children) | Content::Profile(children) => {
            children.iter().for_each(|child| describe(child, course, found));
        }
        Content::Loop(iterations) => {
            let at = course.keys[node.key().0 as usize].node;
            let it = at.and_then(|at| found.get_mut(&at)).map(|(it, _)| it);
            if let Some(it) = it.filter(|it| is_described(it, course)) {
                for cluster in iterations.clusters() {
                    let known = it.clusters.iter_mut().find(|it| it.members == cluster.members);
                    // The first execution with these iterations stands for the others.
                    if let Some(known) = known.filter(|known| known.contexts.is_empty()) {
                        let mean = mean_iteration(&cluster.tree, &course.keys);
                        (known.contexts, known.slices) = (mean.contexts, mean.slices);
                    }
                }
            }
            iterations.clusters().iter().for_each(|it| describe(&it.tree, course, found));
        }
    }
}

/// Minimum part of a thread's run in a loop with described iterations.
const MIN_DESCRIBED_FRACTION: f64 = 0.05;
/// Maximum number of clusters of a loop with described iterations.
const MAX_DESCRIBED_CLUSTERS: usize = 16;

fn is_described(it: &LoopProfile, course: &CourseProfile) -> bool {
    let least = MIN_DESCRIBED_FRACTION * course.tree.duration() as f64;
    it.duration_ns as f64 >= least && it.clusters.len() <= MAX_DESCRIBED_CLUSTERS
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
