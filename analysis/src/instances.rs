//! Single instances of phases over ranks. Maxima over ranks must be taken per instance: a rank that
//! is slow now and another that is slow later have equal totals and still wait for each other.

use std::collections::BTreeMap;

use plimsoll_collector::profile::{InstanceRow, NodeId, PhaseProfile};
use serde::{Deserialize, Serialize};

use crate::canonical::below;
use crate::node_map::NodeMap;
use crate::rank::{Rank, Work};

/// Sum and maximum over ranks of a time in one instance; an absent rank counts as 0. There is one
/// value per instance and context, so the type is small: a sum of more than 584 years saturates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peak {
    /// Sum over ranks, in nanoseconds.
    pub sum: u64,
    /// Maximum over ranks, in nanoseconds.
    pub max: u64,
}

impl Peak {
    fn of(value: u64) -> Self {
        Self { sum: value, max: value }
    }

    fn combine(&mut self, other: &Self) {
        self.sum = self.sum.saturating_add(other.sum);
        self.max = self.max.max(other.max);
    }

    /// Returns the number of ranks times (maximum - mean), in nanoseconds.
    pub fn excess(&self, ranks: u32) -> u128 {
        (u128::from(self.max) * u128::from(ranks)).saturating_sub(u128::from(self.sum))
    }
}

/// Work of one context in one instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceNode {
    /// Work of the context, callees included.
    pub inclusive: Peak,
    /// Work that the context itself is responsible for.
    pub own: Peak,
}

impl InstanceNode {
    /// Adds the values of other ranks.
    fn combine(&mut self, other: &Self) {
        self.inclusive.combine(&other.inclusive);
        self.own.combine(&other.own);
    }
}

/// One instance, combined over ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// First index of its phase.
    pub phase: u64,
    /// Number of ranks that hold the instance.
    pub ranks: u32,
    /// Sum over ranks of the wait time in the ending synchronisation, in nanoseconds.
    pub wait_sum: u128,
    /// Minimum over ranks of that wait time, in nanoseconds.
    pub wait_min: u64,
    /// All work, net of waiting for a core, in nanoseconds.
    pub work: Peak,
    /// Contexts that are responsible for work in the instance.
    pub nodes: NodeMap<InstanceNode>,
}

impl Instance {
    /// Adds the values of this instance on other ranks.
    pub fn combine(&mut self, other: Self) {
        self.ranks += other.ranks;
        self.wait_sum += other.wait_sum;
        self.wait_min = self.wait_min.min(other.wait_min);
        self.work.combine(&other.work);
        self.nodes.merge(other.nodes, InstanceNode::combine);
    }
}

/// Instances that all ranks kept, by the index of the synchronisation that ends them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instances {
    kept: BTreeMap<u64, Instance>,
}

impl Instances {
    /// Adds the instances that one rank kept, of phases that `chosen` selects by first index.
    /// `places` holds the canonical node of each of the rank's contexts.
    pub fn add_rank(
        &mut self,
        rank: &Rank<'_>,
        places: &[Option<NodeId>],
        chosen: impl Fn(u64) -> bool,
    ) {
        let rows = rank.rows().filter(|(_, phase)| chosen(phase.first_index));
        let rows = rows.map(|(row, phase)| (row, phase, phase.ends_in));
        each_of_rank(rank, rows, places, |row, instance| self.add(row.index, instance));
    }

    /// Adds the instances of other ranks. `places` maps their nodes to nodes of our tree.
    pub fn combine(&mut self, other: Self, places: &[NodeId]) {
        for (index, mut instance) in other.kept {
            instance.nodes.move_to(places);
            self.add(index, instance);
        }
    }

    fn add(&mut self, index: u64, instance: Instance) {
        match self.kept.get_mut(&index) {
            Some(known) => known.combine(instance),
            None => {
                self.kept.insert(index, instance);
            }
        }
    }

    /// Returns the instances of a phase that all `ranks` hold.
    pub fn of_phase(&self, phase: u64, ranks: u32) -> impl Iterator<Item = &Instance> {
        self.kept
            .values()
            .filter(move |instance| instance.phase == phase && instance.ranks == ranks)
    }
}

/// Calls `take` with a rank's values in each of these instances or subgroup intervals. `rows` holds
/// each with its phase and the call that ends it; `places` holds the canonical node of each of the
/// rank's contexts.
pub fn each_of_rank<'r>(
    rank: &Rank<'_>,
    rows: impl Iterator<Item = (&'r InstanceRow, &'r PhaseProfile, Option<NodeId>)>,
    places: &[Option<NodeId>],
    mut take: impl FnMut(&InstanceRow, Instance),
) {
    // A few synchronisations end all instances: the contexts below each are computed once.
    let mut inside: BTreeMap<Option<NodeId>, Vec<bool>> = BTreeMap::new();
    let mut scratch = rank.scratch();
    for (row, phase, ends_in) in rows {
        let inside =
            inside.entry(ends_in).or_insert_with(|| below(&rank.input.profile.tree, ends_in));
        let wait_ns = wait_ns(row, inside);
        let work = rank.row_work(row, &mut scratch);
        take(row, instance_of_rank(phase.first_index, wait_ns, &work, places));
    }
}

/// Returns the wait time in the ending synchronisation: the part of the duration that is not spent
/// elsewhere. Rows are net of waiting for a core, which is a large part of the time of a waiter
/// that yields its core; the synchronisation's own row would therefore give too short a wait time.
/// Waiting for a core elsewhere counts as wait time here instead, which the comparison with the
/// imbalance of work corrects ([`crate::imbalance::PhaseImbalance`]).
fn wait_ns(row: &InstanceRow, inside: &[bool]) -> u64 {
    let elsewhere = row.values.iter().filter(|(node, _)| !inside[*node as usize]);
    row.duration_ns.saturating_sub(elsewhere.map(|(_, ns)| ns).sum())
}

/// Returns one rank's values in an instance of the phase with this first index.
fn instance_of_rank(
    phase: u64,
    wait_ns: u64,
    work: &[(NodeId, Work)],
    places: &[Option<NodeId>],
) -> Instance {
    let place = |(node, work): &(NodeId, Work)| {
        let (inclusive, own) = (Peak::of(work.inclusive_ns), Peak::of(work.own_ns));
        Some((places[*node as usize]?, InstanceNode { inclusive, own }))
    };
    let mut nodes = Vec::with_capacity(work.len());
    nodes.extend(work.iter().filter_map(place));
    Instance {
        phase,
        ranks: 1,
        wait_sum: u128::from(wait_ns),
        wait_min: wait_ns,
        work: Peak::of(work.iter().map(|(_, work)| work.own_ns).sum()),
        nodes: NodeMap::new(nodes, InstanceNode::combine),
    }
}
