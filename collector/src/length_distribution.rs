//! Distribution of durations over threads and ranks, for their median.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// Counts of durations by logarithmic buckets, sixteen for each power of two nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LengthDistribution {
    counts: BTreeMap<u16, u64>,
}

/// Bits below the leading one that tell the buckets of a power of two apart.
const FRACTION_BITS: u32 = 4;

impl LengthDistribution {
    /// Adds `count` durations of `ns` nanoseconds.
    pub fn add(&mut self, ns: u64, count: u64) {
        let ns = ns.max(1 << FRACTION_BITS);
        let bits = ns.ilog2();
        let fraction = (ns >> (bits - FRACTION_BITS)) as u16 & ((1 << FRACTION_BITS) - 1);
        let sum = self.counts.entry((bits as u16) << FRACTION_BITS | fraction).or_default();
        *sum = sum.saturating_add(count);
    }

    /// Adds the durations of another distribution.
    pub fn combine(&mut self, other: &Self) {
        for (bucket, count) in &other.counts {
            let sum = self.counts.entry(*bucket).or_default();
            *sum = sum.saturating_add(*count);
        }
    }

    /// Returns the median in nanoseconds, within 4 % of that of the added durations; `None` without
    /// durations.
    pub fn median_ns(&self) -> Option<u64> {
        let whole: u128 = self.counts.values().map(|count| u128::from(*count)).sum();
        let mut before = 0;
        self.counts.iter().find_map(|(bucket, count)| {
            before += u128::from(*count);
            (2 * before >= whole && whole > 0).then(|| middle_of(*bucket))
        })
    }
}

fn middle_of(bucket: u16) -> u64 {
    let bits = (u32::from(bucket) >> FRACTION_BITS).clamp(FRACTION_BITS, 63);
    let fraction = u64::from(bucket) & ((1 << FRACTION_BITS) - 1);
    let width = 1 << (bits - FRACTION_BITS);
    (1u64 << bits).saturating_add(fraction * width).saturating_add(width / 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_several_ranks_is_that_of_all_their_durations() {
        let mut all = LengthDistribution::default();
        assert_eq!(all.median_ns(), None);
        for (ns, count) in [(900, 10), (1_000_000, 5)] {
            all.add(ns, count);
        }
        let mut other = LengthDistribution::default();
        other.add(40_000, 12);
        all.combine(&other);
        // 10 below, 12 in the middle, 5 above.
        let median = all.median_ns().expect("there are durations") as f64;
        assert!((median / 40_000.0 - 1.0).abs() < 0.04, "{median}");
    }

    #[test]
    fn every_duration_is_near_the_middle_of_its_bucket() {
        let mut ns = 16;
        while ns < 1 << 50 {
            let mut one = LengthDistribution::default();
            one.add(ns, 1);
            let median = one.median_ns().expect("there is one") as f64;
            assert!((median / ns as f64 - 1.0).abs() < 0.04, "{ns} is {median}");
            ns += ns / 7 + 1;
        }
        let mut extreme = LengthDistribution::default();
        extreme.add(u64::MAX, 1);
        assert!(extreme.median_ns() > Some(u64::MAX / 2));
    }
}
