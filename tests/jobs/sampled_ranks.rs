//! Ranks that are chosen at random to keep their samples: the digest of these says what all ranks
//! took.

use std::collections::BTreeSet;

use serde_json::Value;

use plimsoll_tests::digests::{By, digest, folder_of, spools};
use plimsoll_tests::lists::numbers;
use plimsoll_tests::mpi::{Mpi, needs};
use plimsoll_tests::outcome::Outcome;
use plimsoll_tests::subject_job::{Job, Watch};
use plimsoll_tests::summary::Summary;

const RANKS: u32 = 16;

/// Returns a job of sleeping ranks of three kinds, with this request for its samples.
fn kinds(request: &str) -> Job {
    let job = Job::ranks("behaviours", Mpi::OpenMpi, RANKS).arguments("sleep 60 20 3 kinds");
    job.variable("PLIMSOLL_TRACE", request).watch(Watch::Run)
}

fn ranks(strata: &Value, key: &str) -> Vec<BTreeSet<u64>> {
    let strata = strata.as_array().expect("strata is a list").iter();
    strata.map(|it| numbers(it[key].as_str().unwrap_or("")).into_iter().collect()).collect()
}

/// Returns the call path of a node, innermost first: kinds, names and lines of its frames.
fn path(summary: &Summary, node: usize) -> Vec<String> {
    let tree = summary.at("/tree");
    let named = |node: usize| {
        let frame = tree["nodes"][node]["frame"].as_u64().expect("an index");
        let frame = &tree["frames"][frame as usize];
        format!("{} {} {}", frame["kind"], frame["function"], frame["line"])
    };
    summary.outwards(node).map(named).collect()
}

/// Returns the mean of a metric over all ranks, from the job's own summary: with another sum than
/// that of the population.
fn truth(job: &Summary, digest: &Summary, metric: &Value) -> f64 {
    let Some(node) = metric["node"].as_u64() else {
        let population = job.at("/population/metrics/0");
        assert_eq!(population["quantity"], "work");
        return population["time"]["mean_s"].as_f64().expect("work is known");
    };
    let wanted = path(digest, node as usize);
    let nodes = job.at("/tree/nodes").as_array().expect("nodes is a list");
    let place = (0..nodes.len()).find(|at| path(job, *at) == wanted);
    let place = place.unwrap_or_else(|| panic!("the job has no {wanted:?}"));
    let quantity = metric["quantity"].as_str().expect("a quantity");
    nodes[place][quantity]["mean_s"].as_f64().expect("a mean")
}

fn assert_intervals_hold(job: &Outcome, digest: &Summary) {
    let metrics = digest.at("/population/metrics").as_array().expect("metrics is a list");
    assert!(metrics.len() > 5, "{metrics:#?}");
    for metric in metrics {
        let truth = truth(job.summary(), digest, metric);
        let bound = |key: &str| metric["time"][key].as_f64().expect("an interval");
        let holds = bound("low_s") <= truth && truth <= bound("high_s");
        assert!(holds, "{truth} s is not in {metric:#?}\n{}", job.text());
        assert!(metric["time"]["required"].is_null(), "{metric}");
    }
}

