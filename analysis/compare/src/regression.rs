//! Regression: changes of contexts between two versions of equal size, relative to the noise.
//!
//! With repetitions, each context is tested by a t-test with a variance moderated by those of the
//! other contexts (Smyth, *Linear Models and Empirical Bayes Methods for Assessing Differential
//! Expression*, 2004): five runs alone estimate a variance badly, ten contexts of five runs do not.
//! With one run per version, the variance comes from the iterations within the runs. All tests
//! together give a false alarm with the probability [`crate::diff_thresholds::FALSE_ALARM_CHANCE`]
//! (Bonferroni).

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};
use statrs::function::gamma::digamma;

use crate::diff_thresholds::{
    ASSUMED_NOISE_FRACTION, FALSE_ALARM_CHANCE, MIN_CHANGE_FRACTION, MIN_FREEDOM,
    MIN_SINGLE_RUN_CHANGE, SINGLE_RUN_FREEDOM,
};
use crate::setups::mean;

/// Times of a context, or of the run, in the runs of two versions.
#[derive(Clone, Debug, PartialEq)]
pub struct Sample {
    /// Index of the context; `None` for the elapsed time.
    pub context: Option<u32>,
    /// Name of the context.
    pub name: String,
    /// Whether most of the time is not the program's own work: waiting varies with the work of
    /// other ranks.
    pub waits: bool,
    /// Seconds per rank in each run of the first version.
    pub before_s: Vec<f64>,
    /// Seconds per rank in each run of the second version.
    pub after_s: Vec<f64>,
}

/// Replacement for repetitions if each version has one run.
#[derive(Clone, Debug, PartialEq)]
pub struct WithinRuns {
    /// Relative deviation of iterations: what disturbs runs also disturbs iterations. `None`
    /// without iterations.
    pub iteration_deviation: Option<f64>,
    /// Sampling period in seconds.
    pub period_s: f64,
    /// Ranks.
    pub ranks: f64,
    /// Core seconds per rank in each run of the first version.
    pub core_before_s: Vec<f64>,
    /// Core seconds per rank in each run of the second version.
    pub core_after_s: Vec<f64>,
}

/// Comparison of two versions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Regression {
    /// Runs of the first and the second version.
    pub repetitions: [usize; 2],
    /// Source of the noise.
    pub noise: NoiseSource,
    /// Number of tests that share the probability of a false alarm.
    pub tests: usize,
    /// The elapsed time.
    pub elapsed: Difference,
    /// Contexts by falling change of the run time.
    pub contexts: Vec<Difference>,
}

/// Source of the noise.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NoiseSource {
    /// Runs of the same version.
    Repetitions,
    /// Iterations within single runs.
    Iterations,
    /// Neither: a constant.
    Assumed,
}

/// Time of a context before and after.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Difference {
    /// Index into the comparison's contexts; `None` for the elapsed time.
    pub context: Option<u32>,
    /// Name.
    pub name: String,
    /// Mean over runs of the seconds per rank, first version.
    pub before_s: f64,
    /// Mean over runs of the seconds per rank, second version.
    pub after_s: f64,
    /// Relative change; `None` if the first version took no time.
    pub change: Option<f64>,
    /// The change as a fraction of the first version's elapsed time, or, for a context, of its core
    /// time per rank.
    pub run_change: f64,
    /// Standard error of the change, as a fraction of the mean of both.
    pub error: f64,
    /// Probability of the difference by chance, before the correction for several tests.
    pub p_value: f64,
    /// Whether the difference exceeds the noise and the minimum change.
    pub significant: bool,
}

