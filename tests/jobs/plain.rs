//! A process without MPI collects itself.

use plimsoll_tests::subject_job::{Job, Watch};
use plimsoll_tests::truth::assert_within;

fn watched(subject: &str, arguments: &str) -> Job {
    Job::alone(subject).arguments(arguments).watch(Watch::Run)
}

#[test]
fn time_goes_to_the_functions_that_took_it() {
    for mode in ["burn", "sleep"] {
        let job = watched("plain", &format!("{mode} 40 10")).run_until(|job| {
            let (summary, truth) = (job.summary(), job.truth());
            for (function, key) in [("work_a", "work_a_s"), ("work_b", "work_b_s")] {
                let found_s = summary.of_function(function).mean_s;
                assert_within(&format!("{function}, {mode}"), found_s, truth.number(key), 0.10);
            }
            let elapsed_s = truth.number("elapsed_s");
            assert_within("elapsed", summary.number("/run/elapsed_s"), elapsed_s, 0.10);
        });
        for function in ["work_a", "work_b"] {
            for node in job.summary().of_function(function).nodes {
                let path = job.summary().path_to(node);
                assert_eq!(path.first(), Some(&"main"), "a path begins at main");
            }
        }
    }
}

#[test]
fn a_lone_process_is_a_job_of_one_rank_without_mpi() {
    let job = watched("plain", "burn 20 10").run().succeeded();
    let summary = job.summary();
    assert_eq!(summary.number("/run/ranks"), 1.0);
    assert_eq!(summary.number("/run/threads"), 1.0);
    assert_eq!(summary.text("/run/mpi/abi"), "none");
    assert_eq!(summary.text("/run/ended"), "exit");
    assert_eq!(summary.text("/run/executable").rsplit('/').next(), Some("plain"));
    assert_eq!(summary.losses_of("load_imbalance").len(), 0);
}

#[test]
#[ignore = "long: scripts/test --all"]
fn samples_come_at_the_asked_period() {
    let job = watched("plain", "burn 50 10").options("--period 2ms").run_until(|job| {
        let summary = job.summary();
        let period_s = summary.number("/run/period_us/effective") * 1e-6;
        let cpu_s = job.truth().number("cpu_s");
        assert_within("samples", summary.number("/collection/samples") * period_s, cpu_s, 0.10);
        assert_eq!(summary.number("/collection/lost"), 0.0);
    });
    assert_eq!(job.summary().number("/run/period_us/asked"), 2000.0);
}

#[test]
fn every_thread_of_the_application_counts() {
    let job = watched("threads", "burn 10 10 3 2").run_until(|job| {
        let (summary, truth) = (job.summary(), job.truth());
        let works_s: f64 = truth.numbers("work_s").iter().sum();
        let found_s = summary.of_function("work_in_thread").sum_s;
        assert_within("work in threads", found_s, works_s, 0.10);
        let join_s = summary.of_function("pthread_join").sum_s;
        assert_within("waiting in join", join_s, truth.number("joined_s"), 0.10);
    });
    let summary = job.summary();
    assert_eq!(summary.number("/run/threads"), job.truth().number("threads"));
    let join = summary.of_function("pthread_join");
    assert_eq!((join.calls, join.calls_exact), (2.0, true));
}

#[test]
#[ignore = "long: scripts/test --all"]
fn threads_that_find_no_room_count_too() {
    let job = watched("threads", "sleep 1 1 3 900").variable("PLIMSOLL_TRACE", "off");
    let job = job.shares_cores().run().succeeded();
    let (summary, text) = (job.summary(), job.text());
    assert_eq!(summary.number("/run/threads"), 901.0, "{text}");
    assert!(summary.number("/collection/unsampled_threads") > 0.0, "{text}");
    assert!(job.report_contains("threads not sampled"), "{text}");
}

/// Asserts that each path to the function that works, the last of `path`, is whole.
#[track_caller]
fn assert_whole(subject: &str, arguments: &str, path: &[&str]) {
    let works = path[path.len() - 1];
    let job = watched(subject, arguments).run_until(|job| {
        let found = job.summary().of_function(works);
        assert_within(works, found.mean_s, job.truth().number("elapsed_s"), 0.10);
    });
    let summary = job.summary();
    for node in summary.of_function(works).nodes {
        let mut found = summary.path_to(node);
        found.dedup();
        assert_eq!(found, path);
    }
    assert_eq!(summary.number("/collection/truncated"), 0.0);
}

#[test]
fn stacks_are_whole_above_drap_frames() {
    let path = ["main", "drap_1", "drap_2", "drap_3", "drap_4", "work_below"];
    assert_whole("drap", "burn 50 10", &path);
}

#[test]
fn stacks_are_whole_above_kernels_without_an_unwind_table() {
    assert_whole("kernel_frames", "burn 10 50", &["main", "call_kernel", "work_in_kernel"]);
}

#[test]
fn truncated_stacks_are_counted_by_their_reason() {
    for (way, reason, words) in [
        ("deep", "too_deep", "because the stack is too deep"),
        ("generated", "unknown_code", "at code that no loaded file contains"),
        ("no_table", "no_caller", "at code without an unwind table"),
    ] {
        let job = watched("truncated", &format!("burn 4 100 1 {way}"));
        let job = job.shares_cores().run().succeeded();
        let (summary, text) = (job.summary(), job.text());
        let [samples, truncated, by] = ["samples", "truncated", &format!("truncated_by/{reason}")]
            .map(|key| summary.number(&format!("/collection/{key}")));
        assert!(truncated > 0.9 * samples && by > 0.95 * truncated, "{way}: {text}");
        assert!(job.report_contains(words), "{way}: {text}");
    }
}
