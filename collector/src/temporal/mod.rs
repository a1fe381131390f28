//! Temporal context tree of a thread (ICS18, 3.1), built during the replay of its records.
//!
//! A frame that a record keeps is the same activation as before. Therefore, if the outermost k
//! frames stay, the function that contains frame k + 1 also stays, although it is now at another
//! address.

mod key_interner;
mod temporal_trees;
mod terms;
mod worker_threads;

use crate::raw_tree::{IdMap, RawId, Tree};
use crate::tables::Tables;
use plimsoll_binary::Structures;
use plimsoll_trees::{
    CapturedIteration, Frame, Lca, Limits, Moment, Node, TreeBuilder, WantedIteration,
};

pub(crate) use key_interner::KeyInterner;
pub(crate) use temporal_trees::{TemporalTrees, ThreadTree};
pub(crate) use terms::{passed, to_user_terms};
pub(crate) use worker_threads::WorkerThreads;

/// Estimated memory of a tree node, in bytes; used to bound the number of nodes.
const NODE_BYTES: u64 = 120;
/// Maximum number of nodes of one iteration.
const ITERATION_NODES: usize = 256;
/// Number of frames at the outer end of a stack that are never marked. Whether these frames
/// returned between two samples is only known from their addresses.
const UNMARKED: u32 = 3;

/// Tables from which addresses are resolved.
pub(crate) struct Sources<'a> {
    pub(crate) tables: &'a dyn Tables,
    pub(crate) structures: &'a mut Structures,
}

/// Temporal context tree of one thread, under construction.
pub(crate) struct TemporalTree {
    builder: Option<TreeBuilder>,
    /// For each frame of the stack: the number of tree frames outside its function, and the tree
    /// frame of the function.
    outside: Vec<(usize, Frame)>,
    /// Raw contexts and tree frames that a record adds; buffers reused between records.
    added: Vec<RawId>,
    frames: Vec<Frame>,
    /// Records were lost: `outside` does not match the producer's stack until a full stack arrives.
    is_unsure: bool,
    begin: u64,
    /// Stamps excluded so far, such as pauses.
    paused: u64,
    nodes: usize,
    /// Iterations to be captured.
    wanted: Vec<WantedIteration>,
    /// Whether the stack ends in a wrapped call.
    is_in_call: bool,
    /// Stamps of short wrapped calls that the tree charges to their callers, by raw context.
    short_calls: IdMap<RawId, u64>,
}

impl TemporalTree {
    /// Creates a tree that begins at stamp `begin` and uses about `memory_bytes` at most.
    pub(crate) fn new(begin: u64, memory_bytes: u64) -> Self {
        let nodes = (memory_bytes / NODE_BYTES).clamp(1 << 10, 1 << 24) as usize;
        Self {
            builder: None,
            outside: Vec::new(),
            added: Vec::new(),
            frames: Vec::new(),
            is_unsure: false,
            begin,
            paused: 0,
            nodes,
            wanted: Vec::new(),
            is_in_call: false,
            short_calls: IdMap::default(),
        }
    }

    /// Captures these iterations, in addition to building the tree.
    pub(crate) fn capturing(self, wanted: Vec<WantedIteration>) -> Self {
        Self { wanted, ..self }
    }

