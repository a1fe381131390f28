//! The closed children of an open frame.

use super::closed::{Closed, Form};
use super::flatten::{gather, insert};
use super::iterations::IterationEvidence;
use super::pruning::Pruned;
use super::tree_node::{Content, Key, Node};

/// Most children that are kept in order: what calls more, one after another, outside all known
/// loops, becomes a profile node.
pub const MAX_CHILDREN: usize = 256;

/// Children of an open node that have closed; of a running loop, those in its open iteration. They are the
/// last of what has closed inside the node.
#[derive(Clone, Debug, Default)]
pub(super) struct Children {
    /// Where they begin.
    first: usize,
    count: usize,
    /// They were too many: now they are a set of profile nodes, and this is their parent's own time.
    profile: Option<(u64, Vec<Node>)>,
    evidence: IterationEvidence,
}

impl Children {
    /// None yet: a frame or an iteration begins.
    pub(super) fn begin(&mut self, closed: &Closed) {
        *self = Self { first: closed.len(), ..Self::default() };
    }

    /// Where they begin.
    pub(super) fn first(&self) -> usize {
        self.first
    }

    pub(super) fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The last node that has closed is another one.
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

    /// Gives up their order.
    fn collapse(&mut self, closed: &mut Closed, pruned: &mut Pruned) {
        let mut set = Vec::new();
        let own = closed.sum_up(self.first, &mut set);
        self.profile = Some((own, set));
        pruned.collapsed += 1;
    }

    /// Whether they are believed to be one iteration.
    pub(super) fn is_iteration(&self, period: u64, is_recorded: impl FnOnce() -> bool) -> bool {
        self.evidence.is_accepted(period, is_recorded)
    }

    /// Whether something holds for the key of any node in them.
    pub(super) fn any(&self, closed: &Closed, holds: impl Fn(Key) -> bool + Copy) -> bool {
        let holds_in = |node: &Node| node.any(|node| holds(node.key));
        closed.any(self.first, holds) || self.profile().iter().any(holds_in)
    }

    /// Their parent closes, which has `rest` as its own time behind them: all of its own time that is not
    /// before one of them, and what they are in it.
    pub(super) fn close(&mut self, rest: u64) -> (u64, Form) {
        match self.profile.take() {
            Some((own, set)) => (own + rest, Form::Apart(Content::Profile(set))),
            None => (rest, Form::Ordered),
        }
    }

    /// They were an iteration of a loop, of which `rest` was the own time behind them: the loop's tree of
    /// it has this time and content.
    pub(super) fn close_iteration(&mut self, rest: u64, closed: &mut Closed) -> (u64, Content) {
        match self.profile.take() {
            Some((own, set)) => (own + rest, Content::Profile(set)),
            None => (rest, Content::Ordered(closed.take(self.first))),
        }
    }

    /// Those that are a profile already go into a set of profile nodes; returns their parent's own time
    /// that they hold.
    pub(super) fn refuse(&mut self, set: &mut Vec<Node>) -> u64 {
        let Some((own, profile)) = self.profile.take() else { return 0 };
        profile.iter().for_each(|child| insert(set, child));
        own
    }

    /// Takes them out of what has closed, as trees.
    pub(super) fn take(&mut self, closed: &mut Closed) -> Vec<Node> {
        match &mut self.profile {
            Some((_, set)) => std::mem::take(set),
            None => closed.take(self.first),
        }
    }

    /// Puts them back; `closed` is what lies before them now.
    pub(super) fn put(&mut self, trees: Vec<Node>, closed: &mut Closed) {
        self.first = closed.len();
        match &mut self.profile {
            Some((_, set)) => *set = trees,
            None => trees.into_iter().for_each(|tree| closed.push_tree(tree)),
        }
    }

    /// Gives up the order of those that were taken out.
    pub(super) fn collapse_taken(&mut self, trees: &mut Vec<Node>, pruned: &mut Pruned) {
        if self.profile.is_none() && !trees.is_empty() {
            let taken = std::mem::take(trees);
            self.profile = Some((gather(&taken, trees), Vec::new()));
            pruned.collapsed += 1;
        }
    }

    /// The set of profile nodes that they are, if they are one.
    pub(super) fn profile(&self) -> &[Node] {
        self.profile.as_ref().map_or(&[], |(_, set)| set)
    }
}
