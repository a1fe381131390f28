//! K-farthest clustering (ICS18, 4.2, Algorithm 3, after Bahmani and Mueller): sets of clusters are
//! merged in pairs, and each merge joins the closest clusters.

use super::ControlFlow;
use super::difference::ratio;
use super::distances::Distances;
use super::members::Members;
use super::merge::absorb;
use super::tree_node::{Cluster, Node};

/// Distance ratio below which two clusters are always merged.
pub const RATIO_MIN: f64 = 0.02;

/// Fraction of the largest distance below which two clusters are merged.
pub const RATIO_REL: f64 = 0.25;

/// Minimum of K, for any number of instances.
const MIN_K: u32 = 4;

/// Members of a cluster: iterations or ranks.
pub trait MemberSet {
    /// Adds the members of another cluster.
    fn join(&mut self, other: &Self);

    /// Returns the lowest member, by which clusters are ordered.
    fn lowest(&self) -> Option<u64>;
}

impl MemberSet for Members {
    fn join(&mut self, other: &Self) {
        self.insert_all(other);
    }

    fn lowest(&self) -> Option<u64> {
        self.first()
    }
}

/// Returns K, the maximum number of clusters for a number of instances: its binary logarithm as in
/// ICS18, but at least 4, so that three behaviours in four iterations can be distinguished.
pub fn most_clusters(instances: u64) -> usize {
    let logarithm = u64::BITS - instances.saturating_sub(1).leading_zeros();
    logarithm.max(MIN_K) as usize
}

/// Merges two sets of clusters into one of at most `most` (mergeClusterSet).
///
/// Costs O(K² G) for sets of K clusters of G nodes.
pub(super) fn merge_sets<M: MemberSet>(
    mut one: Vec<Cluster<M>>,
    other: Vec<Cluster<M>>,
    most: usize,
    flow: &dyn ControlFlow,
) -> Vec<Cluster<M>> {
    one.extend(other);
    reduced(one, most, flow)
}

/// Merges the closest clusters of a list as long as Algorithm 3 requires.
pub(super) fn reduced<M: MemberSet>(
    clusters: Vec<Cluster<M>>,
    most: usize,
    flow: &dyn ControlFlow,
) -> Vec<Cluster<M>> {
    let mut set = ClusterSet::from(clusters);
    set.reduce(most, flow);
    set.clusters
}

/// Returns for each cluster the distance ratio to its nearest neighbour; `None` for a single
/// cluster.
pub fn separations<M>(clusters: &[Cluster<M>], flow: &dyn ControlFlow) -> Vec<Option<f64>> {
    let mut distances = Distances::default();
    clusters.iter().for_each(|_| distances.add([]));
    distances.measure(clusters, flow);
    let nearest = (0..clusters.len()).map(|at| distances.of(at).min_by(f64::total_cmp));
    nearest.collect()
}

/// Clusters and the distances measured between them so far.
#[derive(Clone, Debug)]
pub(super) struct ClusterSet<M = Members> {
    clusters: Vec<Cluster<M>>,
    distances: Distances,
}

impl<M> Default for ClusterSet<M> {
    fn default() -> Self {
        Self { clusters: Vec::new(), distances: Distances::default() }
    }
}

impl<M> From<Vec<Cluster<M>>> for ClusterSet<M> {
    fn from(clusters: Vec<Cluster<M>>) -> Self {
        let mut distances = Distances::default();
        clusters.iter().for_each(|_| distances.add([]));
        Self { clusters, distances }
    }
}

impl<M> ClusterSet<M> {
    /// Returns the clusters.
    pub(super) fn clusters(&self) -> &[Cluster<M>] {
        &self.clusters
    }

    /// Returns the clusters without the distances.
    pub(super) fn into_clusters(self) -> Vec<Cluster<M>> {
        self.clusters
    }

    /// Returns the representative trees for change; forgets all distances.
    pub(super) fn trees_mut(&mut self) -> impl Iterator<Item = &mut Node> {
        (0..self.clusters.len()).for_each(|at| self.distances.forget(at));
        self.clusters.iter_mut().map(|cluster| &mut cluster.tree)
    }
}

impl<M: MemberSet> ClusterSet<M> {
    /// Adds a cluster, merging it into the nearest one if their distance ratio is below
    /// [`RATIO_MIN`]: Algorithm 3 would merge the two in any case.
    pub(super) fn add(&mut self, cluster: Cluster<M>, flow: &dyn ControlFlow) {
        let distance = |known: &Cluster<M>| ratio(&known.tree, &cluster.tree, flow);
        let distances: Vec<f64> = self.clusters.iter().map(distance).collect();
        let nearest =
            distances.iter().enumerate().min_by(|(_, one), (_, other)| one.total_cmp(other));
        match nearest {
            Some((at, distance)) if *distance < RATIO_MIN => self.absorb(at, cluster, flow),
            _ => {
                self.distances.add(distances);
                self.clusters.push(cluster);
            }
        }
    }

    /// Adds all clusters of another set.
    pub(super) fn append(&mut self, other: Self) {
        self.distances.append(&other.distances);
        self.clusters.extend(other.clusters);
    }

    /// Merges the closest clusters as long as Algorithm 3 requires (lines 13 to 26).
    pub(super) fn reduce(&mut self, most: usize, flow: &dyn ControlFlow) {
        self.distances.measure(&self.clusters, flow);
        while let Some((one, other)) = self.next_merge(most.max(1)) {
            let absorbed = self.clusters.swap_remove(other);
            self.distances.swap_remove(other);
            self.absorb(one, absorbed, flow);
            self.distances.measure(&self.clusters, flow);
        }
        let lowest = |at: &usize| self.clusters[*at].members.lowest();
        if !(0..self.clusters.len()).is_sorted_by_key(|at| lowest(&at)) {
            let mut places: Vec<usize> = (0..self.clusters.len()).collect();
            places.sort_by_key(lowest);
            self.distances.reorder(&places);
            self.clusters.sort_by_key(|cluster| cluster.members.lowest());
        }
    }

    fn absorb(&mut self, at: usize, absorbed: Cluster<M>, flow: &dyn ControlFlow) {
        let cluster = &mut self.clusters[at];
        absorb(&mut cluster.tree, absorbed.tree, flow);
        cluster.members.join(&absorbed.members);
        cluster.instances.join(&absorbed.instances);
        self.distances.forget(at);
    }

    /// Returns the closest pair, the lower index first; `None` if Algorithm 3 merges no more.
    fn next_merge(&self, most: usize) -> Option<(usize, usize)> {
        let (one, other, least, greatest) = self.distances.closest()?;
        let is_close = least < RATIO_MIN || least < RATIO_REL * greatest;
        (is_close || self.clusters.len() > most).then_some((one, other))
    }
}

impl ClusterSet {
    /// Returns the memory in use, in bytes, without the value itself.
    pub(super) fn bytes(&self) -> usize {
        self.clusters.iter().map(Cluster::bytes).sum::<usize>() + self.distances.bytes()
    }
}
