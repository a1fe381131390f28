//! Threads of processes over ranks (ESPT15, 4): each process aggregates its threads; threads with
//! the same role are added up over ranks.
//!
//! ESPT15 keeps the aggregated threads of each process in the profile. Here they are kept for a
//! bounded number of processes, those with the largest differences, and by context only over all
//! ranks, so that the summary grows neither with threads nor with ranks.

mod threads_shown;

use std::cmp::Reverse;
use std::collections::BTreeMap;

use plimsoll_collector::profile::{
    Aggregation, LocationKind, NodeId, NodeValue, ThreadLocation, ThreadStatistics,
};
use serde::{Deserialize, Serialize};

use crate::map_merge::{merge, moved};
use crate::metrics::Accumulator;
use crate::rank::Rank;
use crate::ranks::RankSet;
use crate::times::rolled_up;

/// Maximum number of processes with listed threads, and of entries in these lists.
const MAX_LISTED_PROCESSES: usize = 512;
const MAX_LISTED_THREADS: usize = 1 << 16;

/// Maximum number of classes of a process that are added up by themselves.
const MAX_CLASSES: u32 = 16;

/// Role of threads in their process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
enum Role {
    Initial,
    Slowest,
    Fastest,
    /// Classes by descending number of threads, from 1 on.
    Class(u32),
    /// Single threads by number.
    Thread(u32),
    Rest,
}

/// Times of threads with one role, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct RoleTotals {
    ranks: RankSet,
    threads: u64,
    work_ns: u128,
    time_ns: u128,
    /// Mean work of the threads of a rank.
    of_ranks: Accumulator,
}

/// Times of a process's threads with one role, summed over these threads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct LocationTimes {
    role: Role,
    number: Option<u32>,
    threads: u64,
    work_ns: u64,
    time_ns: u64,
}

/// Threads of one process.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct ListedProcess {
    rank: u32,
    threads: u32,
    /// Mean work of the slowest location minus that of the fastest, in nanoseconds.
    spread_ns: u64,
    locations: Vec<LocationTimes>,
}

/// Threads of some ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadTotals {
    /// Aggregation in the processes; `None` without processes.
    aggregation: Option<Aggregation>,
    roles: BTreeMap<Role, RoleTotals>,
    /// By descending spread, then by rank.
    processes: Vec<ListedProcess>,
    /// Order of the first process that did not fit; no later one is kept, so that the order of the
    /// reduction does not matter.
    first_unlisted: Option<(Reverse<u64>, u32)>,
    unlisted: u32,
    /// Inclusive times of each role by context, in nanoseconds, summed over threads.
    contexts: BTreeMap<NodeId, BTreeMap<Role, u128>>,
    /// Statistics over threads by context, over the threads of all ranks; exclusive times.
    statistics: BTreeMap<NodeId, ThreadStatistics>,
}

impl ThreadTotals {
    /// Returns the inclusive time of each rank's slowest other thread in a context, summed over
    /// ranks, in nanoseconds; 0 if the aggregation does not keep that thread.
    pub fn slowest_ns(&self, node: NodeId) -> u128 {
        let roles = self.contexts.get(&node);
        roles.and_then(|roles| roles.get(&Role::Slowest)).copied().unwrap_or(0)
    }

    /// Returns the listed process with the most work of its slowest other thread beyond the mean of
    /// its further ones; `None` if no process has an uneven thread, or under another aggregation
    /// than `key`.
    pub fn most_uneven(&self) -> Option<UnevenProcess> {
        let uneven = self.processes.iter().filter_map(ListedProcess::uneven);
        let uneven = uneven.filter(|it| it.excess_ns() > 0.0);
        uneven.max_by(|a, b| a.excess_ns().total_cmp(&b.excess_ns()).then(b.rank.cmp(&a.rank)))
    }

