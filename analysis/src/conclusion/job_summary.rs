//! Job-wide parts of the summary, and the data on how the job was measured.

use std::cmp::Reverse;

use plimsoll_agent::marks::marks_disabled::MarksDisabled;
use plimsoll_wire::sync_id::{MAX_SUBGROUPS, MAX_TEMPORAL_TREES, unfollowed};
use plimsoll_wire::truncation::Truncation;

use crate::advice::{listed, named};
use crate::agreement::Matching;
use crate::awaited_threads;
use crate::input::{FirstDeath, JobInfo};
use crate::job_totals::{Counts, JobTotals};
use crate::metrics::NS_PER_S;
use crate::phrase::{count, shortened};
use crate::summary::{
    Clock, Collection, Efficiency, KILLED, Marks, MpiAbi, NodeOfRun, PeriodUs, Run, TruncatedBy,
};
use crate::thresholds::{MIN_DELAYED_WORK_FRACTION, MIN_RUN_DELAY_FRACTION, MIN_SEVERITY};
use crate::timeline::{Plan, TimelineTotals};
use crate::totals::Totals;

pub(super) fn run(totals: &JobTotals, job: &JobInfo) -> Run {
    let nodes = totals.hosts.iter().map(|(host, at)| NodeOfRun {
        host: host.clone(),
        ranks: at.ranks.to_string(),
        cores: at.cores.len() as u32,
    });
    let samples = totals.counts.samples;
    let effective = totals.sampled_ns as f64 / samples.max(1) as f64 / 1e3;
    Run {
        executable: job.executable.clone(),
        arguments: job.arguments.clone(),
        job: job.job.clone(),
        started: job.started.clone(),
        elapsed_s: totals.elapsed_ns as f64 / NS_PER_S,
        ranks: totals.ranks.len(),
        world_ranks: job.world_ranks,
        threads: u32::try_from(totals.counts.unseen_threads)
            .map_or(u32::MAX, |unseen| totals.threads.saturating_add(unseen)),
        nodes: nodes.collect(),
        mpi: job.mpi.clone(),
        period_us: PeriodUs {
            asked: totals.period_ns as f64 / 1e3,
            effective: (effective > 0.0).then_some(effective),
        },
        clock: match totals.clock.as_str() {
            "wall" => Clock::Wall,
            "timer" => Clock::Timer,
            _ => Clock::Cpu,
        },
        complete: job.complete && totals.left_out.is_empty(),
        incomplete: incomplete(totals, job),
        ended: job.ended.clone(),
        settings: job.settings.clone(),
    }
}

/// Returns the reason why the summary does not cover the whole run, unless the end of the run
/// explains that.
fn incomplete(totals: &JobTotals, job: &JobInfo) -> Option<String> {
    let mut left_out = totals.left_out.values().cloned();
    let left_out = left_out.next().map(|first| left_out.fold(first, |all, more| all.union(&more)));
    let left_out = left_out.filter(|_| job.complete);
    let left_out = left_out.map(|ranks| format!("the profile of {} was left out", named(&ranks)));
    job.incomplete.clone().or(left_out).or_else(|| first_end(job))
}

/// Returns which rank ended first and how the run ended then, as the end of a sentence; `None` if
/// no rank ended early. A rank that was killed by signal 9 leaves no other trace: the launcher then
/// ends all other ranks by signal 15.
fn first_end(job: &JobInfo) -> Option<String> {
    let FirstDeath { rank, at_ns } = job.death.filter(|_| job.is_broken_off())?;
    let then = match job.ended.as_str() {
        KILLED => "the run was killed".to_owned(),
        "signal 15" => "the other ranks were then ended by signal 15".to_owned(),
        ended => format!("the run ended by {ended}"),
    };
    Some(format!("rank {rank} ended first, at {:.1} s; {then}", at_ns as f64 / NS_PER_S))
}

