//! The summary of a job: the one value that text, JSON and every other report are views of.
//!
//! The key names are a contract with scripts (schema [`SchemaVersion::V1`], described key by key in
//! `schema/plimsoll-summary-1.schema.json`): a field is renamed only together with the schema's
//! version. Units stand in the names: `_s` seconds of wall time on a rank unless the name says
//! `sum`, `_us` microseconds, `_bytes` bytes. Means, minima, maxima and standard deviations run
//! over all ranks, and a rank that lacks a context counts as 0. Every float is finite; what is not
//! known is `None`, which is `null` on the wire, never 0 or -1. Rank lists are ranges in a string:
//! `"0-3,8,16-30:2"`.

#![deny(unsafe_code)]

mod context_tree;
mod counted;
pub mod derived_metric;
pub mod error;
pub mod glob;
pub mod label;
mod loss;
pub mod per_rank_file;
pub mod phrase;
pub mod printable;
mod rank_matrix;
pub mod ranks;
pub mod report_names;
mod run;
mod run_structure;
pub mod settings;
pub mod timeline_file;
mod wire;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

pub use context_tree::{Frame, FrameKind, Metric, Tree, TreeNode};
pub use counted::{
    ContextCounters, CountStatistics, CountedEvent, Counters, EventStatistics, MetricValues,
    RunMetric,
};
pub use loss::{Cause, Loss, LossKind, Segment, Symptom, When, WhenKind};
pub use rank_matrix::{Communication, Lateness, Matrix, Origin, Pattern, Untold, WaitsFor};
pub use run::{
    Clock, Collection, Efficiency, Marks, Memory, Mpi, MpiAbi, NodeOfRun, PeriodUs, Projection,
    Run, Window,
};
pub use run_structure::{
    Bicluster, ClockMethod, Clocks, Distinction, IterationCluster, IterationSlice, Iterations,
    Loop, Phase, PhaseKind, RankCluster, RankGroup, SideFile, ThreadCluster,
};
pub use wire::{check_indices, read_keys};

pub use crate::label::Label;

/// How a run ended whose spool does not say: nothing but a SIGKILL, or a machine that stops, leaves
/// none of its processes a moment.
pub const KILLED: &str = "killed";

/// End of a run that goes on while its summary is made (`plimsoll top`).
pub const RUNNING: &str = "running";

/// The version of the contract.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SchemaVersion {
    /// `plimsoll-summary/1`.
    #[default]
    #[serde(rename = "plimsoll-summary/1")]
    V1,
}

/// A job's summary.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// The version of this contract.
    pub schema: SchemaVersion,
    /// What ran.
    pub run: Run,
    /// What the measurement cost and what it missed.
    pub collection: Collection,
    /// How well the ranks were used.
    pub efficiency: Efficiency,
    /// What the run time would be.
    pub projection: Projection,
    /// Scalability losses by falling severity, one for each kind, phase and symptom.
    pub losses: Vec<Loss>,
    /// Inefficient segments (ICS18, 4.3.3).
    pub segments: Vec<Segment>,
    /// What lies between global synchronisations (PPoPP20, 4.2).
    pub phases: Vec<Phase>,
    /// Loops with iterations, outermost first.
    pub loops: Vec<Loop>,
    /// Ranks that behave alike.
    pub clusters: Vec<RankCluster>,
    /// Contexts and ranks that vary together, in the order in which they were found: those that explain
    /// most first.
    #[serde(default)]
    pub biclusters: Vec<Bicluster>,
    /// Threads beside those that communicate, by what they did; the most first.
    #[serde(default)]
    pub thread_clusters: Vec<ThreadCluster>,
    /// How the ranks' clocks relate.
    pub clocks: Clocks,
    /// Side file with the cells of the timeline.
    pub timeline: SideFile,
    /// Side file with the times of each rank in each context ([`per_rank_file`]).
    pub per_rank: SideFile,
    /// Communication between ranks.
    #[serde(default)]
    pub communication: Communication,
    /// perf events (PLIMSOLL_COUNTERS) and metrics derived from them (PLIMSOLL_METRICS).
    #[serde(default, skip_serializing_if = "Counters::is_empty")]
    pub counters: Counters,
    /// All calling contexts.
    pub tree: Tree,
    /// The numbers that decided the verdicts of this run, by name; empty in files of earlier versions.
    #[serde(default)]
    pub thresholds: BTreeMap<String, f64>,
    /// What the measurement could not do or did otherwise than asked, a sentence each.
    #[serde(default)]
    pub notes: Vec<String>,
}

impl Summary {
    /// A threshold that was in force when the summary was made; `None` in files of earlier versions.
    pub fn threshold(&self, name: &str) -> Option<f64> {
        self.thresholds.get(name).copied()
    }

    /// Whether the run has too few samples for a loss to show.
    pub fn is_too_short(&self) -> bool {
        let period_s = self.run.period_us.asked * 1e-6;
        let least = self.threshold("min_run_periods");
        least.is_some_and(|least| self.run.elapsed_s < least * period_s)
    }

    /// Whether the ranks of an MPI job compute only for a small part of the run.
    pub fn computes_little(&self) -> bool {
        let least = self.threshold("min_efficiency").filter(|_| self.run.mpi.abi != MpiAbi::None);
        least.zip(self.efficiency.parallel).is_some_and(|(least, parallel)| parallel < least)
    }
}
