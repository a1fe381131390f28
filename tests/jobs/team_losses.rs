//! Losses in teams of threads, each planted by a subject that measures it.

use plimsoll_tests::mpi::{Mpi, needs};
use plimsoll_tests::openmp_runtime::{Language, OpenMpRuntime, team};
use plimsoll_tests::outcome::Outcome;
use plimsoll_tests::subject::Form;
use plimsoll_tests::subject_job::{Job, Watch};
use plimsoll_tests::truth::assert_within;

const TOLERANCE: f64 = 0.10;

/// Ratio of slow work to other work.
const FACTOR: u32 = 3;
/// Relative tolerance for short tasks. The measurement takes time at the begin and the end of each
/// task: the summary counts a part of it as work, the subject counts all of it as overhead.
const TASK_TOLERANCE: f64 = 0.20;

/// Maximum median of short tasks and regions, as a multiple of the subject's mean.
const MAX_MEDIAN: f64 = 2.0;

/// Runs `openmp_kinds` of this kind with GCC's runtime, alone, until `check` holds.
fn kind(kind: &str, threads: u32, factor: u32, check: impl Fn(&Outcome)) {
    let form = Form::OpenMp(Language::C, OpenMpRuntime::Gomp);
    let job = Job::alone("openmp_kinds").form(form);
    let job = team(job.arguments(&format!("sleep 10 10 {factor} {kind}")), threads);
    job.watch(Watch::Run).run_until(check);
}

/// Asserts that the largest loss is the one that the subject tells.
#[track_caller]
fn assert_largest(job: &Outcome) {
    let truth = job.truth();
    let losses = job.summary().losses();
    let largest = losses.first().unwrap_or_else(|| panic!("no loss: {}", job.text()));
    assert_eq!(Some(largest.kind()), truth.text("loss"), "{}", job.text());
    let is_of_tasks = largest.kind() == "fine_grained_tasks";
    let tolerance = if is_of_tasks { TASK_TOLERANCE } else { TOLERANCE };
    assert_within("loss", largest.seconds(), truth.number("expected_loss_s"), tolerance);
    let cause = truth.text("cause").expect("the subject names the cause");
    let path = largest.cause_path();
    // The cause of uneven threads is the loop of the region, which calls the subject's function:
    // the path ends in the outlined function.
    match largest.kind() {
        "thread_imbalance" => {
            assert!(path.last().is_some_and(|it| it.contains("_omp_fn")), "{path:?}")
        }
        _ => assert!(path.iter().any(|it| it.contains(cause)), "{cause} is not in {path:?}"),
    }
}

#[test]
#[ignore = "long: scripts/test --all"]
fn uneven_threads_of_each_schedule_are_found() {
    for how in ["static", "dynamic", "guided", "nested"] {
        kind(how, 4, FACTOR, |job| {
            assert_largest(job);
            let line = job.truth().number("line");
            let regions = job.summary().at("/openmp/regions").as_array().expect("it is a list");
            assert!(regions.iter().any(|it| it["line"].as_f64() == Some(line)), "{regions:?}");
        });
    }
}

#[test]
fn even_threads_lose_nothing_and_work_outside_of_regions_is_serial() {
    kind("even", 4, FACTOR, |job| {
        assert!(job.summary().losses_of("thread_imbalance").is_empty(), "{}", job.text());
        assert!(job.summary().number("/efficiency/openmp/load_balance") > 0.9);
    });
    kind("serial", 4, FACTOR, |job| {
        assert_largest(job);
        let truth = job.truth();
        let (serial_s, region_s) = (truth.number("serial_s"), truth.number("region_s"));
        let serialisation = (serial_s + 4.0 * region_s) / (4.0 * serial_s + 4.0 * region_s);
        let found = job.summary().number("/efficiency/openmp/serialisation");
        assert_within("serialisation", found, serialisation, TOLERANCE);
    });
}

#[test]
#[ignore = "long: scripts/test --all"]
fn short_tasks_and_regions_are_found() {
    // Thousands of tasks or regions per iteration: the run lasts for many sampling periods, so that
    // the call that creates tasks is sampled.
    for (how, thousands) in [("tasks", 100), ("regions", 10)] {
        kind(how, 2, thousands, |job| {
            assert_largest(job);
            let truth = job.truth();
            let loss = job.summary().losses()[0].field("median_s").as_f64();
            let median_s = loss.expect("short pieces have a median");
            // A region is as long as its threads take to begin and to end, too.
            let shortest_s = truth.number("piece_s") / truth.number("pieces");
            assert!(median_s > 0.8 * shortest_s, "{median_s} s");
            let mean_s = match how {
                "tasks" => shortest_s,
                _ => truth.number("region_s") / truth.number("instances"),
            };
            assert!(median_s < MAX_MEDIAN * mean_s, "{median_s} s, mean {mean_s} s");
            let text = job.text();
            assert!(text.contains("(median)"), "{text}");
        });
    }
}

#[test]
fn threads_contend_for_critical_sections() {
    for how in ["critical", "convoy"] {
        kind(how, 4, FACTOR, |job| {
            let lock = &job.summary().losses_of("lock_contention");
            let [loss] = &lock[..] else { panic!("{}", job.text()) };
            assert_within("loss", loss.seconds(), job.truth().number("expected_loss_s"), TOLERANCE);
        });
    }
}

#[test]
fn a_rank_that_is_slow_by_uneven_threads_says_so() {
    needs!(Mpi::OpenMpi);
    let form = Form::OpenMp(Language::C, OpenMpRuntime::Gomp);
    let job = Job::ranks("openmp_ranks", Mpi::OpenMpi, 2).form(form);
    let job = team(job.arguments("sleep 10 10 3 uneven"), 2);
    job.watch(Watch::Run).run_until(|job| {
        let between = job.summary().losses_of("load_imbalance");
        let [loss] = &between[..] else { panic!("{}", job.text()) };
        let advice = loss.field("advice").as_str().expect("it is text");
        assert!(advice.contains("by uneven threads in"), "{advice}");
    });
}

#[test]
#[ignore = "long: scripts/test --all"]
fn who_holds_a_lock_while_others_wait_is_named() {
    for runtime in
        [OpenMpRuntime::Gomp, OpenMpRuntime::Llvm].into_iter().filter(|it| it.available())
    {
        let form = Form::OpenMp(Language::C, runtime);
        let job = Job::alone("openmp_kinds").form(form).arguments("sleep 60 5 4 holders");
        team(job, 4).watch(Watch::Run).run_until(|job| {
            let truth = job.truth();
            let found = &job.summary().losses_of("lock_contention");
            let [loss] = &found[..] else { panic!("{}", job.text()) };
            assert_within("loss", loss.seconds(), truth.number("expected_loss_s"), TOLERANCE);
            let holder = &loss.field("holders")[0];
            let name = truth.text("holder").expect("the subject names the holder");
            let path = holder["path"].as_array().expect("it is a list");
            let functions: Vec<_> = path.iter().filter_map(|it| it["function"].as_str()).collect();
            assert!(functions.contains(&name), "{functions:?}");
            assert!(functions.contains(&"main"), "{functions:?}");
            let share = holder["share"].as_f64().expect("it is a number");
            assert_within("share", share, truth.number("holder_share"), TOLERANCE);
            assert!(job.text().contains(&format!("Held by    {name}")), "{}", job.text());
        });
    }
}
