//! Closed nodes inside the open frames, in one array: each node behind its descendants. Most closed
//! nodes belong to an iteration that is soon summed up or merged into a cluster, so only nodes that
//! stay become trees of their own.

use super::flatten::{dissolve_content, slot};
use super::tree_node::{Boundary, Content, Key, Kind, Node};

/// Where the children of a closed node are stored, and whether they are ordered.
#[derive(Clone, Debug)]
pub(super) enum Form {
    /// Children in order of time, in the entries before the node.
    Ordered,
    /// Children of a profile node, not summed up yet, in the entries before the node. The time
    /// before each child is their parent's own time.
    Unsummed,
    /// Content stored in the entry itself; no entries before the node belong to it.
    Apart(Content),
}

/// Closed node of one instance.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) key: Key,
    pub(super) kind: Kind,
    /// As in [`Node`].
    pub(super) before: u64,
    pub(super) duration: u64,
    pub(super) own: u64,
    pub(super) begin: Boundary,
    pub(super) end: Boundary,
    pub(super) form: Form,
}

impl Entry {
    /// Returns whether the entry is a profile node.
    pub(super) fn is_profile(&self) -> bool {
        matches!(self.form, Form::Unsummed | Form::Apart(Content::Profile(_)))
    }
}

/// Closed nodes inside the open frames, those of outer frames first. A frame stores the index of
/// its first entry.
#[derive(Clone, Debug, Default)]
pub(super) struct Closed {
    /// Number of descendants stored as entries, and the node.
    entries: Vec<(usize, Entry)>,
}

impl Closed {
    /// Returns the number of entries.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Appends a node; the entries from `first` on are its descendants.
    pub(super) fn push(&mut self, first: usize, entry: Entry) {
        self.entries.push((self.entries.len() - first, entry));
    }

    /// Appends a tree as one entry.
    pub(super) fn push_tree(&mut self, node: Node) {
        let Node { key, kind, before, duration, own, begin, end, content, .. } = node;
        let form = Form::Apart(content);
        let entry = Entry { key, kind, before, duration, own, begin, end, form };
        self.push(self.entries.len(), entry);
    }

    /// Returns the entry appended last.
    pub(super) fn last(&self) -> Option<&Entry> {
        self.entries.last().map(|(_, entry)| entry)
    }

    /// Returns whether `holds` is true for the key of any node from entry `first` on.
    pub(super) fn any(&self, first: usize, holds: impl Fn(Key) -> bool + Copy) -> bool {
        self.entries[first..].iter().any(|(_, entry)| {
            let apart = match &entry.form {
                Form::Apart(content) => content.any(|node| holds(node.key)),
                Form::Ordered | Form::Unsummed => false,
            };
            holds(entry.key) || apart
        })
    }

    /// Moves the nodes from entry `first` on into a set of profile nodes. Returns the sum of the
    /// times before them, which is their parent's own time.
    pub(super) fn sum_up(&mut self, first: usize, set: &mut Vec<Node>) -> u64 {
        let before = sum_up(&self.entries[first..], set);
        self.entries.truncate(first);
        before
    }

    /// Removes the nodes from entry `first` on and returns them as trees.
    pub(super) fn take(&mut self, first: usize) -> Vec<Node> {
        let trees = trees(&mut self.entries[first..]);
        self.entries.truncate(first);
        trees
    }

    /// Returns the number of nodes, those in contents included.
    pub(super) fn nodes(&self) -> usize {
        let apart = self.apart().map(Content::nodes).sum::<usize>();
        self.entries.len() + apart
    }

    /// Returns the memory in use, in bytes, without the value itself.
    pub(super) fn bytes(&self) -> usize {
        let apart = self.apart().map(Content::bytes).sum::<usize>();
        self.entries.capacity() * size_of::<(usize, Entry)>() + apart
    }

    fn apart(&self) -> impl Iterator<Item = &Content> {
        self.entries.iter().filter_map(|(_, entry)| match &entry.form {
            Form::Apart(content) => Some(content),
            Form::Ordered | Form::Unsummed => None,
        })
    }
}

fn sum_up(entries: &[(usize, Entry)], set: &mut Vec<Node>) -> u64 {
    let (mut before, mut left) = (0, entries);
    while let Some(((under, entry), rest)) = left.split_last() {
        let (outside, inside) = rest.split_at(rest.len() - under);
        let into = slot(set, entry.kind, entry.key);
        into.count += 1;
        into.duration += entry.duration;
        into.begin.add(entry.begin);
        into.end.add(entry.end);
        into.own += entry.own;
        if let Content::Profile(set) = &mut into.content {
            into.own += match &entry.form {
                Form::Ordered | Form::Unsummed => sum_up(inside, set),
                Form::Apart(content) => dissolve_content(content, set),
            };
        }
        before += entry.before;
        left = outside;
    }
    before
}

