//! The loops of a temporal context tree: how often each ran, and what its iterations were.

use std::collections::BTreeMap;

use crate::loop_profile::{LoopCluster, LoopInstance, LoopProfile};
use crate::loop_slices::{KeyContexts, mean_iteration};
use crate::profile::NodeId;
use plimsoll_trees::{Content, Durations, Instance, Iterations, Kind, Node, WantedIteration};

/// Returns all loops of a temporal context tree with distinguished iterations, by their contexts:
/// copies of a loop, and call sites of one context, are merged.
pub(crate) fn loops(tree: &Node, contexts: KeyContexts<'_>) -> Vec<LoopProfile> {
    let mut found = BTreeMap::new();
    visit(tree, None, contexts, &mut found);
    // Minimum time of a loop with described iterations.
    let least = MIN_DESCRIBED_FRACTION * tree.duration() as f64;
    describe(tree, None, contexts, least, &mut found);
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

/// Adds the loops at and below a node in the context `around`.
fn visit(
    node: &Node,
    around: Option<NodeId>,
    contexts: KeyContexts<'_>,
    found: &mut BTreeMap<NodeId, (LoopProfile, Durations)>,
) {
    let at = contexts.within(around, node);
    if let (Some(at), Content::Loop(iterations)) = (at, node.content()) {
        let (it, durations) = found.entry(at).or_insert_with(|| (empty(at), <_>::default()));
        add(it, node, iterations);
        durations.merge(iterations.durations().clone());
    }
    let mut visit = |node| visit(node, at.or(around), contexts, found);
    match node.content() {
        Content::Ordered(children) | Content::Profile(children) => {
            children.iter().for_each(visit);
        }
        Content::Loop(iterations) => {
            iterations.clusters().iter().for_each(|cluster| visit(&cluster.tree));
            iterations.rejected_children().iter().for_each(visit);
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

/// Describes the mean iterations of the loops at and below a node in the context `around` that take
/// a significant part of the thread's run.
fn describe(
    node: &Node,
    around: Option<NodeId>,
    contexts: KeyContexts<'_>,
    least: f64,
    found: &mut BTreeMap<NodeId, (LoopProfile, Durations)>,
) {
    let at = contexts.within(around, node);
    let inside = at.or(around);
    match node.content() {
        Content::Ordered(children) | Content::Profile(children) => {
            children.iter().for_each(|child| describe(child, inside, contexts, least, found));
        }
        Content::Loop(iterations) => {
            let it = at.and_then(|at| found.get_mut(&at)).map(|(it, _)| it);
            if let Some(it) = it.filter(|it| is_described(it, least)) {
                for cluster in iterations.clusters() {
                    let known = it.clusters.iter_mut().find(|it| it.members == cluster.members);
                    // The first execution with these iterations stands for the others.
                    if let Some(known) = known.filter(|known| known.contexts.is_empty()) {
                        let mean = mean_iteration(&cluster.tree, contexts);
                        (known.contexts, known.slices) = (mean.contexts, mean.slices);
                    }
                }
            }
            let clusters = iterations.clusters().iter();
            clusters.for_each(|it| describe(&it.tree, inside, contexts, least, found));
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
    contexts: KeyContexts<'_>,
) {
    let mut around = None;
    for node in std::iter::successors(Some(path), |node| first_child(node)) {
        let Some(context) = contexts.within(around, node) else { continue };
        around = Some(context);
        let Some(it) = loops.iter_mut().find(|it| it.node == context) else { continue };
        let represented = it.clusters.iter_mut().find(|cluster| {
            !cluster.slices.is_empty() && cluster.representative() == Some(captured)
        });
        // Outer loops are on the path as well, with the duration of the same iteration.
        if let Some(cluster) = represented.filter(|_| node.kind() == Kind::Loop) {
            let slices = mean_iteration(node, contexts).slices;
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

fn is_described(it: &LoopProfile, least: f64) -> bool {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::profile::{self, TemporalTreeKey};
    use plimsoll_trees::{ControlFlow, Frame, Key, Lca, Limits, Moment, TreeBuilder};

    struct Unknown;

    impl ControlFlow for Unknown {
        fn precedes(&self, _: Key, _: Key, _: Key) -> Option<bool> {
            None
        }
    }

    /// A loop of main makes a parallel region in each iteration: a loop of the OpenMP runtime calls
    /// the outlined function. The frames of the runtime have the contexts of their caller.
    #[test]
    fn frames_that_are_left_out_add_nothing_to_the_contexts_of_their_caller() {
        let [in_main, in_loop, in_outlined]: [NodeId; 3] = [0, 1, 2];
        let meanings =
            [None, Some(in_main), Some(in_loop), Some(in_main), Some(in_loop), Some(in_outlined)];
        let keys = meanings.map(|node| TemporalTreeKey { node, site: 0, position: None });
        let nodes = [None, Some(in_main), Some(in_loop)].map(|parent| profile::Node {
            parent,
            frame: 0,
            site: 0,
        });
        let limits = Limits { period: 10, nodes: 1 << 10, iteration_nodes: 1 << 8 };
        let mut builder = TreeBuilder::new(Key(0), 0, limits);
        let [main, outlined] = [1, 5].map(|key| Frame::call(Key(key)));
        let [own, runtime] = [2, 4].map(|key| Frame::within_loop(Key(key)));
        let path = [main, own, Frame::call(Key(3)), runtime, outlined];
        for at in 0..5 {
            let kept = if at == 0 { 0 } else { 2 };
            let when = Moment::exact(100 * at);
            builder.change(Lca::exactly(kept), &path[kept..], when, &Unknown);
        }
        let (tree, _) = builder.finish(500, &Unknown);
        let found = loops(&tree, KeyContexts { keys: &keys, nodes: &nodes });
        let [it] = &found[..] else { panic!("{found:#?}") };
        assert_eq!((it.node, it.executions, it.accepted, it.duration_ns), (in_loop, 1, 5, 500));
        let [cluster] = &it.clusters[..] else { panic!("{found:#?}") };
        assert_eq!((cluster.count, &cluster.contexts[..]), (5, &[(in_outlined, 100)][..]));
        assert!(cluster.slices.iter().all(|slice| slice.node == in_outlined));
    }
}
