//! Communicating threads that wait for other threads of their ranks, and what those do meanwhile.

use plimsoll_calls::{self as calls, CallClass, CallId};
use plimsoll_collector::profile::NodeId;

use crate::canonical::Threads;
use crate::frame_classes::is_part;
use crate::metrics::NS_PER_S;
use crate::phrase::{TIED, percent, seconds};
use crate::team_places::TeamPlaces;
use crate::thresholds::{MAX_AWAITED_FRACTION, MIN_INNER_FRACTION};
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
    let is_creator = |node: &NodeId| is_whole(node) && !contexts.frame_of(*node).is_of_language();
    let creator = contexts.outwards(cause).find(is_creator)?;
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

/// Returns whether other threads of the ranks do the work while the communicating threads mostly
/// wait for them: efficiencies, which count the work of the latter, then say nothing. Waits for
/// OpenMP's own threads do not count.
pub fn work_is_elsewhere(totals: &Totals) -> bool {
    awaited_fraction(totals) > MAX_AWAITED_FRACTION
}

/// Returns the note on waits for other threads, which efficiencies do not show; `None` if there are
/// few.
pub fn note(totals: &Totals) -> Option<String> {
    let fraction = awaited_fraction(totals);
    if fraction < MIN_NOTED_FRACTION {
        return None;
    }
    let effect = if fraction > MAX_AWAITED_FRACTION {
        "There are no efficiencies: they would count the communicating threads alone. Of other \
         threads, only those that were created at one place are compared with each other."
    } else if totals.teams.threads > 1 {
        "The efficiency of OpenMP threads leaves out this time, in which they are idle."
    } else {
        "Efficiencies count the work of the communicating threads alone."
    };
    let part = |fraction: f64| percent(fraction).replace(TIED, " ");
    let in_mpi = match mpi_fraction_of_others(totals) {
        communicating if communicating >= MIN_NOTED_FRACTION => {
            format!(", which are in MPI for {} of theirs", part(communicating))
        }
        _ => String::new(),
    };
    let slowest = (fraction > MAX_AWAITED_FRACTION).then(|| slowest_of_others(totals)).flatten();
    Some(format!(
        "The communicating threads wait {} of the time for other threads of their ranks{in_mpi}. \
         {effect}{}",
        part(fraction),
        slowest.unwrap_or_default(),
    ))
}

/// Returns a sentence on the rank with the most uneven other threads: what its slowest one computes
/// and what the others do. `None` if they are even or are not aggregated by key.
fn slowest_of_others(totals: &Totals) -> Option<String> {
    let it = totals.threads.most_uneven()?;
    let apart = |ns: f64| seconds(ns / NS_PER_S).replace(TIED, " ");
    Some(format!(
        " On rank {} the slowest of these computes {}, the others {} on average.",
        it.rank,
        apart(it.slowest_ns),
        apart(it.others_ns)
    ))
}

/// Returns the fraction of the run in which communicating threads wait for other threads of their
/// ranks, except in OpenMP.
fn awaited_fraction(totals: &Totals) -> f64 {
    if totals.job.concurrent_threads == 0 {
        return 0.0;
    }
    let ranks = totals.job.ranks.len().max(1);
    let run_ns = totals.job.elapsed_ns as f64 * f64::from(ranks);
    awaited_ns(totals, None, &[CallClass::WaitPartner]) as f64 / run_ns.max(1.0)
}

/// Returns the fraction of the time of all other threads in MPI calls (MPI_THREAD_MULTIPLE).
fn mpi_fraction_of_others(totals: &Totals) -> f64 {
    let is_mpi = |id: CallId| calls::call(id).is_some_and(|call| call.provider.is_mpi());
    let nodes = (0..).zip(&totals.tree.contexts.nodes);
    let roots = nodes.filter(|(id, node)| {
        node.parent.is_none() && totals.tree.threads[*id as usize] == Threads::Other
    });
    let whole_ns: u128 = roots.map(|(id, _)| totals.nodes[id as usize].inclusive.sum).sum();
    calls_ns(totals, Threads::Other, None, is_mpi) as f64 / whole_ns.max(1) as f64
}

/// Returns the time in which communicating threads wait for other threads of their ranks, also in
/// OpenMP, in nanoseconds, summed over ranks.
pub fn all_awaited_ns(totals: &Totals) -> u128 {
    awaited_ns(totals, None, &[CallClass::WaitPartner, CallClass::TeamWait, CallClass::Region])
}

/// Returns the time of communicating threads in calls of some classes, at or below `outer` or in
/// the whole run, in nanoseconds, summed over ranks.
fn awaited_ns(totals: &Totals, outer: Option<NodeId>, classes: &[CallClass]) -> u128 {
    let is_one = |id: CallId| calls::class(id).is_some_and(|class| classes.contains(&class));
    calls_ns(totals, Threads::Main, outer, is_one)
}

/// Returns the time of some threads in chosen calls that are not made by other calls, such as those
/// of MPI, at or below `outer` or in the whole run, in nanoseconds, summed over ranks.
fn calls_ns(
    totals: &Totals,
    threads: Threads,
    outer: Option<NodeId>,
    is_chosen: impl Fn(CallId) -> bool,
) -> u128 {
    let contexts = &totals.tree.contexts;
    let call = |node: NodeId| contexts.frame_of(node).call;
    let counts = |node: &NodeId| {
        let mut around = contexts.outwards(*node);
        totals.tree.threads[*node as usize] == threads
            && call(*node).is_some_and(&is_chosen)
            && around.clone().skip(1).all(|caller| call(caller).is_none())
            && outer.is_none_or(|outer| around.any(|at| at == outer))
    };
    let nodes = (0..contexts.nodes.len() as NodeId).filter(counts);
    nodes.map(|node| totals.nodes[node as usize].inclusive.sum).sum()
}

/// Returns the numbers of the frames from a context outwards.
fn frames(totals: &Totals, node: NodeId) -> Vec<u32> {
    let contexts = &totals.tree.contexts;
    contexts.outwards(node).map(|node| contexts.nodes[node as usize].frame).collect()
}
