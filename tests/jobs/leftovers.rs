//! Jobs leave nothing behind: no shared memory, no process, no file but the reports.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::thread;
use std::time::Duration;

use plimsoll_tests::outcome::Outcome;
use plimsoll_tests::subject_job::{Job, Watch, each_mpi};

/// Returns all files in shared memory, and those in the system's temporary directories that are
/// named after Plimsoll. Other programs put files there at any time.
fn shared_files() -> BTreeSet<PathBuf> {
    let mut files = BTreeSet::new();
    for place in ["/dev/shm", "/tmp", "/var/tmp"] {
        for entry in fs::read_dir(place).into_iter().flatten().flatten() {
            let named = entry.file_name().to_string_lossy().to_lowercase().contains("plimsoll");
            if named || place == "/dev/shm" {
                files.insert(entry.path());
            }
        }
    }
    files
}

/// Returns the files that exist now and did not before.
fn new_since(before: &BTreeSet<PathBuf>) -> Vec<PathBuf> {
    shared_files().difference(before).cloned().collect()
}

/// Returns a name without its digits: MPI libraries number their files.
fn stem(path: &Path) -> String {
    path.to_string_lossy().chars().filter(|letter| !letter.is_ascii_digit()).collect()
}

/// Runs the job unwatched, then watched. Files left by the MPI library itself do not count.
fn run_and_compare(job: &Job) -> Outcome {
    let before = shared_files();
    job.run();
    let (of_plain, before) = (new_since(&before), shared_files());
    let watched = job.clone().watch(Watch::Run).run();
    let mut left = new_since(&before);
    // Only files that stay for a while count: other jobs on the machine use shared memory, too.
    for _ in 0..10 {
        let still_there = of_plain.iter().filter(|path| path.exists());
        let mpis_own: BTreeSet<_> = still_there.map(|path| stem(path)).collect();
        left.retain(|path| path.exists() && !mpis_own.contains(&stem(path)));
        if left.is_empty() {
            break;
        }
        thread::sleep(Duration::from_millis(500));
    }
    assert!(left.is_empty(), "left in shared places: {left:?}: {}", watched.transcript());
    assert!(watched.left_behind().is_empty(), "left running: {:?}", watched.left_behind());
    watched
}

fn assert_only_reports(job: &Outcome) {
    assert!(!job.files().is_empty(), "no report: {}", job.transcript());
    for path in job.files() {
        assert!(path.to_string_lossy().contains(".plimsoll."), "{} is no report", path.display());
    }
}

#[test]
fn after_a_whole_run() {
    for mpi in each_mpi() {
        let job = Job::ranks("imbalance", mpi, 2).arguments("burn 10 5 3");
        let watched = run_and_compare(&job).succeeded();
        assert_only_reports(&watched);
        assert_eq!(watched.files_ending(".plimsoll.json").len(), 1, "{}", watched.transcript());
    }
}

#[test]
#[ignore = "long: scripts/test --all"]
fn after_a_run_that_breaks_off() {
    for mpi in each_mpi() {
        for ending in ["mpi_abort", "fault", "terminated", "unfinalized"] {
            let watched = run_and_compare(&Job::ranks("exits", mpi, 2).arguments(ending));
            assert_only_reports(&watched);
        }
    }
}

#[test]
#[ignore = "long: scripts/test --all"]
fn children_write_no_reports_of_their_own() {
    let watched = run_and_compare(&Job::alone("children"));
    assert_only_reports(&watched);
    // The first process becomes four programs in sequence by exec; the 107 children are none of
    // these.
    assert!(watched.files_ending(".plimsoll.json").len() <= 4, "{}", watched.transcript());
    for mpi in each_mpi() {
        let watched = run_and_compare(&Job::ranks("libcalls", mpi, 2).arguments("burn 5 5"));
        assert_eq!(watched.files_ending(".plimsoll.json").len(), 1, "{}", watched.transcript());
    }
}

#[test]
fn preloaded_shells_stay_silent() {
    // Set by hand, the preload is in the environment of every command that a shell then starts.
    let watched = Job::alone("children").watch(Watch::Preload).run();
    let reports = watched.files_ending(".plimsoll.json");
    assert!(!reports.is_empty(), "not watched: {}", watched.transcript());
    let strangers: Vec<_> =
        reports.iter().filter(|path| !path.to_string_lossy().contains("children_")).collect();
    assert!(strangers.is_empty(), "reports of shells: {strangers:?}");
}
