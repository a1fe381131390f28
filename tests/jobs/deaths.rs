//! A rank dies and others outlive it: from then on they wait for the dead rank, which is not
//! counted.

use std::path::PathBuf;

use plimsoll_tests::digests::{By, digest};
use plimsoll_tests::mpi::{Mpi, needs};
use plimsoll_tests::outcome::Outcome;
use plimsoll_tests::subject_job::{Job, Watch, each_mpi};
use plimsoll_tests::summary::Summary;

/// Seconds of the run before the death, and seconds by which the other ranks outlive it.
const LIFE_S: f64 = 1.0;
const OUTLIVED_S: f64 = 4.0;

/// Returns a job that loses its last rank, and ends by a signal later. Launchers do not notice the
/// death: the rank is the child of a shell, and on one node Open MPI is set to go on after a
/// failure.
fn outlived(mpi: Mpi, ranks: u32, nodes: u32, end: &str) -> Job {
    let job = Job::ranks("outlived", mpi, ranks);
    let job = job.arguments(&format!("{} {LIFE_S} {OUTLIVED_S} {end}", ranks - 1));
    let is_told = nodes == 1;
    let job = if nodes > 1 { job.nodes(nodes) } else { job };
    let job = if is_told { job.variable("OMPI_MCA_orte_enable_recovery", "1") } else { job };
    job.watch(Watch::Run).shares_cores()
}

/// Returns the folder of the job's spools.
#[track_caller]
fn folder(job: &Outcome) -> PathBuf {
    let spools = job.files_ending(".spool");
    spools.first().and_then(|spool| spool.parent()).expect("a spool").to_owned()
}

#[track_caller]
fn assert_ends_with_the_death(summary: &Summary, dead: u32, transcript: &str) {
    assert_eq!(summary.at("/run/complete"), false, "{transcript}");
    let elapsed_s = summary.number("/run/elapsed_s");
    assert!(elapsed_s < LIFE_S + OUTLIVED_S / 2.0, "{elapsed_s} s: {transcript}");
    let notes = summary.at("/notes").to_string();
    let expected = format!("The run is counted up to the end of rank {dead} at ");
    assert!(notes.contains(&expected), "{notes}\n{transcript}");
    let losses = summary.at("/losses").to_string();
    assert!(!losses.contains("MPI_Barrier"), "{losses}\n{transcript}");
}

#[test]
#[ignore = "long: scripts/test --all"]
fn waiting_for_the_dead_is_no_loss() {
    for mpi in each_mpi() {
        let ranks = if mpi == Mpi::Mpich { 2 } else { 4 };
        // The others are ended in order, and report.
        let job = outlived(mpi, ranks, 1, "TERM").run();
        let summary = job.summary();
        assert_ends_with_the_death(summary, ranks - 1, &job.transcript());
        let joined = digest(&folder(&job), By::Threads(2));
        assert_ends_with_the_death(&joined, ranks - 1, &job.transcript());
        assert_eq!(joined.number("/run/elapsed_s"), summary.number("/run/elapsed_s"));
        // The remaining ranks are killed, too: only their spool is left.
        let job = outlived(mpi, ranks, 1, "KILL").run();
        let joined = digest(&folder(&job), By::Threads(1));
        assert_ends_with_the_death(&joined, ranks - 1, &job.transcript());
    }
}

#[test]
#[ignore = "long: scripts/test --all"]
fn a_death_on_another_node_ends_the_run_everywhere() {
    needs!(Mpi::OpenMpi);
    let job = outlived(Mpi::OpenMpi, 4, 2, "KILL").run();
    for threads in [1, 3] {
        let joined = digest(&folder(&job), By::Threads(threads));
        assert_eq!(joined.number("/run/ranks"), 4.0, "{}", job.transcript());
        assert_ends_with_the_death(&joined, 3, &job.transcript());
    }
}
