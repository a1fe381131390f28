//! Threads hang below the call path that created them.

use plimsoll_tests::mpi::{Mpi, needs};
use plimsoll_tests::outcome::Outcome;
use plimsoll_tests::subject::Form;
use plimsoll_tests::subject_job::{Job, Watch};
use plimsoll_tests::truth::assert_within;

const TOLERANCE: f64 = 0.10;

/// Asserts that all contexts of a function lie below these functions, outermost first.
fn assert_below(job: &Outcome, function: &str, callers: &[&str]) {
    let totals = job.summary().of_function(function);
    assert!(!totals.nodes.is_empty(), "no {function}: {}", job.text());
    for node in &totals.nodes {
        let path = job.summary().path_to(*node);
        let mut rest = path.iter();
        let found = callers.iter().all(|caller| rest.any(|it| it.contains(caller)));
        assert!(found && path[0].contains(callers[0]), "{function}: {path:?}, not {callers:?}");
    }
}

fn assert_seconds(job: &Outcome, function: &str, truth_s: f64) {
    assert_within(function, job.summary().of_function(function).sum_s, truth_s, TOLERANCE);
}

#[test]
fn threads_of_every_kind_hang_below_their_creators() {
    needs!(Mpi::OpenMpi);
    let job = Job::ranks("creators", Mpi::OpenMpi, 2).arguments("sleep 1 300 1 50");
    let job = job.watch(Watch::Run).run_until(|job| {
        let of_ranks = |key| job.truth().number("ranks") * job.truth().number(key);
        assert_seconds(job, "work_early", of_ranks("early_s"));
        assert_seconds(job, "help", of_ranks("helper_s"));
        // The helpers hang below the members that created them.
        assert_seconds(job, "work_as_member", of_ranks("member_s") + of_ranks("helper_s"));
        assert_seconds(job, "work_shortly", of_ranks("short_s"));
    });
    let (truth, summary) = (job.truth(), job.summary());
    let member = ["main", "start_team", "work_as_member"];
    assert_below(&job, "work_early", &["main", "start_early"]);
    assert_below(&job, "work_as_member", &member[..2]);
    assert_below(&job, "help", &[&member[..], &["start_helper"]].concat());
    assert_below(&job, "work_shortly", &["main", "start_many"]);

    // Many threads from one call are one context, and each creation in the run is counted: the
    // early threads are created before MPI_Init.
    let nodes = summary.of_function("work_shortly").nodes;
    assert_eq!(nodes.len(), 1, "{}", job.text());
    let created = summary.of_function("pthread_create");
    assert!(created.calls_exact, "{created:?}");
    assert_eq!(created.calls, truth.number("threads") - 2.0 * truth.number("ranks"));
    assert_eq!(created.sum_s, 0.0, "creations are counted, not timed");
    assert_eq!(summary.number("/run/threads"), truth.number("threads"));
    assert!(job.report_contains("start_team"), "{}", job.text());
}

/// Samples in which a thread is being created count for the function that creates it. Each summary
/// is checked for functions of the library ([`contradictions`]).
///
/// [`contradictions`]: plimsoll_tests::summary::contradictions
#[test]
fn time_of_the_hook_counts_for_the_function_that_creates_threads() {
    needs!(Mpi::OpenMpi);
    let job = Job::ranks("creators", Mpi::OpenMpi, 2).arguments("sleep 1 10 1 4000");
    let job = job.variable("PLIMSOLL_PERIOD", "100us").watch(Watch::Run).run().succeeded();
    let created = job.summary().of_function("pthread_create");
    assert_eq!((created.calls_exact, created.sum_s), (true, 0.0), "{created:?}");
    assert!(job.summary().of_function("start_many").sum_s > 0.0, "{}", job.text());
}

#[test]
fn threads_of_cxx_and_rust_hang_below_their_creators() {
    for (form, namespace, creator) in
        [(Form::Cxx, "", "team::team"), (Form::Rust, "std_threads::", "start_team")]
    {
        let [inner, outer] = ["work_inside", "work_outside"].map(|it| format!("{namespace}{it}"));
        let job = Job::alone("std_threads").form(form).arguments("sleep 1 300");
        let job = job.watch(Watch::Run).run_until(|job| {
            let inner_s = job.truth().number("inner_s");
            assert_seconds(job, &inner, inner_s);
            // An inner thread hangs below the outer one that created it.
            assert_seconds(job, &outer, job.truth().number("work_s") + inner_s);
        });
        assert_below(&job, &inner, &["main", creator, &outer]);
        assert_below(&job, &outer, &["main", creator]);
    }
}
