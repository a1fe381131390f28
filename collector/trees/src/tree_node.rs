//! The temporal context tree (ICS18, 3.1) as a value: of one instance, or the sum of many.

use serde::{Deserialize, Serialize};

use super::durations::Durations;
use super::members::Members;

/// What a node stands for, comparable between the trees that are compared: a call site with what it
/// calls, or a loop. The id of a frame in one process while iterations are clustered; an id that
/// ranks have agreed on when ranks are ([`Node::translated`]).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct Key(pub u32);

/// What kind of code a node stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Kind {
    /// A procedure, called at one place; or a thread, at the root.
    Call,
    /// A loop inside a procedure.
    Loop,
    /// One iteration of a loop, or many of them; its key is the loop's.
    Iteration,
    /// A place in the code itself: a second sample there does not tell of a second instance.
    Leaf,
}

/// How far a boundary may truly lie from where it is put. Time is partitioned by stamps, but what
/// changed between two stamps may have changed at any time between (ICS18, Figure 8: up to a
/// period before the first sample, up to one after the last).
///
/// In a node of many instances: the sum over them, so that merging loses nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Boundary {
    /// By so much it may lie earlier.
    pub earlier: u64,
    /// By so much it may lie later.
    pub later: u64,
}

impl Boundary {
    /// Length of the interval in which it may lie.
    pub fn width(self) -> u64 {
        self.earlier.saturating_add(self.later)
    }

    pub(super) fn add(&mut self, other: Self) {
        self.earlier = self.earlier.saturating_add(other.earlier);
        self.later = self.later.saturating_add(other.later);
    }
}

/// A node with all that lies under it.
///
/// All times are sums over the instances that were merged into it, in whatever unit the stamps
/// have; per instance of the root they are these sums divided by the root's [`count`](Self::count). So a
/// merge is a weighted average whose totals are exact in every order.
///
/// Time is partitioned: a node's duration is its own time and its children's durations, to the
/// stamp ([`Node::is_partitioned`]).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    pub(super) key: Key,
    pub(super) kind: Kind,
    pub(super) count: u64,
    /// The parent's own time between the child before this one (or the parent's begin) and this
    /// one, in a parent whose children are ordered.
    pub(super) before: u64,
    pub(super) duration: u64,
    /// Own time: after the last child, where children are ordered; all of it in a profile node; in
    /// a loop, that of the iterations that were rejected.
    pub(super) own: u64,
    pub(super) begin: Boundary,
    pub(super) end: Boundary,
    pub(super) content: Content,
}

/// What lies under a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Content {
    /// Children by time: a regular node.
    Ordered(Vec<Node>),
    /// Children by kind and key, each once, their durations summed up: a profile node (ICS18, 3.2).
    /// All nodes under it are profile nodes.
    Profile(Vec<Node>),
    /// The iterations of a loop.
    Loop(Box<Iterations>),
}

/// What is known of the iterations of a loop, summed over its instances.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Iterations {
    /// Accepted ones, in clusters by ascending first member.
    pub(super) clusters: Vec<Cluster>,
    pub(super) accepted: u64,
    pub(super) rejected: u64,
    /// Children of rejected ones, as profile nodes.
    pub(super) refused: Vec<Node>,
    pub(super) durations: Durations,
}

/// Iterations of a loop, or ranks, that did alike.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster<M = Members> {
    /// Which ones: the number of the iteration in its instance of the loop, from 0; or the rank.
    pub members: M,
    /// The representative (ICS18, 4.2): the weighted average of all instances, as their sum. Its
    /// count says exactly how many they are.
    pub tree: Node,
}

impl Node {
    /// What it stands for.
    pub fn key(&self) -> Key {
        self.key
    }

    /// What kind of code that is.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// How many instances were merged into it.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Time of all instances, children included.
    pub fn duration(&self) -> u64 {
        self.duration
    }

    /// Its own time, outside its children. Of a loop: outside all its iterations' children.
    pub fn exclusive(&self) -> u64 {
        match &self.content {
            Content::Ordered(children) => {
                self.own + children.iter().map(|child| child.before).sum::<u64>()
            }
            Content::Profile(_) => self.own,
            Content::Loop(iterations) => {
                let clusters = iterations.clusters.iter();
                self.own + clusters.map(|cluster| cluster.tree.exclusive()).sum::<u64>()
            }
        }
    }

    /// How far its begin may lie from where it is put.
    pub fn begin(&self) -> Boundary {
        self.begin
    }

    /// How far its end may lie from where it is put.
    pub fn end(&self) -> Boundary {
        self.end
    }

    /// What lies under it.
    pub fn content(&self) -> &Content {
        &self.content
    }

    /// Its children, with the time from its begin to theirs (sums over its instances), where they
    /// are ordered.
    pub fn children_by_time(&self) -> impl Iterator<Item = (u64, &Node)> {
        let children = match &self.content {
            Content::Ordered(children) => children.as_slice(),
            Content::Profile(_) | Content::Loop(_) => &[],
        };
        let mut reached = 0u64;
        children.iter().map(move |child| {
            let begin = reached + child.before;
            reached = begin + child.duration;
            (begin, child)
        })
    }

