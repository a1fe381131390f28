//! Totals of ranks in their phases.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::mem::take;

use plimsoll_collector::profile::{NodeId, PhaseProfile};
use serde::{Deserialize, Serialize};

use super::{CallTotals, uneven_ns};
use crate::agreement::Agreed;
use crate::bandwidth::Bandwidths;
use crate::imbalance::Cause;
use crate::instances::Instances;
use crate::map_merge::{merge, moved};
use crate::metrics::Accumulator;
use crate::node_map::NodeMap;
use crate::rank::{CallTime, Rank, Work, transfers};
use crate::subgroup_intervals::SubgroupIntervals;

/// Work of one context in one phase, net of waiting for a core.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseNode {
    /// Work of the context, callees included, in nanoseconds.
    pub inclusive: Accumulator,
    /// Work that the context itself is responsible for, in nanoseconds.
    pub own: Accumulator,
    /// Time of waiting for a core in work that the context is responsible for, in nanoseconds.
    pub run_delay: Accumulator,
    /// Waiting of the rank with the most inclusive work.
    pub slowest: Waiting,
    /// Waiting of the rank with the most own work.
    pub slowest_own: Waiting,
}

/// Time of one rank outside of work in a phase, in nanoseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Waiting {
    /// Time in the ending synchronisation.
    pub ending_ns: u64,
    /// All other time outside of work.
    pub before_ns: u64,
}

/// One phase.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseTotals {
    /// Lowest rank that has the phase; `begins_after` and `ends_in` are contexts of this rank.
    pub named_by: u32,
    /// Synchronisation after which the phase begins on that rank.
    pub begins_after: Option<NodeId>,
    /// Synchronisation in which the phase ends on that rank.
    pub ends_in: Option<NodeId>,
    /// Number of instances, equal on every rank.
    pub instances: u64,
    /// Begin of the first instance, in nanoseconds.
    pub begin: Accumulator,
    /// Wall time of all instances, in nanoseconds.
    pub duration: Accumulator,
    /// All work, net of waiting for a core, in nanoseconds.
    pub work: Accumulator,
    /// Part of the work that needs no core, in nanoseconds.
    pub off_core: Accumulator,
    /// Time of waiting for a core during work, in nanoseconds.
    pub run_delay: Accumulator,
    /// Totals of the ending synchronisation.
    pub sync: CallTotals,
    /// Time outside of work, without the ending synchronisation, in nanoseconds.
    pub waited: Accumulator,
    /// Other calls outside of work, by context.
    pub waits: BTreeMap<NodeId, CallTotals>,
    /// Calls that are work on files or wait for locks, by context.
    pub resources: BTreeMap<NodeId, CallTotals>,
    /// Contexts that are responsible for work.
    pub nodes: NodeMap<PhaseNode>,
}

/// Totals in the phases of all ranks or of a group.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct PhaseSums {
    /// Phases by first index.
    pub phases: BTreeMap<u64, PhaseTotals>,
    /// Instances that all ranks kept, by index.
    pub instances: Instances,
    /// Losses of subgroups between their synchronisations.
    pub subgroup_intervals: SubgroupIntervals,
}

impl PhaseSums {
    /// Adds the phases of a rank that `chosen` selects by first index. `places` holds the canonical
    /// node of each of the rank's contexts. Returns the bandwidths of the rank's transfers.
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
        self.subgroup_intervals.add_rank(rank, agreed.subgroup_level, places, &chosen);
        bandwidths
    }

    /// Adds the sums of other ranks. `places` maps their nodes to nodes of our tree.
    pub fn combine(&mut self, other: Self, places: &[NodeId]) {
        for (index, mut phase) in other.phases {
            phase.move_to(places);
            self.add(index, phase);
        }
        self.instances.combine(other.instances, places);
        self.subgroup_intervals.combine(other.subgroup_intervals, places);
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
    (sync, waits): (CallTime, BTreeMap<NodeId, CallTime>),
    places: &[Option<NodeId>],
) -> PhaseTotals {
    let place = |node: NodeId| places[node as usize];
    let of_calls = |calls: BTreeMap<NodeId, CallTime>| {
        let of_call =
            |(node, call): (&NodeId, &CallTime)| Some((place(*node)?, CallTotals::of_rank(call)));
        calls.iter().filter_map(of_call).collect()
    };
    let work = rank.phase_work(phase);
    let delays = rank.run_delays(phase);
    let work_ns = work.iter().map(|(_, work)| work.own_ns).sum();
    let waiting = Waiting {
        ending_ns: sync.time_ns,
        before_ns: waits.values().map(|wait| wait.time_ns).sum(),
    };
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
        sync: CallTotals::of_rank(&sync),
        waited: Accumulator::from_iter([waiting.before_ns]),
        waits: of_calls(waits),
        resources: of_calls(rank.resources(phase)),
        nodes: nodes_of_rank(&work, &delays, waiting, place),
    }
}

