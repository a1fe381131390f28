//! Comparison: the value that text and JSON are views of.
//!
//! The key names are a contract with scripts (schema `plimsoll-diff/1`, described in
//! `analysis/schema/plimsoll-diff-1.schema.json`). Names end with units: `_s` seconds; totals are
//! sums over ranks, means are per rank. Lists with one entry per set-up are in the order of
//! [`Comparison::setups`]. Every float is finite; unknown values are `None`.

use std::collections::BTreeMap;

use plimsoll_summary::{FrameKind, LossKind};
use serde::{Deserialize, Serialize};

use crate::expectation::Expectation;
use crate::growth::Growth;
use crate::regression::Regression;

/// The version of the contract.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum DiffVersion {
    /// `plimsoll-diff/1`.
    #[default]
    #[serde(rename = "plimsoll-diff/1")]
    V1,
}

/// Expectation about later set-ups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExpectationKind {
    /// Linear speedup.
    Strong,
    /// Constant time.
    Weak,
    /// Equal time on equal ranks.
    Same,
    /// A given multiple of the first set-up's work.
    Work,
}

impl ExpectationKind {
    /// Returns the expectation in words, as the subject of a sentence.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Strong => "strong scaling",
            Self::Weak => "weak scaling",
            Self::Same => "equal time",
            Self::Work => "the given amount of work",
        }
    }
}

/// Class of time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimeClass {
    /// Computation.
    Work,
    /// Waiting for other ranks, threads, locks, resources.
    Waiting,
    /// Communication without the waiting.
    Communication,
    /// Reading and writing files.
    Io,
}

impl TimeClass {
    /// Every class, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Work, Self::Waiting, Self::Communication, Self::Io];
}

/// Comparison of runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Comparison {
    /// The version of this contract.
    pub schema: DiffVersion,
    /// Outcome in short.
    pub verdict: Verdict,
    /// Expectation in force.
    pub expectation: Expectation,
    /// Set-ups by rising ranks; at equal ranks in the order given.
    pub setups: Vec<SetupRow>,
    /// POP efficiencies of each set-up.
    pub scaling: Vec<crate::pop::ScalingRow>,
    /// Excess work of the whole program.
    pub excess: WholeExcess,
    /// Contexts with excess work, by falling size; they do not overlap.
    pub findings: Vec<Finding>,
    /// Contexts with significant time or excess.
    pub contexts: Vec<Context>,
    /// Losses of the runs, by the change between the first and the last set-up.
    pub losses: Vec<LossChange>,
    /// Comparison of two versions of equal size with their noise; `None` for different sizes.
    pub regression: Option<Regression>,
    /// Every number that decided a verdict, by name.
    pub thresholds: BTreeMap<String, f64>,
    /// Notes for the reader, one sentence each.
    pub notes: Vec<String>,
}

/// Outcome of a comparison.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Verdict {
    /// Kind of the outcome.
    pub kind: VerdictKind,
    /// Outcome in one sentence.
    pub headline: String,
    /// Contexts that cause the outcome, one sentence each, the largest first.
    pub sentences: Vec<String>,
    /// Number that `--fail-above` limits: the relative change of the elapsed time (same), else the
    /// fraction of excess work of the last set-up.
    pub value: f64,
    /// Limit; `None` without `--fail-above`.
    pub fail_above: Option<f64>,
    /// Whether the value exceeds the limit, and the noise if that is known.
    pub failed: bool,
}

/// Kinds of outcomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum VerdictKind {
    /// Excess work below the threshold.
    AsExpected,
    /// Excess work.
    ScalingLoss,
    /// Less work than expected.
    BetterThanExpected,
    /// Two versions that differ by no more than the noise.
    NoDifference,
    /// The second version is slower.
    Slower,
    /// The second version is faster.
    Faster,
    /// Elapsed times differ by no more than the noise, single contexts differ by more.
    Shifted,
}

/// A set-up and its runs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SetupRow {
    /// Path of the executable of its first run.
    pub executable: String,
    /// Arguments of the executable.
    pub arguments: Vec<String>,
    /// MPI ranks.
    pub ranks: u32,
    /// Application threads of all ranks, in its first run.
    pub threads: u32,
    /// Nodes, in its first run.
    pub nodes: u32,
    /// MPI library, in its first run.
    pub mpi: Option<String>,
    /// Files of its runs.
    pub runs: Vec<String>,
    /// Elapsed time of its runs.
    pub elapsed_s: Spread,
}

