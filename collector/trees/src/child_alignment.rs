//! Alignment of the children of two regular nodes (ICS18, Algorithm 2, lines 5 to 22): a walk over
//! both lists in time. The control flow decides the order of children that differ.

use super::ControlFlow;
use super::tree_node::{Key, Node};

/// Maximum number of children searched for a partner where the control flow does not decide.
const LOOKAHEAD: usize = 16;

/// A step of the walk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// The two children refer to the same call site or loop.
    Both(usize, usize),
    /// The left one's child has no partner; the right one's at the second index is next.
    Left(usize, usize),
    /// The right one's child at the second index has no partner; the left one's at the first is
    /// next.
    Right(usize, usize),
}

/// Walk over the children of two nodes. Swapping left and right swaps the steps and changes nothing
/// else. ICS18 is not symmetric: its line 17 takes the first tree's child whenever the flow does
/// not decide, as between branches of a condition, where neither precedes the other. Here the child
/// with the later partner comes first if that partner is at most [`LOOKAHEAD`] away, else the child
/// with the lower key.
pub(super) struct Walk<'a> {
    left: &'a [Node],
    right: &'a [Node],
    parent: Key,
    flow: &'a dyn ControlFlow,
    at: (usize, usize),
}

impl<'a> Walk<'a> {
    /// Creates a walk over the children of two nodes with the same key.
    pub(super) fn new(
        parent: Key,
        left: &'a [Node],
        right: &'a [Node],
        flow: &'a dyn ControlFlow,
    ) -> Self {
        Self { left, right, parent, flow, at: (0, 0) }
    }

    fn takes_left(&self, left: &Node, right: &Node) -> bool {
        let precedes = |one: &Node, other: &Node| {
            self.flow.precedes(self.parent, one.key, other.key) == Some(true)
        };
        // The flow never orders both ways.
        if precedes(left, right) {
            return true;
        }
        if precedes(right, left) {
            return false;
        }
        let ahead = |nodes: &[Node], from: usize, node: &Node| {
            let rest = nodes.iter().skip(from + 1).take(LOOKAHEAD);
            rest.map(Node::id).position(|id| id == node.id()).unwrap_or(LOOKAHEAD)
        };
        let left_waits = ahead(self.right, self.at.1, left);
        let right_waits = ahead(self.left, self.at.0, right);
        let order = left.kind.cmp(&right.kind).then_with(|| self.flow.order(left.key, right.key));
        if left_waits != right_waits { right_waits < left_waits } else { order.is_lt() }
    }
}

impl Iterator for Walk<'_> {
    type Item = Step;

    fn next(&mut self) -> Option<Step> {
        let (i, j) = self.at;
        let step = match (self.left.get(i), self.right.get(j)) {
            (None, None) => return None,
            (Some(_), None) => Step::Left(i, j),
            (None, Some(_)) => Step::Right(i, j),
            (Some(left), Some(right)) if left.id() == right.id() => Step::Both(i, j),
            (Some(left), Some(right)) if self.takes_left(left, right) => Step::Left(i, j),
            (Some(_), Some(_)) => Step::Right(i, j),
        };
        match step {
            Step::Both(..) => self.at = (i + 1, j + 1),
            Step::Left(..) => self.at.0 += 1,
            Step::Right(..) => self.at.1 += 1,
        }
        Some(step)
    }
}
