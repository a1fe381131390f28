//! Growth of times with the number of ranks: the simplest model that predicts left-out sizes.
//!
//! A model is c0 + c1 f(p), where f is one of log2 p, p^a and p^a log2 p with a in quarter steps up
//! to 3, or the constant c0. Models are fitted by weighted least squares and judged by
//! leave-one-out cross-validation: the mean square of the prediction errors in units of the noise.

use serde::{Deserialize, Serialize};
use statrs::distribution::{ContinuousCDF, StudentsT};

use crate::diff_thresholds::{MIN_GROWTH_SIZES, UNDECIDED_FACTOR};

/// Multiples of the largest run for which the growth is predicted.
pub const PREDICTED: [f64; 3] = [2.0, 4.0, 16.0];
/// Number of points on the curve of a growth.
const CURVE_POINTS: u32 = 25;
/// Probability of the confidence band.
const CONFIDENCE: f64 = 0.95;
const MAX_QUARTERS: u32 = 12;

/// A measured time at a number of ranks.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Ranks.
    pub ranks: f64,
    /// Seconds.
    pub value_s: f64,
    /// Standard deviation of the value; above 0.
    pub noise_s: f64,
}

/// Term of a model that depends on the ranks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Term {
    /// Exponent a of p^a; 0 without a power.
    pub exponent: f64,
    /// Whether log2 p is a factor.
    pub log: bool,
}

impl Term {
    const CONSTANT: Self = Self { exponent: 0.0, log: false };

    /// Returns whether the term is constant.
    pub fn is_constant(self) -> bool {
        self == Self::CONSTANT
    }

    /// Returns the term's value at a number of ranks.
    pub fn at(self, ranks: f64) -> f64 {
        ranks.powf(self.exponent) * if self.log { ranks.log2() } else { 1.0 }
    }

    /// Returns the term's name: `constant`, `log p`, `p^0.5`, `p log p`.
    pub fn name(self) -> String {
        let power = match self.exponent {
            0.0 => String::new(),
            1.0 => "p".into(),
            exponent => format!("p^{exponent}"),
        };
        match (self.is_constant(), self.log, power.as_str()) {
            (true, ..) => "constant".into(),
            (_, true, "") => "log p".into(),
            (_, true, power) => format!("{power} log p"),
            (_, false, power) => power.into(),
        }
    }

    /// Returns the rank of a term by complexity: simpler terms have smaller numbers.
    fn complexity(self) -> u32 {
        let whole = |steps: f64| (self.exponent * steps).fract() == 0.0;
        match (self.is_constant(), self.log, whole(1.0), whole(2.0)) {
            (true, ..) => 0,
            (_, true, ..) if self.exponent == 0.0 => 1,
            (_, false, true, _) if self.exponent == 1.0 => 1,
            (_, false, true, _) | (_, false, _, true) => 2,
            (_, true, true, _) => 2,
            (_, false, ..) => 3,
            (_, true, ..) => 4,
        }
    }
}

/// Chosen model and its predictions.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Growth {
    /// Modelled quantity: `total_s`, the sum over ranks (constant under perfect strong scaling);
    /// `mean_s`, the time per rank (constant under perfect weak scaling); or `seconds` of a loss.
    pub quantity: String,
    /// Name of the model's term.
    pub model: String,
    /// The term.
    pub term: Term,
    /// Constant part, in seconds.
    pub c0_s: f64,
    /// Coefficient of the term, in seconds; 0 for a constant.
    pub c1_s: f64,
    /// Mean square of the errors of left-out sizes, in units of the noise.
    pub cross_validation: f64,
    /// Whether the data decide: no equally good model predicts differently.
    pub decided: bool,
    /// Other equally good models, simplest first.
    pub alternatives: Vec<String>,
    /// Predictions beyond the largest run.
    pub predictions: Vec<Prediction>,
    /// Model and band from the smallest run to the last prediction, at numbers of ranks that grow
    /// by a constant factor and need not be whole.
    #[serde(default)]
    pub curve: Vec<Prediction>,
}

/// Predicted value.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Prediction {
    /// Ranks.
    pub ranks: f64,
    /// Seconds of the quantity.
    pub value_s: f64,
    /// Lower end of the 95 % confidence band.
    pub low_s: f64,
    /// Upper end of the 95 % confidence band.
    pub high_s: f64,
}

