//! Communicating threads that wait for other threads of their ranks, and what those do meanwhile.

use plimsoll_calls::{self as calls, CallClass, CallId};
use plimsoll_collector::profile::NodeId;

use crate::canonical::Threads;
use crate::metrics::NS_PER_S;
use crate::phrase::{TIED, percent, seconds};
use crate::team_places::{TeamPlaces, is_function};
use crate::thresholds::{MAX_AWAITED_FRACTION, MIN_INNER_FRACTION};
use crate::totals::Totals;

/// Minimum fraction of the run that is waited for other threads to be noted.
const MIN_NOTED_FRACTION: f64 = 0.1;

/// Returns the function of other threads that the communicating thread waits for in `cause`:
///
/// - If a rank is slow in `cause` mostly because it waits for the team of a parallel region, the
///   function in which the other threads of that rank work longer.
/// - The function in which the threads that the function around `cause` created, itself or in its
///   callees, spend most of their time, if they live for half of the wait.
/// - The function in which threads that were created elsewhere, such as those of a pool, work
///   longer on the slowest rank, if that explains half of the imbalance of `cause`.
///
/// `None` if there is none, or if less than half of the time of `cause` is a wait for threads.
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
    let is_creator = |node: &NodeId| {
        let frame = contexts.frame_of(*node);
        is_function(frame) && !frame.is_of_language()
    };
    // Threads that a function creates, itself or in its callees, begin below it.
    let mut created = contexts
        .outwards(cause)
        .filter(is_creator)
        .map(|creator| in_threads(totals, Threads::Other, creator));
    let around = created.next().flatten();
    let longest = around.filter(|created| 2 * sum_ns(*created) >= awaited_ns);
    longest.and_then(|created| longest_function(totals, created)).or_else(|| {
        let elsewhere = created.flatten().next()?;
        let uneven_ns = totals.nodes[cause as usize].inclusive.imbalance(totals.job.ranks.len());
        let function = TeamPlaces::new(totals).uneven_function(elsewhere, uneven_ns / 2.0)?;
        // The communicating thread executes the functions that create threads.
        in_threads(totals, Threads::Main, function).is_none().then_some(function)
    })
}

/// Returns the function of other threads that is the cause where `cause` is only a wait for them
/// ([`working_function`]); `None` if the function around the wait says more.
pub fn cause_in_threads(totals: &Totals, cause: NodeId) -> Option<NodeId> {
    let frame = totals.tree.contexts.frame_of(cause);
    let is_region = frame.call.and_then(calls::class) == Some(CallClass::Region);
    let is_wait = || {
        let awaited_ns = awaited_ns(totals, Some(cause), &[CallClass::WaitPartner]);
        let whole_ns = totals.nodes[cause as usize].inclusive.sum;
        awaited_ns as f64 >= MIN_INNER_FRACTION * whole_ns as f64
    };
    (is_region || is_wait()).then(|| working_function(totals, cause)).flatten()
}

/// Returns the context of some threads with the functions and loops of `node`.
fn in_threads(totals: &Totals, threads: Threads, node: NodeId) -> Option<NodeId> {
    let path = frames(totals, node);
    let is_it =
        |id: &NodeId| totals.tree.threads[*id as usize] == threads && frames(totals, *id) == path;
    (0..totals.tree.contexts.nodes.len() as NodeId).find(is_it)
}

/// Returns the innermost function below `outer` with most of its time.
fn longest_function(totals: &Totals, outer: NodeId) -> Option<NodeId> {
    let contexts = &totals.tree.contexts;
    let sum_ns = |node: NodeId| totals.nodes[node as usize].inclusive.sum;
    let ids = || 0..contexts.nodes.len() as NodeId;
    let longest_callee = |node: &NodeId| {
        let callees = ids().filter(|id| contexts.nodes[*id as usize].parent == Some(*node));
        let longest = callees.max_by_key(|id| sum_ns(*id))?;
        let is_most = sum_ns(longest) as f64 >= MIN_INNER_FRACTION * sum_ns(*node) as f64;
        is_most.then_some(longest)
    };
    let inner = std::iter::successors(longest_callee(&outer), longest_callee);
    inner.filter(|node| is_function(contexts.frame_of(*node))).last()
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
