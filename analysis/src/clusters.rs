//! Clusters ranks with similar behaviour (ICS18, 4.2; PPoPP20, 3.1). The temporal context trees of
//! ranks are clustered while totals are reduced; each cluster keeps the weighted average of its
//! members' trees as its representative tree. Threads of all ranks are clustered in the same way
//! ([`crate::thread_clusters`]), after the threads of each rank have been clustered with each
//! other.
//!
//! Trees are compared by the canonical contexts of their keys and by the positions of calls and
//! loops in the control flow of the functions that contain them. Ranks on different nodes, where
//! modules are loaded at different addresses, need no addresses of each other.
//!
//! Ranks are merged in a fixed order of their numbers ([`Blocks`]): clusters depend neither on the
//! shape of the reduction nor on the placement of ranks on nodes.

use std::cmp::Ordering;
use std::collections::HashMap;
use std::ops::Deref;

use plimsoll_collector::profile::{ContextTree, NodeId, TemporalTreeKey, TemporalTreeProfile};
use plimsoll_trees::{
    Blocks, Cluster, ControlFlow, InstanceSample, Key, MemberSet, Merging, Node, Terms, ratio,
    separations,
};
use serde::{Deserialize, Serialize};

use crate::canonical::{CanonicalTree, Threads};
use crate::communicator::{Communicator, CommunicatorError, reduce};
use crate::fingerprint::{BASIS, extended};
use crate::input::RankInput;
use crate::ranks::RankSet;
use crate::summary::RankCluster;

/// Maximum number of nodes of a representative tree. With at most log2(ranks) clusters, this limit
/// bounds the size of a reduction message and the memory of the root.
const MAX_NODES: usize = 1 << 13;

/// The ranks of a cluster.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct MemberRanks {
    ranks: RankSet,
    /// Time of short calls without useful work that the cluster's tree has in the useful time of
    /// their callers, in nanoseconds, summed over all members; 0 in clusters of ranks.
    pub short_calls_ns: u64,
}

impl MemberSet for MemberRanks {
    fn join(&mut self, other: &Self) {
        self.ranks = self.ranks.union(&other.ranks);
        self.short_calls_ns += other.short_calls_ns;
    }

    fn lowest(&self) -> Option<u64> {
        self.ranks.first().map(u64::from)
    }
}

impl Deref for MemberRanks {
    type Target = RankSet;

    fn deref(&self) -> &RankSet {
        &self.ranks
    }
}

/// Job-wide meaning of a key, the same on all ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct RankKey {
    /// As in [`TemporalTreeKey`], but a node of the canonical tree.
    node: Option<NodeId>,
    site: u64,
    position: Option<u64>,
    /// Hash of the context's path: orders keys independently of the order of merging.
    name: u64,
}

/// Clusters of some of the ranks.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Clusters {
    /// Indexed by key.
    keys: Vec<RankKey>,
    blocks: Blocks<MemberRanks>,
    /// Upper bound of the number of temporal context trees in the job; determines the maximum
    /// number of clusters.
    temporal_trees: u64,
}

/// Control flow given by the positions of keys.
struct Positions<'a>(&'a [RankKey]);

impl ControlFlow for Positions<'_> {
    fn precedes(&self, _: Key, one: Key, other: Key) -> Option<bool> {
        let position = |key: Key| self.0.get(key.0 as usize).and_then(|key| key.position);
        position(one).zip(position(other)).map(|(one, other)| one < other)
    }

    fn order(&self, one: Key, other: Key) -> Ordering {
        let name = |key: Key| self.0.get(key.0 as usize).map(|key| key.name);
        name(one).cmp(&name(other)).then(one.cmp(&other))
    }
}

/// Mapping from old key numbers to new ones; `None`: the key is unknown in the new numbering.
struct Renumbered<'a>(&'a [Option<Key>]);

impl Terms for Renumbered<'_> {
    type Place = ();

    fn node(&mut self, (): (), node: &Node) -> Option<((), Key)> {
        Some(((), self.0.get(node.key().0 as usize).copied().flatten()?))
    }
}

