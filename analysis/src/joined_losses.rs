//! Joins losses by uneven work that are one problem to a reader: with the same cause and the same
//! symptom, in several phases. Symptoms are the same if one function makes the call, on whichever
//! call path.
//!
//! A phase lies between two synchronisations, so a function that several steps of a program call,
//! before the same synchronisation, is uneven in several phases: those before and after particles
//! are sorted, or a mesh is refined. Whether the same ranks are slow in them is known once the
//! ranks have answered the queries.

use plimsoll_collector::profile::{ContextTree, NodeId};

use crate::finding::Finding;
use crate::owners::{are_parts_of_one, function_around};
use crate::ranks::RankSet;
use crate::summary::LossKind;
use crate::thresholds::{MIN_COMMON_SLOW_FRACTION, TURNS_FRACTION};
use crate::totals::Totals;

/// A loss with the answers of the ranks.
#[derive(Clone, Debug, PartialEq)]
pub struct Answered {
    /// Position of the loss among the findings of the run.
    pub index: usize,
    /// The loss.
    pub finding: Finding,
    /// Slow ranks, as in [`crate::summary::Loss::slow_ranks`].
    pub slow: RankSet,
    /// Waiting ranks, as in [`crate::summary::Loss::waiting_ranks`].
    pub waiting: RankSet,
}

/// Joins the losses that are one, each to the largest of them. `losses` are sorted, largest first.
pub fn joined(totals: &Totals, losses: Vec<Answered>) -> Vec<Answered> {
    let mut kept: Vec<Answered> = Vec::with_capacity(losses.len());
    for loss in losses {
        let kind = |known: &Answered| joined_kind(totals, known, &loss);
        match kept.iter_mut().find_map(|known| Some((kind(known)?, known))) {
            Some((Kind { by_turns }, known)) => {
                known.finding.by_turns = by_turns;
                known.absorb(loss);
            }
            None => kept.push(loss),
        }
    }
    kept
}

/// Way in which two losses are one.
struct Kind {
    /// Whether a different rank is slow each time.
    by_turns: bool,
}

/// Returns the way in which two losses are one; `None` if they are not.
fn joined_kind(totals: &Totals, a: &Answered, b: &Answered) -> Option<Kind> {
    let (one, other) = (&a.finding, &b.finding);
    let is_uneven = matches!(one.kind, LossKind::LoadImbalance | LossKind::Serialization);
    let (first, second) = one.causes.first().zip(other.causes.first())?;
    let are_alike = is_uneven
        && (one.kind, one.group) == (other.kind, other.group)
        && are_of_one_function(&totals.tree.contexts, one.symptom, other.symptom)
        && one.phase != other.phase
        && are_parts_of_one(&totals.tree.contexts, first.node, second.node);
    if !are_alike {
        return None;
    }
    if one.by_turns == other.by_turns && (one.by_turns || are_common(&a.slow, &b.slow)) {
        return Some(Kind { by_turns: one.by_turns });
    }
    // Ranks that work alone in different phases take turns if all of them work equally long.
    let cause_ns = first.ns + second.ns;
    let of_run = [first, second].map(|cause| totals.nodes[cause.node as usize].inclusive);
    let run = of_run.into_iter().max_by_key(|time| time.sum)?;
    let is_even = run.imbalance(totals.job.ranks.len()) < TURNS_FRACTION * cause_ns;
    (one.kind == LossKind::Serialization && is_even).then_some(Kind { by_turns: true })
}

/// Returns whether two contexts are the same call, made by one function on two call paths.
fn are_of_one_function(contexts: &ContextTree, a: NodeId, b: NodeId) -> bool {
    let frame = |node: NodeId| contexts.nodes[node as usize].frame;
    let caller = |node: NodeId| function_around(contexts, node).map(frame);
    a == b || frame(a) == frame(b) && caller(a).is_some() && caller(a) == caller(b)
}

/// Returns whether most of the slow ranks of two losses are the same.
fn are_common(a: &RankSet, b: &RankSet) -> bool {
    let common = a.iter().filter(|rank| b.contains(*rank)).count() as f64;
    common > 0.0 && common >= MIN_COMMON_SLOW_FRACTION * f64::from(a.union(b).len())
}

impl Answered {
    /// Adds a loss that is one with this loss.
    fn absorb(&mut self, other: Self) {
        let (whole, part) = (&mut self.finding, other.finding);
        whole.add_seconds_of(&part);
        whole.evened_out |= part.evened_out;
        for cause in part.causes {
            match whole.causes.iter_mut().find(|known| known.node == cause.node) {
                Some(known) => known.ns += cause.ns,
                None => whole.causes.push(cause),
            }
        }
        for call in [part.symptom].into_iter().chain(part.also_in) {
            if whole.shown_in().all(|known| known != call) {
                whole.also_in.push(call);
            }
        }
        self.slow = self.slow.union(&other.slow);
        self.waiting = self.waiting.union(&other.waiting);
    }
}
