//! Sibling threads: threads outside of OpenMP that were created at one place, such as the workers
//! of a pool. They are compared within their rank, and the results are added up over ranks.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use plimsoll_calls::{self as calls, CallClass};
use plimsoll_collector::profile::{ContextTree, NodeId, SiblingThreads};
use serde::{Deserialize, Serialize};

use crate::map_merge::{merge, moved};
use crate::metrics::Accumulator;
use crate::rank::Rank;
use crate::team_times::at_or_below;
use crate::thresholds::MIN_DISTINCTION_FRACTION;

/// Work of the sibling threads of one place in one rank.
pub struct SiblingWork<'r> {
    /// The threads.
    pub threads: &'r SiblingThreads,
    /// Work of the slowest thread, in nanoseconds.
    pub slowest_ns: u64,
    /// Mean work of all threads, in nanoseconds.
    pub mean_ns: u64,
    /// Time by which the rank would be faster if all threads had the mean work, in nanoseconds.
    pub gain_ns: u64,
}

/// Returns the work of a rank's sibling threads, by place of creation, and what even work would
/// gain.
///
/// The slowest thread with its work, and with its calls of MPI, on files and for locks, exceeds the
/// mean of its siblings: the smaller excess is gained, so that neither these calls nor waits for a
/// lock that the slowest thread holds count as uneven work. No rank gains more than its
/// communicating thread waits for other threads. Of that wait, the threads of each place take up as
/// much as their slowest one works, those with most work first, because several pools may work at
/// the same time. If all together take up less than half of it, something else is awaited.
pub fn siblings_of<'r>(rank: &'r Rank<'_>) -> Vec<SiblingWork<'r>> {
    let profile = &rank.input.profile;
    let groups = &profile.thread_locations.siblings;
    if groups.is_empty() {
        return Vec::new();
    }
    let nodes = 0..profile.tree.nodes.len() as NodeId;
    let waits: Vec<bool> = nodes.map(|node| waits_for_threads(&profile.tree, node)).collect();
    let in_call = at_or_below(&profile.tree, |frame| frame.call.is_some());
    let works = |node: usize| rank.context_classes[node].is_useful();
    let is_busy = |node: usize| works(node) || in_call[node] && !waits[node];
    let work = |threads: &'r SiblingThreads| {
        let [slowest_ns, mean_ns] = slowest_and_mean_ns(threads, works);
        let [busy_ns, mean_busy_ns] = slowest_and_mean_ns(threads, is_busy);
        let excess_ns = slowest_ns.saturating_sub(mean_ns);
        let is_even = (excess_ns as f64) < MIN_DISTINCTION_FRACTION * slowest_ns as f64;
        let gain_ns = if is_even { 0 } else { excess_ns.min(busy_ns.saturating_sub(mean_busy_ns)) };
        SiblingWork { threads, slowest_ns, mean_ns, gain_ns }
    };
    let mut siblings: Vec<SiblingWork<'_>> = groups.iter().map(work).collect();
    siblings.sort_by_key(|it| Reverse(it.slowest_ns));
    let main = rank.phases.iter().flat_map(|phase| &phase.values);
    let awaited_ns: u64 =
        main.filter(|(node, _)| waits[*node as usize]).map(|(_, value)| value.exclusive_ns).sum();
    let works_ns: u64 = siblings.iter().map(|it| it.slowest_ns).sum();
    let mut left_ns = if 2 * works_ns >= awaited_ns { awaited_ns } else { 0 };
    for it in &mut siblings {
        it.gain_ns = it.gain_ns.min(left_ns);
        left_ns = left_ns.saturating_sub(it.slowest_ns);
    }
    siblings
}

/// Returns the time of the slowest thread in chosen contexts, and the mean of all threads, in
/// nanoseconds.
fn slowest_and_mean_ns(threads: &SiblingThreads, is_chosen: impl Fn(usize) -> bool) -> [u64; 2] {
    let chosen_ns = |times: &[(NodeId, u64)]| -> u64 {
        let chosen = times.iter().filter(|(node, _)| is_chosen(*node as usize));
        chosen.map(|(_, ns)| ns).sum()
    };
    [chosen_ns(&threads.slowest), chosen_ns(&threads.sum) / threads.threads.max(1)]
}

/// Returns whether a thread waits in a context for other threads of its process: the outermost call
/// around it waits for a thread, not one of MPI.
pub fn waits_for_threads(tree: &ContextTree, node: NodeId) -> bool {
    let outermost = tree.outwards(node).filter_map(|at| tree.frame_of(at).call).last();
    outermost.and_then(calls::class) == Some(CallClass::WaitPartner)
}

/// Sibling threads of some ranks, by place of creation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SiblingTotals {
    /// By the context of the outermost function of the program in the threads.
    pub places: BTreeMap<NodeId, PlaceTotals>,
}

/// Sibling threads that were created at one place, in the ranks that even work would gain time.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PlaceTotals {
    /// Number of threads of a rank.
    pub threads: Accumulator,
    /// Work of the slowest thread of a rank.
    pub slowest: Accumulator,
    /// Mean work of a rank's threads.
    pub mean: Accumulator,
    /// Time by which a rank would be faster.
    pub gain: Accumulator,
    /// Work of the slowest thread in each context itself, and the mean of all threads of a rank,
    /// summed over ranks, in nanoseconds.
    pub contexts: BTreeMap<NodeId, [u128; 2]>,
}

impl SiblingTotals {
    /// Adds one rank. `places` are the contexts of its other threads in the totals, by node of the
    /// rank's tree.
    pub fn add_rank(&mut self, rank: &Rank<'_>, places: &[Option<NodeId>]) {
        let place = |node: NodeId| places[node as usize];
        for it in siblings_of(rank).into_iter().filter(|it| it.gain_ns > 0) {
            let Some(routine) = place(it.threads.routine) else { continue };
            let totals = self.places.entry(routine).or_default();
            totals.threads.accumulate(it.threads.threads);
            totals.slowest.accumulate(it.slowest_ns);
            totals.mean.accumulate(it.mean_ns);
            totals.gain.accumulate(it.gain_ns);
            let threads = u128::from(it.threads.threads.max(1));
            for (which, times, divisor) in
                [(0, &it.threads.slowest, 1), (1, &it.threads.sum, threads)]
            {
                let works = |node: NodeId| rank.context_classes[node as usize].is_useful();
                for (node, ns) in times.iter().filter(|(node, _)| works(*node)) {
                    let Some(node) = place(*node) else { continue };
                    totals.contexts.entry(node).or_default()[which] += u128::from(*ns) / divisor;
                }
            }
        }
    }

    /// Adds other ranks; `places` are their contexts here.
    pub fn combine(&mut self, other: Self, places: &[NodeId]) {
        merge(&mut self.places, moved(other.places, places), |ours, theirs| {
            ours.threads.combine(&theirs.threads);
            ours.slowest.combine(&theirs.slowest);
            ours.mean.combine(&theirs.mean);
            ours.gain.combine(&theirs.gain);
            merge(&mut ours.contexts, moved(theirs.contexts, places), |ours, theirs| {
                ours.iter_mut().zip(theirs).for_each(|(ours, ns)| *ours += ns);
            });
        });
    }
}
