//! Runtimes that take every signal for themselves: sampling steps aside before they see one of ours.

use plimsoll_tests::job::{Job, Watch};
use plimsoll_tests::outcome::Outcome;
use plimsoll_tests::subject::Form;

/// Runs a job with and without, sampled each `period`, and holds the watched one against the other.
fn both(job: &Job, period: &str) -> Outcome {
    let job = job.clone().shares_cores();
    let plain = job.run().succeeded();
    let watched = job.watch(Watch::Run).options(&format!("--period {period}")).run();
    assert_eq!(plain.status(), watched.status(), "{}", watched.story());
    assert_eq!(plain.stdout(), watched.stdout(), "{}", watched.story());
    assert_eq!(plain.other_lines(), watched.other_lines(), "{}", watched.story());
    let said =
        watched.plimsoll_lines().iter().filter(|line| line.contains("handles SIGSTKFLT")).count();
    assert_eq!(said, 1, "{}", watched.story());
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
fn go_without_c_is_left_alone() {
    if let Some(form) = Form::go(&["-buildmode=pie"]) {
        both(&Job::alone("goroutines").form(form), "1ms");
    }
}

#[test]
fn a_signal_that_is_taken_past_the_c_library_is_noticed() {
    // The program computes for a few ms before it creates the thread that notices: no sample is due
    // by then.
    let watched = both(&Job::alone("takes_signal"), "50ms");
    assert_says_why(&watched);
    // Calls are measured on.
    let join = watched.summary().of_function("pthread_join");
    assert_eq!((join.calls, join.calls_exact), (3.0, true));
}
