//! Losses in teams of threads (OpenMP): uneven threads, work outside of parallel regions, and
//! regions that are too short.
//!
//! From the point of view of other ranks all of these are work of the rank: where one rank loses
//! more than others, they wait for it, which is a load imbalance. The loss here is the part that
//! all ranks have in common, their mean, so that no second is in two losses.

use std::cmp::Reverse;

use plimsoll_collector::profile::{Frame, NodeId};

use crate::canonical::{Threads, path};
use crate::finding::{Finding, half_query};
use crate::frame_classes::is_loop;
use crate::imbalance::Cause;
use crate::job_totals::Host;
use crate::metrics::{Accumulator, NS_PER_S};
use crate::openmp_totals::{RegionSums, SmallestTeams};
use crate::owners::Owners;
use crate::queries::Quantity;
use crate::ranks::RankSet;
use crate::summary::{self, LossKind};
use crate::summary_tree::shown_path;
use crate::team_places::{TeamPlaces, TeamWork};
use crate::team_times::uneven_ns;
use crate::thresholds::{
    MAX_FINE_REGION_NS, MAX_TASK_COST_NS, MIN_CAUSE_SHARE, MIN_FINE_OVERHEAD_FRACTION,
    MIN_INNER_FRACTION, MIN_TASK_COST_FRACTION, MIN_TEAM_SIZE_FRACTION,
    MIN_UNEVEN_THREADS_FRACTION,
};
use crate::totals::{PhaseTotals, Totals};

/// Returns the losses in the teams of all ranks, over the whole run.
pub fn teams(totals: &Totals, owners: &Owners) -> Vec<Finding> {
    let places = TeamPlaces::new(totals);
    let work = places.work(owners);
    let mut found: Vec<(&RegionSums, Finding)> = Vec::new();
    for (node, region) in totals.openmp.regions() {
        let is_team = is_main(totals, node) && region.sums.threads > 1;
        let finding = is_team.then(|| of_region((totals, owners), (&places, &work), node, region));
        found.extend(finding.flatten().map(|finding| (region, finding)));
    }
    at_one_line(totals, found).into_iter().chain(serial_section(totals, owners)).collect()
}

/// Combines the losses of a region that a function calls at several places, such as an unrolled
/// loop: a reader knows the region by its call path and source line.
fn at_one_line(totals: &Totals, mut found: Vec<(&RegionSums, Finding)>) -> Vec<Finding> {
    found.sort_by(|(_, a), (_, b)| b.seconds.total_cmp(&a.seconds).then(a.symptom.cmp(&b.symptom)));
    let path = |node: NodeId| shown_path(totals, node);
    let mut kept: Vec<(&RegionSums, Vec<summary::Frame>, Finding)> = Vec::new();
    for (region, finding) in found {
        let at = path(finding.symptom);
        let same = kept.iter_mut().find(|(other, path, whole)| {
            whole.kind == finding.kind
                && *path == at
                && region.sums.line.is_some()
                && other.is_at_line_of(region)
        });
        let Some((_, _, whole)) = same else {
            kept.push((region, at, finding));
            continue;
        };
        whole.seconds += finding.seconds;
        whole.shows_also_where(&finding);
        for cause in finding.causes {
            match whole.causes.iter_mut().find(|it| path(it.node) == path(cause.node)) {
                Some(same) => same.ns += cause.ns,
                None => whole.causes.push(cause),
            }
        }
    }
    let mut kept: Vec<Finding> = kept.into_iter().map(|(_, _, finding)| finding).collect();
    for finding in &mut kept {
        finding.causes.sort_by(Cause::larger_first);
    }
    kept
}

/// Returns whether the communicating threads make a region.
fn is_main(totals: &Totals, region: NodeId) -> bool {
    totals.tree.threads[region as usize] == Threads::Main
}

