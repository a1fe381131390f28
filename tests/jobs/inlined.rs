//! Causes in programs with everything inlined into main: the kernel and its loop are named.

use plimsoll_tests::mpi::Mpi;
use plimsoll_tests::outcome::Outcome;
use plimsoll_tests::subject::Form;
use plimsoll_tests::subject_job::{Job, Watch};
use plimsoll_tests::truth::assert_within;
use serde_json::Value;

const TOLERANCE: f64 = 0.10;
/// Ratio of the slow ranks' work in the uneven kernel to that of the others. The loss is then a
/// third of the run or more, and its tolerance larger than most disturbances.
const FACTOR: f64 = 6.0;
/// Minimum fraction of the kernel's imbalance that a loop within the kernel must hold to be the
/// cause.
const HELD: f64 = 0.7;

/// Returns the first cause, after asserting that it holds at least [`HELD`] of the loss and of the
/// kernel's time, and no more than all of them.
fn first_cause(job: &Outcome) -> &Value {
    let (summary, truth) = (job.summary(), job.truth());
    let worst = summary.worst();
    assert_eq!(worst.kind(), "load_imbalance", "{}", job.text());
    assert_within("seconds", worst.seconds(), truth.number("expected_loss_s"), TOLERANCE);
    let cause = &worst.field("causes")[0];
    // All but two of the kernels of a mean rank.
    let all_s: f64 = truth.numbers("work_s").iter().sum::<f64>() / truth.number("ranks");
    let part = 1.0 - 2.0 / (3.0 + (FACTOR - 1.0) / truth.number("ranks"));
    for (field, truth_s) in [("seconds", truth.number("expected_loss_s")), ("mean_s", part * all_s)]
    {
        let found_s = cause[field].as_f64().expect("a cause has it");
        let allowed = HELD * truth_s..=(1.0 + TOLERANCE) * truth_s;
        assert!(allowed.contains(&found_s), "{field}: {found_s} of {truth_s}: {}", job.text());
    }
    cause
}

fn frames(cause: &Value) -> &[Value] {
    cause["path"].as_array().expect("a cause has a path")
}

/// Runs a job for each way to choose the slow ranks: with few ranks that compute, in C++, and with
/// more that sleep.
fn each(form: Form, assertions: impl Fn(&Outcome)) {
    let modes = [
        (Mpi::Mpich, 2, "burn 20 10", ""),
        (Mpi::Mpich, 2, "burn 20 10", "turns"),
        (Mpi::OpenMpi, 4, "sleep 40 5", ""),
        (Mpi::OpenMpi, 4, "sleep 40 5", "turns"),
    ];
    let sleeps_only = matches!(form, Form::FortranInlined | Form::FortranWithoutDebug);
    for (mpi, ranks, work, how) in modes.into_iter().filter(|(mpi, ..)| mpi.available()) {
        if sleeps_only && !work.starts_with("sleep") {
            continue;
        }
        let job = Job::ranks("kernels", mpi, ranks).form(form).watch(Watch::Run);
        job.arguments(&format!("{work} {FACTOR} {how}")).run_until(&assertions);
    }
}

/// Asserts that the kernel is in the cause's path as an inlined function, and in the text.
fn assert_kernel_named(form: Form) {
    each(form, |job| {
        let cause = first_cause(job);
        let truth = job.truth();
        let kernel = truth.text("cause").expect("the subject claims one");
        let is_kernel = |frame: &Value| frame["kind"] == "inlined" && frame["function"] == kernel;
        assert!(frames(cause).iter().any(is_kernel), "{}", job.text());
        assert!(job.text().contains("smooth"), "{}", job.text());
    });
}

/// Asserts that the cause is a loop of the outermost function, named by its address.
fn assert_loop_named(form: Form, program: &str) {
    each(form, |job| {
        let last = frames(first_cause(job)).last().expect("a path has an end");
        assert_eq!(
            (&last["kind"], &last["function"]),
            (&"loop".into(), &program.into()),
            "{last:#}"
        );
        assert!(last["offset"].is_u64(), "{last:#}");
        assert!(job.text().contains(&format!("the loop at {program}+0x")), "{}", job.text());
    });
}

#[test]
#[ignore = "long: scripts/test --all"]
fn the_inlined_template_that_is_uneven_is_named() {
    assert_kernel_named(Form::CxxInlined);
}

#[test]
#[ignore = "long: scripts/test --all"]
fn the_inlined_internal_procedure_that_is_uneven_is_named() {
    assert_kernel_named(Form::FortranInlined);
}

#[test]
#[ignore = "long: scripts/test --all"]
fn without_debug_information_its_loop_is_named() {
    assert_loop_named(Form::CxxWithoutDebug, "main");
    assert_loop_named(Form::FortranWithoutDebug, "MAIN__");
}
