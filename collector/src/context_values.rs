//! Values of the raw contexts in use. Each record changes some, and each synchronisation moves all
//! values of an instance: values therefore lie in one array, and a hash table finds a context's
//! value.

use crate::raw_tree::RawId;

/// Values measured in one context alone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Value {
    /// Time.
    pub(crate) time: u64,
    /// Part of it that samples outside wrapped calls put here.
    pub(crate) work: u64,
    /// Part of it spent runnable without a core.
    pub(crate) run_delay: u64,
    /// Part of `work` between polls of polling loops.
    pub(crate) poll_gap: u64,
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
    /// Returns the time between polls of polling loops: the same part of all time on a core as of
    /// the part of it that samples put here. All waiting for a core lies in that part.
    pub(crate) fn poll_gap_of_time(&self) -> u64 {
        let [time, work] = [self.time, self.work].map(|it| it.saturating_sub(self.run_delay));
        let part = u128::from(self.poll_gap) * u128::from(time);
        let of_time = part.checked_div(u128::from(work)).unwrap_or_default();
        u64::try_from(of_time).map_or(time, |of_time| of_time.min(time))
    }

    /// Adds another measurement of the same context.
    pub(crate) fn add(&mut self, other: &Self) {
        self.time = self.time.saturating_add(other.time);
        self.work = self.work.saturating_add(other.work);
        self.run_delay = self.run_delay.saturating_add(other.run_delay);
        self.poll_gap = self.poll_gap.saturating_add(other.poll_gap);
        self.calls = self.calls.saturating_add(other.calls);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.long = self.long.saturating_add(other.long);
        self.samples = self.samples.saturating_add(other.samples);
    }
}

/// Minimum number of slots of a table, and maximum number of slots kept per value.
const MIN_TABLE_SLOTS: usize = 16;
const MAX_SLOTS_PER_VALUE: usize = 64;

/// Values by context, in the order in which these were touched first.
#[derive(Debug, Default)]
pub(crate) struct Values {
    entries: Vec<Entry>,
    /// Values that few contexts have, in the order in which they got them.
    of_calls: Vec<OfCalls>,
    /// Open addressing with linear probing: index of the entry plus one; 0 is free. The number of
    /// slots is a power of two, and at least twice that of the entries.
    places: Vec<u32>,
}

/// Values of a context, with those that any context may have. Large programs have tens of thousands
/// of contexts in each phase of each rank.
#[derive(Debug)]
struct Entry {
    node: RawId,
    /// Index of its values in [`Values::of_calls`], plus one; 0 if it has none there.
    of_calls: u32,
    time: u64,
    work: u64,
    run_delay: u64,
    samples: u64,
}

#[derive(Clone, Copy, Debug, Default)]
struct OfCalls {
    poll_gap: u64,
    calls: u64,
    bytes: u64,
    long: u64,
}

impl Values {
    /// Adds to the values of a context.
    #[inline]
    pub(crate) fn add(&mut self, node: RawId, value: &Value) {
        let Value { time, work, run_delay, samples, poll_gap, calls, bytes, long } = *value;
        let at = self.entry(node);
        let entry = &mut self.entries[at];
        entry.time = entry.time.saturating_add(time);
        entry.work = entry.work.saturating_add(work);
        entry.run_delay = entry.run_delay.saturating_add(run_delay);
        entry.samples = entry.samples.saturating_add(samples);
        if poll_gap | calls | bytes | long != 0 {
            if entry.of_calls == 0 {
                self.of_calls.push(OfCalls::default());
                entry.of_calls = self.of_calls.len() as u32;
            }
            let sums = &mut self.of_calls[entry.of_calls as usize - 1];
            sums.poll_gap = sums.poll_gap.saturating_add(poll_gap);
            sums.calls = sums.calls.saturating_add(calls);
            sums.bytes = sums.bytes.saturating_add(bytes);
            sums.long = sums.long.saturating_add(long);
        }
    }

