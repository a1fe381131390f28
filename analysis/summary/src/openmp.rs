//! Parallel regions of OpenMP.

use serde::{Deserialize, Serialize};

use crate::context_tree::Frame;
use crate::run::OpenMpEfficiency;

/// Parallel regions of all ranks; empty if no region was measured.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OpenMp {
    /// Name of the runtime: `libgomp`, `libomp` or `libiomp5`; commas separate several ones. `None`
    /// if nothing was measured.
    pub runtime: Option<String>,
    /// The regions, those with the most idle time first.
    pub regions: Vec<Region>,
    /// Explicit tasks, those with the most executions first.
    pub tasks: Vec<Task>,
    /// Number of region instances that could not be measured.
    pub unmeasured: u64,
    /// The efficiency of the teams, as in the summary's efficiencies; `None` without teams.
    #[serde(default)]
    pub efficiency: Option<OpenMpEfficiency>,
}

/// A parallel region in one calling context. Times are summed over instances, threads where that
/// is said, and ranks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Region {
    /// Call path of the call that makes the region; empty in summaries of earlier versions.
    #[serde(default)]
    pub path: Vec<Frame>,
    /// Index into the tree's nodes of the call that makes the region; the time of that node is the
    /// wait of the threads that make the region for the end of the others' shares.
    pub node: u32,
    /// Name of the outlined function; `None` if unknown.
    pub function: Option<String>,
    /// Source file in which the region begins; `None` without debug information.
    pub file: Option<String>,
    /// Source line at which the region begins; `None` without debug information.
    pub line: Option<u32>,
    /// Number of enclosing regions.
    pub level: u32,
    /// Ranks that execute the region.
    pub ranks: String,
    /// Size of the largest team.
    pub threads: u32,
    /// Number of instances on all ranks.
    pub instances: u64,
    /// Wall time from begin to end.
    pub elapsed_s: f64,
    /// Mean wall time of an instance.
    #[serde(default)]
    pub mean_s: f64,
    /// Median wall time of an instance, within 15 %; `None` in summaries of earlier versions.
    #[serde(default)]
    pub median_s: Option<f64>,
    /// Wall time of each instance times its threads.
    pub thread_s: f64,
    /// Work of all threads: their shares without the waits inside.
    pub work_s: f64,
    /// Time of all threads in the region without work: waits inside of shares, and from the end of
    /// a thread's share to the end of the region.
    #[serde(default)]
    pub wait_s: f64,
    /// Largest work of a thread in each instance less the mean.
    pub imbalance_s: f64,
    /// Largest `imbalance_s` of a rank.
    pub max_imbalance_s: f64,
    /// TALP's scheduling loss: the smallest idle time of a thread in each instance times its
    /// threads.
    pub scheduling_s: f64,
    /// TALP's load balance loss: idle time of all threads beyond the smallest one in each instance.
    pub load_balance_s: f64,
    /// Waits of all threads for other threads and for tasks, before the end of their shares.
    pub barrier_s: f64,
    /// Waits of all threads for critical and ordered sections and for locks.
    pub lock_s: f64,
    /// Time of all threads in MPI calls, a part of `work_s`.
    pub mpi_s: f64,
    /// Shares by thread number.
    pub shares: Vec<ThreadShare>,
}

/// Executions of explicit tasks with one function, on all ranks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Task {
    /// Name of the outlined function; `None` if unknown.
    pub function: Option<String>,
    /// Source file in which the task begins; `None` without debug information.
    pub file: Option<String>,
    /// Source line at which the task begins; `None` without debug information.
    pub line: Option<u32>,
    /// Ranks that execute such tasks.
    pub ranks: String,
    /// Number of executions.
    pub count: u64,
    /// Wall time of all executions, without the tasks executed inside of them.
    pub work_s: f64,
    /// Longest execution.
    pub longest_s: f64,
    /// Median of the executions, within 15 %; `None` in summaries of earlier versions.
    #[serde(default)]
    pub median_s: Option<f64>,
}

/// Shares of the threads with one number.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadShare {
    /// Number of the thread in its team. The highest number also stands for all threads beyond it.
    pub number: u32,
    /// Work.
    pub work_s: f64,
    /// Waits for other threads and for tasks, before the end of the share.
    pub barrier_s: f64,
    /// Waits for critical and ordered sections and for locks.
    pub lock_s: f64,
    /// Time in MPI calls, a part of `work_s`.
    pub mpi_s: f64,
}
