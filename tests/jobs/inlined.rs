//! Causes in programs of which everything was inlined into main: the kernel and its loop are named.

use plimsoll_tests::job::{Job, Watch};
use plimsoll_tests::mpi::Mpi;
use plimsoll_tests::outcome::Outcome;
use plimsoll_tests::subject::Form;
use plimsoll_tests::truth::assert_within;
use serde_json::Value;

const TOLERANCE: f64 = 0.10;
/// A loop within the kernel is the cause if it holds this part of what the kernel is uneven by.
const HELD: f64 = 0.7;

/// The first cause, which holds as much of what is uneven and of the one kernel as a cause must, and no more.
fn first_cause(job: &Outcome) -> &Value {
    let (summary, truth) = (job.summary(), job.truth());
    let worst = summary.worst();
    assert_eq!(worst.kind(), "load_imbalance", "{}", job.text());
    assert_within("seconds", worst.seconds(), truth.number("expected_loss_s"), TOLERANCE);
    let cause = &worst.field("causes")[0];
    // Of 3 + (3 - 1) / ranks kernels this is all but two.
    let all_s: f64 = truth.numbers("work_s").iter().sum::<f64>() / truth.number("ranks");
    let part = 1.0 - 2.0 / (3.0 + 2.0 / truth.number("ranks"));
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

/// Each way in which the slow ranks are chosen, by few ranks that compute, in C++, and by more that sleep.
fn each(form: Form, assertions: impl Fn(&Outcome)) {
    let modes = [
        (Mpi::Mpich, 2, "burn 20 10 3"),
        (Mpi::Mpich, 2, "burn 20 10 3 turns"),
        (Mpi::OpenMpi, 4, "sleep 40 5 3"),
        (Mpi::OpenMpi, 4, "sleep 40 5 3 turns"),
    ];
    let sleeps_only = matches!(form, Form::FortranInlined | Form::FortranWithoutDebug);
    for (mpi, ranks, mode) in modes.into_iter().filter(|(mpi, ..)| mpi.available()) {
        if sleeps_only && !mode.starts_with("sleep") {
            continue;
        }
        let job = Job::ranks("kernels", mpi, ranks).form(form).arguments(mode).watch(Watch::Run);
        job.shows(&assertions);
    }
}

/// The kernel is in the path of the cause as an inlined function, and in the text.
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

/// The cause is a loop of the outermost function, by its place in the code.
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
fn the_inlined_template_that_is_uneven_is_named() {
    assert_kernel_named(Form::CxxInlined);
}

#[test]
fn the_inlined_internal_procedure_that_is_uneven_is_named() {
    assert_kernel_named(Form::FortranInlined);
}

#[test]
fn without_debug_information_its_loop_is_named() {
    assert_loop_named(Form::CxxWithoutDebug, "main");
    assert_loop_named(Form::FortranWithoutDebug, "MAIN__");
}