    /// Returns the index of a context's entry, which is made when the context is touched first.
    #[inline]
    fn entry(&mut self, node: RawId) -> usize {
        if self.places.len() < 2 * (self.entries.len() + 1) {
            self.grow();
        }
        let mut place = home(node, self.places.len());
        loop {
            match self.places[place] as usize {
                0 => {
                    let none =
                        Entry { node, of_calls: 0, time: 0, work: 0, run_delay: 0, samples: 0 };
                    self.entries.push(none);
                    self.places[place] = self.entries.len() as u32;
                    return self.entries.len() - 1;
                }
                entry if self.entries[entry - 1].node == node => return entry - 1,
                _ => place = (place + 1) & (self.places.len() - 1),
            }
        }
    }

    fn grow(&mut self) {
        let places = (2 * self.places.len()).max(MIN_TABLE_SLOTS);
        self.places.clear();
        self.places.resize(places, 0);
        for (entry, number) in self.entries.iter().zip(1..) {
            let mut place = home(entry.node, places);
            while self.places[place] != 0 {
                place = (place + 1) & (places - 1);
            }
            self.places[place] = number;
        }
    }

    /// Moves all values of `other` here; `other` keeps its memory for reuse.
    pub(crate) fn absorb(&mut self, other: &mut Self) {
        other.iter().for_each(|(node, value)| self.add(node, &value));
        // What one long instance has needed is not emptied after each short one.
        if other.places.len() > MAX_SLOTS_PER_VALUE * other.entries.len().max(1) {
            other.places = Vec::new();
        } else {
            other.places.fill(0);
        }
        other.entries.clear();
        other.of_calls.clear();
    }

    /// Returns all values.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = (RawId, Value)> + '_ {
        self.entries.iter().map(|entry| {
            let Entry { node, of_calls, time, work, run_delay, samples } = *entry;
            let of_calls = (of_calls as usize).checked_sub(1).map(|at| self.of_calls[at]);
            let OfCalls { poll_gap, calls, bytes, long } = of_calls.unwrap_or_default();
            (node, Value { time, work, run_delay, poll_gap, calls, bytes, long, samples })
        })
    }

    /// Returns the contexts.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = RawId> + '_ {
        self.entries.iter().map(|entry| entry.node)
    }

    /// Returns whether there are no values.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the memory in use beside the value itself.
    pub(crate) fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<Entry>()
            + self.of_calls.capacity() * size_of::<OfCalls>()
            + self.places.capacity() * size_of::<u32>()
    }
}

/// Returns the first slot of the search for a context, among a power of two (Knuth, TAOCP 3, 6.4:
/// Fibonacci hashing).
fn home(node: RawId, places: usize) -> usize {
    let bits = places.trailing_zeros();
    (node.wrapping_mul(0x9e37_79b9) >> (u32::BITS - bits)) as usize
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn values_are_those_of_a_map() {
        let mut values = Values::default();
        let mut all = Values::default();
        let mut truth_of_all: BTreeMap<RawId, Value> = BTreeMap::new();
        for round in 0..50u32 {
            let mut truth: BTreeMap<RawId, Value> = BTreeMap::new();
            // A long round among short ones; contexts that are close, and some far away.
            let count = if round == 20 { 3000 } else { 5 + round % 40 };
            for at in 0..count {
                let node = if at % 3 == 0 { at.wrapping_mul(0x0100_0001) } else { at % 17 };
                let number = u64::from(at) + 1;
                let value = match at % 5 {
                    0 => Value { calls: 1, bytes: number, ..Value::default() },
                    1 => Value { time: number, long: number, ..Value::default() },
                    2 => Value { poll_gap: number, ..Value::default() },
                    3 => Value { samples: 1, ..Value::default() },
                    _ => Value { time: number, work: number, run_delay: 1, ..Value::default() },
                };
                values.add(node, &value);
                truth.entry(node).or_default().add(&value);
                truth_of_all.entry(node).or_default().add(&value);
            }
            let nodes: Vec<RawId> = values.nodes().collect();
            assert_eq!(nodes.len(), truth.len());
            assert!(values.iter().map(|(node, _)| node).eq(nodes), "in the same order");
            assert_eq!(values.iter().collect::<BTreeMap<_, _>>(), truth);
            all.absorb(&mut values);
            assert!(values.is_empty());
        }
        assert_eq!(all.iter().collect::<BTreeMap<_, _>>(), truth_of_all);
        assert!(values.bytes() < 1 << 20);
    }
}
