//! Every way to end a program: its status is its own, and a report says how it ended.

use plimsoll_tests::mpi::Mpi;
use plimsoll_tests::outcome::Outcome;
use plimsoll_tests::retry_on_noise::retry_on_noise;
use plimsoll_tests::subject_job::{Job, Watch, each_mpi};

/// Ways to end, and the words on them in the report of a process without MPI.
const ENDINGS: &[(&str, &[&str])] = &[
    ("return", &["exit"]),
    ("return3", &["exit"]),
    ("exit0", &["exit"]),
    ("exit3", &["exit"]),
    ("_exit3", &["exit"]),
    ("quick_exit3", &["exit"]),
    ("reading", &["exit"]),
    ("abort", &["abort", "signal 6"]),
    ("fault", &["signal 11"]),
    ("terminated", &["signal 15"]),
    ("pipe", &["signal 13"]),
    ("raise5", &["signal 5"]),
    ("raise10", &["signal 10"]),
    ("raise12", &["signal 12"]),
    ("raise14", &["signal 14"]),
    ("raise25", &["signal 25"]),
    ("raise26", &["signal 26"]),
    ("raise27", &["signal 27"]),
    ("raise29", &["signal 29"]),
    ("raise30", &["signal 30"]),
    ("raise34", &["signal 34"]),
    ("raise64", &["signal 64"]),
    ("default10", &["signal 10"]),
    ("default34", &["signal 34"]),
];

fn pair(job: &Job) -> (Outcome, Outcome) {
    let job = job.clone().shares_cores();
    (job.run(), job.watch(Watch::Run).run())
}

#[test]
#[ignore = "long: scripts/test --all"]
fn a_process_ends_as_it_would_and_reports() {
    for (ending, words) in ENDINGS {
        let run = || {
            let (plain, watched) = pair(&Job::alone("exits").arguments(ending));
            watched.assert_same_as(&plain);
            let run = watched.summary().at("/run");
            assert!(words.contains(&run["ended"].as_str().unwrap_or("")), "{ending}: {run}");
            watched
        };
        retry_on_noise(run, |watched| {
            let work_s = watched.summary().of_function("work_before_the_end").mean_s;
            assert!(work_s > 0.08, "{ending}: {work_s} s of 0.1 s of work are reported");
        });
    }
}

#[test]
fn a_process_ends_with_its_last_thread() {
    for workers in [0, 1, 3] {
        let (plain, watched) = pair(&Job::alone("pthread_exits").arguments(&workers.to_string()));
        assert_eq!(plain.status().code(), Some(0), "{}", plain.transcript());
        watched.assert_same_as(&plain);
        let summary = watched.summary();
        assert_eq!(summary.text("/run/ended"), "exit");
        assert_eq!(summary.at("/run/complete"), true);
        assert_eq!(summary.number("/run/threads"), f64::from(workers + 1));
    }
}

#[test]
fn a_handler_of_the_program_has_the_last_word() {
    let (plain, watched) = pair(&Job::alone("exits").arguments("caught"));
    assert_eq!(plain.status().code(), Some(7));
    watched.assert_same_as(&plain);
}

#[test]
fn a_signal_that_was_ignored_at_the_start_stays_ignored() {
    for (ending, signal, status) in [("pipe", "PIPE", 4), ("raise10", "USR1", 0)] {
        let job = Job::alone("exits").arguments(ending);
        let (plain, watched) = pair(&job.inherits(&format!("--ignore-signal={signal}")));
        assert_eq!(plain.status().code(), Some(status), "{}", plain.transcript());
        watched.assert_same_as(&plain);
        assert_eq!(watched.summary().text("/run/ended"), "exit", "{ending}");
    }
}

#[test]
#[ignore = "long: scripts/test --all"]
fn orderly_ends_of_ranks_are_complete() {
    for mpi in each_mpi() {
        for ending in ["return", "exit0", "exit3", "_exit3", "quick_exit3"] {
            let (plain, watched) = pair(&Job::ranks("exits", mpi, 2).arguments(ending));
            assert_eq!(plain.status(), watched.status(), "{}", watched.transcript());
            assert_eq!(own_lines(&plain), own_lines(&watched), "{}", watched.transcript());
            let summary = watched.summary();
            assert_eq!(summary.at("/run/complete"), true, "{mpi}, {ending}");
            assert_eq!(summary.text("/run/ended"), "finalize", "{mpi}, {ending}");
        }
    }
}