/// Chooses a model. `None` with fewer than four different sizes, or if all times are 0.
pub fn fit(quantity: &str, points: &[Point]) -> Option<Growth> {
    let mut sizes: Vec<f64> = points.iter().map(|point| point.ranks).collect();
    sizes.sort_by(f64::total_cmp);
    sizes.dedup();
    if sizes.len() < MIN_GROWTH_SIZES || points.iter().all(|point| point.value_s == 0.0) {
        return None;
    }
    let judged: Vec<(Term, Judged)> =
        terms().filter_map(|term| judge(term, points).map(|judged| (term, judged))).collect();
    let best = judged.iter().map(|(_, it)| it).min_by(|a, b| a.mean.total_cmp(&b.mean))?;
    // One standard error is the uncertainty of the judgement itself; errors below the noise carry
    // no information.
    let accepted_error = (best.mean + best.error).min(best.mean * 3.0).max(1.0);
    let mut accepted: Vec<(Term, f64)> = judged
        .iter()
        .filter(|(_, it)| it.mean <= accepted_error)
        .map(|(term, it)| (*term, it.mean))
        .collect();
    accepted.sort_by(|(one, error), (other, other_error)| {
        one.complexity().cmp(&other.complexity()).then(error.total_cmp(other_error))
    });
    let (term, error) = *accepted.first()?;
    // A much more complex model fits all data that a simple one fits.
    let others: Vec<Term> = accepted[1..]
        .iter()
        .map(|(other, _)| *other)
        .filter(|other| other.complexity() <= term.complexity() + 1)
        .collect();
    let line = Line::fit(term, points)?;
    let largest = *sizes.last()?;
    let smallest = *sizes.first()?;
    let end = PREDICTED[PREDICTED.len() - 1] * largest;
    let at = |point: u32| {
        let part = f64::from(point) / f64::from(CURVE_POINTS - 1);
        line.predict(smallest * (end / smallest).powf(part))
    };
    let predictions: Vec<Prediction> =
        PREDICTED.iter().map(|factor| line.predict(factor * largest)).collect();
    Some(Growth {
        quantity: quantity.to_owned(),
        model: term.name(),
        term,
        c0_s: line.c0,
        c1_s: line.c1,
        cross_validation: error,
        decided: others.iter().all(|other| agrees(*other, points, &predictions)),
        alternatives: others.iter().map(|term| term.name()).collect(),
        predictions,
        curve: (0..CURVE_POINTS).map(at).collect(),
    })
}

/// Returns whether another model predicts about the same at four times the largest size.
fn agrees(other: Term, points: &[Point], predictions: &[Prediction]) -> bool {
    let (Some(line), Some(last)) = (Line::fit(other, points), predictions.get(1)) else {
        return true;
    };
    let value = line.predict(last.ranks).value_s;
    value <= last.value_s * UNDECIDED_FACTOR && last.value_s <= value * UNDECIDED_FACTOR
}

fn terms() -> impl Iterator<Item = Term> {
    (0..=MAX_QUARTERS).flat_map(|quarters| {
        [false, true].map(|log| Term { exponent: f64::from(quarters) / 4.0, log })
    })
}

/// Prediction errors of a model for left-out points.
struct Judged {
    mean: f64,
    /// Standard error of the mean.
    error: f64,
}

fn judge(term: Term, points: &[Point]) -> Option<Judged> {
    let mut squares = Vec::with_capacity(points.len());
    for (left_out, point) in points.iter().enumerate() {
        let rest: Vec<Point> = points
            .iter()
            .enumerate()
            .filter(|(index, _)| *index != left_out)
            .map(|(_, point)| *point)
            .collect();
        let line = Line::fit(term, &rest)?;
        squares.push(((point.value_s - line.at(point.ranks)) / point.noise_s).powi(2));
    }
    let count = squares.len() as f64;
    let mean = squares.iter().sum::<f64>() / count;
    let variance = squares.iter().map(|it| (it - mean).powi(2)).sum::<f64>() / (count - 1.0);
    mean.is_finite().then(|| Judged { mean, error: (variance / count).sqrt() })
}

/// Fitted c0 + c1 f(p).
struct Line {
    term: Term,
    c0: f64,
    c1: f64,
    /// Weighted mean of f, and weighted sum of squared deviations from it.
    centre: f64,
    spread: f64,
    weight: f64,
    /// Ratio of the residuals to the noise; at least 1.
    scale: f64,
    freedom: f64,
    /// Relative noise of the points at large sizes.
    relative_noise: f64,
}

impl Line {
    fn fit(term: Term, points: &[Point]) -> Option<Self> {
        let weights: Vec<f64> = points.iter().map(|point| point.noise_s.powi(-2)).collect();
        let weight: f64 = weights.iter().sum();
        let weighted = |value: &dyn Fn(&Point) -> f64| -> f64 {
            points.iter().zip(&weights).map(|(point, weight)| weight * value(point)).sum()
        };
        let mean = weighted(&|point| point.value_s) / weight;
        let centre = weighted(&|point| term.at(point.ranks)) / weight;
        let spread = weighted(&|point| (term.at(point.ranks) - centre).powi(2));
        let c1 = if term.is_constant() {
            0.0
        } else if spread > 0.0 {
            weighted(&|point| (term.at(point.ranks) - centre) * (point.value_s - mean)) / spread
        } else {
            return None;
        };
        let c0 = mean - c1 * centre;
        let parameters = if term.is_constant() { 1.0 } else { 2.0 };
        let freedom = points.len() as f64 - parameters;
        let squares = weighted(&|point| (point.value_s - c0 - c1 * term.at(point.ranks)).powi(2));
        let scale = if freedom > 0.0 { (squares / freedom).sqrt().max(1.0) } else { 1.0 };
        let last = points.iter().max_by(|one, other| one.ranks.total_cmp(&other.ranks))?;
        let relative_noise = if last.value_s > 0.0 { last.noise_s / last.value_s } else { 0.0 };
        let line = Self { term, c0, c1, centre, spread, weight, scale, freedom, relative_noise };
        (c0.is_finite() && c1.is_finite()).then_some(line)
    }

