//! Tests of the diagnosis on runs with a known truth.

mod broken_runs;
mod calls;
mod cores;
mod counters;
mod groups;
mod job;
mod late_ranks;
mod loop_shares;
mod loss_thresholds;
mod other_threads;
mod own_thresholds;
mod partners;
mod parts;
mod patterns;
mod places;
mod rules;
mod samples;
mod sibling_threads;
mod teams;
mod thresholds;
mod transfers;
mod uneven;
mod when;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use super::*;
use crate::summary::{Cause, Label, Loss, LossKind};
use crate::synthetic_run::{MS, Subject, diagnose_on, doing, job};

const BARRIER: &str = "main/MPI_Barrier";

fn verdict(subject: &Subject) -> Summary {
    checked(diagnose_alone(subject.inputs(), &job()).unwrap())
}

/// Returns the summary, which follows the schema.
fn checked(summary: Summary) -> Summary {
    let written = serde_json::to_value(&summary).unwrap();
    if let Err(error) = SCHEMA.validate(&written) {
        panic!("{}: {error}", error.instance_path());
    }
    summary
}

/// The schema of summaries. It takes longer to compile than most runs take to diagnose.
static SCHEMA: LazyLock<jsonschema::Validator> = LazyLock::new(|| {
    let schema = include_str!("../../schema/plimsoll-summary-1.schema.json");
    jsonschema::draft202012::new(&serde_json::from_str(schema).unwrap()).unwrap()
});

fn path(frames: &[crate::summary::Frame]) -> String {
    frames.iter().map(|frame| frame.function.as_str()).collect::<Vec<_>>().join("/")
}

fn causes(loss: &Loss) -> Vec<(String, f64)> {
    loss.causes.iter().map(|cause: &Cause| (path(&cause.path), rounded(cause.seconds))).collect()
}

/// Rounds to microseconds: the truth is written in decimal, the summary divides.
fn rounded(seconds: f64) -> f64 {
    (seconds * 1e6).round() / 1e6
}

fn only_loss(summary: &Summary) -> &Loss {
    assert_eq!(summary.losses.len(), 1, "{:#?}", summary.losses);
    &summary.losses[0]
}

/// Ten steps of `ranks` ranks after a barrier; each step ends in a barrier.
fn ten_steps(ranks: u32, part: impl Fn(u32) -> Vec<crate::synthetic_run::Doing>) -> Subject {
    let mut subject = Subject::new(ranks);
    subject.step(BARRIER, |_| vec![]);
    for _ in 0..10 {
        subject.step(BARRIER, &part);
    }
    subject
}

/// Ten steps after a barrier: an even function of 30 ms and one of 40 ms, which takes 80 ms on the
/// last two of eight ranks.
fn uneven(slow: &'static str) -> Subject {
    let mut subject = ten_steps(8, |rank| {
        let slow_ms = if rank >= 6 { 80 } else { 40 };
        vec![doing("main/step/relax", 30 * MS), doing(slow, slow_ms * MS)]
    });
    subject.step("main/MPI_Finalize", |_| vec![]);
    subject
}
