//! A loss before it is put into words: its cost, symptom and causes, and the queries that find its
//! ranks.

use std::collections::BTreeMap;

use plimsoll_collector::profile::{ContextTree, NodeId};

use crate::canonical::path;
use crate::imbalance::{Cause, PhaseImbalance};
use crate::metrics::Accumulator;
use crate::queries::{PhaseCalls, Quantity, Query};
use crate::ranks::RankSet;
use crate::summary::LossKind;
use crate::totals::{PhaseTotals, Totals};

/// A loss before its ranks are known.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Kind of the loss.
    pub kind: LossKind,
    /// First index of the loss's phase.
    pub phase: u64,
    /// Reduction of the run time without the loss, in seconds.
    pub seconds: f64,
    /// Parts of `seconds` in other phases, such as the first instance of a loop, by the phase's
    /// first index.
    pub other_phases: BTreeMap<u64, f64>,
    /// Context in which the loss shows.
    pub symptom: NodeId,
    /// Other contexts in which the loss shows, largest first.
    pub also_in: Vec<NodeId>,
    /// Causes, worst first.
    pub causes: Vec<Cause>,
    /// Calls that have the lock while others wait for it, worst first; empty for other kinds.
    pub holders: Vec<Holder>,
    /// Slow place that causes the loss; `None` for other kinds.
    pub place: Option<Place>,
    /// Whether causes partly cancel each other.
    pub evened_out: bool,
    /// Whether the slow rank changes from instance to instance.
    pub by_turns: bool,
    /// Whether the causes are what ranks do while they hold the lock of a window.
    pub under_window_lock: bool,
    /// Index, within the phase, of the process group that the loss concerns; `None` for all ranks.
    pub group: Option<u32>,
    /// Slow ranks that are known without a query.
    pub slow_ranks: RankSet,
    /// Queries that find the other slow ranks.
    pub slow: Vec<Query>,
    /// Query that finds the waiting ranks.
    pub waiting: Option<Query>,
}

/// A call that acquires a lock for which others wait meanwhile.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Holder {
    /// Context of the call.
    pub call: NodeId,
    /// Fraction of the wait time in which this call has the lock.
    pub share: f64,
}

/// A node or core on which all work takes longer than elsewhere.
#[derive(Clone, Debug, PartialEq)]
pub struct Place {
    /// Name of the node.
    pub host: String,
    /// Time of the work there, as a multiple of the time elsewhere.
    pub factor: f64,
}

impl Finding {
    /// Returns a loss of `seconds` in a phase, with nothing but its symptom known.
    pub fn new(kind: LossKind, phase: u64, seconds: f64, symptom: NodeId) -> Self {
        Self {
            kind,
            phase,
            seconds,
            other_phases: BTreeMap::new(),
            symptom,
            also_in: Vec::new(),
            causes: Vec::new(),
            holders: Vec::new(),
            place: None,
            evened_out: false,
            by_turns: false,
            under_window_lock: false,
            group: None,
            slow_ranks: RankSet::default(),
            slow: Vec::new(),
            waiting: None,
        }
    }
}

impl Finding {
    /// Returns the contexts in which the loss shows, largest first.
    pub fn shown_in(&self) -> impl Iterator<Item = NodeId> {
        [self.symptom].into_iter().chain(self.also_in.iter().copied())
    }

    /// Returns the part of `seconds` in the loss's own phase.
    pub fn own_s(&self) -> f64 {
        self.seconds - self.other_phases.values().sum::<f64>()
    }

    /// Adds the seconds of another loss, by phase.
    pub fn add_seconds_of(&mut self, other: &Finding) {
        self.seconds += other.seconds;
        let by_phase = other.other_phases.iter().map(|(phase, seconds)| (*phase, *seconds));
        for (phase, seconds) in by_phase.chain([(other.phase, other.own_s())]) {
            if phase != self.phase {
                *self.other_phases.entry(phase).or_default() += seconds;
            }
        }
    }

    /// Returns the phases of the loss, its own one before the others: all phases if its calls are
    /// frequent, which is one loss over the run, and otherwise `other_phases`.
    pub fn phases<'t>(&self, totals: &'t Totals) -> Vec<&'t PhaseTotals> {
        let phases = &totals.sums.phases;
        let in_all = self.kind == LossKind::FrequentCommunication;
        let is_other =
            |index: &u64| *index != self.phase && (in_all || self.other_phases.contains_key(index));
        let others = phases.iter().filter(|(index, _)| is_other(index));
        phases.get(&self.phase).into_iter().chain(others.map(|(_, phase)| phase)).collect()
    }

    /// Adds the ranks that wait in the calls, or regions, of another loss to those of this loss.
    pub fn waits_also_where(&mut self, other: &Self) {
        if let Some((ours, theirs)) = self.waiting.as_mut().zip(other.waiting.as_ref()) {
            ours.join(theirs);
        }
    }

    /// Adds the contexts of another loss to those in which this loss shows, and its waiting ranks
    /// to those of this loss.
    pub fn shows_also_where(&mut self, other: &Self) {
        self.waits_also_where(other);
        for call in other.shown_in() {
            if self.shown_in().all(|known| known != call) {
                self.also_in.push(call);
            }
        }
    }
}

