//! Return-address marks: programs that do unusual things with their stacks do not notice them.

use plimsoll_tests::job::{Job, Watch};
use plimsoll_tests::outcome::Outcome;
use plimsoll_tests::subject::Form;

/// The trials, and how long each of theirs runs.
const TRIALS: [(&str, Form); 4] = [
    ("marks/exceptions", Form::Cxx),
    ("marks/returns", Form::Cxx),
    ("marks/jumps", Form::C),
    ("marks/endings", Form::C),
];
const TRIAL_S: &str = "0.1";

fn trial((subject, form): (&str, Form)) -> Job {
    Job::alone(subject).form(form).variable("TRIAL_S", TRIAL_S)
}

#[track_caller]
fn assert_right(plain: &Outcome, watched: &Outcome) {
    assert_eq!(plain.status(), watched.status(), "{}", watched.story());
    assert_eq!(plain.stdout(), watched.stdout(), "{}", watched.story());
}

#[test]
fn trials_end_as_without_marks_at_every_rate() {
    for subject in TRIALS {
        let plain = trial(subject).run().succeeded();
        assert!(!plain.stdout().contains("WRONG"), "{}", plain.story());
        for period in ["4ms", "1ms", "125us"] {
            let watched =
                trial(subject).watch(Watch::Run).options(&format!("--period {period}")).run();
            assert_right(&plain, &watched);
            let summary = watched.summary();
            assert!(summary.at("/collection/marks/off_reason").is_null(), "{}", watched.story());
            let count = |what: &str| summary.number(&format!("/collection/marks/{what}"));
            let samples = summary.number("/collection/samples");
            assert!(count("planted") > 0.0 && count("planted") <= samples, "{}", watched.story());
            assert!(count("hit") > 0.0, "{}", watched.story());
        }
    }
}

#[test]
fn marks_can_be_switched_off() {
    let subject = TRIALS[1];
    let plain = trial(subject).run().succeeded();
    let watched = trial(subject).watch(Watch::Run).options("--marks off --period 1ms").run();
    assert_right(&plain, &watched);
    let summary = watched.summary();
    assert_eq!(summary.number("/collection/marks/planted"), 0.0);
    assert_eq!(summary.text("/collection/marks/off_reason"), "PLIMSOLL_MARKS is off");
}
