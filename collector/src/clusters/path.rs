//! The frames on a stack. One that has left it keeps its memory for the next at its depth: most frames
//! come and go many times a second.

use super::open::Open;

/// The frames that are on the stack, the root first.
#[derive(Clone, Debug, Default)]
pub(super) struct Path {
    /// Those behind the open ones are empty.
    frames: Vec<Open>,
    open: usize,
}

impl Path {
    /// The open frames.
    pub(super) fn frames(&self) -> &[Open] {
        &self.frames[..self.open]
    }

    /// The same, to be changed.
    pub(super) fn frames_mut(&mut self) -> &mut [Open] {
        &mut self.frames[..self.open]
    }

    /// Room for one more frame, and the one that it will be in.
    pub(super) fn enter(&mut self) -> (Option<&mut Open>, &mut Open) {
        if self.open == self.frames.len() {
            self.frames.push(Open::default());
        }
        self.open += 1;
        let (outer, inner) = self.frames.split_at_mut(self.open - 1);
        (outer.last_mut(), &mut inner[0])
    }

    /// The innermost frame, which is to be closed, and those around it.
    pub(super) fn leave(&mut self) -> Option<(&mut [Open], &mut Open)> {
        self.open = self.open.checked_sub(1)?;
        let (outer, inner) = self.frames.split_at_mut(self.open);
        Some((outer, &mut inner[0]))
    }

    /// Memory in use for frames and room for their children, beside what these hold.
    pub(super) fn bytes(&self) -> usize {
        let children: usize = self.frames.iter().map(|frame| frame.children.bytes()).sum();
        self.frames.capacity() * size_of::<Open>() + children
    }
}