/// Returns the loss in a region: its uneven threads or, if it is too short for its overhead, all
/// time without work.
fn of_region(
    (totals, owners): (&Totals, &Owners),
    work: (&TeamPlaces<'_>, &TeamWork),
    node: NodeId,
    region: &RegionSums,
) -> Option<Finding> {
    let sums = &region.sums;
    let ranks = totals.job.ranks.len();
    if let Some(finding) = short_tasks(totals, owners, node, region) {
        return Some(finding);
    }
    let imbalance = totals.teams.imbalance.get(&node).copied().unwrap_or_default();
    let overhead_ns = overhead_ns(region);
    // Without its begin and end, which are what a short region costs.
    let body_ns = sums.mean_work_ns.saturating_add(sums.barrier_ns / u64::from(sums.threads));
    let is_fine = body_ns < MAX_FINE_REGION_NS.saturating_mul(sums.instances)
        && overhead_ns >= MIN_FINE_OVERHEAD_FRACTION * sums.elapsed_ns as f64;
    let (kind, lost_ns) = match is_fine {
        // The threads of a short region are uneven because they begin one after another.
        true => (LossKind::FineGrainedRegions, overhead_ns + uneven_ns(sums) as f64),
        false => (LossKind::ThreadImbalance, imbalance.sum as f64),
    };
    let mean_ns = lost_ns / f64::from(ranks.max(1));
    let place = match is_fine {
        true => caller(owners, node),
        // A runtime's entry point under another name leaves the function at another place.
        false => outlined(totals, node)
            .map(|function| innermost(totals, work, (function, region), lost_ns)),
    };
    let cause = place.or_else(|| caller(owners, node)).unwrap_or(node);
    let path = path(&totals.tree.contexts, node);
    Some(Finding {
        causes: vec![Cause::new(cause, false, mean_ns)],
        waiting: half_query(Quantity::Regions { paths: vec![path] }, imbalance.max),
        ..Finding::new(kind, phase_of(totals, owners, node)?, mean_ns / NS_PER_S, node)
    })
}

/// Returns the loss by short tasks in a region: all thread time except the work of tasks and other
/// work of the program, up to the largest plausible cost of its tasks. `None` if the region creates
/// no tasks, or long ones, or too few to explain its idle time.
fn short_tasks(
    totals: &Totals,
    owners: &Owners,
    node: NodeId,
    region: &RegionSums,
) -> Option<Finding> {
    let creation = totals.teams.creations.get(&node)?;
    let (_, call) = creation.call?;
    let sums = &region.sums;
    let idle_ns = sums.idle_ns().saturating_sub(sums.lock_ns) as f64 + creation.time_ns as f64;
    let cost_ns = MAX_TASK_COST_NS as f64 * creation.count as f64 * f64::from(sums.threads)
        + creation.time_ns as f64;
    if !totals.teams.tasks.are_fine(creation, sums.work_ns)
        || idle_ns < MIN_FINE_OVERHEAD_FRACTION * sums.thread_ns as f64
        || cost_ns < MIN_TASK_COST_FRACTION * idle_ns
    {
        return None;
    }
    let lost_ns = idle_ns.min(cost_ns);
    let imbalance = totals.teams.imbalance.get(&node).copied().unwrap_or_default();
    let ranks = f64::from(totals.job.ranks.len().max(1));
    let mean_ns = lost_ns / f64::from(sums.threads.max(1)) / ranks;
    let path = path(&totals.tree.contexts, node);
    Some(Finding {
        causes: vec![Cause::new(caller(owners, call).unwrap_or(call), false, mean_ns)],
        waiting: half_query(Quantity::Regions { paths: vec![path] }, imbalance.max),
        ..Finding::new(
            LossKind::FineGrainedTasks,
            phase_of(totals, owners, node)?,
            mean_ns / NS_PER_S,
            call,
        )
    })
}

/// Returns the time in which no thread of a region works, without waits for locks, summed over
/// instances and ranks: begin, end and barriers that all threads wait in, in nanoseconds.
fn overhead_ns(region: &RegionSums) -> f64 {
    let idle_ns = region.sums.scheduling_loss_ns().saturating_sub(region.sums.lock_ns);
    idle_ns as f64 / f64::from(region.sums.threads.max(1))
}

/// Returns the context that is responsible for a call.
fn caller(owners: &Owners, node: NodeId) -> Option<NodeId> {
    owners.owner_of[node as usize].or(owners.next_owner[node as usize])
}

/// Returns the context of a region's outlined function, if it has any time.
fn outlined(totals: &Totals, region: NodeId) -> Option<NodeId> {
    let function = totals.teams.functions.get(&region).copied()?;
    (totals.nodes[function as usize].inclusive.sum > 0).then_some(function)
}

/// Returns the innermost loop or function of the program at or below a region's outlined function,
/// up to the first call, with most of the late thread's excess: its work beyond the mean of the
/// team. If this excess is a small part of the loss, because threads are late in turn, returns the
/// one with most of the work of all threads.
fn innermost(
    totals: &Totals,
    (places, work): (&TeamPlaces<'_>, &TeamWork),
    (function, region): (NodeId, &RegionSums),
    lost_ns: f64,
) -> NodeId {
    // The contexts of one place have the same frame.
    let frame = |place: &[NodeId]| frame_of(totals, place[0]);
    let function = places.in_all_threads(function);
    let excess_ns = |place: &[NodeId]| work.excess_ns(place, &function, region.sums.threads);
    let one_is_late = excess_ns(&function) >= MIN_UNEVEN_THREADS_FRACTION * lost_ns;
    let part_ns = |place: &[NodeId]| match one_is_late {
        true => excess_ns(place),
        false => work.all_ns(place) as f64,
    };
    let mut found = function.clone();
    loop {
        let inner = places.inside(&found).into_iter();
        let inner = inner.filter(|inner| frame(inner).call.is_none());
        let largest = inner.max_by(|a, b| part_ns(a).total_cmp(&part_ns(b)).then_with(|| b.cmp(a)));
        let holds_most = |inner: &Vec<NodeId>| {
            part_ns(inner) > 0.0 && part_ns(inner) >= MIN_INNER_FRACTION * part_ns(&found)
        };
        // Below a loop, a function that does all of its work says less than the loop.
        let says_more = |inner: &Vec<NodeId>| {
            let all_ns = work.all_ns(inner) as f64;
            !is_loop(frame(&found))
                || is_loop(frame(inner))
                || all_ns < MIN_INNER_FRACTION * work.all_ns(&found) as f64
        };
        match largest.filter(holds_most).filter(says_more) {
            Some(inner) => found = inner,
            None => return found[0],
        }
    }
}

fn frame_of(totals: &Totals, node: NodeId) -> &Frame {
    let contexts = &totals.tree.contexts;
    &contexts.frames[contexts.nodes[node as usize].frame as usize]
}

/// Returns the first index of the phase with most work around a call.
pub fn phase_of(totals: &Totals, owners: &Owners, node: NodeId) -> Option<u64> {
    let around = caller(owners, node);
    let time = |phase: &PhaseTotals| {
        around.and_then(|around| phase.nodes.get(&around)).map_or(0, |it| it.inclusive.sum)
    };
    let phases = totals.sums.phases.iter();
    let most =
        phases.max_by_key(|(index, phase)| (time(phase), phase.duration.sum, Reverse(**index)));
    most.map(|(index, _)| *index)
}

/// Returns the loss by work of one thread outside of parallel regions: the time that the teams of
/// all ranks would save if they did that work.
fn serial_section(totals: &Totals, owners: &Owners) -> Option<Finding> {
    let (teams, job) = (&totals.teams, &totals.job);
    let ranks = job.ranks.len();
    if !teams.are_used(job) {
        return None;
    }
    let lost_ns = teams.serial_gain.mean(ranks) * fraction_with_cores(totals);
    let whole_ns: u128 = teams.serial.values().map(|serial| serial.gain_ns).sum();
    let share = |ns: u128| ns as f64 / whole_ns.max(1) as f64;
    let mut causes: Vec<Cause> = teams
        .serial
        .iter()
        .map(|(node, serial)| Cause::new(*node, true, share(serial.gain_ns) * lost_ns))
        .collect();
    causes.sort_by(Cause::larger_first);
    let first = causes.first()?.node;
    causes
        .truncate(causes.iter().take_while(|it| it.ns >= MIN_CAUSE_SHARE * lost_ns).count().max(1));
    let symptom = idle_context(totals).unwrap_or(first);
    Some(Finding {
        causes,
        waiting: half_query(Quantity::SerialWork, teams.serial_gain.max),
        ..Finding::new(
            LossKind::SerialSection,
            phase_of(totals, owners, first)?,
            lost_ns / NS_PER_S,
            symptom,
        )
    })
}

/// Returns the part of the gain by more threads that the cores allow: all of it if threads do not
/// wait for cores.
fn fraction_with_cores(totals: &Totals) -> f64 {
    let job = &totals.job;
    let threads = f64::from(totals.teams.threads.max(2));
    let of_rank =
        |host: &Host| (host.cores.len() as f64 / f64::from(host.ranks.len().max(1))).max(1.0);
    let cores = job.hosts.values().map(of_rank).fold(f64::INFINITY, f64::min);
    match job.lacks_cores() && cores < threads {
        true => (1.0 - 1.0 / cores) / (1.0 - 1.0 / threads),
        false => 1.0,
    }
}

/// Returns the context in which the other threads wait for the next region, if one is known.
fn idle_context(totals: &Totals) -> Option<NodeId> {
    let contexts = totals.tree.contexts.nodes.iter().zip(0..);
    let idle =
        contexts.filter(|(_, id)| frame_of(totals, *id).call == Some(plimsoll_calls::OPENMP_IDLE));
    let time = |id: &NodeId| totals.nodes[*id as usize].inclusive.sum;
    idle.map(|(_, id)| id).max_by_key(|id| (time(id), Reverse(*id))).filter(|id| time(id) > 0)
}

/// Region with uneven threads that make a rank slow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct UnevenThreads {
    /// Context of the call that makes the region.
    pub region: NodeId,
    /// Time that the slowest rank loses by it beyond the mean of all ranks, in seconds.
    pub excess_s: f64,
}

/// Returns the region with uneven threads that explains a load imbalance; `None` if none explains
/// enough of it.
pub fn uneven_threads(totals: &Totals, finding: &Finding) -> Option<UnevenThreads> {
    let cause = finding.causes.first()?.node;
    let ranks = f64::from(totals.job.ranks.len().max(1));
    let excess = |(node, region): (NodeId, &Accumulator)| {
        let excess_ns = region.max as f64 - region.sum as f64 / ranks;
        is_region_of(totals, node, cause)
            .then_some(UnevenThreads { region: node, excess_s: excess_ns / NS_PER_S })
    };
    let regions = totals.teams.imbalance.iter().map(|(node, region)| (*node, region));
    let most = regions
        .filter_map(excess)
        .max_by(|a, b| a.excess_s.total_cmp(&b.excess_s).then(b.region.cmp(&a.region)))?;
    (most.excess_s >= MIN_UNEVEN_THREADS_FRACTION * finding.seconds).then_some(most)
}

/// Returns whether the region that the call `node` makes lies in `cause` or around it.
fn is_region_of(totals: &Totals, node: NodeId, cause: NodeId) -> bool {
    let lies_below =
        |node: NodeId, outer: NodeId| totals.tree.contexts.outwards(node).any(|at| at == outer);
    let function = totals.teams.functions.get(&node);
    lies_below(node, cause)
        || function.is_some_and(|function| lies_below(cause, *function))
        || lies_below(cause, node)
}

/// Returns the region that makes ranks slow because it has smaller teams there than elsewhere;
/// `None` if none explains enough of a load imbalance, or if teams of the largest size would save
/// too little of the time by which these ranks exceed the mean of all ranks
/// ([`MIN_TEAM_SIZE_FRACTION`]).
pub fn smaller_teams<'t>(
    totals: &'t Totals,
    finding: &Finding,
    slow: &RankSet,
) -> Option<(NodeId, &'t RegionSums)> {
    let cause = finding.causes.first()?.node;
    let ranks = f64::from(totals.job.ranks.len().max(1));
    let excess_ns = |region: &RegionSums| {
        let SmallestTeams { threads, ranks: small, work_ns } = &region.smallest;
        let work_ns = *work_ns as f64 / f64::from(small.len().max(1));
        let with_team_ns = |threads: u32| work_ns / f64::from(threads.max(1));
        let excess_ns = with_team_ns(*threads) - region.sums.elapsed_ns as f64 / ranks;
        let saved_ns = with_team_ns(*threads) - with_team_ns(region.sums.threads);
        let is_by_size = saved_ns > 0.0
            && saved_ns >= MIN_TEAM_SIZE_FRACTION * excess_ns
            && !slow.is_empty()
            && slow.iter().all(|rank| small.contains(rank));
        is_by_size.then_some(excess_ns)
    };
    let regions = totals.openmp.regions();
    let regions = regions
        .filter(|(node, _)| is_main(totals, *node) && is_region_of(totals, *node, cause))
        .filter_map(|(node, region)| Some((node, region, excess_ns(region)?)));
    let (node, region, most_ns) =
        regions.max_by(|(a, _, one), (b, _, other)| one.total_cmp(other).then(b.cmp(a)))?;
    let least_ns = MIN_UNEVEN_THREADS_FRACTION * finding.seconds * NS_PER_S;
    (most_ns >= least_ns).then_some((node, region))
}
