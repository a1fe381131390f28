//! Bounds on work that grows with the size of the program, and notes on work left out.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_tests::mpi::{Mpi, needs};
use plimsoll_tests::scratch::Scratch;
use plimsoll_tests::subject_job::{Job, Watch};
use plimsoll_tests::summary::Summary;
use serde_json::Value;

const FUNCTIONS: usize = 12;

/// Returns the sampled functions of the subject; the value tells whether the function's loop is
/// shown, with its line.
fn functions(summary: &Summary) -> BTreeMap<String, bool> {
    let frames = summary.at("/tree/frames").as_array().unwrap();
    let name = |frame: &Value| frame["function"].as_str().unwrap_or_default().to_owned();
    let ours = || frames.iter().filter(|frame| name(frame).starts_with("work_"));
    let is_loop = |frame: &&Value| frame["kind"] == "loop" && frame["line"].is_u64();
    let with_loops: BTreeSet<String> = ours().filter(is_loop).map(name).collect();
    ours().map(|frame| (name(frame), with_loops.contains(&name(frame)))).collect()
}

/// Each function is shown with its loop, or is among those reported as missing.
#[test]
#[ignore = "long: scripts/test --all"]
fn what_is_not_looked_up_in_time_is_told() {
    needs!(Mpi::OpenMpi);
    let cache = Scratch::new("described");
    for milliseconds in [100, 2000] {
        let job = Job::ranks("described", Mpi::OpenMpi, 2).watch(Watch::Run);
        let job = job.arguments(&milliseconds.to_string());
        let outcome = job.variable("XDG_CACHE_HOME", cache.path()).run().succeeded();
        let summary = outcome.summary();
        let functions = functions(summary);
        assert!(milliseconds < 1000 || functions.len() == FUNCTIONS, "{functions:?}");
        let late = summary.number("/collection/late_functions") as usize;
        let whole = functions.values().filter(|has_loop| !**has_loop).count();
        assert!(whole <= late, "{late} are said to be missing: {functions:?}");
        let notes = summary.at("/notes").to_string();
        let expected = format!("Loops and lines of {late} function");
        assert_eq!(late > 0, notes.contains(&expected), "{late}: {notes}");
        assert_eq!(late > 0, outcome.text().contains(&expected), "{late}: {}", outcome.text());
        let is_named = |(name, has_loop): (&String, &bool)| !has_loop && notes.contains(name);
        let named = functions.iter().filter(|function| is_named(*function)).count();
        assert!(named >= whole.min(3), "{functions:?}: {notes}");
    }
}