#[test]
#[ignore = "long: scripts/test --all"]
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
            // Without Plimsoll, 10 of 270 such jobs had status 1, all others 0.
            if mpi != Mpi::Mpich || ending != "unfinalized" {
                watched.assert_fails_as(&plain, mpi);
            }
            assert_eq!(own_lines(&plain), own_lines(&watched), "{}", watched.transcript());
            assert_reports_the_end(&watched, &words, &format!("{mpi}, {ending}"));
        }
    }
}

#[test]
#[ignore = "long: scripts/test --all"]
fn a_rank_that_ends_while_others_wait_in_finalize_leaves_a_report_and_delays_nobody() {
    for mpi in each_mpi() {
        for (ending, words) in [
            ("late_unfinalized3", ["exit", "exit"]),
            ("late_unfinalized", ["exit", "exit"]),
            ("late_mpi_abort", ["abort", "abort"]),
            ("late_abort", ["abort", "signal 6"]),
            ("late_fault", ["signal 11", "signal 11"]),
            ("late_terminated", ["signal 15", "signal 15"]),
        ] {
            if (mpi, ending) == (Mpi::Mpich, "late_unfinalized") {
                // The status of MPICH's launcher depends on which rank ends first.
                continue;
            }
            let context = format!("{mpi}, {ending}");
            let run = || {
                let (plain, watched) = pair(&Job::ranks("exits", mpi, 3).arguments(ending));
                watched.assert_fails_as(&plain, mpi);
                assert_reports_the_end(&watched, &words, &context);
                (plain, watched)
            };
            retry_on_noise(run, |(plain, watched)| {
                // An end that waits for a blocked writer would take 5 or 20 seconds more.
                let later_s = watched.took_s() - plain.took_s();
                assert!(later_s < 3.0, "{context}: {later_s} s later: {}", watched.transcript());
            });
        }
    }
}

#[test]
fn a_daemon_is_measured_until_it_is_one() {
    let (plain, watched) = pair(&Job::alone("hooks").arguments("daemon"));
    watched.assert_same_as(&plain);
    let said = watched.plimsoll_messages();
    assert!(said.iter().any(|message| message.contains("becomes a daemon")), "{said:?}");
    assert_eq!(watched.summaries().len(), 1, "{}", watched.transcript());
}

#[test]
fn a_program_enters_a_user_namespace_as_without_our_threads() {
    let job = Job::alone("hooks").arguments("namespace").variable("PLIMSOLL_PERIOD", "4ms");
    let (plain, watched) = pair(&job);
    watched.assert_same_as(&plain);
    assert_eq!(watched.other_lines(), plain.other_lines());
    // It computes for 0.3 s after that, or for a part of that on a busy machine.
    let summary = watched.summary();
    assert!(summary.number("/collection/samples") > 10.0, "{}", watched.text());
    assert_eq!(summary.number("/collection/lost"), 0.0, "{}", watched.text());
}

/// Asserts that there are reports, that each is incomplete, and that one names the end. The
/// launcher may end the second rank before that rank ends by itself.
fn assert_reports_the_end(watched: &Outcome, words: &[&str], context: &str) {
    let summaries = watched.summaries();
    assert!(!summaries.is_empty(), "{context}: no report: {}", watched.transcript());
    for summary in summaries {
        assert_eq!(summary.at("/run/complete"), false, "{context}");
    }
    let reported = summaries.iter().any(|summary| words.contains(&summary.text("/run/ended")));
    assert!(reported, "{context}: {}", watched.transcript());
}

/// Returns the subject's own lines: launchers print process ids and host names when a rank fails.
fn own_lines(job: &Outcome) -> Vec<&str> {
    job.stdout().lines().filter(|line| line.starts_with("exits: ")).collect()
}
