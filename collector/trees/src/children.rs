//! The closed children of an open frame.

use super::closed::{Closed, Form};
use super::flatten::{gather, insert};
use super::iterations::IterationEvidence;
use super::pruning::Pruned;
use super::tree_node::{Content, Key, Node};

/// Maximum number of children kept in order. A frame with more children, one after another outside
/// all known loops, becomes a profile node.
pub const MAX_CHILDREN: usize = 256;

/// Closed children of an open node; of a running loop, those in its open iteration. Their entries
/// are the last ones in [`Closed`].
#[derive(Clone, Debug, Default)]
pub(super) struct Children {
    /// Index in [`Closed`] of the first entry of the children.
    first: usize,
    count: usize,
    /// Own time of the parent and the children as a set of profile nodes; `None` up to
    /// [`MAX_CHILDREN`] children, which are then still ordered.
    profile: Option<(u64, Vec<Node>)>,
    evidence: IterationEvidence,
}

impl Children {
    /// Resets to no children: a frame or an iteration begins.
    pub(super) fn begin(&mut self, closed: &Closed) {
        *self = Self { first: closed.len(), ..Self::default() };
    }

    /// Returns the index in [`Closed`] of the first entry of the children.
    pub(super) fn first(&self) -> usize {
        self.first
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Adds the last entry of `closed` as another child.
    pub(super) fn add(&mut self, closed: &mut Closed, pruned: &mut Pruned) {
        let Some(child) = closed.last() else { return };
        self.evidence.add(child.kind, child.duration, child.is_profile());
        self.count += 1;
        if let Some((own, set)) = &mut self.profile {
            *own += closed.sum_up(self.first, set);
        } else if self.count > MAX_CHILDREN {
            self.collapse(closed, pruned);
        }
    }

    /// Turns the ordered children into a set of profile nodes.
    fn collapse(&mut self, closed: &mut Closed, pruned: &mut Pruned) {
        let mut set = Vec::new();
        let own = closed.sum_up(self.first, &mut set);
        self.profile = Some((own, set));
        pruned.collapsed += 1;
    }

    /// Returns whether the children are accepted as one iteration.
    pub(super) fn is_iteration(&self, period: u64, is_recorded: impl FnOnce() -> bool) -> bool {
        self.evidence.is_accepted(period, is_recorded)
    }

    /// Returns whether `holds` is true for the key of any node among the children and under them.
    pub(super) fn any(&self, closed: &Closed, holds: impl Fn(Key) -> bool + Copy) -> bool {
        let holds_in = |node: &Node| node.any(|node| holds(node.key));
        closed.any(self.first, holds) || self.profile().iter().any(holds_in)
    }

    /// Closes the parent. `rest` is its own time after the last child. Returns the parent's own
    /// time not already stored in a child's `before`, and the form of its children.
    pub(super) fn close(&mut self, rest: u64) -> (u64, Form) {
        match self.profile.take() {
            Some((own, set)) => (own + rest, Form::Apart(Content::Profile(set))),
            None => (rest, Form::Ordered),
        }
    }

    /// Closes an accepted iteration. `rest` is the loop's own time after the iteration's last
    /// child. Returns own time and content for the iteration's node.
    pub(super) fn close_iteration(&mut self, rest: u64, closed: &mut Closed) -> (u64, Content) {
        match self.profile.take() {
            Some((own, set)) => (own + rest, Content::Profile(set)),
            None => (rest, Content::Ordered(closed.take(self.first))),
        }
    }

    /// Moves the children into `set` if they are profile nodes already. Returns the parent's own
    /// time stored with them, 0 otherwise.
    pub(super) fn refuse(&mut self, set: &mut Vec<Node>) -> u64 {
        let Some((own, profile)) = self.profile.take() else { return 0 };
        profile.iter().for_each(|child| insert(set, child));
        own
    }

    /// Takes the children out of `closed`, as trees.
    pub(super) fn take(&mut self, closed: &mut Closed) -> Vec<Node> {
        match &mut self.profile {
            Some((_, set)) => std::mem::take(set),
            None => closed.take(self.first),
        }
    }

    /// Puts the children back behind the entries of `closed`.
    pub(super) fn put(&mut self, trees: Vec<Node>, closed: &mut Closed) {
        self.first = closed.len();
        match &mut self.profile {
            Some((_, set)) => *set = trees,
            None => trees.into_iter().for_each(|tree| closed.push_tree(tree)),
        }
    }

    /// Turns the children that [`Self::take`] returned into a set of profile nodes.
    pub(super) fn collapse_taken(&mut self, trees: &mut Vec<Node>, pruned: &mut Pruned) {
        if self.profile.is_none() && !trees.is_empty() {
            let taken = std::mem::take(trees);
            self.profile = Some((gather(&taken, trees), Vec::new()));
            pruned.collapsed += 1;
        }
    }

    /// Returns the set of profile nodes; empty while the children are ordered.
    pub(super) fn profile(&self) -> &[Node] {
        self.profile.as_ref().map_or(&[], |(_, set)| set)
    }
}
