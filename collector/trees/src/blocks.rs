//! Clusters of numbered instances that become known in any order, merged in a fixed order.
//!
//! If instances are not well separated, clusters depend on the order of merging (ICS18, Algorithm
//! 3). Instances are therefore merged in pairs of blocks: 0 with 1, 2 with 3, then 0-1 with 2-3. If
//! neighbours become known at about the same time, only few blocks wait for their partner.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::ControlFlow;
use super::k_farthest::{MemberSet, merge_sets, most_clusters};
use super::members::Members;
use super::pruning::{Pruned, prune_to};
use super::tree_node::Cluster;

/// `2^level` instances with adjacent numbers; `first` is a multiple of their count.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Block {
    first: u32,
    level: u32,
}

impl Block {
    /// Returns the block with which this one forms the next larger one; `None` for all instances.
    fn partner(self) -> Option<Self> {
        let bit = 1_u32.checked_shl(self.level)?;
        Some(Self { first: self.first ^ bit, ..self })
    }
}

/// Rules of merging.
#[derive(Clone, Copy)]
pub struct Merging<'f> {
    /// Number of instances that determines the maximum number of clusters.
    pub instances: u64,
    /// Maximum number of nodes of a representative tree.
    pub nodes: usize,
    /// Order of calls in the trees.
    pub flow: &'f dyn ControlFlow,
}

impl Merging<'_> {
    fn merged<M: MemberSet>(
        &self,
        lower: Vec<Cluster<M>>,
        higher: Vec<Cluster<M>>,
    ) -> Vec<Cluster<M>> {
        let mut clusters = merge_sets(lower, higher, most_clusters(self.instances), self.flow);
        for cluster in &mut clusters {
            prune_to(&mut cluster.tree, self.nodes, &mut Pruned::default());
        }
        clusters
    }

    /// Returns the rules for a block, which may have more instances than were expected.
    fn within(self, block: Block) -> Self {
        Self { instances: self.instances.max(1 << block.level), ..self }
    }
}

/// Clusters of each block of instances that has no complete partner.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Blocks<M = Members>(BTreeMap<Block, Vec<Cluster<M>>>);

impl<M> Default for Blocks<M> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<M: MemberSet> Blocks<M> {
    /// Adds the clusters of one instance, which may be none; each instance is added once.
    pub fn add(&mut self, number: u32, clusters: Vec<Cluster<M>>, merging: Merging<'_>) {
        self.insert(Block { first: number, level: 0 }, clusters, merging);
    }

    /// Adds the clusters of other instances, each changed by `change`.
    pub fn combine(
        &mut self,
        other: Self,
        mut change: impl FnMut(Cluster<M>) -> Cluster<M>,
        merging: Merging<'_>,
    ) {
        for (block, clusters) in other.0 {
            self.insert(block, clusters.into_iter().map(&mut change).collect(), merging);
        }
    }

    fn insert(&mut self, mut block: Block, mut clusters: Vec<Cluster<M>>, merging: Merging<'_>) {
        while let Some(partner) = block.partner() {
            let Some(theirs) = self.0.remove(&partner) else { break };
            let is_lower = block.first < partner.first;
            block = Block { first: block.first.min(partner.first), level: block.level + 1 };
            let merging = merging.within(block);
            clusters = match is_lower {
                true => merging.merged(clusters, theirs),
                false => merging.merged(theirs, clusters),
            };
        }
        self.0.insert(block, clusters);
    }

    /// Returns the clusters of all blocks, without merging them.
    pub fn waiting(&self) -> impl Iterator<Item = &Cluster<M>> {
        self.0.values().flatten()
    }

    /// Discards all clusters; the instances count as added.
    pub fn clear(&mut self) {
        self.0.values_mut().for_each(Vec::clear);
    }
}

impl<M: MemberSet> Blocks<M> {
    /// Returns the clusters of all instances, by ascending lowest member.
    pub fn merged(self, merging: Merging<'_>) -> Vec<Cluster<M>> {
        let blocks = self.0.into_values().rev();
        blocks.fold(Vec::new(), |higher, lower| merging.merged(lower, higher))
    }
}
