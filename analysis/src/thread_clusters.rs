//! Clusters of the threads that do not communicate (ICS18, 4.2). The threads of each rank are
//! clustered first; the reduction then merges the clusters of all ranks.
//!
//! ICS18 clusters all threads of an execution as one set. A communicating thread and a thread that
//! only computes have nothing in common, though, and the differences between ranks show in the
//! communicating threads, which wait for each other. Communicating threads therefore form the
//! clusters of ranks, all other threads separate clusters.

use std::cmp::Reverse;
use std::collections::BTreeSet;

use plimsoll_collector::profile::{Frame, FrameKind, NodeId};
use plimsoll_trees::{Content, Node};

use crate::advice::listed;
use crate::frame_classes::{is_part, is_system, is_unnamed};
use crate::labelling::ContextClass;
use crate::metrics::NS_PER_S;
use crate::summary::ThreadCluster;
use crate::totals::Totals;

/// Returns the clusters of the job's threads, largest first.
pub fn shown(totals: &Totals, context_classes: &[ContextClass]) -> Vec<ThreadCluster> {
    let finished = totals.worker_clusters.clone().finished();
    let context = finished.contexts();
    let rows = finished.clusters().iter().zip(finished.distances()).map(|(cluster, distance)| {
        let tree = &cluster.tree;
        let mean_s = |ns: u64| ns as f64 / tree.count().max(1) as f64 / NS_PER_S;
        let is_useful = |node: &Node| {
            context(node.key()).is_some_and(|it| context_classes[it as usize].is_useful())
        };
        let context_of = |node: &Node| context(node.key());
        let routine = outermost(totals, tree, &context_of);
        let routine = routine.map(|node| totals.tree.contexts.frame_of(node));
        let name = of_program(totals, tree, &context_of).or_else(|| routine.map(routine_name));
        ThreadCluster {
            ranks: cluster.members.to_string(),
            size: tree.count(),
            routine: name,
            mean_s: mean_s(tree.duration()),
            work_s: mean_s(own_ns(tree, &is_useful).saturating_sub(cluster.members.short_calls_ns)),
            distance,
        }
    });
    let mut rows: Vec<ThreadCluster> = rows.collect();
    rows.sort_by_key(|it| Reverse(it.size));
    rows
}

/// Name of the start routine of an OpenMP runtime without symbols.
const OPENMP_WORKER: &str = "OpenMP worker";

fn routine_name(routine: &Frame) -> String {
    match is_unnamed(routine) && routine.is_of_thread_runtime() {
        true => OPENMP_WORKER.to_owned(),
        false => routine.function.clone(),
    }
}

/// Returns the outermost function (no loop or inlined call) of a thread. If threads with different
/// outermost functions form one cluster, the function with the longest time is returned.
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

/// Returns the name of the outermost function of the program in threads that a language's library
/// starts, such as those of `std::thread`; `None` for other threads. If the library calls several
/// functions of the program, names them in place of a start routine without a name.
fn of_program(
    totals: &Totals,
    tree: &Node,
    context: &dyn Fn(&Node) -> Option<NodeId>,
) -> Option<String> {
    let start = totals.tree.contexts.frame_of(outermost(totals, tree, context)?);
    if !start.is_of_language() {
        return None;
    }
    let mut names = BTreeSet::new();
    collect_names(totals, tree, context, &mut names);
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    (names.len() == 1 || is_unnamed(start) && !names.is_empty()).then(|| listed(&names))
}

/// Collects the names of the outermost functions of the program, inlined ones included.
fn collect_names(
    totals: &Totals,
    node: &Node,
    context: &dyn Fn(&Node) -> Option<NodeId>,
    names: &mut BTreeSet<String>,
) {
    if let Some(frame) = context(node).map(|node| totals.tree.contexts.frame_of(node)) {
        // Calls and system functions outside of the program's code, such as waits for a start.
        let is_of_language = frame.is_of_language();
        if frame.call.is_some() || is_system(frame) && !is_of_language {
            return;
        }
        let is_function = matches!(frame.kind, FrameKind::Function | FrameKind::Inlined);
        if is_function && !is_of_language {
            names.insert(frame.function.clone());
            return;
        }
    }
    for_each_below(node, &mut |node| collect_names(totals, node, context, names));
}

/// Returns the exclusive time of all chosen nodes at and below `node`, in nanoseconds.
fn own_ns(node: &Node, chosen: &dyn Fn(&Node) -> bool) -> u64 {
    let mut sum_ns = if chosen(node) { node.exclusive() } else { 0 };
    for_each_below(node, &mut |node| sum_ns += own_ns(node, chosen));
    sum_ns
}

/// Visits the children of a node; for a loop, the children in all iterations.
fn for_each_below<'n>(node: &'n Node, visit: &mut dyn FnMut(&'n Node)) {
    match node.content() {
        Content::Ordered(children) | Content::Profile(children) => {
            children.iter().for_each(visit);
        }
        Content::Loop(iterations) => {
            for cluster in iterations.clusters() {
                for_each_below(&cluster.tree, visit);
            }
            iterations.rejected_children().iter().for_each(visit);
        }
    }
}
