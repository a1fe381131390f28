//! The subjects alone: the truth of the other tests must hold without Plimsoll. These tests do not
//! need the library.

use std::process::Command;

use plimsoll_tests::job_lock::lock_exclusively;
use plimsoll_tests::mpi::{Mpi, needs};
use plimsoll_tests::subject::{Form, executable};
use plimsoll_tests::subject_job::{Job, each_mpi, required_command};
use plimsoll_tests::truth::assert_within;

/// Sleeps are exact to the scheduler's delay, some tenths of a millisecond each.
const SLEEP_TOLERANCE: f64 = 0.05;

#[test]
fn every_subject_compiles_with_every_mpi() {
    let _job_lock = lock_exclusively();
    for mpi in each_mpi() {
        for subject in [
            "alternating",
            "balanced",
            "behaviours",
            "cheap_calls",
            "coupled",
            "evened",
            "exits",
            "files",
            "imbalance",
            "init_never",
            "init_twice",
            "late",
            "libcalls",
            "locks",
            "machines",
            "messages",
            "neighbours",
            "observes",
            "outsourced",
            "oversubscribed",
            "partner",
            "polls",
            "serial",
            "snapshots",
            "spawns",
            "sync_comms",
            "threads",
            "two",
            "wavefront",
            "weighs",
        ] {
            executable(subject, Form::C, Some(mpi));
        }
    }
    for subject in [
        "cancels",
        "children",
        "drap",
        "exits",
        "kernel_frames",
        "local",
        "nothing",
        "observes",
        "plain",
        "threads",
        "uninterrupted",
    ] {
        executable(subject, Form::C, None);
    }
}

#[test]
fn imbalance_is_the_time_that_the_slow_ranks_take_longer() {
    needs!(Mpi::OpenMpi);
    let arguments = "sleep 20 20 3";
    let job = Job::ranks("imbalance", Mpi::OpenMpi, 8).arguments(arguments).run_until(|job| {
        let truth = job.truth();
        // Two of eight ranks work 40 ms longer in each of 20 iterations.
        let loss_s = 20.0 * 0.040 * 6.0 / 8.0;
        assert_within("loss", truth.number("expected_loss_s"), loss_s, SLEEP_TOLERANCE);
        assert_within("elapsed", truth.number("elapsed_s"), 20.0 * 0.080, SLEEP_TOLERANCE);
    });
    assert_eq!(job.truth().text("slow_ranks"), Some("6-7"));
    assert_eq!(job.truth().numbers("work_s").len(), 8);
    assert_eq!(job.stdout(), "imbalance: 8 ranks, 20 iterations, checksum 7560\n");
}

#[test]
fn alternating_ranks_have_equal_totals() {
    needs!(Mpi::OpenMpi);
    Job::ranks("alternating", Mpi::OpenMpi, 4).arguments("sleep 20 10 3").run_until(|job| {
        let truth = job.truth();
        let loss_s = 20.0 * 0.020 * 3.0 / 4.0;
        assert_within("loss", truth.number("expected_loss_s"), loss_s, SLEEP_TOLERANCE);
        for work_s in truth.numbers("work_s") {
            assert_within("work of a rank", work_s, 20.0 * 0.020 + 5.0 * 0.020, SLEEP_TOLERANCE);
        }
    });
}

#[test]
#[ignore = "long: scripts/test --all"]
fn late_and_serial_losses_are_gathered() {
    needs!(Mpi::OpenMpi);
    for (subject, in_each_s) in [("late", 0.020), ("serial", 0.030)] {
        let job =
            Job::ranks(subject, Mpi::OpenMpi, 4).arguments("sleep 10 10 3").run_until(|job| {
                let loss_s = job.truth().number("expected_loss_s");
                assert_within(subject, loss_s, 10.0 * in_each_s * 3.0 / 4.0, SLEEP_TOLERANCE);
            });
        assert!(job.files().is_empty(), "notes are left: {:?}", job.files());
    }
}

#[test]
fn burning_uses_the_cpu_time_it_promises() {
    for mpi in each_mpi() {
        Job::ranks("oversubscribed", mpi, 2).arguments("burn 10 20").run_until(|job| {
            for cpu_s in job.truth().numbers("cpu_s") {
                assert_within("CPU time", cpu_s, 0.200, 0.05);
            }
        });
    }
    let truth = Job::alone("plain").arguments("burn 20 10").run().succeeded().truth();
    assert!(truth.number("work_a_s") >= 0.400 && truth.number("work_b_s") >= 0.200);
}

#[test]
fn drap_frames_are_there() {
    let program = {
        let _job_lock = lock_exclusively();
        executable("drap", Form::C, None)
    };
    let dump = Command::new(required_command("readelf", "binutils"))
        .arg("--debug-dump=frames")
        .arg(&program)
        .output()
        .expect("readelf was just found");
    let dump = String::from_utf8_lossy(&dump.stdout);
    // The procedure linkage table has one such rule of its own; each of four levels adds one, with
    // the dereference that the subject is about.
    let expressions = dump
        .lines()
        .filter(|line| line.contains("DW_CFA_def_cfa_expression") && line.contains("deref"))
        .count();
    assert!(expressions >= 4, "only {expressions} CFA expressions with a dereference:\n{dump}");
}

#[test]
#[ignore = "long: scripts/test --all"]
fn what_a_program_sees_of_itself_does_not_change_from_run_to_run() {
    for subject in ["observes", "children", "cancels"] {
        let job = Job::alone(subject).shares_cores();
        let (one, other) = (job.run(), job.run());
        assert_eq!(one.status(), other.status());
        assert_eq!(one.stdout(), other.stdout(), "{subject} prints what depends on the run");
    }
}