/// Statistics over repetitions.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Spread {
    /// Mean.
    pub mean: f64,
    /// Minimum.
    pub min: f64,
    /// Maximum.
    pub max: f64,
    /// Standard deviation; `None` for a single run.
    pub stddev: Option<f64>,
}

/// Excess of the whole program.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct WholeExcess {
    /// Fraction of excess work of the last set-up against the first.
    pub fraction: f64,
    /// Excess work of all set-ups as an ensemble, as a fraction.
    pub ensemble: f64,
    /// Core seconds of the last set-up beyond the expectation.
    pub seconds: f64,
    /// Core seconds of the last set-up: ranks x elapsed time, or, if that is more, the time of all
    /// threads. Fractions refer to them.
    pub core_s: f64,
    /// The fraction by class.
    pub by_class: BTreeMap<TimeClass, f64>,
}

/// A frame of a path.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextFrame {
    /// Kind of the frame.
    pub kind: FrameKind,
    /// Function.
    pub function: String,
    /// Source file without its folders, as the last set-up has it.
    pub file: Option<String>,
    /// Source line, as the last set-up has it.
    pub line: Option<u32>,
    /// Module, as the last set-up has it.
    pub module: String,
}

/// A calling context over the set-ups.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Context {
    /// Name in sentences.
    pub name: String,
    /// Call path, outermost first.
    pub path: Vec<ContextFrame>,
    /// Whether listed contexts below it are excluded from its numbers.
    pub rest: bool,
    /// Inclusive seconds by set-up, the sum over ranks.
    pub total_s: Vec<f64>,
    /// Inclusive seconds by set-up, the mean over ranks.
    pub mean_s: Vec<f64>,
    /// Exclusive seconds by set-up, the sum over ranks.
    pub exclusive_s: Vec<f64>,
    /// Calls by set-up, the sum over ranks.
    pub calls: Vec<f64>,
    /// Excess work.
    pub excess: ContextExcess,
    /// Growth with the number of ranks; `None` with fewer than four sizes.
    pub growth: Option<Growth>,
}

/// Excess work of a context, as fractions of runs (Fowler).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ContextExcess {
    /// IAEW: inclusive, the last set-up against the first.
    pub inclusive: f64,
    /// EAEW: exclusive, the last set-up against the first.
    pub exclusive: f64,
    /// Inclusive, each set-up after the first against it.
    pub pairs: Vec<f64>,
    /// Inclusive, all set-ups as an ensemble.
    pub ensemble: f64,
    /// Exclusive, all set-ups as an ensemble.
    pub ensemble_exclusive: f64,
    /// `inclusive` by class.
    pub by_class: BTreeMap<TimeClass, f64>,
}

/// One part of the excess work.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Finding {
    /// Index into `contexts`.
    pub context: u32,
    /// Class with the largest fraction of the excess.
    pub class: TimeClass,
    /// Fraction of excess work of the last set-up; negative for a gain.
    pub excess: f64,
    /// Core seconds of the last set-up.
    pub seconds: f64,
    /// Fraction of the total excess.
    pub share: f64,
    /// The finding in words.
    pub sentence: String,
    /// Cause according to the losses of the last set-up.
    pub caused_by: Option<FoundCause>,
}

/// The cause of waiting, from a loss of the last set-up.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FoundCause {
    /// Name of the cause.
    pub name: String,
    /// Kind of the loss.
    pub kind: LossKind,
    /// Ranks that are slow in the loss.
    pub slow_ranks: String,
}

/// A loss over the set-ups.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LossChange {
    /// Kind of the loss.
    pub kind: LossKind,
    /// Name of the symptom.
    pub symptom: String,
    /// Name of the first cause, in the last run that has the loss.
    pub cause: Option<String>,
    /// Path of the symptom.
    pub path: Vec<ContextFrame>,
    /// Seconds of run time by set-up, mean over runs; 0 if the loss was not found.
    pub seconds: Vec<f64>,
    /// Fraction of the run time by set-up.
    pub severity: Vec<f64>,
    /// Change from the first to the last set-up.
    pub change: Change,
    /// Growth of the seconds with ranks; `None` with fewer than four sizes.
    pub growth: Option<Growth>,
}

/// Change of a loss.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// Not in the first set-up, but in the last.
    Appeared,
    /// A larger fraction of the run.
    Grew,
    /// About the same fraction of the run.
    Unchanged,
    /// A smaller fraction of the run.
    Shrank,
    /// In the first set-up or in one between, not in the last.
    Vanished,
}
