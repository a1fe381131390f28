//! perf events of single ranks by context.

use plimsoll_collector::profile::{ContextTree, CounterProfile, NodeId};

use crate::canonical::Threads;
use crate::times::rolled_up;

/// Numbers of each event in each context: in the context and its callees, and in the context
/// itself.
/// The name of a quantity is the event's name, a point, and one of these words.
pub const QUANTITIES: [&str; 2] = ["inclusive", "exclusive"];

/// Returns the names of the events' quantities, in the order of a row's numbers.
pub fn names(events: &[String]) -> Vec<String> {
    let of_event = |event: &String| QUANTITIES.map(|quantity| format!("{event}.{quantity}"));
    events.iter().flat_map(of_event).collect()
}

/// Events of one rank.
pub struct EventRows<'a> {
    counters: &'a CounterProfile,
    /// For each event of the table, its index in `counters`; `None` if the rank did not count it.
    indices: Vec<Option<usize>>,
    width: usize,
    /// For each event, for each of [`QUANTITIES`], one number for each context.
    sums: Vec<u64>,
}

impl<'a> EventRows<'a> {
    /// Returns empty rows for these events in `width` contexts.
    pub fn new(counters: &'a CounterProfile, events: &[String], width: usize) -> Self {
        let index = |event: &String| {
            let is_it = |(_, counted): &(usize, &_)| is_counted(counted, event);
            counters.events.iter().enumerate().find(is_it).map(|(index, _)| index)
        };
        let indices: Vec<Option<usize>> = events.iter().map(index).collect();
        let sums = vec![0; indices.len() * QUANTITIES.len() * width];
        Self { counters, indices, width, sums }
    }

    /// Adds the events of some threads; `column` returns the column of a context in the rank's
    /// tree.
    pub fn add(
        &mut self,
        tree: &ContextTree,
        threads: Threads,
        column: impl Fn(usize) -> Option<usize>,
    ) {
        let values: &[(NodeId, _)] = match threads {
            Threads::Main => &self.counters.main,
            Threads::Other => &self.counters.other_threads,
        };
        let sums = self.sums.chunks_exact_mut((QUANTITIES.len() * self.width).max(1));
        for (sums, index) in sums.zip(&self.indices) {
            let Some(index) = *index else { continue };
            let mut own = vec![0u64; tree.nodes.len()];
            for (node, increments) in values {
                own[*node as usize] = own[*node as usize].saturating_add(increments[index]);
            }
            let (inclusive, exclusive) = rolled_up(tree, &own);
            let (inclusive_sums, exclusive_sums) = sums.split_at_mut(self.width);
            for node in 0..own.len() {
                if let Some(column) = column(node) {
                    inclusive_sums[column] += inclusive[node];
                    exclusive_sums[column] += exclusive[node];
                }
            }
        }
    }

    /// Returns the numbers; NaN for an event that the rank did not count.
    pub fn numbers(&self) -> impl Iterator<Item = f32> {
        let width = QUANTITIES.len() * self.width;
        self.sums.iter().enumerate().map(move |(at, sum)| match self.indices[at / width] {
            Some(_) => *sum as f32,
            None => f32::NAN,
        })
    }
}

fn is_counted(event: &plimsoll_collector::profile::CountedEvent, name: &str) -> bool {
    event.name == name && event.refused.is_none()
}
