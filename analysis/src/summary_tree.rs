//! The summary's tree: contexts with time or calls, with their labels and statistics over ranks.

use std::collections::{BTreeMap, HashMap};

use plimsoll_collector::profile::{self, NodeId};

use crate::attribution::Attributed;
use crate::labelling::{ContextClass, shown};
use crate::metrics::NS_PER_S;
use crate::summary::{Frame, FrameKind, Tree, TreeNode};
use crate::totals::{NodeTotals, Totals};

/// Counter of a context: seconds of waiting for a core, summed over ranks.
pub const RUN_DELAY_COUNTER: &str = "run_delay_s";

/// Returns the index of each context of the totals in the summary's tree; `None` for contexts
/// without time and calls.
pub fn places(totals: &Totals) -> Vec<Option<u32>> {
    let mut alive: Vec<bool> =
        totals.nodes.iter().map(|node| node.inclusive.sum > 0 || node.calls > 0).collect();
    for (index, node) in totals.tree.contexts.nodes.iter().enumerate().rev() {
        if let Some(parent) = node.parent {
            alive[parent as usize] |= alive[index];
        }
    }
    let mut indices = 0..;
    alive.into_iter().map(|alive| alive.then(|| indices.next()).flatten()).collect()
}

/// Returns the tree. `places` holds the index in the tree of each context of the totals
/// ([`places`]).
pub fn summary_tree(
    totals: &Totals,
    context_classes: &[ContextClass],
    attributed: &[Attributed],
    places: &[Option<u32>],
) -> Tree {
    let contexts = &totals.tree.contexts;
    let nodes = Vec::with_capacity(places.iter().flatten().count());
    let mut tree = Tree { frames: Vec::new(), nodes };
    let mut frames: HashMap<Frame, u32> = HashMap::new();
    for (index, node) in contexts.nodes.iter().enumerate() {
        if places[index].is_none() {
            continue;
        }
        let source = &contexts.frames[node.frame as usize];
        // Two recorded frames may look the same to a reader: a call on a file and on a stream.
        let frame = shown_frame(source);
        let frame = *frames.entry(frame).or_insert_with_key(|frame| {
            tree.frames.push(frame.clone());
            tree.frames.len() as u32 - 1
        });
        tree.nodes.push(TreeNode {
            parent: node.parent.and_then(|parent| places[parent as usize]),
            frame,
            label: shown(context_classes[index], totals.nodes[index].derived),
            calls_exact: source.call.is_some(),
            ..values(&totals.nodes[index], &attributed[index], totals.job.ranks.len())
        });
        if let Some(node) = tree.nodes.last_mut() {
            let events = totals.counters.exclusive_sums(index as NodeId);
            node.counters.extend(events.map(|(event, sum)| (event.to_owned(), sum)));
            node.thread_times.extend(totals.threads.times(index as NodeId));
        }
    }
    tree
}

fn values(totals: &NodeTotals, attributed: &Attributed, ranks: u32) -> TreeNode {
    let seconds = |ns: f64| Some(ns / NS_PER_S);
    let mut counters = BTreeMap::new();
    if totals.run_delay_ns > 0 {
        counters.insert(RUN_DELAY_COUNTER.to_owned(), totals.run_delay_ns as f64 / NS_PER_S);
    }
    TreeNode {
        parent: None,
        frame: 0,
        label: crate::label::Label::Computation,
        calls: totals.calls,
        calls_exact: false,
        balanced: Some(attributed.balanced),
        inclusive: totals.inclusive.finalize(ranks),
        exclusive: totals.exclusive.finalize(ranks),
        idle_s: seconds(attributed.idle_ns),
        imb_s: seconds(attributed.own.imb_ns),
        wait_s: seconds(attributed.own.wait_ns),
        sum_imb_s: seconds(attributed.sum.imb_ns),
        sum_wait_s: seconds(attributed.sum.wait_ns),
        blame_inclusive_s: seconds(attributed.blame_ns.0),
        blame_exclusive_s: seconds(attributed.blame_ns.1),
        blame_fraction: Some(attributed.blame_fraction),
        counters,
        thread_times: BTreeMap::new(),
    }
}

/// Returns the frames of the path to a context, as shown to a reader.
pub fn shown_path(totals: &Totals, node: NodeId) -> Vec<Frame> {
    let path = crate::canonical::path(&totals.tree.contexts, node);
    path.iter().map(|(frame, _)| shown_frame(frame)).collect()
}

/// Returns a frame of a profile in the form of the summary.
pub fn shown_frame(frame: &profile::Frame) -> Frame {
    Frame {
        kind: match frame.kind {
            profile::FrameKind::Function => FrameKind::Function,
            profile::FrameKind::Loop => FrameKind::Loop,
            profile::FrameKind::Inlined => FrameKind::Inlined,
            profile::FrameKind::Mpi => FrameKind::Mpi,
            profile::FrameKind::Line => FrameKind::Line,
        },
        function: frame.function.clone(),
        file: frame.file.clone(),
        line: frame.line,
        offset: frame.offset,
        module: frame.module.clone(),
    }
}
