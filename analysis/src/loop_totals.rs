//! Loops over all ranks: number of executions, iterations, and clusters of similar iterations.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_collector::profile::{
    ContextTree, FrameKind, LoopCluster, LoopProfile, NodeId, ProcessProfile,
};
use serde::{Deserialize, Serialize};

use crate::clocks::RunBegin;
use crate::input::RankInput;
use crate::ranks::RankSet;

/// One loop, with sums over ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopTotals {
    /// Ranks that ran the loop.
    pub ranks: RankSet,
    /// Number of times the loop was entered.
    pub executions: u64,
    /// Wall time of all executions, in nanoseconds.
    pub duration_ns: u64,
    /// Wall time (ns) and number of iterations in each step of `stride` consecutive iterations.
    durations: Vec<(u64, u64)>,
    stride: u64,
    /// The loop on the rank with the longest executions.
    pub longest: Longest,
}

/// A loop on the rank with the longest mean execution.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Longest {
    /// Mean duration of one execution, in nanoseconds.
    pub mean_ns: u64,
    /// Lowest of the ranks with this mean duration.
    pub rank: u32,
    /// Begin of this rank's run.
    pub run_begin: Option<RunBegin>,
    /// Begin of each step of [`Self::stride`] consecutive iterations, in nanoseconds since the
    /// begin of this rank's run; empty if the rank entered the loop more than once.
    begins: Vec<Option<u64>>,
    stride: u64,
    /// Number of times this rank entered the loop.
    pub executions: u64,
    /// Whether `executions` is exact.
    pub proves_executions: bool,
    /// Number of iterations that samples tell apart, over all executions.
    pub accepted: u64,
    /// Number of stretches too short to be iterations, over all executions.
    pub rejected: u64,
    /// Number of calls at one place of the loop's own code, or at all copies of that place; `None`
    /// without wrapped calls there.
    pub calls: Option<u64>,
    /// Clusters of similar iterations.
    pub clusters: Vec<LoopCluster>,
}

/// Loops of all ranks combined so far.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Loops {
    by_node: BTreeMap<NodeId, LoopTotals>,
}

impl Loops {
    /// Adds the loops of one rank. `places` holds the canonical node of each of the rank's
    /// contexts.
    pub fn add_rank(&mut self, input: &RankInput, places: &[Option<NodeId>]) {
        let profile = &input.profile;
        let calls = calls_of_loops(profile);
        for it in &profile.loops {
            let Some(node) = places[it.node as usize] else { continue };
            let mut totals = LoopTotals::of_rank(input, it, calls.get(&it.node).copied());
            totals.longest.proves_executions = proves_executions(profile, &calls, it);
            totals.longest.renumber(|node| places[node as usize]);
            self.take(node, totals);
        }
    }

    /// Adds the loops of other ranks. `places` holds the canonical node of each of their contexts.
    pub fn combine(&mut self, other: Self, places: &[NodeId]) {
        for (node, mut totals) in other.by_node {
            totals.longest.renumber(|node| Some(places[node as usize]));
            self.take(places[node as usize], totals);
        }
    }

    /// Returns all loops, sorted by falling wall time.
    pub fn longest_first(&self) -> Vec<(NodeId, &LoopTotals)> {
        let mut found: Vec<_> = self.by_node.iter().map(|(node, it)| (*node, it)).collect();
        found.sort_by_key(|(node, it)| (std::cmp::Reverse(it.duration_ns), *node));
        found
    }

    fn take(&mut self, node: NodeId, totals: LoopTotals) {
        self.by_node.entry(node).or_default().combine(totals);
    }
}

/// Consecutive iterations of a loop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// Number of the first iteration.
    pub first: u64,
    /// Wall time on all ranks.
    pub time_ns: u64,
    /// Number of iterations on all ranks.
    pub count: u64,
    /// Begin on the rank with the longest executions, since the begin of that rank's run; `None`
    /// if that is not known.
    pub begin_ns: Option<u64>,
}

