//! Phases lie between global synchronisations, recur as instances, and partition the run.

use serde_json::Value;

use plimsoll_tests::job::{Job, Watch, each_mpi};
use plimsoll_tests::mpi::Mpi;
use plimsoll_tests::outcome::Outcome;
use plimsoll_tests::summary::{Summary, function_path};
use plimsoll_tests::truth::assert_within;

fn run(subject: &str, mpi: Mpi, ranks: u32, arguments: &str) -> Outcome {
    Job::ranks(subject, mpi, ranks).arguments(arguments).watch(Watch::Run).run().succeeded()
}

fn phases(summary: &Summary) -> &[Value] {
    summary.at("/phases").as_array().map_or(&[], Vec::as_slice)
}

fn instances(phase: &Value) -> u64 {
    phase["instances"].as_u64().unwrap_or(0)
}

/// Every synchronisation ends one instance; the last instance ends in MPI_Finalize.
fn assert_partition(job: &Outcome) {
    let (summary, truth) = (job.summary(), job.truth());
    let count: u64 = phases(&summary).iter().map(instances).sum();
    assert_eq!(count as f64, truth.number("global_syncs") + 1.0, "{:?}", phases(&summary));
    let lengths_s = phases(&summary).iter().filter_map(|phase| phase["duration_s"].as_f64());
    let elapsed_s = summary.number("/run/elapsed_s");
    assert_within("phases together", lengths_s.sum(), elapsed_s, 0.05);
    assert!(phases(&summary).iter().all(|phase| phase["kind"] == "spmd"));
}

#[test]
fn an_iteration_is_an_instance() {
    for mpi in each_mpi() {
        let job = run("imbalance", mpi, 2, "burn 30 5 3");
        assert_partition(&job);
        let summary = job.summary();
        let longest = phases(&summary).iter().max_by_key(|phase| instances(phase)).unwrap();
        // The first of the 30 begins with the run and is another phase.
        assert_eq!(instances(longest), 29);
        for end in ["begins_after", "ends_in"] {
            assert_eq!(function_path(&longest[end]).last(), Some(&"MPI_Allreduce"));
        }
        assert_eq!(&summary.worst().field("phase"), &&longest["id"]);
    }
}

#[test]
fn two_barriers_make_two_phases() {
    if !Mpi::OpenMpi.available() {
        return;
    }
    let job = run("serial", Mpi::OpenMpi, 4, "sleep 30 5 3");
    assert_partition(&job);
    let summary = job.summary();
    let recurring: Vec<_> =
        phases(&summary).iter().map(instances).filter(|&instances| instances > 1).collect();
    let mut sorted = recurring.clone();
    sorted.sort_unstable();
    // Parallel part after the first time, serial part every time.
    assert_eq!(sorted, [29, 30], "{recurring:?}");
}

#[test]
fn a_part_of_the_world_delimits_no_phase() {
    if !Mpi::OpenMpi.available() {
        return;
    }
    assert_partition(&run("sync_comms", Mpi::OpenMpi, 4, "sleep 30 5 3"));
}

#[test]
fn calls_are_counted_exactly() {
    for mpi in each_mpi() {
        let job = run("imbalance", mpi, 2, "burn 300 0.2 2");
        let calls = job.summary().of_function("MPI_Allreduce");
        assert_eq!((calls.calls, calls.calls_exact), (600.0, true));
        // Allreduce, Gather and Finalize of two ranks; what else MPI counts among its calls is its own.
        assert!(job.summary().number("/collection/mpi_calls") >= 602.0);
    }
}

#[test]
fn helper_threads_of_the_mpi_library_are_not_the_applications() {
    for mpi in each_mpi() {
        let job = run("threads", mpi, 2, "burn 5 10 3 2");
        assert_eq!(job.summary().number("/run/threads"), job.truth().number("threads"), "{mpi}");
    }
}