/// Returns the values of one rank's contexts in a phase, from its work and its time of waiting for
/// a core.
fn nodes_of_rank(
    work: &[(NodeId, Work)],
    delays: &BTreeMap<NodeId, u64>,
    waiting: Waiting,
    place: impl Fn(NodeId) -> Option<NodeId>,
) -> NodeMap<PhaseNode> {
    let none = PhaseNode { slowest: waiting, slowest_own: waiting, ..Default::default() };
    let of_work = |(node, work): &(NodeId, Work)| {
        let inclusive = Accumulator::from_iter([work.inclusive_ns]);
        let own = Accumulator::from_iter([work.own_ns]);
        Some((place(*node)?, PhaseNode { inclusive, own, ..none }))
    };
    let mut entries = Vec::with_capacity(work.len());
    entries.extend(work.iter().filter_map(of_work));
    let mut nodes = NodeMap::new(entries, PhaseNode::combine);
    let mut others = Vec::new();
    for (node, ns) in delays {
        let Some(place) = place(*node) else { continue };
        match nodes.get_mut(&place) {
            Some(known) => known.run_delay.accumulate(*ns),
            None => {
                let run_delay = Accumulator::from_iter([*ns]);
                others.push((place, PhaseNode { run_delay, ..none }));
            }
        }
    }
    nodes.merge(NodeMap::new(others, PhaseNode::combine), PhaseNode::combine);
    nodes
}

impl PhaseNode {
    /// Adds the values of other ranks.
    fn combine(&mut self, other: &Self) {
        let (ours, theirs) = (self.inclusive.max, other.inclusive.max);
        self.slowest = self.slowest.of_slower(other.slowest, ours.cmp(&theirs));
        let (ours, theirs) = (self.own.max, other.own.max);
        self.slowest_own = self.slowest_own.of_slower(other.slowest_own, ours.cmp(&theirs));
        self.inclusive.combine(&other.inclusive);
        self.own.combine(&other.own);
        self.run_delay.combine(&other.run_delay);
    }
}

impl Waiting {
    /// Returns the waiting of the slower of two ranks, given our order; of equally slow ranks the
    /// shorter waiting.
    fn of_slower(self, other: Self, order: Ordering) -> Self {
        match order {
            Ordering::Greater => self,
            Ordering::Less => other,
            Ordering::Equal => Self {
                ending_ns: self.ending_ns.min(other.ending_ns),
                before_ns: self.before_ns.min(other.before_ns),
            },
        }
    }
}

impl PhaseTotals {
    /// Returns the totals of a call: the ending synchronisation, another call outside of work, or a
    /// call on a file or lock.
    pub fn wait(&self, call: NodeId) -> Option<&CallTotals> {
        if Some(call) == self.ends_in {
            return Some(&self.sync);
        }
        self.waits.get(&call).or_else(|| self.resources.get(&call))
    }

    /// Returns the time that the slowest rank of a cause waits in the place where a loss shows, and
    /// the longest wait of any rank there, in nanoseconds. The place is the ending synchronisation,
    /// or all calls before it.
    pub fn slowest_waits_ns(&self, cause: &Cause, symptom: NodeId) -> (u64, u64) {
        let node = self.nodes.get(&cause.node).copied().unwrap_or_default();
        let slowest = if cause.own { node.slowest_own } else { node.slowest };
        match Some(symptom) == self.ends_in {
            true => (slowest.ending_ns, self.sync.time.max),
            false => (slowest.before_ns, self.waited.max),
        }
    }

    /// Returns the mean time that ranks wait where a loss shows, in nanoseconds: the maximum loss
    /// by uneven work there. The place is the ending synchronisation, or all calls before it.
    pub fn waited_ns(&self, symptom: NodeId, ranks: u32) -> f64 {
        let time = if Some(symptom) == self.ends_in { &self.sync.time } else { &self.waited };
        time.mean(ranks)
    }

    /// Returns the call before the ending synchronisation with the most uneven wait time.
    pub fn waits_most(&self, ranks: u32) -> Option<(NodeId, &CallTotals)> {
        let waits = self.waits.iter().map(|(node, wait)| (*node, wait));
        waits.max_by(|a, b| {
            uneven_ns(a.1, ranks).total_cmp(&uneven_ns(b.1, ranks)).then(b.0.cmp(&a.0))
        })
    }

    fn move_to(&mut self, places: &[NodeId]) {
        let place = |node: NodeId| places[node as usize];
        self.begins_after = self.begins_after.map(place);
        self.ends_in = self.ends_in.map(place);
        self.nodes.move_to(places);
        self.waits = moved(take(&mut self.waits), places).collect();
        self.resources = moved(take(&mut self.resources), places).collect();
    }

    /// Adds the totals of this phase on other ranks, with contexts of this tree.
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
        merge(&mut self.waits, other.waits, |ours, theirs| ours.combine(&theirs));
        merge(&mut self.resources, other.resources, |ours, theirs| ours.combine(&theirs));
        self.nodes.merge(other.nodes, PhaseNode::combine);
    }
}
