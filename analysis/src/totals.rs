//! Totals over ranks: the value that the reduction combines. Its size depends on the number of
//! contexts, phases and kept instances, and on the number of ranks only through rank ranges and the
//! list of nodes.
//!
//! All values are integers, and every combination is associative and independent of order, so that
//! one job gives the same summary regardless of the placement of ranks on nodes.

use plimsoll_collector::profile::{NodeId, NodeValue, TemporalTreeKey, WorkerMembers};
use serde::{Deserialize, Serialize};

use crate::agreement::Agreed;
use crate::bandwidth::Bandwidths;
use crate::canonical::{CanonicalTree, Threads};
use crate::clocks::ClockTotals;
use crate::clusters::Clusters;
use crate::counter_totals::CounterTotals;
use crate::job_totals::JobTotals;
use crate::label::Label;
use crate::labelling::{agreed, derived};
use crate::loop_totals::Loops;
use crate::metrics::Accumulator;
use crate::openmp_totals::OpenMpTotals;
use crate::rank::Rank;
use crate::siblings::SiblingTotals;
use crate::team_totals::TeamTotals;
use crate::thread_totals::ThreadTotals;
use crate::times::Times;

mod call_totals;
mod phase;

pub use call_totals::{CallTotals, uneven_ns};
pub use phase::{PhaseNode, PhaseSums, PhaseTotals};

/// One context over the whole run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeTotals {
    /// Wall time of the context, callees included, in nanoseconds.
    pub inclusive: Accumulator,
    /// Wall time of the context itself, in nanoseconds.
    pub exclusive: Accumulator,
    /// Time of waiting for a core in the context itself, in nanoseconds, summed over ranks.
    pub run_delay_ns: u64,
    /// Time of the context itself between polls, in nanoseconds, summed over ranks.
    pub poll_gap_ns: u64,
    /// Number of calls, summed over ranks.
    pub calls: u64,
    /// Derived label that all ranks with time in it agree on ([`agreed`]).
    pub derived: Option<Option<Label>>,
    /// Times of one thread of each rank; `None` for contexts of the communicating threads.
    /// Boxed, since few contexts have them and large programs have tens of thousands of contexts.
    pub of_thread: Option<Box<ThreadTimes>>,
}

impl NodeTotals {
    /// Returns the inclusive and exclusive time of one thread of each rank.
    pub fn of_one_thread(&self) -> (&Accumulator, &Accumulator) {
        match &self.of_thread {
            Some(times) => (&times.inclusive, &times.exclusive),
            None => (&self.inclusive, &self.exclusive),
        }
    }
}

/// Time of a context in one thread of a rank: the mean over the threads that live at one time
/// ([`concurrent_threads`](plimsoll_collector::profile::ProcessProfile::concurrent_threads)).
/// Threads may be started anew for each piece of work, so the divisor is not their number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadTimes {
    /// Wall time of the context, callees included, in nanoseconds.
    pub inclusive: Accumulator,
    /// Wall time of the context itself, in nanoseconds.
    pub exclusive: Accumulator,
}

/// Assumed maximum number of threads per rank; limits the number of clusters of threads.
const THREADS_OF_RANK: u64 = 1 << 8;

/// Combined values of some ranks.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Totals {
    /// Contexts of all these ranks.
    pub tree: CanonicalTree,
    /// Whole-run values, by node.
    pub nodes: Vec<NodeTotals>,
    /// Totals by phase.
    pub sums: PhaseSums,
    /// Loops of the communicating threads.
    pub loops: Loops,
    /// Clusters of ranks with similar behaviour.
    pub clusters: Clusters,
    /// Clusters of similar threads other than the communicating ones.
    pub worker_clusters: Clusters,
    /// Bandwidths of transfers between ranks.
    pub bandwidths: Bandwidths,
    /// Offsets of the ranks' clocks from the reference.
    pub clocks: ClockTotals,
    /// perf events.
    pub counters: CounterTotals,
    /// Threads of processes, aggregated.
    pub threads: ThreadTotals,
    /// Threads outside of OpenMP that were created at one place.
    pub siblings: SiblingTotals,
    /// Parallel regions of OpenMP.
    pub openmp: OpenMpTotals,
    /// Teams of threads: time in regions and outside of them.
    pub teams: TeamTotals,
    /// Values of whole ranks.
    pub job: JobTotals,
}

