//! Advice on losses in teams of threads (OpenMP).

use plimsoll_collector::profile::NodeId;

use super::{AdviceInput, named, place, ranks, spoken};
use crate::finding::Finding;
use crate::metrics::{Accumulator, NS_PER_S};
use crate::openmp_totals::RegionSums;
use crate::phrase::{count, counted, percent, seconds};
use crate::sibling_losses;
use crate::summary_tree::shown_frame;
use crate::team_losses;
use crate::team_places::TeamPlaces;
use crate::team_times::{stalled_ns, uneven_ns};
use crate::team_totals::Creation;
use crate::totals::Totals;

/// Returns the advice on uneven threads: of a parallel region, or siblings outside of OpenMP.
pub(super) fn uneven_threads(totals: &Totals, facts: &AdviceInput<'_>) -> String {
    if let Some(advice) = uneven_siblings(totals, facts) {
        return advice;
    }
    let Some(region) = region_of(totals, facts.finding) else { return String::new() };
    let sums = &region.sums;
    let ranks = f64::from(region.ranks.len().max(1));
    let seconds_of = |ns: u64| ns as f64 / ranks / NS_PER_S;
    let of_rank = |ns: u64| seconds(seconds_of(ns));
    let place = region_place(totals, facts.finding.symptom, &region);
    let teams = format!(
        "teams of {}, {}",
        counted(sums.threads.into(), "thread"),
        counted(sums.instances, "instance")
    );
    let waited_ns = sums.barrier_ns / u64::from(sums.threads.max(1));
    // Threads that wait inside of the region for less lose most of it at the region's end.
    let function = totals.teams.functions.get(&facts.finding.symptom);
    let wait = function
        .filter(|_| 2.0 * seconds_of(waited_ns) >= facts.finding.seconds)
        .and_then(|function| TeamPlaces::new(totals).longest_wait(*function));
    let by_tasks = works_by_tasks(totals, facts.finding.symptom).then_some(TASK_REMEDY);
    let is_stalled = 2 * stalled_ns(sums) >= uneven_ns(sums) + stalled_ns(sums);
    match wait {
        Some(wait) if is_stalled => format!(
            "In {place}, a thread waits {} on average in {wait} ({teams}), though no thread has \
             much more work in total than the others: another thread is late each time. {}",
            of_rank(waited_ns),
            by_tasks.unwrap_or_else(|| remedy_for_waits(wait)),
        ),
        wait => format!(
            "In {place}, the thread with most work takes {} and a thread {} on average ({teams}): \
             the others wait for it{}. {}",
            of_rank(sums.max_work_ns),
            of_rank(sums.mean_work_ns),
            wait.map_or_else(String::new, |wait| format!(", mostly in {wait}")),
            by_tasks.unwrap_or_else(|| {
                wait.map_or_else(|| remedy(totals, facts.finding.symptom), remedy_for_waits)
            }),
        ),
    }
}

/// Returns the advice on sibling threads; `None` for other losses.
fn uneven_siblings(totals: &Totals, facts: &AdviceInput<'_>) -> Option<String> {
    let (routine, place) = sibling_losses::place_of(totals, facts.finding)?;
    let of_rank = |time: &Accumulator| seconds(time.mean(time.ranks) / NS_PER_S);
    let most = place.threads.max;
    let up_to = if place.threads.min(place.threads.ranks) < most { "up to " } else { "" };
    Some(format!(
        "In {}, the slowest of {up_to}{} works {} and a thread {} on average ({}): the thread that \
         waits in {} waits for it. Divide the work of these threads more evenly, or let each of \
         them take the next small piece from a common queue when it has done one.",
        spoken(totals, routine),
        counted(most, "thread"),
        of_rank(&place.slowest),
        of_rank(&place.mean),
        named(facts.waiting),
        super::name(totals, facts.finding.symptom),
    ))
}

const TASK_REMEDY: &str = "They wait for tasks that are not done: create more and smaller tasks \
                           (a smaller grainsize of a taskloop), create the longest ones first, \
                           let tasks depend on fewer others, and let the thread that waits have \
                           work of its own.";

/// Returns whether a region creates tasks, and tasks do at least half of the work of all regions
/// that create some.
fn works_by_tasks(totals: &Totals, region: NodeId) -> bool {
    let teams = &totals.teams;
    let work_ns = |region: &NodeId| totals.openmp.region(*region).map_or(0, |it| it.sums.work_ns);
    teams.creations.get(&region).is_some_and(|creation| creation.count > 0)
        && 2 * teams.tasks.work_ns >= teams.creations.keys().map(work_ns).sum()
}

/// Returns the remedy for waits inside of a region, by the call in which threads wait.
fn remedy_for_waits(call: &str) -> &'static str {
    if call.contains("single") {
        "One thread executes a single construct meanwhile: divide its work over the threads, or \
         let the others go on (nowait, or a task)."
    } else if call.contains("doacross") {
        "Iterations of a doacross loop wait for earlier ones: let each wait as late as it can and \
         report its result as early as it can, or give a thread larger blocks of iterations."
    } else if call.contains("task") {
        TASK_REMEDY
    } else {
        "Give all threads the same work in each part between barriers (the end of a loop, single \
         or sections construct is one, too), or leave out barriers that are not needed (nowait)."
    }
}

