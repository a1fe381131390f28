//! The raw tree of calling contexts: nodes keyed by parent and address id, as the records name
//! them. Call sites of one function are different nodes here; [`crate::contexts`] joins them.
//!
//! Stacks that lie inside a call path of another thread have a root of their own, a *graft*, so
//! that the tree does not depend on the order in which the records of two threads arrive.

use std::cmp::Ordering;
use std::collections::{BTreeMap, HashSet};
use std::hash::BuildHasher;

use hashbrown::HashTable;
use plimsoll_wire::record::MAX_DEPTH;
use plimsoll_wire::teams::PathKey;
use rustc_hash::{FxBuildHasher, FxHashMap};

/// Index of a node of the raw tree.
pub(crate) type RawId = u32;

/// The root: the empty stack.
pub(crate) const ROOT: RawId = 0;

/// A map keyed by small integers that the records cannot choose freely.
pub(crate) type IdMap<K, V> = FxHashMap<K, V>;

struct RawNode {
    parent: RawId,
    address: u32,
    depth: u32,
    /// Depth of the outermost wrapped call on the path; 0 if there is none.
    call_depth: u32,
    /// Child of the last lookup, which is mostly also that of the next one. At first the root,
    /// which is no child.
    recent: RawId,
}

impl RawNode {
    fn is_at(&self, parent: RawId, address: u32) -> bool {
        self.parent == parent && self.address == address
    }
}

/// The tree.
pub(crate) struct Tree {
    nodes: Vec<RawNode>,
    /// All nodes but the roots, by parent and address. A node has both, so the table has only ids.
    children: HashTable<RawId>,
    /// Grafts by the names of their paths. Ordered, so that a digest meets them in the order of the
    /// job.
    grafts: BTreeMap<PathKey, RawId>,
    capacity: usize,
}

impl Tree {
    /// Creates an empty tree that will hold at most `capacity` nodes.
    pub(crate) fn new(capacity: usize) -> Self {
        let root = RawNode { parent: ROOT, address: 0, depth: 0, call_depth: 0, recent: ROOT };
        Self { nodes: vec![root], children: HashTable::new(), grafts: BTreeMap::new(), capacity }
    }

    /// Returns the child of `parent` for an address, made if it is new; `None` if the tree is full
    /// or the stack too deep.
    pub(crate) fn child(&mut self, parent: RawId, address: u32, is_call: bool) -> Option<RawId> {
        let recent = self.nodes[parent as usize].recent;
        if recent != ROOT && self.nodes[recent as usize].is_at(parent, address) {
            return Some(recent);
        }
        if let Some(node) = self.inner(parent, address) {
            self.nodes[parent as usize].recent = node;
            return Some(node);
        }
        let outer = &self.nodes[parent as usize];
        let depth = outer.depth + 1;
        if self.nodes.len() >= self.capacity || depth as usize > MAX_DEPTH {
            return None;
        }
        let call_depth = match outer.call_depth {
            0 if is_call => depth,
            call_depth => call_depth,
        };
        let node = self.nodes.len() as RawId;
        self.nodes.push(RawNode { parent, address, depth, call_depth, recent: ROOT });
        self.nodes[parent as usize].recent = node;
        let Self { nodes, children, .. } = self;
        children.insert_unique(hash(parent, address), node, |known| {
            let RawNode { parent, address, .. } = nodes[*known as usize];
            hash(parent, address)
        });
        Some(node)
    }

    /// The root of stacks that lie inside the call path of this name: [`ROOT`] if the stack is the
    /// whole path, or if the tree is full.
    pub(crate) fn root_in(&mut self, path: PathKey) -> RawId {
        if path == PathKey::NONE {
            return ROOT;
        }
        if let Some(graft) = self.grafts.get(&path) {
            return *graft;
        }
        if self.nodes.len() >= self.capacity {
            return ROOT;
        }
        let node = self.nodes.len() as RawId;
        self.nodes.push(RawNode {
            parent: node,
            address: 0,
            depth: 0,
            call_depth: 0,
            recent: ROOT,
        });
        self.grafts.insert(path, node);
        node
    }