/// Compares samples; the first is the elapsed time. `None` without samples or without time.
pub fn regression(samples: &[Sample], within: &WithinRuns) -> Option<Regression> {
    let elapsed = samples.first()?;
    let counts = [elapsed.before_s.len(), elapsed.after_s.len()];
    let elapsed_s = mean(elapsed.before_s.iter().copied());
    let core_s = mean(within.core_before_s.iter().copied());
    let usable = counts[0] > 0 && counts[1] > 0 && elapsed_s > 0.0;
    let noise = match (counts, within.iteration_deviation) {
        ([1, 1], Some(_)) => NoiseSource::Iterations,
        ([1, 1], None) => NoiseSource::Assumed,
        _ => NoiseSource::Repetitions,
    };
    let variances = Variances::new(samples, within, counts);
    let tests = samples.len();
    let chance = FALSE_ALARM_CHANCE / tests as f64;
    let mut differences: Vec<Difference> = samples
        .iter()
        .enumerate()
        .map(|(index, sample)| {
            let scale = 1.0 / counts[0] as f64 + 1.0 / counts[1] as f64;
            let error = (variances.moderated(index) * scale).sqrt();
            let run_s = if sample.context.is_some() { core_s } else { elapsed_s };
            let mut difference = difference(sample, error, variances.freedom, run_s);
            let worth = difference.run_change.abs() >= MIN_CHANGE_FRACTION;
            let visible = noise == NoiseSource::Repetitions
                || difference.change.is_none_or(|change| change.abs() >= MIN_SINGLE_RUN_CHANGE);
            difference.significant = difference.p_value < chance && worth && visible;
            difference
        })
        .collect();
    if !usable {
        return None;
    }
    let mut elapsed = differences.remove(0);
    // Single runs may differ by other load on the machine: a difference of the elapsed time that no
    // context shows is not the program's.
    if noise != NoiseSource::Repetitions && !differences.is_empty() {
        elapsed.significant &= differences.iter().any(|difference| difference.significant);
    }
    differences.sort_by(|one, other| other.run_change.abs().total_cmp(&one.run_change.abs()));
    Some(Regression { repetitions: counts, noise, tests, elapsed, contexts: differences })
}

fn difference(sample: &Sample, error: f64, freedom: f64, run_s: f64) -> Difference {
    let (before_s, after_s) =
        (mean(sample.before_s.iter().copied()), mean(sample.after_s.iter().copied()));
    let middle_s = f64::midpoint(before_s, after_s);
    let t =
        if middle_s > 0.0 && error > 0.0 { (after_s - before_s) / middle_s / error } else { 0.0 };
    let student = StudentsT::new(0.0, 1.0, freedom.clamp(1.0, 1e6));
    let p_value = student.map_or(1.0, |student| 2.0 * student.cdf(-t.abs()));
    Difference {
        context: sample.context,
        name: sample.name.clone(),
        before_s,
        after_s,
        change: (before_s > 0.0).then(|| after_s / before_s - 1.0),
        run_change: if run_s > 0.0 { (after_s - before_s) / run_s } else { 0.0 },
        error,
        p_value,
        significant: false,
    }
}

/// Relative variances by sample.
struct Variances {
    own: Vec<f64>,
    own_freedom: f64,
    prior: f64,
    prior_freedom: f64,
    freedom: f64,
}

impl Variances {
    fn new(samples: &[Sample], within: &WithinRuns, counts: [usize; 2]) -> Self {
        let own_freedom = (counts[0] + counts[1]) as f64 - 2.0;
        if own_freedom < 1.0 {
            return Self::within_runs(samples, within);
        }
        let mut own: Vec<f64> =
            samples.iter().map(|sample| variance(sample, own_freedom)).collect();
        if own_freedom < MIN_FREEDOM {
            // Two runs that agree by chance do not show the deviation between runs; their
            // iterations do.
            let within = Self::within_runs(samples, within);
            own = own.into_iter().zip(within.own).map(|(own, it)| own.max(it)).collect();
        }
        let (prior, prior_freedom) = prior(&own, own_freedom);
        let freedom = own_freedom + prior_freedom;
        Self { own, own_freedom, prior, prior_freedom, freedom }
    }

