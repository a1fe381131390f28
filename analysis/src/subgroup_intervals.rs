//! Losses between synchronisations of subgroups.
//!
//! Example: a solver on a grid of ranks synchronises rows and columns of the grid, and all ranks
//! only once, at the end. Over that single phase all ranks may work equally long although a
//! different rank of each row is slow in each iteration and the row waits for it. Each subgroup
//! interval of an instance (the work of a rank since its previous synchronisation with any rank) is
//! therefore compared among the ranks of the synchronisation that ends it, as a whole instance is
//! compared among all ranks. Delays before the subgroup interval held up all its members equally,
//! or show in their wait time.
//!
//! The loss in a subgroup interval is at most the uneven part of its members' wait time, and at
//! most the imbalance of their work. The sum over all subgroup intervals, divided by the number of
//! ranks, estimates how much shorter the run would be, as for instances of phases: each rank is
//! held up in the subgroups that it belongs to.

use std::collections::BTreeMap;

use plimsoll_collector::profile::{NodeId, Subgroup};
use plimsoll_wire::sync_id::least_level;
use serde::{Deserialize, Serialize};

use crate::instances::{Instance, each_of_rank};
use crate::map_merge::{merge, moved};
use crate::rank::Rank;

/// A subgroup interval, combined over some of its members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct SubgroupInterval {
    values: Instance,
    /// Lowest rank that has the subgroup interval; `ends_in` is a context of this rank.
    named_by: u32,
    ends_in: Option<NodeId>,
    period_ns: u64,
}

/// Excess of the slowest rank over the mean, times the number of ranks, in nanoseconds: in total,
/// and the part beyond the maximum sampling error.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Excess {
    /// Total excess.
    pub all: u128,
    /// Part of the excess beyond the sampling error.
    pub certain: u128,
}

impl Excess {
    /// Adds the excess of one instance; `error` is its maximum sampling error.
    pub fn add(&mut self, excess: u128, error: u128) {
        self.all += excess;
        self.certain += excess.saturating_sub(error);
    }

    fn combine(&mut self, other: &Self) {
        self.all += other.all;
        self.certain += other.certain;
    }

    /// Returns the scaled sum over instances if its certain part exceeds `total_ns`, else
    /// `total_ns`. Begin and end of a function are known to one period, and among many ranks the
    /// slowest is the one with the largest error. Only an excess beyond that error shows that
    /// instances are individually uneven; otherwise the totals, in which such errors cancel, are
    /// more precise.
    pub fn certain_or_total(&self, scale: f64, total_ns: f64) -> f64 {
        if self.certain as f64 * scale > total_ns { self.all as f64 * scale } else { total_ns }
    }
}

/// Imbalance of a context's work in the subgroup intervals of a phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnevenNode {
    /// Excess of the context's work, callees included.
    pub inclusive: Excess,
    /// Excess of the work that the context itself is responsible for.
    pub own: Excess,
}

/// Loss and imbalance in the subgroup intervals of a phase that end in one synchronisation. Times
/// are sums over ranks, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubgroupLoss {
    /// Loss by the wait time in the synchronisation.
    pub lost: u128,
    /// Imbalance by context.
    pub nodes: BTreeMap<NodeId, UnevenNode>,
}

/// Losses in the subgroup intervals of a phase, by the synchronisation that ends them.
pub type SubgroupLosses = BTreeMap<NodeId, SubgroupLoss>;

/// Subgroup intervals of all phases.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SubgroupIntervals {
    /// Subgroup intervals for which values of some members are still missing, by subgroup and
    /// index. Subgroup intervals that end in a synchronisation of all ranks (`None`) stay here:
    /// only after the last rank is their number of members known.
    open: BTreeMap<(Option<Subgroup>, u64), SubgroupInterval>,
    /// Results of the completed subgroup intervals, by first index of the phase.
    closed: BTreeMap<u64, SubgroupLosses>,
    /// Sampling level of the subgroup intervals that all ranks kept; a subgroup interval of level L
    /// stands for 2^L.
    level: u32,
}

