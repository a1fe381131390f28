//! The loops of a course: how often each ran, and what its iterations were.

use std::collections::BTreeMap;

use super::Keys;
use crate::clusters::{Cluster, Content, Durations, Key, Kind, Members, Node};

/// A loop in one calling context.
pub(crate) struct LoopRun {
    /// Address ids of the call sites outside of it, outermost first, and one in the loop.
    pub(crate) path: Vec<u32>,
    /// How many loops of its function are around it.
    pub(crate) depth: usize,
    /// How often it was entered.
    pub(crate) executions: u64,
    /// For how long it ran in all, in stamps.
    pub(crate) duration: u64,
    /// Iterations, in all executions.
    pub(crate) accepted: u64,
    /// Those that were too short to be told apart.
    pub(crate) rejected: u64,
    /// Durations of iterations, in stamps.
    pub(crate) durations: Durations,
    /// Iterations that were alike: which, how many in all executions, and their time.
    pub(crate) clusters: Vec<(Members, u64, u64)>,
}

/// All loops of a course whose iterations were told apart.
pub(crate) fn loops(tree: &Node, keys: &Keys) -> Vec<LoopRun> {
    let mut found = BTreeMap::new();
    visit(tree, &mut Vec::new(), keys, &mut found);
    found.into_values().collect()
}

fn visit(
    node: &Node,
    sites: &mut Vec<u32>,
    keys: &Keys,
    found: &mut BTreeMap<(Vec<u32>, Key), LoopRun>,
) {
    let site = if node.kind() == Kind::Call { keys.site(node.key()) } else { None };
    sites.extend(site);
    match node.content() {
        Content::Ordered(children) | Content::Profile(children) => {
            children.iter().for_each(|child| visit(child, sites, keys, found));
        }
        Content::Loop(iterations) => {
            if let Some((within, depth)) = keys.sample(node.key()) {
                let mut path = sites.clone();
                path.push(within);
                let run = found.entry((sites.clone(), node.key())).or_insert_with(|| LoopRun {
                    path,
                    depth,
                    executions: 0,
                    duration: 0,
                    accepted: 0,
                    rejected: 0,
                    durations: Durations::default(),
                    clusters: Vec::new(),
                });
                run.executions += node.count();
                run.duration = run.duration.saturating_add(node.duration());
                run.accepted += iterations.accepted();
                run.rejected += iterations.rejected();
                run.durations.merge(iterations.durations().clone());
                run.clusters.extend(iterations.clusters().iter().map(numbers));
            }
            for cluster in iterations.clusters() {
                visit(&cluster.tree, sites, keys, found);
            }
            iterations.refused().iter().for_each(|child| visit(child, sites, keys, found));
        }
    }
    sites.truncate(sites.len() - usize::from(site.is_some()));
}

fn numbers(cluster: &Cluster) -> (Members, u64, u64) {
    (cluster.members.clone(), cluster.tree.count(), cluster.tree.duration())
}
