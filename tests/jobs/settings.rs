//! Settings: an invalid value is reported once, and `off` disables everything.

use std::fs;
use std::path::Path;

use plimsoll_tests::artifacts::artifacts;
use plimsoll_tests::digests::{By, differences, digest, digest_with, folder_of};
use plimsoll_tests::mpi::{Mpi, needs};
use plimsoll_tests::outcome::Outcome;
use plimsoll_tests::scratch::Scratch;
use plimsoll_tests::subject_job::{Job, Watch, each_mpi};
use plimsoll_tests::summary::Summary;

fn with(name: &str, value: &str) -> Option<Outcome> {
    if !Mpi::OpenMpi.available() {
        return None;
    }
    let job = Job::ranks("balanced", Mpi::OpenMpi, 2).arguments("burn 20 5").watch(Watch::Run);
    Some(job.variable(name, value).shares_cores().run().succeeded())
}

/// Returns the one message that contains the word.
#[track_caller]
fn only_message(job: &Outcome, word: &str) -> String {
    let mut messages = job.plimsoll_messages();
    messages.retain(|message| message.contains(word));
    assert_eq!(messages.len(), 1, "not one message about {word}: {}", job.transcript());
    messages.remove(0)
}

#[test]
fn an_unknown_name_is_warned_of_once() {
    let Some(job) = with("PLIMSOLL_PERIODE", "1ms") else { return };
    only_message(&job, "PLIMSOLL_PERIODE");
    assert_eq!(job.summary().number("/run/period_us/asked"), 4000.0);
}

#[test]
fn ranks_that_are_not_there_are_named() {
    let Some(job) = with("PLIMSOLL_RANKS", "2-7") else { return };
    let message = only_message(&job, "PLIMSOLL_RANKS");
    assert!(message.contains("none of the 2 ranks"), "{message}");
    assert!(job.files().is_empty(), "{}", job.transcript());
    let entries = fs::read_dir(job.directory()).expect("the job's directory");
    let mut names = entries.flatten().map(|entry| entry.file_name());
    assert!(!names.any(|name| name.to_string_lossy().ends_with(".plimsoll.d")));
}

#[test]
fn of_some_measured_ranks_the_job_s_number_is_said() {
    let Some(job) = with("PLIMSOLL_RANKS", "1") else { return };
    let number = |key: &str| job.summary().number(&format!("/run/{key}"));
    assert_eq!((number("ranks"), number("world_ranks")), (1.0, 2.0));
    assert!(job.report_contains("1 of 2 ranks on"), "{}", job.text());
}

#[test]
fn a_shell_says_what_is_not_measured() {
    let mut command = std::process::Command::new(&artifacts().command);
    let output = command.args(["run", "sh", "-c", "exit 3"]).output().expect("it can be started");
    assert_eq!(output.status.code(), Some(3));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("sh is a shell") && said.lines().count() == 1, "{said}");
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
fn disabled_does_nothing() {
    for mpi in each_mpi() {
        let job =
            Job::ranks("balanced", mpi, 2).arguments("burn 10 5").variable("PLIMSOLL_DISABLE", "1");
        let job = job.shares_cores();
        let plain = job.run().succeeded();
        for watch in [Watch::Run, Watch::Preload] {
            let disabled = job.clone().watch(watch).run().succeeded();
            assert_eq!(disabled.plimsoll_lines(), Vec::<&str>::new());
            assert_eq!(disabled.files(), Vec::<std::path::PathBuf>::new());
            disabled.assert_same_as(&plain);
        }
    }
}

