//! Where time went: the values of the raw contexts over one stretch of a thread's life. Times are
//! stamps, so that sums are exact.

use crate::tree::{IdMap, RawId};

/// What was measured in one context itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Value {
    /// Time.
    pub(crate) time: u64,
    /// Part of it that samples outside wrapped calls put here.
    pub(crate) work: u64,
    /// Part of it spent runnable without a core.
    pub(crate) run_delay: u64,
    /// Calls.
    pub(crate) calls: u64,
    /// Bytes moved.
    pub(crate) bytes: u64,
    /// Time of those calls that each took long.
    pub(crate) long: u64,
    /// Samples.
    pub(crate) samples: u64,
}

impl Value {
    /// Adds another measurement of the same context.
    pub(crate) fn add(&mut self, other: &Self) {
        self.time = self.time.saturating_add(other.time);
        self.work = self.work.saturating_add(other.work);
        self.run_delay = self.run_delay.saturating_add(other.run_delay);
        self.calls = self.calls.saturating_add(other.calls);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.long = self.long.saturating_add(other.long);
        self.samples = self.samples.saturating_add(other.samples);
    }
}

/// Between which contexts unsampled work lies. Two siblings (they may turn out to be two places in
/// one function), or twice the same context.
pub(crate) type Between = (RawId, RawId);

/// Values of the contexts that were touched.
#[derive(Debug, Default)]
pub(crate) struct Account {
    values: IdMap<RawId, Value>,
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
            self.entry(node).add(&Value { time: stamps, ..Value::default() });
        }
    }

    /// Time outside wrapped calls that a sample vouches for.
    pub(crate) fn work(&mut self, node: RawId, stamps: u64, run_delay: u64) {
        if stamps > 0 {
            let run_delay = run_delay.min(stamps);
            self.entry(node).add(&Value {
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
        self.entry(node).samples += 1;
    }

    /// Calls of a context.
    pub(crate) fn call(&mut self, node: RawId, count: u64, bytes: u64) {
        self.entry(node).add(&Value { calls: count, bytes, ..Value::default() });
    }

    /// A call that took long by itself. Its time is booked elsewhere.
    pub(crate) fn long_call(&mut self, node: RawId, stamps: u64) {
        self.entry(node).add(&Value { long: stamps, ..Value::default() });
    }

    fn entry(&mut self, node: RawId) -> &mut Value {
        self.values.entry(node).or_default()
    }

    /// Moves all of `other` here; `other` is empty afterwards, its memory ready for reuse. Costs
    /// what `other` holds.
    pub(crate) fn absorb(&mut self, other: &mut Self) {
        for (node, value) in other.values.drain() {
            self.entry(node).add(&value);
        }
        for (between, stamps) in other.rests.drain() {
            self.rest(between, stamps);
        }
        self.pass(std::mem::take(&mut other.duration));
        self.pause(std::mem::take(&mut other.paused));
    }

    /// Values by context.
    pub(crate) fn values(&self) -> &IdMap<RawId, Value> {
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
        (self.values.capacity() * (size_of::<(RawId, Value)>() + 1)
            + self.rests.capacity() * (size_of::<(Between, u64)>() + 1)) as u64
    }
}
