//! Loops over all ranks: how often they ran, their iterations, and which of these were alike.

use std::collections::BTreeMap;

use plimsoll_collector::profile::{LoopProfile, NodeId, ProcessProfile};
use plimsoll_trees::Members;
use serde::{Deserialize, Serialize};

use crate::ranks::RankSet;

/// One loop, by sums over ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopTotals {
    /// Those that ran it.
    pub ranks: RankSet,
    /// How often it was entered.
    pub executions: u64,
    /// Wall time of all executions.
    pub duration_ns: u64,
    /// Time and number of iterations, each of so many in a row.
    durations: Vec<(u64, u64)>,
    stride: u64,
    /// Where its executions are the longest.
    pub longest: Longest,
}

/// The loop on the rank whose executions are the longest.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Longest {
    /// Of one execution, on average.
    mean_ns: u64,
    /// Of several ranks that are as long, the lowest.
    rank: u32,
    /// How often it was entered there.
    pub executions: u64,
    /// Iterations that were told apart, in all of them.
    pub accepted: u64,
    /// Stretches that were not.
    pub rejected: u64,
    /// Calls of one that it makes itself.
    pub calls: Option<u64>,
    /// Iterations that were alike, their number, their time.
    pub clusters: Vec<(Members, u64, u64)>,
}

/// The loops of all ranks that are in.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loops {
    by_node: BTreeMap<NodeId, LoopTotals>,
}

impl Loops {
    /// Takes in those of a rank, whose contexts are at `places`.
    pub fn add_rank(&mut self, rank: u32, profile: &ProcessProfile, places: &[Option<NodeId>]) {
        let calls = calls_of_loops(profile);
        for it in &profile.loops {
            let Some(node) = places[it.node as usize] else { continue };
            let calls = calls.get(&it.node).copied();
            self.take(node, LoopTotals::of_rank(rank, it, calls));
        }
    }

    /// Takes in those of other ranks, whose contexts are at `places`.
    pub fn combine(&mut self, other: Self, places: &[NodeId]) {
        for (node, totals) in other.by_node {
            self.take(places[node as usize], totals);
        }
    }

    /// All of them, the longest first.
    pub fn longest_first(&self) -> Vec<(NodeId, &LoopTotals)> {
        let mut found: Vec<_> = self.by_node.iter().map(|(node, it)| (*node, it)).collect();
        found.sort_by_key(|(node, it)| (std::cmp::Reverse(it.duration_ns), *node));
        found
    }

    fn take(&mut self, node: NodeId, totals: LoopTotals) {
        self.by_node.entry(node).or_default().combine(totals);
    }
}

impl LoopTotals {
    /// Time and number of iterations, each of as many in a row, in no more than `most` steps.
    pub fn durations(&self, most: usize) -> Vec<(u64, u64)> {
        let (mut durations, mut stride) = (self.durations.clone(), self.stride.max(1));
        while durations.len() > most {
            halve(&mut durations, &mut stride);
        }
        durations
    }

    fn of_rank(rank: u32, it: &LoopProfile, calls: Option<u64>) -> Self {
        Self {
            ranks: RankSet::from_iter([rank]),
            executions: it.executions,
            duration_ns: it.duration_ns,
            durations: it.durations.clone(),
            stride: it.stride,
            longest: Longest {
                mean_ns: it.duration_ns / it.executions.max(1),
                rank,
                executions: it.executions,
                accepted: it.accepted,
                rejected: it.rejected,
                calls,
                clusters: it.clusters.clone(),
            },
        }
    }

    fn combine(&mut self, mut other: Self) {
        if self.ranks.is_empty() {
            *self = other;
            return;
        }
        self.ranks = self.ranks.union(&other.ranks);
        self.executions += other.executions;
        self.duration_ns = self.duration_ns.saturating_add(other.duration_ns);
        let of = |it: &Longest| (it.mean_ns, std::cmp::Reverse(it.rank));
        if of(&other.longest) > of(&self.longest) {
            self.longest = other.longest;
        }
        while self.stride < other.stride {
            halve(&mut self.durations, &mut self.stride);
        }
        while other.stride < self.stride {
            halve(&mut other.durations, &mut other.stride);
        }
        if self.durations.len() < other.durations.len() {
            std::mem::swap(&mut self.durations, &mut other.durations);
        }
        for ((time, number), (more, others)) in self.durations.iter_mut().zip(other.durations) {
            *time = time.saturating_add(more);
            *number += others;
        }
    }
}

/// What samples must tell apart of a loop's iterations at least, as a fraction of the calls at one place
/// in it, for these to be as many as the iterations.
const MIN_TOLD_APART: f64 = 0.9;

/// Whether a loop that makes a call at one place so many times has as many iterations. A place is passed once in
/// an iteration at most, and samples tell apart no more iterations than there are; a call that is made
/// in some iterations only is much rarer than what samples tell apart.
pub fn proves(calls: u64, accepted: u64, rejected: u64) -> bool {
    accepted <= calls && (accepted + rejected) as f64 >= MIN_TOLD_APART * calls as f64
}

/// Neighbours become one.
fn halve(durations: &mut Vec<(u64, u64)>, stride: &mut u64) {
    let pair = |pair: &[(u64, u64)]| {
        let sum = |(a, b): (u64, u64), (c, d): &(u64, u64)| (a.saturating_add(*c), b + d);
        pair.iter().fold((0, 0), sum)
    };
    *durations = durations.chunks(2).map(pair).collect();
    *stride *= 2;
}

/// Of each loop with wrapped calls of its own, how often it made one of them: a call at one place in its
/// code, or at all of them, for a compiler may have copied it (unrolling). Of several, the number that
/// is that of the iterations or [proves](proves()) it; else the one that most places agree on.
fn calls_of_loops(profile: &ProcessProfile) -> BTreeMap<NodeId, u64> {
    let mut calls: BTreeMap<NodeId, u64> = BTreeMap::new();
    for (node, value) in profile.phases.iter().flat_map(|phase| &phase.values) {
        *calls.entry(*node).or_default() += value.calls;
    }
    let mut found = BTreeMap::new();
    for it in &profile.loops {
        let mut places: BTreeMap<u64, u32> = BTreeMap::new();
        let mut all: BTreeMap<u32, u64> = BTreeMap::new();
        for (node, number) in calls.iter().filter(|(_, number)| **number > 0) {
            let inner = &profile.tree.nodes[*node as usize];
            let is_call = profile.tree.frames[inner.frame as usize].call.is_some();
            if is_call && inner.parent == Some(it.node) {
                *places.entry(*number).or_default() += 1;
                *all.entry(inner.frame).or_default() += number;
            }
        }
        let fits = |number: &u64| *number == it.accepted;
        let exactly = places.keys().chain(all.values()).copied().find(fits);
        let nearly =
            places.keys().copied().filter(|it_is| proves(*it_is, it.accepted, it.rejected));
        let fitting = exactly.or(nearly.max());
        let most = places.iter().max_by_key(|(_, votes)| **votes).map(|(number, _)| *number);
        found.extend(fitting.or(most).map(|number| (it.node, number)));
    }
    found
}
