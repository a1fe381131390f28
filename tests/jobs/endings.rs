//! However a program ends: its status is its own, and there is a report that says how it ended.

use plimsoll_tests::job::{Job, Watch, each_mpi};
use plimsoll_tests::mpi::Mpi;
use plimsoll_tests::outcome::Outcome;
use plimsoll_tests::undisturbed::undisturbed;

/// Ways to end, and what the report of a process without MPI says of them.
const ENDINGS: &[(&str, &[&str])] = &[
    ("return", &["exit"]),
    ("return3", &["exit"]),
    ("exit0", &["exit"]),
    ("exit3", &["exit"]),
    ("_exit3", &["exit"]),
    ("quick_exit3", &["exit"]),
    ("abort", &["abort", "signal 6"]),
    ("fault", &["signal 11"]),
    ("terminated", &["signal 15"]),
];

fn pair(job: &Job) -> (Outcome, Outcome) {
    let job = job.clone().shares_cores();
    (job.run(), job.watch(Watch::Run).run())
}

#[test]
fn a_process_ends_as_it_would_and_reports() {
    for (ending, words) in ENDINGS {
        let run = || {
            let (plain, watched) = pair(&Job::alone("exits").arguments(ending));
            assert_eq!(plain.status(), watched.status(), "{}", watched.story());
            assert_eq!(plain.stdout(), watched.stdout(), "{}", watched.story());
            let run = watched.summary().at("/run");
            assert!(words.contains(&run["ended"].as_str().unwrap_or("")), "{ending}: {run}");
            watched
        };
        undisturbed(run, |watched| {
            let work_s = watched.summary().of_function("work_before_the_end").mean_s;
            assert!(work_s > 0.08, "{ending}: {work_s} s of 0.1 s of work are reported");
        });
    }
}

#[test]
fn a_handler_of_the_program_has_the_last_word() {
    let (plain, watched) = pair(&Job::alone("exits").arguments("caught"));
    assert_eq!(plain.status().code(), Some(7));
    assert_eq!(watched.status().code(), Some(7), "{}", watched.story());
    assert_eq!(plain.stdout(), watched.stdout());
}

#[test]
fn orderly_ends_of_ranks_are_complete() {
    for mpi in each_mpi() {
        for ending in ["return", "exit0", "exit3", "_exit3", "quick_exit3"] {
            let (plain, watched) = pair(&Job::ranks("exits", mpi, 2).arguments(ending));
            assert_eq!(plain.status(), watched.status(), "{}", watched.story());
            assert_eq!(own_lines(&plain), own_lines(&watched), "{}", watched.story());
            let summary = watched.summary();
            assert_eq!(summary.at("/run/complete"), true, "{mpi}, {ending}");
            assert_eq!(summary.text("/run/ended"), "finalize", "{mpi}, {ending}");
        }
    }
}

#[test]
fn ranks_without_finalize_report_what_they_have() {
    for mpi in each_mpi() {
        for (ending, words) in [
            ("unfinalized", ["exit", "exit"]),
            ("mpi_abort", ["abort", "abort"]),
            ("abort", ["abort", "signal 6"]),
            ("fault", ["signal 11", "signal 11"]),
            ("terminated", ["signal 15", "signal 15"]),
        ] {
            let (plain, watched) = pair(&Job::ranks("exits", mpi, 2).arguments(ending));
            // Without Plimsoll 10 of 270 such jobs had status 1, all others 0.
            if mpi != Mpi::Mpich || ending != "unfinalized" {
                watched.assert_fails_as(&plain, mpi);
            }
            assert_eq!(own_lines(&plain), own_lines(&watched), "{}", watched.story());
            let summaries = watched.summaries();
            assert!(!summaries.is_empty(), "{mpi}, {ending}: no report: {}", watched.story());
            for summary in summaries {
                assert_eq!(summary.at("/run/complete"), false, "{mpi}, {ending}");
            }
            // The launcher may end the second rank before it gets there by itself.
            let told = summaries.iter().any(|summary| words.contains(&summary.text("/run/ended")));
            assert!(told, "{mpi}, {ending}: {}", watched.story());
        }
    }
}

/// The subject's own lines: launchers print process ids and host names when a rank fails.
fn own_lines(job: &Outcome) -> Vec<&str> {
    job.stdout().lines().filter(|line| line.starts_with("exits: ")).collect()
}
