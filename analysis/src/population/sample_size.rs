//! Number of ranks to sample in each stratum, from the variance of all ranks.

use super::mean_interval::{EstimateVariance, SampledStratum, half_width};
use super::stratum_moments::CentralMoments;
use crate::thresholds::{MAX_ESTIMATE_SKEWNESS, MIN_ESTIMATE_DEGREES, MIN_INTERVAL_FRACTION};

/// Minimum number of sampled ranks per stratum, without which its variance is unknown.
const MIN_SAMPLED: u32 = 2;
/// Number of halvings in the search for the smallest sample: more than digits of a double.
const MAX_STEPS: u32 = 64;

/// Precision that a sample must have.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Precision {
    /// Minimum probability that an interval contains the mean.
    pub confidence: f64,
    /// Maximum half-width of the interval, as a fraction of the mean.
    pub error: f64,
}

/// A metric over the ranks of a stratified population.
#[derive(Clone, Debug, PartialEq)]
pub struct StratifiedMetric {
    /// Number of ranks in each stratum.
    pub sizes: Vec<u32>,
    /// Moments of each stratum.
    pub moments: Vec<CentralMoments>,
}

/// Returns the half-width of the interval of an estimated mean: that of [`half_width`], but not
/// less than a part of the requested error unless all ranks are sampled, since the spread of a few
/// sampled ranks may be small by chance.
pub fn interval_half_width(
    strata: &[SampledStratum],
    precision: Precision,
    mean: f64,
) -> Option<f64> {
    let width = half_width(strata, precision.confidence)?;
    let is_whole = strata.iter().all(SampledStratum::is_whole);
    Some(if is_whole { width } else { width.max(precision.floor(mean)) })
}

impl Precision {
    /// Returns the smallest half-width of an interval, unless all ranks are sampled.
    fn floor(&self, mean: f64) -> f64 {
        MIN_INTERVAL_FRACTION * self.error * mean
    }
}

impl StratifiedMetric {
    /// Returns the mean over all ranks.
    pub fn mean(&self) -> f64 {
        let sum: f64 = self.each().map(|(size, moments)| size * moments.mean).sum();
        sum / self.population()
    }

    /// Returns the smallest sample, at least as large as `least` in each stratum, with which the
    /// metric has the precision.
    ///
    /// The sample is allocated to strata in proportion to size and standard deviation (Neyman;
    /// Cochran, 5.5). A stratum that would need more ranks than it has is sampled as a whole, and
    /// the proportion holds for the others (Cochran, 5.8). For a single stratum, with the normal
    /// distribution in place of Student's t, the number is that of Cochran, 4.6:
    /// n = n0 / (1 + n0 / N) with n0 = (z S / d)^2. The formula of the slides, N s^2 / (N^2 V^2 +
    /// s^2) with V = (d / z)^2, depends on the unit of time.
    pub fn required(&self, precision: Precision, least: &[u32]) -> Vec<u32> {
        let weights = self.each().map(|(size, moments)| size * moments.variance.sqrt());
        let weights: Vec<f64> = weights.collect();
        let sample = |scale: f64| -> Vec<u32> {
            let strata = self.sizes.iter().zip(least).zip(&weights);
            let number = |((size, least), weight): ((&u32, &u32), &f64)| {
                let wanted = (scale * weight).ceil().min(f64::from(*size)) as u32;
                wanted.max(*least).min(*size)
            };
            strata.map(number).collect()
        };
        let smallest = sample(0.0);
        if self.has(precision, &smallest) {
            return smallest;
        }
        // With the largest scale, all strata with different ranks are whole.
        let varying = self.each().map(|(_, moments)| moments.variance).filter(|it| *it > 0.0);
        let (mut low, mut high) = (0.0, varying.map(|it| it.sqrt().recip()).fold(0.0, f64::max));
        for _ in 0..MAX_STEPS {
            let middle = (low + high) / 2.0;
            if sample(low) == sample(high) || middle <= low || middle >= high {
                break;
            }
            match self.has(precision, &sample(middle)) {
                true => high = middle,
                false => low = middle,
            }
        }
        sample(high)
    }

    /// Returns whether a sample has the precision: the interval to expect is narrow enough, and the
    /// intervals of drawn samples hold the mean, for one of two reasons. Either the estimate is
    /// nearly normally distributed; or the smallest half-width is a large multiple of the
    /// estimate's standard deviation: by Chebyshev's inequality, no distribution exceeds it too
    /// often.
    pub fn has(&self, precision: Precision, sampled: &[u32]) -> bool {
        let (strata, mean) = (self.strata(sampled), self.mean());
        let (Some(width), Some(EstimateVariance { variance, degrees })) =
            (half_width(&strata, precision.confidence), EstimateVariance::of(&strata))
        else {
            return false;
        };
        let floor = precision.floor(mean);
        let is_covered = || variance <= (1.0 - precision.confidence) * floor * floor;
        let is_nearly_normal =
            || degrees >= MIN_ESTIMATE_DEGREES && self.skewness(sampled) <= MAX_ESTIMATE_SKEWNESS;
        width <= precision.error * mean && (is_covered() || is_nearly_normal())
    }

    /// Returns the strata with these numbers of sampled ranks, and the variance of all ranks.
    pub fn strata(&self, sampled: &[u32]) -> Vec<SampledStratum> {
        let strata = self.sizes.iter().zip(sampled).zip(&self.moments);
        let stratum = |((size, sampled), moments): ((&u32, &u32), &CentralMoments)| {
            SampledStratum { size: *size, sampled: *sampled, variance: moments.variance }
        };
        strata.map(stratum).collect()
    }

    /// Returns the skewness of the estimate. The finite population correction is left out: it
    /// describes the estimate, but not the variance that is estimated with it.
    fn skewness(&self, sampled: &[u32]) -> f64 {
        let (mut second, mut third) = (0.0, 0.0);
        for ((size, moments), sampled) in self.each().zip(sampled) {
            let sampled = f64::from(*sampled);
            if sampled < size {
                second += size.powi(2) * moments.variance / sampled;
                third += size.powi(3) * moments.third.abs() / sampled.powi(2);
            }
        }
        if second > 0.0 { third / second.powf(1.5) } else { 0.0 }
    }

    fn population(&self) -> f64 {
        self.sizes.iter().map(|size| f64::from(*size)).sum()
    }

    fn each(&self) -> impl Iterator<Item = (f64, &CentralMoments)> {
        self.sizes.iter().map(|size| f64::from(*size)).zip(&self.moments)
    }
}

/// Returns the smallest permitted sample: all ranks of small strata, two of the others.
pub fn smallest(sizes: &[u32]) -> Vec<u32> {
    sizes.iter().map(|size| MIN_SAMPLED.min(*size)).collect()
}

/// Returns a sample with which all metrics have the precision: each metric adds the ranks that it
/// lacks. More ranks in one stratum can leave another metric with fewer effective degrees of
/// freedom, so metrics are checked again until all have the precision.
pub fn sufficient(metrics: &[StratifiedMetric], sizes: &[u32], precision: Precision) -> Vec<u32> {
    let mut sampled = smallest(sizes);
    loop {
        let before = sampled.clone();
        for metric in metrics {
            sampled = metric.required(precision, &sampled);
        }
        if sampled == before {
            return sampled;
        }
    }
}

#[cfg(test)]
mod tests;
