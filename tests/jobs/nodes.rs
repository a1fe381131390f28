//! Jobs on several nodes: the same diagnosis as on one, and a fallback where nodes cannot connect.

use std::fs;
use std::path::{Path, PathBuf};

use plimsoll_tests::mpi::Mpi;
use plimsoll_tests::nodes::{self, PRIVATE, PRIVATE_VARIABLE, host};
use plimsoll_tests::outcome::Outcome;
use plimsoll_tests::retry_on_noise::retry_on_noise;
use plimsoll_tests::subject_job::{Job, Watch, each_mpi};
use plimsoll_tests::summary::Summary;
use plimsoll_tests::truth::assert_within;

const TOLERANCE: f64 = 0.10;

/// Number of ranks per node: MPICH is too slow with more ranks than cores.
const fn ranks_per_node(mpi: Mpi) -> u32 {
    match mpi {
        Mpi::OpenMpi => 4,
        _ => 1,
    }
}

fn imbalance(mpi: Mpi, node_count: u32) -> Job {
    Job::ranks("imbalance", mpi, node_count * ranks_per_node(mpi)).arguments("sleep 40 10 3")
}

/// Returns the MPIs for which nodes can be emulated.
fn each_mpi_on_nodes() -> impl Iterator<Item = Mpi> {
    each_mpi().filter(|_| nodes::available())
}

/// Returns the files left in a directory by which nodes find each other.
fn posts(directory: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for path in fs::read_dir(directory).into_iter().flatten().flatten().map(|entry| entry.path()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy();
        if name.starts_with(".plimsoll-") {
            found.push(path);
        } else if path.is_dir() {
            found.extend(posts(&path));
        }
    }
    found
}

fn assert_tidy(job: &Outcome) {
    let posts = posts(job.directory());
    assert!(posts.is_empty(), "left: {posts:?}: {}", job.transcript());
    assert!(job.left_behind().is_empty(), "left running: {:?}", job.left_behind());
}

/// Asserts that one message contains the text; the report that ends the run may note it again.
fn assert_told_once(job: &Outcome, text: &str) {
    let mut messages = job.plimsoll_messages();
    messages.retain(|message| {
        message.contains("ranks are not compared") && !message.starts_with("note")
    });
    assert_eq!(messages.len(), 1, "not said once: {}", job.transcript());
    assert!(messages[0].contains(text), "{messages:?} does not say {text}");
}

/// Returns host, ranks and cores of each node.
fn places(summary: &Summary) -> Vec<(String, String, u64)> {
    let nodes = summary.at("/run/nodes").as_array().expect("nodes are a list");
    let text = |value: &serde_json::Value| value.as_str().unwrap_or_default().to_owned();
    let place = |node: &serde_json::Value| {
        (text(&node["host"]), text(&node["ranks"]), node["cores"].as_u64().unwrap_or(0))
    };
    nodes.iter().map(place).collect()
}

#[test]
fn two_nodes_get_the_diagnosis_of_one() {
    for mpi in each_mpi_on_nodes() {
        let job = imbalance(mpi, 2).watch(Watch::Run);
        let run = || {
            let (one, two) = (job.run().succeeded(), job.clone().nodes(2).run().succeeded());
            two.assert_same_as(&one);
            assert_eq!(two.summary().at("/run/complete"), true);
            assert_eq!(two.summary().at("/run/ranks"), one.summary().at("/run/ranks"));
            assert_tidy(&two);
            (one, two)
        };
        retry_on_noise(run, |(one, two)| assert_same_diagnosis(one, two));
    }
}

fn assert_same_diagnosis(one: &Outcome, two: &Outcome) {
    let (summary_of_one, summary) = (one.summary(), two.summary());
    let (expected, worst) = (summary_of_one.worst(), summary.worst());
    assert_eq!(worst.kind(), "load_imbalance", "{worst:?}");
    assert_eq!(worst.first_cause(), Some("work_uneven"), "{worst:?}");
    for field in ["kind", "slow_ranks", "waiting_ranks", "label", "polling", "evened_out"] {
        assert_eq!(worst.field(field), expected.field(field), "{field} of {worst:?}");
    }
    assert_eq!(worst.first_cause(), expected.first_cause());
    assert_eq!(worst.symptom_path(), expected.symptom_path());
    // Equal up to the true losses of the two runs, each according to its own subject.
    let truth_s = |job: &Outcome| job.truth().number("expected_loss_s");
    let same_s = expected.seconds() * truth_s(two) / truth_s(one);
    assert_within("seconds on one node", worst.seconds(), same_s, TOLERANCE);
    assert_within("seconds", worst.seconds(), truth_s(two), TOLERANCE);

    let run_s = summary.number("/run/elapsed_s");
    assert_within("elapsed", run_s, two.truth().number("elapsed_s"), 0.05);
    assert_eq!(summary.number("/collection/lost"), 0.0);
    let phases = |summary: &Summary| {
        let phases = summary.at("/phases").as_array().expect("phases are a list").clone();
        phases.iter().map(|phase| phase["instances"].as_u64()).collect::<Vec<_>>()
    };
    assert_eq!(phases(summary), phases(summary_of_one));
    for phase in summary.at("/phases").as_array().into_iter().flatten() {
        let begin_s = phase["begin_s"].as_f64().unwrap_or(-1.0);
        assert!((0.0..=run_s).contains(&begin_s), "a node's clock shows: {phase}");
    }
}