/// Returns the time, over ranks, in a cause of a loss of this phase.
pub fn cause_time(phase: &PhaseTotals, cause: &Cause) -> Accumulator {
    let node = phase.nodes.get(&cause.node).copied().unwrap_or_default();
    if cause.own { node.own } else { node.inclusive }
}

/// Returns the query for ranks with at least half of the maximum; `None` if the maximum is 0.
pub fn half_query(quantity: Quantity, max_ns: u64) -> Option<Query> {
    (max_ns > 0).then_some(Query { quantity, at_least: max_ns.div_ceil(2), among: None })
}

/// Returns the query for ranks that are in some calls of a phase, given by its first index, its
/// totals and their ranks, for at least half of the longest time. The longest time in all calls
/// together is unknown; it is at least that in one of them, and the mean.
pub fn calls_query(
    contexts: &ContextTree,
    (index, phase, ranks): (u64, &PhaseTotals, u32),
    calls: &[NodeId],
) -> Option<Query> {
    let ending = phase.ends_in.is_some_and(|it| calls.contains(&it));
    let others = calls.iter().filter(|call| Some(**call) != phase.ends_in);
    let paths = others.map(|call| path(contexts, *call)).collect();
    let times = || calls.iter().filter_map(|call| phase.wait(*call)).map(|it| it.time);
    let mean_ns: f64 = times().map(|time| time.mean(ranks)).sum();
    let longest_ns = times().map(|time| time.max).max().unwrap_or(0);
    let quantity = Quantity::Calls(vec![PhaseCalls { phase: index, ending, paths }]);
    half_query(quantity, longest_ns.max(mean_ns as u64))
}

/// A phase and the ranks that are compared in it: all ranks, or a process group with a task of its
/// own (PPoPP20, 5.4).
#[derive(Clone, Copy)]
pub struct Scope<'a> {
    /// First index of the phase.
    pub index: u64,
    /// Totals of the compared ranks in the phase.
    pub phase: &'a PhaseTotals,
    /// Imbalance of the compared ranks.
    pub imbalance: &'a PhaseImbalance,
    /// Number of compared ranks.
    pub ranks: u32,
    /// Index of the group in the phase, and the group's ranks; `None` for all ranks.
    pub group: Option<(u32, &'a RankSet)>,
}

impl Scope<'_> {
    /// Returns the index of the group in the phase; `None` for all ranks.
    pub fn group_index(&self) -> Option<u32> {
        self.group.map(|(index, _)| index)
    }

    /// Returns the ranks that queries are limited to; `None` for all ranks.
    pub fn among(&self) -> Option<RankSet> {
        self.group.map(|(_, ranks)| ranks.clone())
    }

    /// Like [`calls_query()`], limited to the compared ranks.
    pub fn calls_query(&self, contexts: &ContextTree, calls: &[NodeId]) -> Option<Query> {
        let query = calls_query(contexts, (self.index, self.phase, self.ranks), calls)?;
        Some(Query { among: self.among(), ..query })
    }

    /// Like [`half_query()`], limited to the compared ranks.
    pub fn half_query(&self, quantity: Quantity, max_ns: u64) -> Option<Query> {
        Some(Query { among: self.among(), ..half_query(quantity, max_ns)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic_run::Contexts;

    /// A program without a loop around its calls has a phase for each of them.
    #[test]
    fn a_loss_in_thousands_of_phases_asks_for_the_ranks_that_wait_in_any_of_them() {
        let mut contexts = Contexts::default();
        let call = contexts.node(&format!("{}MPI_Barrier", "main/".repeat(60)));
        let in_phase = |phase: u64| Finding {
            waiting: Some(Query {
                quantity: Quantity::Calls(vec![PhaseCalls {
                    phase,
                    ending: false,
                    paths: vec![path(&contexts.tree, call)],
                }]),
                at_least: phase,
                among: None,
            }),
            ..Finding::new(LossKind::FrequentCommunication, phase, 1.0, call)
        };
        let mut whole = in_phase(0);
        let parts: Vec<Finding> = (1..2000).map(in_phase).collect();
        parts.iter().for_each(|part| whole.shows_also_where(part));
        let query = whole.waiting.unwrap();
        let Quantity::Calls(calls) = query.quantity else { panic!("{:?}", query.quantity) };
        assert_eq!((calls.len(), query.at_least), (2000, 1999));
    }
}
