//! What ranks add up to: the value that the reduction combines. Its size depends on the number of
//! contexts, phases and kept instances, and on the number of ranks only through rank ranges and
//! the list of nodes.
//!
//! Everything in it is an integer and every combination is associative and free of order, so that
//! the same job gives the same summary however its ranks lie on nodes.

use plimsoll_collector::profile::{CourseKey, NodeId, NodeValue};
use serde::{Deserialize, Serialize};

use crate::agreement::Agreed;
use crate::bandwidth::Bandwidths;
use crate::canonical::{CanonicalTree, Threads};
use crate::clocks::ClockTotals;
use crate::clusters::Clusters;
use crate::job::JobTotals;
use crate::label::Label;
use crate::labelling::{agreed, derived};
use crate::loops::Loops;
use crate::metrics::Accumulator;
use crate::rank::Rank;
use crate::times::Times;

mod phase;
mod sync;

pub use phase::{PhaseNode, PhaseSums, PhaseTotals};
pub use sync::{SyncTotals, uneven_ns};

/// One context over the whole run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeTotals {
    /// Wall time with the contexts that it calls.
    pub inclusive: Accumulator,
    /// Wall time of itself.
    pub exclusive: Accumulator,
    /// Waiting for a core in itself, in nanoseconds, over ranks.
    pub run_delay_ns: u64,
    /// Calls, over ranks.
    pub calls: u64,
    /// Derived label that all ranks with time in it agree on ([`agreed`]).
    pub derived: Option<Option<Label>>,
    /// Of contexts of other threads than the communicating ones: the times of one of a rank's threads.
    pub of_thread: Option<ThreadTimes>,
}

impl NodeTotals {
    /// Inclusive and exclusive time of one thread of each rank.
    pub fn of_one_thread(&self) -> (&Accumulator, &Accumulator) {
        match &self.of_thread {
            Some(times) => (&times.inclusive, &times.exclusive),
            None => (&self.inclusive, &self.exclusive),
        }
    }
}

/// What a context takes of the time of a rank's threads, on average over those that live at the same time. Threads
/// may be started anew for each piece of work: so not their number counts, but how often their time holds
/// that of the run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadTimes {
    /// Wall time with the contexts that it calls.
    pub inclusive: Accumulator,
    /// Wall time of itself.
    pub exclusive: Accumulator,
}

/// As many threads as a rank may have, for how many clusters those of all ranks may be.
const THREADS_OF_RANK: u64 = 1 << 8;

/// All that is known of some ranks together.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Totals {
    /// Contexts of all of them.
    pub tree: CanonicalTree,
    /// Whole-run values, by node.
    pub nodes: Vec<NodeTotals>,
    /// Their phases.
    pub sums: PhaseSums,
    /// Loops of the communicating threads.
    pub loops: Loops,
    /// Ranks that did alike.
    pub clusters: Clusters,
    /// Threads beside the communicating ones, that did alike.
    pub crews: Clusters,
    /// How fast data went between ranks.
    pub bandwidths: Bandwidths,
    /// How the ranks' clocks stand to the reference.
    pub clocks: ClockTotals,
    /// What concerns ranks as a whole.
    pub job: JobTotals,
}

impl Totals {
    /// Takes in one rank.
    pub fn add_rank(&mut self, rank: &Rank<'_>, agreed: &Agreed) {
        let input = rank.input;
        self.job.add_rank(rank);
        let main = rank.phases.iter().flat_map(|phase| &phase.values);
        let mut places = self.add_threads(rank, Threads::Main, main);
        let others = input.profile.other_threads.iter();
        let mut places_of_others = self.add_threads(rank, Threads::Other, others);
        // Contexts without time still name phases, and courses pass through them.
        let ends = rank.phases.iter().flat_map(|phase| [phase.begins_after, phase.ends_in]);
        let ends = ends.chain(input.profile.divisions.rows.iter().map(|row| row.ends_in));
        let (course, crew) = (input.profile.course.as_ref(), &input.profile.crew);
        let keys = course.map_or(&[][..], |course| &course.keys);
        let passed = |keys: &[CourseKey]| keys.iter().map(|key| key.node).collect::<Vec<_>>();
        self.name(rank, Threads::Main, ends.chain(passed(keys)), &mut places);
        self.name(rank, Threads::Other, passed(&crew.keys), &mut places_of_others);
        self.bandwidths.combine(self.sums.add_rank(rank, agreed, &places, |_| true));
        self.loops.add_rank(input.rank, &input.profile, &places);
        let most = u64::from(agreed.ranks);
        let trees = course.iter().map(|course| &course.tree);
        let contexts = &input.profile.tree;
        self.clusters.add_rank(input.rank, trees, (keys, contexts), &places, most);
        let (trees, keys) = (crew.clusters.iter().map(|it| &it.tree), (&crew.keys[..], contexts));
        let most = most.saturating_mul(THREADS_OF_RANK);
        self.crews.add_rank(input.rank, trees, keys, &places_of_others, most);
    }

    /// Gives places to contexts that have none.
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
        self.nodes.resize_with(self.tree.contexts.nodes.len(), NodeTotals::default);
        places
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
        let labels = derived(tree, &rank.meanings, &own_ns);
        let places = self.adopt(rank, threads, |node| present[node as usize]);
        let of_one = of_one_thread(own_ns.iter().sum(), rank.input.profile.elapsed_ns);
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
            totals.calls += value.calls;
            totals.derived = agreed(totals.derived, labels[index]);
        }
        places
    }

    /// What two groups of ranks are together.
    pub fn combine(mut self, other: Self) -> Self {
        let places = self.tree.merge(&other.tree);
        self.nodes.resize_with(self.tree.contexts.nodes.len(), NodeTotals::default);
        for (totals, place) in other.nodes.iter().zip(&places) {
            let ours = &mut self.nodes[*place as usize];
            ours.inclusive.combine(&totals.inclusive);
            ours.exclusive.combine(&totals.exclusive);
            ours.run_delay_ns += totals.run_delay_ns;
            ours.calls += totals.calls;
            ours.derived = agreed(ours.derived, totals.derived);
            if let Some(times) = &totals.of_thread {
                let ours = ours.of_thread.get_or_insert_default();
                ours.inclusive.combine(&times.inclusive);
                ours.exclusive.combine(&times.exclusive);
            }
        }
        self.sums.combine(other.sums, &places);
        self.loops.combine(other.loops, &places);
        self.clusters.combine(other.clusters, &places);
        self.crews.combine(other.crews, &places);
        self.bandwidths.combine(other.bandwidths);
        self.clocks.combine(other.clocks);
        self.job.combine(other.job);
        self
    }
}

/// From the time of all threads of a rank together to that of one of them.
fn of_one_thread(all_ns: u64, elapsed_ns: u64) -> impl Fn(u64) -> u64 {
    let (all_ns, elapsed_ns) = (u128::from(all_ns), u128::from(elapsed_ns));
    // Never more than the run, and of less than one thread what there is.
    move |ns| match all_ns > elapsed_ns {
        true => (u128::from(ns) * elapsed_ns / all_ns) as u64,
        false => ns,
    }
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