impl SubgroupIntervals {
    /// Adds one rank's subgroup intervals of at least this level, in the phases that `chosen`
    /// selects by first index. `places` holds the canonical node of each of the rank's contexts.
    pub fn add_rank(
        &mut self,
        rank: &Rank<'_>,
        level: u32,
        places: &[Option<NodeId>],
        chosen: impl Fn(u64) -> bool,
    ) {
        self.level = level;
        let rows = rank.subgroup_intervals(level).filter(|(_, phase)| chosen(phase.first_index));
        let rows = rows.map(|(row, phase)| (row, phase, row.ends_in));
        each_of_rank(rank, rows, places, |row, values| {
            let interval = SubgroupInterval {
                values,
                named_by: rank.input.rank,
                ends_in: row.ends_in.and_then(|node| places[node as usize]),
                period_ns: rank.input.profile.kept_period_ns,
            };
            self.add(row.subgroup, row.index, interval);
        });
    }

    /// Merges the subgroup intervals of other ranks; `places` maps their nodes to ours.
    pub fn combine(&mut self, other: Self, places: &[NodeId]) {
        self.level = self.level.max(other.level);
        merge(&mut self.closed, other.closed, |ours, theirs| {
            merge(ours, moved(theirs, places), |ours, loss| ours.combine(loss, places));
        });
        for ((subgroup, index), mut interval) in other.open {
            interval.values.nodes.move_to(places);
            interval.ends_in = interval.ends_in.map(|node| places[node as usize]);
            self.add(subgroup, index, interval);
        }
    }

    fn add(&mut self, subgroup: Option<Subgroup>, index: u64, interval: SubgroupInterval) {
        let key = (subgroup, index);
        let whole = match self.open.remove(&key) {
            Some(mut known) => {
                known.combine(interval);
                known
            }
            None => interval,
        };
        match subgroup {
            Some(subgroup) if whole.values.ranks == subgroup.ranks => {
                let losses = self.closed.entry(whole.values.phase).or_default();
                add(losses, &whole, self.level.max(least_level(index)));
            }
            _ => {
                self.open.insert(key, whole);
            }
        }
    }

    /// Returns the results of a phase, including the subgroup intervals that end in a
    /// synchronisation of all `ranks`.
    pub fn of_phase(&self, phase: u64, ranks: u32) -> SubgroupLosses {
        let mut losses = self.closed.get(&phase).cloned().unwrap_or_default();
        let of_all = self.open.iter().filter(|((subgroup, _), interval)| {
            subgroup.is_none() && interval.values.phase == phase && interval.values.ranks == ranks
        });
        of_all.for_each(|(_, interval)| add(&mut losses, interval, self.level));
        losses
    }
}

impl SubgroupInterval {
    fn combine(&mut self, other: Self) {
        if other.named_by < self.named_by {
            (self.named_by, self.ends_in) = (other.named_by, other.ends_in);
        }
        self.period_ns = self.period_ns.max(other.period_ns);
        self.values.combine(other.values);
    }
}

/// Adds a subgroup interval with the weight of its level: it stands for 2^`level` subgroup
/// intervals. No rank waits at the end of one that no synchronisation ends.
fn add(losses: &mut SubgroupLosses, interval: &SubgroupInterval, level: u32) {
    let Some(end) = interval.ends_in else { return };
    let loss = losses.entry(end).or_default();
    let (values, ranks) = (&interval.values, interval.values.ranks);
    let stands_for = 1u128 << level.min(64);
    let waited = values.wait_sum.saturating_sub(u128::from(values.wait_min) * u128::from(ranks));
    loss.lost += waited.min(values.work.excess(ranks)) * stands_for;
    let error = u128::from(interval.period_ns) * u128::from(ranks) * stands_for;
    for (node, work) in &values.nodes {
        let uneven = loss.nodes.entry(*node).or_default();
        uneven.inclusive.add(work.inclusive.excess(ranks) * stands_for, error);
        uneven.own.add(work.own.excess(ranks) * stands_for, error);
    }
}

impl SubgroupLoss {
    /// Adds the subgroup intervals of other ranks; `places` maps their nodes to ours.
    fn combine(&mut self, other: Self, places: &[NodeId]) {
        self.lost += other.lost;
        let nodes = moved(other.nodes, places);
        merge(&mut self.nodes, nodes, |ours, theirs| ours.combine(&theirs));
    }
}

impl UnevenNode {
    /// Adds the imbalance of the same context in other subgroup intervals.
    pub fn combine(&mut self, other: &Self) {
        self.inclusive.combine(&other.inclusive);
        self.own.combine(&other.own);
    }
}
