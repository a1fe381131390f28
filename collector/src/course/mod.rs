//! The course of a thread: its temporal context tree (ICS18, 3.1), told by the replay of its records.
//!
//! A frame that a record keeps is the same call still running: so if the outermost k frames stay, the
//! function that the next one is in stays, too, though it is now at another place in its code.

mod courses;
mod crew;
mod keys;
mod terms;

use crate::tables::Tables;
use crate::tree::{RawId, Tree};
use plimsoll_binary::Structures;
use plimsoll_trees::{Frame, Lca, Limits, Moment, Node, TreeBuilder};

pub(crate) use courses::{Courses, ThreadCourse};
pub(crate) use crew::Crew;
pub(crate) use keys::Keys;
pub(crate) use terms::{passed, told};

/// Memory that a node of the tree takes, in bytes: for the bound on their number.
const NODE_BYTES: u64 = 120;
/// Most nodes of one iteration.
const ITERATION_NODES: usize = 256;
/// So many frames at the outer end of a stack are never marked: whether they stayed is only known by
/// their looks.
const UNMARKED: u32 = 3;

/// Where what addresses stand for is looked up.
pub(crate) struct Sources<'a> {
    pub(crate) tables: &'a dyn Tables,
    pub(crate) structures: &'a mut Structures,
}

/// The course of a thread.
pub(crate) struct Course {
    builder: Option<TreeBuilder>,
    /// For each frame of the stack, how many frames of the tree are outside of its function's, and that one.
    outside: Vec<(usize, Frame)>,
    /// Raw contexts and frames that a record adds: room that is used again.
    added: Vec<RawId>,
    frames: Vec<Frame>,
    /// They are not what the next record builds upon.
    is_unsure: bool,
    begin: u64,
    /// Stamps that did not count so far.
    paused: u64,
    nodes: usize,
}

impl Course {
    /// A course that begins at a stamp, with a bound on the memory for it.
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
        }
    }

    /// The stack is now that of a raw context, of which the outermost `kept` frames have stayed; `when` as
    /// for a [`TreeBuilder`]. `leaf`: its last frame is where the thread was seen, not a call.
    #[allow(clippy::too_many_arguments, reason = "they are what a record says")]
    pub(crate) fn stand(
        &mut self,
        node: RawId,
        kept: u32,
        leaf: bool,
        when: (u64, u64, u64),
        period: u64,
        tree: &Tree,
        keys: &mut Keys,
        sources: &mut Sources<'_>,
    ) {
        let (earliest, at, latest) = when;
        // What builds upon a stack that is not known is not known either.
        let builds_upon = kept > 0 && self.is_unsure;
        self.is_unsure = builds_upon;
        if latest < self.begin || builds_upon {
            return;
        }
        let fresh = self.builder.is_none();
        let limits = Limits { period, nodes: self.nodes, iteration_nodes: ITERATION_NODES };
        let begin = self.begin;
        let builder =
            self.builder.get_or_insert_with(|| TreeBuilder::new(keys::ROOT, begin, limits));
        let kept = if fresh { 0 } else { (kept as usize).min(self.outside.len()) };
        // What a wrapped call does inside is not the user's.
        let (node, leaf) = match tree.outermost_call(node) {
            Some(call) => (call, false),
            None => (node, leaf),
        };
        let depth = tree.depth(node) as usize;
        let kept = kept.min(depth);
        // What stays in the tree: all of the frames that stay, and the function of the next.
        let goes_on = self.outside.get(kept).copied().filter(|_| kept < depth);
        let held = self.outside.get(kept).map_or_else(|| builder.depth(), |(held, _)| *held);
        self.outside.truncate(kept);
        self.added.clear();
        let mut inner = node;
        for _ in kept..depth {
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
        // The function goes on, if it is one.
        let same = goes_on.is_some_and(|(_, frame)| frames.first() == Some(&frame));
        let (lca, added) = if same { (held + 1, &frames[1..]) } else { (held, frames) };
        let lca = if (kept as u32) < UNMARKED { Lca::at_least(lca) } else { Lca::exactly(lca) };
        let moment = |stamp: u64| stamp.max(begin).saturating_sub(self.paused);
        let when = Moment::between(moment(earliest), moment(at), moment(latest));
        builder.change(lca, added, when, keys);
    }

    /// The call of a raw context has returned, which was innermost.
    pub(crate) fn leave(&mut self, node: RawId, at: u64, tree: &Tree, keys: &Keys) {
        if self.is_unsure || tree.depth(node) as usize != self.outside.len() {
            return; // one within another wrapped call
        }
        let Some(builder) = &mut self.builder else { return };
        let Some((held, _)) = self.outside.pop() else { return };
        let at = at.max(self.begin).saturating_sub(self.paused);
        builder.change(Lca::exactly(held), &[], Moment::exact(at), keys);
    }

    /// Nothing is known of the stack until all of it is said again. Then what looks the same is the same.
    pub(crate) fn lose(&mut self) {
        self.is_unsure = true;
    }

    /// So many stamps do not count.
    pub(crate) fn pause(&mut self, stamps: u64) {
        self.paused = self.paused.saturating_add(stamps);
    }

    /// The tree of the whole course, which ends at a stamp.
    pub(crate) fn finish(&mut self, end: u64, keys: &Keys) -> Option<Node> {
        let end = end.max(self.begin).saturating_sub(self.paused);
        Some(self.builder.take()?.finish(end, keys).0)
    }

    /// Memory in use, roughly.
    pub(crate) fn bytes(&self) -> u64 {
        self.builder.as_ref().map_or(0, |builder| builder.bytes() as u64)
    }
}