    fn at(&self, ranks: f64) -> f64 {
        self.c0 + self.c1 * self.term.at(ranks)
    }

    /// Returns the prediction with its band: uncertainty of both coefficients and noise of a single
    /// run.
    fn predict(&self, ranks: f64) -> Prediction {
        let value_s = self.at(ranks).max(0.0);
        let slope = if self.spread > 0.0 && !self.term.is_constant() {
            (self.term.at(ranks) - self.centre).powi(2) / self.spread
        } else {
            0.0
        };
        let variance = 1.0 / self.weight + slope + (self.relative_noise * value_s).powi(2);
        let half = quantile(0.5 + CONFIDENCE / 2.0, self.freedom) * self.scale * variance.sqrt();
        Prediction { ranks, value_s, low_s: (value_s - half).max(0.0), high_s: value_s + half }
    }
}

/// Returns a quantile of Student's t; of the normal distribution for many degrees of freedom.
pub fn quantile(probability: f64, freedom: f64) -> f64 {
    StudentsT::new(0.0, 1.0, freedom.clamp(1.0, 1e6))
        .map_or(f64::INFINITY, |student| student.inverse_cdf(probability))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn points(value: impl Fn(f64) -> f64) -> Vec<Point> {
        let sizes = [1.0, 2.0, 4.0, 8.0, 16.0];
        let point = |ranks: f64| {
            let value_s = value(ranks);
            Point { ranks, value_s, noise_s: 0.02 * value_s + 0.001 }
        };
        sizes.into_iter().map(point).collect()
    }

    #[test]
    fn each_class_of_growth_is_recognised() {
        type Class = (&'static str, fn(f64) -> f64);
        let classes: [Class; 8] = [
            ("constant", |_| 3.0),
            ("log p", |p| 1.0 + 0.5 * p.log2()),
            ("log p", |p| 0.5 * p.log2()),
            ("p", |p| 0.4 * p),
            ("p", |p| 0.24 * (p - 1.0)),
            ("p^0.5", |p| 2.0 * p.sqrt()),
            ("p^2", |p| 0.1 * p * p),
            ("p log p", |p| 0.16 * p * p.log2()),
        ];
        for (name, value) in classes {
            let growth = fit("total_s", &points(value)).expect("five sizes");
            assert_eq!(growth.model, name, "{growth:?}");
            let last = growth.predictions.last().expect("three");
            assert_eq!(last.ranks, 256.0);
            assert!((last.value_s / value(256.0) - 1.0).abs() < 0.02, "{name}: {last:?}");
            assert!(last.low_s <= value(256.0) && value(256.0) <= last.high_s, "{name}: {last:?}");
        }
    }

    /// c0 + c1 p through (1, 3), (2, 5), (4, 9), (8, 17) with equal weights: c0 = 1, c1 = 2.
    #[test]
    fn coefficients_are_those_of_least_squares() {
        let points = [(1.0, 3.0), (2.0, 5.0), (4.0, 9.0), (8.0, 17.0)]
            .map(|(ranks, value_s)| Point { ranks, value_s, noise_s: 0.1 });
        let growth = fit("mean_s", &points).expect("four sizes");
        assert_eq!(growth.model, "p");
        assert!((growth.c0_s - 1.0).abs() < 1e-9 && (growth.c1_s - 2.0).abs() < 1e-9);
        assert!((growth.predictions[0].value_s - 33.0).abs() < 1e-9);
    }

    #[test]
    fn data_that_fit_many_models_decide_nothing() {
        let noisy = [(1.0, 1.0), (2.0, 1.6), (4.0, 2.1), (8.0, 3.4)]
            .map(|(ranks, value_s)| Point { ranks, value_s, noise_s: 0.3 * value_s });
        let growth = fit("mean_s", &noisy).expect("four sizes");
        assert!(!growth.decided && !growth.alternatives.is_empty(), "{growth:?}");
    }

    #[test]
    fn three_sizes_are_too_few() {
        assert_eq!(fit("total_s", &points(|p| p)[..3]), None);
    }

    /// Table of Student's t, two-sided 95 %: 2 degrees of freedom 4.303, 10 degrees 2.228.
    #[test]
    fn quantiles_are_those_of_the_table() {
        assert!((quantile(0.975, 2.0) - 4.303).abs() < 1e-3);
        assert!((quantile(0.975, 10.0) - 2.228).abs() < 1e-3);
    }
}
