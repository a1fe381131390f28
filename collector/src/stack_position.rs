//! Where a thread stands: a context of the tree, and how differences between stacks move it.

use plimsoll_wire::record::Delta;

use crate::account::{Account, Between};
use crate::address_table::{Detail, Kind};
use crate::raw_tree::{ROOT, RawId, Tree};
use crate::replay_target::{CorruptStream, ReplayTarget};

/// A place in the tree, with the frames inside it that the tree does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StackPosition {
    /// The context of the frames that the tree holds.
    pub(crate) node: RawId,
    /// Number of frames inside these that it does not hold.
    pub(crate) clipped: u32,
}

/// The empty stack.
pub(crate) const NOWHERE: StackPosition = StackPosition { node: ROOT, clipped: 0 };

impl StackPosition {
    /// Returns the number of frames.
    pub(crate) fn depth(self, tree: &Tree) -> u32 {
        tree.depth(self.node).saturating_add(self.clipped)
    }

    fn cut_to(self, tree: &Tree, depth: u32) -> Self {
        let held = tree.depth(self.node);
        if depth >= held {
            Self { node: self.node, clipped: self.clipped.min(depth - held) }
        } else {
            Self { node: tree.at_depth(self.node, depth), clipped: 0 }
        }
    }

    /// Returns the place that a difference leads to from this one. Where a frame is of an address
    /// that was never announced, or the tree is full, the rest of the stack is cut and counted.
    pub(crate) fn moved(
        self,
        stack: Delta<'_>,
        target: &mut ReplayTarget<'_>,
    ) -> Result<Self, CorruptStream> {
        let depth = self.depth(target.tree).checked_sub(stack.dropped).ok_or(CorruptStream)?;
        let mut place = self.cut_to(target.tree, depth);
        for id in stack.added {
            if place.clipped == 0 {
                let detail = Detail::of(target.tree, place.node);
                let kind = target.addresses.kind(*id, detail, target.tables);
                let child =
                    kind.and_then(|kind| target.tree.child(place.node, *id, kind == Kind::Call));
                if let Some(node) = child {
                    place.node = node;
                    continue;
                }
                *target.pruned += 1;
            }
            place.clipped = place.clipped.saturating_add(1);
        }
        Ok(place)
    }

    /// The place with the same frames under another root. Where the tree is full, the rest of the
    /// stack is cut.
    pub(crate) fn under(self, root: RawId, tree: &mut Tree) -> Self {
        if tree.root(self.node) == root {
            return self;
        }
        let path = tree.path(self.node);
        let mut place = Self { node: root, clipped: self.clipped };
        for (at, raw) in path.iter().enumerate() {
            let is_call = tree.in_call(*raw) && !tree.in_call(tree.parent(*raw));
            match tree.child(place.node, tree.address(*raw), is_call) {
                Some(node) => place.node = node,
                None => {
                    place.clipped = place.clipped.saturating_add((path.len() - at) as u32);
                    break;
                }
            }
        }
        place
    }

    /// Depth of the innermost context that this place has in common with another: 0 under different
    /// roots.
    pub(crate) fn common(self, other: Self, tree: &Tree) -> u32 {
        let mut depth = tree.depth(self.node).min(tree.depth(other.node));
        let (mut one, mut other) =
            (tree.at_depth(self.node, depth), tree.at_depth(other.node, depth));
        while one != other && depth > 0 {
            (one, other) = (tree.parent(one), tree.parent(other));
            depth -= 1;
        }
        depth
    }

    /// The contexts between which work lies that came after this place and before `next`, which
    /// has its outermost `shared` frames in common with it. The frames inside these may be two
    /// places in one function: then the work lies in it.
    pub(crate) fn between(self, next: Self, shared: u32, tree: &Tree) -> Between {
        let roots = [self, next].map(|place| tree.root(place.node));
        if roots[0] != roots[1] {
            // One of the two lies inside a call path of another thread, and the work in that path.
            let root = if roots[1] == ROOT { roots[0] } else { roots[1] };
            return (root, root);
        }
        let inside = shared.saturating_add(1);
        let (one, other) = (tree.at_depth(self.node, inside), tree.at_depth(next.node, inside));
        let siblings = tree.depth(one) == inside && tree.depth(other) == inside;
        if siblings && !tree.in_call(one) && !tree.in_call(other) {
            return (one.min(other), one.max(other));
        }
        let common = tree.outside_calls(tree.at_depth(next.node, shared));
        (common, common)
    }

    /// Counts the frames of this new stack that began since the last one; `shared` frames stayed.
    /// If the new stack replaced others (`replaced`), its outermost new frame may be a call that
    /// continues at another place in its code, so that counts are lower bounds. Wrapped calls are
    /// counted when they return.
    pub(crate) fn count_begun(
        self,
        shared: u32,
        replaced: bool,
        tree: &Tree,
        account: &mut Account,
    ) {
        let first = shared.saturating_add(1 + u32::from(replaced));
        let mut node = self.node;
        while tree.depth(node) >= first {
            let outer = tree.parent(node);
            let is_call = tree.in_call(node) && !tree.in_call(outer);
            if !is_call {
                account.call(node, 1, 0);
            }
            node = outer;
        }
    }
}