    /// The roots of stacks that lie inside call paths, with the names of these paths, by ascending
    /// name.
    pub(crate) fn grafts(&self) -> impl Iterator<Item = (PathKey, RawId)> + '_ {
        self.grafts.iter().map(|(path, graft)| (*path, *graft))
    }

    /// The root of a context's stack.
    pub(crate) fn root(&self, node: RawId) -> RawId {
        self.at_depth(node, 0)
    }

    /// The contexts with the same frames as `node` under all roots, itself first.
    pub(crate) fn twins(&self, node: RawId) -> impl Iterator<Item = RawId> + '_ {
        let path = self.path(node);
        let own = self.root(node);
        let roots = [ROOT].into_iter().chain(self.grafts.values().copied());
        let others = roots.filter(move |root| *root != own).filter_map(move |root| {
            path.iter().try_fold(root, |at, raw| self.inner(at, self.address(*raw)))
        });
        [node].into_iter().chain(others)
    }

    /// Returns the contexts of call paths by their names; paths that the tree does not hold are
    /// missing.
    pub(crate) fn contexts_of(&self, paths: &HashSet<PathKey>) -> FxHashMap<PathKey, RawId> {
        let mut found = FxHashMap::default();
        if paths.is_empty() {
            return found;
        }
        let mut names = vec![PathKey::NONE; self.nodes.len()];
        for (path, graft) in self.grafts() {
            names[graft as usize] = path;
        }
        // The node id of a caller is smaller than the ids of its callees.
        for node in self.ids().filter(|node| self.depth(*node) > 0) {
            let name = names[self.parent(node) as usize].then(self.address(node).into());
            names[node as usize] = name;
            if paths.contains(&name) {
                found.entry(name).or_insert(node);
            }
        }
        found
    }

    /// Returns the context directly inside another one at an address, if there is one.
    pub(crate) fn inner(&self, outer: RawId, address: u32) -> Option<RawId> {
        let is_it = |node: &RawId| self.nodes[*node as usize].is_at(outer, address);
        self.children.find(hash(outer, address), is_it).copied()
    }

    /// All contexts but [`ROOT`], callers before those that they call.
    pub(crate) fn ids(&self) -> std::ops::Range<RawId> {
        1..self.nodes.len() as RawId
    }

    /// The context that called this one; a root's is the root itself.
    pub(crate) fn parent(&self, node: RawId) -> RawId {
        self.nodes[node as usize].parent
    }

    /// Returns the address id; 0 for the root.
    pub(crate) fn address(&self, node: RawId) -> u32 {
        self.nodes[node as usize].address
    }

    /// Returns the number of frames on the path of a context.
    pub(crate) fn depth(&self, node: RawId) -> u32 {
        self.nodes[node as usize].depth
    }

    /// Returns the context of the outermost `depth` frames of a path.
    pub(crate) fn at_depth(&self, mut node: RawId, depth: u32) -> RawId {
        while self.depth(node) > depth {
            node = self.parent(node);
        }
        node
    }

    /// Returns whether a wrapped call lies on the path of a context.
    pub(crate) fn in_call(&self, node: RawId) -> bool {
        self.nodes[node as usize].call_depth != 0
    }

    /// Returns the outermost wrapped call on the path of a context; `None` without one.
    pub(crate) fn outermost_call(&self, node: RawId) -> Option<RawId> {
        match self.nodes[node as usize].call_depth {
            0 => None,
            call_depth => Some(self.at_depth(node, call_depth)),
        }
    }

    /// Returns the innermost context on the path of a context that is outside all wrapped calls.
    pub(crate) fn outside_calls(&self, node: RawId) -> RawId {
        match self.nodes[node as usize].call_depth {
            0 => node,
            call_depth => self.at_depth(node, call_depth - 1),
        }
    }

    /// Returns the contexts on the path of a context, outermost first, with the context itself as
    /// the last.
    pub(crate) fn path(&self, mut node: RawId) -> Vec<RawId> {
        let mut path = Vec::with_capacity(self.depth(node) as usize);
        while self.depth(node) > 0 {
            path.push(node);
            node = self.parent(node);
        }
        path.reverse();
        path
    }

    /// Compares two contexts by their frames, then by the names of their grafts: an order that does
    /// not depend on the order in which they were made.
    pub(crate) fn path_order(&self, one: RawId, other: RawId) -> Ordering {
        if one == other {
            return Ordering::Equal;
        }
        let frames = |node| self.path(node).into_iter().map(|raw| self.address(raw));
        let graft = |node| {
            let root = self.root(node);
            self.grafts().find(|(_, graft)| *graft == root).map(|(path, _)| path)
        };
        frames(one).cmp(frames(other)).then_with(|| graft(one).cmp(&graft(other)))
    }

    /// Memory in use, roughly.
    pub(crate) fn bytes(&self) -> u64 {
        let grafts = self.grafts.len() * 2 * size_of::<(PathKey, RawId)>();
        let nodes = self.nodes.capacity() * size_of::<RawNode>();
        (nodes + self.children.allocation_size() + grafts) as u64
    }
}