pub(super) fn collection(totals: &JobTotals) -> Collection {
    let counts = &totals.counts;
    Collection {
        samples: counts.samples,
        lost: counts.lost,
        truncated: counts.truncated,
        truncated_by: truncated_by(counts),
        pruned: counts.pruned,
        marks: marks(totals),
        mpi_calls: counts.mpi_calls,
        spool_bytes: counts.spool_bytes,
        record_bytes: counts.record_bytes,
        sampling_cpu_s: counts.sampling_cpu_ns as f64 / NS_PER_S,
        collector_cpu_s: counts.collector_cpu_ns as f64 / NS_PER_S,
        structure_cpu_s: counts.structure_cpu_ns.0 as f64 / NS_PER_S,
        late_structure_cpu_s: counts.structure_cpu_ns.1 as f64 / NS_PER_S,
        late_functions: counts.late_functions,
        late_samples: counts.late_samples,
        // Known only after this analysis.
        finalize_s: None,
        memory_bytes: counts.memory_bytes,
        memory: counts.memory,
        unsampled_threads: counts.unsampled_threads,
    }
}

fn truncated_by(counts: &Counts) -> TruncatedBy {
    let by = |reason: Truncation| counts.truncated_by[reason as usize];
    TruncatedBy {
        unknown_code: by(Truncation::UnknownCode),
        no_caller: by(Truncation::NoCaller),
        too_deep: by(Truncation::TooDeep),
        table_full: by(Truncation::TableFull),
    }
}

fn marks(totals: &JobTotals) -> Marks {
    let [planted, hit, stale, verified, mismatched] = totals.counts.marks;
    let reasons = totals.marks_off.iter().filter_map(|(number, ranks)| {
        let reason = MarksDisabled::from_number(*number)?;
        let everywhere = ranks.len() == totals.ranks.len();
        Some(if everywhere { reason.to_string() } else { format!("{reason} ({})", named(ranks)) })
    });
    let reasons: Vec<String> = reasons.collect();
    let off_reason = (!reasons.is_empty()).then(|| reasons.join("; "));
    Marks { planted, hit, stale, verified, mismatched, off_reason }
}

/// Returns POP's efficiencies: parallel = load balance x communication x OpenMP. Waiting for the
/// threads of its own team counts as useful for the first two, which compare ranks. The last one is
/// left out of an MPI job that hardly uses its teams: their idle threads are not meant to work.
/// Without MPI, or if other threads do the work of the ranks, there is nothing to compare.
pub(super) fn efficiency(
    totals: &Totals,
    over_time: &Option<(Plan, TimelineTotals)>,
    job: &JobInfo,
) -> Efficiency {
    let work_is_elsewhere = awaited_threads::work_is_elsewhere(totals);
    let Totals { job: totals, teams, .. } = totals;
    let (mean_ns, max_ns) = (totals.useful.mean(totals.ranks.len()), totals.useful.max as f64);
    let elapsed_ns = totals.elapsed_ns as f64;
    let of = |part: f64, whole: f64| (whole > 0.0).then(|| (part / whole).clamp(0.0, 1.0));
    let openmp = teams.efficiency();
    if job.mpi.abi == MpiAbi::None {
        return Efficiency { openmp, ..Efficiency::default() };
    }
    let openmp = openmp.filter(|_| teams.are_used(totals));
    if work_is_elsewhere {
        return Efficiency { openmp, ..Efficiency::default() };
    }
    let of_threads = openmp.map_or(1.0, |openmp| openmp.parallel);
    Efficiency {
        parallel: of(mean_ns, elapsed_ns).map(|of_ranks| of_ranks * of_threads),
        load_balance: of(mean_ns, max_ns),
        communication: of(max_ns, elapsed_ns),
        openmp,
        windows: over_time.as_ref().map_or_else(Vec::new, |(plan, timeline_totals)| {
            timeline_totals.windows(plan, totals.span_ns)
        }),
    }
}

/// Returns the note on functions that were not looked up by the deadline. Each node gives up
/// different functions, so their total may exceed the number on any rank.
fn late(totals: &JobTotals) -> Option<String> {
    let (counts, late) = (&totals.counts, &totals.late);
    let functions = match counts.late_functions.max(late.len() as u64) {
        0 => return None,
        1 => String::from("1 function"),
        number => format!("{number} functions"),
    };
    let mut names: Vec<&str> = late.keys().map(String::as_str).collect();
    names.sort_by_key(|name| Reverse(late[*name]));
    let names: Vec<String> = names.into_iter().map(shortened).collect();
    let names: Vec<&str> = names.iter().map(String::as_str).collect();
    let part = 100.0 * counts.late_samples as f64 / counts.samples.max(1) as f64;
    let part = if part < 1.0 { String::from("less than 1") } else { format!("{part:.0}") };
    Some(format!(
        "Loops and lines of {functions} ({part} % of the samples) were not looked up in time: each \
         is shown as a whole ({}). What was found is kept for the next run; a longer one, or \
         `plimsoll digest`, looks up the rest.",
        listed(&names)
    ))
}

