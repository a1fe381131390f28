//! Totals over ranks of calls outside of work.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::label::Label;
use crate::metrics::Accumulator;
use crate::rank::CallTime;

/// Totals of the synchronisation that ends a phase, each rank's own, or of another call outside of
/// work.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CallTotals {
    /// Wall time, in nanoseconds.
    pub time: Accumulator,
    /// Number of calls, summed over ranks.
    pub calls: u64,
    /// Bytes, summed over ranks.
    pub bytes: u64,
    /// Bytes of the rank with the most.
    pub most_bytes: u64,
    /// Bytes with a transfer that the call made itself or waited for, summed over ranks.
    pub moved: u64,
    /// Time in calls that took long individually, summed over ranks, in nanoseconds.
    pub long_ns: u64,
    /// Time by label, summed over ranks, in nanoseconds.
    pub by_label: BTreeMap<Label, u64>,
}

impl CallTotals {
    /// Builds the totals of one rank.
    pub(super) fn of_rank(sync: &CallTime) -> Self {
        let by_label = Label::ALL.into_iter().zip(sync.by_label);
        Self {
            time: Accumulator::from_iter([sync.time_ns]),
            calls: sync.calls,
            bytes: sync.bytes,
            most_bytes: sync.bytes,
            moved: sync.moved,
            long_ns: sync.long_ns,
            by_label: by_label.filter(|(_, ns)| *ns > 0).collect(),
        }
    }

    /// Adds the totals of other ranks, or of the same ranks in another phase; each rank then counts
    /// once per phase in `time`, and `most_bytes` are those of one phase.
    pub fn combine(&mut self, other: &Self) {
        self.time.combine(&other.time);
        self.calls += other.calls;
        self.bytes += other.bytes;
        self.most_bytes = self.most_bytes.max(other.most_bytes);
        self.moved += other.moved;
        self.long_ns += other.long_ns;
        for (label, ns) in &other.by_label {
            *self.by_label.entry(*label).or_default() += ns;
        }
    }
}

impl CallTotals {
    /// Returns the bytes of the rank with the most, as a multiple of the mean over the ranks that
    /// make the call.
    pub fn uneven_bytes_factor(&self) -> f64 {
        let mean = self.bytes as f64 / f64::from(self.time.ranks.max(1));
        if mean > 0.0 { self.most_bytes as f64 / mean } else { 1.0 }
    }
}

/// Returns mean minus minimum of the time in a call, in nanoseconds.
pub fn uneven_ns(wait: &CallTotals, ranks: u32) -> f64 {
    wait.time.mean(ranks) - wait.time.min(ranks) as f64
}
