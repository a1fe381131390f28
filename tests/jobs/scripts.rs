//! Functions of Python scripts, in the place of the interpreter's.

use plimsoll_tests::mpi::{Mpi, skip};
use plimsoll_tests::outcome::Outcome;
use plimsoll_tests::subject::Form;
use plimsoll_tests::subject_job::{Job, Watch};
use plimsoll_tests::truth::assert_within;

/// Returns whether Plimsoll knows the structures of the Python that has run.
fn is_known(job: &Outcome) -> bool {
    job.truth().number("is_known") == 1.0
}

#[test]
fn functions_of_a_script_stand_in_call_paths() {
    let job = Job::alone("scripts").form(Form::Python).arguments("3").watch(Watch::Run);
    let job = job.variable("PLIMSOLL_MARKS", "verify").run_until(|job| {
        let (summary, truth) = (job.summary(), job.truth());
        for (function, key) in
            [("Solver.relax", "relax_s"), ("compare", "compare_s"), ("steps", "advance_s")]
        {
            if is_known(job) {
                let found_s = summary.of_function(function).mean_s;
                assert_within(function, found_s, truth.number(key), 0.10);
            }
        }
    });
    if !is_known(&job) {
        return skip("functions of scripts: this version of Python is not known");
    }
    let summary = job.summary();
    let outer = ["<module>", "main"];
    let deep = [&outer[..], &["Solver.descend"; 6], &["Solver.relax"]].concat();
    for path in [&deep[..], &["<module>", "main", "compare"], &["<module>", "main", "steps"]] {
        let function = path.last().expect("a path has a function");
        let nodes = summary.of_function(function).nodes;
        // A stack before the first call may lack its outer frames.
        let stands = |node: &usize| summary.path_to(*node).ends_with(path);
        assert!(nodes.iter().any(stands), "{function}: {}", job.text());
    }
    let marks = |key: &str| summary.number(&format!("/collection/marks/{key}"));
    assert_eq!(marks("mismatched"), 0.0, "{}", job.transcript());
    assert!(marks("verified") > 50.0, "{}", job.transcript());
}

#[test]
fn a_call_of_mpi_has_the_line_of_the_script() {
    let mpi = Mpi::OpenMpi;
    if let Some(reason) = mpi.why_unavailable().or_else(|| mpi.why_no_python()) {
        return skip(&format!("lines of scripts: {reason}"));
    }
    let job = Job::ranks("imbalance", mpi, 2).form(Form::Python).arguments("sleep 20 10 3");
    let job = job.watch(Watch::Run).run().succeeded();
    if job.truth().text("cause").is_none() {
        return skip("lines of scripts: this version of Python is not known");
    }
    let worst = job.summary().worst();
    let path = worst.field("symptom")["path"].as_array().expect("a symptom has a path");
    let call = path.last().expect("a path has a frame");
    let file = call["file"].as_str().unwrap_or_default();
    let text = std::fs::read_to_string(file).unwrap_or_default();
    let line = call["line"].as_u64().expect("the call has a line") as usize;
    let line = text.lines().nth(line - 1).unwrap_or_default();
    assert!(file.ends_with("imbalance.py") && line.contains("Allreduce"), "{call}: {line}");
    assert_eq!(worst.first_cause(), Some("work_uneven"), "{worst:?}");
}