impl Totals {
    /// Adds one rank.
    pub fn add_rank(&mut self, rank: &Rank<'_>, agreed: &Agreed) {
        let input = rank.input;
        self.job.add_rank(rank);
        let main = rank.phases.iter().flat_map(|phase| &phase.values);
        let mut places = self.add_threads(rank, Threads::Main, main);
        let others = input.profile.other_threads.iter();
        let mut places_of_others = self.add_threads(rank, Threads::Other, others);
        // Contexts without time still name phases and occur in temporal context trees.
        let ends = rank.phases.iter().flat_map(|phase| [phase.begins_after, phase.ends_in]);
        let ends = ends.chain(input.profile.subgroup_intervals.rows.iter().map(|row| row.ends_in));
        let (temporal_tree, workers) =
            (input.profile.temporal_tree.as_ref(), &input.profile.workers);
        let keys = temporal_tree.map_or(&[][..], |temporal_tree| &temporal_tree.keys);
        let passed = |keys: &[TemporalTreeKey]| keys.iter().map(|key| key.node).collect::<Vec<_>>();
        self.name(rank, Threads::Main, ends.chain(passed(keys)), &mut places);
        self.name(rank, Threads::Other, passed(&workers.keys), &mut places_of_others);
        let regions = |is_main| {
            let regions = input.profile.openmp.regions.iter();
            regions
                .filter(move |it| it.is_main == is_main)
                .flat_map(|it| [Some(it.node), it.function])
        };
        self.name(rank, Threads::Main, regions(true), &mut places);
        self.name(rank, Threads::Other, regions(false), &mut places_of_others);
        self.bandwidths.combine(self.sums.add_rank(rank, agreed, &places, |_| true));
        self.counters.add_rank(rank, [&places, &places_of_others]);
        self.threads.add_rank(rank, [&places, &places_of_others]);
        self.siblings.add_rank(rank, &places_of_others);
        self.openmp.add_rank(rank, [&places, &places_of_others]);
        self.teams.add_rank(rank, [&places, &places_of_others]);
        self.loops.add_rank(input, &places);
        let most = u64::from(agreed.ranks);
        let trees = temporal_tree.iter().map(|temporal_tree| (&temporal_tree.tree, 0));
        let contexts = &input.profile.tree;
        self.clusters.add_rank(input.rank, trees, (keys, contexts), &places, most);
        let clusters = workers.clusters.iter();
        let trees = clusters.map(|it| (&it.tree, short_calls_ns(rank, &it.members)));
        let keys = (&workers.keys[..], contexts);
        let most = most.saturating_mul(THREADS_OF_RANK);
        self.worker_clusters.add_rank(input.rank, trees, keys, &places_of_others, most);
    }

    /// Frees all values but those of contexts over the whole run, and of the job.
    pub fn free_all_but_contexts(&mut self) {
        let Self { tree, nodes, counters, threads, job, .. } = std::mem::take(self);
        *self = Self { tree, nodes, counters, threads, job, ..Self::default() };
    }

    /// Adds contexts without a place to the tree.
    fn name(
        &mut self,
        rank: &Rank<'_>,
        threads: Threads,
        nodes: impl IntoIterator<Item = Option<NodeId>>,
        places: &mut [Option<NodeId>],
    ) {
        for node in nodes {
            if node.is_some_and(|node| places[node as usize].is_none()) {
                let named = lineage(rank, node);
                let more = self.adopt(rank, threads, |node| named[node as usize]);
                for (place, more) in places.iter_mut().zip(more) {
                    *place = place.or(more);
                }
            }
        }
    }

    fn adopt(
        &mut self,
        rank: &Rank<'_>,
        threads: Threads,
        chosen: impl Fn(NodeId) -> bool,
    ) -> Vec<Option<NodeId>> {
        let places = self.tree.adopt(&rank.input.profile.tree, threads, chosen);
        self.add_nodes();
        places
    }

    /// Adds a default value for each context without one. The memory grows by an eighth at least,
    /// and not to twice its size as by default: it is the largest part of the totals.
    fn add_nodes(&mut self) {
        let added = self.tree.contexts.nodes.len().saturating_sub(self.nodes.len());
        if self.nodes.capacity() - self.nodes.len() < added {
            self.nodes.reserve_exact(added.max(self.nodes.len() / 8));
        }
        self.nodes.resize_with(self.tree.contexts.nodes.len(), NodeTotals::default);
    }

