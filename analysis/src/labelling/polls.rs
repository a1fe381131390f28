//! Polling loops. The time that a polling loop spends between its polls is wait time, not work: the
//! test of its condition, a look at the clock, a short sleep. Otherwise the waiting rank would
//! count as the working one.
//!
//! A program may also poll now and then while it computes, so that messages make progress. In a
//! polling loop the time between two polls must therefore be too short for any computation.
//! Functions called by the loop are work: they handle messages that have arrived. A thin function
//! that only polls, as in layers over MPI, belongs to the loop.
//!
//! Without measured calls, samples see few of them. The number of polls is then estimated from the
//! time in them: each takes a good part of a microsecond.

use plimsoll_calls::{self as calls, CallClass};
use plimsoll_collector::profile::{ContextTree, FrameKind, NodeId};

use super::ContextClass;
use crate::frame_classes::is_system;
use crate::label::Label;

/// Maximum mean time between two calls in a loop that only polls, in nanoseconds.
const MAX_POLL_GAP_NS: u64 = 5_000;
/// Maximum mean sleep between two calls, in nanoseconds: a rank that sleeps longer does not sleep
/// for the sake of polling.
const MAX_SLEEP_NS: u64 = 2_000_000;
/// Maximum time between calls that are not counted, as a multiple of the time in them.
const MAX_UNCOUNTED_RATIO: u64 = 4;

/// Marks the time between the polls of polling loops as waiting. `own` returns the exclusive time
/// in nanoseconds and the calls of a context. `counted` is whether these are all calls, rather than
/// only those seen by samples.
pub fn mark(
    tree: &ContextTree,
    context_classes: &mut [ContextClass],
    counted: bool,
    own: impl Fn(usize) -> (u64, u64),
) {
    let inside = inside(tree, context_classes, &own);
    let is_thin = |id: usize| inside[id].loops == 0 && inside[id].between.is_waiting(counted);
    // The loop that each context is a part of, or a helper of.
    let mut loops: Vec<Option<NodeId>> = Vec::with_capacity(tree.nodes.len());
    let mut found: Vec<Between> = vec![Between::default(); tree.nodes.len()];
    for (id, node) in tree.nodes.iter().enumerate() {
        let frame = &tree.frames[node.frame as usize];
        let outer = node.parent.and_then(|parent| loops[parent as usize]);
        let class = frame.call.and_then(calls::class);
        let of = match (frame.kind, class) {
            // Functions of the system belong to the loop, no matter what is inside.
            (_, None) if is_system(frame) => outer,
            (FrameKind::Loop, _) => Some(id as NodeId),
            (FrameKind::Inlined | FrameKind::Line, _) => outer,
            (_, Some(CallClass::Sleep)) => outer,
            (FrameKind::Function, None) if is_thin(id) => outer,
            _ => None,
        };
        loops.push(of.filter(|_| context_classes[id].is_work()));
        if let (Some(outer), None) = (outer, of)
            && context_classes[id].in_mpi
        {
            found[outer as usize].add_calls(&inside[id].between);
        }
        if let Some(of) = loops[id] {
            found[of as usize].add_own(class, own(id).0);
        }
    }
    for (id, of) in loops.iter().enumerate() {
        if of.is_some_and(|of| found[of as usize].is_waiting(counted)) {
            let label = Label::Wait;
            context_classes[id] = ContextClass {
                label,
                waits_on_peers: true,
                is_poll_gap: true,
                ..context_classes[id]
            };
        }
    }
}

/// Values of a context, callees included.
#[derive(Clone, Copy, Default)]
struct Inside {
    between: Between,
    loops: u32,
}

fn inside(
    tree: &ContextTree,
    context_classes: &[ContextClass],
    own: impl Fn(usize) -> (u64, u64),
) -> Vec<Inside> {
    let mut inside = vec![Inside::default(); tree.nodes.len()];
    for (id, node) in tree.nodes.iter().enumerate().rev() {
        let frame = &tree.frames[node.frame as usize];
        let (time_ns, calls) = own(id);
        let outermost = node.parent.is_none_or(|parent| !context_classes[parent as usize].in_mpi);
        let it = &mut inside[id];
        if context_classes[id].in_mpi {
            it.between.called_ns += time_ns;
            it.between.calls += if outermost { calls } else { 0 };
            it.between.looks |= context_classes[id].polling;
        } else {
            it.loops += u32::from(frame.kind == FrameKind::Loop);
            it.between.add_own(frame.call.and_then(calls::class), time_ns);
        }
        let it = *it;
        if let Some(parent) = node.parent {
            let outer = &mut inside[parent as usize];
            outer.loops += it.loops;
            outer.between.add_calls(&it.between);
            outer.between.time_ns += it.between.time_ns;
            outer.between.asleep_ns += it.between.asleep_ns;
        }
    }
    inside
}