#[test]
#[ignore = "long: scripts/test --all"]
fn three_nodes_are_named_with_their_ranks() {
    for mpi in each_mpi_on_nodes().filter(|mpi| *mpi == Mpi::OpenMpi) {
        let job = Job::ranks("imbalance", mpi, 6).arguments("sleep 20 10 3").watch(Watch::Run);
        let one = job.run().succeeded();
        let three = job.nodes(3).run_until(|three| {
            assert_eq!(three.summary().worst().field("slow_ranks"), "5");
        });
        let cores = places(one.summary())[0].2;
        let expected = [(1, "0-1"), (2, "2-3"), (3, "4-5")];
        let expected = expected.map(|(node, ranks)| (host(node), ranks.to_owned(), cores));
        assert_eq!(places(three.summary()), expected);
        assert_tidy(&three);
    }
}

#[test]
#[ignore = "long: scripts/test --all"]
fn a_rank_without_the_library_keeps_all_nodes_apart() {
    for mpi in each_mpi_on_nodes() {
        let job = imbalance(mpi, 2).shares_cores();
        let per_node = ranks_per_node(mpi);
        let plain = job.clone().nodes(2).run().succeeded();
        for without in [0, 2 * per_node - 1] {
            let watched = job.clone().nodes(2).watch(Watch::PreloadAllBut(without)).run();
            let watched = watched.succeeded();
            watched.assert_same_as(&plain);
            assert_eq!(plain.other_lines(), watched.other_lines(), "{}", watched.transcript());
            assert_tidy(&watched);
            let summaries = watched.summaries();
            assert_eq!(summaries.len() as u32, 2 * per_node - 1, "{}", watched.transcript());
            assert!(summaries.iter().all(|summary| summary.at("/run/complete") == false));
            // With one rank per node, a node without the library looks like one elsewhere.
            if without != 0 || per_node > 1 {
                assert_told_once(&watched, "LD_PRELOAD");
            }
        }
    }
}

#[test]
#[ignore = "long: scripts/test --all"]
fn nodes_that_share_no_directory_are_told_apart() {
    for mpi in each_mpi_on_nodes() {
        let job = imbalance(mpi, 2).nodes(2).variable(PRIVATE_VARIABLE, PRIVATE).shares_cores();
        let plain = job.run().succeeded();
        let job = job.variable("PLIMSOLL_OUTPUT", PRIVATE).watch(Watch::Run);
        let watched = job.run().succeeded();
        watched.assert_same_as(&plain);
        assert_eq!(plain.other_lines(), watched.other_lines(), "{}", watched.transcript());
        assert_told_once(&watched, "Set PLIMSOLL_OUTPUT to a directory that all nodes share");
        assert_tidy(&watched);
        // Each rank's own report is on its node.
        for node in 1..=2 {
            let place = watched.directory().join(PRIVATE).join(host(node));
            let reports = watched.files_ending(".plimsoll.json");
            let here = reports.iter().filter(|path| path.starts_with(&place)).count();
            assert_eq!(here as u32, ranks_per_node(mpi), "{}", watched.transcript());
        }
    }
}

#[test]
#[ignore = "long: scripts/test --all"]
fn a_directory_that_cannot_be_written_keeps_nodes_apart() {
    for mpi in each_mpi_on_nodes() {
        let job = imbalance(mpi, 2).nodes(2).watch(Watch::Run).shares_cores();
        // A file stands at the path of the directory.
        let watched = job.variable("PLIMSOLL_OUTPUT", "stdout/x").run().succeeded();
        assert_told_once(&watched, "Set PLIMSOLL_OUTPUT");
        assert_tidy(&watched);
    }
}

#[test]
#[ignore = "long: scripts/test --all"]
fn nothing_stays_on_nodes_after_a_run_that_breaks_off() {
    for mpi in each_mpi_on_nodes() {
        for ending in ["mpi_abort", "fault", "unfinalized"] {
            let job = Job::ranks("exits", mpi, 2).arguments(ending).nodes(2).watch(Watch::Run);
            let watched = job.shares_cores().run();
            assert_tidy(&watched);
            assert!(!watched.files_ending(".plimsoll.json").is_empty(), "{}", watched.transcript());
        }
    }
}
