//! Threads beside those that communicate, and which of them did alike (ICS18, 4.2): those of each rank are
//! clustered first, then, in the reduction, the clusters of all ranks.
//!
//! ICS18 clusters all threads of an execution as one set. A communicating thread and one that only
//! computes have nothing in common, though, and what makes a rank differ shows in its communicating thread,
//! which waits for the others: so these make the clusters of ranks, and all others clusters of their own.

use std::cmp::Reverse;

use plimsoll_collector::profile::NodeId;
use plimsoll_trees::{Content, Node};

use crate::frames::is_part;
use crate::labelling::Meaning;
use crate::metrics::NS_PER_S;
use crate::summary::ThreadCluster;
use crate::totals::Totals;

/// What there is to say of the threads of a job, the most first.
pub fn shown(totals: &Totals, meanings: &[Meaning]) -> Vec<ThreadCluster> {
    let finished = totals.crews.finished();
    let context = finished.contexts();
    let told = finished.clusters().iter().zip(finished.distances()).map(|(cluster, distance)| {
        let tree = &cluster.tree;
        let mean_s = |ns: u64| ns as f64 / tree.count().max(1) as f64 / NS_PER_S;
        let is_useful =
            |node: &Node| context(node.key()).is_some_and(|it| meanings[it as usize].is_useful());
        let routine = outermost(totals, tree, &|node| context(node.key()));
        ThreadCluster {
            ranks: cluster.members.to_string(),
            size: tree.count(),
            routine: routine.map(|node| {
                let contexts = &totals.tree.contexts;
                contexts.frames[contexts.nodes[node as usize].frame as usize].function.clone()
            }),
            mean_s: mean_s(tree.duration()),
            work_s: mean_s(own_ns(tree, &is_useful)),
            distance,
        }
    });
    let mut told: Vec<ThreadCluster> = told.collect();
    told.sort_by_key(|it| Reverse(it.size));
    told
}

/// The outermost function of a thread that is one to the user: where several threads that began elsewhere
/// are one cluster, that of which most time is known.
fn outermost(
    totals: &Totals,
    tree: &Node,
    context: &dyn Fn(&Node) -> Option<NodeId>,
) -> Option<NodeId> {
    let contexts = &totals.tree.contexts;
    let is_function =
        |node: &NodeId| !is_part(&contexts.frames[contexts.nodes[*node as usize].frame as usize]);
    context(tree).filter(is_function).or_else(|| {
        let mut inner = Vec::new();
        for_each_below(tree, &mut |node| inner.push(node));
        inner.sort_by_key(|node| Reverse(node.duration()));
        inner.into_iter().find_map(|node| outermost(totals, node, context))
    })
}

/// Time of all nodes that are chosen, without that of what lies below them.
fn own_ns(node: &Node, chosen: &dyn Fn(&Node) -> bool) -> u64 {
    let mut sum_ns = if chosen(node) { node.exclusive() } else { 0 };
    for_each_below(node, &mut |node| sum_ns += own_ns(node, chosen));
    sum_ns
}

/// What lies directly below a node; of a loop, in all its iterations.
fn for_each_below<'n>(node: &'n Node, visit: &mut dyn FnMut(&'n Node)) {
    match node.content() {
        Content::Ordered(children) | Content::Profile(children) => {
            children.iter().for_each(visit);
        }
        Content::Loop(iterations) => {
            for cluster in iterations.clusters() {
                for_each_below(&cluster.tree, visit);
            }
            iterations.refused().iter().for_each(visit);
        }
    }
}
