//! What ranks add up to: the value that the reduction combines. Its size depends on the number of
//! contexts, phases and kept instances, and on the number of ranks only through rank ranges and
//! the list of nodes.
//!
//! Everything in it is an integer and every combination is associative and free of order, so that
//! the same job gives the same summary however its ranks lie on nodes.

use std::collections::BTreeMap;

use plimsoll_collector::profile::{CourseKey, NodeId, NodeValue, PhaseProfile};
use serde::{Deserialize, Serialize};

use crate::agreement::Agreed;
use crate::bandwidth::Bandwidths;
use crate::canonical::{CanonicalTree, Threads};
use crate::clocks::ClockTotals;
use crate::clusters::Clusters;
use crate::divisions::Divisions;
use crate::instances::Instances;
use crate::job::JobTotals;
use crate::label::Label;
use crate::labelling::{agreed, derived};
use crate::loops::Loops;
use crate::metrics::Accumulator;
use crate::rank::{Rank, Sync, transfers};
use crate::times::Times;

mod sync;

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

/// Work of one context in one phase, net of waiting for a core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseNode {
    /// With that of the contexts that it calls.
    pub inclusive: Accumulator,
    /// That for which it answers itself.
    pub own: Accumulator,
    /// Waiting for a core in what it answers for.
    pub run_delay: Accumulator,
}

/// One phase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseTotals {
    /// The lowest rank that has it, by whose contexts it is named.
    pub named_by: u32,
    /// The synchronisation after which it begins there.
    pub begins_after: Option<NodeId>,
    /// The one in which it ends there.
    pub ends_in: Option<NodeId>,
    /// Number of instances: the same on every rank.
    pub instances: u64,
    /// Begin of the first instance.
    pub begin: Accumulator,
    /// Wall time of all instances.
    pub duration: Accumulator,
    /// All work, net of waiting for a core.
    pub work: Accumulator,
    /// The part of it that needs no core.
    pub off_core: Accumulator,
    /// Waiting for a core during work.
    pub run_delay: Accumulator,
    /// The ending synchronisation.
    pub sync: SyncTotals,
    /// All time outside work but for that synchronisation.
    pub waited: Accumulator,
    /// Other calls outside work, by context.
    pub waits: BTreeMap<NodeId, SyncTotals>,
    /// Calls that are work on files or wait for locks, by context.
    pub resources: BTreeMap<NodeId, SyncTotals>,
    /// Contexts that answer for work.
    pub nodes: BTreeMap<NodeId, PhaseNode>,
}

/// What ranks add up to in their phases: all of them, or a group.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PhaseSums {
    /// Phases by first index.
    pub phases: BTreeMap<u64, PhaseTotals>,
    /// Instances that all ranks kept, by index.
    pub instances: Instances,
    /// What parts of the ranks lose between their synchronisations.
    pub divisions: Divisions,
}

impl PhaseSums {
    /// Takes in those phases of a rank that `chosen` names by their first index; `places` are its contexts'
    /// canonical nodes. Returns how fast data went.
    pub fn add_rank(
        &mut self,
        rank: &Rank<'_>,
        agreed: &Agreed,
        places: &[Option<NodeId>],
        chosen: impl Fn(u64) -> bool,
    ) -> Bandwidths {
        let mut waits: Vec<_> = rank.phases.iter().map(|phase| rank.waits(phase)).collect();
        let contexts = &rank.input.profile.tree;
        let mut bandwidths = transfers::settle(contexts, &rank.phases, &mut waits);
        for (phase, waits) in rank.phases.iter().zip(waits) {
            if !chosen(phase.first_index) {
                continue;
            }
            let sync = rank.sync(phase);
            if phase.ends_in.is_some() {
                bandwidths.add_whole(sync.calls, sync.moved, sync.time_ns);
            }
            self.add(phase.first_index, phase_of_rank(rank, phase, (sync, waits), places));
        }
        self.instances.add_rank(rank, places, &chosen);
        self.divisions.add_rank(rank, agreed.division_level, places, &chosen);
        bandwidths
    }

    /// Takes in other ranks; `places` are their nodes in our tree.
    pub fn combine(&mut self, other: Self, places: &[NodeId]) {
        for (index, mut phase) in other.phases {
            phase.move_to(places);
            self.add(index, phase);
        }
        self.instances.combine(other.instances, places);
        self.divisions.combine(other.divisions, places);
    }