    /// Adds one rank. `places` are the contexts of its communicating thread and of its other
    /// threads in the totals, by node of the rank's tree.
    pub fn add_rank(&mut self, rank: &Rank<'_>, places: [&[Option<NodeId>]; 2]) {
        let profile = &rank.input.profile;
        let aggregated = &profile.thread_locations;
        self.aggregation = Some(aggregated.aggregation);
        for (node, statistics) in &aggregated.statistics {
            let place = places.iter().find_map(|places| places[*node as usize]);
            if let Some(place) = place {
                combine_statistics(self.statistics.entry(place).or_default(), statistics);
            }
        }
        if aggregated.locations.is_empty() {
            return;
        }
        let initial = rank.phases.iter().flat_map(|phase| &phase.values);
        let mut locations = vec![LocationTimes {
            number: None,
            threads: 1,
            ..LocationTimes::of(rank, Role::Initial, initial)
        }];
        for (role, location) in with_roles(&aggregated.locations) {
            self.add_contexts(rank, role, location, places[1]);
            locations.push(LocationTimes {
                number: location.number,
                threads: location.threads,
                ..LocationTimes::of(rank, role, location.values.iter())
            });
        }
        for it in &locations {
            let totals = self.roles.entry(it.role).or_default();
            totals.ranks = totals.ranks.union(&RankSet::from_iter([rank.input.rank]));
            totals.threads += it.threads;
            totals.work_ns += u128::from(it.work_ns);
            totals.time_ns += u128::from(it.time_ns);
            totals.of_ranks.accumulate(it.work_ns / it.threads.max(1));
        }
        let means = locations[1..].iter().map(|it| it.work_ns / it.threads.max(1));
        let spread_ns = means.clone().max().unwrap_or(0) - means.min().unwrap_or(0);
        self.processes.push(ListedProcess {
            rank: rank.input.rank,
            threads: profile.threads,
            spread_ns,
            locations,
        });
        self.shorten();
    }

    fn add_contexts(
        &mut self,
        rank: &Rank<'_>,
        role: Role,
        location: &ThreadLocation,
        places: &[Option<NodeId>],
    ) {
        let tree = &rank.input.profile.tree;
        let mut own = vec![0; tree.nodes.len()];
        for (node, value) in &location.values {
            own[*node as usize] += value.exclusive_ns;
        }
        let (inclusive, _) = rolled_up(tree, &own);
        for (ns, place) in inclusive.into_iter().zip(places) {
            let Some(place) = place.filter(|_| ns > 0) else { continue };
            *self.contexts.entry(place).or_default().entry(role).or_default() += u128::from(ns);
        }
    }

    /// Adds other ranks; `places` are their contexts here.
    pub fn combine(&mut self, other: Self, places: &[NodeId]) {
        self.aggregation = self.aggregation.or(other.aggregation);
        merge(&mut self.roles, other.roles, |ours, theirs| {
            ours.ranks = ours.ranks.union(&theirs.ranks);
            ours.threads += theirs.threads;
            ours.work_ns += theirs.work_ns;
            ours.time_ns += theirs.time_ns;
            ours.of_ranks.combine(&theirs.of_ranks);
        });
        merge(&mut self.contexts, moved(other.contexts, places), |ours, theirs| {
            merge(ours, theirs, |ours, ns| *ours += ns);
        });
        merge(&mut self.statistics, moved(other.statistics, places), |ours, theirs| {
            combine_statistics(ours, &theirs);
        });
        self.unlisted += other.unlisted;
        self.processes.extend(other.processes);
        self.first_unlisted = match (self.first_unlisted, other.first_unlisted) {
            (Some(ours), Some(theirs)) => Some(ours.min(theirs)),
            (ours, theirs) => ours.or(theirs),
        };
        self.shorten();
    }