impl Longest {
    /// Returns when the first accepted one of `stride` iterations from `first` on began.
    fn begin_ns(&self, first: u64, stride: u64) -> Option<u64> {
        let own = self.stride.max(1);
        let range = (first / own) as usize..((first + stride) / own) as usize;
        self.begins
            .get(range.start..range.end.min(self.begins.len()))?
            .iter()
            .copied()
            .flatten()
            .min()
    }

    /// Gives contexts their numbers in another tree, and drops those that are not in the tree.
    fn renumber(&mut self, place: impl Fn(NodeId) -> Option<NodeId>) {
        for cluster in &mut self.clusters {
            cluster.contexts.retain_mut(|(node, _)| place(*node).map(|at| *node = at).is_some());
            let instance = cluster.instance.iter_mut().map(|instance| &mut instance.slices);
            for slices in [&mut cluster.slices].into_iter().chain(instance) {
                slices.retain_mut(|it| place(it.node).map(|at| it.node = at).is_some());
            }
        }
    }
}

impl LoopTotals {
    /// Returns the steps of equally many consecutive iterations in which there are iterations, at
    /// most `most`, and the number of iterations in a step.
    pub fn steps(&self, most: usize) -> (Vec<Step>, u64) {
        let (mut durations, mut stride) = (self.durations.clone(), self.stride.max(1));
        while durations.len() > most {
            halve(&mut durations, &mut stride);
        }
        let steps = durations.into_iter().zip((0..).step_by(stride as usize));
        let step = |((time_ns, count), first): ((u64, u64), u64)| Step {
            first,
            time_ns,
            count,
            begin_ns: self.longest.begin_ns(first, stride),
        };
        (steps.map(step).filter(|step| step.count > 0).collect(), stride)
    }

