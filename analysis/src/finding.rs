//! A loss before it is told: what it costs, where it shows, why, and how to find its ranks.

use plimsoll_collector::profile::NodeId;

use crate::imbalance::{Cause, PhaseImbalance};
use crate::metrics::Accumulator;
use crate::queries::{Quantity, Query};
use crate::ranks::RankSet;
use crate::summary::LossKind;
use crate::totals::PhaseTotals;

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
    /// The group of ranks that it concerns, by its place in the phase; `None` where it is all ranks.
    pub group: Option<u32>,
    /// Slow ranks that are known without asking.
    pub slow_ranks: RankSet,
    /// Find the other slow ranks.
    pub slow: Vec<Query>,
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
            group: None,
            slow_ranks: RankSet::default(),
            slow: Vec::new(),
            waiting: None,
        }
    }
}

impl Finding {
    /// It shows also where another loss does.
    pub fn shows_also_where(&mut self, other: &Self) {
        for call in [&other.symptom].into_iter().chain(&other.also_in) {
            if *call != self.symptom && !self.also_in.contains(call) {
                self.also_in.push(*call);
            }
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
    (max_ns > 0).then_some(Query { quantity, at_least_ns: max_ns.div_ceil(2), among: None })
}

/// A phase among the ranks that are compared with each other: all, or a group with a task of its own
/// (PPoPP20, 5.4).
#[derive(Clone, Copy)]
pub struct Scope<'a> {
    /// First index of the phase.
    pub index: u64,
    /// What the ranks add up to in it.
    pub phase: &'a PhaseTotals,
    /// Their imbalance.
    pub imbalance: &'a PhaseImbalance,
    /// How many they are.
    pub ranks: u32,
    /// The group's place in the phase and its ranks; `None` for all ranks.
    pub group: Option<(u32, &'a RankSet)>,
}

impl Scope<'_> {
    /// The group's place in the phase.
    pub fn group_index(&self) -> Option<u32> {
        self.group.map(|(index, _)| index)
    }

    /// The ranks of a group, which alone are to be asked.
    pub fn among(&self) -> Option<RankSet> {
        self.group.map(|(_, ranks)| ranks.clone())
    }

    /// Of these ranks those at or above half of the largest.
    pub fn half_query(&self, quantity: Quantity, max_ns: u64) -> Option<Query> {
        Some(Query { among: self.among(), ..half_query(quantity, max_ns)? })
    }
}
