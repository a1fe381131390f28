//! Calling contexts with their metrics.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::{Estimate, Label};

/// Kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FrameKind {
    /// A procedure.
    Function,
    /// A loop inside the procedure that holds it.
    Loop,
    /// A procedure that the compiler inlined.
    Inlined,
    /// A call of the MPI library, by the name that the program used.
    Mpi,
    /// A source line.
    Line,
}

/// Frame of a call path, in the user's terms.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Frame {
    /// Kind of the frame.
    pub kind: FrameKind,
    /// Demangled name without parameters and return type; for a loop, the function that holds it.
    pub function: String,
    /// Source file; `None` without debug information.
    pub file: Option<String>,
    /// Source line: of the begin of a loop or of a function of a script, or of the call of an
    /// inlined procedure or of MPI in its caller; `None` for other frames and without debug
    /// information.
    pub line: Option<u32>,
    /// Begin of a loop without a line, in bytes from the begin of its function.
    #[serde(default)]
    pub offset: Option<u64>,
    /// File name of the module that holds the code.
    pub module: String,
}

impl Frame {
    /// Returns a frame without a place in the source.
    pub fn new(kind: FrameKind, function: impl Into<String>, module: impl Into<String>) -> Self {
        let (function, module) = (function.into(), module.into());
        Self { kind, function, file: None, line: None, offset: None, module }
    }

    /// Returns whether the function has no name but its address in its module:
    /// `libm.so.6+0x1234`.
    pub fn is_unnamed(&self) -> bool {
        self.function.strip_prefix(&self.module).is_some_and(|address| address.starts_with("+0x"))
    }
}

/// All calling contexts of all ranks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tree {
    /// Distinct frames.
    pub frames: Vec<Frame>,
    /// Contexts; a parent comes before its children.
    pub nodes: Vec<TreeNode>,
}

impl Tree {
    /// Returns the frames of the path to a node, outermost first. An invalid index ends the path.
    pub fn path(&self, node: u32) -> Vec<Frame> {
        let mut path = Vec::new();
        let mut at = Some(node);
        // A tree read from a file may hold a cycle: no path is longer than the tree.
        for _ in 0..self.nodes.len() {
            let Some(node) = at.and_then(|index| self.nodes.get(index as usize)) else { break };
            path.extend(self.frames.get(node.frame as usize).cloned());
            at = node.parent;
        }
        path.reverse();
        path
    }
}

/// One calling context.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TreeNode {
    /// Index of the calling context; `None` for the outermost frame.
    pub parent: Option<u32>,
    /// Index into the frames.
    pub frame: u32,
    /// Purpose of its time.
    pub label: Label,
    /// Calls, the sum over ranks.
    pub calls: u64,
    /// Whether `calls` was counted; otherwise it is a lower bound from samples.
    pub calls_exact: bool,
    /// Whether it is a balance point (SC10, III); `None` if that was not examined.
    pub balanced: Option<bool>,
    /// Time in the context and in all that it calls.
    pub inclusive: Metric,
    /// Time in the context alone: SC10's hybrid, a procedure with its own loops and inlined code.
    pub exclusive: Metric,
    /// Idleness: mean wait time of the ranks in it (SC10).
    pub idle_s: Option<f64>,
    /// Imbalance of the context (ICS18, Table 1).
    pub imb_s: Option<f64>,
    /// Wait of the context (ICS18, Table 1).
    pub wait_s: Option<f64>,
    /// Sum of the imbalances of the contexts below it.
    pub sum_imb_s: Option<f64>,
    /// Sum of the waits of the contexts below it.
    pub sum_wait_s: Option<f64>,
    /// Idleness blamed on the context and on what it calls (SC10).
    pub blame_inclusive_s: Option<f64>,
    /// Idleness blamed on the context alone (SC10); for a procedure with its own loops and inlined
    /// code.
    pub blame_exclusive_s: Option<f64>,
    /// Fraction of all idleness that is blamed on the context and on what it calls (SC10).
    pub blame_fraction: Option<f64>,
    /// Counts of perf events, the sum over ranks, by event name.
    pub counters: BTreeMap<String, f64>,
    /// Time of a thread in it and in all that it calls, by the thread's role
    /// ([`super::ThreadRole::role`]): mean over the threads of all ranks with that role, for
    /// contexts of threads that do not communicate. Under the aggregation `set`: `mean`,
    /// `minimum`, `maximum` and `deviation` of the time in it alone, over the `threads` (their
    /// number) that have the context.
    #[serde(default)]
    pub thread_times: BTreeMap<String, f64>,
}

/// Statistics of a time over all ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Metric {
    /// Mean.
    pub mean_s: f64,
    /// Minimum; 0 if a rank lacks the context.
    pub min_s: f64,
    /// Minimum over the ranks that have the context; `None` if none has it.
    pub min_observed_s: Option<f64>,
    /// Maximum.
    pub max_s: f64,
    /// Sum.
    pub sum_s: f64,
    /// Standard deviation.
    pub stddev_s: f64,
    /// Number of ranks with the context.
    pub ranks: u32,
    /// Mean over all ranks of the job, where these are a random sample of them and the context is
    /// significant; otherwise `None`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimate: Option<Estimate>,
}
