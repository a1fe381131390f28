//! Ranks that did alike are clusters, whatever they lost.

use std::collections::BTreeSet;

use serde_json::Value;

use plimsoll_tests::job::{Job, Watch};
use plimsoll_tests::lists::numbers;
use plimsoll_tests::mpi::Mpi;
use plimsoll_tests::outcome::Outcome;

/// Sleeping ranks of Open MPI that behave as HOW says, or `None` without it.
fn run(ranks: u32, iterations: u32, how: &str) -> Option<Outcome> {
    let arguments = format!("sleep {iterations} 20 3 {how}");
    let job = Job::ranks("behaviours", Mpi::OpenMpi, ranks).arguments(&arguments);
    Mpi::OpenMpi.available().then(|| job.watch(Watch::Run).run().succeeded())
}

/// The clusters, each with its ranks.
fn clusters(job: &Outcome) -> Vec<(String, Value)> {
    let summary = job.summary();
    let clusters = summary.at("/clusters").as_array().expect("clusters is a list");
    clusters.iter().map(|it| (it["ranks"].as_str().unwrap_or("").to_owned(), it.clone())).collect()
}

fn assert_sound(clusters: &[(String, Value)], ranks: u64) {
    let mut seen = BTreeSet::new();
    for (list, cluster) in clusters {
        let members: BTreeSet<u64> = numbers(list).into_iter().collect();
        assert_eq!(cluster["size"], members.len() as u64);
        let representative = cluster["representative"].as_u64().expect("a rank represents it");
        assert!(members.contains(&representative), "{cluster}");
        assert_eq!(cluster["distance"].is_null(), clusters.len() == 1, "{cluster}");
        assert!(members.is_disjoint(&seen), "{clusters:?}");
        seen.extend(members);
    }
    assert_eq!(seen, (0..ranks).collect());
}

#[test]
fn planted_behaviours_are_found_with_their_ranks() {
    let Some(job) = run(16, 30, "kinds") else { return };
    let clusters = clusters(&job);
    assert_sound(&clusters, 16);
    let lists: Vec<&str> = clusters.iter().map(|(list, _)| list.as_str()).collect();
    assert_eq!(lists, ["0", "1-3", "4-15"]);
    // Work of 20, 40 and 60 of 60 ms, once in another function: no two are near.
    assert!(clusters.iter().all(|(_, it)| it["distance"].as_f64() > Some(0.2)), "{clusters:?}");
}

#[test]
fn ranks_that_do_alike_are_one_cluster() {
    // Long enough that a rank that waited for a core once is no kind of its own.
    let Some(job) = run(16, 120, "alike") else { return };
    let clusters = clusters(&job);
    assert_sound(&clusters, 16);
    assert_eq!(clusters.len(), 1, "{clusters:?}");
    assert_eq!(clusters[0].0, "0-15");
}

#[test]
fn graded_ranks_are_few_clusters_of_neighbours() {
    let Some(job) = run(16, 30, "graded") else { return };
    let clusters = clusters(&job);
    assert_sound(&clusters, 16);
    // log2(16): the seed's bound.
    assert!((2..=4).contains(&clusters.len()), "{clusters:?}");
    let first = numbers(&clusters[0].0);
    assert!(first.contains(&0) && !first.contains(&15), "{clusters:?}");
}
