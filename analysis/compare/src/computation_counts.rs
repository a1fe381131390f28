//! Instructions and cycles of a run's computation, for POP's factors of computation scaling.

use plimsoll_summary::Label;
use plimsoll_summary::phrase::rank_count;

use crate::summary_keys::{ComparedEventContext, ComparedEvents, ComparedNode};

/// Names of the events under which PLIMSOLL_COUNTERS counts instructions, and cycles.
const INSTRUCTIONS: &[&str] = &["instructions"];
const CYCLES: &[&str] = &["cycles", "cpu-cycles"];

/// Events in computation: outside communication, I/O and waiting. Sums over all threads of all
/// ranks, or their mean over runs; `None` unless every rank counted the event.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct ComputationCounts {
    /// Instructions.
    pub instructions: Option<f64>,
    /// Cycles.
    pub cycles: Option<f64>,
}

impl ComputationCounts {
    /// Returns the events of a run of `ranks` ranks in the contexts that are computation.
    pub(crate) fn of(events: &ComparedEvents, nodes: &[ComparedNode], ranks: u32) -> Self {
        let count = |names: &[&str]| {
            let is_it = |name: &str| names.iter().any(|known| known.eq_ignore_ascii_case(name));
            let event = events.events.iter().find(|event| is_it(&event.name))?;
            let by_all = event.total.is_some() && rank_count(&event.ranks) == u64::from(ranks);
            by_all.then(|| in_computation(events, &event.name, nodes))
        };
        Self { instructions: count(INSTRUCTIONS), cycles: count(CYCLES) }
    }

    /// Returns the multiples of both numbers.
    pub(crate) fn times(self, factor: f64) -> Self {
        let times = |count: Option<f64>| count.map(|count| count * factor);
        Self { instructions: times(self.instructions), cycles: times(self.cycles) }
    }
}

/// Sums an event over the contexts with the label of computation. A context's own events are those
/// in it less those in its callees.
fn in_computation(events: &ComparedEvents, event: &str, nodes: &[ComparedNode]) -> f64 {
    let is_computation =
        |node: u32| nodes.get(node as usize).is_some_and(|it| it.label == Label::Computation);
    let parent = |node: u32| nodes.get(node as usize).and_then(|it| it.parent);
    let of_context = |context: &ComparedEventContext| {
        let sum = context.events.get(event).map_or(0.0, |it| it.inclusive.sum);
        let own = if is_computation(context.node) { sum } else { 0.0 };
        let caller = parent(context.node).filter(|caller| is_computation(*caller));
        own - caller.map_or(0.0, |_| sum)
    };
    events.contexts.iter().map(of_context).sum::<f64>().max(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(ranks: &str) -> ComputationCounts {
        let node = |parent: &str, label: &str| {
            format!(
                r#"{{"parent":{parent},"frame":0,"label":"{label}","calls":1,
                "inclusive":{{"min_s":0.5,"sum_s":4.0}}}}"#
            )
        };
        let nodes = [
            node("null", "computation"),
            node("0", "computation"),
            node("1", "collective_synchronisation"),
            // What an MPI library calls back is computation again.
            node("2", "computation"),
        ];
        let nodes: Vec<ComparedNode> =
            nodes.iter().map(|node| serde_json::from_str(node).expect("a node")).collect();
        let context = |node: u32, instructions: u32| {
            let count = format!(r#"{{"inclusive":{{"sum":{instructions}}}}}"#);
            format!(r#"{{"node":{node},"events":{{"instructions":{count}}}}}"#)
        };
        let contexts = [(0, 1000), (1, 700), (2, 300), (3, 40)].map(|(node, it)| context(node, it));
        let event = r#"{"name":"instructions","total":1000.0,"ranks":"RANKS","refused":null}"#;
        let json = format!(
            r#"{{"events":[{}],"contexts":[{}]}}"#,
            event.replace("RANKS", ranks),
            contexts.join(",")
        );
        let events: ComparedEvents = serde_json::from_str(&json).expect("events");
        ComputationCounts::of(&events, &nodes, 4)
    }

    #[test]
    fn events_in_calls_are_left_out() {
        // 300 in main, 400 in its callee, 260 in the call, 40 in what that calls.
        let expected = ComputationCounts { instructions: Some(740.0), cycles: None };
        assert_eq!(counts("0-3"), expected);
        assert_eq!(counts("0-2"), ComputationCounts::default(), "rank 3 did not count them");
    }
}