    fn of_rank(input: &RankInput, it: &LoopProfile, calls: Option<u64>) -> Self {
        Self {
            ranks: RankSet::from_iter([input.rank]),
            executions: it.executions,
            duration_ns: it.duration_ns,
            durations: it.durations.clone(),
            stride: it.stride,
            longest: Longest {
                mean_ns: it.duration_ns / it.executions.max(1),
                rank: input.rank,
                run_begin: (!it.begins.is_empty()).then(|| RunBegin::of(input)),
                begins: it.begins.clone(),
                stride: it.stride,
                executions: it.executions,
                proves_executions: false,
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

/// Minimum number of iterations that samples tell apart, as a fraction of the calls at one place in
/// the loop, for the number of calls to be the number of iterations.
const MIN_TOLD_APART: f64 = 0.9;

/// Returns whether a loop with this number of calls at one place has as many iterations. An
/// iteration passes a place at most once, and samples tell apart at most as many iterations as
/// there are, rejected ones included; a call that happens only in some iterations is much rarer
/// than the distinguished iterations.
pub fn proves(calls: u64, accepted: u64, rejected: u64) -> bool {
    let told_apart = accepted + rejected;
    told_apart <= calls && told_apart as f64 >= MIN_TOLD_APART * calls as f64
}

/// Returns whether a loop was entered as often as samples show. Samples do not tell two executions
/// apart if the program does little between them. But an iteration of the loop around it enters the
/// loop at most once, and a loop outside of all loops is entered once. `calls` are those of
/// [`calls_of_loops`].
fn proves_executions(
    profile: &ProcessProfile,
    calls: &BTreeMap<NodeId, u64>,
    it: &LoopProfile,
) -> bool {
    let Some((outer, _)) = loop_of(&profile.tree, it.node) else { return it.executions == 1 };
    let outer = profile.loops.iter().find(|other| other.node == outer);
    let is_proof = |(outer, calls): (&LoopProfile, u64)| {
        calls == it.executions && proves(calls, outer.accepted, outer.rejected)
    };
    outer.and_then(|outer| Some((outer, *calls.get(&outer.node)?))).is_some_and(is_proof)
}

/// Merges each pair of neighbouring steps and doubles the stride.
fn halve(durations: &mut Vec<(u64, u64)>, stride: &mut u64) {
    let pair = |pair: &[(u64, u64)]| {
        let sum = |(a, b): (u64, u64), (c, d): &(u64, u64)| (a.saturating_add(*c), b + d);
        pair.iter().fold((0, 0), sum)
    };
    *durations = durations.chunks(2).map(pair).collect();
    *stride *= 2;
}

/// Numbers of calls in one loop, without those in loops inside of it.
#[derive(Default)]
struct CallsInLoop {
    /// Number of places in the loop's own code, by the number of calls there.
    places: BTreeMap<u64, u32>,
    /// Number of calls in the loop's own code, by frame.
    by_frame: BTreeMap<u32, u64>,
    /// Numbers of calls in functions that the loop calls.
    in_functions: BTreeSet<u64>,
}

impl CallsInLoop {
    /// Returns the number of calls that is most likely the number of iterations. Counted are the
    /// calls at one place in the loop's code, or of one frame at all places, because a compiler may
    /// have copied the call (unrolling). Of several numbers, the one that is equal to the number of
    /// iterations or [proves](proves()) it is taken, otherwise the one on which most places agree.
    ///
    /// A function may be called from several places of the loop. The calls in it count only if they
    /// are as many as the iterations that samples distinguished.
    fn number(&self, accepted: u64, rejected: u64) -> Option<u64> {
        let fits = |number: &u64| *number == accepted;
        let exactly = self.places.keys().chain(self.by_frame.values()).copied().find(fits);
        let nearly = self.places.keys().copied().filter(|it| proves(*it, accepted, rejected));
        let in_functions = self.in_functions.get(&(accepted + rejected)).copied();
        let most = self.places.iter().max_by_key(|(_, votes)| **votes).map(|(number, _)| *number);
        exactly.or(nearly.max()).or(in_functions).or(most)
    }
}

/// Returns the number of calls per loop, for loops with wrapped calls of their own.
fn calls_of_loops(profile: &ProcessProfile) -> BTreeMap<NodeId, u64> {
    let mut calls: BTreeMap<NodeId, u64> = BTreeMap::new();
    for (node, value) in profile.phases.iter().flat_map(|phase| &phase.values) {
        *calls.entry(*node).or_default() += value.calls;
    }
    let mut in_loops: BTreeMap<NodeId, CallsInLoop> = BTreeMap::new();
    for (node, number) in calls.into_iter().filter(|(_, number)| *number > 0) {
        let frame = profile.tree.nodes[node as usize].frame;
        if profile.tree.frames[frame as usize].call.is_none() {
            continue;
        }
        let Some((innermost, through_functions)) = loop_of(&profile.tree, node) else { continue };
        let found = in_loops.entry(innermost).or_default();
        if through_functions {
            found.in_functions.insert(number);
        } else {
            *found.places.entry(number).or_default() += 1;
            *found.by_frame.entry(frame).or_default() += number;
        }
    }
    let number = |it: &LoopProfile| {
        let number = in_loops.get(&it.node)?.number(it.accepted, it.rejected)?;
        Some((it.node, number))
    };
    profile.loops.iter().filter_map(number).collect()
}

/// Returns the innermost loop around a context, and whether functions lie between them; inlined
/// functions are the loop's own code.
fn loop_of(tree: &ContextTree, inside: NodeId) -> Option<(NodeId, bool)> {
    let mut through_functions = false;
    let mut at = tree.nodes[inside as usize].parent;
    while let Some(node) = at {
        let it = &tree.nodes[node as usize];
        match tree.frames[it.frame as usize].kind {
            FrameKind::Loop => return Some((node, through_functions)),
            FrameKind::Function | FrameKind::Mpi => through_functions = true,
            FrameKind::Inlined | FrameKind::Line => {}
        }
        at = it.parent;
    }
    None
}
