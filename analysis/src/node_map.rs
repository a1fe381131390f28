//! Values by context in one block of memory, sorted by context.

use std::ops::Index;

use plimsoll_collector::profile::NodeId;
use serde::{Deserialize, Serialize};

/// Values by context. Large programs have tens of thousands of contexts in each phase and instance.
/// A `BTreeMap` takes more memory, and has full blocks only if it is made from a second copy.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeMap<V> {
    // Sorted by context, each once.
    entries: Vec<(NodeId, V)>,
}

impl<V> NodeMap<V> {
    /// Creates a map of these values: `add` adds a value to an earlier one of the same context.
    pub fn new(mut entries: Vec<(NodeId, V)>, add: impl Fn(&mut V, &V)) -> Self {
        entries.sort_by_key(|(node, _)| *node);
        entries.dedup_by(|(node, value), (earlier, sum)| {
            let is_same = node == earlier;
            if is_same {
                add(sum, value);
            }
            is_same
        });
        Self { entries }
    }

    /// Returns the value of a context; `None` if it has none.
    pub fn get(&self, node: &NodeId) -> Option<&V> {
        self.place(node).ok().map(|at| &self.entries[at].1)
    }

    /// Returns the value of a context, to change it; `None` if it has none.
    pub fn get_mut(&mut self, node: &NodeId) -> Option<&mut V> {
        self.place(node).ok().map(|at| &mut self.entries[at].1)
    }

    /// Returns the contexts with a value, ascending.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &NodeId> {
        self.entries.iter().map(|(node, _)| node)
    }

    /// Returns contexts and values, by ascending context.
    pub fn iter(&self) -> Iter<'_, V> {
        self.entries.iter().map(|(node, value)| (node, value))
    }

    /// Renumbers the contexts by `places`, which gives no two contexts one place.
    pub fn move_to(&mut self, places: &[NodeId]) {
        self.entries.iter_mut().for_each(|(node, _)| *node = places[*node as usize]);
        self.entries.sort_unstable_by_key(|(node, _)| *node);
    }

    /// Adds the values of another map: `add` adds one of `theirs` to ours.
    pub fn merge(&mut self, theirs: Self, add: impl Fn(&mut V, &V)) {
        let mut new = Vec::new();
        let mut at = 0;
        for (node, value) in theirs.entries {
            // Ranks mostly have the same contexts, so the next entry is usually the one.
            at += self.entries[at..].iter().take_while(|(known, _)| *known < node).count();
            match self.entries.get_mut(at) {
                Some((known, ours)) if *known == node => add(ours, &value),
                _ => new.push((node, value)),
            }
        }
        if !new.is_empty() {
            self.entries.reserve_exact(new.len());
            self.entries.append(&mut new);
            // Two ascending runs, which a stable sort merges.
            self.entries.sort_by_key(|(node, _)| *node);
        }
    }

    fn place(&self, node: &NodeId) -> Result<usize, usize> {
        self.entries.binary_search_by_key(node, |(known, _)| *known)
    }
}

/// Contexts and values, by ascending context.
pub type Iter<'m, V> =
    std::iter::Map<std::slice::Iter<'m, (NodeId, V)>, fn(&(NodeId, V)) -> (&NodeId, &V)>;

impl<'m, V> IntoIterator for &'m NodeMap<V> {
    type Item = (&'m NodeId, &'m V);
    type IntoIter = Iter<'m, V>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl<V> Index<&NodeId> for NodeMap<V> {
    type Output = V;

    /// Returns the value of a context.
    ///
    /// # Panics
    /// If the context has none.
    fn index(&self, node: &NodeId) -> &V {
        self.get(node).expect("the context has a value")
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::*;

    fn add(ours: &mut u64, theirs: &u64) {
        *ours += theirs;
    }

    proptest! {
        #[test]
        fn maps_add_up_like_those_of_the_standard_library(
            parts in vec(vec((0..40_u32, 0..99_u64), 0..30), 0..6),
        ) {
            let mut ours = NodeMap::new(Vec::new(), add);
            let mut expected = BTreeMap::new();
            for part in parts {
                part.iter().for_each(|(node, value)| *expected.entry(*node).or_default() += value);
                ours.merge(NodeMap::new(part, add), add);
            }
            prop_assert!(ours.iter().eq(&expected));
            prop_assert!((0..41).all(|node| ours.get(&node) == expected.get(&node)));
            // A permutation: contexts are numbered anew.
            let places: Vec<NodeId> = (0..40).map(|node| (node * 7 + 3) % 40).collect();
            ours.move_to(&places);
            let moved: BTreeMap<NodeId, u64> =
                expected.iter().map(|(node, value)| (places[*node as usize], *value)).collect();
            prop_assert!(ours.iter().eq(&moved));
        }
    }
}