fn hash(parent: RawId, address: u32) -> u64 {
    FxBuildHasher.hash_one(u64::from(parent) << 32 | u64::from(address))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_shared_and_calls_are_left() {
        let mut tree = Tree::new(100);
        let main = tree.child(ROOT, 7, false).unwrap();
        let solve = tree.child(main, 8, false).unwrap();
        let barrier = tree.child(solve, 1, true).unwrap();
        let inner = tree.child(barrier, 9, false).unwrap();
        assert_eq!(tree.child(main, 8, false), Some(solve));
        assert_eq!(tree.path(inner), [main, solve, barrier, inner]);
        assert_eq!(tree.outside_calls(inner), solve);
        assert_eq!(tree.outside_calls(solve), solve);
        assert!(tree.in_call(barrier) && !tree.in_call(solve));
        assert_eq!(tree.at_depth(inner, 1), main);
    }

    #[test]
    fn contexts_are_found_among_many_and_take_few_bytes() {
        let mut tree = Tree::new(2000);
        let path = |i: u32| (i / 3, i % 7 + 1);
        let mut made = vec![ROOT];
        for (parent, address) in (1..1000).map(path) {
            made.push(tree.child(made[parent as usize], address, false).unwrap());
        }
        for (i, node) in (1..).zip(&made[1..]) {
            let (parent, address) = path(i);
            assert_eq!(tree.inner(made[parent as usize], address), Some(*node));
            assert_eq!((tree.address(*node), tree.inner(*node, 8)), (address, None));
        }
        let each = tree.bytes() / tree.ids().len() as u64;
        assert!(each < 40, "{each} bytes per context");
    }

    #[test]
    fn stacks_inside_call_paths_have_roots_of_their_own() {
        let mut tree = Tree::new(100);
        assert_eq!(tree.root_in(PathKey::NONE), ROOT);
        let [one, other] = [1, 2].map(|name| tree.root_in(PathKey(name)));
        assert_eq!(tree.root_in(PathKey(1)), one);
        let start = tree.child(ROOT, 7, false).unwrap();
        let grafted = tree.child(one, 7, false).unwrap();
        let inner = tree.child(grafted, 8, false).unwrap();
        assert!(start != grafted && one != other);
        assert_eq!((tree.depth(one), tree.parent(one)), (0, one));
        assert_eq!((tree.root(inner), tree.path(inner)), (one, vec![grafted, inner]));
        assert_eq!(tree.twins(grafted).collect::<Vec<_>>(), [grafted, start]);
        assert_eq!(tree.twins(inner).collect::<Vec<_>>(), [inner]);
    }

    #[test]
    fn a_full_tree_and_a_deep_stack_are_refused() {
        let mut tree = Tree::new(3);
        let main = tree.child(ROOT, 7, false).unwrap();
        tree.child(main, 8, false).unwrap();
        assert_eq!(tree.child(main, 9, false), None);
        assert!(tree.child(main, 8, false).is_some(), "known contexts stay reachable");

        let mut tree = Tree::new(10_000);
        let mut node = ROOT;
        for _ in 0..MAX_DEPTH {
            node = tree.child(node, 5, false).unwrap();
        }
        assert_eq!(tree.child(node, 5, false), None);
    }
}
