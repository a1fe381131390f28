//! Calling contexts with their metrics.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use super::Label;

/// What a frame stands for.
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

/// A frame of a call path, in the user's terms.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Frame {
    /// What it stands for.
    pub kind: FrameKind,
    /// Demangled name without parameters and return type; of a loop, the function that holds it.
    pub function: String,
    /// Source file, where debug information tells.
    pub file: Option<String>,
    /// Source line, where debug information tells.
    pub line: Option<u32>,
    /// Of a loop without a line: where it begins, in bytes from the begin of its function.
    #[serde(default)]
    pub offset: Option<u64>,
    /// File name of the module that holds the code.
    pub module: String,
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
    /// The frames of the path to a node, outermost first. Indices that lead nowhere end it.
    pub fn path(&self, node: u32) -> Vec<Frame> {
        let mut path = Vec::new();
        let mut at = Some(node);
        // A tree that was read from a file may hold a cycle: no path is longer than the tree.
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
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TreeNode {
    /// Index of the context that called it; `None` at the outermost frame.
    pub parent: Option<u32>,
    /// Index into the frames.
    pub frame: u32,
    /// What its time is for.
    pub label: Label,
    /// Calls, the sum over ranks.
    pub calls: u64,
    /// Whether `calls` was counted; else it is a lower bound from samples.
    pub calls_exact: bool,
    /// Whether it is a balance point (SC10, III); `None` where that was not examined.
    pub balanced: Option<bool>,
    /// Time in it and in all that it calls.
    pub inclusive: Metric,
    /// Time in it alone: SC10's hybrid, a procedure with its own loops and inlined code.
    pub exclusive: Metric,
    /// Idleness: how long the ranks wait in it on average (SC10).
    pub idle_s: Option<f64>,
    /// Its imbalance (ICS18, Table 1).
    pub imb_s: Option<f64>,
    /// Its wait (ICS18, Table 1).
    pub wait_s: Option<f64>,
    /// Sum of the imbalances of the contexts below it.
    pub sum_imb_s: Option<f64>,
    /// Sum of the waits of the contexts below it.
    pub sum_wait_s: Option<f64>,
    /// Idleness blamed on it and on what it calls (SC10).
    pub blame_inclusive_s: Option<f64>,
    /// Idleness blamed on it alone (SC10); on a procedure with its own loops and inlined code.
    pub blame_exclusive_s: Option<f64>,
    /// The part of all idleness that is blamed on it and on what it calls (SC10).
    pub blame_fraction: Option<f64>,
    /// Counts of perf events, the sum over ranks, by event name.
    pub counters: BTreeMap<String, f64>,
}

/// A time, over all ranks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Metric {
    /// Mean.
    pub mean_s: f64,
    /// Least; 0 where a rank lacks the context.
    pub min_s: f64,
    /// Least of the ranks that have the context; `None` where none has.
    pub min_observed_s: Option<f64>,
    /// Most.
    pub max_s: f64,
    /// Sum.
    pub sum_s: f64,
    /// Standard deviation.
    pub stddev_s: f64,
    /// How many ranks have the context.
    pub ranks: u32,
}
