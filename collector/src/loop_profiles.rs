//! The loops of a temporal context tree: how often each ran, and what its iterations were.

use std::collections::BTreeMap;

use crate::loop_profile::{LoopCluster, LoopInstance, LoopProfile};
use crate::loop_slices::mean_iteration;
use crate::profile::{NodeId, TemporalTreeKey, TemporalTreeProfile};
use plimsoll_trees::{Content, Durations, Instance, Iterations, Kind, Node, WantedIteration};

/// Returns all loops of a temporal context tree with distinguished iterations, by their contexts:
/// copies of a loop, and call sites of one context, are merged.
pub(crate) fn loops(temporal_tree: &TemporalTreeProfile) -> Vec<LoopProfile> {
    let mut found = BTreeMap::new();
    visit(&temporal_tree.tree, temporal_tree, &mut found);
    describe(&temporal_tree.tree, temporal_tree, &mut found);
    let profiles = found.into_values().map(|(it, durations)| LoopProfile {
        stride: durations.stride(),
        durations: durations.stretches().iter().map(|s| (s.sum, s.count)).collect(),
        begins: match it.executions {
            1 => durations.stretches().iter().map(|s| (s.count > 0).then_some(s.begin)).collect(),
            _ => Vec::new(),
        },
        ..it
    });
    profiles.collect()
}

fn visit(
    node: &Node,
    temporal_tree: &TemporalTreeProfile,
    found: &mut BTreeMap<NodeId, (LoopProfile, Durations)>,
) {
    match node.content() {
        Content::Ordered(children) | Content::Profile(children) => {
            children.iter().for_each(|child| visit(child, temporal_tree, found));
        }
        Content::Loop(iterations) => {
            if let Some(at) = temporal_tree.keys[node.key().0 as usize].node {
                let (it, durations) =
                    found.entry(at).or_insert_with(|| (empty(at), <_>::default()));
                add(it, node, iterations);
                durations.merge(iterations.durations().clone());
            }
            iterations
                .clusters()
                .iter()
                .for_each(|cluster| visit(&cluster.tree, temporal_tree, found));
            iterations
                .rejected_children()
                .iter()
                .for_each(|child| visit(child, temporal_tree, found));
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
                instance: None,
            }),
        }
    }
}

/// Describes the mean iterations of the loops that take a significant part of the thread's run.
fn describe(
    node: &Node,
    temporal_tree: &TemporalTreeProfile,
    found: &mut BTreeMap<NodeId, (LoopProfile, Durations)>,
) {
    match node.content() {
        Content::Ordered(children) | Content::Profile(children) => {
            children.iter().for_each(|child| describe(child, temporal_tree, found));
        }
        Content::Loop(iterations) => {
            let at = temporal_tree.keys[node.key().0 as usize].node;
            let it = at.and_then(|at| found.get_mut(&at)).map(|(it, _)| it);
            if let Some(it) = it.filter(|it| is_described(it, temporal_tree)) {
                for cluster in iterations.clusters() {
                    let known = it.clusters.iter_mut().find(|it| it.members == cluster.members);
                    // The first execution with these iterations stands for the others.
                    if let Some(known) = known.filter(|known| known.contexts.is_empty()) {
                        let mean = mean_iteration(&cluster.tree, &temporal_tree.keys);
                        (known.contexts, known.slices) = (mean.contexts, mean.slices);
                    }
                }
            }
            iterations.clusters().iter().for_each(|it| describe(&it.tree, temporal_tree, found));
        }
    }
}

/// Adds a captured iteration to the cluster that it represents. `path` is the path to its loop,
/// one child in each node; the loop has the children of the iteration. An iteration that represents
/// no described cluster is dropped.
pub(crate) fn add_instance(
    loops: &mut [LoopProfile],
    captured: Instance,
    path: &Node,
    keys: &[TemporalTreeKey],
) {
    for node in std::iter::successors(Some(path), |node| first_child(node)) {
        let Some(context) = keys[node.key().0 as usize].node else { continue };
        let Some(it) = loops.iter_mut().find(|it| it.node == context) else { continue };
        let represented = it.clusters.iter_mut().find(|cluster| {
            !cluster.slices.is_empty() && cluster.representative() == Some(captured)
        });
        // Outer loops are on the path as well, with the duration of the same iteration.
        if let Some(cluster) = represented.filter(|_| node.kind() == Kind::Loop) {
            let slices = mean_iteration(node, keys).slices;
            cluster.instance = Some(LoopInstance { duration_ns: captured.duration, slices });
        }
    }
}

fn first_child(node: &Node) -> Option<&Node> {
    match node.content() {
        Content::Ordered(children) => children.first(),
        _ => None,
    }
}

/// Returns the iterations that represent the described clusters, as wanted from another replay;
/// `stamps` converts nanoseconds to the unit of the trees.
pub(crate) fn wanted(loops: &[LoopProfile], stamps: impl Fn(u64) -> u64) -> Vec<WantedIteration> {
    let clusters = loops.iter().flat_map(|it| &it.clusters);
    let described = clusters.filter(|cluster| !cluster.slices.is_empty());
    let wanted = described.filter_map(|cluster| {
        let Instance { number, duration } = cluster.representative()?;
        // Conversion to nanoseconds rounded down.
        let min_duration = stamps(duration);
        Some(WantedIteration { number, min_duration, max_duration: min_duration + 1 })
    });
    wanted.collect()
}

/// Minimum part of a thread's run in a loop with described iterations.
const MIN_DESCRIBED_FRACTION: f64 = 0.05;
/// Maximum number of clusters of a loop with described iterations.
const MAX_DESCRIBED_CLUSTERS: usize = 16;

fn is_described(it: &LoopProfile, temporal_tree: &TemporalTreeProfile) -> bool {
    let least = MIN_DESCRIBED_FRACTION * temporal_tree.tree.duration() as f64;
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
        begins: Vec::new(),
        clusters: Vec::new(),
    }
}