/// Returns the remedy for uneven threads, by the schedule that the name of the call tells.
fn remedy(totals: &Totals, region: NodeId) -> &'static str {
    let call = super::name(totals, region);
    if call.contains("dynamic") {
        "Its schedule is dynamic already: use smaller chunks, or let the longest iterations come \
         first."
    } else if call.contains("guided") {
        "Its schedule is guided, which begins with large chunks: use schedule(dynamic), or let the \
         longest iterations come last."
    } else {
        "If it is a loop and its schedule is static, give it schedule(dynamic) or \
         schedule(guided); if the program divides the work itself, let it divide it more evenly."
    }
}

/// Returns the advice on work outside of parallel regions.
pub(super) fn serial_section(totals: &Totals, facts: &AdviceInput<'_>) -> String {
    let threads = totals.teams.threads;
    format!(
        "Outside of parallel regions one thread works and {} {}, most of the time in {} ({} on \
         average). A parallel region there, for all {threads} threads, saves up to {}; or let \
         another thread do this work beside a region (a task, or the section of a nowait loop).",
        counted(threads.saturating_sub(1).into(), "other"),
        if threads == 2 { "waits" } else { "wait" },
        place(totals, facts.finding),
        seconds(facts.cause_s.0),
        seconds(facts.finding.seconds),
    )
}

/// Returns the advice on parallel regions that are too short.
pub(super) fn short_regions(totals: &Totals, facts: &AdviceInput<'_>) -> String {
    let Some(region) = region_of(totals, facts.finding) else { return String::new() };
    let sums = &region.sums;
    let each = seconds(sums.elapsed_ns as f64 / sums.instances.max(1) as f64 / NS_PER_S);
    let without_work = sums.elapsed_ns.saturating_sub(sums.mean_work_ns) as f64;
    format!(
        "In all ranks, {} executes {} times and takes {each}, {} of it without work of its \
         threads: begin and end of a region take some microseconds. Put several loops into one \
         region, parallelise an outer loop, or let short loops run on one thread (if clause).",
        region_place(totals, facts.finding.symptom, &region),
        count(sums.instances),
        percent(without_work / sums.elapsed_ns.max(1) as f64),
    )
}

/// Returns the advice on tasks that are too short.
pub(super) fn short_tasks(totals: &Totals, facts: &AdviceInput<'_>) -> String {
    let teams = &totals.teams;
    // The symptoms are the calls that create most of the tasks in their regions.
    let finding = facts.finding;
    let is_symptom = |call: NodeId| finding.shown_in().any(|shown| shown == call);
    let (mut whole, mut work_ns) = (Creation::default(), 0);
    for (region, creation) in &teams.creations {
        if creation.call.is_some_and(|(_, call)| is_symptom(call)) {
            whole.count += creation.count;
            whole.time_ns += creation.time_ns;
            work_ns += totals.openmp.region(*region).map_or(0, |region| region.sums.work_ns);
        }
    }
    format!(
        "{} creates {} tasks of about {} in all ranks: creating, distributing and ending them \
         takes {} of each thread beside their work. Let a task do more (a block of iterations, \
         grainsize of a taskloop), and create no tasks below a size (if or final clause).",
        place(totals, facts.finding),
        count(whole.count),
        seconds(teams.tasks.fine_task_ns(&whole, work_ns) / NS_PER_S),
        seconds(facts.finding.seconds),
    )
}

/// Returns the remedy for a load imbalance between ranks that uneven threads of the slowest rank
/// explain; `None` if they do not.
pub(super) fn uneven_threads_of_rank(totals: &Totals, finding: &Finding) -> Option<String> {
    let uneven = team_losses::uneven_threads(totals, finding)?;
    let region = totals.openmp.region(uneven.region)?;
    Some(format!(
        "The slowest rank loses {} more than the average rank by uneven threads in {}: distribute \
         the work over its threads, not over ranks.",
        seconds(uneven.excess_s),
        region_place(totals, uneven.region, region),
    ))
}

/// Returns the remedy for a load imbalance between ranks that smaller teams of the slow ranks
/// explain; `None` if they do not.
pub(super) fn smaller_teams_of_ranks(totals: &Totals, facts: &AdviceInput<'_>) -> Option<String> {
    let (node, region) = team_losses::smaller_teams(totals, facts.finding, facts.slow)?;
    let smallest = &region.smallest;
    Some(format!(
        "In {}, {} teams of {}, other ranks of up to {}: give all ranks teams of one size \
         (OMP_NUM_THREADS, num_threads), or those with small teams less work.",
        region_place(totals, node, region),
        ranks(&smallest.ranks, "has", "have"),
        counted(smallest.threads.into(), "thread"),
        region.sums.threads,
    ))
}

/// Returns the sums of a region that a loss shows in, over all places where it is called.
fn region_of(totals: &Totals, finding: &Finding) -> Option<RegionSums> {
    let mut whole = totals.openmp.region(finding.symptom)?.clone();
    let others = finding.also_in.iter().filter_map(|node| totals.openmp.region(*node));
    others.for_each(|region| whole.add(region));
    Some(whole)
}

/// Returns the place of a region: `the parallel region at solve.c:12 in solve`.
fn region_place(totals: &Totals, node: NodeId, region: &RegionSums) -> String {
    let contexts = &totals.tree.contexts;
    let around = contexts.nodes[node as usize].parent;
    let caller = around.map(|around| {
        let frame = &contexts.frames[contexts.nodes[around as usize].frame as usize];
        shown_frame(frame).function
    });
    let caller = caller.map(|name| format!(" in {name}")).unwrap_or_default();
    match (&region.sums.file, region.sums.line) {
        (Some(file), Some(line)) => {
            let file = file.rsplit('/').next().unwrap_or(file);
            format!("the parallel region at {file}:{line}{caller}")
        }
        _ => format!("the parallel region{caller} ({})", spoken(totals, node)),
    }
}
