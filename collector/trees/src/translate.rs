//! Translation of a tree: other keys, another unit of time, without the nodes that have no meaning
//! in the target.

use super::flatten::insert;
use super::instance_sample::InstanceSample;
use super::tree_node::{Boundary, Cluster, Content, Iterations, Key, Node};

/// Translation of keys and times.
pub trait Terms {
    /// Position of a node, as far as the translation of its children needs it.
    type Place: Copy;

    /// Returns key and position of a node directly under one at `around`; `None` if the target does
    /// not distinguish the node, so that its time counts to the node around it.
    ///
    /// Not called for iterations, which have the position and key of their loop. Ordered children
    /// that get the same key stay neighbours; in a profile they become one.
    fn node(&mut self, around: Self::Place, node: &Node) -> Option<(Self::Place, Key)>;

    /// Converts a time. The sum of converted parts may differ from the converted sum by rounding.
    fn time(&self, time: u64) -> u64 {
        time
    }

    /// Returns whether clusters of iterations keep their samples of instances.
    fn keeps_instances(&self) -> bool {
        false
    }
}

impl Node {
    /// Returns the translated tree; its root is at `place` and gets this key. Time stays
    /// partitioned.
    pub fn translated<T: Terms>(&self, (place, key): (T::Place, Key), terms: &mut T) -> Self {
        let mut own = terms.time(self.own);
        let (content, inner) = match &self.content {
            Content::Ordered(children) => {
                let (mut translated, mut inner) = (Vec::with_capacity(children.len()), 0);
                // Time before the next child that the target distinguishes.
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
                    translated.push(child);
                }
                own += before;
                (Content::Ordered(translated), inner)
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
