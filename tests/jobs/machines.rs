//! Slow machines as opposed to uneven programs.

use plimsoll_tests::mpi::Mpi;
use plimsoll_tests::nodes::{self, host};
use plimsoll_tests::outcome::Outcome;
use plimsoll_tests::subject_job::{Job, Watch};
use plimsoll_tests::truth::assert_within;

const TOLERANCE: f64 = 0.10;
const FACTOR: f64 = 1.5;
/// Maximum of all other losses, as a fraction of the worst.
const OTHERS: f64 = 0.2;

/// Variable that names the slow machine to the subject.
const SLOW_HOST_VARIABLE: &str = "SUBJECT_SLOW_HOST";

/// Runs a job on two emulated nodes with a slow second one, until the assertions hold.
fn shown_on_nodes(how: &str, assertions: impl Fn(&Outcome)) {
    if Mpi::OpenMpi.available() && nodes::available() {
        Job::ranks("machines", Mpi::OpenMpi, 8)
            .arguments(&format!("sleep 25 60 {FACTOR} {how}"))
            .variable(SLOW_HOST_VARIABLE, host(2))
            .nodes(2)
            .watch(Watch::Run)
            .run_until(assertions);
    }
}

#[test]
#[ignore = "long: scripts/test --all"]
fn a_slow_node_is_named_with_its_factor() {
    shown_on_nodes("", |job| {
        let summary = job.summary();
        let worst = summary.worst();
        assert_eq!(worst.kind(), "slow_node", "{}", job.text());
        let factor = worst.field("factor").as_f64().unwrap_or(0.0);
        assert_within("factor", factor - 1.0, FACTOR - 1.0, TOLERANCE);
        let place = (worst.field("node"), worst.field("slow_ranks"), worst.field("waiting_ranks"));
        assert_eq!(place, (&host(2).into(), &"4-7".into(), &"0-3".into()), "{}", job.text());
        let work_s = job.truth().numbers("work_s");
        let mean_s = |ranks: &[f64]| ranks.iter().sum::<f64>() / ranks.len() as f64;
        let lost_s = mean_s(&work_s[4..]) - mean_s(&work_s[..4]);
        assert_within("seconds", worst.seconds(), lost_s, TOLERANCE);
        assert!(job.report_contains("times as long on node"), "{}", job.text());
        let others_s: f64 = summary.losses().iter().skip(1).map(|loss| loss.seconds()).sum();
        assert!(others_s < OTHERS * worst.seconds(), "{}", job.text());
    });
}

#[test]
#[ignore = "long: scripts/test --all"]
fn one_kernel_that_is_slow_on_one_node_is_a_load_imbalance() {
    shown_on_nodes("kernel", |job| {
        let summary = job.summary();
        assert_eq!(summary.worst().kind(), "load_imbalance", "{}", job.text());
        let cause_path = summary.worst().cause_path();
        assert_eq!(cause_path.last().copied(), job.truth().text("cause"), "{}", job.text());
        assert_eq!(summary.losses_of("slow_node").len(), 0, "{}", job.text());
    });
}