    /// Applies a stack change: the stack is now that of raw context `node`, with the outermost
    /// `common` frames unchanged. `when` is (earliest, at, latest) as for a [`TreeBuilder`].
    /// `leaf`: the last frame is the sampled address, not a call.
    #[allow(clippy::too_many_arguments, reason = "they are what a record says")]
    pub(crate) fn set_stack(
        &mut self,
        node: RawId,
        common: u32,
        leaf: bool,
        when: (u64, u64, u64),
        period: u64,
        tree: &Tree,
        keys: &mut KeyInterner,
        sources: &mut Sources<'_>,
    ) {
        let (earliest, at, latest) = when;
        // Frames kept from an unknown stack are unknown.
        let builds_upon = common > 0 && self.is_unsure;
        self.is_unsure = builds_upon;
        if latest < self.begin || builds_upon {
            return;
        }
        let fresh = self.builder.is_none();
        let paused = self.paused;
        let limits = Limits { period, nodes: self.nodes, iteration_nodes: ITERATION_NODES };
        let begin = self.begin;
        let wanted = &mut self.wanted;
        let builder = self.builder.get_or_insert_with(|| {
            let builder = TreeBuilder::new(key_interner::ROOT, begin, limits);
            let mut builder = builder.capturing(std::mem::take(wanted));
            builder.exclude(paused);
            builder
        });
        let common = if fresh { 0 } else { (common as usize).min(self.outside.len()) };
        // Frames inside a wrapped call are not the user's.
        let call = tree.outermost_call(node);
        self.is_in_call = call.is_some();
        let (node, leaf) = call.map_or((node, leaf), |call| (call, false));
        let depth = tree.depth(node) as usize;
        let common = common.min(depth);
        // The kept tree frames: those of all frames that stay, and the function of the next frame.
        let goes_on = self.outside.get(common).copied().filter(|_| common < depth);
        let held = self.outside.get(common).map_or_else(|| builder.depth(), |(held, _)| *held);
        self.outside.truncate(common);
        self.added.clear();
        let mut inner = node;
        for _ in common..depth {
            self.added.push(inner);
            inner = tree.parent(inner);
        }
        self.frames.clear();
        for (left, inner) in self.added.iter().enumerate().rev() {
            let outside = self.frames.len();
            keys.expand(*inner, leaf && left == 0, &mut self.frames, tree, sources);
            self.outside.push((held + outside, self.frames[outside]));
        }
        let frames = &self.frames[..];
        // The function continues if the frame that now follows is in the same function.
        let same = goes_on.is_some_and(|(_, frame)| frames.first() == Some(&frame));
        let (lca, added) = if same { (held + 1, &frames[1..]) } else { (held, frames) };
        let lca = if (common as u32) < UNMARKED { Lca::at_least(lca) } else { Lca::exactly(lca) };
        // The outer frame has not been returned to, yet another function runs inside it.
        let is_tail_call = common > 0 && goes_on.is_some() && !same && !frames.is_empty();
        let lca = if is_tail_call { lca.by_tail_call() } else { lca };
        let moment = |stamp: u64| stamp.max(begin).saturating_sub(self.paused);
        let when = Moment::between(moment(earliest), moment(at), moment(latest));
        builder.change(lca, added, when, keys);
    }

    /// Removes the innermost call, at raw context `node`, which returned at stamp `at`.
    pub(crate) fn leave(&mut self, node: RawId, at: u64, tree: &Tree, keys: &KeyInterner) {
        if self.is_unsure || tree.depth(node) as usize != self.outside.len() {
            return; // one within another wrapped call
        }
        let Some(builder) = &mut self.builder else { return };
        let Some((held, _)) = self.outside.pop() else { return };
        let at = at.max(self.begin).saturating_sub(self.paused);
        self.is_in_call = false;
        builder.change(Lca::exactly(held), &[], Moment::exact(at), keys);
    }

    /// Notes the time of short wrapped calls, which change no stack. While the stack ends in a
    /// call, the tree charges none of this time to the calls' callers.
    pub(crate) fn spend(&mut self, node: RawId, stamps: u64) {
        if stamps > 0 && self.builder.is_some() && !self.is_in_call {
            *self.short_calls.entry(node).or_default() += stamps;
        }
    }

    /// Returns the time of short wrapped calls that the tree charges to their callers, in stamps,
    /// by raw context.
    pub(crate) fn short_calls(&self) -> impl Iterator<Item = (RawId, u64)> + '_ {
        self.short_calls.iter().map(|(node, stamps)| (*node, *stamps))
    }

    /// Marks the stack as unknown until a full stack arrives. Frames that look the same then are
    /// assumed to be the same.
    pub(crate) fn mark_gap(&mut self) {
        self.is_unsure = true;
    }

    /// Excludes `stamps` from the time of the tree.
    pub(crate) fn pause(&mut self, stamps: u64) {
        self.paused = self.paused.saturating_add(stamps);
        if let Some(builder) = &mut self.builder {
            builder.exclude(stamps);
        }
    }

    /// Returns the finished tree, which ends at stamp `end`, and the captured iterations; `None` if
    /// no stack was applied.
    pub(crate) fn finish(
        &mut self,
        end: u64,
        keys: &KeyInterner,
    ) -> Option<(Node, Vec<CapturedIteration>)> {
        let end = end.max(self.begin).saturating_sub(self.paused);
        let (tree, _, captured) = self.builder.take()?.finish_capture(end, keys);
        Some((tree, captured))
    }

    /// Returns the approximate memory use in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let short_calls = self.short_calls.capacity() * (size_of::<(RawId, u64)>() + 1);
        self.builder.as_ref().map_or(0, |builder| (builder.bytes() + short_calls) as u64)
    }
}
