//! The keys of a summary that a comparison reads: a large summary is mostly numbers of its contexts
//! that no comparison needs, and to skip them takes less time and memory than to keep them.

use plimsoll_summary::{Efficiency, Frame, Label, Loop, Loss, Run, SchemaVersion};
use serde::Deserialize;

/// A summary.
#[derive(Deserialize)]
pub struct ComparedSummary {
    /// Read so that other versions are refused.
    #[serde(rename = "schema")]
    pub _schema: SchemaVersion,
    /// What ran.
    pub run: Run,
    /// POP efficiencies.
    pub efficiency: Efficiency,
    /// Losses, by falling severity.
    pub losses: Vec<Loss>,
    /// Loops with iterations.
    pub loops: Vec<Loop>,
    /// All contexts.
    pub tree: ComparedTree,
}

/// The contexts of a summary.
#[derive(Deserialize)]
pub struct ComparedTree {
    /// Distinct frames.
    pub frames: Vec<Frame>,
    /// Contexts; a parent comes before its children.
    pub nodes: Vec<ComparedNode>,
}

/// One context.
#[derive(Deserialize)]
pub struct ComparedNode {
    /// Index of its caller.
    pub parent: Option<u32>,
    /// Index into the frames.
    pub frame: u32,
    /// What its time is for.
    pub label: Label,
    /// Calls, the sum over ranks.
    pub calls: u64,
    /// Time in it and in all that it calls.
    pub inclusive: ComparedTime,
    /// Its own counters.
    #[serde(default)]
    pub counters: ComparedCounters,
}

/// Counters of a context alone, sums over ranks.
#[derive(Default, Deserialize)]
pub struct ComparedCounters {
    /// Time for which it could run and waited for a core, in seconds.
    #[serde(default)]
    pub run_delay_s: f64,
}

/// A time over all ranks, in seconds.
#[derive(Deserialize)]
pub struct ComparedTime {
    /// Least; 0 where a rank lacks the context.
    pub min_s: f64,
    /// Sum.
    pub sum_s: f64,
}
