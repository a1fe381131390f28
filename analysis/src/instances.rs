//! Single instances of phases over ranks. Maxima over ranks must be taken per instance: a rank that
//! is slow now and another that is slow later have equal totals and still wait for each other.

use std::collections::BTreeMap;

use plimsoll_collector::profile::{InstanceRow, NodeId, PhaseProfile};
use serde::{Deserialize, Serialize};

use crate::canonical::below;
use crate::rank::{Rank, Work};

/// Sum and maximum over ranks of a time in one instance; an absent rank is 0. There are as many as
/// instances times contexts, so they are kept small: a sum of more than 584 years saturates.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Peak {
    /// Sum, in nanoseconds.
    pub sum: u64,
    /// Largest, in nanoseconds.
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

    /// Number of ranks times (maximum - mean).
    pub fn excess(&self, ranks: u32) -> u128 {
        (u128::from(self.max) * u128::from(ranks)).saturating_sub(u128::from(self.sum))
    }
}

/// Work of one context in one instance.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceNode {
    /// With that of the contexts that it calls.
    pub inclusive: Peak,
    /// That for which it answers itself.
    pub own: Peak,
}

/// One instance over ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instance {
    /// First index of its phase.
    pub phase: u64,
    /// How many ranks hold it.
    pub ranks: u32,
    /// Sum over ranks of the wait in the ending synchronisation, in nanoseconds.
    pub wait_sum: u128,
    /// The least of them.
    pub wait_min: u64,
    /// All work, net of waiting for a core.
    pub work: Peak,
    // By ascending node.
    nodes: Vec<(NodeId, InstanceNode)>,
}

impl Instance {
    /// Its contexts have other numbers.
    pub fn move_to(&mut self, places: &[NodeId]) {
        for (node, _) in &mut self.nodes {
            *node = places[*node as usize];
        }
        self.nodes.sort_unstable_by_key(|(node, _)| *node);
    }

    /// Contexts that answer for work in it.
    pub fn nodes(&self) -> &[(NodeId, InstanceNode)] {
        &self.nodes
    }

    /// Takes in the same instance of other ranks.
    pub fn combine(&mut self, other: Self) {
        self.ranks += other.ranks;
        self.wait_sum += other.wait_sum;
        self.wait_min = self.wait_min.min(other.wait_min);
        self.work.combine(&other.work);
        combine_nodes(&mut self.nodes, other.nodes);
    }
}

/// Adds theirs to ours, both by ascending node.
fn combine_nodes(ours: &mut Vec<(NodeId, InstanceNode)>, theirs: Vec<(NodeId, InstanceNode)>) {
    let mut at = 0;
    let mut new = Vec::new();
    for (node, values) in theirs {
        // Mostly the ranks have the same contexts, and the next one is it.
        at += ours[at..].iter().take_while(|(known, _)| *known < node).count();
        match ours.get_mut(at) {
            Some((known, sums)) if *known == node => {
                sums.inclusive.combine(&values.inclusive);
                sums.own.combine(&values.own);
            }
            _ => new.push((node, values)),
        }
    }
    if !new.is_empty() {
        ours.append(&mut new);
        // Two ascending runs: a stable sort merges them.
        ours.sort_by_key(|(node, _)| *node);
    }
}

/// The instances that all ranks kept, by the index of the synchronisation that ends them.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Instances {
    kept: BTreeMap<u64, Instance>,
}

impl Instances {
    /// Takes in the instances that one rank kept of phases that `chosen` names by their first index; `places` are its
    /// contexts' canonical nodes.
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

    /// Takes in those of other ranks; `places` are their nodes in our tree.
    pub fn combine(&mut self, other: Self, places: &[NodeId]) {
        for (index, mut instance) in other.kept {
            instance.move_to(places);
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

    /// The instances of a phase that all `ranks` hold.
    pub fn of_phase(&self, phase: u64, ranks: u32) -> impl Iterator<Item = &Instance> {
        self.kept
            .values()
            .filter(move |instance| instance.phase == phase && instance.ranks == ranks)
    }
}

/// Hands on what a rank did in each of these instances, or divisions of them, that end in that call;
/// `places` are its contexts' canonical nodes.
pub fn each_of_rank<'r>(
    rank: &Rank<'_>,
    rows: impl Iterator<Item = (&'r InstanceRow, &'r PhaseProfile, Option<NodeId>)>,
    places: &[Option<NodeId>],
    mut take: impl FnMut(&InstanceRow, Instance),
) {
    // A few synchronisations end all of them: the contexts below each are found once.
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

/// What is not spent elsewhere is spent in the synchronisation. Rows are net of waiting for a core,
/// and a waiter that yields its core has much of that: taken from its own row, its wait would be
/// too short. Waiting for a core elsewhere then counts as wait here, which the comparison with the
/// imbalance of work corrects ([`crate::imbalance::PhaseImbalance`]).
fn wait_ns(row: &InstanceRow, inside: &[bool]) -> u64 {
    let elsewhere = row.values.iter().filter(|(node, _)| !inside[*node as usize]);
    row.duration_ns.saturating_sub(elsewhere.map(|(_, ns)| ns).sum())
}

/// One rank's part of an instance of the phase with that first index.
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
    let mut nodes: Vec<(NodeId, InstanceNode)> = work.iter().filter_map(place).collect();
    nodes.sort_unstable_by_key(|(node, _)| *node);
    Instance {
        phase,
        ranks: 1,
        wait_sum: u128::from(wait_ns),
        wait_min: wait_ns,
        work: Peak::of(work.iter().map(|(_, work)| work.own_ns).sum()),
        nodes,
    }
}
