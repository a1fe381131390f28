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
    entries: Vec<(RawId, Value)>,
    /// Open addressing with linear probing: index of the entry plus one; 0 is free. The number of
    /// slots is a power of two, and at least twice that of the entries.
    places: Vec<u32>,
}

impl Values {
    /// Returns the value of a context, zero when it is touched first.
    #[inline]
    pub(crate) fn entry(&mut self, node: RawId) -> &mut Value {
        if self.places.len() < 2 * (self.entries.len() + 1) {
            self.grow();
        }
        let mut place = home(node, self.places.len());
        loop {
            match self.places[place] as usize {
                0 => {
                    self.entries.push((node, Value::default()));
                    self.places[place] = self.entries.len() as u32;
                    let last = self.entries.len() - 1;
                    return &mut self.entries[last].1;
                }
                entry if self.entries[entry - 1].0 == node => {
                    return &mut self.entries[entry - 1].1;
                }
                _ => place = (place + 1) & (self.places.len() - 1),
            }
        }
    }

    fn grow(&mut self) {
        let places = (2 * self.places.len()).max(MIN_TABLE_SLOTS);
        self.places.clear();
        self.places.resize(places, 0);
        for ((node, _), entry) in self.entries.iter().zip(1..) {
            let mut place = home(*node, places);
            while self.places[place] != 0 {
                place = (place + 1) & (places - 1);
            }
            self.places[place] = entry;
        }
    }

    /// Moves all values out.
    pub(crate) fn drain(&mut self) -> impl Iterator<Item = (RawId, Value)> + '_ {
        // What one long instance has needed is not emptied after each short one.
        if self.places.len() > MAX_SLOTS_PER_VALUE * self.entries.len().max(1) {
            self.places = Vec::new();
        } else {
            self.places.fill(0);
        }
        self.entries.drain(..)
    }

    /// Returns all values.
    pub(crate) fn iter(&self) -> impl ExactSizeIterator<Item = &(RawId, Value)> {
        self.entries.iter()
    }

    /// Returns the contexts.
    pub(crate) fn nodes(&self) -> impl Iterator<Item = RawId> + '_ {
        self.entries.iter().map(|(node, _)| *node)
    }

    /// Returns whether there are no values.
    pub(crate) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Returns the memory in use beside the value itself.
    pub(crate) fn bytes(&self) -> usize {
        self.entries.capacity() * size_of::<(RawId, Value)>()
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
        for round in 0..50u32 {
            let mut truth = BTreeMap::new();
            // A long round among short ones; contexts that are close, and some far away.
            let count = if round == 20 { 3000 } else { 5 + round % 40 };
            for at in 0..count {
                let node = if at % 3 == 0 { at.wrapping_mul(0x0100_0001) } else { at % 17 };
                values.entry(node).time += u64::from(at) + 1;
                *truth.entry(node).or_insert(0) += u64::from(at) + 1;
            }
            let nodes: Vec<RawId> = values.nodes().collect();
            assert_eq!(nodes.len(), truth.len());
            let drained: Vec<_> = values.drain().collect();
            assert!(drained.iter().map(|(node, _)| *node).eq(nodes), "in the same order");
            let found: BTreeMap<_, _> =
                drained.into_iter().map(|(node, value)| (node, value.time)).collect();
            assert_eq!(found, truth);
            assert!(values.is_empty());
        }
        assert!(values.bytes() < 1 << 20);
    }
}
