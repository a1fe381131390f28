//! Loops that poll. What a loop that looks for messages spends between its looks is waiting, and no work:
//! the test of its condition, a look at the clock, a short sleep. Else the rank that waits would be
//! the one that works.
//!
//! A program may also poll now and then while it computes, so that messages get on. So little must
//! lie between two looks that nothing can be computed there. What a function does that the loop calls
//! is work: there a message that has come is dealt with.

use plimsoll_agent::calls::{self, CallClass};
use plimsoll_collector::profile::{ContextTree, FrameKind, NodeId};

use super::Meaning;
use crate::frames::is_system;
use crate::label::Label;

/// Most time between two calls in a loop that does nothing but look.
const MOST_BETWEEN_NS: u64 = 5_000;
/// Most time that it may sleep in between: a rank that sleeps longer does so for its own ends.
const MOST_ASLEEP_NS: u64 = 2_000_000;

/// Marks what loops that poll spend between their looks, from the time in each context itself and its
/// calls.
pub fn mark(tree: &ContextTree, meanings: &mut [Meaning], own: impl Fn(usize) -> (u64, u64)) {
    // Of each context the loop that it is a part of, or a helper of.
    let mut loops: Vec<Option<NodeId>> = Vec::with_capacity(tree.nodes.len());
    let mut found: Vec<Between> = vec![Between::default(); tree.nodes.len()];
    for (id, node) in tree.nodes.iter().enumerate() {
        let frame = &tree.frames[node.frame as usize];
        let outer = node.parent.and_then(|parent| loops[parent as usize]);
        let class = frame.call.and_then(calls::class);
        let (time_ns, calls) = own(id);
        let of = match (frame.kind, class) {
            // Whatever it is like inside.
            (_, None) if is_system(frame) => outer,
            (FrameKind::Loop, _) => Some(id as NodeId),
            (FrameKind::Inlined | FrameKind::Line, _) => outer,
            (_, Some(CallClass::Sleep)) => outer,
            _ => None,
        };
        loops.push(of.filter(|_| meanings[id].is_work()));
        if let (Some(outer), None) = (outer, of) {
            found[outer as usize].calls += if meanings[id].in_mpi { calls } else { 0 };
            found[outer as usize].looks |= meanings[id].polling;
        }
        if let Some(of) = loops[id] {
            let between = &mut found[of as usize];
            let time = match class {
                Some(_) => &mut between.asleep_ns,
                None => &mut between.time_ns,
            };
            *time += time_ns;
        }
    }
    for (id, of) in loops.iter().enumerate() {
        if of.is_some_and(|of| found[of as usize].is_waiting()) {
            let label = Label::Wait;
            meanings[id] = Meaning { label, with_others: true, between: true, ..meanings[id] };
        }
    }
}

/// What a loop does that is no call of MPI, and how often it calls MPI.
#[derive(Clone, Copy, Default)]
struct Between {
    looks: bool,
    calls: u64,
    time_ns: u64,
    asleep_ns: u64,
}

impl Between {
    fn is_waiting(self) -> bool {
        let at_most = |time_ns: u64, each_ns: u64| time_ns <= self.calls.saturating_mul(each_ns);
        self.looks
            && at_most(self.time_ns, MOST_BETWEEN_NS)
            && at_most(self.asleep_ns, MOST_ASLEEP_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::labelling::meanings;
    use crate::rules::Rules;
    use crate::subject::{Contexts, MS};

    /// Whether the time in a loop itself is work, with what it calls and for how long.
    fn works(children: &[(&str, u64, u64)], loop_ns: u64) -> bool {
        let mut contexts = Contexts::default();
        let looking = contexts.node("main/exchange/loop") as usize;
        let own: Vec<(usize, u64, u64)> = children
            .iter()
            .map(|(name, time_ns, calls)| {
                (contexts.node(&format!("main/exchange/loop/{name}")) as usize, *time_ns, *calls)
            })
            .collect();
        let mut meanings = meanings(&contexts.tree, &Rules::default());
        mark(&contexts.tree, &mut meanings, |id| match own.iter().find(|(node, ..)| *node == id) {
            Some((_, time_ns, calls)) => (*time_ns, *calls),
            None if id == looking => (loop_ns, 0),
            None => (0, 0),
        });
        let handles = contexts
            .tree
            .nodes
            .iter()
            .zip(&meanings)
            .filter(|(node, _)| contexts.tree.frames[node.frame as usize].function == "handle");
        assert!(handles.into_iter().all(|(_, meaning)| meaning.is_work()));
        meanings[looking].is_work()
    }

    #[test]
    fn between_two_looks_nothing_is_computed() {
        assert!(!works(&[("MPI_Test", MS, 10_000)], 2 * MS));
        assert!(!works(&[("MPI_Iprobe", MS, 10_000), ("MPI_Recv", MS, 3)], 2 * MS));
        assert!(!works(&[("MPI_Test", MS, 100), ("usleep", 100 * MS, 100)], MS / 10), "it dozes");
        assert!(!works(&[("MPI_Test", MS, 10_000), ("handle", 500 * MS, 0)], 2 * MS));
    }

    #[test]
    fn who_computes_and_looks_now_and_then_works() {
        assert!(works(&[("MPI_Test", MS, 100)], 200 * MS));
        assert!(works(&[("MPI_Test", MS, 100), ("usleep", 1000 * MS, 100)], 0));
        assert!(works(&[("MPI_Send", MS, 100_000)], 2 * MS), "it looks for nothing");
        assert!(works(&[("handle", MS, 0)], 2 * MS));
    }
}
