//! Phases, loops, clusters of ranks, clocks, side files.

use serde::{Deserialize, Serialize};

use super::Frame;

/// A phase: all that lies between a global synchronisation at one place and the next at another
/// (or the same) place, in all its instances (PPoPP20, 4.2).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Phase {
    /// What losses and segments refer to.
    pub id: u32,
    /// Call path of the synchronisation after which it begins; `None` at the start of the run.
    pub begins_after: Option<Vec<Frame>>,
    /// Call path of the one that ends it; `None` where the run ended without.
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

/// A loop with its iterations (ICS18, Algorithm 1), counted per execution on the rank with the
/// longest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Loop {
    /// Call path from the outermost frame to the loop.
    pub path: Vec<Frame>,
    /// Index into the tree's nodes.
    pub node: u32,
    /// Rank list: those that ran it.
    pub ranks: String,
    /// How often it was entered.
    pub executions: u64,
    /// Mean duration of an execution.
    pub mean_duration_s: f64,
    /// Fraction of the elapsed time.
    pub fraction: f64,
    /// Number of iterations.
    pub iterations: Iterations,
    /// Duration of each iteration, mean over ranks, thinned evenly to at most 200.
    pub durations_s: Vec<f64>,
    /// Iterations that behave alike.
    pub clusters: Vec<IterationCluster>,
}

/// Number of iterations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Iterations {
    /// Told apart well enough to be believed.
    pub accepted: u64,
    /// Not so.
    pub rejected: u64,
    /// How often the loop's region was called, where one anchors it.
    pub calls_seen: Option<u64>,
    /// Whether the number is exact.
    pub exact: bool,
}

/// Iterations that behave alike.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct IterationCluster {
    /// Their numbers, as ranges.
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
    /// Distance between successive iterations of the cluster where it is constant and above 1: 10
    /// if every tenth iteration belongs to the cluster.
    #[serde(default)]
    pub period: Option<u64>,
    /// Context that distinguishes these iterations from the others; `None` where none does.
    #[serde(default)]
    pub distinction: Option<Distinction>,
    /// Calls and loops of an iteration in the order of time, outer ones before inner ones; means
    /// over the cluster's iterations, the longest 48. Empty for loops that take less than 5 % of
    /// the run.
    #[serde(default)]
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

/// Ranks that behave alike (ICS18, 4.2).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RankCluster {
    /// Rank list.
    pub ranks: String,
    /// Number of ranks.
    pub size: u32,
    /// The member nearest to the mean.
    pub representative: u32,
    /// diffRatio to the nearest other cluster; `None` where there is only one.
    pub distance: Option<f64>,
}

/// Contexts and ranks that vary together (Fowler's slides: bi-clustering).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bicluster {
    /// Contexts of work: indices into the tree's nodes.
    pub nodes: Vec<u32>,
    /// Rank list: the ranks that differ from the others in these contexts.
    pub ranks: String,
    /// 1 if they work longer in these contexts than the others, -1 if shorter.
    pub sign: i8,
    /// The part that the bicluster by itself explains of the variance over ranks of all contexts
    /// that were compared, 0 to 1. Biclusters with common contexts explain partly the same.
    pub variance_share: f64,
}

/// Threads beside those that communicate, that behave alike (ICS18, 4.2).
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThreadCluster {
    /// List of the ranks that have some.
    pub ranks: String,
    /// Number of threads, in all ranks.
    pub size: u64,
    /// The function that they began in, if it is known; where it differs, that of most of them.
    pub routine: Option<String>,
    /// How long they lived within the run, on average.
    pub mean_s: f64,
    /// How long they computed, on average.
    pub work_s: f64,
    /// diffRatio to the nearest other cluster; `None` where there is only one.
    pub distance: Option<f64>,
}

/// How the ranks' clocks, their CLOCK_MONOTONIC, relate (PPoPP20, 4.1). Lists are in the order of the
/// measured ranks, and empty where it is not known how all clocks relate.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Clocks {
    /// The rank whose clock the others are compared with.
    pub reference: u32,
    /// Each rank's clock minus the reference's, when the reference's run began.
    pub offsets_us: Vec<f64>,
    /// Drift of each rank's clock against the reference's, in parts per million; 0 also where it is too
    /// small to be told from noise.
    pub drift_ppm: Vec<f64>,
    /// What the alignment leaves unexplained.
    pub residual_us: Option<f64>,
    /// How they were aligned.
    pub method: ClockMethod,
}

/// How clocks were aligned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum ClockMethod {
    /// Not at all.
    None,
    /// By the ends of synchronisations that samples show.
    Samples,
    /// By the ends of synchronisations that the wrappers recorded.
    Regions,
    /// By messages sent back and forth.
    PingPong,
}

/// A side file of the summary.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SideFile {
    /// Its path, relative to the summary; `None` where none was written.
    pub file: Option<String>,
}
