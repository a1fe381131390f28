//! Phases, loops, clusters of ranks, clocks, side files.

use serde::{Deserialize, Serialize};

use super::Frame;

/// Phase: the code between two global synchronisations at the same or different call paths, in all
/// its instances (PPoPP20, 4.2).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// Identifier, used by losses and segments.
    pub id: u32,
    /// Call path of the synchronisation before it; `None` at the start of the run.
    pub begins_after: Option<Vec<Frame>>,
    /// Call path of the synchronisation that ends it; `None` if the run ended without one.
    pub ends_in: Option<Vec<Frame>>,
    /// Begin of its first instance, since the begin of the run.
    pub begin_s: f64,
    /// Wall time of all its instances.
    pub duration_s: f64,
    /// Number of instances.
    pub instances: u64,
    /// Whether all ranks run the same code in it.
    pub kind: PhaseKind,
    /// Groups of ranks that run different code.
    pub groups: Vec<RankGroup>,
}

/// Whether the ranks run the same code in a phase (PPoPP20, 5.4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum PhaseKind {
    /// All the same.
    Spmd,
    /// Groups with different tasks.
    Mpmd,
}

/// Ranks that run the same code in a phase.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankGroup {
    /// Rank list.
    pub ranks: String,
    /// Work, mean over the group's ranks.
    pub mean_work_s: f64,
}

/// Loop with its iterations (ICS18, Algorithm 1), counted per execution on the rank with the
/// longest executions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Loop {
    /// Call path from the outermost frame to the loop.
    pub path: Vec<Frame>,
    /// Index into the tree's nodes.
    pub node: u32,
    /// Rank list: ranks that ran the loop.
    pub ranks: String,
    /// Number of executions.
    pub executions: u64,
    /// Mean duration of an execution.
    pub mean_duration_s: f64,
    /// Mean duration of an execution on `rank`, in seconds; `None` in files of earlier versions.
    #[serde(default)]
    pub longest_s: Option<f64>,
    /// Fraction of the elapsed time.
    pub fraction: f64,
    /// Number of iterations.
    pub iterations: Iterations,
    /// Duration of each iteration, mean over ranks, thinned evenly to at most 200.
    pub durations_s: Vec<f64>,
    /// Number of the first iteration that each entry of `durations_s` is about, as ranges; empty in
    /// files of earlier versions.
    #[serde(default)]
    pub first_iterations: String,
    /// Number of consecutive iterations in an entry of `durations_s`; `None` in files of earlier
    /// versions.
    #[serde(default)]
    pub stride: Option<u64>,
    /// For each entry of `durations_s`, when its first iteration began on the rank with the longest
    /// executions, in seconds since the begin of the run; `None` if samples did not tell it apart
    /// there. Empty if the rank entered the loop more than once.
    #[serde(default)]
    pub begins_s: Vec<Option<f64>>,
    /// Iterations that behave alike.
    pub clusters: Vec<IterationCluster>,
    /// Rank with the longest executions of the loop; iterations and clusters are those of this
    /// rank. `None` in files of earlier versions.
    #[serde(default)]
    pub rank: Option<u32>,
}

/// Number of iterations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Iterations {
    /// Number of accepted iterations (ICS18, 3.2).
    pub accepted: u64,
    /// Number of rejected iterations.
    pub rejected: u64,
    /// Number of calls at one place of the loop's own code; `None` without wrapped calls there.
    pub calls_seen: Option<u64>,
    /// Whether `calls_seen` is proven to be the number of iterations of one execution.
    pub exact: bool,
}

/// Cluster of iterations with similar behaviour.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IterationCluster {
    /// Numbers of the iterations, as ranges. More than 32 ranges without a pattern are widened and
    /// include iterations of other clusters: the list is then longer than `weight`. In a loop that
    /// is not exact, numbers do not count iterations that samples missed.
    pub iterations: String,
    /// Mean duration.
    pub mean_s: f64,
    /// Number of the iteration that stands for the cluster: the one with the duration nearest to
    /// the mean, of at most 32 that are chosen uniformly. `None` in files of earlier versions.
    #[serde(default)]
    pub representative: Option<u64>,
    /// Number of iterations in all executions of the loop; `None` in files of earlier versions.
    #[serde(default)]
    pub weight: Option<u64>,
    /// Distance between successive iterations of the cluster; `None` unless constant and above 1:
    /// 10 if every tenth iteration belongs to the cluster.
    #[serde(default)]
    pub period: Option<u64>,
    /// Context that distinguishes these iterations from the others; `None` if none does.
    #[serde(default)]
    pub distinction: Option<Distinction>,
    /// Calls and loops of an iteration in the order of time, outer ones before inner ones; means
    /// over the cluster's iterations, the longest 48. Empty for loops that take less than 5 % of
    /// the run.
    #[serde(default)]
    pub slices: Vec<IterationSlice>,
    /// The representative iteration as it ran, for an export; not part of the file.
    #[serde(skip)]
    pub instance: Option<IterationInstance>,
}