/// Minimum fraction of samples without inner frames that a note tells of.
const MIN_NOTED_PRUNED_FRACTION: f64 = 0.01;

/// Returns the note on stacks without inner frames; `None` if there are few.
fn pruned(totals: &JobTotals) -> Option<String> {
    let counts = &totals.counts;
    let part = counts.pruned as f64 / counts.samples.max(1) as f64;
    (part >= MIN_NOTED_PRUNED_FRACTION).then(|| {
        format!(
            "PLIMSOLL_MEMORY is too small for all call paths: {} stacks ({:.0} % of the samples) \
             count for their outer frames only, and phases and losses inside may be missing. Raise \
             it.",
            counts.pruned,
            100.0 * part.min(1.0)
        )
    })
}

pub(super) fn notes(totals: &JobTotals, matching: &Matching, job: &JobInfo) -> Vec<String> {
    let mut notes = job.notes.clone();
    if let Some(FirstDeath { rank, at_ns }) = job.death {
        notes.push(format!(
            "The run is counted up to the end of rank {rank} at {:.1} s; what the others did \
             afterwards is not counted.",
            at_ns as f64 / NS_PER_S
        ));
    }
    match matching {
        Matching::Phases => {}
        Matching::Joined(_) => notes.push(
            "In part of the run the ranks synchronised at places that do not correspond (on other \
             call paths, or in copies of one call that the compiler made): each such part is one \
             phase."
                .into(),
        ),
        Matching::WholeRun => notes.push(unmatched(totals)),
    }
    notes.extend(paused(totals));
    for (reason, ranks) in &totals.left_out {
        notes.push(format!("The profile of {} {reason} and was left out.", named(ranks)));
    }
    notes.extend(late(totals));
    notes.extend(pruned(totals));
    for (trouble, ranks) in &totals.spool_troubles {
        notes.push(format!("The spool of {} is incomplete: {trouble}.", named(ranks)));
    }
    for (bit, ranks) in &totals.unfollowed {
        let ranks = named(ranks);
        notes.push(match *bit {
            unfollowed::SUBGROUPS => format!(
                "On {ranks} more than {MAX_SUBGROUPS} different groups of ranks synchronised: what \
                 is uneven within the later ones is not seen."
            ),
            unfollowed::OTHER_THREADS => format!(
                "On {ranks} several threads took part in collectives: only those of one \
                 thread end phases."
            ),
            unfollowed::DECLARED => format!(
                "On {ranks} the end of a function that a rule declares to synchronise could \
                 not be measured, since return addresses must not be replaced there: such \
                 functions end no phases."
            ),
            _ => format!(
                "More than {MAX_TEMPORAL_TREES} threads of {ranks} lived at the same time: \
                 which of the later ones did alike is not known."
            ),
        });
    }
    notes.extend(few_samples(totals));
    notes.extend(delayed_answers(totals));
    if !totals.stepped_aside.is_empty() {
        notes.push(format!(
            "The program or its runtime handles the sampling signal, SIGSTKFLT, itself, or a \
             debugger stops at it, on {}: from then on no samples were taken there, \
             only calls were measured.",
            named(&totals.stepped_aside)
        ));
    }
    notes
}

/// Returns the note that the program paused the measurement.
fn paused(totals: &JobTotals) -> Option<String> {
    let paused_ns = totals.counts.paused_ns;
    (paused_ns > 0).then(|| {
        format!(
            "The program paused the measurement (MPI_Pcontrol) for {:.2} s: the run time and all \
             other durations leave that time out; times since the begin of the run include it.",
            paused_ns as f64 / NS_PER_S
        )
    })
}

