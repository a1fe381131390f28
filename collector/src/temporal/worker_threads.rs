//! Clusters of a process's threads with similar behaviour, without the communicating thread (ICS18,
//! 4.2): threads are clustered before ranks.
//!
//! Threads are merged as they end, in pairs of blocks of their numbers ([`Blocks`]). The order in
//! which they end, which reading a spool does not reproduce, therefore changes nothing.

use std::collections::BTreeMap;

use super::KeyInterner;
use crate::profile::WorkerMembers;
use crate::raw_tree::RawId;
use plimsoll_trees::{Blocks, Cluster, InstanceSample, Members, Merging, Node, Pruned, prune_to};

/// Number of threads that determines the maximum number of clusters until their number is known.
const FEW_THREADS: u64 = 128;

/// Maximum number of nodes of one thread's tree: a process may have many threads, and their trees
/// are sent between nodes.
const MAX_NODES: usize = 1 << 11;

/// Temporal context trees of a process's finished threads.
#[derive(Default)]
pub(crate) struct WorkerThreads {
    blocks: Blocks<WorkerMembers<RawId>>,
    /// Number of threads with a tree.
    count: u64,
    /// Clusters of all threads, after [`WorkerThreads::finish`].
    clusters: Vec<Cluster<WorkerMembers<RawId>>>,
}

impl WorkerThreads {
    /// Adds the tree of a finished thread, if it has one, and the time of short calls in it, in
    /// stamps. `number` is its position in the order in which threads were first seen; each thread
    /// is added once.
    pub(crate) fn add(
        &mut self,
        number: u32,
        worker: Option<(Node, BTreeMap<RawId, u64>)>,
        keys: &KeyInterner,
    ) {
        let cluster = worker.map(|(mut tree, short_calls)| {
            prune_to(&mut tree, MAX_NODES, &mut Pruned::default());
            let numbers = Members::one(u64::from(number));
            let members = WorkerMembers { numbers, short_calls };
            Cluster { members, tree, instances: InstanceSample::default() }
        });
        self.count += u64::from(cluster.is_some());
        let merging = Merging { instances: FEW_THREADS, nodes: MAX_NODES, flow: keys };
        self.blocks.add(number, cluster.into_iter().collect(), merging);
    }

    /// Discards all trees; threads that have ended before count as added.
    pub(crate) fn restart(&mut self) {
        self.blocks.clear();
        self.count = 0;
        self.clusters.clear();
    }

    /// Clusters all threads, after they have ended.
    pub(crate) fn finish(&mut self, keys: &KeyInterner) {
        let merging = Merging { instances: self.count, nodes: MAX_NODES, flow: keys };
        self.clusters = std::mem::take(&mut self.blocks).merged(merging);
    }

    /// Returns the clusters of all threads, ordered by their lowest thread number.
    pub(crate) fn clusters(&self) -> &[Cluster<WorkerMembers<RawId>>] {
        &self.clusters
    }

    /// Returns the approximate memory use in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let bytes =
            |it: &Cluster<WorkerMembers<RawId>>| it.members.bytes() + it.bytes_without_members();
        self.blocks.waiting().chain(&self.clusters).map(bytes).sum::<usize>() as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_trees::{Frame, Key, Lca, Limits, Moment, TreeBuilder};

    /// Builds the tree of a thread that spends the given times in three functions.
    fn temporal_tree(times: [u64; 3], keys: &KeyInterner) -> Node {
        let limits = Limits { period: 10, nodes: 1 << 10, iteration_nodes: 1 << 8 };
        let mut builder = TreeBuilder::new(Key(0), 0, limits);
        let mut now = 0;
        for (function, time) in (1..).zip(times) {
            let frames = [Frame::call(Key(function))];
            builder.change(Lca::exactly(0), &frames, Moment::exact(now), keys);
            now += time;
        }
        builder.finish(now, keys).0
    }

    fn clusters(threads: impl Iterator<Item = u32>, keys: &KeyInterner) -> Vec<(Vec<u32>, u64)> {
        let mut workers = WorkerThreads::default();
        for number in threads {
            let times = match number {
                7 => [4000, 100, 100],
                _ if number % 2 == 0 => [1000, 2000, 1000],
                _ => [1000, 100, 2000],
            };
            workers.add(number, Some((temporal_tree(times, keys), BTreeMap::new())), keys);
        }
        workers.finish(keys);
        let members = |it: &Cluster<WorkerMembers<RawId>>| {
            (0..300).filter(|number| it.members.numbers.contains(u64::from(*number))).collect()
        };
        workers.clusters().iter().map(|it| (members(it), it.tree.count())).collect()
    }

    /// Threads that are not well separated: which of them are merged depends on the order.
    #[test]
    fn the_order_of_ends_does_not_matter() {
        let threads = 1000;
        let in_steps_of = |step: u32| {
            let keys = KeyInterner::default();
            let mut workers = WorkerThreads::default();
            for number in (0..threads).map(|at| at * step % threads) {
                let seed = u64::from(number * 7919 % 997);
                let times = [1000 + 5 * seed, 500 + seed * seed % 4001, seed * 31 % 2003];
                // Some threads had no room for a tree.
                let tree =
                    (number % 9 != 4).then(|| (temporal_tree(times, &keys), BTreeMap::new()));
                workers.add(number, tree, &keys);
            }
            workers.finish(&keys);
            workers.clusters().to_vec()
        };
        let in_order = in_steps_of(1);
        assert!(in_order.len() > 3, "{}", in_order.len());
        assert_eq!(in_steps_of(7), in_order);
        assert_eq!(in_steps_of(613), in_order);
        assert_eq!(in_steps_of(999), in_order);
    }

    #[test]
    fn threads_come_together_by_what_they_did_in_whatever_order_they_end() {
        let keys = KeyInterner::default();
        let odd = (1..300).step_by(2).filter(|number| *number != 7);
        let truth =
            [((0..300).step_by(2).collect(), 150), (odd.collect(), 149), (vec![7], 1)].to_vec();
        assert_eq!(clusters(0..300, &keys), truth);
        assert_eq!(clusters((0..300).rev(), &keys), truth);
        assert_eq!(clusters((0..300).map(|at| at * 7 % 300), &keys), truth);
        assert_eq!(clusters(0..0, &keys), []);
    }
}
