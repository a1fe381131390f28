//! Panics in every hook, in a build of the library that panics on demand: the program goes on as
//! without the library, so do the other ranks, and the report names the rank that is missing from
//! it.

use std::fs;
use std::path::PathBuf;
use std::sync::OnceLock;

use plimsoll_tests::artifacts::{build, target_dir};
use plimsoll_tests::mpi::{Mpi, needs};
use plimsoll_tests::nodes;
use plimsoll_tests::openmp_runtime::{Language, OpenMpRuntime, team};
use plimsoll_tests::outcome::Outcome;
use plimsoll_tests::subject::Form;
use plimsoll_tests::subject_job::{Job, Watch, each_mpi};

/// Returns the library with panics on demand, built without optimisation.
fn library() -> &'static PathBuf {
    static LIBRARY: OnceLock<PathBuf> = OnceLock::new();
    LIBRARY.get_or_init(|| {
        build(&["-p", "plimsoll-preload", "--features", "panics"]);
        let apart = target_dir().join("panics");
        fs::create_dir_all(&apart).expect("a folder in the target directory");
        let library = apart.join("libplimsoll.so");
        let made = target_dir().join("debug/libplimsoll.so");
        fs::copy(&made, &library).expect("the library that was built");
        library
    })
}

/// Returns the job with a panic at `at`, a part of a hook, optionally on one rank only
/// ("part@rank").
fn with_panic(job: &Job, at: &str) -> Outcome {
    let job = job.clone().watch(Watch::Run).variable("PANIC_IN", at);
    let watched = job.variable("PLIMSOLL_LIBRARY", library()).run();
    let said = watched.plimsoll_lines();
    let is_fault = |line: &&str| line.contains("an error of our own (");
    assert!(said.iter().any(is_fault), "{at}: {}", watched.transcript());
    watched
}

/// Asserts that the job runs as without the library, in spite of the failure.
fn assert_unharmed(job: &Job, plain: &Outcome, at: &str) -> Outcome {
    let watched = with_panic(job, at);
    watched.assert_same_as(plain);
    assert!(watched.left_behind().is_empty(), "{at}: {}", watched.transcript());
    watched
}

#[test]
#[ignore = "long: scripts/test --all"]
fn no_panic_leaves_a_hook() {
    const PARTS: [(&str, &[&str]); 7] = [
        (
            "return",
            &[
                "constructor",
                "enter",
                "leave",
                "sigaction",
                "signal",
                "pthread_sigmask",
                "sigprocmask",
                "signalfd",
                "pthread_create",
                "thread",
                "thread's end",
                "dlopen",
                "dlclose",
                "after dlclose",
                "fork",
                "destructor",
            ],
        ),
        ("exec", &["exec", "after exec"]),
        ("daemon", &["daemon"]),
        ("namespace", &["after namespace"]),
        ("quick_exit3", &["quick_exit"]),
        ("_exit3", &["_exit"]),
        ("terminated", &["fatal signal"]),
    ];
    for (end, parts) in PARTS {
        let job = Job::alone("hooks").arguments(end).shares_cores();
        let plain = job.run();
        for part in parts {
            let watched = assert_unharmed(&job, &plain, part);
            assert_eq!(
                plain.other_lines(),
                watched.other_lines(),
                "{part}: {}",
                watched.transcript()
            );
        }
    }
}

#[test]
#[ignore = "long: scripts/test --all"]
fn no_panic_leaves_a_callback_of_an_openmp_runtime() {
    needs!(OpenMpRuntime::Llvm);
    let form = Form::OpenMp(Language::C, OpenMpRuntime::Llvm);
    let job = Job::alone("openmp_kinds").form(form).arguments("sleep 3 5 3 static");
    let job = team(job, 2).shares_cores();
    let plain = job.run();
    for part in ["ompt_start_tool", "OpenMP tool", "OpenMP event"] {
        let watched = assert_unharmed(&job, &plain, part);
        assert_eq!(plain.other_lines(), watched.other_lines(), "{part}");
    }
}

/// Parts that fail in one rank alone: that rank is left out, and the others are compared without
/// it.
const OF_A_RANK: [&str; 5] =
    ["enter@1", "leave@1", "MPI_Pcontrol@1", "MPI_Finalize@1", "end of the run@1"];

/// Parts in which all ranks cooperate: after a failure there, no ranks can be compared.
const TOGETHER: [&str; 4] = ["MPI_Init@1", "census@1", "coming together@1", "coming together@0"];

#[test]
#[ignore = "long: scripts/test --all"]
fn no_rank_waits_for_one_in_which_we_fail() {
    for mpi in each_mpi() {
        let job = Job::ranks("panics", mpi, mpi.ranks()).shares_cores();
        let plain = job.run().succeeded();
        for part in OF_A_RANK {
            let watched = assert_unharmed(&job, &plain, part);
            let summary = watched.summary();
            assert_eq!(summary.at("/run/complete"), false, "{part}");
            assert_eq!(summary.number("/run/ranks"), f64::from(mpi.ranks() - 1), "{part}");
            let words = "The profile of rank 1 ends with an error of our own";
            assert!(watched.report_contains(words), "{}", watched.text());
        }
        for part in TOGETHER {
            assert_unharmed(&job, &plain, part);
        }
        // Rank 0 writes the report.
        for part in ["evaluation@0", "reduction@0", "end of MPI_Finalize@0"] {
            assert_unharmed(&job, &plain, part);
        }
    }
}

#[test]
#[ignore = "long: scripts/test --all"]
fn no_node_waits_for_one_in_which_we_fail() {
    for mpi in each_mpi().filter(|_| nodes::available()) {
        let ranks = if mpi == Mpi::OpenMpi { 4 } else { 2 };
        let job = Job::ranks("panics", mpi, ranks).nodes(2).shares_cores();
        let plain = job.run().succeeded();
        let other_node = ranks / 2;
        for part in ["census", "asking other nodes", "coming together", "evaluation", "reduction"] {
            for rank in [0, other_node] {
                assert_unharmed(&job, &plain, &format!("{part}@{rank}"));
            }
        }
    }
}
