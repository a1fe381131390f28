//! perf events by calling context, and metrics derived from them.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// perf events of all threads of all ranks; empty if none were asked for.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Counters {
    /// The events, by name.
    pub events: Vec<CountedEvent>,
    /// Derived metrics of the whole run, in the order of PLIMSOLL_METRICS.
    pub metrics: Vec<RunMetric>,
    /// Time in which hardware events had no counter, summed over all threads, because the kernel
    /// shared the counters among more users than there are counters. The numbers of the hardware
    /// events are estimates for this time.
    pub estimated_s: f64,
    /// Number of threads with events that were not counted, or were counted only in a part of the
    /// thread's life.
    pub uncounted_threads: u64,
    /// Contexts with events.
    pub contexts: Vec<ContextCounters>,
}

impl Counters {
    /// Returns whether no events were asked for.
    pub fn is_empty(&self) -> bool {
        self.events.is_empty()
    }

    /// Returns the number of an event in the whole run; `None` if the event was not counted.
    pub fn total(&self, event: &str) -> Option<f64> {
        self.events.iter().find(|it| it.name == event).and_then(|it| it.total)
    }
}

/// A perf event.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CountedEvent {
    /// Name as the user gave it.
    pub name: String,
    /// Number over all ranks and threads; task-clock and cpu-clock in nanoseconds. `None` if no
    /// rank counted the event.
    pub total: Option<f64>,
    /// Ranks that counted the event.
    pub ranks: String,
    /// Reason why other ranks did not count it, as the end of a sentence; `None` if all ranks did.
    pub refused: Option<String>,
}

/// A derived metric of the whole run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct RunMetric {
    /// Name that the user gave it.
    pub name: String,
    /// Expression over the sums of events over ranks.
    pub expression: String,
    /// Value; `None` if an event was not counted, or after a division by zero.
    pub value: Option<f64>,
}

/// Events and metrics of one context.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ContextCounters {
    /// Index into the tree's nodes.
    pub node: u32,
    /// Numbers by event.
    pub events: BTreeMap<String, EventStatistics>,
    /// Derived metrics by name.
    pub metrics: BTreeMap<String, MetricValues>,
}

/// Number of an event in a context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EventStatistics {
    /// In the context and in all that it calls.
    pub inclusive: CountStatistics,
    /// In the context alone: SC10's hybrid, a procedure with its own loops and inlined code.
    pub exclusive: CountStatistics,
}

/// Statistics over all ranks; a rank without the context counts as 0.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CountStatistics {
    /// Sum.
    pub sum: f64,
    /// Mean.
    pub mean: f64,
    /// Minimum.
    pub min: f64,
    /// Maximum.
    pub max: f64,
    /// Standard deviation.
    pub stddev: f64,
    /// Number of ranks that counted the event in the context.
    pub ranks: u32,
}

/// Value of a derived metric in a context, from the sums over ranks; `None` if an event was not
/// counted, or after a division by zero.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct MetricValues {
    /// From the events in the context and in all that it calls.
    pub inclusive: Option<f64>,
    /// From the events in the context alone.
    pub exclusive: Option<f64>,
}
