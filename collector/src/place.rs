//! Where a thread stands: a context of the tree, and how differences between stacks move it.

use plimsoll_wire::record::Delta;

use crate::account::{Account, Between};
use crate::addresses::{Detail, Kind};
use crate::books::{Books, Garbled};
use crate::tree::{ROOT, RawId, Tree};

/// A place in the tree, with the frames inside it that the tree does not hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// The context of the frames that the tree holds.
    pub(crate) node: RawId,
    /// Number of frames inside these that it does not hold.
    pub(crate) cut: u32,
}

/// The empty stack.
pub(crate) const NOWHERE: Place = Place { node: ROOT, cut: 0 };

impl Place {
    /// Number of frames.
    pub(crate) fn depth(self, tree: &Tree) -> u32 {
        tree.depth(self.node).saturating_add(self.cut)
    }

    fn cut_to(self, tree: &Tree, depth: u32) -> Self {
        let held = tree.depth(self.node);
        if depth >= held {
            Self { node: self.node, cut: self.cut.min(depth - held) }
        } else {
            Self { node: tree.at_depth(self.node, depth), cut: 0 }
        }
    }

    /// The place that a difference leads to from this one. Where a frame is of an address that was
    /// never announced, or the tree is full, the rest of the stack is cut and counted.
    pub(crate) fn moved(self, stack: Delta<'_>, books: &mut Books<'_>) -> Result<Self, Garbled> {
        let depth = self.depth(books.tree).checked_sub(stack.dropped).ok_or(Garbled)?;
        let mut place = self.cut_to(books.tree, depth);
        for id in stack.added {
            if place.cut == 0 {
                let detail = Detail::of(books.tree, place.node);
                let kind = books.addresses.kind(*id, detail, books.tables);
                let child =
                    kind.and_then(|kind| books.tree.child(place.node, *id, kind == Kind::Call));
                if let Some(node) = child {
                    place.node = node;
                    continue;
                }
                *books.cut += 1;
            }
            place.cut = place.cut.saturating_add(1);
        }
        Ok(place)
    }

    /// Depth of the innermost context that this place has in common with another.
    pub(crate) fn common(self, other: Self, tree: &Tree) -> u32 {
        let mut depth = tree.depth(self.node).min(tree.depth(other.node));
        let (mut one, mut other) =
            (tree.at_depth(self.node, depth), tree.at_depth(other.node, depth));
        while one != other {
            (one, other) = (tree.parent(one), tree.parent(other));
            depth -= 1;
        }
        depth
    }

    /// The contexts between which work lies that came after this place and before `next`, which
    /// has its outermost `kept` frames in common with it. The frames inside these may be two
    /// places in one function: then the work lies in it.
    pub(crate) fn between(self, next: Self, kept: u32, tree: &Tree) -> Between {
        let inside = kept.saturating_add(1);
        let (one, other) = (tree.at_depth(self.node, inside), tree.at_depth(next.node, inside));
        let siblings = tree.depth(one) == inside && tree.depth(other) == inside;
        if siblings && !tree.in_call(one) && !tree.in_call(other) {
            return (one.min(other), one.max(other));
        }
        let common = tree.outside_calls(tree.at_depth(next.node, kept));
        (common, common)
    }

    /// Counts the frames of this new stack that began since the last one, of which `kept` stayed.
    /// If others had to make room (`replaced`), the outermost new one may be a call that goes on
    /// at another place in its code: so counts are lower bounds. Wrapped calls are counted when
    /// they return.
    pub(crate) fn count_begun(self, kept: u32, replaced: bool, tree: &Tree, account: &mut Account) {
        let first = kept.saturating_add(1 + u32::from(replaced));
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
