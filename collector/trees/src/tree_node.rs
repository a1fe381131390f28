//! Temporal context tree (ICS18, 3.1) as a value: of one instance, or the sum of many.

use serde::{Deserialize, Serialize};

use super::durations::Durations;
use super::instance_sample::{Instance, InstanceSample};
use super::members::Members;

/// Identity of a node, comparable between the trees that are clustered together: a call site with
/// its callee, or a loop. While iterations are clustered, the id of a frame in one process; while
/// ranks are clustered, an id that the ranks have agreed on ([`Node::translated`]).
#[derive(
    Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize,
)]
pub struct Key(pub u32);

/// Kind of code that a node stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum Kind {
    /// Procedure called at one call site; or a thread, at the root.
    Call,
    /// Loop inside a procedure.
    Loop,
    /// One iteration of a loop, or a sum of many; its key is the loop's.
    Iteration,
    /// Code location: a second sample there is no evidence of a second instance.
    Leaf,
}

/// Uncertainty of a boundary, in the tree's unit of time. Time is partitioned by stamps, but a
/// change between two stamps may have happened at any time between them (ICS18, Figure 8: up to a
/// period before the first sample, up to one after the last). In a node of many instances: the
/// sum over the instances, so that merging loses nothing.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Boundary {
    /// Maximum time by which the boundary may lie earlier.
    pub earlier: u64,
    /// Maximum time by which the boundary may lie later.
    pub later: u64,
}

impl Boundary {
    /// Returns the length of the interval in which the boundary may lie.
    pub fn width(self) -> u64 {
        self.earlier.saturating_add(self.later)
    }

    pub(super) fn add(&mut self, other: Self) {
        self.earlier = self.earlier.saturating_add(other.earlier);
        self.later = self.later.saturating_add(other.later);
    }
}

/// Node with its subtree.
///
/// All times are sums over the merged instances, in the unit of the stamps; divided by the root's
/// [`count`](Self::count) they are means per instance of the root. A merge is thus a weighted
/// average with totals that are exact in every order.
///
/// Time is partitioned: a node's duration is its own time and its children's durations, to the
/// stamp ([`Node::is_partitioned`]).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    pub(super) key: Key,
    pub(super) kind: Kind,
    pub(super) count: u64,
    /// The parent's own time between the child before this one (or the parent's begin) and this
    /// one, in a parent with ordered children.
    pub(super) before: u64,
    pub(super) duration: u64,
    /// Own time: after the last child, where children are ordered; all of it in a profile node; in
    /// a loop, that of the iterations that were rejected.
    pub(super) own: u64,
    pub(super) begin: Boundary,
    pub(super) end: Boundary,
    pub(super) content: Content,
}

/// Content of a node: its children or iterations.
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

/// Iterations of a loop, summed over the loop's instances.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Iterations {
    /// Accepted iterations, in clusters by ascending first member.
    pub(super) clusters: Vec<Cluster>,
    pub(super) accepted: u64,
    pub(super) rejected: u64,
    /// Children of rejected iterations, as profile nodes.
    pub(super) rejected_children: Vec<Node>,
    pub(super) durations: Durations,
}

/// Cluster: iterations of a loop, or ranks, with similar behaviour.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cluster<M = Members> {
    /// Numbers of the iterations in their instance of the loop, from 0; or the ranks.
    pub members: M,
    /// Representative (ICS18, 4.2): the weighted average of all instances, stored as their sum. Its
    /// count is the exact number of instances.
    pub tree: Node,
    /// Sample of the instances, of clusters of iterations; empty for ranks.
    #[serde(default)]
    pub instances: InstanceSample,
}

impl Node {
    /// Returns the node's key.
    pub fn key(&self) -> Key {
        self.key
    }

    /// Returns the kind of code that the node stands for.
    pub fn kind(&self) -> Kind {
        self.kind
    }

    /// Returns the number of instances merged into the node.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the time of all instances, children included.
    pub fn duration(&self) -> u64 {
        self.duration
    }

    /// Returns the node's own time, outside its children; of a loop, outside all its iterations'
    /// children.
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

    /// Returns the uncertainty of the node's begin.
    pub fn begin(&self) -> Boundary {
        self.begin
    }

    /// Returns the uncertainty of the node's end.
    pub fn end(&self) -> Boundary {
        self.end
    }

    /// Returns the node's content.
    pub fn content(&self) -> &Content {
        &self.content
    }

    /// Returns the ordered children, each with the time from the node's begin to the child's (sums
    /// over the node's instances). Empty for a profile node and a loop.
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

    /// Returns whether the node is a profile node: its instances have no order in time.
    pub fn is_profile(&self) -> bool {
        matches!(self.content, Content::Profile(_))
    }

