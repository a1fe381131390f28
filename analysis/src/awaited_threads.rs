//! Communicating threads that wait for other threads of their ranks, and what those do meanwhile.

use plimsoll_calls::{self as calls, CallClass};
use plimsoll_collector::profile::NodeId;

use crate::canonical::Threads;
use crate::frame_classes::is_part;
use crate::owners::function_around;
use crate::phrase::{TIED, percent};
use crate::team_places::TeamPlaces;
use crate::thresholds::MIN_INNER_FRACTION;
use crate::totals::Totals;

/// Minimum fraction of the run that is waited for other threads to be noted.
const MIN_NOTED_FRACTION: f64 = 0.1;

/// Returns the function in which other threads spend most of their time while the communicating
/// thread waits for them. `None` if less than half of the time of `cause` is such a wait, or if
/// threads that the function around `cause` created, itself or in its callees, do not live for half
/// of that time. If a rank is slow in `cause` mostly because it waits for the team of a parallel
/// region, returns the function in which the other threads of that rank work longer.
pub fn working_function(totals: &Totals, cause: NodeId) -> Option<NodeId> {
    if let Some(outlined) = awaited_region(totals, cause) {
        return TeamPlaces::new(totals).uneven_over_ranks(outlined);
    }
    let sum_ns = |node: NodeId| totals.nodes[node as usize].inclusive.sum;
    let awaited_ns = awaited_ns(totals, Some(cause), &[CallClass::WaitPartner]);
    if 2 * awaited_ns <= sum_ns(cause) {
        return None;
    }
    let contexts = &totals.tree.contexts;
    let is_whole = |node: &NodeId| {
        let frame = contexts.frame_of(*node);
        !is_part(frame) && frame.call.is_none()
    };
    let ids = || 0..contexts.nodes.len() as NodeId;
    let creator = Some(cause).filter(is_whole).or_else(|| function_around(contexts, cause))?;
    let path = frames(totals, creator);
    let created = ids().find(|node| {
        totals.tree.threads[*node as usize] == Threads::Other && frames(totals, *node) == path
    })?;
    if 2 * sum_ns(created) < awaited_ns {
        return None;
    }
    let longest_callee = |node: &NodeId| {
        let callees = ids().filter(|id| contexts.nodes[*id as usize].parent == Some(*node));
        let longest = callees.max_by_key(|id| sum_ns(*id))?;
        let is_most = sum_ns(longest) as f64 >= MIN_INNER_FRACTION * sum_ns(*node) as f64;
        is_most.then_some(longest)
    };
    std::iter::successors(longest_callee(&created), longest_callee).filter(is_whole).last()
}

/// Returns the outlined function of the parallel region that makes up most of the imbalance of
/// ranks in `cause`, which makes the region itself or in its callees.
fn awaited_region(totals: &Totals, cause: NodeId) -> Option<NodeId> {
    let contexts = &totals.tree.contexts;
    let uneven_ns =
        |node: NodeId| totals.nodes[node as usize].inclusive.imbalance(totals.job.ranks.len());
    let regions = totals.teams.functions.iter();
    let regions = regions.filter(|(region, _)| contexts.outwards(**region).any(|at| at == cause));
    let (region, outlined) = regions
        .max_by(|(a, _), (b, _)| uneven_ns(**a).total_cmp(&uneven_ns(**b)).then(b.cmp(a)))?;
    (2.0 * uneven_ns(*region) > uneven_ns(cause)).then_some(*outlined)
}

/// Returns the note on waits for other threads, which efficiencies do not show; `None` if there are
/// few. Waits for OpenMP's own threads do not count.
pub fn note(totals: &Totals) -> Option<String> {
    let ranks = totals.job.ranks.len().max(1);
    let run_ns = totals.job.elapsed_ns as f64 * f64::from(ranks);
    let awaited_ns = awaited_ns(totals, None, &[CallClass::WaitPartner]);
    let fraction = awaited_ns as f64 / run_ns.max(1.0);
    let effect = match totals.teams.threads > 1 {
        true => "The efficiency of OpenMP threads leaves out this time, in which they are idle.",
        false => "Efficiencies count the work of the communicating threads alone.",
    };
    (fraction >= MIN_NOTED_FRACTION && totals.job.concurrent_threads > 0).then(|| {
        format!(
            "The communicating threads wait {} of the time for other threads of their ranks. \
             {effect}",
            percent(fraction).replace(TIED, " ")
        )
    })
}

/// Returns the time in which communicating threads wait for other threads of their ranks, also in
/// OpenMP, in nanoseconds, summed over ranks.
pub fn all_awaited_ns(totals: &Totals) -> u128 {
    awaited_ns(totals, None, &[CallClass::WaitPartner, CallClass::TeamWait, CallClass::Region])
}

/// Returns the time of communicating threads in calls of some classes, below `outer` or in the
/// whole run, in nanoseconds, summed over ranks.
fn awaited_ns(totals: &Totals, outer: Option<NodeId>, classes: &[CallClass]) -> u128 {
    let contexts = &totals.tree.contexts;
    let call = |node: NodeId| contexts.frame_of(node).call;
    let awaits = |node: &NodeId| {
        let mut callers = contexts.outwards(*node).skip(1);
        totals.tree.threads[*node as usize] == Threads::Main
            && call(*node).and_then(calls::class).is_some_and(|class| classes.contains(&class))
            // Not in another call, such as one of MPI.
            && callers.clone().all(|caller| call(caller).is_none())
            && outer.is_none_or(|outer| callers.any(|caller| caller == outer))
    };
    let nodes = (0..contexts.nodes.len() as NodeId).filter(awaits);
    nodes.map(|node| totals.nodes[node as usize].inclusive.sum).sum()
}

/// Returns the numbers of the frames from a context outwards.
fn frames(totals: &Totals, node: NodeId) -> Vec<u32> {
    let contexts = &totals.tree.contexts;
    contexts.outwards(node).map(|node| contexts.nodes[node as usize].frame).collect()
}
