//! Pairwise distances of clusters. A distance is computed once, and again only after a cluster has
//! changed.

use super::ControlFlow;
use super::difference::ratio;
use super::tree_node::Cluster;

/// Mark of a distance that has not been computed.
const UNKNOWN: f64 = f64::NAN;

/// Pairwise ratios of the clusters of a set.
#[derive(Clone, Debug, Default)]
pub(super) struct Distances {
    count: usize,
    /// One row per cluster: the ratios to the clusters before it.
    ratios: Vec<f64>,
}

/// Returns the number of pairs among `count` clusters.
fn pairs(count: usize) -> usize {
    count * count.saturating_sub(1) / 2
}

/// Returns the index of a pair's ratio.
fn place(one: usize, other: usize) -> usize {
    pairs(one.max(other)) + one.min(other)
}

impl Distances {
    /// Appends a cluster.
    pub(super) fn add(&mut self, to_others: impl IntoIterator<Item = f64>) {
        self.ratios.extend(to_others);
        self.count += 1;
        self.ratios.resize(pairs(self.count), UNKNOWN);
    }

    /// Appends the clusters of another set.
    pub(super) fn append(&mut self, others: &Self) {
        let before = self.count;
        for other in 0..others.count {
            let unknown = (0..before).map(|_| UNKNOWN);
            self.add(unknown.chain((0..other).map(|to| others.ratios[place(to, other)])));
        }
    }

    /// Discards the distances of a cluster that has changed.
    pub(super) fn forget(&mut self, changed: usize) {
        for other in (0..self.count).filter(|other| *other != changed) {
            self.ratios[place(changed, other)] = UNKNOWN;
        }
    }

    /// Removes a cluster; the last one takes its place, as in `Vec::swap_remove`.
    pub(super) fn swap_remove(&mut self, removed: usize) {
        self.count -= 1;
        let last = self.count;
        for other in (0..last).filter(|other| *other != removed) {
            self.ratios[place(removed, other)] = self.ratios[place(last, other)];
        }
        self.ratios.truncate(pairs(last));
    }

    /// Reorders the clusters: the first new cluster was at the first of these places.
    pub(super) fn reorder(&mut self, places: &[usize]) {
        let mut moved = Self::default();
        for (at, from) in places.iter().enumerate() {
            moved.add(places[..at].iter().map(|to| self.ratios[place(*from, *to)]));
        }
        *self = moved;
    }

    /// Computes the missing distances.
    pub(super) fn measure<M>(&mut self, set: &[Cluster<M>], flow: &dyn ControlFlow) {
        for (other, cluster) in set.iter().enumerate().skip(1) {
            for (one, before) in set[..other].iter().enumerate() {
                let known = &mut self.ratios[place(one, other)];
                if known.is_nan() {
                    *known = ratio(&before.tree, &cluster.tree, flow);
                }
            }
        }
    }

    /// Returns the ratios of one cluster to all others.
    pub(super) fn of(&self, one: usize) -> impl Iterator<Item = f64> {
        let others = (0..self.count).filter(move |other| *other != one);
        others.map(move |other| self.ratios[place(one, other)])
    }

    /// Returns the closest pair, the lower index first, with its distance and the greatest distance
    /// of all.
    pub(super) fn closest(&self) -> Option<(usize, usize, f64, f64)> {
        let places = (1..self.count).flat_map(|other| (0..other).map(move |one| (one, other)));
        let mut closest = None;
        let (mut least, mut greatest) = (f64::INFINITY, 0.0f64);
        for ((one, other), distance) in places.zip(&self.ratios) {
            greatest = greatest.max(*distance);
            if *distance < least {
                (closest, least) = (Some((one, other)), *distance);
            }
        }
        closest.map(|(one, other)| (one, other, least, greatest))
    }

    /// Returns the memory in use, in bytes, without the value itself.
    pub(super) fn bytes(&self) -> usize {
        self.ratios.capacity() * size_of::<f64>()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Distances that encode their clusters: 12 between clusters 1 and 2.
    fn between(names: &[usize]) -> Distances {
        let mut distances = Distances::default();
        for (at, name) in names.iter().enumerate() {
            distances.add(names[..at].iter().map(|other| of(*name, *other)));
        }
        distances
    }

    fn of(one: usize, other: usize) -> f64 {
        (10 * one.min(other) + one.max(other)) as f64
    }

    #[test]
    fn distances_follow_their_clusters() {
        let mut names = vec![1, 2, 3, 4, 5];
        let mut distances = between(&names);
        assert_eq!(distances.closest(), Some((0, 1, 12.0, 45.0)));
        for removed in [1, 2, 2] {
            names.swap_remove(removed);
            distances.swap_remove(removed);
            assert_eq!(distances.ratios, between(&names).ratios);
        }
        let mut distances = between(&[4, 2, 7, 5]);
        distances.reorder(&[1, 0, 3, 2]);
        assert_eq!(distances.ratios, between(&[2, 4, 5, 7]).ratios);
        assert_eq!(distances.of(1).collect::<Vec<_>>(), [24.0, 45.0, 47.0]);
    }

    #[test]
    fn what_was_not_compared_is_not_known() {
        let mut distances = between(&[1, 2]);
        distances.append(&between(&[3, 4]));
        let is_known = |distances: &Distances| -> Vec<bool> {
            distances.ratios.iter().map(|ratio| !ratio.is_nan()).collect()
        };
        assert_eq!(is_known(&distances), [true, false, false, false, false, true]);
        distances.forget(0);
        assert_eq!(is_known(&distances), [false, false, false, false, false, true]);
        assert_eq!(distances.closest(), Some((2, 3, 34.0, 34.0)));
    }
}