/// Time of a loop outside of MPI calls, and number and time of its MPI calls.
#[derive(Clone, Copy, Default)]
struct Between {
    looks: bool,
    calls: u64,
    called_ns: u64,
    time_ns: u64,
    asleep_ns: u64,
}

impl Between {
    fn add_calls(&mut self, other: &Self) {
        self.looks |= other.looks;
        self.calls += other.calls;
        self.called_ns += other.called_ns;
    }

    fn add_own(&mut self, class: Option<CallClass>, time_ns: u64) {
        match class {
            Some(_) => self.asleep_ns += time_ns,
            None => self.time_ns += time_ns,
        }
    }

    fn is_waiting(self, counted: bool) -> bool {
        let at_most = |time_ns: u64, each_ns: u64| time_ns <= self.calls.saturating_mul(each_ns);
        let is_little = match counted {
            true => at_most(self.time_ns, MAX_POLL_GAP_NS),
            false => self.time_ns <= self.called_ns.saturating_mul(MAX_UNCOUNTED_RATIO),
        };
        self.looks && is_little && at_most(self.asleep_ns, MAX_SLEEP_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::labelling::context_classes;
    use crate::rules::Rules;
    use crate::synthetic_run::{Contexts, MS};

    /// Returns whether the exclusive time of a loop is work; `children` are its callees with time
    /// and number of calls.
    fn works(children: &[(&str, u64, u64)], loop_ns: u64) -> bool {
        works_where(true, children, loop_ns)
    }

    fn works_where(counted: bool, children: &[(&str, u64, u64)], loop_ns: u64) -> bool {
        let mut contexts = Contexts::default();
        let looking = contexts.node("main/exchange/loop") as usize;
        let own: Vec<(usize, u64, u64)> = children
            .iter()
            .map(|(name, time_ns, calls)| {
                (contexts.node(&format!("main/exchange/loop/{name}")) as usize, *time_ns, *calls)
            })
            .collect();
        let mut context_classes = context_classes(&contexts.tree, &Rules::default());
        let values = |id: usize| match own.iter().find(|(node, ..)| *node == id) {
            Some((_, time_ns, calls)) => (*time_ns, *calls),
            None if id == looking => (loop_ns, 0),
            None => (0, 0),
        };
        mark(&contexts.tree, &mut context_classes, counted, values);
        let handles = contexts
            .tree
            .nodes
            .iter()
            .zip(&context_classes)
            .filter(|(node, _)| contexts.tree.frames[node.frame as usize].function == "handle");
        assert!(handles.into_iter().all(|(_, context_class)| context_class.is_work()));
        context_classes[looking].is_work()
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

    #[test]
    fn thin_functions_around_looks_belong_to_the_loop() {
        let looks = ("layer_Test/MPI_Test", MS, 10_000);
        assert!(!works(&[looks, ("layer_Test", 10 * MS, 0)], 2 * MS));
        assert!(!works(&[("outer/layer_Test/MPI_Test", MS, 10_000)], 2 * MS), "layer over layer");
        // At most 5 us may lie between two polls, no matter where they are spent.
        assert!(!works(&[looks, ("layer_Test", 40 * MS, 0)], 10 * MS));
        assert!(works(&[looks, ("layer_Test", 40 * MS, 0)], 11 * MS));
        assert!(works(&[looks, ("layer_Test", 51 * MS, 0)], 2 * MS), "it is not thin");
        assert!(works(&[("layer_Send/MPI_Send", MS, 10_000)], 2 * MS));
    }

    #[test]
    fn where_calls_are_not_counted_their_time_tells_how_many_they_are() {
        assert!(!works_where(false, &[("MPI_Test/opal_progress", 10 * MS, 2)], 40 * MS));
        assert!(works_where(false, &[("MPI_Test/opal_progress", 10 * MS, 2)], 41 * MS));
        assert!(!works_where(false, &[("layer_Test/MPI_Test/opal_progress", 10 * MS, 0)], 20 * MS));
        assert!(works_where(false, &[("MPI_Send/opal_progress", 10 * MS, 2)], MS));
    }
}
