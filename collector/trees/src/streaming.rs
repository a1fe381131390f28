//! Clustering while instances arrive: Algorithm 3's divide and conquer turned into a counter, so
//! that a loop that lasts as long as the run needs hardly more memory than one that lasts a while.
//!
//! Instances come into a block; a full block is a set of clusters of level 0; two sets of one level
//! merge into one of the next, as digits of a binary counter carry. The highest level keeps what is
//! carried into it. Each level has at most one set of at most K clusters: O(K) trees for any number of
//! instances, and each instance takes part in an amortised constant number of merges of sets.

use super::ControlFlow;
use super::k_farthest::{ClusterSet, most_clusters};
use super::pruning::{Pruned, prune_to};
use super::tree_node::{Cluster, Node};

/// Instances of a block. ICS18 does not compare those of a block before it is full (Algorithm 3,
/// line 2). We compare each with those before it, and merge what is closer than Ratio_min, which
/// line 18 would merge in any case: most iterations are alike, and then one comparison is enough.
const BLOCK: u64 = 4;

/// Of how many instances a loop is thought that has had fewer: ICS18 knows their number beforehand. What
/// a small K has merged at the beginning of a long loop would never come apart again.
const MIN_EXPECTED_ITERATIONS: u64 = 1 << 10;

/// Levels. Without an end to them, memory would grow with the logarithm of the run's length, K trees for
/// each; sets of 2^8 instances have seen what a loop does, and come rarely enough for a merge into
/// what all before them were.
const LEVELS: usize = 7;

/// Clusters of the instances so far.
#[derive(Clone, Debug, Default)]
pub struct StreamingClusterer {
    block: ClusterSet,
    /// The set of each level; empty where there is none.
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

    /// Number of instances.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The clusters of all instances, by ascending first member.
    pub fn finish(self, flow: &dyn ControlFlow) -> Vec<Cluster> {
        let most = most_clusters(self.count);
        let mut set = self.block;
        for lower in self.levels {
            set = both(lower, set, most, flow);
        }
        set.reduce(most, flow);
        set.into_clusters()
    }

    /// All trees that are kept.
    pub fn trees(&self) -> impl Iterator<Item = &Node> {
        self.sets().flat_map(ClusterSet::clusters).map(|cluster| &cluster.tree)
    }

    /// The same, to be made smaller.
    pub(super) fn trees_mut(&mut self) -> impl Iterator<Item = &mut Node> {
        self.levels.iter_mut().chain([&mut self.block]).flat_map(ClusterSet::trees_mut)
    }

    /// Memory in use, beside the value itself.
    pub fn bytes(&self) -> usize {
        self.sets().map(ClusterSet::bytes).sum()
    }

    /// Bounds the trees of the set that was last merged: what merging added may be too much.
    pub(super) fn limit_merged(&mut self, most: usize, pruned: &mut Pruned) {
        if self.count.is_multiple_of(BLOCK)
            && let Some(set) = self.levels.iter_mut().find(|set| !set.clusters().is_empty())
            && set.clusters().iter().any(|cluster| cluster.tree.nodes() > most)
        {
            set.trees_mut().for_each(|tree| prune_to(tree, most, pruned));
        }
    }

    /// Comes down to at most `most` clusters at once, for want of memory.
    pub(super) fn reduce_clusters_to(&mut self, most: usize, flow: &dyn ControlFlow) {
        let mut set = std::mem::take(&mut self.block);
        let top = self.levels.len();
        for lower in std::mem::take(&mut self.levels) {
            set = both(lower, set, most, flow);
        }
        // At the level where it was: later blocks do not meet it before they are as many.
        self.levels.resize_with(top.max(1), ClusterSet::default);
        set.reduce(most, flow);
        self.levels[top.max(1) - 1] = set;
    }

    fn sets(&self) -> impl Iterator<Item = &ClusterSet> {
        self.levels.iter().chain([&self.block])
    }
}

/// Two sets as one of no more than `most` clusters.
fn both(mut one: ClusterSet, other: ClusterSet, most: usize, flow: &dyn ControlFlow) -> ClusterSet {
    one.append(other);
    one.reduce(most, flow);
    one
}
