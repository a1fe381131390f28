//! Nothing stays behind: no shared memory, no process, no file but the reports.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use plimsoll_tests::job::{Job, Watch, each_mpi};
use plimsoll_tests::outcome::Outcome;

/// Where shared memory and temporary files of any program appear.
const SHARED_PLACES: &[&str] = &["/dev/shm", "/tmp", "/var/tmp"];

/// What lies in the shared places and what nobody could have made but Plimsoll or the job. Names
/// are cut at the first digit, since MPI libraries number theirs.
fn shared_names() -> BTreeSet<String> {
    let mut names = BTreeSet::new();
    for place in SHARED_PLACES {
        for entry in fs::read_dir(place).into_iter().flatten().flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            let stem =
                name.split(|letter: char| letter.is_ascii_digit()).next().unwrap_or_default();
            names.insert(Path::new(place).join(stem).display().to_string());
        }
    }
    names
}

/// Runs the job plain first, so that what the MPI library leaves by itself is known.
fn run_and_compare(job: &Job) -> Outcome {
    job.run();
    let before = shared_names();
    let watched = job.clone().watch(Watch::Run).run();
    let new: Vec<_> = shared_names().difference(&before).cloned().collect();
    assert!(new.is_empty(), "left in shared places: {new:?}: {}", watched.story());
    assert!(watched.left_behind().is_empty(), "left running: {:?}", watched.left_behind());
    watched
}

fn assert_only_reports(job: &Outcome) {
    assert!(!job.files().is_empty(), "no report: {}", job.story());
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
        assert_eq!(watched.files_ending(".plimsoll.json").len(), 1, "{}", watched.story());
    }
}

#[test]
fn after_a_run_that_breaks_off() {
    for mpi in each_mpi() {
        for ending in ["mpi_abort", "fault", "terminated", "unfinalized"] {
            let watched = run_and_compare(&Job::ranks("exits", mpi, 2).arguments(ending));
            assert_only_reports(&watched);
        }
    }
}

#[test]
fn children_write_no_reports_of_their_own() {
    // The last of an exec chain is still the process that was started: one report or none before
    // it, but never one of a child.
    let watched = run_and_compare(&Job::alone("children"));
    assert_only_reports(&watched);
    assert!(watched.files_ending(".plimsoll.json").len() <= 3, "{}", watched.story());
    for mpi in each_mpi() {
        let watched = run_and_compare(&Job::ranks("libcalls", mpi, 2).arguments("burn 5 5"));
        assert_eq!(watched.files_ending(".plimsoll.json").len(), 1, "{}", watched.story());
    }
}

#[test]
fn preloaded_shells_stay_silent() {
    // The shell is what the preload by hand starts, its commands are not.
    let watched = Job::alone("children").watch(Watch::Preload).run();
    let reports = watched.files_ending(".plimsoll.json");
    let strangers: Vec<_> =
        reports.iter().filter(|path| !path.to_string_lossy().contains("children_")).collect();
    assert!(strangers.is_empty(), "reports of shells: {strangers:?}");
}
