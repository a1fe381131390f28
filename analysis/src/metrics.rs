//! Statistics over ranks as accumulators (SC10, Algorithm 1): initialize, accumulate one rank,
//! combine two partial results, finalize.
//!
//! Accumulators hold integers, so that neither the order of ranks nor the shape of the reduction
//! changes a digit. Where SC10's standard deviation subtracts two large numbers, ours subtracts
//! exactly: it cannot become negative or NaN.

use serde::{Deserialize, Serialize};

use crate::summary::Metric;

/// Nanoseconds per second.
pub const NS_PER_S: f64 = 1e9;

/// Partial statistics of one time over ranks. Times in nanoseconds; up to 10^6 ranks of 10^8 s
/// each without loss, and beyond that it saturates.
///
/// Most of the memory of totals is accumulators: packed, they take 56 bytes instead of 64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[repr(C, packed(8))]
pub struct Accumulator {
    /// Sum over ranks, in nanoseconds.
    pub sum: u128,
    squares: u128,
    min_observed: u64,
    /// Maximum over ranks, in nanoseconds.
    pub max: u64,
    /// Number of observed ranks.
    pub ranks: u32,
}

impl Default for Accumulator {
    /// SC10's initialize: no rank yet.
    fn default() -> Self {
        Self { sum: 0, squares: 0, min_observed: u64::MAX, max: 0, ranks: 0 }
    }
}

impl Accumulator {
    /// Adds one rank's value.
    pub fn accumulate(&mut self, value: u64) {
        let wide = u128::from(value);
        self.combine(&Self {
            sum: wide,
            squares: wide * wide,
            min_observed: value,
            max: value,
            ranks: 1,
        });
    }

    /// Adds the ranks of another partial result.
    pub fn combine(&mut self, other: &Self) {
        self.sum = self.sum.saturating_add(other.sum);
        self.squares = self.squares.saturating_add(other.squares);
        self.min_observed = self.min_observed.min(other.min_observed);
        self.max = self.max.max(other.max);
        self.ranks += other.ranks;
    }

    /// Returns the minimum over all `ranks` of the job, in nanoseconds: a rank that was not
    /// observed has 0.
    pub fn min(&self, ranks: u32) -> u64 {
        if self.ranks == 0 || self.ranks < ranks { 0 } else { self.min_observed }
    }

    /// Returns the mean over all `ranks` of the job, in nanoseconds.
    pub fn mean(&self, ranks: u32) -> f64 {
        if ranks == 0 { 0.0 } else { self.sum as f64 / f64::from(ranks) }
    }

    /// Returns the maximum minus the mean over all `ranks` of the job, in nanoseconds: PPoPP20's
    /// imb_cause.
    pub fn imbalance(&self, ranks: u32) -> f64 {
        let spread = (u128::from(self.max) * u128::from(ranks)).saturating_sub(self.sum);
        if ranks == 0 { 0.0 } else { spread as f64 / f64::from(ranks) }
    }

    /// Returns the statistics in seconds over all `ranks` of the job.
    pub fn finalize(&self, ranks: u32) -> Metric {
        Metric {
            mean_s: self.mean(ranks) / NS_PER_S,
            min_s: self.min(ranks) as f64 / NS_PER_S,
            min_observed_s: (self.ranks > 0).then_some(self.min_observed as f64 / NS_PER_S),
            max_s: self.max as f64 / NS_PER_S,
            sum_s: self.sum as f64 / NS_PER_S,
            stddev_s: self.variance(ranks).sqrt() / NS_PER_S,
            ranks: self.ranks,
            estimate: None,
        }
    }

    /// Returns the population variance, in square nanoseconds. With sum = n m + r, the squared
    /// distances from the whole number m add up to squares - n m^2 - 2 m r without rounding; what
    /// is left to subtract for the fraction r / n is less than 1.
    pub(crate) fn variance(&self, ranks: u32) -> f64 {
        if ranks == 0 {
            return 0.0;
        }
        let n = u128::from(ranks);
        let (m, r) = (self.sum / n, self.sum % n);
        let subtrahend = m.saturating_mul(m.saturating_mul(n).saturating_add(2 * r));
        let distances = self.squares.saturating_sub(subtrahend);
        let fraction = r as f64 / n as f64;
        (distances as f64 / n as f64 - fraction * fraction).max(0.0)
    }
}

impl FromIterator<u64> for Accumulator {
    fn from_iter<I: IntoIterator<Item = u64>>(values: I) -> Self {
        let mut accumulator = Self::default();
        for value in values {
            accumulator.accumulate(value);
        }
        accumulator
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn absent_ranks_are_zero_and_show_in_everything_but_the_least_observed() {
        let metric = Accumulator::from_iter([2_000_000_000, 6_000_000_000]).finalize(8);
        let truth = Metric {
            mean_s: 1.0,
            min_s: 0.0,
            min_observed_s: Some(2.0),
            max_s: 6.0,
            sum_s: 8.0,
            stddev_s: 2.0,
            ranks: 2,
            estimate: None,
        };
        assert_eq!(metric, truth);
        assert_eq!(Accumulator::default().finalize(4).min_observed_s, None);
        assert_eq!(Accumulator::default().finalize(0).mean_s, 0.0);
    }

    #[test]
    fn equal_values_deviate_by_nothing() {
        let month_ns = 2_592_000_000_000_001;
        let accumulator: Accumulator = std::iter::repeat_n(month_ns, 1_000_003).collect();
        assert_eq!(accumulator.finalize(1_000_003).stddev_s, 0.0);
        let mut other = accumulator;
        other.accumulate(month_ns + 2);
        assert!(other.finalize(1_000_004).stddev_s > 0.0);
    }

    fn accumulator() -> impl Strategy<Value = Accumulator> {
        prop::collection::vec(0..u64::MAX, 0..6).prop_map(Accumulator::from_iter)
    }

    fn combined(a: &Accumulator, b: &Accumulator) -> Accumulator {
        let mut sum = *a;
        sum.combine(b);
        sum
    }

    proptest! {
        #[test]
        fn combining_is_associative_and_free_of_order(
            a in accumulator(), b in accumulator(), c in accumulator(),
        ) {
            prop_assert_eq!(combined(&a, &b), combined(&b, &a));
            prop_assert_eq!(combined(&combined(&a, &b), &c), combined(&a, &combined(&b, &c)));
            prop_assert_eq!(combined(&a, &Accumulator::default()), a);
        }

        #[test]
        fn statistics_agree_with_their_definitions(
            values in prop::collection::vec(0u64..1 << 50, 1..40), absent in 0u32..5,
        ) {
            let n = values.len() as u32 + absent;
            let metric = Accumulator::from_iter(values.iter().copied()).finalize(n);
            let seconds: Vec<f64> = values.iter().map(|value| *value as f64 / NS_PER_S)
                .chain(std::iter::repeat_n(0.0, absent as usize)).collect();
            let mean = seconds.iter().sum::<f64>() / f64::from(n);
            let squares: f64 = seconds.iter().map(|value| (value - mean).powi(2)).sum();
            let deviation = (squares / f64::from(n)).sqrt();
            prop_assert!((metric.mean_s - mean).abs() <= 1e-9 * mean.max(1e-9));
            prop_assert!((metric.stddev_s - deviation).abs() <= 1e-6 * deviation.max(1e-3));
            prop_assert_eq!(metric.max_s, seconds.iter().copied().fold(0.0, f64::max));
            prop_assert_eq!(metric.min_s, seconds.iter().copied().fold(f64::MAX, f64::min));
        }
    }
}
