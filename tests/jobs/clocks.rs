//! Nodes with clocks that differ: the offset is measured, and affects no other result.

use plimsoll_tests::mpi::Mpi;
use plimsoll_tests::nodes::{self, AHEAD_VARIABLE};
use plimsoll_tests::outcome::Outcome;
use plimsoll_tests::retry_on_noise::retry_on_noise;
use plimsoll_tests::subject_job::{Job, Watch, each_mpi};
use plimsoll_tests::summary::Summary;
use plimsoll_tests::truth::assert_within;
use serde_json::Value;

/// Maximum error of a measured clock offset, in microseconds: one sampling period.
const PERIOD_US: f64 = 4000.0;
const TOLERANCE: f64 = 0.10;

/// Returns the seconds by which each node's clock is ahead, as text and as numbers, and the ranks
/// per node.
fn skewed(mpi: Mpi) -> (&'static str, &'static [f64], u32) {
    match mpi {
        Mpi::OpenMpi => ("0 3.7 -0.25", &[0.0, 3.7, -0.25], 2),
        // MPICH is too slow with more ranks than cores.
        _ => ("3.7 -0.25", &[3.7, -0.25], 1),
    }
}

fn numbers(summary: &Summary, pointer: &str) -> Vec<f64> {
    let list = summary.at(pointer).as_array().expect("a list");
    list.iter().map(|number| number.as_f64().expect("a number")).collect()
}

/// Compares the measured offsets with the true ones.
#[track_caller]
fn assert_aligned(job: &Outcome, method: &str, ahead_s: &[f64], per_node: u32) {
    let summary = job.summary();
    assert_eq!(summary.text("/clocks/method"), method, "{}", job.transcript());
    assert_eq!(summary.at("/clocks/reference"), 0);
    let offsets_us = numbers(summary, "/clocks/offsets_us");
    assert_eq!(offsets_us.len(), ahead_s.len() * per_node as usize, "{offsets_us:?}");
    for (rank, offset_us) in offsets_us.iter().enumerate() {
        let true_us = (ahead_s[rank / per_node as usize] - ahead_s[0]) * 1e6;
        let wrong_us = (offset_us - true_us).abs();
        assert!(wrong_us < PERIOD_US, "rank {rank} is {true_us} us ahead, not {offset_us}");
    }
    // No drift: all nodes have this machine's clock.
    let drift_ppm = numbers(summary, "/clocks/drift_ppm");
    assert_eq!(drift_ppm.len(), offsets_us.len());
    let drifted_us = |ppm: &f64| ppm.abs() * summary.number("/run/elapsed_s");
    assert!(drift_ppm.iter().all(|ppm| drifted_us(ppm) < PERIOD_US), "{drift_ppm:?}");
    let residual_us = summary.number("/clocks/residual_us");
    assert!((0.0..PERIOD_US).contains(&residual_us), "{residual_us}");
    assert_eq!(summary.at("/notes").as_array().map(Vec::len), Some(0), "{}", job.transcript());
}

/// Returns the number of instances of each phase, and their duration.
fn phases(summary: &Summary) -> Vec<(u64, f64)> {
    let phases = summary.at("/phases").as_array().expect("phases are a list");
    let phase = |phase: &Value| {
        (phase["instances"].as_u64().unwrap_or(0), phase["duration_s"].as_f64().unwrap_or(-1.0))
    };
    phases.iter().map(phase).collect()
}

/// Runs a job on nodes with different clocks, and on this machine.
fn run_apart_and_level(job: &Job, nodes: u32, ahead: &str) -> [Outcome; 2] {
    let apart = job.clone().nodes(nodes).variable(AHEAD_VARIABLE, ahead).run().succeeded();
    [apart, job.run().succeeded()]
}

/// Asserts that the worst loss is the same, and as large as the subject reports.
fn assert_same_loss(apart: &Outcome, level: &Outcome, fields: &[&str], tolerance: f64) {
    let (loss, same) = (apart.summary().worst(), level.summary().worst());
    for field in fields {
        assert_eq!(loss.field(field), same.field(field), "{field} of {loss:?}");
    }
    assert_eq!(loss.first_cause(), same.first_cause());
    let truth_s = apart.truth().number("expected_loss_s");
    assert_within("seconds", loss.seconds(), truth_s, tolerance);
}

