//! Balanced jobs have no losses; with too few cores, the waits for a core are reported.

use plimsoll_tests::mpi::{Mpi, needs};
use plimsoll_tests::outcome::Outcome;
use plimsoll_tests::subject_job::{Job, Watch, each_mpi};
use plimsoll_tests::truth::assert_within;

fn assert_nothing_found(job: &Outcome) {
    let summary = job.summary();
    assert_eq!(summary.losses().len(), 0, "{:?}", summary.losses());
    assert!(job.report_contains("No scalability loss found"), "{}", job.text());
}

#[test]
#[ignore = "long: scripts/test --all"]
fn two_burning_ranks_are_balanced_and_efficient() {
    for mpi in each_mpi() {
        let job = Job::ranks("balanced", mpi, 2).arguments("burn 40 10").watch(Watch::Run);
        let job = job.run_until(|job| {
            assert_nothing_found(job);
            // Losses too small to report may still add up: each MPI call takes its time, and others
            // use the cores, too.
            let parallel = job.summary().number("/efficiency/parallel");
            assert!(parallel >= 0.90, "parallel efficiency {parallel} under {mpi}");
        });
        let summary = job.summary();
        // POP: parallel efficiency is the product of the other two.
        let product = summary.number("/efficiency/load_balance")
            * summary.number("/efficiency/communication");
        let parallel = summary.number("/efficiency/parallel");
        assert_within("product of efficiencies", product, parallel, 0.01);
    }
}

#[test]
fn eight_sleeping_ranks_are_balanced() {
    needs!(Mpi::OpenMpi);
    // A sleeping rank wakes up half a millisecond late if others poll on its core: that must be
    // less than a hundredth of a step.
    let job = Job::ranks("balanced", Mpi::OpenMpi, 8).arguments("sleep 12 40").watch(Watch::Run);
    job.run_until(assert_nothing_found);
}

#[test]
fn efficiency_of_an_imbalanced_job_is_the_share_of_its_work() {
    needs!(Mpi::OpenMpi);
    let job = Job::ranks("imbalance", Mpi::OpenMpi, 8).arguments("sleep 40 10 3");
    job.watch(Watch::Run).run_until(|job| {
        let (summary, truth) = (job.summary(), job.truth());
        let works_s = truth.numbers("work_s");
        let mean_s = works_s.iter().sum::<f64>() / works_s.len() as f64;
        let most_s = works_s.iter().copied().fold(0.0, f64::max);
        for (name, expected) in
            [("parallel", mean_s / truth.number("elapsed_s")), ("load_balance", mean_s / most_s)]
        {
            let found = summary.number(&format!("/efficiency/{name}"));
            assert_within(name, found, expected, 0.05);
        }
    });
}

/// Asserts that the worst loss is waiting for a core, for the time that the subject reports.
fn assert_oversubscribed(job: &Outcome) {
    let (summary, truth) = (job.summary(), job.truth());
    let (walls_s, cpus_s) = (truth.numbers("wall_s"), truth.numbers("cpu_s"));
    let waited_s = walls_s.iter().sum::<f64>() - cpus_s.iter().sum::<f64>();
    let mean_s = waited_s / walls_s.len() as f64;
    assert!(mean_s > 0.3 * truth.number("elapsed_s"), "the subject was not short");
    assert_eq!(summary.worst().kind(), "oversubscription", "{:?}", summary.losses());
    assert_within("seconds", summary.worst().seconds(), mean_s, 0.10);
}

#[test]
#[ignore = "long: scripts/test --all"]
fn too_few_cores_are_named() {
    needs!(Mpi::OpenMpi);
    let cores = std::thread::available_parallelism().expect("the system counts its cores").get();
    let ranks = u32::try_from(3 * cores).expect("a machine's cores are few");
    let job = Job::ranks("oversubscribed", Mpi::OpenMpi, ranks).arguments("burn 40 10");
    let job = job.watch(Watch::Run).run_until(|job| {
        let summary = job.summary();
        assert_oversubscribed(job);
        for kind in ["load_imbalance", "serialization"] {
            assert_eq!(summary.losses_of(kind).len(), 0, "{:?}", summary.losses());
        }
        assert!(job.text().contains("core"), "the text says nothing of cores:\n{}", job.text());
    });
    assert_eq!(job.summary().number("/run/nodes/0/cores"), job.truth().number("cores"));
}

#[test]
#[ignore = "long: scripts/test --all"]
fn ranks_that_are_bound_to_one_core_are_told_so() {
    needs!(Mpi::Mpich);
    let job = Job::ranks("oversubscribed", Mpi::Mpich, 2).watch(Watch::Run);
    job.clone().arguments("burn 20 40 1 bound").run_until(|job| {
        assert_oversubscribed(job);
        let worst = job.summary().worst();
        let advice = worst.field("advice").as_str().unwrap_or_default();
        assert!(advice.contains("binding"), "{advice}");
    });
    job.arguments("burn 20 40").run_until(|job| {
        assert_eq!(job.summary().losses_of("oversubscription").len(), 0, "{}", job.text());
    });
}