    /// Keeps the processes with the largest differences between their threads.
    fn shorten(&mut self) {
        self.processes.sort_by_key(ListedProcess::order);
        let mut threads = 0;
        let mut fits = |it: &ListedProcess| {
            threads += it.locations.len();
            threads <= MAX_LISTED_THREADS
                && self.first_unlisted.is_none_or(|first| it.order() < first)
        };
        let kept = self.processes.iter().take(MAX_LISTED_PROCESSES).take_while(|it| fits(it));
        let kept = kept.count();
        if let Some(first) = self.processes.get(kept).map(ListedProcess::order) {
            self.first_unlisted = Some(self.first_unlisted.map_or(first, |it| it.min(first)));
        }
        self.unlisted += (self.processes.len() - kept) as u32;
        self.processes.truncate(kept);
    }
}

/// Returns the locations of a process with their roles: classes are numbered by descending number
/// of threads.
fn with_roles(locations: &[ThreadLocation]) -> Vec<(Role, &ThreadLocation)> {
    let mut sorted: Vec<&ThreadLocation> = locations.iter().collect();
    sorted.sort_by_key(|it| (it.kind, Reverse(it.threads), it.number));
    if locations.iter().all(|it| it.kind != LocationKind::Class) {
        sorted = locations.iter().collect();
    }
    let mut class = 0;
    let role = |location: &ThreadLocation| match location.kind {
        LocationKind::Slowest => Role::Slowest,
        LocationKind::Fastest => Role::Fastest,
        LocationKind::Thread => location.number.map_or(Role::Rest, Role::Thread),
        LocationKind::Rest => Role::Rest,
        LocationKind::Class => {
            class += 1;
            if class <= MAX_CLASSES { Role::Class(class) } else { Role::Rest }
        }
    };
    let roles: Vec<Role> = sorted.iter().copied().map(role).collect();
    roles.into_iter().zip(sorted).collect()
}

impl LocationTimes {
    /// Returns the times of values; number and number of threads are still to be set.
    fn of<'v>(
        rank: &Rank<'_>,
        role: Role,
        values: impl Iterator<Item = &'v (NodeId, NodeValue)>,
    ) -> Self {
        let mut times = Self { role, number: None, threads: 0, work_ns: 0, time_ns: 0 };
        for (node, value) in values {
            times.time_ns += value.exclusive_ns;
            if rank.context_classes[*node as usize].is_useful() {
                times.work_ns += value.exclusive_ns;
            }
        }
        times
    }
}

/// Work of the threads of a process, the communicating one left out.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UnevenProcess {
    /// Rank of the process.
    pub rank: u32,
    /// Work of the slowest thread, in nanoseconds.
    pub slowest_ns: f64,
    /// Mean work of the others, in nanoseconds.
    pub others_ns: f64,
}

impl UnevenProcess {
    fn excess_ns(&self) -> f64 {
        self.slowest_ns - self.others_ns
    }
}

impl ListedProcess {
    fn uneven(&self) -> Option<UnevenProcess> {
        let slowest = self.locations.iter().find(|it| it.role == Role::Slowest)?;
        let others =
            self.locations.iter().filter(|it| matches!(it.role, Role::Fastest | Role::Rest));
        let (threads, work_ns) =
            others.fold((0, 0), |(threads, ns), it| (threads + it.threads, ns + it.work_ns));
        (threads > 0).then(|| UnevenProcess {
            rank: self.rank,
            slowest_ns: slowest.work_ns as f64,
            others_ns: work_ns as f64 / threads as f64,
        })
    }

    fn order(&self) -> (Reverse<u64>, u32) {
        (Reverse(self.spread_ns), self.rank)
    }
}

fn combine_statistics(ours: &mut ThreadStatistics, theirs: &ThreadStatistics) {
    if ours.threads == 0 {
        *ours = *theirs;
        return;
    }
    ours.threads += theirs.threads;
    ours.minimum.exclusive_ns = ours.minimum.exclusive_ns.min(theirs.minimum.exclusive_ns);
    ours.maximum.exclusive_ns = ours.maximum.exclusive_ns.max(theirs.maximum.exclusive_ns);
    ours.sum.add(&theirs.sum);
    ours.squares_ns2 = ours.squares_ns2.saturating_add(theirs.squares_ns2);
}

#[cfg(test)]
mod tests;