#[test]
fn relative_places_count_from_where_the_program_began() {
    for (place, expected) in [(".", ""), ("results", "results"), ("sub/%e", "sub")] {
        // Without a spool, no name is taken before the end.
        let job = Job::alone("moves").watch(Watch::Run).shares_cores();
        let job = job.variable("PLIMSOLL_OUTPUT", place).variable("PLIMSOLL_TRACE", "off");
        let job = job.run().succeeded();
        let reports = job.files_ending(".plimsoll.json");
        let [report] = &reports[..] else { panic!("{place}: {reports:?}: {}", job.transcript()) };
        let wanted = job.directory().join(expected);
        assert_eq!(report.parent(), Some(wanted.as_path()), "{place}: {}", job.transcript());
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
    let Some(job) = with("PLIMSOLL_FORMATS", "text") else { return };
    assert_eq!(job.files_ending(".plimsoll.txt").len(), 1);
    for ending in [".plimsoll.json", ".plimsoll.npz"] {
        assert_eq!(job.files_ending(ending).len(), 0, "{}", job.transcript());
    }
}

#[test]
fn the_output_directory_is_made() {
    let Some(job) = with("PLIMSOLL_OUTPUT", "deep/down/") else { return };
    let files = job.files_ending(".plimsoll.json");
    assert_eq!(files.len(), 1, "{}", job.transcript());
    assert!(files[0].starts_with(job.directory().join("deep/down")), "{files:?}");
}

#[test]
fn options_are_the_variables() {
    needs!(Mpi::OpenMpi);
    let job = Job::ranks("balanced", Mpi::OpenMpi, 2).arguments("burn 20 5").watch(Watch::Run);
    let job =
        job.options("--period 1ms --output here --formats json").shares_cores().run().succeeded();
    assert_eq!(job.summary().number("/run/period_us/asked"), 1000.0);
    let files = job.files_ending(".plimsoll.json");
    assert!(files[0].starts_with(job.directory().join("here")), "{files:?}");
}

#[test]
fn the_wall_clock_can_be_asked_for() {
    let Some(job) = with("PLIMSOLL_CLOCK", "wall") else { return };
    assert_eq!(job.summary().text("/run/clock"), "wall");
}

/// Runs four ranks on two nodes, with more work for the last in `work_uneven`, and with a file of
/// rules for its functions.
fn labelled(file: &Path, rules: &[u8]) -> Outcome {
    fs::write(file, rules).expect("the file of rules can be written");
    let job = Job::ranks("imbalance", Mpi::OpenMpi, 4).nodes(2).arguments("sleep 20 10 3");
    job.variable("PLIMSOLL_LABELS", file).watch(Watch::Run).run().succeeded()
}

#[track_caller]
fn label<'a>(summary: &'a Summary, function: &str) -> &'a str {
    let nodes = summary.of_function(function).nodes;
    assert_eq!(nodes.len(), 1, "{function}");
    summary.text(&format!("/tree/nodes/{}/label", nodes[0]))
}

fn has_cause(summary: &Summary, function: &str) -> bool {
    summary.losses().iter().any(|loss| loss.first_cause() == Some(function))
}

#[test]
fn rules_of_labels_hold_on_all_ranks_and_in_a_digest() {
    needs!(Mpi::OpenMpi);
    let files = Scratch::new("labels");
    let file = files.path().join("rules");
    let rules = b"# Ours.\r\n*even = computation\r\nlib*:work_uneven = io\r\n\
                  imbalance:work_un?ven = wait_partner\r\nwait partner\r\nwork_even = waiting\r\n";
    let job = labelled(&file, rules);
    let message = only_message(&job, "PLIMSOLL_LABELS");
    for word in ["line 5, ", "`wait partner`", "PATTERN = LABEL", "line 6"] {
        assert!(message.contains(word), "no {word}: {message}");
    }
    let summary = job.summary();
    assert_eq!(label(summary, "work_uneven"), "wait_partner");
    assert_eq!(label(summary, "work_even"), "computation");
    assert!(!has_cause(summary, "work_uneven"), "a wait is no cause: {}", job.transcript());
    assert_eq!(Some(summary.text("/run/settings/PLIMSOLL_LABELS")), file.to_str());

    // Each spool contains the rules, and needs no file.
    fs::remove_file(&file).expect("the file of rules can be removed");
    let folder = folder_of(&job.files_ending(".json")[0]).expect("there is a spool");
    let differences = differences(summary, &digest(&folder, By::Threads(2)));
    assert!(differences.is_empty(), "{}", differences.join("\n"));
    let part = digest(&folder.join("rank2.spool"), By::Threads(1));
    assert_eq!(label(&part, "work_uneven"), "wait_partner");
    // Other rules replace them.
    fs::write(&file, "work_even = io\n").expect("the file of rules can be written");
    let options = ["--labels".as_ref(), file.as_os_str()];
    let other = digest_with(&folder, By::Threads(2), &options);
    assert_eq!(label(&other, "work_even"), "io");
    assert!(has_cause(&other, "work_uneven"), "{:?}", other.at("/losses"));
}

#[test]
fn a_file_of_rules_that_is_not_there_is_warned_of_once() {
    let Some(job) = with("PLIMSOLL_LABELS", "nowhere/rules") else { return };
    let message = only_message(&job, "PLIMSOLL_LABELS");
    assert!(message.contains("PLIMSOLL_LABELS=nowhere/rules: "), "{message}");
    assert!(message.contains("cannot be read (it does not exist)"), "{message}");
    assert_eq!(job.summary().at("/run/settings").get("PLIMSOLL_LABELS"), None);
}
