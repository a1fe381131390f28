//! Canonical tree: the union of the ranks' calling contexts (SC10, III-B).
//!
//! Two contexts are equal if their callers, frame and call site are equal. The communicating
//! threads and the other threads of the processes have separate roots.

use std::collections::HashMap;

use plimsoll_collector::profile::{ContextTree, Frame, Node, NodeId};
use serde::{Deserialize, Serialize};

/// Class of threads that a context belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Threads {
    /// The communicating thread of each process.
    Main,
    /// All other application threads.
    Other,
}

type Key = (Threads, Option<NodeId>, u32, u64);

/// Union of calling-context trees. Node ids follow the order of insertion and have no meaning
/// outside this value.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct CanonicalTree {
    /// Contexts of the union, parents before children.
    pub contexts: ContextTree,
    /// Class of threads of each node.
    pub threads: Vec<Threads>,
    #[serde(skip)]
    frame_ids: HashMap<Frame, u32>,
    #[serde(skip)]
    node_ids: HashMap<Key, NodeId>,
}

impl CanonicalTree {
    /// Rebuilds the indices if they are missing: they are not serialised, and only needed to add
    /// nodes.
    fn index(&mut self) {
        if self.node_ids.len() == self.contexts.nodes.len() {
            return;
        }
        let frames = self.contexts.frames.iter().cloned();
        self.frame_ids = frames.zip(0..).collect();
        let nodes = self.contexts.nodes.iter().zip(&self.threads);
        self.node_ids = nodes
            .map(|(node, threads)| (*threads, node.parent, node.frame, node.site))
            .zip(0..)
            .collect();
    }

    fn frame_id(&mut self, frame: &Frame) -> u32 {
        if let Some(id) = self.frame_ids.get(frame) {
            return *id;
        }
        let id = self.contexts.frames.len() as u32;
        self.contexts.frames.push(frame.clone());
        self.frame_ids.insert(frame.clone(), id);
        id
    }

    fn node_id(&mut self, key: Key) -> NodeId {
        let (threads, parent, frame, site) = key;
        *self.node_ids.entry(key).or_insert_with(|| {
            self.contexts.nodes.push(Node { parent, frame, site });
            self.threads.push(threads);
            self.contexts.nodes.len() as NodeId - 1
        })
    }

    /// Adds the contexts of a tree that `chosen` selects; `chosen` must include the callers of
    /// each. Returns the node here of each context, `None` for contexts not chosen.
    pub fn adopt(
        &mut self,
        tree: &ContextTree,
        threads: Threads,
        chosen: impl Fn(NodeId) -> bool,
    ) -> Vec<Option<NodeId>> {
        let order = (0..tree.nodes.len() as NodeId).filter(|node| chosen(*node));
        self.take_in(tree, |_| threads, order)
    }

    /// Adds all contexts of another union; returns the node here of each of them.
    pub fn merge(&mut self, other: &Self) -> Vec<NodeId> {
        self.merge_in_order(other, 0..other.contexts.nodes.len() as NodeId)
    }

    /// Like [`merge`](Self::merge), in an order that contains every context once, callers before
    /// callees.
    pub fn merge_in_order(
        &mut self,
        other: &Self,
        order: impl Iterator<Item = NodeId>,
    ) -> Vec<NodeId> {
        let thread_of = |node: NodeId| other.threads[node as usize];
        let places = self.take_in(&other.contexts, thread_of, order);
        // The order contains all contexts, so each has a node.
        places.into_iter().flatten().collect()
    }

    fn take_in(
        &mut self,
        tree: &ContextTree,
        threads: impl Fn(NodeId) -> Threads,
        order: impl Iterator<Item = NodeId>,
    ) -> Vec<Option<NodeId>> {
        self.index();
        let mut frames: Vec<Option<u32>> = vec![None; tree.frames.len()];
        let mut places: Vec<Option<NodeId>> = vec![None; tree.nodes.len()];
        for id in order {
            let node = &tree.nodes[id as usize];
            let frame = match frames[node.frame as usize] {
                Some(frame) => frame,
                None => self.frame_id(&tree.frames[node.frame as usize]),
            };
            frames[node.frame as usize] = Some(frame);
            let parent = node.parent.and_then(|parent| places[parent as usize]);
            places[id as usize] = Some(self.node_id((threads(id), parent, frame, node.site)));
        }
        places
    }
}

/// Step of a call path: a frame and its call site.
pub type Step = (Frame, u64);

/// Returns the call path to a node, outermost frame first.
pub fn path(tree: &ContextTree, node: NodeId) -> Vec<Step> {
    let mut path = Vec::new();
    let mut at = Some(node);
    while let Some(id) = at {
        let node = &tree.nodes[id as usize];
        path.push((tree.frames[node.frame as usize].clone(), node.site));
        at = node.parent;
    }
    path.reverse();
    path
}

/// Returns the node of a call path; `None` if the tree does not contain the path.
pub fn find(tree: &ContextTree, path: &[Step]) -> Option<NodeId> {
    let mut at = None;
    for (frame, site) in path {
        let found = tree.nodes.iter().position(|node| {
            node.parent == at && node.site == *site && tree.frames[node.frame as usize] == *frame
        })?;
        at = Some(found as NodeId);
    }
    at
}

/// Returns for each context whether it is at or below `top`.
pub fn below(tree: &ContextTree, top: Option<NodeId>) -> Vec<bool> {
    let mut below = Vec::with_capacity(tree.nodes.len());
    for (node, id) in tree.nodes.iter().zip(0..) {
        let inherited = node.parent.is_some_and(|parent| below[parent as usize]);
        below.push(inherited || top == Some(id));
    }
    below
}

/// Returns whether all references inside a tree are valid and parents come before children.
pub fn is_sound(tree: &ContextTree) -> bool {
    tree.nodes.iter().zip(0..).all(|(node, id)| {
        (node.frame as usize) < tree.frames.len() && node.parent.is_none_or(|parent| parent < id)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic_run::Contexts;

    #[test]
    fn contexts_meet_by_their_paths_and_threads_stay_apart() {
        let (mut one, mut two) = (Contexts::default(), Contexts::default());
        let (a, b) = (one.node("main/a/MPI_Barrier"), one.node("main/b"));
        let (c, a2) = (two.node("worker/c"), two.node("main/a/MPI_Barrier"));
        let mut union = CanonicalTree::default();
        let first = union.adopt(&one.tree, Threads::Main, |_| true);
        let second = union.adopt(&two.tree, Threads::Main, |_| true);
        assert_eq!(first[a as usize], second[a2 as usize]);
        assert_eq!(union.contexts.nodes.len(), 6);
        let other = union.adopt(&one.tree, Threads::Other, |node| node != b);
        assert_ne!(other[a as usize], first[a as usize]);
        assert_eq!(other[b as usize], None);

        let bytes = postcard::to_stdvec(&union).unwrap();
        let mut arrived: CanonicalTree = postcard::from_bytes(&bytes).unwrap();
        let nodes = arrived.contexts.nodes.clone();
        let places = arrived.merge(&union);
        assert_eq!(arrived.contexts.nodes, nodes, "merging with itself adds nothing");
        assert!(places.iter().copied().eq(0..nodes.len() as u32));

        let path = path(&union.contexts, second[c as usize].unwrap());
        assert_eq!(find(&two.tree, &path), Some(c));
        assert_eq!(find(&one.tree, &path), None);
    }
}