    fn add(&mut self, index: u64, phase: PhaseTotals) {
        match self.phases.get_mut(&index) {
            Some(known) => known.combine(phase),
            None => {
                self.phases.insert(index, phase);
            }
        }
    }
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

fn phase_of_rank(
    rank: &Rank<'_>,
    phase: &PhaseProfile,
    (sync, waits): (Sync, BTreeMap<NodeId, Sync>),
    places: &[Option<NodeId>],
) -> PhaseTotals {
    let place = |node: NodeId| places[node as usize];
    let of_calls = |calls: BTreeMap<NodeId, Sync>| {
        let of_call =
            |(node, call): (&NodeId, &Sync)| Some((place(*node)?, SyncTotals::of_rank(call)));
        calls.iter().filter_map(of_call).collect()
    };
    let mut nodes: BTreeMap<NodeId, PhaseNode> = BTreeMap::new();
    let mut work_ns = 0;
    for (node, work) in rank.phase_work(phase) {
        work_ns += work.own_ns;
        if let Some(node) = place(node) {
            let totals = nodes.entry(node).or_default();
            totals.inclusive.accumulate(work.inclusive_ns);
            totals.own.accumulate(work.own_ns);
        }
    }
    let delays = rank.run_delays(phase);
    for (node, delay_ns) in &delays {
        if let Some(node) = place(*node) {
            nodes.entry(node).or_default().run_delay.accumulate(*delay_ns);
        }
    }
    PhaseTotals {
        named_by: rank.input.rank,
        begins_after: phase.begins_after.and_then(place),
        ends_in: phase.ends_in.and_then(place),
        instances: phase.instances,
        begin: Accumulator::from_iter([phase.first_begin_ns]),
        duration: Accumulator::from_iter([phase.duration_ns]),
        work: Accumulator::from_iter([work_ns]),
        off_core: Accumulator::from_iter([rank.off_core_ns(phase)]),
        run_delay: Accumulator::from_iter([delays.values().sum()]),
        sync: SyncTotals::of_rank(&sync),
        waited: Accumulator::from_iter([waits.values().map(|wait| wait.time_ns).sum()]),
        waits: of_calls(waits),
        resources: of_calls(rank.resources(phase)),
        nodes,
    }
}

impl PhaseTotals {
    /// Time in a call: the ending synchronisation, another one outside work, or one on a file or lock.
    pub fn wait(&self, call: NodeId) -> Option<&SyncTotals> {
        if Some(call) == self.ends_in {
            return Some(&self.sync);
        }
        self.waits.get(&call).or_else(|| self.resources.get(&call))
    }

    /// The call before the ending synchronisation in which ranks wait most unevenly.
    pub fn waits_most(&self, ranks: u32) -> Option<(NodeId, &SyncTotals)> {
        let waits = self.waits.iter().map(|(node, wait)| (*node, wait));
        waits.max_by(|a, b| {
            uneven_ns(a.1, ranks).total_cmp(&uneven_ns(b.1, ranks)).then(b.0.cmp(&a.0))
        })
    }

    fn move_to(&mut self, places: &[NodeId]) {
        let place = |node: NodeId| places[node as usize];
        self.begins_after = self.begins_after.map(place);
        self.ends_in = self.ends_in.map(place);
        let nodes = std::mem::take(&mut self.nodes);
        self.nodes = nodes.into_iter().map(|(node, totals)| (place(node), totals)).collect();
        let waits = std::mem::take(&mut self.waits);
        self.waits = waits.into_iter().map(|(node, totals)| (place(node), totals)).collect();
        let resources = std::mem::take(&mut self.resources);
        self.resources =
            resources.into_iter().map(|(node, totals)| (place(node), totals)).collect();
    }

    /// Takes in the same phase of other ranks, its contexts already those of this tree.
    fn combine(&mut self, other: Self) {
        if other.named_by < self.named_by {
            self.named_by = other.named_by;
            (self.begins_after, self.ends_in) = (other.begins_after, other.ends_in);
        }
        self.begin.combine(&other.begin);
        self.duration.combine(&other.duration);
        self.work.combine(&other.work);
        self.off_core.combine(&other.off_core);
        self.run_delay.combine(&other.run_delay);
        self.sync.combine(&other.sync);
        self.waited.combine(&other.waited);
        for (node, theirs) in other.waits {
            self.waits.entry(node).or_default().combine(&theirs);
        }
        for (node, theirs) in other.resources {
            self.resources.entry(node).or_default().combine(&theirs);
        }
        for (node, theirs) in other.nodes {
            let ours = self.nodes.entry(node).or_default();
            ours.inclusive.combine(&theirs.inclusive);
            ours.own.combine(&theirs.own);
            ours.run_delay.combine(&theirs.run_delay);
        }
    }
}
