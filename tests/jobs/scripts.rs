//! Functions of Python scripts, in the place of the interpreter's.

use plimsoll_tests::mpi::skip;
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
