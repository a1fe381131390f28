//! Mean of a stratified population from a sample, with its confidence interval (Cochran, *Sampling
//! Techniques*, third edition, chapter 5).

use statrs::distribution::{ContinuousCDF, StudentsT};

/// Maximum degrees of freedom: beyond them, Student's t is the normal distribution to five digits.
const MAX_DEGREES: f64 = 65_536.0;

/// One stratum of a sample, in one metric.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct SampledStratum {
    /// Number of ranks in the stratum.
    pub size: u32,
    /// Number of sampled ranks.
    pub sampled: u32,
    /// Variance with divisor n - 1: of all ranks to plan a sample, of the sampled ranks to evaluate
    /// it.
    pub variance: f64,
}

impl SampledStratum {
    /// Returns whether all ranks of the stratum are sampled, so that its mean is exact.
    pub fn is_whole(&self) -> bool {
        self.sampled >= self.size
    }
}

/// Variance of an estimated mean.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EstimateVariance {
    /// The variance.
    pub variance: f64,
    /// Effective degrees of freedom; infinite if the variance is 0.
    pub degrees: f64,
}

/// Returns the half-width of the interval that contains the mean of the population with the given
/// probability, by Student's t; `None` if a stratum has fewer than two sampled ranks and others.
pub fn half_width(strata: &[SampledStratum], confidence: f64) -> Option<f64> {
    let EstimateVariance { variance, degrees } = EstimateVariance::of(strata)?;
    Some(if variance > 0.0 { quantile(confidence, degrees) * variance.sqrt() } else { 0.0 })
}

impl EstimateVariance {
    /// Returns the variance of the estimate: the sum over strata of (N_h / N)^2 (1 - n_h / N_h)
    /// s_h^2 / n_h (Cochran, 5.3), with the effective degrees of freedom of Satterthwaite (Cochran,
    /// 5.4), which lie between the smallest n_h - 1 and the sum of all n_h - 1. `None` if a stratum
    /// has fewer than two sampled ranks and others.
    pub fn of(strata: &[SampledStratum]) -> Option<Self> {
        let population: f64 = strata.iter().map(|stratum| f64::from(stratum.size)).sum();
        let (mut variance, mut squares) = (0.0, 0.0);
        for stratum in strata.iter().filter(|stratum| !stratum.is_whole()) {
            if stratum.sampled < 2 {
                return None;
            }
            let (size, sampled) = (f64::from(stratum.size), f64::from(stratum.sampled));
            let part = size * (size - sampled) / sampled * stratum.variance / population.powi(2);
            variance += part;
            squares += part * part / (sampled - 1.0);
        }
        let degrees = if squares > 0.0 { variance * variance / squares } else { f64::INFINITY };
        Some(Self { variance, degrees })
    }
}

/// Returns the t of a two-sided interval.
fn quantile(confidence: f64, degrees: f64) -> f64 {
    let degrees = degrees.clamp(1.0, MAX_DEGREES);
    let distribution = StudentsT::new(0.0, 1.0, degrees);
    // The parameters are valid: the scale is 1 and the degrees are at least 1.
    distribution.map_or(f64::INFINITY, |it| it.inverse_cdf(0.5 + confidence / 2.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quantiles_are_those_of_the_tables() {
        for (confidence, degrees, truth) in [
            (0.95, 1.0, 12.706),
            (0.95, 2.0, 4.303),
            (0.95, 10.0, 2.228),
            (0.95, 1e9, 1.960),
            (0.99, 1.0, 63.657),
            (0.99, 5.0, 4.032),
            (0.99, 120.0, 2.617),
            (0.90, 3.0, 2.353),
            (0.5, 4.0, 0.741),
            (0.999, 20.0, 3.850),
            (0.95, f64::INFINITY, 1.960),
        ] {
            let found = quantile(confidence, degrees);
            assert!((found - truth).abs() < 6e-4, "{confidence} {degrees}: {found}");
        }
        // Between whole degrees of freedom it decreases.
        assert!(quantile(0.95, 1.0) > quantile(0.95, 1.5));
        assert!(quantile(0.95, 1.5) > quantile(0.95, 2.0));
    }

    fn variance(values: &[f64]) -> f64 {
        let mean = values.iter().sum::<f64>() / values.len() as f64;
        let squares: f64 = values.iter().map(|value| (value - mean).powi(2)).sum();
        squares / (values.len() - 1) as f64
    }

    /// The variance over all samples that can be drawn is that of the formula, with the finite
    /// population correction.
    #[test]
    fn variance_of_the_estimate_is_that_of_all_possible_samples() {
        let strata: [&[f64]; 2] = [&[1.0, 4.0, 6.0, 13.0, 2.0], &[30.0, 31.0, 35.0, 36.0]];
        let sampled = [3, 2];
        let subsets = |values: &[f64], size: u32| -> Vec<f64> {
            let all = 0u32..1 << values.len();
            let chosen = all.filter(|mask| mask.count_ones() == size);
            let mean = |mask: u32| {
                let of = values.iter().enumerate().filter(|(at, _)| mask & 1 << at != 0);
                of.map(|(_, value)| value).sum::<f64>() / f64::from(size)
            };
            chosen.map(mean).collect()
        };
        let means: Vec<Vec<f64>> =
            strata.iter().zip(sampled).map(|(values, size)| subsets(values, size)).collect();
        let estimates: Vec<f64> = means[0]
            .iter()
            .flat_map(|one| means[1].iter().map(move |other| (5.0 * one + 4.0 * other) / 9.0))
            .collect();
        assert_eq!(estimates.len(), 60);
        let count = estimates.len() as f64;
        let truth = variance(&estimates) * (count - 1.0) / count;
        let strata = strata.iter().zip(sampled).map(|(values, sampled)| SampledStratum {
            size: values.len() as u32,
            sampled,
            variance: variance(values),
        });
        let strata: Vec<SampledStratum> = strata.collect();
        let parts: Vec<f64> = strata
            .iter()
            .map(|it| {
                let (size, sampled) = (f64::from(it.size), f64::from(it.sampled));
                (size / 9.0).powi(2) * (1.0 - sampled / size) * it.variance / sampled
            })
            .collect();
        let of_formula: f64 = parts.iter().sum();
        assert!((of_formula - truth).abs() < 1e-12 * truth, "{of_formula} {truth}");
        let degrees = of_formula.powi(2) / (parts[0].powi(2) / 2.0 + parts[1].powi(2));
        let expected = quantile(0.9, degrees) * truth.sqrt();
        let found = half_width(&strata, 0.9).unwrap();
        assert!((found - expected).abs() < 1e-9 * expected, "{found} {expected}");
    }

    #[test]
    fn whole_strata_are_exact_and_single_ranks_tell_no_variance() {
        let stratum = |size, sampled| SampledStratum { size, sampled, variance: 4.0 };
        assert_eq!(half_width(&[stratum(5, 5), stratum(1, 1)], 0.95), Some(0.0));
        assert_eq!(half_width(&[stratum(5, 1)], 0.95), None);
        assert_eq!(half_width(&[stratum(5, 0), stratum(9, 3)], 0.95), None);
        let equal = SampledStratum { variance: 0.0, ..stratum(5, 2) };
        assert_eq!(half_width(&[equal], 0.95), Some(0.0));
        assert!(half_width(&[stratum(5, 2), stratum(1, 1)], 0.95).unwrap() > 0.0);
    }
}
