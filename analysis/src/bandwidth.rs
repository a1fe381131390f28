//! Estimates the bandwidth between ranks from the bytes and times of calls.
//!
//! A call that moves its data itself, from begin to end, gives an observation; so does an exchange
//! by nonblocking calls in a function that does little else, from the first call to the last. A
//! call that only completes a transfer that went on while the ranks computed takes too short a
//! time: it is used only if no better observation of messages of that size exists. The size of a
//! receive's buffer is not the number of bytes received, so receives give no observations. Any call
//! may include waiting, and a few seem implausibly fast (messages to the rank itself, data that is
//! only copied to be sent later). The estimate is therefore neither the mean nor the maximum but a
//! high quantile over all ranks, phases and contexts, by message size.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

use crate::map_merge::merge;
use crate::metrics::NS_PER_S;

/// Quantile of the observations that is taken as bandwidth, in percent.
const QUANTILE_PERCENT: u64 = 90;
/// Minimum number of bytes of an observation: with fewer, the cost of the call dominates.
const MIN_BYTES: u64 = 1 << 20;
/// Minimum bandwidth assumed between any two ranks, in bytes per second: if every observed call
/// waited, no observation shows the true bandwidth.
const MIN_BANDWIDTH: u64 = 100_000_000;
/// Significant bits of a bandwidth that are kept; the kept value is at most 1/16 too low.
const KEPT_BITS: u32 = 5;

/// Number of observations by bandwidth in bytes per second.
type Histogram = BTreeMap<u64, u64>;

/// Observations by the binary logarithm of the bytes of a call.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bandwidths {
    /// Operations measured from begin to end.
    whole: BTreeMap<u32, Histogram>,
    /// Calls that completed transfers started by earlier calls, possibly long before.
    completed: BTreeMap<u32, Histogram>,
}

impl Bandwidths {
    /// Adds operations measured from begin to end: their number, bytes and time.
    pub fn add_whole(&mut self, calls: u64, bytes: u64, time_ns: u64) {
        add(&mut self.whole, calls, bytes, time_ns);
    }

    /// Adds calls that completed transfers started by earlier calls.
    pub fn add_completed(&mut self, calls: u64, bytes: u64, time_ns: u64) {
        add(&mut self.completed, calls, bytes, time_ns);
    }

    /// Merges the observations of other ranks.
    pub fn combine(&mut self, other: Self) {
        let both = [(&mut self.whole, other.whole), (&mut self.completed, other.completed)];
        for (ours, theirs) in both {
            merge(ours, theirs, |ours, theirs| merge(ours, theirs, |ours, count| *ours += count));
        }
    }

    /// Returns the minimum time in which `calls` can move `bytes` in total, in nanoseconds.
    pub fn least_ns(&self, calls: u64, bytes: u64) -> f64 {
        bytes as f64 / self.of(size(calls, bytes)) as f64 * NS_PER_S
    }

    /// Returns the bandwidth, in bytes per second, of messages of a size, or of the nearest
    /// observed size.
    fn of(&self, size: u32) -> u64 {
        let nearest = (0..u64::BITS).find_map(|distance| {
            let sizes = [size + distance, size.saturating_sub(distance)];
            let known = [&self.whole, &self.completed];
            known.iter().find_map(|known| sizes.iter().find_map(|size| known.get(size)))
        });
        nearest.map_or(0, quantile).max(MIN_BANDWIDTH)
    }
}

fn size(calls: u64, bytes: u64) -> u32 {
    (bytes / calls.max(1)).max(1).ilog2()
}

fn add(observed: &mut BTreeMap<u32, Histogram>, calls: u64, bytes: u64, time_ns: u64) {
    if bytes < MIN_BYTES || time_ns == 0 {
        return;
    }
    let exactly = u128::from(bytes) * 1_000_000_000 / u128::from(time_ns);
    let exactly = u64::try_from(exactly).unwrap_or(u64::MAX);
    let dropped = (u64::BITS - exactly.leading_zeros()).saturating_sub(KEPT_BITS);
    let histogram = observed.entry(size(calls, bytes)).or_default();
    *histogram.entry(exactly >> dropped << dropped).or_default() += 1;
}

fn quantile(histogram: &Histogram) -> u64 {
    let count: u64 = histogram.values().sum();
    let mut left = (count * QUANTILE_PERCENT).div_ceil(100);
    for (bandwidth, count) in histogram {
        if *count >= left {
            return *bandwidth;
        }
        left -= count;
    }
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn nine_of_ten_count_and_the_tenth_may_be_absurd() {
        let mut seen = Bandwidths::default();
        // 400 MB per second, except for calls that waited and one call that took hardly any time.
        for _ in 0..4 {
            seen.add_whole(4, 400_000_000, 2 * SECOND);
        }
        for _ in 0..5 {
            seen.add_whole(4, 400_000_000, SECOND);
        }
        assert_eq!(seen.of(26), 400_000_000 >> 24 << 24);
        seen.add_whole(4, 400_000_000, 1000);
        assert_eq!(seen.of(26), 400_000_000 >> 24 << 24);
        // With fewer than ten observations the fastest one is returned.
        let mut one = Bandwidths::default();
        one.add_whole(1, 400_000_000, 2 * SECOND);
        one.add_whole(1, 400_000_000, SECOND);
        assert_eq!(one.of(28), 400_000_000 >> 24 << 24);
    }

    #[test]
    fn each_size_has_its_own_pace_and_the_nearest_stands_for_the_others() {
        let mut seen = Bandwidths::default();
        assert_eq!(seen.least_ns(1, 100_000_000), NS_PER_S, "the least that any way brings");
        seen.add_whole(1, 4 * MIB, SECOND / 256);
        seen.add_whole(64, 4 * MIB, SECOND / 128);
        seen.add_completed(1, 64 * MIB, SECOND / 32);
        seen.add_completed(64, 4 * MIB, SECOND / 1024);
        seen.add_whole(1, MIB - 1, 1);
        for (calls, bytes, parts) in
            [(1, 4 * MIB, 256), (2, 4 * MIB, 256), (64, 4 * MIB, 128), (1, 128 * MIB, 16)]
        {
            assert_eq!(seen.least_ns(calls, bytes), NS_PER_S / f64::from(parts), "{bytes}");
        }
    }

    #[test]
    fn ranks_add_up_in_any_order() {
        let of = |bytes: u64| {
            let mut seen = Bandwidths::default();
            seen.add_whole(1, bytes, SECOND);
            seen.add_completed(2, bytes, SECOND);
            seen
        };
        let (mut a, mut b) = (of(300 * MIB), of(500 * MIB));
        a.combine(of(500 * MIB));
        b.combine(of(300 * MIB));
        assert_eq!(a, b);
    }
}
