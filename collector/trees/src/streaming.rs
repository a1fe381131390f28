//! Clustering while instances arrive: the divide and conquer of ICS18, Algorithm 3, as a counter,
//! so that the memory of a loop is bounded independently of its number of iterations.
//!
//! Instances are collected in a block; a full block is a set of clusters of level 0; two sets of
//! one level merge into one of the next, like the carry of a binary counter. The highest level
//! merges with each set that is carried into it. Each level has at most one set of at most K
//! clusters: O(K) trees for any number of instances, and each instance takes part in an amortised
//! constant number of merges of sets.

use super::ControlFlow;
use super::k_farthest::{ClusterSet, most_clusters};
use super::pruning::{Pruned, prune_to};
use super::tree_node::{Cluster, Node};

/// Number of instances of a block. ICS18 does not compare the instances of a block before the block
/// is full (Algorithm 3, line 2). We compare each instance with the clusters before it, and merge
/// those closer than Ratio_min, which line 18 would merge in any case: most iterations are similar,
/// and then one comparison is enough.
const BLOCK: u64 = 4;

/// Assumed minimum number of iterations of a loop. ICS18 computes K from the final count; while
/// streaming, a small K would merge early iterations of a long loop irreversibly.
const MIN_EXPECTED_ITERATIONS: u64 = 1 << 10;

/// Number of levels. Without this bound, memory would grow with the logarithm of the run's length,
/// K trees per level. Sets of 2^8 instances cover a loop's behaviours, and arrive rarely enough to
/// be merged into the set of all earlier instances.
const LEVELS: usize = 7;

/// Clusters of the instances so far.
#[derive(Clone, Debug, Default)]
pub struct StreamingClusterer {
    block: ClusterSet,
    /// Set of clusters per level; a level without one holds an empty set.
    levels: Vec<ClusterSet>,
    count: u64,
}

impl StreamingClusterer {
    /// Adds an instance; members arrive in ascending order.
    pub fn push(&mut self, member: u64, tree: Node, flow: &dyn ControlFlow) {
        self.block.add(Cluster::one(member, tree), flow);
        self.count += 1;
        if !self.count.is_multiple_of(BLOCK) {
            return;
        }
        let most = most_clusters(self.count.max(MIN_EXPECTED_ITERATIONS));
        let mut set = std::mem::take(&mut self.block);
        for level in 0..LEVELS {
            if level == self.levels.len() {
                self.levels.push(ClusterSet::default());
            }
            if self.levels[level].clusters().is_empty() {
                self.levels[level] = set;
                return;
            }
            let earlier = std::mem::take(&mut self.levels[level]);
            set = both(earlier, set, most, flow);
        }
        self.levels[LEVELS - 1] = set;
    }

    /// Returns the number of instances.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// Returns the clusters of all instances, by ascending first member.
    pub fn finish(self, flow: &dyn ControlFlow) -> Vec<Cluster> {
        let most = most_clusters(self.count);
        let mut set = self.block;
        for lower in self.levels {
            set = both(lower, set, most, flow);
        }
        set.reduce(most, flow);
        set.into_clusters()
    }

    /// Returns the representative trees of all sets.
    pub fn trees(&self) -> impl Iterator<Item = &Node> {
        self.sets().flat_map(ClusterSet::clusters).map(|cluster| &cluster.tree)
    }

    /// Returns the representative trees of all sets, for pruning.
    pub(super) fn trees_mut(&mut self) -> impl Iterator<Item = &mut Node> {
        self.levels.iter_mut().chain([&mut self.block]).flat_map(ClusterSet::trees_mut)
    }

    /// Returns the memory in use, in bytes, without the value itself.
    pub fn bytes(&self) -> usize {
        self.sets().map(ClusterSet::bytes).sum()
    }

    /// Prunes the trees of the set that was last merged to `most` nodes: a merge may add nodes.
    pub(super) fn limit_merged(&mut self, most: usize, pruned: &mut Pruned) {
        if self.count.is_multiple_of(BLOCK)
            && let Some(set) = self.levels.iter_mut().find(|set| !set.clusters().is_empty())
            && set.clusters().iter().any(|cluster| cluster.tree.nodes() > most)
        {
            set.trees_mut().for_each(|tree| prune_to(tree, most, pruned));
        }
    }

    /// Merges all sets into one of at most `most` clusters, when the tree exceeds its node budget.
    pub(super) fn reduce_clusters_to(&mut self, most: usize, flow: &dyn ControlFlow) {
        let mut set = std::mem::take(&mut self.block);
        let top = self.levels.len();
        for lower in std::mem::take(&mut self.levels) {
            set = both(lower, set, most, flow);
        }
        // The set stays at the highest level: later blocks merge with it only when a carry reaches
        // that level.
        self.levels.resize_with(top.max(1), ClusterSet::default);
        set.reduce(most, flow);
        self.levels[top.max(1) - 1] = set;
    }

    fn sets(&self) -> impl Iterator<Item = &ClusterSet> {
        self.levels.iter().chain([&self.block])
    }
}

/// Merges two sets into one of at most `most` clusters.
fn both(mut one: ClusterSet, other: ClusterSet, most: usize, flow: &dyn ControlFlow) -> ClusterSet {
    one.append(other);
    one.reduce(most, flow);
    one
}
