//! Runtimes that take every signal for themselves, and debuggers, which stop at every signal:
//! sampling stops before they see its signal.

use std::process::Command;

use plimsoll_tests::artifacts::artifacts;
use plimsoll_tests::job_lock::lock_exclusively;
use plimsoll_tests::outcome::Outcome;
use plimsoll_tests::scratch::Scratch;
use plimsoll_tests::subject::{Form, executable};
use plimsoll_tests::subject_job::{Job, Watch, required_command};

/// Runs a job watched, with a sample each `period`, and unwatched, and compares both.
fn both(job: &Job, period: &str) -> Outcome {
    let job = job.clone().shares_cores();
    let plain = job.run().succeeded();
    let watched = job.watch(Watch::Run).options(&format!("--period {period}")).run();
    watched.assert_same_as(&plain);
    assert_eq!(plain.other_lines(), watched.other_lines(), "{}", watched.transcript());
    let said =
        watched.plimsoll_lines().iter().filter(|line| line.contains("handles SIGSTKFLT")).count();
    assert_eq!(said, 1, "{}", watched.transcript());
    watched
}

fn assert_says_why(watched: &Outcome) {
    let text = watched.text();
    assert!(text.contains("SIGSTKFLT"), "{text}");
}

#[test]
fn go_with_c_is_measured_by_its_calls() {
    if let Some(form) = Form::go(&[]) {
        let watched = both(&Job::alone("goroutines_c").form(form), "1ms");
        if !watched.files_ending(".plimsoll.json").is_empty() {
            assert_says_why(&watched);
            assert_eq!(watched.summary().number("/collection/samples"), 0.0);
        }
    }
}

#[test]
#[ignore = "long: scripts/test --all"]
fn go_without_c_is_left_alone() {
    if let Some(form) = Form::go(&["-buildmode=pie"]) {
        both(&Job::alone("goroutines").form(form), "1ms");
    }
}

#[test]
#[ignore = "long: scripts/test --all"]
fn a_signal_that_is_taken_past_the_c_library_is_noticed() {
    // The program computes for a few ms before it creates the thread that notices: no sample is due
    // by then.
    let watched = both(&Job::alone("takes_signal"), "50ms");
    assert_says_why(&watched);
    // Calls are still measured.
    let join = watched.summary().of_function("pthread_join");
    assert_eq!((join.calls, join.calls_exact), (3.0, true));
}

/// Runs a subject with many samples under a tool that traces it.
fn traced(tool: &str, before: &[&str]) -> (String, Scratch) {
    let tool = required_command(tool, tool);
    let command = &artifacts().command;
    let _job_lock = lock_exclusively();
    let scratch = Scratch::new("traced");
    let run = Command::new(tool)
        .args(before)
        .arg(command)
        .args(["run", "--"])
        .arg(executable("limits", Form::C, None))
        .arg("work")
        .current_dir(scratch.path())
        .env_remove("DEBUGINFOD_URLS")
        .output()
        .expect("the tool runs");
    let text = [run.stdout, run.stderr].map(|text| String::from_utf8_lossy(&text).into_owned());
    (text.join("\n"), scratch)
}

#[test]
#[ignore = "long: scripts/test --all"]
fn a_debugger_does_not_stop_at_samples() {
    let (text, _scratch) = traced("gdb", &["-batch", "-ex", "run", "--args"]);
    assert!(text.contains("limits: done") && text.contains("exited normally"), "{text}");
    assert!(!text.contains("received signal"), "{text}");
    assert_eq!(text.matches("a debugger traces this process").count(), 1, "{text}");
}
