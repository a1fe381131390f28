//! Load imbalance of known size is found, and the function that causes it is named.

use plimsoll_tests::mpi::{Mpi, needs};
use plimsoll_tests::outcome::Outcome;
use plimsoll_tests::retry_on_noise::retry_on_noise;
use plimsoll_tests::subject_job::{Job, Watch};
use plimsoll_tests::truth::assert_within;

const TOLERANCE: f64 = 0.10;

/// Runs a complete job until the assertions hold; skipped without the MPI. Modes have 40
/// iterations: the first one is a phase of its own and holds a fortieth of the loss.
fn shown(subject: &str, mpi: Mpi, ranks: u32, mode: &str, assertions: impl Fn(&Outcome)) {
    needs!(mpi);
    let job = Job::ranks(subject, mpi, ranks).arguments(mode).watch(Watch::Run);
    retry_on_noise(|| whole(job.run().succeeded()), assertions);
}

/// Asserts what holds for every complete run with a diagnosis.
fn whole(job: Outcome) -> Outcome {
    let summary = job.summary();
    assert_eq!(summary.at("/run/complete"), true);
    assert_eq!(summary.text("/run/ended"), "finalize");
    assert_eq!(summary.number("/run/ranks"), job.truth().number("ranks"));
    if let Some(worst) = summary.losses().first() {
        let without_s = worst.field("elapsed_without_s").as_f64().expect("it has its projection");
        let elapsed_s = summary.number("/run/elapsed_s");
        assert_within("run without the loss", without_s, elapsed_s - worst.seconds(), 0.01);
        let all_s = summary.number("/projection/elapsed_s");
        assert!(all_s <= without_s * 1.001 && all_s > 0.0, "{all_s} s without all losses");
    }
    job
}

/// Asserts that the worst loss is of that kind, with the size and the cause that the subject
/// reports.
fn assert_found(job: &Outcome, kind: &str) {
    let (summary, truth) = (job.summary(), job.truth());
    let worst = summary.worst();
    assert_eq!(worst.kind(), kind, "{worst:?}");
    assert_within("seconds", worst.seconds(), truth.number("expected_loss_s"), TOLERANCE);
    assert_eq!(worst.first_cause(), truth.text("cause"), "{worst:?}");
    assert_eq!(worst.symptom_path().last().copied(), truth.text("symptom"), "{worst:?}");
    if let Some(slow) = truth.text("slow_ranks") {
        assert_eq!(worst.field("slow_ranks"), slow, "{worst:?}");
    }
    assert_within("elapsed", summary.number("/run/elapsed_s"), truth.number("elapsed_s"), 0.05);
    assert_eq!(summary.number("/collection/lost"), 0.0);
}

/// Asserts that all ranks but the slow ones wait in a job with load imbalance.
fn assert_others_wait(mpi: Mpi, ranks: u32, mode: &str, waiting: &str) {
    shown("imbalance", mpi, ranks, mode, |job| {
        assert_found(job, "load_imbalance");
        assert_eq!(job.summary().text("/run/mpi/abi"), mpi.abi());
        assert_eq!(job.summary().worst().field("waiting_ranks"), waiting);
    });
}

#[test]
#[ignore = "long: scripts/test --all"]
fn burning_in_two_ranks_of_mpich() {
    assert_others_wait(Mpi::Mpich, 2, "burn 40 10 3", "0");
}

#[test]
fn burning_in_two_ranks_of_open_mpi() {
    assert_others_wait(Mpi::OpenMpi, 2, "burn 40 10 3", "0");
}

#[test]
fn sleeping_in_eight_ranks() {
    assert_others_wait(Mpi::OpenMpi, 8, "sleep 40 10 3", "0-5");
}

#[test]
#[ignore = "long: scripts/test --all"]
fn sleeping_in_sixteen_ranks() {
    assert_others_wait(Mpi::OpenMpi, 16, "sleep 40 10 3", "0-11");
}

#[test]
fn waiting_at_a_barrier() {
    assert_others_wait(Mpi::OpenMpi, 8, "sleep 40 10 3 barrier", "0-5");
}

#[test]
#[ignore = "long: scripts/test --all"]
fn slow_ranks_that_call_the_function_at_another_place() {
    assert_others_wait(Mpi::OpenMpi, 4, "sleep 40 10 3 places", "0-2");
    assert_others_wait(Mpi::Mpich, 2, "burn 40 10 3 places", "0");
}

#[test]
#[ignore = "long: scripts/test --all"]
fn preloaded_by_the_launcher() {
    needs!(Mpi::OpenMpi);
    let job = Job::ranks("imbalance", Mpi::OpenMpi, 4).arguments("sleep 40 10 3");
    let job = job.watch(Watch::Preload);
    retry_on_noise(|| whole(job.run().succeeded()), |job| assert_found(job, "load_imbalance"));
}

#[test]
#[ignore = "long: scripts/test --all"]
fn slow_ranks_take_turns_burning() {
    for mpi in [Mpi::Mpich, Mpi::OpenMpi] {
        shown("alternating", mpi, 2, "burn 40 10 3", |job| assert_found(job, "load_imbalance"));
    }
}

#[test]
#[ignore = "long: scripts/test --all"]
fn slow_ranks_take_turns_sleeping() {
    let (mpi, mode) = (Mpi::OpenMpi, "sleep 40 10 3");
    shown("alternating", mpi, 8, mode, |job| assert_found(job, "load_imbalance"));
}

#[test]
#[ignore = "long: scripts/test --all"]
fn work_between_the_last_collective_and_the_end() {
    for (mpi, ranks, mode) in [(Mpi::OpenMpi, 4, "sleep 40 10 3"), (Mpi::Mpich, 2, "burn 40 10 3")]
    {
        shown("late", mpi, ranks, mode, |job| assert_found(job, "load_imbalance"));
    }
}

#[test]
#[ignore = "long: scripts/test --all"]
fn rank_0_works_while_the_others_wait() {
    for (mpi, ranks, mode) in [(Mpi::OpenMpi, 8, "sleep 40 10 3"), (Mpi::Mpich, 2, "burn 40 10 3")]
    {
        shown("serial", mpi, ranks, mode, |job| assert_found(job, "serialization"));
    }
}

#[test]
#[ignore = "long: scripts/test --all"]
fn waiting_on_a_duplicate_of_the_world() {
    shown("sync_comms", Mpi::OpenMpi, 8, "sleep 40 10 3", |job| {
        let truth = job.truth();
        let skewed = job.summary().losses_of("load_imbalance").into_iter();
        let seconds: f64 = skewed
            .filter(|loss| loss.first_cause() == truth.text("cause"))
            .map(|loss| loss.seconds())
            .sum();
        assert_within("seconds", seconds, truth.number("expected_loss_s"), TOLERANCE);
    });
}

#[test]
fn without_regions_the_wall_clock_sees_the_work() {
    needs!(Mpi::OpenMpi);
    let job = Job::ranks("imbalance", Mpi::OpenMpi, 2).arguments("burn 40 10 3");
    let job = job.watch(Watch::Run).variable("PLIMSOLL_REGIONS", "off").run_until(|job| {
        let of = |function| job.summary().of_function(function).sum_s;
        let works_s: f64 = job.truth().numbers("work_s").iter().sum();
        let found_s = of("work_even") + of("work_uneven");
        assert_within("work of both ranks", found_s, works_s, TOLERANCE);
    });
    assert_eq!(job.summary().text("/run/clock"), "wall");
}
