//! The same tree in other terms: with keys that others understand, in another unit of time, and
//! without what is of no use there.

use super::flatten::insert;
use super::instance_sample::InstanceSample;
use super::tree_node::{Boundary, Cluster, Content, Iterations, Key, Node};

/// Other terms for a tree.
pub trait Terms {
    /// Where a node is, as far as it matters to what lies under it.
    type Place: Copy;

    /// What a node that lies directly under one at `around` stands for, and where it is; `None` if it is
    /// not told apart any more: then all its time is that of the node around it.
    ///
    /// An iteration is where its loop is, and has the loop's key: it is not asked for. Nodes that get
    /// the same key stay neighbours where children are ordered, and become one in a profile.
    fn node(&mut self, around: Self::Place, node: &Node) -> Option<(Self::Place, Key)>;

    /// A time, and what its sum over parts may be off by rounding does not matter.
    fn time(&self, time: u64) -> u64 {
        time
    }

    /// Whether clusters of iterations keep their samples of instances.
    fn keeps_instances(&self) -> bool {
        false
    }
}

impl Node {
    /// The same tree in other terms; its root is at `place` and gets this key. Time stays partitioned.
    pub fn translated<T: Terms>(&self, (place, key): (T::Place, Key), terms: &mut T) -> Self {
        let mut own = terms.time(self.own);
        let (content, inner) = match &self.content {
            Content::Ordered(children) => {
                let (mut told, mut inner) = (Vec::with_capacity(children.len()), 0);
                // What lies before the next child that is told apart.
                let mut before = 0;
                for child in children {
                    before += terms.time(child.before);
                    let Some(to) = terms.node(place, child) else {
                        before += terms.time(child.duration);
                        continue;
                    };
                    let child = Self { before, ..child.translated(to, terms) };
                    before = 0;
                    inner += child.before + child.duration;
                    told.push(child);
                }
                own += before;
                (Content::Ordered(told), inner)
            }
            Content::Profile(children) => {
                let set = translated_set(children, place, terms, &mut own);
                let inner = sum(&set);
                (Content::Profile(set), inner)
            }
            Content::Loop(iterations) => {
                let mut iteration = |cluster: &Cluster| Cluster {
                    members: cluster.members.clone(),
                    tree: cluster.tree.translated((place, key), terms),
                    instances: match terms.keeps_instances() {
                        true => cluster.instances.scaled(|time| terms.time(time)),
                        false => InstanceSample::default(),
                    },
                };
                let clusters: Vec<Cluster> =
                    iterations.clusters.iter().map(&mut iteration).collect();
                let rejected_children =
                    translated_set(&iterations.rejected_children, place, terms, &mut own);
                let iterated: u64 = clusters.iter().map(|cluster| cluster.tree.duration).sum();
                let inner = iterated + sum(&rejected_children);
                let durations = iterations.durations.scaled(|time| terms.time(time));
                let iterations =
                    Iterations { clusters, rejected_children, durations, ..**iterations };
                (Content::Loop(Box::new(iterations)), inner)
            }
        };
        let boundary = |it: Boundary| Boundary {
            earlier: terms.time(it.earlier),
            later: terms.time(it.later),
        };
        Self {
            key,
            kind: self.kind,
            count: self.count,
            before: terms.time(self.before),
            duration: inner + own,
            own,
            begin: boundary(self.begin),
            end: boundary(self.end),
            content,
        }
    }
}

fn translated_set<T: Terms>(
    nodes: &[Node],
    around: T::Place,
    terms: &mut T,
    own: &mut u64,
) -> Vec<Node> {
    let mut set = Vec::with_capacity(nodes.len());
    for node in nodes {
        match terms.node(around, node) {
            Some(to) => insert(&mut set, &node.translated(to, terms)),
            None => *own += terms.time(node.duration),
        }
    }
    set
}

fn sum(nodes: &[Node]) -> u64 {
    nodes.iter().map(|node| node.duration).sum()
}
