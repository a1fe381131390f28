//! Where time went: the values of the raw contexts over one stretch of a thread's life. Times are
//! stamps, so that sums are exact.

use crate::tree::{IdMap, RawId};
use crate::values::{Value, Values};

/// Between which contexts unsampled work lies. Two siblings (they may turn out to be two places in
/// one function), or twice the same context.
pub(crate) type Between = (RawId, RawId);

/// Values of the contexts that were touched.
#[derive(Debug, Default)]
pub(crate) struct Account {
    values: Values,
    rests: IdMap<Between, u64>,
    duration: u64,
    paused: u64,
}

impl Account {
    /// Books a part of the current interval as passed; every stamp of it goes to one of `spend`,
    /// `work` or `rest` as well.
    pub(crate) fn pass(&mut self, stamps: u64) {
        self.duration = self.duration.saturating_add(stamps);
    }

    /// Books time while the measurement was paused.
    pub(crate) fn pause(&mut self, stamps: u64) {
        self.paused = self.paused.saturating_add(stamps);
    }

    /// Time inside a wrapped call.
    pub(crate) fn spend(&mut self, node: RawId, stamps: u64) {
        if stamps > 0 {
            self.values.entry(node).add(&Value { time: stamps, ..Value::default() });
        }
    }

    /// Time outside wrapped calls that a sample vouches for.
    pub(crate) fn work(&mut self, node: RawId, stamps: u64, run_delay: u64) {
        if stamps > 0 {
            let run_delay = run_delay.min(stamps);
            self.values.entry(node).add(&Value {
                time: stamps,
                work: stamps,
                run_delay,
                ..Value::default()
            });
        }
    }

    /// Time outside wrapped calls that no sample vouches for.
    pub(crate) fn rest(&mut self, between: Between, stamps: u64) {
        if stamps > 0 {
            let rest = self.rests.entry(between).or_default();
            *rest = rest.saturating_add(stamps);
        }
    }

    /// A sample.
    pub(crate) fn sample(&mut self, node: RawId) {
        self.values.entry(node).samples += 1;
    }

    /// Calls of a context.
    pub(crate) fn call(&mut self, node: RawId, count: u64, bytes: u64) {
        self.values.entry(node).add(&Value { calls: count, bytes, ..Value::default() });
    }

    /// A call that took long by itself. Its time is booked elsewhere.
    pub(crate) fn long_call(&mut self, node: RawId, stamps: u64) {
        self.values.entry(node).add(&Value { long: stamps, ..Value::default() });
    }

    /// Moves all of `other` here; `other` is empty afterwards, its memory ready for reuse. Costs
    /// what `other` holds.
    pub(crate) fn absorb(&mut self, other: &mut Self) {
        for (node, value) in other.values.drain() {
            self.values.entry(node).add(&value);
        }
        for (between, stamps) in other.rests.drain() {
            self.rest(between, stamps);
        }
        self.pass(std::mem::take(&mut other.duration));
        self.pause(std::mem::take(&mut other.paused));
    }

    /// Values by context.
    pub(crate) fn values(&self) -> &Values {
        &self.values
    }

    /// Unsampled work by the contexts that it lies between.
    pub(crate) fn rests(&self) -> &IdMap<Between, u64> {
        &self.rests
    }

    /// All time in it.
    pub(crate) fn duration(&self) -> u64 {
        self.duration
    }

    /// Time that was excluded.
    pub(crate) fn paused(&self) -> u64 {
        self.paused
    }

    /// Whether nothing was booked.
    pub(crate) fn is_empty(&self) -> bool {
        self.duration == 0 && self.values.is_empty()
    }

    /// Memory in use, roughly.
    pub(crate) fn bytes(&self) -> u64 {
        let rests = self.rests.capacity() * (size_of::<(Between, u64)>() + 1);
        (self.values.bytes() + rests) as u64
    }
}
