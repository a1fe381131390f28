//! Contexts that distinguish the iterations of a cluster from the other iterations of their loop
//! (PPoPP20, outlook).

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_collector::profile::{ContextTree, LoopCluster, NodeId};

use crate::thresholds::{ABSENT_FRACTION, MIN_DISTINCTION_FRACTION, MIN_INNER_FRACTION};

/// Context that distinguishes a cluster of iterations.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Distinctive {
    /// The context.
    pub node: NodeId,
    /// Inclusive time per iteration of the cluster, mean in nanoseconds.
    pub mean_ns: f64,
    /// Inclusive time per iteration of all other clusters, mean in nanoseconds.
    pub others_ns: f64,
}

/// Returns the context below the loop `outermost` that distinguishes a cluster: of the contexts
/// with at least [`MIN_INNER_FRACTION`] of the largest difference, in the same direction, the
/// outermost one that is absent from the cluster or from all others ([`ABSENT_FRACTION`]), else the
/// innermost one. `None` where no context differs by [`MIN_DISTINCTION_FRACTION`] of the longer
/// iteration.
pub fn distinction<'a>(
    tree: &ContextTree,
    outermost: NodeId,
    cluster: &LoopCluster,
    others: impl Iterator<Item = &'a LoopCluster>,
) -> Option<Distinctive> {
    let (rest, rest_duration_ns) = mean_of(others)?;
    let own: BTreeMap<NodeId, f64> =
        cluster.contexts.iter().map(|(node, time)| (*node, *time as f64)).collect();
    let nodes: BTreeSet<NodeId> = own.keys().chain(rest.keys()).copied().collect();
    let time = |times: &BTreeMap<NodeId, f64>, node| times.get(&node).copied().unwrap_or(0.0);
    let differences = nodes.into_iter().filter(|node| *node != outermost).map(|node| Distinctive {
        node,
        mean_ns: time(&own, node),
        others_ns: time(&rest, node),
    });
    let differences: Vec<Distinctive> = differences.collect();
    let largest = differences.iter().max_by(|one, other| one.size().total_cmp(&other.size()))?;
    let own_duration_ns = cluster.duration_ns as f64 / cluster.count.max(1) as f64;
    if largest.size() < MIN_DISTINCTION_FRACTION * own_duration_ns.max(rest_duration_ns) {
        return None;
    }
    let holds_most = |it: &&Distinctive| {
        it.size() >= MIN_INNER_FRACTION * largest.size() && it.is_longer() == largest.is_longer()
    };
    let depth = |it: &Distinctive| tree.outwards(it.node).count();
    let mut inwards: Vec<Distinctive> = differences.iter().filter(holds_most).copied().collect();
    inwards.sort_by_key(depth);
    inwards.iter().find(|it| it.is_one_sided()).or(inwards.last()).copied()
}

impl Distinctive {
    fn size(&self) -> f64 {
        (self.mean_ns - self.others_ns).abs()
    }

    /// Returns whether the context is absent from the cluster, or from the other iterations.
    fn is_one_sided(&self) -> bool {
        let (less, more) = (self.mean_ns.min(self.others_ns), self.mean_ns.max(self.others_ns));
        less <= ABSENT_FRACTION * more
    }

    fn is_longer(&self) -> bool {
        self.mean_ns > self.others_ns
    }
}

/// Returns the mean inclusive time of each context, and the mean duration, over the iterations of
/// several clusters; `None` without iterations.
fn mean_of<'a>(
    clusters: impl Iterator<Item = &'a LoopCluster>,
) -> Option<(BTreeMap<NodeId, f64>, f64)> {
    let (mut sums, mut duration_ns, mut weight) = (BTreeMap::<NodeId, f64>::new(), 0.0, 0.0);
    for cluster in clusters {
        let count = cluster.count as f64;
        for (node, time) in &cluster.contexts {
            *sums.entry(*node).or_default() += *time as f64 * count;
        }
        duration_ns += cluster.duration_ns as f64;
        weight += count;
    }
    if weight == 0.0 {
        return None;
    }
    sums.values_mut().for_each(|sum| *sum /= weight);
    Some((sums, duration_ns / weight))
}

#[cfg(test)]
mod tests {
    use plimsoll_trees::Members;

    use super::*;
    use crate::synthetic_run::Contexts;

    fn cluster(count: u64, duration_ns: u64, contexts: &[(NodeId, u64)]) -> LoopCluster {
        LoopCluster {
            members: Members::range(0..count),
            count,
            duration_ns: count * duration_ns,
            instances: Default::default(),
            contexts: contexts.to_vec(),
            slices: Vec::new(),
            instance: None,
        }
    }

    #[test]
    fn the_innermost_context_with_most_of_the_difference_distinguishes() {
        let mut contexts = Contexts::default();
        let outermost = contexts.node("main/loop");
        let [step, build, sort] = ["step", "step/build", "step/build/sort"]
            .map(|it| contexts.node(&format!("main/loop/{it}")));
        let usual = cluster(90, 100, &[(outermost, 100), (step, 90)]);
        let short = cluster(10, 50, &[(outermost, 50), (step, 40)]);
        let long = cluster(10, 150, &[(outermost, 150), (step, 140), (build, 52), (sort, 30)]);
        let found = |one: &LoopCluster, others: &[&LoopCluster]| {
            distinction(&contexts.tree, outermost, one, others.iter().copied())
        };
        let it = found(&long, &[&usual]).unwrap();
        assert_eq!((it.node, it.mean_ns, it.others_ns), (build, 52.0, 0.0));
        let it = found(&usual, &[&long]).unwrap();
        assert_eq!((it.node, it.mean_ns, it.others_ns), (build, 0.0, 52.0));
        // Others are weighted by their iterations.
        let it = found(&long, &[&usual, &short]).unwrap();
        assert_eq!((it.node, it.mean_ns, it.others_ns), (build, 52.0, 0.0));
        let it = found(&usual, &[&short]).unwrap();
        assert_eq!((it.node, it.mean_ns, it.others_ns), (step, 90.0, 40.0));
        let it = found(&short, &[&usual, &long]).unwrap();
        assert_eq!((it.node, it.mean_ns, it.others_ns), (step, 40.0, 95.0));
        assert_eq!(found(&usual, &[]), None, "nothing to differ from");
        // All of it is in one callee: what is absent is the caller, too.
        let through = cluster(10, 150, &[(outermost, 150), (step, 140), (build, 50), (sort, 50)]);
        assert_eq!(found(&through, &[&usual]).map(|it| it.node), Some(build));
        let similar = cluster(10, 105, &[(step, 95)]);
        assert_eq!(found(&similar, &[&usual]), None, "a difference of 5 % distinguishes nothing");
    }
}