    /// Whether its instances are no longer told apart in time.
    pub fn is_profile(&self) -> bool {
        matches!(self.content, Content::Profile(_))
    }

    /// Number of nodes in it, itself included.
    pub fn nodes(&self) -> usize {
        1 + self.content.nodes()
    }

    /// Whether anything holds for any node in it, itself included.
    pub fn any(&self, holds: impl Fn(&Self) -> bool + Copy) -> bool {
        holds(self) || self.content.any(holds)
    }

    /// Memory in use, beside the value itself.
    pub fn bytes(&self) -> usize {
        self.content.bytes()
    }

    /// Whether its time is partitioned: the invariant of the tree. Costs a walk over it.
    pub fn is_partitioned(&self) -> bool {
        let sum = |nodes: &[Node]| nodes.iter().map(|node| node.duration).sum::<u64>();
        let all = |nodes: &[Node]| nodes.iter().all(Node::is_partitioned);
        match &self.content {
            Content::Ordered(children) => {
                self.duration == self.exclusive() + sum(children) && all(children)
            }
            Content::Profile(children) => {
                self.duration == self.own + sum(children)
                    && children.iter().all(|child| child.is_profile() && child.before == 0)
                    && all(children)
            }
            Content::Loop(iterations) => {
                let clusters = &iterations.clusters;
                self.duration
                    == self.own
                        + sum(&iterations.refused)
                        + clusters.iter().map(|cluster| cluster.tree.duration).sum::<u64>()
                    && iterations.refused.iter().all(|child| child.is_profile())
                    && all(&iterations.refused)
                    && clusters.iter().all(|cluster| cluster.tree.is_partitioned())
            }
        }
    }

    /// What two nodes must have in common to be matched.
    pub(super) fn id(&self) -> (Kind, Key) {
        (self.kind, self.key)
    }

    /// A mean over a root of `weight` instances.
    pub(super) fn mean(&self) -> f64 {
        self.duration as f64 / self.count.max(1) as f64
    }
}

impl Content {
    /// Number of nodes in it.
    pub(super) fn nodes(&self) -> usize {
        match self {
            Self::Ordered(children) | Self::Profile(children) => {
                children.iter().map(Node::nodes).sum()
            }
            Self::Loop(iterations) => iterations.nodes(),
        }
    }

    /// Whether anything holds for any node in it.
    pub(super) fn any(&self, holds: impl Fn(&Node) -> bool + Copy) -> bool {
        let among = |nodes: &[Node]| nodes.iter().any(|node| node.any(holds));
        match self {
            Self::Ordered(children) | Self::Profile(children) => among(children),
            Self::Loop(iterations) => {
                let mut trees = iterations.clusters.iter().map(|cluster| &cluster.tree);
                trees.any(|tree| tree.any(holds)) || among(&iterations.refused)
            }
        }
    }

    /// Memory in use, beside the value itself.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Ordered(children) | Self::Profile(children) => bytes(children),
            Self::Loop(iterations) => size_of::<Iterations>() + iterations.bytes(),
        }
    }
}

impl Iterations {
    /// Accepted iterations, in clusters by ascending first member.
    pub fn clusters(&self) -> &[Cluster] {
        &self.clusters
    }

    /// How many iterations were told apart with confidence, over all instances of the loop.
    pub fn accepted(&self) -> u64 {
        self.accepted
    }

    /// How many stretches could be several iterations, and were merged into profile nodes.
    pub fn rejected(&self) -> u64 {
        self.rejected
    }

    /// Children of rejected iterations, as profile nodes.
    pub fn refused(&self) -> &[Node] {
        &self.refused
    }

    /// Durations of the accepted iterations, by number.
    pub fn durations(&self) -> &Durations {
        &self.durations
    }

    fn nodes(&self) -> usize {
        let clusters = self.clusters.iter().map(|cluster| cluster.tree.nodes());
        clusters.sum::<usize>() + self.refused.iter().map(Node::nodes).sum::<usize>()
    }

    fn bytes(&self) -> usize {
        let clusters = self.clusters.iter().map(Cluster::bytes).sum::<usize>();
        clusters + bytes(&self.refused) + self.durations.bytes()
    }
}

impl<M> Cluster<M> {
    /// Number of instances in it, exactly.
    pub fn weight(&self) -> u64 {
        self.tree.count
    }
}

impl Cluster {
    /// A cluster of one instance.
    pub fn one(member: u64, tree: Node) -> Self {
        Self { members: Members::one(member), tree }
    }

    /// Memory in use, the value itself included.
    pub fn bytes(&self) -> usize {
        size_of::<Self>() + self.members.bytes() + self.tree.bytes()
    }
}

fn bytes(nodes: &[Node]) -> usize {
    size_of_val(nodes) + nodes.iter().map(Node::bytes).sum::<usize>()
}
