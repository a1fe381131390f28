//! Polling loops. The time that a polling loop spends between its polls is wait time, not work: the
//! test of its condition, a look at the clock, a short sleep. Otherwise the waiting rank would
//! count as the working one.
//!
//! A program may also poll now and then while it computes, so that messages make progress. In a
//! polling loop the time between two polls must therefore be too short for any computation.
//! Functions called by the loop are work: they handle messages that have arrived. A thin function
//! that only polls, as in layers over MPI, belongs to the loop.
//!
//! A function that only sleeps, shortly and as often as its caller polls, waits also if more than a
//! polling loop may do lies between: the sleep of a script, where each poll takes an interpreter
//! many microseconds (time.sleep in the pools of mpi4py).
//!
//! The time between two polls is measured where no other wrapped call lies between
//! ([`NodeValue::poll_gap_ns`]). Code of a function that polls waits if it spends 70 % of its time
//! there, as a context has the label that 70 % of its time has (PPoPP20, 5.2): also a loop in each
//! turn of the polling loop, or a function with loops that are not known. For all other polling
//! loops, the mean time between the calls decides.
//!
//! Without measured calls, samples see few of them. The number of polls is then estimated from the
//! time in them: each takes a good part of a microsecond.

use plimsoll_calls::{self as calls, CallClass, MAX_POLL_GAP_NS};
use plimsoll_collector::profile::{ContextTree, FrameKind, NodeId, NodeValue};

use super::{ContextClass, DERIVED_PERCENT};
use crate::frame_classes::is_system;
use crate::label::Label;

/// Maximum mean sleep between two calls, in nanoseconds: a rank that sleeps longer does not sleep
/// for the sake of polling.
const MAX_SLEEP_NS: u64 = 2_000_000;
/// Maximum time between calls that are not counted, as a multiple of the time in them.
const MAX_UNCOUNTED_RATIO: u64 = 4;

/// Exclusive values of one context.
#[derive(Clone, Copy, Default)]
pub struct Own {
    /// Wall time, in nanoseconds.
    pub time_ns: u64,
    /// Part of the time in which the thread waited for a core.
    pub run_delay_ns: u64,
    /// Part of the time between polls: [`NodeValue::poll_gap_ns`].
    pub poll_gap_ns: u64,
    /// Number of calls.
    pub calls: u64,
}

impl Own {
    /// Adds the values of a phase.
    pub fn add(&mut self, value: &NodeValue) {
        self.time_ns += value.exclusive_ns;
        self.run_delay_ns += value.run_delay_ns;
        self.poll_gap_ns += value.poll_gap_ns;
        self.calls += value.calls;
    }

    fn is_poll_gap(self) -> bool {
        // A rank that loses its core between two polls does not work meanwhile.
        let net_ns = self.time_ns.saturating_sub(self.run_delay_ns);
        let percent = |ns: u64, percent: u64| u128::from(ns) * u128::from(percent);
        let is_most = percent(self.poll_gap_ns, 100) >= percent(net_ns, DERIVED_PERCENT);
        self.poll_gap_ns > 0 && is_most
    }
}

