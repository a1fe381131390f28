//! Clusters of a process's threads with similar behaviour, without the communicating thread (ICS18,
//! 4.2): threads are clustered before ranks.
//!
//! If threads are not well separated, clusters depend on the order of merging. Threads are merged
//! in the order in which they were first seen, which is reproduced when a spool is read back. In
//! processes with more than [`MOST_WAITING`] threads, clusters also depend on the order in which
//! threads ended.

use super::Keys;
use plimsoll_trees::{Cluster, Node, Pruned, clustered, merge_sets, most_clusters, prune_to};

/// Maximum number of threads that wait for comparison.
const MOST_WAITING: usize = 128;

/// Maximum number of nodes of one thread's tree: a process may have many threads, and their trees
/// are sent between nodes.
const MOST_NODES: usize = 1 << 11;

/// Temporal context trees of a process's finished threads.
#[derive(Default)]
pub(crate) struct Crew {
    clusters: Vec<Cluster>,
    waiting: Vec<(u32, Node)>,
    count: u64,
}

impl Crew {
    /// Adds the tree of a finished thread. `number` is its position in the order in which threads
    /// were first seen.
    pub(crate) fn add(&mut self, number: u32, mut course: Node, keys: &Keys) {
        prune_to(&mut course, MOST_NODES, &mut Pruned::default());
        self.waiting.push((number, course));
        self.count += 1;
        if self.waiting.len() >= MOST_WAITING {
            self.compare(keys);
        }
    }

    /// Clusters all threads added since the last comparison.
    pub(crate) fn compare(&mut self, keys: &Keys) {
        let mut waiting = std::mem::take(&mut self.waiting);
        waiting.sort_by_key(|(number, _)| *number);
        let one = |(number, course)| Cluster::one(u64::from(number), course);
        let most = most_clusters(self.count);
        let new = clustered(waiting.into_iter().map(one).collect(), most, keys);
        self.clusters = merge_sets(std::mem::take(&mut self.clusters), new, most, keys);
        for cluster in &mut self.clusters {
            prune_to(&mut cluster.tree, MOST_NODES, &mut Pruned::default());
        }
    }

    /// Returns the clusters of all compared threads, ordered by their lowest thread number.
    pub(crate) fn clusters(&self) -> &[Cluster] {
        &self.clusters
    }

    /// Approximate memory use in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let waiting: usize = self.waiting.iter().map(|(_, course)| course.bytes()).sum();
        (waiting + self.clusters.iter().map(Cluster::bytes).sum::<usize>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_trees::{Frame, Key, Lca, Limits, Moment, TreeBuilder};

    /// Builds the tree of a thread that spends the given times in three functions.
    fn course(times: [u64; 3], keys: &Keys) -> Node {
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

    fn clusters(threads: impl Iterator<Item = u32>, keys: &Keys) -> Vec<(Vec<u32>, u64)> {
        let mut crew = Crew::default();
        for number in threads {
            let times = match number {
                7 => [4000, 100, 100],
                _ if number % 2 == 0 => [1000, 2000, 1000],
                _ => [1000, 100, 2000],
            };
            crew.add(number, course(times, keys), keys);
        }
        crew.compare(keys);
        let members = |it: &Cluster| {
            (0..300).filter(|number| it.members.contains(u64::from(*number))).collect()
        };
        crew.clusters().iter().map(|it| (members(it), it.tree.count())).collect()
    }

    #[test]
    fn threads_come_together_by_what_they_did_in_whatever_order_they_end() {
        let keys = Keys::default();
        let odd = (1..300).step_by(2).filter(|number| *number != 7);
        let truth =
            [((0..300).step_by(2).collect(), 150), (odd.collect(), 149), (vec![7], 1)].to_vec();
        assert_eq!(clusters(0..300, &keys), truth);
        assert_eq!(clusters((0..300).rev(), &keys), truth);
        assert_eq!(clusters((0..300).map(|at| at * 7 % 300), &keys), truth);
        assert_eq!(clusters(0..0, &keys), []);
    }
}