fn trees(entries: &mut [(usize, Entry)]) -> Vec<Node> {
    let mut count = 0;
    let mut left = &*entries;
    while let Some(((under, _), rest)) = left.split_last() {
        (count, left) = (count + 1, &rest[..rest.len() - under]);
    }
    let mut nodes = Vec::with_capacity(count);
    let mut left = entries;
    while let Some(((under, entry), rest)) = left.split_last_mut() {
        let (outside, inside) = rest.split_at_mut(rest.len() - *under);
        nodes.push(tree(entry, inside));
        left = outside;
    }
    nodes.reverse();
    nodes
}

fn tree(entry: &mut Entry, inside: &mut [(usize, Entry)]) -> Node {
    let (own, content) = match std::mem::replace(&mut entry.form, Form::Ordered) {
        Form::Ordered => (entry.own, Content::Ordered(trees(inside))),
        Form::Unsummed => {
            let mut set = Vec::new();
            let before = sum_up(inside, &mut set);
            (entry.own + before, Content::Profile(set))
        }
        Form::Apart(content) => (entry.own, content),
    };
    let Entry { key, kind, before, duration, begin, end, .. } = *entry;
    Node { key, kind, count: 1, before, duration, own, begin, end, content }
}

#[cfg(test)]
mod tests {
    use proptest::collection::vec;
    use proptest::prelude::*;

    use super::super::flatten::gather;
    use super::*;

    /// Node to be closed by the test: its children, its form, and the duration of its own time.
    #[derive(Clone, Debug)]
    struct Planned {
        key: u32,
        time: u64,
        form: u8,
        inside: Vec<Planned>,
    }

    fn planned() -> impl Strategy<Value = Planned> {
        let leaf = (0..4u32, 0..9u64).prop_map(|(key, time)| Planned {
            key,
            time,
            form: 0,
            inside: Vec::new(),
        });
        leaf.prop_recursive(4, 40, 5, |inner| {
            (0..4u32, 0..9u64, 0..3u8, vec(inner, 0..5))
                .prop_map(|(key, time, form, inside)| Planned { key, time, form, inside })
        })
    }

    /// Closes nodes one after another; returns their durations plus the time before them.
    fn close_all(plans: &[Planned], closed: &mut Closed) -> u64 {
        plans.iter().map(|it| it.time + close(it, closed)).sum()
    }

    /// Closes one node; returns its duration.
    fn close(plan: &Planned, closed: &mut Closed) -> u64 {
        let first = closed.len();
        let inside = close_all(&plan.inside, closed);
        let (mut own, mut form) = (plan.time, Form::Ordered);
        match plan.form {
            0 => {}
            1 => form = Form::Unsummed,
            _ => {
                let mut set = Vec::new();
                own += closed.sum_up(first, &mut set);
                form = Form::Apart(Content::Profile(set));
            }
        }
        let duration = plan.time + inside;
        let (begin, end) = (Boundary { earlier: plan.time, later: 1 }, Boundary::default());
        let (key, kind, before) = (Key(plan.key), Kind::Call, plan.time);
        closed.push(first, Entry { key, kind, before, duration, own, begin, end, form });
        duration
    }

    proptest! {
        /// Summing up entries gives the same set as summing up their trees, and leaves the entries
        /// before them unchanged.
        #[test]
        fn sums_are_those_of_the_trees(
            outside in vec(planned(), 0..3),
            inside in vec(planned(), 0..6),
        ) {
            let mut closed = Closed::default();
            close_all(&outside, &mut closed);
            let first = closed.len();
            close_all(&inside, &mut closed);
            let nodes = closed.nodes();
            prop_assert_eq!(closed.any(first, |key| key == Key(1)), {
                let trees = closed.clone().take(first);
                trees.iter().any(|tree| tree.any(|node| node.key == Key(1)))
            });

            let mut apart = closed.clone();
            let trees = apart.take(first);
            prop_assert_eq!(trees.len(), inside.len());
            prop_assert!(trees.iter().all(Node::is_partitioned), "{:?}", trees);
            let mut wanted = Vec::new();
            let before = gather(&trees, &mut wanted);

            let mut found = Vec::new();
            prop_assert_eq!(closed.sum_up(first, &mut found), before);
            prop_assert_eq!(&found, &wanted);
            prop_assert_eq!(closed.len(), first);

            // Entries pushed again as trees give the same sums.
            trees.into_iter().for_each(|tree| apart.push_tree(tree));
            prop_assert!(apart.nodes() <= nodes);
            let mut again = Vec::new();
            prop_assert_eq!(apart.sum_up(first, &mut again), before);
            prop_assert_eq!(again, wanted);
        }
    }
}
