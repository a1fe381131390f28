//! K-farthest clustering (ICS18, 4.2, Algorithm 3, after Bahmani and Mueller): sets of clusters are
//! merged two and two, and in each merge the closest clusters become one.

use super::ControlFlow;
use super::difference::ratio;
use super::distances::Distances;
use super::members::Members;
use super::merge::absorb;
use super::tree_node::{Cluster, Node};

/// Clusters closer than this always become one.
pub const RATIO_MIN: f64 = 0.02;

/// Clusters whose distance is less than this part of the largest become one.
pub const RATIO_REL: f64 = 0.25;

/// Clusters that even the fewest instances may have.
const MIN_K: u32 = 4;

/// Who belongs to a cluster: iterations or ranks.
pub trait MemberSet {
    /// Adds the members of another cluster.
    fn join(&mut self, other: &Self);

    /// The lowest of them, by which clusters are ordered.
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

/// K: how many clusters so many instances may have. Their binary logarithm as in ICS18, but at
/// least 4, so that three behaviours in four iterations can be seen.
pub fn most_clusters(instances: u64) -> usize {
    let logarithm = u64::BITS - instances.saturating_sub(1).leading_zeros();
    logarithm.max(MIN_K) as usize
}

/// Clusters instances of which all are known (getClusterSet): no more than `most` clusters.
///
/// Costs O(M K G) for M instances of G nodes.
pub fn clustered<M: MemberSet>(
    mut instances: Vec<Cluster<M>>,
    most: usize,
    flow: &dyn ControlFlow,
) -> Vec<Cluster<M>> {
    if instances.len() <= most {
        return instances;
    }
    let rest = instances.split_off(instances.len() / 2);
    merge_sets(clustered(instances, most, flow), clustered(rest, most, flow), most, flow)
}

/// Merges two sets of clusters into one of no more than `most` (mergeClusterSet). This is also how
/// the clusters of ranks come together, in a reduction.
///
/// Costs O(K² G) for sets of K clusters of G nodes.
pub fn merge_sets<M: MemberSet>(
    mut one: Vec<Cluster<M>>,
    other: Vec<Cluster<M>>,
    most: usize,
    flow: &dyn ControlFlow,
) -> Vec<Cluster<M>> {
    one.extend(other);
    reduced(one, most, flow)
}

/// Merges the closest clusters of a set as long as Algorithm 3 says.
pub(super) fn reduced<M: MemberSet>(
    clusters: Vec<Cluster<M>>,
    most: usize,
    flow: &dyn ControlFlow,
) -> Vec<Cluster<M>> {
    let mut set = ClusterSet::from(clusters);
    set.reduce(most, flow);
    set.clusters
}

/// How far each cluster is from the one that is nearest to it, as a ratio; `None` where it is alone.
pub fn separations<M>(clusters: &[Cluster<M>], flow: &dyn ControlFlow) -> Vec<Option<f64>> {
    let mut distances = Distances::default();
    clusters.iter().for_each(|_| distances.add([]));
    distances.measure(clusters, flow);
    let nearest = (0..clusters.len()).map(|at| distances.of(at).min_by(f64::total_cmp));
    nearest.collect()
}

/// Clusters with the distances between them, as far as these are known.
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
    /// The clusters.
    pub(super) fn clusters(&self) -> &[Cluster<M>] {
        &self.clusters
    }

    /// The clusters alone.
    pub(super) fn into_clusters(self) -> Vec<Cluster<M>> {
        self.clusters
    }

    /// Their trees, to be changed.
    pub(super) fn trees_mut(&mut self) -> impl Iterator<Item = &mut Node> {
        (0..self.clusters.len()).for_each(|at| self.distances.forget(at));
        self.clusters.iter_mut().map(|cluster| &mut cluster.tree)
    }
}

impl<M: MemberSet> ClusterSet<M> {
    /// Adds a cluster: to the nearest one, if that is so close that they would become one in any case.
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

    /// Merges the closest clusters as long as Algorithm 3 says (lines 13 to 26).
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
        self.distances.forget(at);
    }

    /// The closest pair, the lower index first, if it is to be merged.
    fn next_merge(&self, most: usize) -> Option<(usize, usize)> {
        let (one, other, least, greatest) = self.distances.closest()?;
        let is_close = least < RATIO_MIN || least < RATIO_REL * greatest;
        (is_close || self.clusters.len() > most).then_some((one, other))
    }
}

impl ClusterSet {
    /// Memory in use, beside the value itself.
    pub(super) fn bytes(&self) -> usize {
        self.clusters.iter().map(Cluster::bytes).sum::<usize>() + self.distances.bytes()
    }
}
