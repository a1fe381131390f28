//! Settings: what is not understood is said once, and off means off.

use plimsoll_tests::job::{Job, Watch, each_mpi};
use plimsoll_tests::mpi::Mpi;
use plimsoll_tests::outcome::Outcome;

fn with(name: &str, value: &str) -> Option<Outcome> {
    if !Mpi::OpenMpi.available() {
        return None;
    }
    let job = Job::ranks("balanced", Mpi::OpenMpi, 2).arguments("burn 20 5").watch(Watch::Run);
    Some(job.variable(name, value).run().succeeded())
}

/// The one message that mentions the word.
#[track_caller]
fn only_message(job: &Outcome, word: &str) -> String {
    let mut messages = job.plimsoll_messages();
    messages.retain(|message| message.contains(word));
    assert_eq!(messages.len(), 1, "not one message about {word}: {}", job.story());
    messages.remove(0)
}

#[test]
fn an_unknown_name_is_warned_of_once() {
    let Some(job) = with("PLIMSOLL_PERIODE", "1ms") else { return };
    only_message(&job, "PLIMSOLL_PERIODE");
    assert_eq!(job.summary().number("/run/period_us/asked"), 4000.0);
}

#[test]
fn an_unreadable_value_is_warned_of_and_the_default_used() {
    let Some(job) = with("PLIMSOLL_PERIOD", "often") else { return };
    let message = only_message(&job, "PLIMSOLL_PERIOD");
    assert!(message.contains("often"), "the value is not named: {message}");
    assert!(
        ["ns", "us", "ms"].iter().all(|unit| message.contains(unit)),
        "what is expected? {message}"
    );
    assert_eq!(job.summary().number("/run/period_us/asked"), 4000.0);
}

#[test]
fn what_later_versions_bring_is_named() {
    let Some(job) = with("PLIMSOLL_COUNTERS", "cycles") else { return };
    let message = only_message(&job, "PLIMSOLL_COUNTERS");
    assert!(message.contains("yet"), "{message}");
}

#[test]
fn disabled_does_nothing() {
    for mpi in each_mpi() {
        let job =
            Job::ranks("balanced", mpi, 2).arguments("burn 10 5").variable("PLIMSOLL_DISABLE", "1");
        let plain = job.run().succeeded();
        for watch in [Watch::Run, Watch::Preload] {
            let disabled = job.clone().watch(watch).run().succeeded();
            assert_eq!(disabled.plimsoll_lines(), Vec::<&str>::new());
            assert_eq!(disabled.files(), Vec::<std::path::PathBuf>::new());
            assert_eq!(disabled.stdout(), plain.stdout());
        }
    }
}

#[test]
fn silent_still_writes() {
    let Some(job) = with("PLIMSOLL_VERBOSE", "0") else { return };
    assert_eq!(job.plimsoll_lines(), Vec::<&str>::new());
    assert_eq!(job.summary().number("/run/ranks"), 2.0);
}

#[test]
fn only_the_asked_formats_are_written() {
    let Some(job) = with("PLIMSOLL_FORMATS", "json") else { return };
    assert_eq!(job.files_ending(".plimsoll.json").len(), 1);
    assert_eq!(job.files_ending(".plimsoll.txt").len(), 0);
}

#[test]
fn the_output_directory_is_made() {
    let Some(job) = with("PLIMSOLL_OUTPUT", "deep/down/") else { return };
    let files = job.files_ending(".plimsoll.json");
    assert_eq!(files.len(), 1, "{}", job.story());
    assert!(files[0].starts_with(job.directory().join("deep/down")), "{files:?}");
}

#[test]
fn options_are_the_variables() {
    if !Mpi::OpenMpi.available() {
        return;
    }
    let job = Job::ranks("balanced", Mpi::OpenMpi, 2).arguments("burn 20 5").watch(Watch::Run);
    let job = job.options("--period 1ms --output here --formats json").run().succeeded();
    assert_eq!(job.summary().number("/run/period_us/asked"), 1000.0);
    let files = job.files_ending(".plimsoll.json");
    assert!(files[0].starts_with(job.directory().join("here")), "{files:?}");
}

#[test]
fn the_wall_clock_can_be_asked_for() {
    let Some(job) = with("PLIMSOLL_CLOCK", "wall") else { return };
    assert_eq!(job.summary().text("/run/clock"), "wall");
}