    /// Returns variances from single runs: the deviation of their iterations plus the binomial
    /// variance of the number of samples in a context. The elapsed time is not sampled.
    fn within_runs(samples: &[Sample], within: &WithinRuns) -> Self {
        let deviation = within.iteration_deviation.unwrap_or(0.0).max(ASSUMED_NOISE_FRACTION / 2.0);
        let time_s = |before_s: &[f64], after_s: &[f64]| {
            mean(before_s.iter().chain(after_s).copied()) * within.ranks
        };
        let run_s = time_s(&within.core_before_s, &within.core_after_s);
        let of_sample = |sample: &Sample| {
            let total_s = time_s(&sample.before_s, &sample.after_s);
            let others = (1.0 - total_s / run_s).clamp(0.0, 1.0);
            let sampling = match sample.context {
                None => 0.0,
                Some(_) if total_s > 0.0 => (within.period_s / total_s).min(1.0) * others,
                Some(_) => 1.0,
            };
            let scale = if sample.waits && total_s > 0.0 { run_s / total_s } else { 1.0 };
            (deviation * scale).powi(2) + sampling
        };
        Self {
            own: samples.iter().map(of_sample).collect(),
            own_freedom: SINGLE_RUN_FREEDOM,
            prior: 0.0,
            prior_freedom: 0.0,
            freedom: SINGLE_RUN_FREEDOM,
        }
    }

    fn moderated(&self, index: usize) -> f64 {
        (self.own_freedom * self.own[index] + self.prior_freedom * self.prior) / self.freedom
    }
}

/// Returns the pooled variance of both versions, relative to the mean of both.
fn variance(sample: &Sample, freedom: f64) -> f64 {
    let squares = |values: &[f64]| -> f64 {
        let mean = mean(values.iter().copied());
        values.iter().map(|value| (value - mean).powi(2)).sum()
    };
    let middle =
        f64::midpoint(mean(sample.before_s.iter().copied()), mean(sample.after_s.iter().copied()));
    if middle <= 0.0 {
        return 0.0;
    }
    (squares(&sample.before_s) + squares(&sample.after_s)) / freedom / middle.powi(2)
}

/// Returns the common variance of contexts and its degrees of freedom, by the moments of the
/// logarithms of the variances (Smyth 2004, section 6.2); at most the samples' own degrees of
/// freedom.
fn prior(own: &[f64], own_freedom: f64) -> (f64, f64) {
    // Contexts of one run are disturbed together: many of them carry no more information about the
    // runs' variance than one context in twice as many runs.
    let max_prior_freedom = own_freedom;
    let half = own_freedom / 2.0;
    let logs: Vec<f64> = own
        .iter()
        .filter(|variance| **variance > 0.0)
        .map(|variance| variance.ln() - digamma(half) + half.ln())
        .collect();
    if logs.len() < 3 {
        return (0.0, 0.0);
    }
    let centre = mean(logs.iter().copied());
    let spread = logs.iter().map(|it| (it - centre).powi(2)).sum::<f64>() / (logs.len() - 1) as f64;
    let excess = spread - trigamma(half);
    let half_prior = if excess > 0.0 { inverse_trigamma(excess) } else { f64::INFINITY };
    let half_prior = half_prior.min(max_prior_freedom / 2.0);
    let variance = (centre + digamma(half_prior) - half_prior.ln()).exp();
    (variance, 2.0 * half_prior)
}

/// Returns the second derivative of ln gamma: recurrence up to 6, then the asymptotic series
/// (Abramowitz and Stegun 6.4.6, 6.4.12).
fn trigamma(mut x: f64) -> f64 {
    let mut sum = 0.0;
    while x < 6.0 {
        sum += x.powi(-2);
        x += 1.0;
    }
    let inverse = 1.0 / x;
    let square = inverse * inverse;
    sum + inverse
        + square / 2.0
        + inverse * square * (1.0 / 6.0 - square * (1.0 / 30.0 - square / 42.0))
}

