//! Values of the raw contexts over one stretch of a thread's life. Times are in stamps, so that
//! sums are exact.

use crate::context_values::{Value, Values};
use crate::raw_tree::{IdMap, RawId};

/// Pair of contexts between which unsampled work lies: two siblings (possibly two places in one
/// function), or the same context twice.
pub(crate) type Between = (RawId, RawId);

/// Values of all contexts that were active in the stretch.
#[derive(Debug, Default)]
pub(crate) struct Account {
    values: Values,
    unsampled: IdMap<Between, u64>,
    duration: u64,
    paused: u64,
}

impl Account {
    /// Adds a part of the current interval to the duration. Every stamp of the part must also be
    /// charged by `spend`, `work` or `charge_unsampled`.
    pub(crate) fn pass(&mut self, stamps: u64) {
        self.duration = self.duration.saturating_add(stamps);
    }

    /// Adds time during which the measurement was paused.
    pub(crate) fn pause(&mut self, stamps: u64) {
        self.paused = self.paused.saturating_add(stamps);
    }

    /// Charges time inside a wrapped call.
    pub(crate) fn spend(&mut self, node: RawId, stamps: u64) {
        if stamps > 0 {
            self.values.add(node, &Value { time: stamps, ..Value::default() });
        }
    }

    /// Charges time outside wrapped calls that a sample covers. `run_delay`: stamps of it in which
    /// the thread waited for a core.
    pub(crate) fn work(&mut self, node: RawId, stamps: u64, run_delay: u64) {
        if stamps > 0 {
            let run_delay = run_delay.min(stamps);
            let value = Value { time: stamps, work: stamps, run_delay, ..Value::default() };
            self.values.add(node, &value);
        }
    }

    /// Notes that `stamps` of the time charged by [`Self::work`] lie between polls.
    pub(crate) fn poll_gap(&mut self, node: RawId, stamps: u64) {
        if stamps > 0 {
            self.values.add(node, &Value { poll_gap: stamps, ..Value::default() });
        }
    }

    /// Charges time outside wrapped calls that no sample covers.
    pub(crate) fn charge_unsampled(&mut self, between: Between, stamps: u64) {
        if stamps > 0 {
            let rest = self.unsampled.entry(between).or_default();
            *rest = rest.saturating_add(stamps);
        }
    }

    /// Counts a sample.
    pub(crate) fn sample(&mut self, node: RawId) {
        self.values.add(node, &Value { samples: 1, ..Value::default() });
    }

    /// Counts calls of a context and their bytes.
    pub(crate) fn call(&mut self, node: RawId, count: u64, bytes: u64) {
        self.values.add(node, &Value { calls: count, bytes, ..Value::default() });
    }

    /// Records the time of a single long call. The time itself is charged by other methods.
    pub(crate) fn long_call(&mut self, node: RawId, stamps: u64) {
        self.values.add(node, &Value { long: stamps, ..Value::default() });
    }

    /// Moves all values of `other` here; `other` is empty afterwards and keeps its memory for
    /// reuse. The cost is proportional to the content of `other`.
    pub(crate) fn absorb(&mut self, other: &mut Self) {
        self.values.absorb(&mut other.values);
        for (between, stamps) in other.unsampled.drain() {
            self.charge_unsampled(between, stamps);
        }
        self.pass(std::mem::take(&mut other.duration));
        self.pause(std::mem::take(&mut other.paused));
    }

    /// Returns the values by context.
    pub(crate) fn values(&self) -> &Values {
        &self.values
    }

    /// Returns unsampled work by the pair of contexts that it lies between, in stamps.
    pub(crate) fn unsampled(&self) -> &IdMap<Between, u64> {
        &self.unsampled
    }

    /// Returns the total duration in stamps, without pauses.
    pub(crate) fn duration(&self) -> u64 {
        self.duration
    }

    /// Returns the time excluded by pauses, in stamps.
    pub(crate) fn paused(&self) -> u64 {
        self.paused
    }

    /// Returns whether nothing was charged.
    pub(crate) fn is_empty(&self) -> bool {
        self.duration == 0 && self.values.is_empty()
    }

    /// Returns the approximate memory use in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let unsampled = self.unsampled.capacity() * (size_of::<(Between, u64)>() + 1);
        (self.values.bytes() + unsampled) as u64
    }
}
