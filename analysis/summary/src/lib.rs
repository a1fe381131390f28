//! Summary of a job: the value that text, JSON and every other report are views of.
//!
//! The key names are a contract with scripts (schema [`SchemaVersion::V1`], described in
//! `schema/plimsoll-summary-1.schema.json`): a renamed field needs a new version of the schema.
//! Names end with units: `_s` seconds of wall time on a rank unless the name says `sum`, `_us`
//! microseconds, `_bytes` bytes. Means, minima, maxima and standard deviations are over all ranks,
//! and a rank that lacks a context counts as 0. Every float is finite; unknown values are `None`,
//! in JSON `null`, never 0 or -1. Rank lists are ranges in a string: `"0-3,8,16-30:2"`.

#![forbid(unsafe_code)]

mod context_tree;
mod counted;
pub mod derived_metric;
pub mod error;
pub mod glob;
pub mod label;
mod loss;
pub mod npz;
mod openmp;
pub mod per_rank_file;
pub mod phrase;
pub mod printable;
mod process_threads;
mod rank_matrix;
pub mod ranks;
pub mod report_names;
mod run;
mod run_structure;
mod sampled_population;
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
pub use loss::{
    Cause, LockHolder, Loss, LossKind, Segment, Symptom, When, WhenKind, WorkDifference,
    WorkDifferenceKind,
};
pub use openmp::{OpenMp, Region, Task, ThreadShare};
pub use process_threads::{
    KeyThreads, ProcessThreads, ThreadAggregation, ThreadDistinction, ThreadRole, ThreadTimes,
    ThreadsOfProcess,
};
pub use rank_matrix::{Communication, Lateness, Matrix, Origin, Pattern, Untold, WaitsFor};
pub use run::{
    Clock, Collection, Efficiency, Marks, Memory, Mpi, MpiAbi, NodeOfRun, OpenMpEfficiency,
    PeriodUs, Projection, Run, TruncatedBy, Window,
};
pub use run_structure::{
    Bicluster, ClockMethod, Clocks, Distinction, IterationCluster, IterationInstance,
    IterationSlice, Iterations, Loop, Phase, PhaseKind, RankCluster, RankGroup, SideFile,
    ThreadCluster,
};
pub use sampled_population::{
    Estimate, Population, Quantity, SampledMean, SampledMetric, SampledWindow, Stratum,
};
pub use wire::{check_indices, read_keys};

pub use crate::label::Label;

/// End of a run with a spool that records no end: only SIGKILL or a crashed machine leave no
/// process the time to record one.
pub const KILLED: &str = "killed";

/// End of a run that continues while its summary is made (`plimsoll top`).
pub const RUNNING: &str = "running";

/// Version of the contract.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum SchemaVersion {
    /// `plimsoll-summary/1`.
    #[default]
    #[serde(rename = "plimsoll-summary/1")]
    V1,
}

/// A job's summary.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Summary {
    /// Version of the contract.
    pub schema: SchemaVersion,
    /// Description of the run.
    pub run: Run,
    /// Cost of the measurement, and what it missed.
    pub collection: Collection,
    /// Efficiencies of the ranks.
    pub efficiency: Efficiency,
    /// Predicted run time.
    pub projection: Projection,
    /// Scalability losses by falling severity, one for each kind, phase and symptom.
    pub losses: Vec<Loss>,
    /// Inefficient segments (ICS18, 4.3.3).
    pub segments: Vec<Segment>,
    /// Code between global synchronisations (PPoPP20, 4.2).
    pub phases: Vec<Phase>,
    /// Loops with iterations, outermost first.
    pub loops: Vec<Loop>,
    /// Clusters of ranks with similar behaviour.
    pub clusters: Vec<RankCluster>,
    /// Contexts and ranks that vary together, in the order of discovery: those that explain most
    /// first.
    #[serde(default)]
    pub biclusters: Vec<Bicluster>,
    /// Ranks that keep their samples, and how precisely they stand for all; `None` without
    /// PLIMSOLL_TRACE=sample.
    #[serde(default)]
    pub population: Option<Population>,
    /// Clusters of threads that do not communicate, the largest first.
    #[serde(default)]
    pub thread_clusters: Vec<ThreadCluster>,
    /// Threads of the ranks' processes, aggregated (ESPT15, 4).
    #[serde(default)]
    pub threads: ProcessThreads,
    /// Relations between the ranks' clocks.
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
    /// Parallel regions of OpenMP.
    #[serde(default)]
    pub openmp: OpenMp,
    /// All calling contexts.
    pub tree: Tree,
    /// Thresholds that decided the verdicts of this run, by name; empty in files of earlier
    /// versions.
    #[serde(default)]
    pub thresholds: BTreeMap<String, f64>,
    /// Deviations of the measurement from the settings, one sentence each.
    #[serde(default)]
    pub notes: Vec<String>,
}

impl Summary {
    /// Returns a threshold in force when the summary was made; `None` in files of earlier versions.
    pub fn threshold(&self, name: &str) -> Option<f64> {
        self.thresholds.get(name).copied()
    }

    /// Returns whether the run has too few samples for a loss to show.
    pub fn is_too_short(&self) -> bool {
        let period_s = self.run.period_us.asked * 1e-6;
        let least = self.threshold("min_run_periods");
        least.is_some_and(|least| self.run.elapsed_s < least * period_s)
    }

    /// Returns whether the ranks of an MPI job compute only for a small part of the run.
    pub fn computes_little(&self) -> bool {
        let least = self.threshold("min_efficiency").filter(|_| self.run.mpi.abi != MpiAbi::None);
        least.zip(self.efficiency.parallel).is_some_and(|(least, parallel)| parallel < least)
    }

    /// Returns whether other threads do the work of an MPI job's ranks, and no loss was found
    /// between these. Only threads that were created at one place are compared, so that a report
    /// without losses is no proof that there are none.
    pub fn work_is_elsewhere(&self) -> bool {
        let has_others = self.run.threads > self.run.ranks;
        let are_uneven = self.losses.iter().any(|loss| loss.kind == LossKind::ThreadImbalance);
        has_others
            && !are_uneven
            && self.run.mpi.abi != MpiAbi::None
            && self.efficiency.parallel.is_none()
    }
}
