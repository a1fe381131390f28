//! K-farthest clustering (ICS18, 4.2, Algorithm 3, after Bahmani and Mueller): sets of clusters are
//! merged two and two, and in each merge the closest clusters become one.

use super::ControlFlow;
use super::difference::ratio;
use super::members::Members;
use super::merge::absorb;
use super::node::Cluster;

/// Clusters closer than this always become one.
pub const RATIO_MIN: f64 = 0.02;

/// Clusters whose distance is less than this part of the largest become one.
pub const RATIO_REL: f64 = 0.25;

/// Clusters that even the fewest instances may have.
const FEWEST: u32 = 4;

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
    logarithm.max(FEWEST) as usize
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

/// How far each cluster is from the one that is nearest to it, as a ratio; `None` where it is alone.
pub fn separations<M>(clusters: &[Cluster<M>], flow: &dyn ControlFlow) -> Vec<Option<f64>> {
    let distances = Distances::between(clusters, flow);
    let nearest = (0..clusters.len()).map(|at| distances.of(at).min_by(f64::total_cmp));
    nearest.collect()
}

/// Merges the closest clusters of a set as long as Algorithm 3 says (lines 13 to 26).
pub(super) fn reduced<M: MemberSet>(
    mut set: Vec<Cluster<M>>,
    most: usize,
    flow: &dyn ControlFlow,
) -> Vec<Cluster<M>> {
    if set.len() > 1 {
        let mut distances = Distances::between(&set, flow);
        while let Some((one, other)) = distances.next_merge(most.max(1)) {
            let absorbed = set.swap_remove(other);
            distances.remove(other);
            let cluster = &mut set[one];
            absorb(&mut cluster.tree, absorbed.tree, flow);
            cluster.members.join(&absorbed.members);
            distances.update(one, &set, flow);
        }
        set.sort_by_key(|cluster| cluster.members.lowest());
    }
    set
}

/// Pairwise ratios: row i holds those to the clusters before i.
struct Distances(Vec<Vec<f64>>);

impl Distances {
    fn between<M>(set: &[Cluster<M>], flow: &dyn ControlFlow) -> Self {
        let row = |(index, cluster): (usize, &Cluster<M>)| {
            set[..index].iter().map(|other| ratio(&other.tree, &cluster.tree, flow)).collect()
        };
        Self(set.iter().enumerate().map(row).collect())
    }

    /// Those of one cluster to all others.
    fn of(&self, index: usize) -> impl Iterator<Item = f64> {
        let later = self.0[index + 1..].iter().map(move |row| row[index]);
        self.0[index].iter().copied().chain(later)
    }

    /// The closest pair, the lower index first, if it is to be merged.
    fn next_merge(&self, most: usize) -> Option<(usize, usize)> {
        let mut closest = None;
        let (mut least, mut greatest) = (f64::INFINITY, 0.0f64);
        for (other, row) in self.0.iter().enumerate() {
            for (one, distance) in row.iter().enumerate() {
                greatest = greatest.max(*distance);
                if *distance < least {
                    (closest, least) = (Some((one, other)), *distance);
                }
            }
        }
        let is_close = least < RATIO_MIN || least < RATIO_REL * greatest;
        closest.filter(|_| is_close || self.0.len() > most)
    }

    /// The last cluster has taken the place of one that was removed, as in `Vec::swap_remove`.
    fn remove(&mut self, index: usize) {
        let Some(mut last) = self.0.pop() else { return };
        if index == self.0.len() {
            return;
        }
        for (row, at) in self.0[index + 1..].iter_mut().zip(index + 1..) {
            row[index] = last[at];
        }
        last.truncate(index);
        self.0[index] = last;
    }

    /// A cluster has changed.
    fn update<M>(&mut self, index: usize, set: &[Cluster<M>], flow: &dyn ControlFlow) {
        for other in 0..set.len() {
            let (low, high) = (index.min(other), index.max(other));
            if low < high {
                self.0[high][low] = ratio(&set[low].tree, &set[high].tree, flow);
            }
        }
    }
}