/// One iteration as it ran.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IterationInstance {
    /// Duration.
    pub duration_s: f64,
    /// Calls and loops of the iteration in the order of time, outer ones before inner ones; the
    /// longest 48.
    pub slices: Vec<IterationSlice>,
}

/// Context in which the iterations of a cluster differ most from the other iterations of the loop:
/// with most of the difference, the outermost one that is absent from either, else the innermost.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Distinction {
    /// Index into the tree's nodes.
    pub node: u32,
    /// Call path from the outermost frame to the context.
    pub path: Vec<Frame>,
    /// Time in the context per iteration of the cluster, mean.
    pub mean_s: f64,
    /// Time in the context per iteration of all other clusters, mean.
    pub others_s: f64,
}

/// A call or a loop in the mean iteration of a cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IterationSlice {
    /// Index into the tree's nodes.
    pub node: u32,
    /// Time from the begin of the iteration.
    pub begin_s: f64,
    /// Duration.
    pub duration_s: f64,
}

/// Cluster of ranks with similar behaviour (ICS18, 4.2).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankCluster {
    /// Rank list.
    pub ranks: String,
    /// Number of ranks.
    pub size: u32,
    /// Member nearest to the mean.
    pub representative: u32,
    /// diffRatio to the nearest other cluster; `None` for a single cluster.
    pub distance: Option<f64>,
}

/// Contexts and ranks that vary together (Fowler's slides: bi-clustering).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bicluster {
    /// perf event that the ranks differ in; `None` for the time of work.
    #[serde(default)]
    pub event: Option<String>,
    /// Contexts of work: indices into the tree's nodes.
    pub nodes: Vec<u32>,
    /// Rank list: the ranks that differ from the others in these contexts.
    pub ranks: String,
    /// 1 if they work longer in these contexts than the others, or have more events there; -1 if
    /// they work shorter, or have fewer.
    pub sign: i8,
    /// Fraction of the variance over ranks of all compared contexts that the bicluster alone
    /// explains, 0 to 1. Biclusters with common contexts partly explain the same variance.
    pub variance_share: f64,
}

/// Cluster of threads that do not communicate (ICS18, 4.2).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThreadCluster {
    /// Rank list: ranks with such threads.
    pub ranks: String,
    /// Number of threads, in all ranks.
    pub size: u64,
    /// Start routine of the threads, or of most of them; `OpenMP worker` for threads of an OpenMP
    /// runtime without symbols; `None` if unknown.
    pub routine: Option<String>,
    /// Mean lifetime within the run.
    pub mean_s: f64,
    /// Mean computation time.
    pub work_s: f64,
    /// diffRatio to the nearest other cluster; `None` for a single cluster.
    pub distance: Option<f64>,
}

/// Relations between the ranks' clocks (CLOCK_MONOTONIC; PPoPP20, 4.1). Lists are in the order of
/// the measured ranks, and empty if the relations of some clocks are unknown.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Clocks {
    /// Rank with the reference clock.
    pub reference: u32,
    /// Offset of each rank's clock from the reference's, at the begin of the reference's run.
    pub offsets_us: Vec<f64>,
    /// Drift of each rank's clock against the reference's, in parts per million; 0 if
    /// indistinguishable from noise.
    pub drift_ppm: Vec<f64>,
    /// Residual of the alignment.
    pub residual_us: Option<f64>,
    /// Method of the alignment.
    pub method: ClockMethod,
}

/// Method of the alignment of clocks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClockMethod {
    /// Not at all.
    #[default]
    None,
    /// By the ends of synchronisations according to samples.
    Samples,
    /// By the ends of synchronisations according to wrappers.
    Regions,
    /// By messages sent back and forth.
    PingPong,
}

/// A side file of the summary.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SideFile {
    /// Path relative to the summary; `None` if no file was written.
    pub file: Option<String>,
}