#[test]
#[ignore = "long: scripts/test --all"]
fn the_kept_ranks_stand_for_all() {
    needs!(Mpi::OpenMpi);
    // With 99 %, few of the intervals of a hundred jobs miss a truth.
    kinds("sample:confidence=99%,error=10%").run_until(|job| {
        let summary = job.summary();
        let strata = summary.at("/population/strata");
        let (all, kept) = (ranks(strata, "ranks"), ranks(strata, "sampled"));
        let list = |ranks: std::ops::Range<u64>| ranks.collect::<BTreeSet<u64>>();
        assert_eq!(all, [list(0..1), list(1..4), list(4..16)], "{}", job.text());
        for (all, kept) in all.iter().zip(&kept) {
            assert!(kept.is_subset(all) && kept.len() >= all.len().min(2), "{strata}");
        }
        let kept: BTreeSet<u64> = kept.into_iter().flatten().collect();
        assert!(kept.len() < 16, "the ranks of a kind do alike: {strata}");
        assert_eq!(summary.at("/population/confidence"), 0.99);
        assert_eq!(summary.at("/population/error"), 0.10);
        assert!(summary.number("/population/achieved_error") <= 0.10);
        assert!(job.report_contains("of 16 ranks keep their samples:"), "{}", job.text());
        let windows = summary.at("/population/windows").as_array().expect("a list");
        let required = |it: &Value| it["time"]["required"].as_u64().expect("a number");
        assert!(windows.len() >= 2, "{windows:?}");
        assert!(windows.iter().all(|it| required(it) <= kept.len() as u64), "{windows:#?}");

        let folder = folder_of(&job.files_ending(".plimsoll.json")[0]).expect("a spool");
        assert_eq!(spools(&folder), ["rank0.spool"]);
        let digest = digest(&folder, By::Threads(3));
        assert_eq!(digest.number("/run/ranks"), kept.len() as f64);
        let listed = digest.at("/run/nodes/0/ranks").as_str().expect("a list");
        assert_eq!(numbers(listed).into_iter().collect::<BTreeSet<u64>>(), kept);
        assert_eq!(digest.at("/population/strata"), strata);
        assert_eq!(digest.at("/population/seed"), summary.at("/population/seed"));
        assert!(digest.at("/notes").to_string().contains("chosen at random"));
        assert_intervals_hold(job, &digest);
    });
}

#[test]
#[ignore = "long: scripts/test --all"]
fn the_seed_chooses_the_ranks_and_nodes_reduce_their_spools_alike() {
    needs!(Mpi::OpenMpi);
    let kept = |job: &Outcome| {
        let kept = ranks(job.summary().at("/population/strata"), "sampled");
        kept.into_iter().flatten().collect::<BTreeSet<u64>>()
    };
    kinds("sample:seed=3,error=20%,confidence=90%").nodes(4).run_until(|job| {
        assert_eq!(job.summary().at("/population/seed"), 3);
        let kept = kept(job);
        assert!(kept.len() < 16, "{}", job.text());
        let folder = folder_of(&job.files_ending(".plimsoll.json")[0]).expect("a spool");
        let holders: BTreeSet<u64> = kept.iter().map(|rank| rank - rank % 4).collect();
        let files: BTreeSet<String> =
            holders.iter().map(|rank| format!("rank{rank}.spool")).collect();
        assert_eq!(spools(&folder).into_iter().collect::<BTreeSet<String>>(), files);
        assert_intervals_hold(job, &digest(&folder, By::Threads(2)));
    });
}

/// Nobody knows how much the ranks of such a job differ.
#[test]
fn a_job_that_ends_early_keeps_the_samples_of_all_ranks() {
    needs!(Mpi::OpenMpi);
    let job = Job::ranks("exits", Mpi::OpenMpi, 4).arguments("mpi_abort");
    let job = job.variable("PLIMSOLL_TRACE", "sample").watch(Watch::Run).run();
    let summary = job.summary();
    assert_eq!(summary.at("/run/complete"), false, "{}", job.transcript());
    assert!(summary.at("/population").is_null(), "{}", job.transcript());
    let folder = folder_of(&job.files_ending(".plimsoll.json")[0]).expect("a spool");
    assert_eq!(digest(&folder, By::Threads(1)).number("/run/ranks"), 4.0);
}

#[test]
fn a_wrong_request_is_warned_of_once() {
    needs!(Mpi::OpenMpi);
    let job = Job::ranks("balanced", Mpi::OpenMpi, 2).arguments("sleep 20 5").watch(Watch::Run);
    let job = job.variable("PLIMSOLL_TRACE", "sample:error=0%").run().succeeded();
    let mut messages = job.plimsoll_messages();
    messages.retain(|message| message.contains("PLIMSOLL_TRACE"));
    let [message] = &messages[..] else { panic!("not one message: {}", job.transcript()) };
    assert!(message.contains("error=0% is not from 0.1% to 50%"), "{message}");
    assert_eq!(job.summary().text("/run/settings/PLIMSOLL_TRACE"), "clusters");
}
