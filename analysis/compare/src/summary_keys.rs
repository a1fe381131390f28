//! Keys of a summary that a comparison reads: most of a large summary is numbers that no comparison
//! needs, and skipping them saves time and memory.

use std::collections::BTreeMap;

use plimsoll_summary::{CountedEvent, Efficiency, Frame, Label, Loop, Loss, Run, SchemaVersion};
use serde::Deserialize;

/// A summary.
#[derive(Deserialize)]
pub struct ComparedSummary {
    /// Schema; read to refuse other versions.
    #[serde(rename = "schema")]
    pub _schema: SchemaVersion,
    /// Description of the run.
    pub run: Run,
    /// POP efficiencies.
    pub efficiency: Efficiency,
    /// Losses, by falling severity.
    pub losses: Vec<Loss>,
    /// Loops with iterations.
    pub loops: Vec<Loop>,
    /// All contexts.
    pub tree: ComparedTree,
    /// perf events; none if none were asked for.
    #[serde(default)]
    pub counters: ComparedEvents,
}

/// perf events by context.
#[derive(Default, Deserialize)]
pub struct ComparedEvents {
    /// The events.
    pub events: Vec<CountedEvent>,
    /// Contexts with events.
    pub contexts: Vec<ComparedEventContext>,
}

/// Events of one context.
#[derive(Deserialize)]
pub struct ComparedEventContext {
    /// Index into the tree's nodes.
    pub node: u32,
    /// Numbers by event.
    pub events: BTreeMap<String, ComparedEventCount>,
}

/// Number of an event in a context.
#[derive(Deserialize)]
pub struct ComparedEventCount {
    /// In it and in all that it calls.
    pub inclusive: ComparedSum,
}

/// A number over all ranks.
#[derive(Deserialize)]
pub struct ComparedSum {
    /// Sum.
    pub sum: f64,
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
    /// Purpose of its time.
    pub label: Label,
    /// Calls, the sum over ranks.
    pub calls: u64,
    /// Inclusive time.
    pub inclusive: ComparedTime,
    /// Counters of the context alone.
    #[serde(default)]
    pub counters: ComparedCounters,
}

/// Counters of a context alone, sums over ranks.
#[derive(Default, Deserialize)]
pub struct ComparedCounters {
    /// Time runnable without a core, in seconds.
    #[serde(default)]
    pub run_delay_s: f64,
}

/// A time over all ranks, in seconds.
#[derive(Deserialize)]
pub struct ComparedTime {
    /// Minimum; 0 if a rank lacks the context.
    pub min_s: f64,
    /// Sum.
    pub sum_s: f64,
}
