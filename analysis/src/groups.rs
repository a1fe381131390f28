//! Process groups: finds the ranks with the same control flow in a phase (PPoPP20, 5.4). Either all
//! ranks of a phase form one group, or there are several groups with tasks of their own.
//!
//! A context distinguishes ranks if it takes a large fraction of the phase on the ranks that have
//! it and is absent on the others. Ranks with the same set of distinguishing contexts have the same
//! control flow. A rank with a subset of another group's contexts belongs to that group: a program
//! in which the lowest rank writes a file while the others wait has a branch, not a second task. A
//! group has a task of its own only if the other groups have a context that this group lacks.
//!
//! PPoPP20 compares control flow in the program's graph; here the sampled contexts are compared. A
//! branch without samples therefore distinguishes no ranks, and ranks that run the same code on
//! different communicators form one group.

use std::collections::BTreeMap;

use plimsoll_collector::profile::{ContextTree, NodeId};
use serde::{Deserialize, Serialize};

use crate::canonical::{Step, find, path};
use crate::communicator::{Communicator, CommunicatorError, broadcast, reduce};
use crate::finding::Finding;
use crate::frame_classes::is_part;
use crate::imbalance::Cause;
use crate::metrics::{Accumulator, NS_PER_S};
use crate::owners::Owners;
use crate::rank::Rank;
use crate::ranks::RankSet;
use crate::sites::Sites;
use crate::summary::{PhaseKind, RankGroup};
use crate::thresholds::{
    MIN_GROUP_CONTEXT_FRACTION, MIN_GROUP_CONTEXT_PERIODS, MIN_GROUP_EXCESS_OF_MEAN,
    MIN_GROUP_EXCESS_OF_RUN,
};
use crate::totals::{PhaseTotals, Totals};

/// Maximum number of distinguishing contexts of a phase; the contexts with the longest total time
/// are kept.
const MAX_CONTEXTS: usize = u64::BITS as usize;

/// Contexts of a phase that only some ranks have, at most 64.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Divergence {
    /// First index of the phase.
    phase: u64,
    contexts: Vec<Vec<Step>>,
}

/// Returns the diverging contexts of each phase, about which all ranks are then asked.
pub fn divergences(totals: &Totals, owners: &Owners) -> Vec<Divergence> {
    let diverging = totals.sums.phases.iter().filter_map(|(first_index, phase)| {
        let nodes = diverging(totals, owners, phase);
        let contexts = nodes.into_iter().map(|node| path(&totals.tree.contexts, node)).collect();
        let divergence = Divergence { phase: *first_index, contexts };
        (!divergence.contexts.is_empty()).then_some(divergence)
    });
    diverging.collect()
}

fn diverging(totals: &Totals, owners: &Owners, phase: &PhaseTotals) -> Vec<NodeId> {
    let ranks = totals.job.ranks.len();
    let least_ns = (MIN_GROUP_CONTEXT_FRACTION * phase.work.mean(ranks))
        .max(MIN_GROUP_CONTEXT_PERIODS * totals.job.kept_period_ns as f64);
    let mut found: Vec<(u128, NodeId)> = Vec::new();
    let sites = Sites::new(&totals.tree.contexts, owners, phase);
    let is_some = |time: &Accumulator| {
        time.ranks < ranks && time.mean(time.ranks) >= least_ns && time.ranks > 0
    };
    let tree = &totals.tree.contexts;
    let is_whole = |node: NodeId| !is_part(&tree.frames[tree.nodes[node as usize].frame as usize]);
    for (node, totals) in phase.nodes.iter().filter(|(node, _)| is_whole(**node)) {
        // Skip callees of a function that is itself called by some ranks only: they add no
        // information.
        let outer = owners.function_outside(tree, *node).and_then(|it| phase.nodes.get(&it));
        // Skip functions that every rank calls at some call site: a different call site is no other
        // task.
        let elsewhere = sites.time(*node).ranks >= ranks;
        if is_some(&totals.inclusive)
            && !elsewhere
            && !outer.is_some_and(|outer| is_some(&outer.inclusive))
        {
            found.push((totals.inclusive.sum, *node));
        }
    }
    found.sort_by_key(|(sum, node)| (std::cmp::Reverse(*sum), *node));
    found.truncate(MAX_CONTEXTS);
    found.into_iter().map(|(_, node)| node).collect()
}

/// Ranks of a phase with the same set of distinguishing contexts.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alike {
    /// The ranks.
    pub ranks: RankSet,
    /// Work of the ranks in the phase, in nanoseconds.
    pub work: Accumulator,
}

impl Alike {
    /// Returns the mean work of a rank, in nanoseconds.
    pub fn mean_work_ns(&self) -> f64 {
        self.work.mean(self.ranks.len())
    }
}

/// Ranks of a phase by the set of diverging contexts that they have: bit i stands for context i.
pub type ByContexts = BTreeMap<u64, Alike>;

