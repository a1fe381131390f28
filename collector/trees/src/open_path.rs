//! Open path: the frames on a stack and the closed nodes inside them. A frame that has left the
//! stack keeps its memory for the next frame at its depth: most frames begin and end many times a
//! second.

use super::closed::Closed;
use super::flatten::empty;
use super::open::{Closing, Frame, Moment, Open};
use super::pruning::Pruned;
use super::tree_node::{Key, Kind, Node};

/// Frames on the stack, the root first.
#[derive(Clone, Debug, Default)]
pub(super) struct Path {
    /// Open frames, then reusable memory of frames that have left the stack.
    frames: Vec<Open>,
    open: usize,
    closed: Closed,
}

impl Path {
    /// Returns the open frames.
    pub(super) fn frames(&self) -> &[Open] {
        &self.frames[..self.open]
    }

    /// Returns the open frames for change.
    pub(super) fn frames_mut(&mut self) -> &mut [Open] {
        &mut self.frames[..self.open]
    }

    /// Begins a frame.
    pub(super) fn enter(
        &mut self,
        frame: Frame,
        when: Moment,
        closing: Closing<'_>,
        pruned: &mut Pruned,
    ) {
        if self.open == self.frames.len() {
            self.frames.push(Open::default());
        }
        self.open += 1;
        let (outer, inner) = self.frames.split_at_mut(self.open - 1);
        inner[0].begin(frame, when, outer.last_mut(), &mut self.closed, closing, pruned);
    }

    /// Closes the innermost frame.
    pub(super) fn leave(&mut self, when: Moment, closing: Closing<'_>, pruned: &mut Pruned) {
        let Some(open) = self.open.checked_sub(1) else { return };
        self.open = open;
        let (outer, inner) = self.frames.split_at_mut(open);
        inner[0].close(when, &mut self.closed, closing, pruned);
        if let Some(parent) = outer.last_mut() {
            parent.child_ended(when, &mut self.closed, pruned);
        }
    }

    /// Closes all frames and returns the tree of the root.
    pub(super) fn finish(
        mut self,
        when: Moment,
        closing: Closing<'_>,
        pruned: &mut Pruned,
    ) -> Node {
        let root = self.frames().first().map_or_else(Key::default, |root| root.key);
        while !self.frames().is_empty() {
            self.leave(when, closing, pruned);
        }
        self.closed.take(0).pop().unwrap_or_else(|| empty(Kind::Call, root))
    }

    /// Takes the closed nodes, as one list of trees per open frame.
    pub(super) fn take(&mut self) -> Vec<Vec<Node>> {
        let Self { frames, open, closed } = self;
        let mut taken: Vec<_> =
            frames[..*open].iter_mut().rev().map(|frame| frame.take(closed)).collect();
        taken.reverse();
        taken
    }

    /// Puts the trees taken by [`Path::take`] back.
    pub(super) fn put(&mut self, taken: Vec<Vec<Node>>) {
        let Self { frames, open, closed } = self;
        frames[..*open].iter_mut().zip(taken).for_each(|(frame, trees)| frame.put(trees, closed));
    }

    /// Returns the number of closed nodes that are not summed up yet.
    pub(super) fn closed(&self) -> usize {
        self.closed.nodes()
    }

    /// Returns the memory, in bytes, of the frames and the closed nodes that are not summed up yet.
    pub(super) fn bytes(&self) -> usize {
        self.frames.capacity() * size_of::<Open>() + self.closed.bytes()
    }
}
