//! Accuracy of predictions: the run time that a summary predicts without a loss, against the
//! measured run time of the same program without that loss (ICS18, Figure 13). All subjects work by
//! sleeping, so that ranks need no cores of their own.

use plimsoll_tests::mpi::Mpi;
use plimsoll_tests::nodes;
use plimsoll_tests::outcome::Outcome;
use plimsoll_tests::subject_job::{Job, Watch};

use crate::row::Row;
use crate::statistics::{least, median, percentile};

/// Maximum error of a prediction, in percent.
const MAX_ERROR: f64 = 15.0;
/// Maximum median of the errors, in percent.
const MAX_MEDIAN_ERROR: f64 = 5.0;

/// A subject with a switch that removes exactly one loss.
struct Subject {
    kind: &'static str,
    name: &'static str,
    mpi: Mpi,
    ranks: u32,
    /// Arguments with the loss.
    with: &'static str,
    /// Arguments for the same work without the loss.
    without: &'static str,
}

const fn subject(
    kind: &'static str,
    (name, mpi, ranks): (&'static str, Mpi, u32),
    [with, without]: [&'static str; 2],
) -> Subject {
    Subject { kind, name, mpi, ranks, with, without }
}

const SUBJECTS: [Subject; 14] = [
    subject("load_imbalance", ("imbalance", Mpi::OpenMpi, 8), ["15 60 3", "15 60 3 even"]),
    subject("load_imbalance", ("neighbours", Mpi::OpenMpi, 8), ["15 60 3", "15 75 1"]),
    subject("load_imbalance", ("alternating", Mpi::OpenMpi, 4), ["10 120 3", "10 150 1"]),
    subject("load_imbalance", ("grid", Mpi::OpenMpi, 4), ["10 100 3", "10 200 1"]),
    subject("serialization", ("serial", Mpi::Mpich, 2), ["15 60 2", "15 120 0"]),
    subject("serialization", ("snapshots", Mpi::OpenMpi, 8), ["8 100 1", "8 100 1 alone"]),
    subject("group_imbalance", ("coupled", Mpi::OpenMpi, 8), ["15 60 3", "15 90 1"]),
    subject("wait_for_partner", ("wavefront", Mpi::OpenMpi, 8), ["10 30", "10 30 1 free"]),
    subject("frequent_communication", ("polls", Mpi::Mpich, 2), ["30 20 1", "30 20 1 blocks"]),
    subject("frequent_communication", ("probing", Mpi::OpenMpi, 10), ["12 80 3", "12 80 3 blind"]),
    subject("large_message", ("messages", Mpi::Mpich, 2), ["20 60 64", "20 60 64 short"]),
    subject("large_io", ("files", Mpi::OpenMpi, 4), ["10 150 32", "10 150 32 memory"]),
    subject("lock_contention", ("locks", Mpi::Mpich, 2), ["60 20", "60 20 1 free"]),
    subject("slow_node", ("machines", Mpi::OpenMpi, 8), ["25 60 1.5", "25 60 1.5"]),
];

impl Subject {
    fn job(&self, has_loss: bool, quick: bool) -> Job {
        let arguments = if has_loss { self.with } else { self.without };
        let (iterations, others) = arguments.split_once(' ').unwrap_or((arguments, ""));
        let iterations = if quick { "6" } else { iterations };
        let job = Job::ranks(self.name, self.mpi, self.ranks)
            .arguments(&format!("sleep {iterations} {others}"))
            .watch(Watch::Run);
        match (self.kind, has_loss) {
            ("slow_node", true) => job.nodes(2).variable("SUBJECT_SLOW_HOST", nodes::host(2)),
            ("slow_node", false) => job.nodes(2),
            _ => job,
        }
    }

    fn is_available(&self) -> bool {
        self.mpi.available() && (self.kind != "slow_node" || nodes::available())
    }

    /// Returns the run time that the summary predicts without the losses of the subject's kind, in
    /// seconds.
    fn predicted_s(&self, outcome: &Outcome) -> f64 {
        let summary = outcome.summary();
        let lost_s: f64 = summary.losses_of(self.kind).iter().map(|loss| loss.seconds()).sum();
        summary.number("/run/elapsed_s") - lost_s
    }
}

/// Compares predicted and measured run times, each the least of `runs` runs.
pub fn rows(runs: usize, quick: bool) -> Vec<Row> {
    let mut errors = Vec::new();
    let mut rows = Vec::new();
    for subject in SUBJECTS.iter().filter(|subject| subject.is_available()) {
        let (mut predicted, mut measured, mut elapsed) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..runs {
            let with = subject.job(true, quick).run().succeeded();
            let without = subject.job(false, quick).run().succeeded();
            predicted.push(subject.predicted_s(&with));
            elapsed.push(with.summary().number("/run/elapsed_s"));
            measured.push(without.summary().number("/run/elapsed_s"));
        }
        let [predicted_s, measured_s, elapsed_s] = [predicted, measured, elapsed].map(least);
        let error = (predicted_s / measured_s - 1.0).abs() * 100.0;
        errors.push(error);
        let name = format!(
            "{elapsed_s:.2} s; without {} {predicted_s:.2} s predicted, {measured_s:.2} s measured",
            subject.kind.replace('_', " ")
        );
        rows.push(Row::new(&name, subject.name, error, "%", 0.0).target(MAX_ERROR));
    }
    let of_all = |name: &str, error: f64, target: f64| {
        Row::new(name, &format!("{} subjects", rows.len()), error, "%", 0.0).target(target)
    };
    let summary = [
        of_all("median error of predicted run times", median(&mut errors), MAX_MEDIAN_ERROR),
        of_all("largest error of predicted run times", percentile(&mut errors, 100), MAX_ERROR),
    ];
    rows.extend(summary);
    rows
}
