//! Clusters of a process's threads with similar behaviour, without the communicating thread (ICS18,
//! 4.2): threads are clustered before ranks.
//!
//! If threads are not well separated, clusters depend on the order of merging. Threads are merged
//! in the order in which they were first seen, which is reproduced when a spool is read back. In
//! processes with more than [`MAX_WAITING`] threads, clusters also depend on the order in which
//! threads ended.

use super::KeyInterner;
use plimsoll_trees::{Cluster, Node, Pruned, clustered, merge_sets, most_clusters, prune_to};

/// Maximum number of threads that wait for comparison.
const MAX_WAITING: usize = 128;

/// Maximum number of nodes of one thread's tree: a process may have many threads, and their trees
/// are sent between nodes.
const MAX_NODES: usize = 1 << 11;

/// Temporal context trees of a process's finished threads.
#[derive(Default)]
pub(crate) struct WorkerThreads {
    clusters: Vec<Cluster>,
    waiting: Vec<(u32, Node)>,
    count: u64,
}

impl WorkerThreads {
    /// Adds the tree of a finished thread. `number` is its position in the order in which threads
    /// were first seen.
    pub(crate) fn add(&mut self, number: u32, mut temporal_tree: Node, keys: &KeyInterner) {
        prune_to(&mut temporal_tree, MAX_NODES, &mut Pruned::default());
        self.waiting.push((number, temporal_tree));
        self.count += 1;
        if self.waiting.len() >= MAX_WAITING {
            self.compare(keys);
        }
    }

    /// Clusters all threads added since the last comparison.
    pub(crate) fn compare(&mut self, keys: &KeyInterner) {
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.sort_by_key(|(number, _)| *number);
        let one = |(number, temporal_tree)| Cluster::one(u64::from(number), temporal_tree);
        let most = most_clusters(self.count);
        let new = clustered(waiting.into_iter().map(one).collect(), most, keys);
        self.clusters = merge_sets(std::mem::take(&mut self.clusters), new, most, keys);
        for cluster in &mut self.clusters {
            prune_to(&mut cluster.tree, MAX_NODES, &mut Pruned::default());
        }
    }

    /// Returns the clusters of all compared threads, ordered by their lowest thread number.
    pub(crate) fn clusters(&self) -> &[Cluster] {
        &self.clusters
    }

    /// Returns the approximate memory use in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let waiting: usize =
            self.waiting.iter().map(|(_, temporal_tree)| temporal_tree.bytes()).sum();
        (waiting + self.clusters.iter().map(Cluster::bytes).sum::<usize>()) as u64
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
            workers.add(number, temporal_tree(times, keys), keys);
        }
        workers.compare(keys);
        let members = |it: &Cluster| {
            (0..300).filter(|number| it.members.contains(u64::from(*number))).collect()
        };
        workers.clusters().iter().map(|it| (members(it), it.tree.count())).collect()
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
