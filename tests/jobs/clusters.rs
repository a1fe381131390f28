//! Ranks that behave alike form clusters, independent of their losses.

use std::collections::BTreeSet;

use serde_json::Value;

use plimsoll_tests::lists::numbers;
use plimsoll_tests::mpi::{Mpi, needs};
use plimsoll_tests::outcome::Outcome;
use plimsoll_tests::retry_on_noise::retry_on_noise;
use plimsoll_tests::subject_job::{Job, Watch};
use plimsoll_tests::truth::assert_within;

const RANKS: u32 = 16;

/// Returns the clusters, each with its ranks.
fn clusters(job: &Outcome) -> Vec<(String, Value)> {
    let clusters = job.summary().at("/clusters").as_array().expect("clusters is a list");
    clusters.iter().map(|it| (it["ranks"].as_str().unwrap_or("").to_owned(), it.clone())).collect()
}

fn assert_sound(clusters: &[(String, Value)]) {
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
    assert_eq!(seen, (0..u64::from(RANKS)).collect());
}

/// Asserts that sleeping ranks of Open MPI that behave as `how` says have such clusters.
fn assert_clusters(iterations: u32, how: &str, are_found: impl Fn(&[(String, Value)])) {
    needs!(Mpi::OpenMpi);
    let arguments = format!("sleep {iterations} 20 3 {how}");
    let job = Job::ranks("behaviours", Mpi::OpenMpi, RANKS).arguments(&arguments);
    let job = job.watch(Watch::Run);
    let run = || {
        let clusters = clusters(&job.run().succeeded());
        assert_sound(&clusters);
        clusters
    };
    retry_on_noise(run, |clusters| are_found(clusters));
}

#[test]
#[ignore = "long: scripts/test --all"]
fn planted_behaviours_are_found_with_their_ranks() {
    assert_clusters(30, "kinds", |clusters| {
        let lists: Vec<&str> = clusters.iter().map(|(list, _)| list.as_str()).collect();
        assert_eq!(lists, ["0", "1-3", "4-15"]);
        // Work of 20, 40 and 60 of 60 ms, once in another function: no two ranks are similar.
        let apart = clusters.iter().all(|(_, it)| it["distance"].as_f64() > Some(0.2));
        assert!(apart, "{clusters:?}");
    });
}

#[test]
#[ignore = "long: scripts/test --all"]
fn ranks_that_do_alike_are_one_cluster() {
    // Long enough that one wait for a core does not put a rank into a cluster of its own.
    assert_clusters(120, "alike", |clusters| {
        assert_eq!(clusters.len(), 1, "{clusters:?}");
        assert_eq!(clusters[0].0, "0-15");
    });
}

#[test]
#[ignore = "long: scripts/test --all"]
fn graded_ranks_are_few_clusters_of_neighbours() {
    assert_clusters(30, "graded", |clusters| {
        // log2(16): the seed's bound.
        assert!((2..=4).contains(&clusters.len()), "{clusters:?}");
        let first = numbers(&clusters[0].0);
        assert!(first.contains(&0) && !first.contains(&15), "{clusters:?}");
    });
}

/// One of each rank's three threads works twice and one three times as long as the first.
#[test]
#[ignore = "long: scripts/test --all"]
fn threads_that_do_alike_are_one_cluster_over_all_ranks() {
    needs!(Mpi::OpenMpi);
    let job = Job::ranks("threads", Mpi::OpenMpi, 4).arguments("sleep 20 20 1 3");
    job.watch(Watch::Run).run_until(|job| {
        let clusters =
            job.summary().at("/thread_clusters").as_array().expect("it is a list").clone();
        let mut means_s = Vec::new();
        for cluster in &clusters {
            assert_eq!(cluster["ranks"], "0-3", "{cluster}");
            assert_eq!((&cluster["size"], &cluster["routine"]), (&4.into(), &"worker".into()));
            let seconds = |key: &str| cluster[key].as_f64().expect("it is a number");
            assert_within("work", seconds("work_s"), seconds("mean_s"), 0.10);
            means_s.push(seconds("mean_s"));
        }
        means_s.sort_by(f64::total_cmp);
        let works_s = job.truth().numbers("work_s");
        assert_eq!(means_s.len(), works_s.len(), "{}", job.text());
        for (mean_s, work_s) in means_s.iter().zip(works_s) {
            assert_within("life", *mean_s, work_s, 0.10);
        }
        assert!(job.report_contains("threads in worker (ranks 0-3)"), "{}", job.text());
    });
}
