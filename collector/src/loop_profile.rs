//! Loops of a process with their iterations, as the analysis reads them.

use plimsoll_trees::{Instance, InstanceSample, Members};
use serde::{Deserialize, Serialize};

use crate::profile::NodeId;

/// A loop in one calling context, and its iterations as far as samples tell them apart (ICS18,
/// 3.2).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopProfile {
    /// Context of the loop.
    pub node: NodeId,
    /// Number of times that the loop was entered.
    pub executions: u64,
    /// Wall time of all executions.
    pub duration_ns: u64,
    /// Number of iterations of all executions.
    pub accepted: u64,
    /// Number of candidates, in all executions, that were too short to be iterations.
    pub rejected: u64,
    /// Number of consecutive iterations in each entry of `durations`.
    pub stride: u64,
    /// Wall time and number of iterations of each entry, by iteration order, over all executions.
    pub durations: Vec<(u64, u64)>,
    /// Begin of the first accepted iteration of each entry, in nanoseconds since the begin of the
    /// run; `None` for an entry without one. Empty for a loop that was entered more than once.
    pub begins: Vec<Option<u64>>,
    /// Clusters of similar iterations.
    pub clusters: Vec<LoopCluster>,
}

/// Similar iterations of a loop.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopCluster {
    /// Numbers of the iterations in their execution of the loop, from 0.
    pub members: Members,
    /// Number of iterations in all executions.
    pub count: u64,
    /// Wall time of these iterations, in nanoseconds.
    pub duration_ns: u64,
    /// Sample of the iterations, from which the representative is chosen.
    pub instances: InstanceSample,
    /// Longest contexts of an iteration with their inclusive time, the mean over the iterations in
    /// nanoseconds; by node id, each once. Empty for loops that take little of the run.
    pub contexts: Vec<(NodeId, u64)>,
    /// Calls and loops of an iteration in the order of time, outer ones before inner ones; means
    /// over the iterations. Empty for loops that take little of the run.
    pub slices: Vec<LoopSlice>,
    /// The representative iteration as it ran; `None` unless a digest was asked for it.
    #[serde(default)]
    pub instance: Option<LoopInstance>,
}

impl LoopCluster {
    /// Returns the iteration that stands for the others: of the sampled ones, the one with the
    /// duration nearest to the mean.
    pub fn representative(&self) -> Option<Instance> {
        self.instances.nearest(self.duration_ns / self.count.max(1))
    }
}

/// One iteration as it ran.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopInstance {
    /// Wall time, in nanoseconds.
    pub duration_ns: u64,
    /// Calls and loops of the iteration in the order of time, outer ones before inner ones.
    pub slices: Vec<LoopSlice>,
}

/// A call or a loop in the mean iteration of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopSlice {
    /// Context of the called function or of the loop.
    pub node: NodeId,
    /// Time from the begin of the iteration, in nanoseconds.
    pub begin_ns: u64,
    /// Wall time, in nanoseconds.
    pub duration_ns: u64,
}
