//! Threads of the ranks' processes, aggregated (ESPT15, 4).

use serde::{Deserialize, Serialize};

use super::Frame;

/// Way in which the threads of each process are aggregated (PLIMSOLL_THREADS).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ThreadAggregation {
    /// One sum.
    Sum,
    /// The sum, with statistics over threads.
    Set,
    /// The slowest and the fastest thread by themselves, the rest as a sum.
    #[default]
    Key,
    /// One sum for each set of visited call paths.
    Calltree,
    /// Each thread by itself.
    All,
}

/// Threads of all processes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProcessThreads {
    /// Way of aggregation.
    pub aggregation: ThreadAggregation,
    /// Threads that have the same role in their processes, over all ranks.
    pub roles: Vec<ThreadRole>,
    /// Threads of single processes, by rank: of the processes with the largest difference between
    /// their slowest and fastest thread. Processes with one thread are not listed.
    pub processes: Vec<ThreadsOfProcess>,
    /// Number of processes with several threads that are missing from `processes`.
    pub unlisted: u32,
    /// Context in which the slowest threads compute longer than the fastest; `None` if there is
    /// none, or under another aggregation than `key`.
    pub distinction: Option<ThreadDistinction>,
}

/// Threads that have the same role in their processes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThreadRole {
    /// "initial" (the communicating thread), "slowest", "fastest", "rest", "class 1" (the class
    /// with the most threads of its process), "thread 1"; also the key of its times in
    /// [`super::TreeNode::thread_times`].
    pub role: String,
    /// Rank list: the processes that have such a thread.
    pub ranks: String,
    /// Number of threads, in all ranks.
    pub threads: u64,
    /// Time of a thread in computation: mean over threads.
    pub work_s: f64,
    /// Minimum over ranks of the mean over the threads of the rank.
    pub min_work_s: f64,
    /// Maximum over ranks of the mean over the threads of the rank.
    pub max_work_s: f64,
    /// Time of a thread within the run: mean over threads.
    pub time_s: f64,
}

/// Threads of one process.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThreadsOfProcess {
    /// Rank of the process.
    pub rank: u32,
    /// Number of threads, the communicating one included.
    pub threads: u32,
    /// Key threads; `None` under another aggregation.
    pub key: Option<KeyThreads>,
    /// Threads with the same visited call paths, the largest class first; without the communicating
    /// thread. Under the aggregation `all` each thread by itself; `None` under any other.
    pub classes: Option<Vec<ThreadTimes>>,
}

/// Key threads of a process (ESPT15, 4.3).
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct KeyThreads {
    /// The communicating thread.
    pub initial: ThreadTimes,
    /// The other thread with the most work.
    pub slowest: ThreadTimes,
    /// The other thread with the least work; `None` if there is only one.
    pub fastest: Option<ThreadTimes>,
    /// All further threads; `None` if there are none.
    pub rest: Option<ThreadTimes>,
}

/// Times of a thread, or means over some threads.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThreadTimes {
    /// Lowest number of the threads, in the order in which the process's threads were first seen;
    /// `None` if unknown.
    pub number: Option<u32>,
    /// Number of threads.
    pub threads: u64,
    /// Time in computation.
    pub work_s: f64,
    /// Time within the run.
    pub time_s: f64,
}

/// Context that holds the difference between the slowest and the fastest threads: the innermost one
/// with at least `min_inner_fraction` of the difference of its caller.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ThreadDistinction {
    /// Index into the tree's nodes.
    pub node: u32,
    /// Call path from the outermost frame to the context.
    pub path: Vec<Frame>,
    /// Computation of the slowest thread in the context, callees included: mean over ranks.
    pub slowest_s: f64,
    /// Computation of the fastest thread.
    pub fastest_s: f64,
}