    /// Returns the number of nodes of the subtree, itself included.
    pub fn nodes(&self) -> usize {
        1 + self.content.nodes()
    }

    /// Returns whether `holds` is true for any node of the subtree, itself included.
    pub fn any(&self, holds: impl Fn(&Self) -> bool + Copy) -> bool {
        holds(self) || self.content.any(holds)
    }

    /// Returns the memory in use, in bytes, without the value itself.
    pub fn bytes(&self) -> usize {
        self.content.bytes()
    }

    /// Returns whether the time of the subtree is partitioned: the invariant of the tree. Costs a
    /// walk over it.
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
                        + sum(&iterations.rejected_children)
                        + clusters.iter().map(|cluster| cluster.tree.duration).sum::<u64>()
                    && iterations.rejected_children.iter().all(|child| child.is_profile())
                    && all(&iterations.rejected_children)
                    && clusters.iter().all(|cluster| cluster.tree.is_partitioned())
            }
        }
    }

    /// Returns the kind and key, which two nodes must share to be matched.
    pub(super) fn id(&self) -> (Kind, Key) {
        (self.kind, self.key)
    }

    /// Returns the mean duration of an instance.
    pub(super) fn mean(&self) -> f64 {
        self.duration as f64 / self.count.max(1) as f64
    }
}

impl Content {
    /// Returns the number of nodes of the content.
    pub(super) fn nodes(&self) -> usize {
        match self {
            Self::Ordered(children) | Self::Profile(children) => {
                children.iter().map(Node::nodes).sum()
            }
            Self::Loop(iterations) => iterations.nodes(),
        }
    }

    /// Returns whether `holds` is true for any node of the content.
    pub(super) fn any(&self, holds: impl Fn(&Node) -> bool + Copy) -> bool {
        let among = |nodes: &[Node]| nodes.iter().any(|node| node.any(holds));
        match self {
            Self::Ordered(children) | Self::Profile(children) => among(children),
            Self::Loop(iterations) => {
                let mut trees = iterations.clusters.iter().map(|cluster| &cluster.tree);
                trees.any(|tree| tree.any(holds)) || among(&iterations.rejected_children)
            }
        }
    }

    /// Returns the memory in use, in bytes, without the value itself.
    pub(super) fn bytes(&self) -> usize {
        match self {
            Self::Ordered(children) | Self::Profile(children) => bytes(children),
            Self::Loop(iterations) => size_of::<Iterations>() + iterations.bytes(),
        }
    }
}

impl Iterations {
    /// Returns the accepted iterations, in clusters by ascending first member.
    pub fn clusters(&self) -> &[Cluster] {
        &self.clusters
    }

    /// Returns the number of accepted iterations, over all instances of the loop.
    pub fn accepted(&self) -> u64 {
        self.accepted
    }

    /// Returns the number of rejected iterations: each could be several, and was merged into
    /// profile nodes.
    pub fn rejected(&self) -> u64 {
        self.rejected
    }

    /// Returns the children of rejected iterations, as profile nodes.
    pub fn rejected_children(&self) -> &[Node] {
        &self.rejected_children
    }

    /// Returns the durations of the accepted iterations, by number.
    pub fn durations(&self) -> &Durations {
        &self.durations
    }

    fn nodes(&self) -> usize {
        let clusters = self.clusters.iter().map(|cluster| cluster.tree.nodes());
        clusters.sum::<usize>() + self.rejected_children.iter().map(Node::nodes).sum::<usize>()
    }

    fn bytes(&self) -> usize {
        let clusters = self.clusters.iter().map(Cluster::bytes).sum::<usize>();
        clusters + bytes(&self.rejected_children) + self.durations.bytes()
    }
}

impl<M> Cluster<M> {
    /// Returns the exact number of instances in the cluster.
    pub fn weight(&self) -> u64 {
        self.tree.count
    }

    /// Returns the memory in use, in bytes: the value itself, its tree and its instances, without
    /// what its members hold elsewhere.
    pub fn bytes_without_members(&self) -> usize {
        size_of::<Self>() + self.tree.bytes() + self.instances.bytes()
    }
}

impl Cluster {
    /// Creates a cluster of one instance.
    pub fn one(member: u64, tree: Node) -> Self {
        let instance = Instance { number: member, duration: tree.duration };
        Self { members: Members::one(member), tree, instances: InstanceSample::one(instance) }
    }

    /// Returns the memory in use, in bytes, the value itself included.
    pub fn bytes(&self) -> usize {
        self.bytes_without_members() + self.members.bytes()
    }
}

/// Returns the memory of children, in bytes, with the room that the vector has for more.
fn bytes(nodes: &Vec<Node>) -> usize {
    nodes.capacity() * size_of::<Node>() + nodes.iter().map(Node::bytes).sum::<usize>()
}
