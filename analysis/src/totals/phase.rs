//! What ranks add up to in their phases.

use std::collections::BTreeMap;

use plimsoll_collector::profile::{NodeId, PhaseProfile};
use serde::{Deserialize, Serialize};

use super::{SyncTotals, uneven_ns};
use crate::agreement::Agreed;
use crate::bandwidth::Bandwidths;
use crate::divisions::Divisions;
use crate::instances::Instances;
use crate::metrics::Accumulator;
use crate::rank::{Rank, Sync, transfers};

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
    /// The lowest rank that has the phase; the contexts of this rank name it.
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
