//! Times of ranks in each phase, in the table of single ranks: the metrics of PPoPP20, 5.3, for
//! each context.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use plimsoll_collector::profile::NodeId;

use crate::imbalance::PhaseImbalance;
use crate::metrics::{Accumulator, NS_PER_S};
use crate::totals::{PhaseTotals, Totals};

/// Values of each context in a phase, over all ranks, in seconds: mean, minimum and maximum of the
/// time in all instances; and the sum over instances of the slowest rank's time. An absent rank has
/// 0.
pub const QUANTITIES: [&str; 4] = ["phase_mean_s", "phase_min_s", "phase_max_s", "phase_longest_s"];

/// Phase rows of a table.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PhaseRows {
    /// Numbers of the phases in the summary, ascending.
    pub phases: Vec<u32>,
    /// For each of [`QUANTITIES`], for each phase, one number for each context.
    pub numbers: [Vec<f32>; QUANTITIES.len()],
}

impl PhaseRows {
    /// Builds the rows for some contexts: of all phases, or, if these exceed `most_bytes`, of the
    /// longest ones.
    pub fn of(
        totals: &Totals,
        imbalances: &BTreeMap<u64, PhaseImbalance>,
        contexts: &[NodeId],
        most_bytes: u64,
    ) -> Self {
        let ranks = totals.job.ranks.len();
        let mut shown: Vec<(u32, (&u64, &PhaseTotals))> = (0..).zip(&totals.sums.phases).collect();
        let row_bytes = (QUANTITIES.len() * size_of::<f32>() * contexts.len()) as u64;
        shown.sort_by_key(|(id, (_, phase))| (Reverse(phase.duration.sum), *id));
        shown.truncate((most_bytes / row_bytes.max(1)) as usize);
        shown.sort_by_key(|(id, _)| *id);
        let mut rows = Self::default();
        for (id, (index, phase)) in shown {
            rows.phases.push(id);
            let of_contexts: Vec<[f64; 4]> = contexts
                .iter()
                .map(|node| of_context(phase, imbalances.get(index), *node, ranks))
                .collect();
            for (quantity, numbers) in rows.numbers.iter_mut().enumerate() {
                numbers.extend(of_contexts.iter().map(|it| (it[quantity] / NS_PER_S) as f32));
            }
        }
        rows
    }
}

/// Returns the work of a context, net of waiting for a core, or the time in a call, in nanoseconds.
/// The time of the slowest rank in each instance is known only for work; for calls it is NaN.
fn of_context(
    phase: &PhaseTotals,
    imbalance: Option<&PhaseImbalance>,
    node: NodeId,
    ranks: u32,
) -> [f64; 4] {
    let over_ranks =
        |time: &Accumulator| (time.mean(ranks), time.min(ranks) as f64, time.max as f64);
    if let Some(work) = phase.nodes.get(&node) {
        let (mean, min, max) = over_ranks(&work.inclusive);
        let uneven = imbalance.and_then(|imbalance| imbalance.nodes.get(&node));
        return [mean, min, max, mean + uneven.map_or(0.0, |it| it.inclusive_ns)];
    }
    match phase.wait(node) {
        Some(call) => {
            let (mean, min, max) = over_ranks(&call.time);
            [mean, min, max, f64::NAN]
        }
        None => [0.0; 4],
    }
}
