//! Loops: found in the machine code, and their iterations counted from samples.

use plimsoll_tests::job::{Job, Watch};
use plimsoll_tests::mpi::Mpi;
use plimsoll_tests::outcome::Outcome;
use plimsoll_tests::summary::Summary;
use serde_json::Value;

fn run() -> Option<Outcome> {
    if !Mpi::OpenMpi.available() {
        return None;
    }
    let job = Job::ranks("loops", Mpi::OpenMpi, 2).watch(Watch::Run);
    Some(job.needs_all_cores().run().succeeded())
}

/// The outermost loop of a function.
#[track_caller]
fn loop_of<'a>(summary: &'a Summary, function: &str) -> &'a Value {
    let loops = summary.at("/loops").as_array().expect("a list of loops");
    let is_of = |it: &&Value| {
        let last = it["path"].as_array().and_then(|path| path.last());
        last.is_some_and(|frame| frame["kind"] == "loop" && frame["function"] == function)
    };
    loops.iter().find(is_of).unwrap_or_else(|| panic!("no loop of {function}: {loops:#?}"))
}

fn near(value: &Value, truth: f64, within: f64) {
    let value = value.as_f64().unwrap_or(f64::NAN);
    assert!((value - truth).abs() <= within * truth, "{value} is not {truth}");
}

/// The numbers in a list such as `0-4:2,9`.
fn numbers(list: &str) -> Vec<u64> {
    let part = |part: &str| {
        let (range, step) = part.split_once(':').unwrap_or((part, "1"));
        let (first, last) = range.split_once('-').unwrap_or((range, range));
        let [first, last, step] = [first, last, step].map(|text| text.parse::<u64>().unwrap());
        (first..=last).step_by(step as usize)
    };
    list.split(',').flat_map(part).collect()
}

#[test]
fn iterations_are_those_of_the_source() {
    let Some(job) = run() else { return };
    let summary = job.summary();
    let steps = loop_of(&summary, "steps");
    assert_eq!(steps["executions"], 2, "once on each rank: {steps:#}");
    assert_eq!(steps["iterations"]["accepted"], 24, "{steps:#}");
    assert_eq!(steps["iterations"]["calls_seen"], 24, "{steps:#}");
    assert_eq!(steps["iterations"]["exact"], true, "{steps:#}");
    assert_eq!(steps["ranks"], "0-1");
    near(&steps["mean_duration_s"], 24.0 * 0.170, 0.1);
    // Those that solve are not like the others, whatever else disturbs one.
    let mut alike = [0; 2];
    for cluster in steps["clusters"].as_array().unwrap() {
        let numbers = numbers(cluster["iterations"].as_str().unwrap());
        let solves = numbers[0] % 2;
        assert!(numbers.iter().all(|number| number % 2 == solves), "{steps:#}");
        if numbers.len() > 8 {
            alike[solves as usize] = numbers.len();
            near(&cluster["mean_s"], if solves == 1 { 0.190 } else { 0.150 }, 0.1);
        }
    }
    assert!(alike.iter().all(|number| *number > 8), "{steps:#}");

    let assemble = loop_of(&summary, "assemble");
    assert_eq!(assemble["executions"], 2 * 24, "{assemble:#}");
    assert_eq!(assemble["iterations"]["accepted"], 3, "{assemble:#}");
    let line = assemble["path"].as_array().unwrap().last().unwrap()["line"].as_u64().unwrap();
    let source = std::fs::read_to_string(
        plimsoll_tests::artifacts::workspace_dir().join("tests/programs/loops.c"),
    );
    let shown = source.unwrap().lines().nth(line as usize - 1).unwrap_or_default().to_owned();
    assert!(shown.contains("for (int i = 0; i < elements; i++)"), "line {line}: {shown}");
}

#[test]
fn iterations_that_become_shorter_stay_in_order() {
    let Some(job) = run() else { return };
    let summary = job.summary();
    let levels = loop_of(&summary, "levels");
    assert_eq!(levels["iterations"]["accepted"], 10, "{levels:#}");
    let durations: Vec<f64> =
        levels["durations_s"].as_array().unwrap().iter().filter_map(Value::as_f64).collect();
    let truth = job.truth().numbers("levels_s");
    assert_eq!(durations.len(), truth.len());
    for (level, (duration, truth)) in durations.iter().zip(&truth).enumerate() {
        // A boundary is known to a period.
        assert!((duration - truth).abs() < 0.1 * truth + 0.004, "{level}: {duration} not {truth}");
    }
    assert!(levels["clusters"].as_array().unwrap().len() >= 3, "{levels:#}");
}

#[test]
fn iterations_that_only_sleep_are_counted() {
    let Some(job) = run() else { return };
    let summary = job.summary();
    let sleeps = loop_of(&summary, "sleeps");
    assert_eq!(sleeps["iterations"]["accepted"], 12, "{sleeps:#}");
    near(&sleeps["mean_duration_s"], 12.0 * 0.060, 0.1);
    let calls = summary.of_function("wait_a_while").calls;
    assert!(calls >= 22.0, "{calls} of 2 x 12 calls, and the first may be missed on each rank");
}

#[test]
fn iterations_shorter_than_a_period_are_not_invented() {
    let Some(job) = run() else { return };
    let summary = job.summary();
    for it in summary.at("/loops").as_array().unwrap() {
        let path = it["path"].as_array().unwrap();
        assert_ne!(path.last().unwrap()["function"], "short_ones", "{it:#}");
    }
    // It is in the tree.
    let found = summary
        .at("/tree/frames")
        .as_array()
        .unwrap()
        .iter()
        .any(|frame| frame["kind"] == "loop" && frame["function"] == "short_ones");
    assert!(found, "{}", summary.at("/tree/frames"));
}
