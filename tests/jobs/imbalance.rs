//! Load imbalance of known size is found, and the function that causes it is named.

use plimsoll_tests::job::{Job, Watch};
use plimsoll_tests::mpi::Mpi;
use plimsoll_tests::outcome::Outcome;
use plimsoll_tests::summary::Loss;
use plimsoll_tests::truth::assert_within;

const TOLERANCE: f64 = 0.10;

/// 40 iterations: the first one is a phase of its own and holds a fortieth of the loss.
fn diagnosed(subject: &str, mpi: Mpi, ranks: u32, mode: &str) -> Option<Outcome> {
    if !mpi.available() {
        return None;
    }
    let job = Job::ranks(subject, mpi, ranks).arguments(&format!("{mode} 40 10 3"));
    Some(job.watch(Watch::Run).needs_all_cores().run().succeeded())
}

/// The worst loss is of that kind, as large as the subject says, and for the reason it says.
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
    assert_eq!(summary.number("/run/ranks"), truth.number("ranks"));
    assert_within("elapsed", summary.number("/run/elapsed_s"), truth.number("elapsed_s"), 0.05);
    assert_whole(job, &worst);
}

/// What a complete run of any diagnosed job has to say.
fn assert_whole(job: &Outcome, worst: &Loss<'_>) {
    let summary = job.summary();
    assert_eq!(summary.at("/run/complete"), true);
    assert_eq!(summary.text("/run/ended"), "finalize");
    assert_eq!(summary.number("/collection/lost"), 0.0);
    let without_s = worst.field("elapsed_without_s").as_f64().expect("a loss has its projection");
    let elapsed_s = summary.number("/run/elapsed_s");
    assert_within("run without the loss", without_s, elapsed_s - worst.seconds(), 0.01);
    let all_s = summary.number("/projection/elapsed_s");
    assert!(all_s <= without_s * 1.001 && all_s > 0.0, "{all_s} s without all losses");
}

#[test]
fn burning_in_two_ranks_of_mpich() {
    let Some(job) = diagnosed("imbalance", Mpi::Mpich, 2, "burn") else { return };
    assert_found(&job, "load_imbalance");
    assert_eq!(job.summary().text("/run/mpi/abi"), "mpich");
    assert_eq!(job.summary().worst().field("waiting_ranks"), "0");
}

#[test]
fn burning_in_two_ranks_of_open_mpi() {
    let Some(job) = diagnosed("imbalance", Mpi::OpenMpi, 2, "burn") else { return };
    assert_found(&job, "load_imbalance");
    assert_eq!(job.summary().text("/run/mpi/abi"), "openmpi");
    assert_eq!(job.summary().worst().field("waiting_ranks"), "0");
}

#[test]
fn sleeping_in_eight_ranks() {
    let Some(job) = diagnosed("imbalance", Mpi::OpenMpi, 8, "sleep") else { return };
    assert_found(&job, "load_imbalance");
    assert_eq!(job.summary().worst().field("waiting_ranks"), "0-5");
}

#[test]
fn sleeping_in_sixteen_ranks() {
    let Some(job) = diagnosed("imbalance", Mpi::OpenMpi, 16, "sleep") else { return };
    assert_found(&job, "load_imbalance");
    assert_eq!(job.summary().worst().field("waiting_ranks"), "0-11");
}

#[test]
fn waiting_at_a_barrier() {
    if !Mpi::OpenMpi.available() {
        return;
    }
    let job = Job::ranks("imbalance", Mpi::OpenMpi, 8).arguments("sleep 40 10 3 barrier");
    assert_found(&job.watch(Watch::Run).run().succeeded(), "load_imbalance");
}

#[test]
fn preloaded_by_the_launcher() {
    if !Mpi::OpenMpi.available() {
        return;
    }
    let job = Job::ranks("imbalance", Mpi::OpenMpi, 4).arguments("sleep 40 10 3");
    assert_found(&job.watch(Watch::Preload).run().succeeded(), "load_imbalance");
}

#[test]
fn slow_ranks_take_turns_burning() {
    for mpi in [Mpi::Mpich, Mpi::OpenMpi] {
        let Some(job) = diagnosed("alternating", mpi, 2, "burn") else { continue };
        assert_found(&job, "load_imbalance");
    }
}

#[test]
fn slow_ranks_take_turns_sleeping() {
    let Some(job) = diagnosed("alternating", Mpi::OpenMpi, 8, "sleep") else { return };
    assert_found(&job, "load_imbalance");
}

#[test]
fn work_between_the_last_collective_and_the_end() {
    let Some(job) = diagnosed("late", Mpi::OpenMpi, 4, "sleep") else { return };
    assert_found(&job, "load_imbalance");
    let Some(job) = diagnosed("late", Mpi::Mpich, 2, "burn") else { return };
    assert_found(&job, "load_imbalance");
}

#[test]
fn rank_0_works_while_the_others_wait() {
    let Some(job) = diagnosed("serial", Mpi::OpenMpi, 8, "sleep") else { return };
    assert_found(&job, "serialization");
    let Some(job) = diagnosed("serial", Mpi::Mpich, 2, "burn") else { return };
    assert_found(&job, "serialization");
}

#[test]
fn waiting_on_a_duplicate_of_the_world() {
    let Some(job) = diagnosed("sync_comms", Mpi::OpenMpi, 8, "sleep") else { return };
    let (summary, truth) = (job.summary(), job.truth());
    let skewed = summary.losses_of("load_imbalance").into_iter();
    let seconds: f64 = skewed
        .filter(|loss| loss.first_cause() == truth.text("cause"))
        .map(|loss| loss.seconds())
        .sum();
    assert_within("seconds", seconds, truth.number("expected_loss_s"), TOLERANCE);
}

#[test]
fn without_regions_the_wall_clock_sees_the_work() {
    if !Mpi::OpenMpi.available() {
        return;
    }
    let job = Job::ranks("imbalance", Mpi::OpenMpi, 2).arguments("burn 40 10 3");
    let job = job.watch(Watch::Run).variable("PLIMSOLL_REGIONS", "off").run().succeeded();
    let summary = job.summary();
    assert_eq!(summary.text("/run/clock"), "wall");
    let works_s: f64 = job.truth().numbers("work_s").iter().sum();
    let found_s = summary.of_function("work_even").sum_s + summary.of_function("work_uneven").sum_s;
    assert_within("work of both ranks", found_s, works_s, TOLERANCE);
}
