//! Durations and begins of the iterations of a loop, in order: thinned evenly to a bounded number
//! of sums.

use serde::{Deserialize, Serialize};

/// Maximum number of sums kept of a loop (`durations_s` in the summary).
pub const MAX_DURATIONS: usize = 200;

/// Sum over a range of consecutive iterations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stretch {
    /// Sum of the iterations' durations, in the tree's unit of time.
    pub sum: u64,
    /// Number of accepted iterations.
    pub count: u64,
    /// Begin of the earliest of them, since the tree's begin, pauses included; without meaning if
    /// there are none.
    pub begin: u64,
}

impl Stretch {
    fn add(&mut self, other: Self) {
        self.begin = match (self.count, other.count) {
            (0, _) => other.begin,
            (_, 0) => self.begin,
            _ => self.begin.min(other.begin),
        };
        self.sum = self.sum.saturating_add(other.sum);
        self.count += other.count;
    }
}

/// Durations by number of the iteration: each stretch holds `2^level` consecutive numbers. When
/// there are too many stretches, neighbours are merged: sums and counts stay exact.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Durations {
    level: u32,
    stretches: Vec<Stretch>,
}

impl Durations {
    /// Adds an iteration.
    pub fn add(&mut self, number: u64, begin: u64, duration: u64) {
        while number >> self.level >= MAX_DURATIONS as u64 {
            self.halve();
        }
        let at = (number >> self.level) as usize;
        if at >= self.stretches.len() {
            self.stretches.resize(at + 1, Stretch::default());
        }
        self.stretches[at].add(Stretch { sum: duration, count: 1, begin });
    }

    /// Adds the durations of another instance of the loop, number by number.
    pub fn merge(&mut self, mut other: Self) {
        while self.level < other.level {
            self.halve();
        }
        while other.level < self.level {
            other.halve();
        }
        if self.stretches.len() < other.stretches.len() {
            std::mem::swap(self, &mut other);
        }
        for (ours, theirs) in self.stretches.iter_mut().zip(other.stretches) {
            ours.add(theirs);
        }
    }

    /// Merges neighbours until there are at most `most` stretches (at least one).
    pub fn thin(&mut self, most: usize) {
        while self.stretches.len() > most.max(1) {
            self.halve();
        }
        self.stretches.shrink_to_fit();
    }

    /// Returns the number of consecutive iteration numbers per stretch.
    pub fn stride(&self) -> u64 {
        1 << self.level
    }

    /// Returns the stretches in order; one is empty if all its iterations were rejected.
    pub fn stretches(&self) -> &[Stretch] {
        &self.stretches
    }

    /// Returns the memory in use, in bytes, without the value itself.
    pub fn bytes(&self) -> usize {
        self.stretches.capacity() * size_of::<Stretch>()
    }

    /// Returns the durations converted to another unit of time.
    pub(super) fn scaled(&self, time: impl Fn(u64) -> u64) -> Self {
        let scale =
            |it: &Stretch| Stretch { sum: time(it.sum), count: it.count, begin: time(it.begin) };
        Self { level: self.level, stretches: self.stretches.iter().map(scale).collect() }
    }

    /// Splits off the share `share` of each sum and count, in whole numbers; the sum of both parts
    /// is unchanged.
    pub(super) fn split(&mut self, share: impl Fn(u64) -> u64) -> Self {
        let mut other = self.clone();
        for (ours, theirs) in self.stretches.iter_mut().zip(&mut other.stretches) {
            *theirs = Stretch { sum: share(ours.sum), count: share(ours.count), ..*ours };
            ours.sum -= theirs.sum;
            ours.count -= theirs.count;
        }
        other
    }

    fn halve(&mut self) {
        let halves = self.stretches.chunks(2).map(|pair| {
            let mut both = pair[0];
            pair.get(1).into_iter().for_each(|next| both.add(*next));
            both
        });
        self.stretches = halves.collect();
        self.level += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_durations_are_few_sums() {
        let mut durations = Durations::default();
        for number in 0..1_000_000u64 {
            durations.add(number, 10 * number, number % 1000);
        }
        let stretches = durations.stretches();
        assert!((MAX_DURATIONS / 2..=MAX_DURATIONS).contains(&stretches.len()));
        let sum: u64 = stretches.iter().map(|stretch| stretch.sum).sum();
        assert_eq!(sum, 1000 * (999 * 1000 / 2));
        let full = &stretches[..stretches.len() - 1];
        assert!(full.iter().all(|stretch| stretch.count == durations.stride()));
        assert_eq!(stretches.iter().map(|stretch| stretch.count).sum::<u64>(), 1_000_000);
        let begins = stretches.iter().map(|stretch| stretch.begin);
        assert!(begins.eq((0..).step_by(10 * durations.stride() as usize).take(stretches.len())));
    }

    #[test]
    fn instances_of_different_lengths_merge_number_by_number() {
        let (mut long, mut short) = (Durations::default(), Durations::default());
        (0..1000).for_each(|number| long.add(number, 50 + 7 * number, 7));
        (0..3).for_each(|number| short.add(number, 5 * number, 5));
        let mut merged = short.clone();
        merged.merge(long.clone());
        long.merge(short);
        assert_eq!(merged, long);
        assert_eq!(merged.stride(), 8);
        assert_eq!(merged.stretches()[0], Stretch { sum: 8 * 7 + 3 * 5, count: 11, begin: 0 });
        assert_eq!(merged.stretches()[1], Stretch { sum: 8 * 7, count: 8, begin: 50 + 7 * 8 });
        merged.thin(10);
        assert_eq!(merged.stretches().iter().map(|stretch| stretch.count).sum::<u64>(), 1003);
        assert!(merged.stretches().len() <= 10);
    }
}
