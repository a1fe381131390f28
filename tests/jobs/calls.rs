//! Every call is counted once, in every language and through every layer of the MPI library: Open
//! MPI's Fortran interface calls PMPI itself, MPICH's calls MPI again.

use plimsoll_tests::mpi::Mpi;
use plimsoll_tests::subject_job::{Job, Watch};
use plimsoll_tests::summary::Summary;

const RANKS: f64 = 2.0;
const ITERATIONS: f64 = 25.0;

fn watched(mpi: Mpi, how: &str) -> Option<(Summary, bool)> {
    if !mpi.available() {
        return None;
    }
    let job =
        Job::ranks("languages", mpi, 2).arguments(&format!("burn 25 0 1 {how}")).shares_cores();
    let plain = job.run().succeeded();
    let watched = job.watch(Watch::Run).run().succeeded();
    watched.assert_same_as(&plain);
    let large_counts = watched.truth().number("large_counts") != 0.0;
    Some((watched.summary().clone(), large_counts))
}

/// Returns the contexts of a wrapped call, without those of the library's own function of this name
/// below.
fn call_nodes(summary: &Summary, function: &str) -> Vec<usize> {
    let is_call = |node: &usize| {
        let frame = summary.number(&format!("/tree/nodes/{node}/frame"));
        summary.text(&format!("/tree/frames/{frame}/kind")) == "mpi"
    };
    summary.of_function(function).nodes.into_iter().filter(is_call).collect()
}

#[track_caller]
fn assert_calls(summary: &Summary, calls: &[(&str, f64)]) {
    let mut all = 0.0;
    for (function, per_rank) in calls {
        let mut found = 0.0;
        for node in call_nodes(summary, function) {
            found += summary.number(&format!("/tree/nodes/{node}/calls"));
            assert_eq!(summary.at(&format!("/tree/nodes/{node}/calls_exact")), true, "{function}");
        }
        assert_eq!(found, per_rank * RANKS, "calls of {function}");
        all += found;
    }
    assert_eq!(summary.number("/collection/mpi_calls"), all, "other calls were counted, too");
    assert_eq!(summary.at("/run/complete"), true);
}

fn assert_counted_in_c(mpi: Mpi) {
    let Some((summary, large_counts)) = watched(mpi, "c") else { return };
    let mut calls = vec![
        ("MPI_Barrier", ITERATIONS),
        ("MPI_Allreduce", ITERATIONS),
        ("MPI_Sendrecv", ITERATIONS),
        ("MPI_Iprobe", ITERATIONS),
        ("MPI_Allgather", ITERATIONS),
        ("MPI_Gather", ITERATIONS),
        ("MPI_Ibarrier", ITERATIONS),
        ("MPI_Wait", ITERATIONS),
        ("MPI_File_open", 1.0),
        ("MPI_File_close", 1.0),
        ("MPI_Finalize", 1.0),
    ];
    if large_counts {
        calls.extend([("MPI_Allreduce_c", ITERATIONS), ("MPI_Sendrecv_c", ITERATIONS)]);
    }
    assert_calls(&summary, &calls);
}

fn assert_counted_in_fortran(mpi: Mpi) {
    let Some((summary, _)) = watched(mpi, "fortran") else { return };
    assert_calls(
        &summary,
        &[
            ("MPI_Barrier", ITERATIONS),
            ("MPI_Allreduce", ITERATIONS),
            ("MPI_Reduce", ITERATIONS),
            ("MPI_Bcast", ITERATIONS),
            ("MPI_Win_fence", ITERATIONS),
            ("MPI_Win_create", 1.0),
            ("MPI_Win_free", 1.0),
            ("MPI_Sendrecv", ITERATIONS),
            ("MPI_Iprobe", ITERATIONS),
            ("MPI_File_open", 1.0),
            ("MPI_File_close", 1.0),
            ("MPI_Finalize", 1.0),
        ],
    );
    assert_eq!(
        summary.path_to(call_nodes(&summary, "MPI_Barrier")[0])[..2],
        ["main", "in_fortran"]
    );
    // A barrier, two sums and a fence each; the window and the file, made and freed; the end.
    let phases = summary.at("/phases").as_array().map_or(&[][..], Vec::as_slice);
    let instances: f64 = phases.iter().filter_map(|phase| phase["instances"].as_f64()).sum();
    assert_eq!(instances, 4.0 * ITERATIONS + 5.0, "{phases:?}");
}

#[test]
#[ignore = "long: scripts/test --all"]
fn c_under_mpich() {
    assert_counted_in_c(Mpi::Mpich);
}

#[test]
fn c_under_open_mpi() {
    assert_counted_in_c(Mpi::OpenMpi);
}

#[test]
fn fortran_under_mpich() {
    assert_counted_in_fortran(Mpi::Mpich);
}

#[test]
fn fortran_under_open_mpi() {
    assert_counted_in_fortran(Mpi::OpenMpi);
}

/// Runs a job that uses sessions besides MPI_Init, or instead of it; `None` if the MPI has no
/// sessions.
fn with_sessions(how: &str) -> Option<Summary> {
    if !Mpi::Mpich.available() {
        return None;
    }
    let job = Job::ranks("session_calls", Mpi::Mpich, 2);
    let job = job.arguments(&format!("sleep 10 10 1 {how}")).shares_cores();
    let plain = job.run();
    if plain.stdout().is_empty() {
        plimsoll_tests::mpi::skip("this MPICH has no sessions");
        return None;
    }
    let watched = job.watch(Watch::Run).run().succeeded();
    assert_eq!(plain.stdout(), watched.stdout(), "{}", watched.transcript());
    Some(watched.summary().clone())
}

#[test]
fn calls_on_a_communicator_of_a_session_are_counted() {
    let Some(summary) = with_sessions("alone") else { return };
    assert_eq!(summary.text("/run/mpi/abi"), "mpich");
    assert_eq!(summary.text("/run/ended"), "finalize");
    let calls = call_nodes(&summary, "MPI_Allreduce");
    assert_eq!(summary.number(&format!("/tree/nodes/{}/calls", calls[0])), 20.0);
}

#[test]
fn mpi_init_after_a_session_begins_the_whole_job() {
    let Some(summary) = with_sessions("init") else { return };
    assert_eq!(summary.number("/run/ranks"), 2.0);
    assert_eq!(summary.at("/run/complete"), true);
}