/// Returns the note that ranks answer late because other programs use their cores. In a run with
/// little work and many messages, that makes calls long while few delays of work are measured; more
/// of them are a loss of their own.
fn delayed_answers(totals: &JobTotals) -> Option<String> {
    let ranks = totals.ranks.len();
    let (delay_ns, work_ns) = (totals.run_delay.mean(ranks), totals.useful_on_core.mean(ranks));
    let fraction = delay_ns / (delay_ns + work_ns).max(1.0);
    let of_run = delay_ns / (totals.elapsed_ns as f64).max(1.0);
    let is_notable = ranks > 1
        && totals.crowding() <= 1.0
        && of_run > MIN_SEVERITY
        && of_run <= MIN_RUN_DELAY_FRACTION
        && fraction >= MIN_DELAYED_WORK_FRACTION;
    is_notable.then(|| {
        format!(
            "Ranks waited for a core in {:.0} % of the time in which they had work, although the \
             job has cores enough: other programs use them, or ranks are bound to the same one. \
             Waiting in calls may have that reason, too, since a partner without a core answers \
             late.",
            100.0 * fraction
        )
    })
}

/// Returns the note that the ranks' synchronisations cannot be matched.
fn unmatched(totals: &JobTotals) -> String {
    match totals.counts.lost {
        0 => "The ranks did not see the same synchronisations: the whole run is one phase.".into(),
        lost => format!(
            "{} records were lost, since their collector had too little of a core: the \
             synchronisations of the ranks cannot be matched, the whole run is one phase, and what \
             is said of waiting may have other causes. Leave a core free on each node, or take \
             fewer samples (PLIMSOLL_PERIOD).",
            count(lost)
        ),
    }
}

/// Minimum ratio of the period found to the period asked for at which samples are called rare.
const MIN_RARE_RATIO: f64 = 1.5;
/// Minimum number of samples from which the period is taken.
const MIN_SAMPLES: u64 = 25;

