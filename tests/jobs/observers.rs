//! A program cannot tell whether it is watched: it has the same results, status and view of itself.

use plimsoll_tests::mpi::{Mpi, needs};
use plimsoll_tests::outcome::Outcome;
use plimsoll_tests::retry_on_noise::retry_on_noise;
use plimsoll_tests::subject_job::{Job, Watch, each_mpi};

/// Asserts that nothing differs that the program, or its parent, could notice.
#[track_caller]
fn assert_same(plain: &Outcome, watched: &Outcome) {
    watched.assert_same_as(plain);
    assert_eq!(plain.other_lines(), watched.other_lines(), "{}", watched.transcript());
}

/// Runs a job unwatched, and hands it to `check` in each way of watching.
fn in_each_way(job: &Job, check: impl Fn(&Outcome, &Job)) {
    let job = job.clone().shares_cores();
    let plain = job.run();
    for watch in [Watch::Preload, Watch::Run] {
        check(&plain, &job.clone().watch(watch));
    }
}

/// Asserts that a watched job reports, and differs in nothing.
#[track_caller]
fn assert_watched(plain: &Outcome, watched: &Outcome) {
    assert_same(plain, watched);
    assert!(!watched.files().is_empty(), "not watched: {}", watched.transcript());
}

fn assert_unnoticed(job: &Job) {
    in_each_way(job, |plain, job| assert_watched(plain, &job.run()));
}

/// Parts of the system that the subject `observes` inspects.
const PARTS: [&str; 10] = [
    "descriptors",
    "mask",
    "dispositions",
    "stack",
    "environment",
    "limits",
    "errno",
    "interrupts",
    "sleeps",
    "profiling",
];

#[test]
#[ignore = "long: scripts/test --all"]
fn what_a_program_sees_of_itself() {
    assert_unnoticed(&Job::alone("observes").arguments(&PARTS.join(" ")));
}

#[test]
fn what_a_program_inherits() {
    let blocked = "--block-signal=USR1 --block-signal=STKFLT --ignore-signal=PIPE";
    for signals in [blocked, "--default-signal=PIPE --ignore-signal=TERM"] {
        assert_unnoticed(&Job::alone("observes").arguments("mask dispositions").inherits(signals));
    }
}

#[test]
#[ignore = "long: scripts/test --all"]
fn what_a_rank_sees_of_itself() {
    for mpi in each_mpi() {
        // With arguments, since Open MPI tells programs about theirs in the environment.
        assert_unnoticed(&Job::ranks("observes", mpi, 2).arguments(&PARTS.join(" ")));
    }
}

#[test]
fn fast_sampling_interrupts_nothing() {
    let job = Job::alone("observes").arguments("errno interrupts sleeps").shares_cores();
    let plain = job.run();
    let job = job.watch(Watch::Run).options("--period 250us");
    let run = || {
        let watched = job.run();
        assert_same(&plain, &watched);
        watched
    };
    retry_on_noise(run, |watched| {
        // The subject burns 0.8 s: were it hardly sampled, this would prove nothing. The timer that
        // stands in for perf events reaches 250 Hz, however short the period.
        let samples = watched.summary().number("/collection/samples");
        assert!(samples > 100.0, "only {samples} samples");
    });
}

#[test]
#[ignore = "long: scripts/test --all"]
fn cancelled_threads() {
    assert_unnoticed(&Job::alone("cancels"));
}

#[test]
#[ignore = "long: scripts/test --all"]
fn children_of_every_kind() {
    assert_unnoticed(&Job::alone("children"));
}

#[test]
fn subjects_without_mpi() {
    for (subject, arguments) in
        [("plain", "burn 10 10"), ("threads", "burn 5 10"), ("drap", "burn 10 10")]
    {
        assert_unnoticed(&Job::alone(subject).arguments(arguments));
    }
}

#[test]
#[ignore = "long: scripts/test --all"]
fn subjects_with_mpi() {
    for mpi in each_mpi() {
        for subject in ["imbalance", "alternating", "balanced", "serial", "late", "sync_comms"] {
            assert_unnoticed(&Job::ranks(subject, mpi, 2).arguments("burn 10 5 2"));
        }
        assert_unnoticed(&Job::ranks("threads", mpi, 2).arguments("burn 5 10 3 2"));
        assert_unnoticed(&Job::ranks("oversubscribed", mpi, 2).arguments("burn 10 10"));
        assert_unnoticed(&Job::ranks("libcalls", mpi, 2).arguments("burn 5 10"));
    }
}

#[test]
#[ignore = "long: scripts/test --all"]
fn many_sleeping_ranks() {
    needs!(Mpi::OpenMpi);
    assert_unnoticed(&Job::ranks("imbalance", Mpi::OpenMpi, 16).arguments("sleep 10 10 3"));
}