impl Clusters {
    /// Adds one rank with its temporal context tree, the trees of its threads, or none, each with
    /// its [`MemberRanks::short_calls_ns`]. `places` holds the canonical node of each of its
    /// contexts; `most` is the upper bound of the number of trees in the job.
    pub fn add_rank<'n>(
        &mut self,
        rank: u32,
        temporal_trees: impl IntoIterator<Item = (&'n Node, u64)>,
        (keys, contexts): (&[TemporalTreeKey], &ContextTree),
        places: &[Option<NodeId>],
        most: u64,
    ) {
        let names = names(contexts);
        let keys: Vec<Option<Key>> = {
            let mut adopt = self.adopter();
            let key = |key: &TemporalTreeKey| {
                let TemporalTreeKey { node, site, position } = *key;
                let name = node.map_or(0, |node| names[node as usize]);
                let node = node.and_then(|node| places[node as usize]);
                adopt(RankKey { node, site, position, name: extended(name, &site.to_le_bytes()) })
            };
            keys.iter().map(key).map(Some).collect()
        };
        let ranks = RankSet::from_iter([rank]);
        let one = |(temporal_tree, short_calls_ns)| Cluster {
            members: MemberRanks { ranks: ranks.clone(), short_calls_ns },
            tree: renumbered(temporal_tree, &keys),
            instances: InstanceSample::default(),
        };
        let temporal_trees = temporal_trees.into_iter().map(one).collect();
        self.temporal_trees = most;
        self.blocks.add(rank, temporal_trees, merging(most, &Positions(&self.keys)));
    }

    /// Merges the clusters of other ranks; `places` holds the canonical node of each of their
    /// contexts.
    pub fn combine(&mut self, other: Self, places: &[NodeId]) {
        let keys: Vec<Option<Key>> = {
            let mut adopt = self.adopter();
            let place = |key: &RankKey| key.node.map(|node| places[node as usize]);
            let keys = other.keys.iter();
            keys.map(|key| Some(adopt(RankKey { node: place(key), ..*key }))).collect()
        };
        self.temporal_trees = self.temporal_trees.max(other.temporal_trees);
        let ours = |cluster: Cluster<MemberRanks>| Cluster {
            tree: renumbered(&cluster.tree, &keys),
            members: cluster.members,
            instances: InstanceSample::default(),
        };
        self.blocks.combine(
            other.blocks,
            ours,
            merging(self.temporal_trees, &Positions(&self.keys)),
        );
    }

    /// Returns the clusters of all ranks, by ascending lowest rank. Keys are sorted by canonical
    /// node, so that equal clusters have equal representations.
    pub fn finished(self) -> Finished {
        let Self { keys, blocks, temporal_trees } = self;
        let mut clusters = blocks.merged(merging(temporal_trees, &Positions(&keys)));
        let mut order: Vec<usize> = (0..keys.len()).collect();
        order.sort_by_key(|at| (keys[*at].node, keys[*at].site));
        let mut numbers = vec![None; keys.len()];
        for (new, old) in (0..).zip(&order) {
            numbers[*old] = Some(Key(new));
        }
        for cluster in &mut clusters {
            cluster.tree = renumbered(&cluster.tree, &numbers);
        }
        Finished { keys: order.into_iter().map(|at| keys[at]).collect(), clusters }
    }

    /// Returns a function that adds a key, or finds an equal one, and returns the key's number.
    fn adopter(&mut self) -> impl FnMut(RankKey) -> Key + '_ {
        let mut ids = ids(&self.keys);
        let keys = &mut self.keys;
        move |key| {
            let id = *ids.entry((key.node, key.site)).or_insert_with(|| {
                keys.push(key);
                keys.len() as u32 - 1
            });
            let ours = &mut keys[id as usize];
            ours.position = ours.position.or(key.position);
            Key(id)
        }
    }
}

/// Clusters of all ranks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Finished {
    keys: Vec<RankKey>,
    clusters: Vec<Cluster<MemberRanks>>,
}

impl Finished {
    /// Returns the clusters with their members and representative trees.
    pub fn clusters(&self) -> &[Cluster<MemberRanks>] {
        &self.clusters
    }

    /// Returns the function from keys to canonical contexts; `None` for keys that are no context of
    /// the program.
    pub fn contexts(&self) -> impl Fn(Key) -> Option<NodeId> + '_ {
        |key| self.keys.get(key.0 as usize)?.node
    }

    /// Returns the distance of each cluster to its nearest neighbour, as a ratio; `None` for the
    /// only cluster.
    pub fn distances(&self) -> Vec<Option<f64>> {
        separations(&self.clusters, &Positions(&self.keys))
    }

    /// Returns the number here of each key of a rank with contexts in `tree`; `None` for keys
    /// unknown here.
    fn keys_of(
        &self,
        temporal_tree: &TemporalTreeProfile,
        tree: &ContextTree,
        contexts: &mut CanonicalTree,
    ) -> Vec<Option<Key>> {
        let ids = ids(&self.keys);
        // A context without values of any rank gets a new node, which no key refers to.
        let places = contexts.adopt(tree, Threads::Main, |_| true);
        let own = |key: &TemporalTreeKey| {
            let node = key.node.and_then(|node| places[node as usize]);
            ids.get(&(node, key.site)).map(|id| Key(*id))
        };
        temporal_tree.keys.iter().map(own).collect()
    }
}

