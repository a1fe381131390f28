//! Moments of a metric over the ranks of a stratum.

use serde::{Deserialize, Serialize};

/// Maximum value of a rank: no sum over 2^22 ranks overflows.
pub const MAX_VALUE: u64 = 1 << 34;

/// Number, sum, squares and cubes of the values of some ranks. All are integers, so that neither
/// the order of ranks nor the shape of the reduction changes a digit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StratumMoments {
    /// Number of ranks.
    pub ranks: u32,
    sum: u128,
    squares: u128,
    cubes: u128,
}

/// Central moments of a stratum, in powers of the unit of its values.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CentralMoments {
    /// Mean.
    pub mean: f64,
    /// Variance with divisor ranks - 1 (S^2 of Cochran); 0 for a single rank.
    pub variance: f64,
    /// Third central moment with divisor ranks.
    pub third: f64,
}

impl StratumMoments {
    /// Adds the value of one rank; values above [`MAX_VALUE`] count as that.
    pub fn add(&mut self, value: u64) {
        let wide = u128::from(value.min(MAX_VALUE));
        self.combine(&Self { ranks: 1, sum: wide, squares: wide.pow(2), cubes: wide.pow(3) });
    }

    /// Adds other ranks.
    pub fn combine(&mut self, other: &Self) {
        self.ranks += other.ranks;
        self.sum = self.sum.saturating_add(other.sum);
        self.squares = self.squares.saturating_add(other.squares);
        self.cubes = self.cubes.saturating_add(other.cubes);
    }

    /// Returns mean, variance and third moment; all 0 without ranks. The sums are moved to the
    /// whole part of the mean exactly, so that no large numbers cancel in floating point.
    pub fn central(&self) -> CentralMoments {
        if self.ranks == 0 {
            return CentralMoments::default();
        }
        let ranks = i128::from(self.ranks);
        // Below 2^126 by the bound on values.
        let [sum, squares, cubes] = [self.sum, self.squares, self.cubes].map(|sum| sum as i128);
        let middle = sum / ranks;
        let rest = sum % ranks;
        let square = middle * middle;
        // Sums of (x - middle)^2 and (x - middle)^3.
        let about_squares = squares.wrapping_sub(2 * middle * sum).wrapping_add(ranks * square);
        let about_cubes = cubes
            .wrapping_sub(middle.wrapping_mul(squares).wrapping_mul(3))
            .wrapping_add(square.wrapping_mul(sum).wrapping_mul(3))
            .wrapping_sub(square.wrapping_mul(middle).wrapping_mul(ranks));
        let count = ranks as f64;
        let fraction = rest as f64 / count;
        let spread = (about_squares as f64 - count * fraction * fraction).max(0.0);
        let third = about_cubes as f64 / count - 3.0 * fraction * about_squares as f64 / count
            + 2.0 * fraction.powi(3);
        Self::of(middle as f64 + fraction, spread, count, third)
    }

    fn of(mean: f64, spread: f64, count: f64, third: f64) -> CentralMoments {
        let variance = if count > 1.0 { spread / (count - 1.0) } else { 0.0 };
        CentralMoments { mean, variance, third }
    }
}

impl CentralMoments {
    /// Returns the moments of values `unit` times as large.
    pub fn scaled(self, unit: f64) -> Self {
        Self {
            mean: self.mean * unit,
            variance: self.variance * unit.powi(2),
            third: self.third * unit.powi(3),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn of(values: &[u64]) -> StratumMoments {
        let mut moments = StratumMoments::default();
        values.iter().for_each(|value| moments.add(*value));
        moments
    }

    #[test]
    fn moments_of_few_values_are_those_by_hand() {
        assert_eq!(of(&[]).central(), CentralMoments::default());
        assert_eq!(of(&[7]).central(), CentralMoments { mean: 7.0, variance: 0.0, third: 0.0 });
        // Deviations from 4: -3, -2, 5; squares 38, cubes 90.
        let truth = CentralMoments { mean: 4.0, variance: 19.0, third: 30.0 };
        assert_eq!(of(&[1, 2, 9]).central(), truth);
        let twice = CentralMoments { mean: 8.0, variance: 76.0, third: 240.0 };
        assert_eq!(of(&[1, 2, 9]).central().scaled(2.0), twice);
    }

    /// A million values near the largest, with a deviation of one unit.
    #[test]
    fn small_deviations_of_many_large_values_are_exact() {
        let large = MAX_VALUE;
        let mut moments = StratumMoments::default();
        let one = of(&[large, large - 1, large - 1, large - 1]);
        let mut block = one;
        for _ in 0..18 {
            let same = block;
            block.combine(&same);
        }
        moments.combine(&block);
        assert_eq!(moments.ranks, 1 << 20);
        let CentralMoments { mean, variance, third } = moments.central();
        assert_eq!(mean, (large - 1) as f64 + 0.25);
        assert!((variance - 0.1875).abs() < 1e-6, "{variance}");
        assert!((third - 0.09375).abs() < 1e-9, "{third}");
    }

    proptest! {
        #[test]
        fn moments_agree_with_their_definitions(
            values in prop::collection::vec(0u64..1 << 30, 1..40), split in 0usize..40,
        ) {
            let split = split.min(values.len());
            let mut joined = of(&values[split..]);
            joined.combine(&of(&values[..split]));
            prop_assert_eq!(joined, of(&values));
            let n = values.len() as f64;
            let mean = values.iter().map(|it| *it as f64).sum::<f64>() / n;
            let deviations = values.iter().map(|it| *it as f64 - mean);
            let power = |power| deviations.clone().map(|it| it.powi(power)).sum::<f64>();
            let found = joined.central();
            prop_assert!((found.mean - mean).abs() <= 1e-9 * mean.max(1.0));
            let variance = if n > 1.0 { power(2) / (n - 1.0) } else { 0.0 };
            prop_assert!((found.variance - variance).abs() <= 1e-9 * variance.max(1.0));
            let size = values.iter().map(|it| (*it as f64 - mean).abs().powi(3)).sum::<f64>() / n;
            prop_assert!((found.third - power(3) / n).abs() <= 1e-6 * size.max(1.0));
        }
    }
}