/// Returns the x at which trigamma is `value` > 0, by bisection: trigamma is decreasing.
fn inverse_trigamma(value: f64) -> f64 {
    let (mut low, mut high) = (1e-3_f64, 1e6_f64);
    for _ in 0..100 {
        let middle = (low * high).sqrt();
        if trigamma(middle) > value {
            low = middle;
        } else {
            high = middle;
        }
    }
    low
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares runs of two ranks with one thread each.
    fn regression(samples: &[Sample]) -> Option<Regression> {
        let elapsed = samples.first();
        let within = WithinRuns {
            iteration_deviation: Some(0.002),
            period_s: 0.004,
            ranks: 2.0,
            core_before_s: elapsed.map_or_else(Vec::new, |it| it.before_s.clone()),
            core_after_s: elapsed.map_or_else(Vec::new, |it| it.after_s.clone()),
        };
        super::regression(samples, &within)
    }

    fn sample(context: Option<u32>, before_s: &[f64], after_s: &[f64]) -> Sample {
        let name = context.map_or("elapsed".into(), |it| format!("part_{it}"));
        Sample {
            context,
            name,
            waits: false,
            before_s: before_s.to_vec(),
            after_s: after_s.to_vec(),
        }
    }

    /// trigamma(1) = pi^2 / 6, trigamma(1/2) = pi^2 / 2.
    #[test]
    fn trigamma_has_its_known_values() {
        let pi = std::f64::consts::PI;
        assert!((trigamma(1.0) - pi * pi / 6.0).abs() < 1e-8);
        assert!((trigamma(0.5) - pi * pi / 2.0).abs() < 1e-8);
        assert!((inverse_trigamma(trigamma(3.7)) - 3.7).abs() < 1e-6);
    }

    /// Before 9, 11, after 19, 21: means 10 and 20, squares 2 + 2, freedom 2, middle 15:
    /// variance 2 / 225.
    #[test]
    fn the_pooled_variance_is_relative_to_the_middle() {
        let sample = sample(None, &[9.0, 11.0], &[19.0, 21.0]);
        assert!((variance(&sample, 2.0) - 2.0 / 225.0).abs() < 1e-12);
    }

    #[test]
    fn one_slow_function_of_ten_is_found_and_the_others_are_not() {
        let noise = [0.004, -0.003, 0.001, -0.004, 0.002];
        let times = |seed: usize, factor: f64| -> Vec<f64> {
            (0..5).map(|run| factor * (1.0 + noise[(run * 3 + seed) % 5])).collect()
        };
        let mut samples = vec![sample(None, &times(1, 10.0), &times(2, 10.03))];
        samples.extend((0..10).map(|part| {
            let factor = if part == 3 { 1.03 } else { 1.0 };
            let seed = part as usize;
            sample(Some(part), &times(seed, 1.0), &times(seed + 1, factor))
        }));
        let found = regression(&samples).expect("two versions");
        let named: Vec<&str> =
            found.contexts.iter().filter(|it| it.significant).map(|it| it.name.as_str()).collect();
        assert_eq!(named, ["part_3"]);
        let change = found.contexts[0].change.expect("it took time");
        assert!((change - 0.03).abs() < 0.005, "{change}");
    }

    #[test]
    fn single_runs_show_only_what_their_iterations_cannot_hide() {
        let found = |after_s: f64| {
            let samples = [sample(None, &[10.0], &[after_s])];
            regression(&samples).expect("two runs").elapsed.significant
        };
        assert!(!found(10.02) && !found(10.25) && found(11.0) && found(9.0));
    }

    #[test]
    fn nothing_is_compared_without_time() {
        assert_eq!(regression(&[]), None);
        assert_eq!(regression(&[sample(None, &[0.0], &[0.0])]), None);
    }
}