/// Marks the time between the polls of polling loops as waiting. `own` returns the exclusive values
/// of a context. `counted` is whether its calls are all calls, rather than only those seen by
/// samples.
pub fn mark(
    tree: &ContextTree,
    context_classes: &mut [ContextClass],
    counted: bool,
    own: impl Fn(usize) -> Own,
) {
    let inside = inside(tree, context_classes, &own);
    let is_thin = |id: usize| inside[id].loops == 0 && inside[id].between.is_waiting(counted);
    // The loop that each context is a part of, or a helper of.
    let mut loops: Vec<Option<NodeId>> = Vec::with_capacity(tree.nodes.len());
    let mut found: Vec<Between> = vec![Between::default(); tree.nodes.len()];
    let polls = of_polling_functions(tree, &inside);
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
            found[of as usize].add_own(class, own(id).time_ns);
        }
    }
    let naps = naps(tree, &inside);
    for (id, of) in loops.iter().enumerate() {
        let is_measured = || polls[id] && context_classes[id].is_work() && own(id).is_poll_gap();
        let is_nap = naps[id] && context_classes[id].is_work();
        if of.is_some_and(|of| found[of as usize].is_waiting(counted)) || is_measured() || is_nap {
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

/// Returns whether each context is code of a function that polls, itself or in its callees.
fn of_polling_functions(tree: &ContextTree, inside: &[Inside]) -> Vec<bool> {
    let mut polls: Vec<bool> = Vec::with_capacity(tree.nodes.len());
    for (id, node) in tree.nodes.iter().enumerate() {
        let frame = &tree.frames[node.frame as usize];
        let is_function = frame.kind == FrameKind::Function && !is_system(frame);
        let of = match node.parent.filter(|_| !is_function) {
            Some(parent) => polls[parent as usize],
            None => inside[id].between.looks,
        };
        polls.push(of);
    }
    polls
}

/// Returns whether each context belongs to a function that only sleeps between the polls of its
/// caller.
fn naps(tree: &ContextTree, inside: &[Inside]) -> Vec<bool> {
    let mut naps: Vec<bool> = Vec::with_capacity(tree.nodes.len());
    for (id, node) in tree.nodes.iter().enumerate() {
        let frame = &tree.frames[node.frame as usize];
        let is_function = frame.kind == FrameKind::Function && frame.call.is_none();
        let is_part = |id: &NodeId| {
            let kind = tree.frame_of(*id).kind;
            matches!(kind, FrameKind::Inlined | FrameKind::Line)
        };
        let caller = tree.outwards(id as NodeId).skip(1).find(|outer| !is_part(outer));
        let begins = is_function
            && inside[id].only_sleeps()
            && caller.is_some_and(|caller| {
                let Inside { near_looks, near_calls, .. } = inside[caller as usize];
                near_looks && inside[id].sleeps <= near_calls.saturating_mul(2)
            });
        naps.push(begins || node.parent.is_some_and(|parent| naps[parent as usize]));
    }
    naps
}

/// Values of a context, callees included.
#[derive(Clone, Copy, Default)]
struct Inside {
    between: Between,
    loops: u32,
    /// Whether there are polls outside of the loops inside, such as in layers over MPI.
    near_looks: bool,
    /// Number of MPI calls there.
    near_calls: u64,
    /// Number of calls that sleep.
    sleeps: u64,
    /// Time in these calls, net of waiting for a core.
    sleeping_ns: u64,
}

impl Inside {
    /// Whether most of the time goes to short sleeps, and none to MPI. A loop may continue a sleep
    /// that a signal has ended.
    fn only_sleeps(&self) -> bool {
        let Between { calls, time_ns, asleep_ns, .. } = self.between;
        let percent = |ns: u64, percent: u64| u128::from(ns) * u128::from(percent);
        let is_most =
            percent(self.sleeping_ns, 100) >= percent(time_ns + asleep_ns, DERIVED_PERCENT);
        calls == 0
            && self.sleeps > 0
            && self.sleeping_ns <= self.sleeps.saturating_mul(MAX_SLEEP_NS)
            && is_most
    }
}

fn inside(
    tree: &ContextTree,
    context_classes: &[ContextClass],
    own: impl Fn(usize) -> Own,
) -> Vec<Inside> {
    let mut inside = vec![Inside::default(); tree.nodes.len()];
    for (id, node) in tree.nodes.iter().enumerate().rev() {
        let frame = &tree.frames[node.frame as usize];
        let Own { time_ns, calls, run_delay_ns, .. } = own(id);
        let outermost = node.parent.is_none_or(|parent| !context_classes[parent as usize].in_mpi);
        let it = &mut inside[id];
        if context_classes[id].in_mpi {
            it.between.called_ns += time_ns;
            it.between.calls += if outermost { calls } else { 0 };
            it.between.looks |= context_classes[id].polling;
            it.near_looks |= context_classes[id].polling;
            it.near_calls += if outermost { calls } else { 0 };
        } else {
            it.loops += u32::from(frame.kind == FrameKind::Loop);
            let class = frame.call.and_then(calls::class);
            it.between.add_own(class, time_ns);
            if class == Some(CallClass::Sleep) {
                it.sleeps += calls;
                it.sleeping_ns += time_ns.saturating_sub(run_delay_ns);
            }
        }
        let it = *it;
        if let Some(parent) = node.parent {
            let outer = &mut inside[parent as usize];
            outer.loops += it.loops;
            if frame.kind != FrameKind::Loop {
                outer.near_looks |= it.near_looks;
                outer.near_calls += it.near_calls;
            }
            outer.sleeps += it.sleeps;
            outer.sleeping_ns += it.sleeping_ns;
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
            Some((_, time_ns, calls)) => Own { time_ns: *time_ns, calls: *calls, ..Own::default() },
            None if id == looking => Own { time_ns: loop_ns, ..Own::default() },
            None => Own::default(),
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

    /// Returns the contexts that work; `own` are contexts with time, time between polls and calls.
    fn working<'p>(own: &[(&'p str, u64, u64, u64)]) -> Vec<&'p str> {
        let mut contexts = Contexts::default();
        let ids: Vec<usize> = own.iter().map(|(path, ..)| contexts.node(path) as usize).collect();
        let mut context_classes = context_classes(&contexts.tree, &Rules::default());
        let values = |id: usize| match ids.iter().position(|node| *node == id) {
            Some(at) => {
                let (_, time_ns, poll_gap_ns, calls) = own[at];
                Own { time_ns, poll_gap_ns, calls, ..Own::default() }
            }
            None => Own::default(),
        };
        mark(&contexts.tree, &mut context_classes, true, values);
        let works =
            |(path, id): (&&'p str, &usize)| context_classes[*id].is_work().then_some(*path);
        own.iter().map(|(path, ..)| path).zip(&ids).filter_map(works).collect()
    }

    #[test]
    fn a_loop_in_each_turn_of_a_polling_loop_waits() {
        let of_turns = [
            ("main/loop", 451 * MS, 440 * MS, 0),
            ("main/loop/MPI_Iprobe", 507 * MS, 0, 1_047_443),
            ("main/loop/loop", 326 * MS, 320 * MS, 0),
        ];
        assert!(working(&of_turns).is_empty());
    }

    #[test]
    fn a_loop_that_handles_what_a_polling_loop_has_found_works() {
        // The rank waits so often that a mean over all polls would hide its work.
        let of_messages = [
            ("main/loop", 451 * MS, 440 * MS, 0),
            ("main/loop/MPI_Iprobe", 507 * MS, 0, 1_047_443),
            ("main/loop/loop", 326 * MS, 2 * MS, 0),
        ];
        assert_eq!(working(&of_messages), ["main/loop/loop"]);
        // Between two polls lies more than they take.
        let of_overlap = [
            ("main/loop", 2 * MS, 0, 0),
            ("main/loop/MPI_Test", MS, 0, 1000),
            ("main/loop/loop", 90 * MS, 0, 0),
        ];
        assert_eq!(working(&of_overlap), ["main/loop/loop"]);
    }

    #[test]
    fn a_function_that_only_sleeps_between_polls_waits() {
        const SLEEP: &str = "main/eval/time_sleep/loop/clock_nanosleep";
        // A script polls a thousand times, with 20 us of its interpreter around each poll.
        let polled = |sleeps: u64, sleep_ns: u64, handled_ns: u64| {
            working(&[
                ("main/eval", 20 * MS, 0, 0),
                ("main/eval/iprobe/MPI_Iprobe", MS, 0, 1000),
                ("main/eval/time_sleep", handled_ns, 0, 0),
                (SLEEP, sleeps * sleep_ns, 0, sleeps),
            ])
        };
        assert_eq!(polled(1000, MS, 0), ["main/eval"]);
        assert!(polled(100, 10 * MS, 0).contains(&SLEEP), "it sleeps long");
        assert!(polled(10_000, MS, 0).contains(&SLEEP), "it sleeps more often than it polls");
        assert!(polled(1000, MS, 1000 * MS).contains(&SLEEP), "it computes as long");
        let elsewhere = [
            ("main/poll/loop/MPI_Iprobe", MS, 0, 1000),
            ("main/work/time_sleep/clock_nanosleep", 1000 * MS, 0, 1000),
        ];
        assert_eq!(working(&elsewhere), [elsewhere[1].0], "its caller does not poll");
    }

    #[test]
    fn a_function_waits_between_its_polls_also_if_its_loops_are_not_known() {
        let polls = ("main/MPI_Iprobe", 507 * MS, 0, 1_047_443);
        assert!(working(&[("main", 777 * MS, 760 * MS, 0), polls]).is_empty());
        assert_eq!(working(&[("main", 777 * MS, 500 * MS, 0), polls]), ["main"]);
        let below = [("main", 0, 0, 0), polls, ("main/handle", 300 * MS, 290 * MS, 0)];
        assert!(working(&below).contains(&"main/handle"), "a function that does not poll");
    }
}
