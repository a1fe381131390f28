//! Clustering while instances arrive: Algorithm 3's divide and conquer turned into a counter, so
//! that a loop that lasts as long as the run needs hardly more memory than one that lasts a while.
//!
//! Instances come into a block; a full block is a set of clusters of level 0; two sets of one level
//! merge into one of the next, as digits of a binary counter carry. The highest level keeps what is
//! carried into it. Each level has at most one set of at most K clusters: O(K) trees for any number of
//! instances, and each instance takes part in an amortised constant number of merges of sets.

use super::ControlFlow;
use super::difference::ratio;
use super::farthest::{RATIO_MIN, merge_sets, most_clusters, reduced};
use super::members::Members;
use super::merge::absorb;
use super::node::{Cluster, Node};
use super::shed::{Shed, limit};

/// Instances of a block. ICS18 does not compare those of a block before it is full (Algorithm 3,
/// line 2). We compare each with those before it, and merge what is closer than Ratio_min, which
/// line 18 would merge in any case: most iterations are alike, and then one comparison is enough.
const BLOCK: u64 = 4;

/// Of how many instances a loop is thought that has had fewer: ICS18 knows their number beforehand. What
/// a small K has merged at the beginning of a long loop would never come apart again.
const EXPECTED: u64 = 1 << 10;

/// Levels. Without an end to them, memory would grow with the logarithm of the run's length, K trees for
/// each; sets of 2^8 instances have seen what a loop does, and come rarely enough for a merge into
/// what all before them were.
const LEVELS: usize = 7;

/// Clusters of the instances so far.
#[derive(Clone, Debug, Default)]
pub struct Online {
    block: Vec<Cluster>,
    /// The set of each level; empty where there is none.
    levels: Vec<Vec<Cluster>>,
    count: u64,
}

impl Online {
    /// Adds an instance; members arrive in ascending order.
    pub fn push(&mut self, member: u64, tree: Node, flow: &dyn ControlFlow) {
        join_block(&mut self.block, member, tree, flow);
        self.count += 1;
        if !self.count.is_multiple_of(BLOCK) {
            return;
        }
        let most = most_clusters(self.count.max(EXPECTED));
        let mut set = std::mem::take(&mut self.block);
        for level in 0..LEVELS {
            if level == self.levels.len() {
                self.levels.push(Vec::new());
            }
            if self.levels[level].is_empty() {
                self.levels[level] = set;
                return;
            }
            let earlier = std::mem::take(&mut self.levels[level]);
            set = merge_sets(earlier, set, most, flow);
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
            set = merge_sets(lower, set, most, flow);
        }
        reduced(set, most, flow)
    }

    /// All trees that are kept.
    pub fn trees(&self) -> impl Iterator<Item = &Node> {
        self.levels.iter().flatten().chain(&self.block).map(|cluster| &cluster.tree)
    }

    /// The same, to be made smaller.
    pub(super) fn trees_mut(&mut self) -> impl Iterator<Item = &mut Node> {
        self.levels.iter_mut().flatten().chain(&mut self.block).map(|cluster| &mut cluster.tree)
    }

    /// Memory in use, beside the value itself.
    pub fn bytes(&self) -> usize {
        self.levels.iter().flatten().chain(&self.block).map(Cluster::bytes).sum()
    }

    /// Bounds the trees of the set that was last merged: what merging added may be too much.
    pub(super) fn limit_merged(&mut self, most: usize, shed: &mut Shed) {
        if self.count.is_multiple_of(BLOCK)
            && let Some(set) = self.levels.iter_mut().find(|set| !set.is_empty())
        {
            set.iter_mut().for_each(|cluster| limit(&mut cluster.tree, most, shed));
        }
    }

    /// Comes down to at most `most` clusters at once, for want of memory.
    pub(super) fn squeeze(&mut self, most: usize, flow: &dyn ControlFlow) {
        let mut set = std::mem::take(&mut self.block);
        let top = self.levels.len();
        for lower in std::mem::take(&mut self.levels) {
            set = merge_sets(lower, set, most, flow);
        }
        // At the level where it was: later blocks do not meet it before they are as many.
        self.levels.resize_with(top.max(1), Vec::new);
        self.levels[top.max(1) - 1] = reduced(set, most, flow);
    }
}

fn join_block(block: &mut Vec<Cluster>, member: u64, tree: Node, flow: &dyn ControlFlow) {
    let distances = block.iter_mut().map(|cluster| (ratio(&cluster.tree, &tree, flow), cluster));
    match distances.min_by(|(one, _), (other, _)| one.total_cmp(other)) {
        Some((distance, cluster)) if distance < RATIO_MIN => {
            absorb(&mut cluster.tree, tree, flow);
            cluster.members.insert_all(&Members::one(member));
        }
        _ => block.push(Cluster::one(member, tree)),
    }
}