#[test]
#[ignore = "long: scripts/test --all"]
fn clocks_are_aligned_and_nothing_else_shows_that_they_were_apart() {
    for mpi in each_mpi().filter(|_| nodes::available()) {
        let (ahead, ahead_s, per_node) = skewed(mpi);
        let nodes = ahead_s.len() as u32;
        let ranks = nodes * per_node;
        let job = Job::ranks("imbalance", mpi, ranks).arguments("sleep 40 10 3").watch(Watch::Run);
        retry_on_noise(
            || run_apart_and_level(&job, nodes, ahead),
            |[apart, level]| {
                assert_aligned(apart, "regions", ahead_s, per_node);
                assert_aligned(level, "regions", &vec![0.0; ranks as usize], 1);
                let fields = ["kind", "slow_ranks", "waiting_ranks", "label", "evened_out"];
                assert_same_loss(apart, level, &fields, TOLERANCE);
                let (found, expected) = (phases(apart.summary()), phases(level.summary()));
                assert_eq!(found.len(), expected.len());
                for ((instances, duration_s), (same, same_s)) in found.into_iter().zip(expected) {
                    assert_eq!(instances, same);
                    // Begin and end of a run take a few milliseconds, with variation.
                    if same > 1 {
                        assert_within("a phase", duration_s, same_s, TOLERANCE);
                    }
                }
            },
        );
    }
}

#[test]
#[ignore = "long: scripts/test --all"]
fn clocks_are_aligned_by_samples_alone() {
    if !Mpi::OpenMpi.available() || !nodes::available() {
        return;
    }
    let (ahead, ahead_s, per_node) = skewed(Mpi::OpenMpi);
    let nodes = ahead_s.len() as u32;
    let job = Job::ranks("imbalance", Mpi::OpenMpi, nodes * per_node).arguments("sleep 40 20 3");
    let job = job.variable("PLIMSOLL_REGIONS", "off").watch(Watch::Run);
    retry_on_noise(
        || run_apart_and_level(&job, nodes, ahead),
        |[apart, level]| {
            for job in [apart, level] {
                let instances: Vec<_> =
                    phases(job.summary()).iter().map(|(instances, _)| *instances).collect();
                assert_eq!(instances, [1, 39, 1], "{}", job.transcript());
            }
            assert_aligned(apart, "samples", ahead_s, per_node);
            let fields = ["kind", "slow_ranks", "waiting_ranks", "label"];
            assert_same_loss(apart, level, &fields, 2.0 * TOLERANCE);
        },
    );
}

/// Ranks of two programs have no common calling context in which they synchronise. Where calls are
/// not measured, a synchronisation shows only if each of the two programs has waited in some
/// instances.
#[test]
fn clocks_of_programs_that_differ_are_aligned() {
    if !Mpi::OpenMpi.available() || !nodes::available() {
        return;
    }
    let (ahead, ahead_s, per_node) = skewed(Mpi::OpenMpi);
    let nodes = ahead_s.len() as u32;
    let job = Job::ranks("coupled", Mpi::OpenMpi, nodes * per_node).watch(Watch::Run);
    let by_calls = job.clone().arguments("sleep 40 20 3");
    let by_samples = job.arguments("sleep 40 20 3 turns").variable("PLIMSOLL_REGIONS", "off");
    for (job, method, tolerance) in
        [(by_calls, "regions", TOLERANCE), (by_samples, "samples", 2.0 * TOLERANCE)]
    {
        retry_on_noise(
            || run_apart_and_level(&job, nodes, ahead),
            |[apart, level]| {
                assert_aligned(apart, method, ahead_s, per_node);
                for job in [apart, level] {
                    let phases = job.summary().at("/phases").as_array().expect("it is a list");
                    let kinds = phases.iter().map(|it| (&it["instances"], &it["kind"]));
                    let found: Vec<_> = kinds.collect();
                    assert!(
                        found.contains(&(&39.into(), &"mpmd".into())),
                        "{method}: {found:?}\n{}",
                        job.text()
                    );
                }
                let fields = ["kind", "slow_ranks", "waiting_ranks", "label", "group"];
                assert_same_loss(apart, level, &fields, tolerance);
            },
        );
    }
}

#[test]
#[ignore = "long: scripts/test --all"]
fn messages_tell_where_no_synchronisation_does() {
    for mpi in each_mpi().filter(|_| nodes::available()) {
        let (ahead, ahead_s, per_node) = skewed(mpi);
        let nodes = ahead_s.len() as u32;
        // The synchronisation of one iteration and that of the end are too few.
        let job = Job::ranks("imbalance", mpi, nodes * per_node).arguments("sleep 1 200 3");
        let job = job.nodes(nodes).variable(AHEAD_VARIABLE, ahead).watch(Watch::Run);
        job.run_until(|job| assert_aligned(job, "ping-pong", ahead_s, per_node));
    }
}
