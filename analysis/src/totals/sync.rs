//! What calls outside work add up to over ranks.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::label::Label;
use crate::metrics::Accumulator;
use crate::rank::Sync;

/// The synchronisation that ends a phase, each rank's own; or another call outside work.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncTotals {
    /// Wall time.
    pub time: Accumulator,
    /// Calls, over ranks.
    pub calls: u64,
    /// Bytes, over ranks.
    pub bytes: u64,
    /// Bytes whose transfer it waited for, or made itself, over ranks.
    pub moved: u64,
    /// Time in those of its calls that took long by themselves, over ranks, in nanoseconds.
    pub long_ns: u64,
    /// Nanoseconds by label, over ranks.
    pub by_label: BTreeMap<Label, u64>,
}

impl SyncTotals {
    /// Those of one rank.
    pub(super) fn of_rank(sync: &Sync) -> Self {
        let by_label = Label::ALL.into_iter().zip(sync.by_label);
        Self {
            time: Accumulator::from_iter([sync.time_ns]),
            calls: sync.calls,
            bytes: sync.bytes,
            moved: sync.moved,
            long_ns: sync.long_ns,
            by_label: by_label.filter(|(_, ns)| *ns > 0).collect(),
        }
    }

    /// Takes in those of other ranks.
    pub(super) fn combine(&mut self, other: &Self) {
        self.time.combine(&other.time);
        self.calls += other.calls;
        self.bytes += other.bytes;
        self.moved += other.moved;
        self.long_ns += other.long_ns;
        for (label, ns) in &other.by_label {
            *self.by_label.entry(*label).or_default() += ns;
        }
    }
}

/// Mean less minimum of the time in a call, in nanoseconds.
pub fn uneven_ns(wait: &SyncTotals, ranks: u32) -> f64 {
    wait.time.mean(ranks) - wait.time.min(ranks) as f64
}