/// Asks all ranks for their distinguishing contexts. Returns the answers at process 0, by first
/// index of the phase; `None` elsewhere. Only process 0's `divergences` are used. Collective.
pub fn ask(
    comm: &dyn Communicator,
    local: &[Rank<'_>],
    divergences: Result<Option<Vec<Divergence>>, CommunicatorError>,
) -> Result<Option<BTreeMap<u64, ByContexts>>, CommunicatorError> {
    let divergences = broadcast(comm, divergences)?;
    reduce(comm, of_ranks(local, &divergences), combine)
}

fn of_ranks(ranks: &[Rank<'_>], divergences: &[Divergence]) -> BTreeMap<u64, ByContexts> {
    let of_phase = |divergence: &Divergence| {
        let mut groups = ByContexts::default();
        for rank in ranks {
            let (bits, work_ns) = has(rank, divergence);
            let alike = Alike {
                ranks: RankSet::from_iter([rank.input.rank]),
                work: Accumulator::from_iter([work_ns]),
            };
            join(&mut groups, bits, alike);
        }
        (divergence.phase, groups)
    };
    divergences.iter().map(of_phase).collect()
}

fn combine(
    mut ours: BTreeMap<u64, ByContexts>,
    theirs: BTreeMap<u64, ByContexts>,
) -> BTreeMap<u64, ByContexts> {
    for (phase, groups) in theirs {
        let ours = ours.entry(phase).or_default();
        groups.into_iter().for_each(|(bits, alike)| join(ours, bits, alike));
    }
    ours
}

/// Returns the diverging contexts that a rank has (bit i: context i) and its work in the phase in
/// nanoseconds.
fn has(rank: &Rank<'_>, divergence: &Divergence) -> (u64, u64) {
    let phase = rank.phases.iter().find(|phase| phase.first_index == divergence.phase);
    let Some(phase) = phase else { return (0, 0) };
    let work = rank.phase_work(phase);
    let mut bits = 0;
    for (bit, context) in divergence.contexts.iter().enumerate() {
        let node = find(&rank.input.profile.tree, context);
        let is_there = node.is_some_and(|node| work.iter().any(|(worker, _)| *worker == node));
        bits |= u64::from(is_there) << bit;
    }
    (bits, work.iter().map(|(_, work)| work.own_ns).sum())
}

fn join(groups: &mut ByContexts, bits: u64, alike: Alike) {
    let ours = groups.entry(bits).or_default();
    ours.ranks = ours.ranks.union(&alike.ranks);
    ours.work.combine(&alike.work);
}

/// Returns the kind and the groups of a phase; `groups` is `None` if all ranks have the same
/// control flow.
pub fn shown(totals: &Totals, phase: &PhaseTotals, groups: Option<&Vec<Alike>>) -> Shown {
    let Some(groups) = groups else {
        // The ranks that have the phase: all ranks of the job if the ranks agree on phases.
        let all = Alike { ranks: totals.job.ranks.clone(), work: phase.work };
        return (PhaseKind::Spmd, vec![group(&all)]);
    };
    (PhaseKind::Mpmd, groups.iter().map(group).collect())
}

/// Returns the process groups of a phase from the answers of its ranks, by ascending lowest rank;
/// empty if all ranks have the same control flow.
pub fn of_phase(answers: &ByContexts) -> Vec<Alike> {
    let groups = tasks(answers);
    let several = groups.len() > 1;
    groups.into_iter().filter(|_| several).map(|(_, alike)| alike).collect()
}

/// Returns, for each diverging context that exactly one group has, the index of that group.
pub fn doers(
    totals: &Totals,
    owners: &Owners,
    phase: &PhaseTotals,
    answers: &ByContexts,
) -> BTreeMap<NodeId, u32> {
    let tasks = tasks(answers);
    let doer = |(bit, node): (usize, NodeId)| {
        let mut does = (0..).zip(&tasks).filter(|(_, (bits, _))| bits >> bit & 1 == 1);
        let (group, _) = does.next()?;
        does.next().is_none().then_some((node, group))
    };
    diverging(totals, owners, phase).into_iter().enumerate().filter_map(doer).collect()
}

/// Returns the group with the largest mean work and its excess over the mean of all ranks, in
/// seconds. `None` if there is one group only, or if the excess is below the thresholds
/// (`MIN_GROUP_EXCESS_OF_RUN`, `MIN_GROUP_EXCESS_OF_MEAN`).
pub fn heaviest(totals: &Totals, phase: &PhaseTotals, groups: &[Alike]) -> Option<(u32, f64)> {
    let mean_s = phase.work.mean(totals.job.ranks.len()) / NS_PER_S;
    let (index, most) =
        (0..).zip(groups).max_by(|(_, a), (_, b)| a.mean_work_ns().total_cmp(&b.mean_work_ns()))?;
    let more_s = most.mean_work_ns() / NS_PER_S - mean_s;
    let elapsed_s = totals.job.elapsed_ns as f64 / NS_PER_S;
    let unequal =
        more_s > MIN_GROUP_EXCESS_OF_RUN * elapsed_s && more_s > MIN_GROUP_EXCESS_OF_MEAN * mean_s;
    (groups.len() > 1 && unequal).then_some((index, more_s))
}

/// Returns the task behind a loss: the outermost function that contains all causes and belongs to
/// one group only, according to `is_own`. `None` if that function is itself one of the causes, or
/// if the causes lie on several groups.
pub fn task(
    contexts: &ContextTree,
    finding: &Finding,
    is_own: impl Fn(&Cause) -> bool,
) -> Option<Cause> {
    let outwards = |node: NodeId| contexts.outwards(node);
    let is_function =
        |node: &NodeId| !is_part(&contexts.frames[contexts.nodes[*node as usize].frame as usize]);
    let causes = &finding.causes;
    let holds_all =
        |node: &NodeId| causes.iter().all(|cause| outwards(cause.node).any(|outer| outer == *node));
    let ns = causes.iter().map(|cause| cause.ns).sum();
    let common = outwards(causes.first()?.node).filter(is_function).filter(holds_all);
    let tasks = common.map(|node| Cause::new(node, false, ns)).take_while(is_own);
    let is_new = |task: &Cause| !causes.iter().any(|cause| cause.node == task.node);
    tasks.last().filter(|task| !finding.evened_out && is_new(task))
}

/// Kind of a phase and its process groups.
pub type Shown = (PhaseKind, Vec<RankGroup>);

fn group(alike: &Alike) -> RankGroup {
    RankGroup { ranks: alike.ranks.to_string(), mean_work_s: alike.mean_work_ns() / NS_PER_S }
}

/// Returns the process groups with tasks of their own, with their contexts as bits, by ascending
/// lowest rank. Ranks with a subset of a group's contexts are added to that group; if several
/// groups qualify, to the largest.
fn tasks(answers: &ByContexts) -> Vec<(u64, Alike)> {
    let is_part = |one: u64, other: u64| one != other && one & other == one;
    let whole = |bits: &u64| !answers.keys().any(|other| is_part(*bits, *other));
    let mut tasks: Vec<(u64, Alike)> = Vec::new();
    for (bits, alike) in answers.iter().filter(|(bits, _)| whole(bits)) {
        tasks.push((*bits, alike.clone()));
    }
    // Sizes before any subset joins, so that the result does not depend on the order of joining.
    let sizes: Vec<u32> = tasks.iter().map(|(_, alike)| alike.ranks.len()).collect();
    for (bits, alike) in answers.iter().filter(|(bits, _)| !whole(bits)) {
        let holders = (0..tasks.len()).filter(|task| is_part(*bits, tasks[*task].0));
        if let Some(task) = holders.max_by_key(|task| (sizes[*task], std::cmp::Reverse(*task))) {
            let ours = &mut tasks[task].1;
            ours.ranks = ours.ranks.union(&alike.ranks);
            ours.work.combine(&alike.work);
        }
    }
    tasks.sort_by_key(|(_, alike)| alike.ranks.first());
    tasks
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answers(groups: &[(u64, &[u32])]) -> ByContexts {
        let alike = |ranks: &[u32]| Alike {
            ranks: RankSet::from_iter(ranks.iter().copied()),
            work: Accumulator::from_iter(ranks.iter().map(|_| 1)),
        };
        groups.iter().map(|(bits, ranks)| (*bits, alike(ranks))).collect()
    }

    fn lists(groups: &[(u64, &[u32])]) -> Vec<String> {
        let tasks = tasks(&answers(groups));
        assert_eq!(
            tasks.iter().map(|(_, task)| task.work.ranks).sum::<u32>(),
            groups.iter().map(|(_, ranks)| ranks.len() as u32).sum::<u32>()
        );
        tasks.iter().map(|(_, task)| task.ranks.to_string()).collect()
    }

    #[test]
    fn a_task_is_what_the_others_have_not() {
        // One rank writes; the others have no context of their own.
        assert_eq!(lists(&[(0b1, &[0]), (0b0, &[1, 2, 3])]), ["0-3"]);
        // A master and its workers.
        assert_eq!(lists(&[(0b1, &[0]), (0b10, &[1, 2, 3])]), ["0", "1-3"]);
        // Workers with a subset of the other workers' contexts belong to the workers.
        assert_eq!(lists(&[(0b1, &[0]), (0b110, &[1, 2]), (0b10, &[3])]), ["0", "1-3"]);
        // Ranks without distinguishing contexts belong to the largest group.
        assert_eq!(lists(&[(0b1, &[0]), (0b10, &[1, 2]), (0, &[3])]), ["0", "1-3"]);
        assert_eq!(lists(&[(0b1, &[0, 1]), (0b10, &[2]), (0, &[3])]), ["0-1,3", "2"]);
        assert_eq!(lists(&[(0b1, &[0]), (0b10, &[1]), (0b100, &[2])]), ["0", "1", "2"]);
    }
}
