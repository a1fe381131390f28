//! Libraries loaded and unloaded at run time: code in them is sampled, and unloaded memory is never
//! read.

use std::fs;

use plimsoll_tests::job_lock::lock_shared;
use plimsoll_tests::outcome::Outcome;
use plimsoll_tests::subject::{Form, executable};
use plimsoll_tests::subject_job::{Job, Watch};
use serde_json::Value;

fn reloads(way: &str, turns: u32) -> Job {
    reloads_of("reloaded", way, turns)
}

fn reloads_of(library: &str, way: &str, turns: u32) -> Job {
    let library = {
        let _job_lock = lock_shared();
        executable(library, Form::Library, None)
    };
    let arguments = format!("{way} {} {turns}", library.display());
    Job::alone("reloads").arguments(&arguments).watch(Watch::Run).shares_cores()
}

fn assert_few_truncated(job: &Outcome) {
    let [samples, truncated] =
        ["samples", "truncated"].map(|key| job.summary().number(&format!("/collection/{key}")));
    assert!(samples > 100.0, "only {samples} samples: {}", job.transcript());
    assert!(
        truncated < samples / 20.0,
        "{truncated} of {samples} are truncated: {}",
        job.transcript()
    );
}

#[test]
#[ignore = "long: scripts/test --all"]
fn a_library_may_come_back_to_its_place_any_number_of_times() {
    let job = reloads("same", 120).options("--period 1ms").run().succeeded();
    assert_few_truncated(&job);
}

#[test]
fn libraries_beyond_the_table_have_no_other_names() {
    let job = reloads("moving", 4200).options("--period 1ms").run().succeeded();
    assert_few_truncated(&job);
    let summary = job.summary();
    let frames = summary.at("/tree/frames").as_array().expect("frames are a list");
    let modules: Vec<&str> = frames.iter().filter_map(|frame| frame["module"].as_str()).collect();
    assert!(modules.contains(&"[beyond 4095 libraries]"), "{modules:?}");
    // A sample may see the loader in the initialisation of a library that has its name.
    let is_of_another = |frame: &&Value| {
        frame["module"] == "reloaded.so" && frame["function"] == "work_through_library"
    };
    let another = frames.iter().find(is_of_another);
    assert!(another.is_none(), "the name of another: {another:?}");
}

#[test]
fn unloading_in_threads_while_others_load() {
    let variables = [("PLIMSOLL_MARKS", "verify"), ("PLIMSOLL_PERIOD", "200us")];
    let job = variables
        .iter()
        .fold(reloads("threads", 300), |job, (name, value)| job.variable(name, value))
        .run()
        .succeeded();
    assert_eq!(job.summary().number("/collection/marks/mismatched"), 0.0, "{}", job.transcript());
    assert_eq!(
        fs::read_dir(job.directory())
            .into_iter()
            .flatten()
            .flatten()
            .filter(|it| it.path().extension().is_some_and(|end| end == "so"))
            .count(),
        0
    );
}

#[test]
fn threads_that_end_at_once_load_and_unload() {
    let job = reloads("churn", 300).options("--period 1ms").run().succeeded();
    assert_few_truncated(&job);
}

#[test]
fn a_constructor_may_wait_for_threads() {
    let job = reloads_of("waiting", "constructor", 20).options("--period 1ms").run().succeeded();
    let threads = job.summary().number("/run/threads");
    assert!(threads > 100.0, "each constructor makes five threads: {}", job.transcript());
}

#[test]
fn a_library_that_cannot_be_loaded_whole_is_not_read_when_it_is_gone() {
    let job = reloads_of("unfinished", "failing", 3000).options("--period 1ms").run().succeeded();
    assert_few_truncated(&job);
}

#[test]
fn a_child_forked_while_libraries_are_looked_at_can_load_its_own() {
    let job = reloads("forks", 400).options("--period 1ms").run().succeeded();
    assert_few_truncated(&job);
}