/// Returns the note that timers of the kernel take fewer samples than asked for, since perf events
/// are refused.
fn few_samples(totals: &JobTotals) -> Option<String> {
    let samples = totals.counts.samples;
    let asked_ms = totals.period_ns as f64 / 1e6;
    let found_ms = totals.sampled_ns as f64 / samples.max(1) as f64 / 1e6;
    let is_rare = samples >= MIN_SAMPLES && found_ms > MIN_RARE_RATIO * asked_ms;
    (totals.clock == "timer" && is_rare).then(|| {
        format!(
            "The kernel refuses perf events here, and its timers took a sample every \
             {found_ms:.1} ms instead of {asked_ms:.1} ms: `plimsoll doctor` says what to do."
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ranks::RankSet;
    use crate::synthetic_run::job;

    #[test]
    fn many_stacks_without_inner_frames_are_noted() {
        let mut totals = JobTotals::default();
        (totals.counts.samples, totals.counts.pruned) = (80_000, 700);
        assert_eq!(pruned(&totals), None);
        totals.counts.pruned = 8886;
        let note = pruned(&totals).unwrap();
        assert!(note.contains("8886 stacks (11 % of the samples)"), "{note}");
    }

    #[test]
    fn the_rank_that_ended_first_is_named_before_the_signal_of_the_others() {
        let death = Some(FirstDeath { rank: 2, at_ns: 9_610_000_000 });
        let killed = JobInfo { complete: false, ended: "signal 15".into(), death, ..job() };
        let totals = JobTotals::default();
        assert_eq!(
            incomplete(&totals, &killed).as_deref(),
            Some("rank 2 ended first, at 9.6 s; the other ranks were then ended by signal 15")
        );
        let reason = Some(String::from("the spool of rank 1 is damaged"));
        let damaged = JobInfo { incomplete: reason.clone(), ..killed.clone() };
        assert_eq!(incomplete(&totals, &damaged), reason);
        assert_eq!(incomplete(&totals, &JobInfo { death: None, ..killed }), None);
    }

    #[test]
    fn paused_time_is_noted() {
        let mut totals = JobTotals::default();
        assert_eq!(paused(&totals), None);
        for paused_ns in [2_500_000_000, 1_000_000_000] {
            let counts = Counts { paused_ns, ..Counts::default() };
            totals.combine(JobTotals { counts, ..JobTotals::default() });
        }
        let note = paused(&totals).unwrap();
        assert!(note.contains("(MPI_Pcontrol) for 2.50 s"), "{note}");
    }

    #[test]
    fn notes_name_one_rank_or_several() {
        let note = |ranks: RankSet| {
            let unfollowed = [(unfollowed::OTHER_THREADS, ranks)].into();
            let totals = JobTotals { unfollowed, ..JobTotals::default() };
            notes(&totals, &Matching::Phases, &job()).remove(0)
        };
        let one = note((2..3).collect());
        assert!(one.starts_with("On rank 2 several threads"), "{one}");
        let several = note((0..4).collect());
        assert!(several.starts_with("On ranks 0-3 several threads"), "{several}");
    }

    #[test]
    fn lost_records_are_named_as_the_reason_of_one_phase() {
        let note = |lost: u64, matching: Matching| {
            let counts = Counts { lost, ..Counts::default() };
            let totals = JobTotals { counts, ..JobTotals::default() };
            notes(&totals, &matching, &job()).into_iter().next()
        };
        let whole = note(0, Matching::WholeRun).unwrap();
        assert!(whole.starts_with("The ranks did not see the same synchronisations"), "{whole}");
        let lost = note(98_366, Matching::WholeRun).unwrap();
        assert!(lost.starts_with("98,366 records were lost, since"), "{lost}");
        assert_eq!(note(98_366, Matching::Phases), None);
    }

    #[test]
    fn samples_that_the_kernel_makes_rare_are_noted() {
        let note = |clock: &str, sampled_ms: u64| {
            let mut totals = JobTotals { period_ns: 1_000_000, ..JobTotals::default() };
            (totals.clock, totals.counts.samples) = (clock.to_owned(), 100);
            totals.sampled_ns = u128::from(sampled_ms) * 1_000_000;
            few_samples(&totals)
        };
        assert_eq!((note("cpu", 400), note("timer", 140)), (None, None));
        assert!(note("timer", 400).unwrap().contains("every 4.0 ms instead of 1.0 ms"));
    }

    #[test]
    fn partners_without_a_core_are_noted() {
        let note = |ranks: u32, delay_ms: u64, work_ms: u64| {
            let each = |ms: u64| (0..ranks).map(|_| ms * 1_000_000).collect();
            delayed_answers(&JobTotals {
                ranks: (0..ranks).collect(),
                elapsed_ns: 30_000_000_000,
                run_delay: each(delay_ms),
                useful_on_core: each(work_ms),
                ..JobTotals::default()
            })
        };
        let words = "Ranks waited for a core in 46 % of the time in which they had work";
        assert!(note(2, 1300, 1500).unwrap().starts_with(words));
        assert_eq!(note(2, 200, 300), None, "hardly any part of the run");
        assert_eq!(note(2, 2600, 3000), None, "a loss of its own");
        assert_eq!(note(2, 1300, 27_000), None, "a small part of the work");
        assert_eq!(note(1, 1300, 1500), None, "no partner");
    }

    #[test]
    fn functions_without_structure_are_named_whichever_node_gave_them_up() {
        let of_node = |functions: &[(&str, u64)]| {
            let mut totals = JobTotals::default();
            totals.counts.samples = 100;
            totals.counts.late_functions = functions.len() as u64;
            totals.counts.late_samples = functions.iter().map(|(_, samples)| samples).sum();
            totals.late = functions.iter().map(|(name, n)| ((*name).to_owned(), *n)).collect();
            totals
        };
        assert_eq!(late(&of_node(&[])), None);
        let mut job = of_node(&[("solve", 20)]);
        job.combine(of_node(&[("solve", 10), ("assemble", 25)]));
        let note = late(&job).unwrap();
        let expected = "Loops and lines of 2 functions (28 % of the samples) were not looked up in \
                    time: each is shown as a whole (solve and assemble).";
        assert!(note.starts_with(expected), "{note}");
    }

    #[test]
    fn functions_that_were_not_looked_up_have_short_names() {
        let name = "std::__introsort_loop<grid::Cell*, long, main::{lambda(grid::Cell)#1}>";
        let mut totals = JobTotals::default();
        totals.late.insert(name.to_owned(), 7);
        let note = late(&totals).unwrap();
        assert!(note.contains("as a whole (std::__introsort_loop<...>)"), "{note}");
    }
}
