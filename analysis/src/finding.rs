//! A loss before it is told: what it costs, where it shows, why, and how to find its ranks.

use plimsoll_collector::profile::NodeId;

use crate::imbalance::Cause;
use crate::metrics::Accumulator;
use crate::queries::{Quantity, Query};
use crate::summary::LossKind;
use crate::totals::PhaseTotals;

/// The others do at most this fraction of the one rank's work: the run is serial there.
pub const SERIAL_FRACTION: f64 = 0.1;

/// A loss, before its ranks are known by name.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Its kind.
    pub kind: LossKind,
    /// First index of its phase.
    pub phase: u64,
    /// What the run would be shorter by, in seconds.
    pub seconds: f64,
    /// The part of it that a first instance has, which is a phase of its own.
    pub first_s: f64,
    /// Where it shows.
    pub symptom: NodeId,
    /// Where else it shows, most first.
    pub also_in: Vec<NodeId>,
    /// Why, worst first.
    pub causes: Vec<Cause>,
    /// Causes partly even each other out.
    pub evened_out: bool,
    /// Which rank is slow changes from instance to instance.
    pub by_turns: bool,
    /// Finds the slow ranks.
    pub slow: Option<Query>,
    /// Finds the waiting ranks.
    pub waiting: Option<Query>,
}

impl Finding {
    /// A loss of so many seconds in a phase, of which no more is known than where it shows.
    pub fn new(kind: LossKind, phase: u64, seconds: f64, symptom: NodeId) -> Self {
        Self {
            kind,
            phase,
            seconds,
            first_s: 0.0,
            symptom,
            also_in: Vec::new(),
            causes: Vec::new(),
            evened_out: false,
            by_turns: false,
            slow: None,
            waiting: None,
        }
    }
}

/// Time over ranks in a cause of a loss of this phase.
pub fn cause_time(phase: &PhaseTotals, cause: &Cause) -> Accumulator {
    let node = phase.nodes.get(&cause.node).copied().unwrap_or_default();
    if cause.own { node.own } else { node.inclusive }
}

/// Ranks at or above half of the largest.
pub fn half_query(quantity: Quantity, max_ns: u64) -> Option<Query> {
    (max_ns > 0).then_some(Query { quantity, at_least_ns: max_ns.div_ceil(2) })
}