    /// Adds the whole-run values of a rank's threads; returns the places of their contexts.
    fn add_threads<'v>(
        &mut self,
        rank: &Rank<'_>,
        threads: Threads,
        values: impl Iterator<Item = &'v (NodeId, NodeValue)>,
    ) -> Vec<Option<NodeId>> {
        let tree = &rank.input.profile.tree;
        let Times { own, present, inclusive_ns, exclusive_ns } = Times::new(tree, values);
        let own_ns: Vec<u64> = own.iter().map(|value| value.exclusive_ns).collect();
        let labels = derived(tree, &rank.context_classes, &own_ns);
        let places = self.adopt(rank, threads, |node| present[node as usize]);
        let profile = &rank.input.profile;
        let concurrent = u64::from(profile.concurrent_threads.max(1));
        // The divisor is rounded.
        let of_one = |ns: u64| (ns / concurrent).min(profile.elapsed_ns);
        for (index, place) in places.iter().enumerate() {
            let Some(place) = place else { continue };
            let totals = &mut self.nodes[*place as usize];
            let value = &own[index];
            totals.inclusive.accumulate(inclusive_ns[index]);
            if exclusive_ns[index] > 0 || value.calls > 0 {
                totals.exclusive.accumulate(exclusive_ns[index]);
            }
            if threads == Threads::Other {
                let times = totals.of_thread.get_or_insert_default();
                times.inclusive.accumulate(of_one(inclusive_ns[index]));
                times.exclusive.accumulate(of_one(exclusive_ns[index]));
            }
            totals.run_delay_ns += value.run_delay_ns;
            totals.poll_gap_ns += value.poll_gap_ns;
            totals.calls += value.calls;
            totals.derived = agreed(totals.derived, labels[index]);
        }
        places
    }

    /// Combines the totals of two groups of ranks.
    pub fn combine(mut self, other: Self) -> Self {
        let places = self.tree.merge(&other.tree);
        self.add_nodes();
        for (totals, place) in other.nodes.iter().zip(&places) {
            let ours = &mut self.nodes[*place as usize];
            ours.inclusive.combine(&totals.inclusive);
            ours.exclusive.combine(&totals.exclusive);
            ours.run_delay_ns += totals.run_delay_ns;
            ours.poll_gap_ns += totals.poll_gap_ns;
            ours.calls += totals.calls;
            ours.derived = agreed(ours.derived, totals.derived);
            if let Some(times) = &totals.of_thread {
                let ours = ours.of_thread.get_or_insert_default();
                ours.inclusive.combine(&times.inclusive);
                ours.exclusive.combine(&times.exclusive);
            }
        }
        // What is combined is not kept while the rest is: both totals are large.
        drop((other.tree, other.nodes));
        self.sums.combine(other.sums, &places);
        self.counters.combine(other.counters, &places);
        self.threads.combine(other.threads, &places);
        self.siblings.combine(other.siblings, &places);
        self.openmp.combine(other.openmp, &places);
        self.teams.combine(other.teams, &places);
        self.loops.combine(other.loops, &places);
        self.clusters.combine(other.clusters, &places);
        self.worker_clusters.combine(other.worker_clusters, &places);
        self.bandwidths.combine(other.bandwidths);
        self.clocks.combine(other.clocks);
        self.job.combine(other.job);
        self
    }
}

/// Returns the time of short calls of threads that is no useful work, unlike that of their callers,
/// in nanoseconds.
fn short_calls_ns(rank: &Rank<'_>, threads: &WorkerMembers<NodeId>) -> u64 {
    let is_useful = |node: NodeId| rank.context_classes[node as usize].is_useful();
    let caller = |node: NodeId| rank.input.profile.tree.nodes[node as usize].parent;
    let calls = threads.short_calls.iter();
    let calls =
        calls.filter(|(call, _)| !is_useful(**call) && caller(**call).is_some_and(is_useful));
    calls.map(|(_, ns)| ns).sum()
}

/// Marks a context and its callers.
fn lineage(rank: &Rank<'_>, node: Option<NodeId>) -> Vec<bool> {
    let nodes = &rank.input.profile.tree.nodes;
    let mut marks = vec![false; nodes.len()];
    for id in std::iter::successors(node, |id| nodes[*id as usize].parent) {
        marks[id as usize] = true;
    }
    marks
}

#[cfg(test)]
mod tests {
    use plimsoll_collector::profile::Node;

    use super::*;

    #[test]
    fn contexts_take_little_more_memory_than_their_values() {
        assert!(size_of::<NodeTotals>() <= 176, "{}", size_of::<NodeTotals>());
        let mut totals = Totals::default();
        for added in [10_000, 1, 1, 700, 9_000] {
            let node = Node { parent: None, frame: 0, site: 0 };
            totals.tree.contexts.nodes.extend(vec![node; added]);
            totals.add_nodes();
            let (nodes, room) = (totals.nodes.len(), totals.nodes.capacity());
            assert_eq!(nodes, totals.tree.contexts.nodes.len());
            assert!(room <= nodes + nodes / 8, "room for {room}, {nodes} used");
        }
    }
}