fn merging<'f>(temporal_trees: u64, flow: &'f Positions<'_>) -> Merging<'f> {
    Merging { instances: temporal_trees, nodes: MAX_NODES, flow }
}

/// Maps the identity of each key (canonical node and site) to its number.
fn ids(keys: &[RankKey]) -> HashMap<(Option<NodeId>, u64), u32> {
    keys.iter().map(|key| (key.node, key.site)).zip(0..).collect()
}

/// Returns a hash of the path of each context.
fn names(tree: &ContextTree) -> Vec<u64> {
    let mut names: Vec<u64> = Vec::with_capacity(tree.nodes.len());
    for node in &tree.nodes {
        let frame = &tree.frames[node.frame as usize];
        let outer = node.parent.map_or(BASIS, |parent| names[parent as usize]);
        let number = |number: Option<u64>| number.unwrap_or(u64::MAX).to_le_bytes();
        let mut name = extended(outer, frame.function.as_bytes());
        name = extended(name, frame.module.as_bytes());
        for part in [Some(frame.kind as u64), frame.offset, frame.line.map(u64::from)] {
            name = extended(name, &number(part));
        }
        names.push(extended(name, &node.site.to_le_bytes()));
    }
    names
}

fn renumbered(tree: &Node, keys: &[Option<Key>]) -> Node {
    let root = keys.get(tree.key().0 as usize).copied().flatten().unwrap_or(tree.key());
    tree.translated(((), root), &mut Renumbered(keys))
}

/// Returns the clusters of all ranks in the form of the summary at process 0, `None` elsewhere. All
/// processes hold the representative trees and their `contexts`, to which nodes may be added. Each
/// rank compares its own tree with its cluster's representative tree; the nearest rank represents
/// the cluster. Collective.
pub fn shown(
    comm: &dyn Communicator,
    local: &[RankInput],
    contexts: &mut CanonicalTree,
    clusters: &Finished,
) -> Result<Option<Vec<RankCluster>>, CommunicatorError> {
    let mut nearest: Vec<Option<(f64, u32)>> = vec![None; clusters.clusters.len()];
    let flow = Positions(&clusters.keys);
    for input in local {
        let Some(temporal_tree) = &input.profile.temporal_tree else { continue };
        let holds = |cluster: &Cluster<MemberRanks>| cluster.members.contains(input.rank);
        let Some(at) = clusters.clusters.iter().position(holds) else { continue };
        let keys = clusters.keys_of(temporal_tree, &input.profile.tree, contexts);
        let distance =
            ratio(&renumbered(&temporal_tree.tree, &keys), &clusters.clusters[at].tree, &flow);
        nearest[at] = nearer(nearest[at], Some((distance, input.rank)));
    }
    let nearest = reduce(comm, nearest, |ours: Vec<_>, theirs| {
        ours.into_iter().zip(theirs).map(|(ours, theirs)| nearer(ours, theirs)).collect()
    })?;
    Ok(nearest.map(|nearest| {
        let rank_clusters = clusters.clusters.iter().zip(nearest).zip(clusters.distances());
        let rank_clusters = rank_clusters.map(|((cluster, nearest), distance)| RankCluster {
            ranks: cluster.members.to_string(),
            size: cluster.members.len(),
            representative: nearest.map_or(cluster.members.first().unwrap_or(0), |(_, rank)| rank),
            distance,
        });
        rank_clusters.collect()
    }))
}

/// Returns the nearer of two ranks; the lower rank if distances are equal.
fn nearer(one: Option<(f64, u32)>, other: Option<(f64, u32)>) -> Option<(f64, u32)> {
    let of = |a: &(f64, u32), b: &(f64, u32)| a.0.total_cmp(&b.0).then(a.1.cmp(&b.1));
    one.into_iter().chain(other).min_by(of)
}

#[cfg(test)]
mod tests;
