//! Populations of known variance: sizes of samples, and how often their intervals hold the truth.

use super::*;
use crate::population::random_choice::chosen;
use crate::population::stratum_moments::StratumMoments;
use crate::random::Random;

/// Number of samples to draw from a population: with 1 000 alone, an interval that holds in exactly
/// 95 % of all samples would fail the test in one of 14 runs.
const DRAWS: u32 = 10_000;
/// Maximum number of ranks of a drawn sample. The means of larger ones are nearly normal, and they
/// take most of the time.
const MAX_DRAWN: u32 = 1_000;

/// Unit in which a metric counts values.
const UNIT: f64 = 1e-6;

/// Distribution of the ranks' values; the mean is about 1.
#[derive(Clone, Copy, Debug)]
enum Shape {
    Normal {
        deviation: f64,
    },
    Uniform {
        half_width: f64,
    },
    Exponential,
    /// A part of the ranks has values this many times as large; both with a deviation of 5 %.
    TwoKinds {
        part: f64,
        factor: f64,
    },
}

impl Shape {
    fn value(self, random: &mut Random) -> f64 {
        match self {
            Self::Normal { deviation } => 1.0 + deviation * random.normal(),
            Self::Uniform { half_width } => 1.0 + half_width * (2.0 * random.uniform() - 1.0),
            Self::Exponential => -(1.0 - random.uniform()).ln(),
            Self::TwoKinds { part, factor } => {
                let noise = Self::Normal { deviation: 0.05 }.value(random);
                let large = random.uniform() < part;
                if large { factor * noise } else { noise }
            }
        }
    }
}

/// Values of all ranks by stratum.
#[derive(Clone, Debug)]
struct Ranks(Vec<Vec<f64>>);

impl Ranks {
    fn of(shape: Shape, size: u32, random: &mut Random) -> Self {
        Self(vec![(0..size).map(|_| shape.value(random)).collect()])
    }

    /// Clusters of unequal sizes and means, normally distributed in themselves.
    fn clustered(size: u32, random: &mut Random) -> Self {
        let part = |(mean, parts): (f64, u32)| {
            let values = (0..size * parts / 16)
                .map(|_| mean * Shape::Normal { deviation: 0.05 }.value(random));
            values.collect()
        };
        Self([(0.5, 1), (1.0, 8), (1.5, 5), (4.0, 2)].map(part).into())
    }

    /// Returns these ranks as a single stratum.
    fn joined(&self) -> Self {
        Self(vec![self.0.concat()])
    }

    fn metric(&self) -> StratifiedMetric {
        let moments = |values: &Vec<f64>| {
            let mut moments = StratumMoments::default();
            values.iter().for_each(|value| moments.add((value / UNIT).round() as u64));
            moments.central().scaled(UNIT)
        };
        StratifiedMetric {
            sizes: self.0.iter().map(|values| values.len() as u32).collect(),
            moments: self.0.iter().map(moments).collect(),
        }
    }

    /// Returns the fraction of drawn samples for which the interval contains the true mean.
    fn coverage(&self, sampled: &[u32], precision: Precision, random: &mut Random) -> f64 {
        let metric = self.metric();
        let truth = metric.mean();
        let mut order: Vec<Vec<u32>> =
            metric.sizes.iter().map(|size| (0..*size).collect()).collect();
        let mut held = 0;
        for _ in 0..DRAWS {
            let mut mean = 0.0;
            let mut strata = Vec::new();
            for ((values, order), sampled) in self.0.iter().zip(&mut order).zip(sampled) {
                let drawn = chosen(order, *sampled, random).iter();
                let (mean_of, variance) = moments(drawn.map(|rank| values[*rank as usize]));
                let size = values.len() as u32;
                mean += mean_of * f64::from(size) / metric.population();
                strata.push(SampledStratum { size, sampled: *sampled, variance });
            }
            let width = interval_half_width(&strata, precision, mean).unwrap();
            held += u32::from((mean - truth).abs() <= width + UNIT);
        }
        f64::from(held) / f64::from(DRAWS)
    }
}

/// Returns mean and variance of values around 1. The wide integers of [`StratumMoments`] would take
/// most of the time of these tests, which draw hundreds of millions of values.
fn moments(values: impl ExactSizeIterator<Item = f64>) -> (f64, f64) {
    let count = values.len() as f64;
    let (mut sum, mut squares) = (0.0, 0.0);
    for value in values {
        sum += value - 1.0;
        squares += (value - 1.0) * (value - 1.0);
    }
    let variance = (squares - sum * sum / count) / (count - 1.0).max(1.0);
    (1.0 + sum / count, variance.max(0.0))
}

const PRECISIONS: [Precision; 4] = [
    Precision { confidence: 0.90, error: 0.08 },
    Precision { confidence: 0.95, error: 0.03 },
    Precision { confidence: 0.99, error: 0.05 },
    Precision { confidence: 0.95, error: 0.20 },
];

fn shapes() -> [Shape; 9] {
    [
        Shape::Normal { deviation: 0.02 },
        Shape::Normal { deviation: 0.3 },
        Shape::Uniform { half_width: 0.1 },
        Shape::Uniform { half_width: 0.9 },
        Shape::Exponential,
        Shape::TwoKinds { part: 0.5, factor: 2.0 },
        Shape::TwoKinds { part: 0.1, factor: 3.0 },
        Shape::TwoKinds { part: 0.3, factor: 1.3 },
        Shape::TwoKinds { part: 0.01, factor: 2.0 },
    ]
}

/// Returns the number of ranks in a sample of a metric alone.
fn number(ranks: &Ranks, precision: Precision) -> u32 {
    let metric = ranks.metric();
    metric.required(precision, &smallest(&metric.sizes)).iter().sum()
}

/// Returns whether the variance within strata is smaller than that between them, in the sense of
/// the slides' inequality: (1/M) sum (M - M_i) S_i^2 < sum M_i (Y_i - Y)^2.
fn is_stratification_worthwhile(ranks: &Ranks) -> bool {
    let metric = ranks.metric();
    let (population, mean) = (metric.population(), metric.mean());
    let within: f64 =
        metric.each().map(|(size, it)| (population - size) * it.variance / population).sum();
    let between: f64 = metric.each().map(|(size, it)| size * (it.mean - mean).powi(2)).sum();
    within < between
}

fn assert_covers(ranks: &Ranks, of: &str, random: &mut Random) {
    for precision in PRECISIONS {
        let metric = ranks.metric();
        let sampled = metric.required(precision, &smallest(&metric.sizes));
        let number: u32 = sampled.iter().sum();
        if number > MAX_DRAWN {
            continue;
        }
        let coverage = ranks.coverage(&sampled, precision, random);
        println!("{of}, {precision:?}: {number} ranks, {coverage}");
        assert!(
            coverage >= precision.confidence - 0.01,
            "{of}, {precision:?}: {number} ranks, {coverage}"
        );
    }
}

#[test]
fn intervals_of_ranks_without_clusters_hold_the_truth() {
    let mut random = Random::new(1);
    for size in [64, 1024, 65_536] {
        for shape in shapes() {
            let ranks = Ranks::of(shape, size, &mut random);
            assert_covers(&ranks, &format!("{size} ranks, {shape:?}"), &mut random);
        }
    }
}

#[test]
fn intervals_of_clustered_ranks_hold_the_truth() {
    let mut random = Random::new(2);
    for size in [64, 1024, 65_536] {
        let ranks = Ranks::clustered(size, &mut random);
        assert_covers(&ranks, &format!("{size} ranks in strata"), &mut random);
        assert_covers(&ranks.joined(), &format!("{size} ranks in one stratum"), &mut random);
    }
}

/// Ranks with mean 1 and deviation 0.2: n0 = (z S / d)^2 is 171 for 3 % with 95 %.
#[test]
fn the_number_of_ranks_is_that_of_cochran() {
    let metric = |size: u32| StratifiedMetric {
        sizes: vec![size],
        moments: vec![CentralMoments { mean: 1.0, variance: 0.04, third: 0.0 }],
    };
    let precision = Precision { confidence: 0.95, error: 0.03 };
    let normal: f64 = 1.959_964;
    for size in [64, 1024, 65_536] {
        let wanted = (normal * 0.2 / 0.03_f64).powi(2);
        let of_normal = wanted / (1.0 + wanted / f64::from(size));
        let [number] = metric(size).required(precision, &[2])[..] else { panic!("one stratum") };
        // For large samples, Student's t is a few percent larger than z.
        let ratio = f64::from(number) / of_normal;
        assert!((1.0..1.05).contains(&ratio), "{size}: {number} and {of_normal}");
        // It is the smallest that suffices.
        assert!(metric(size).has(precision, &[number]));
        assert!(!metric(size).has(precision, &[number - 1]));
    }
}

/// Strata of proportional samples are more precise than the same number of ranks without strata
/// exactly where the slides' inequality holds (Cochran, 5.6).
#[test]
fn strata_are_more_precise_where_the_slides_say_so() {
    let mut random = Random::new(5);
    let mut both = [0; 2];
    for size in [64, 1024, 65_536] {
        for step in 0..20 {
            let shape = Shape::Normal { deviation: 0.3 };
            let stratum = |number: u32| {
                let values = Ranks::of(shape, size * (number + 1) / 16, &mut random).0.remove(0);
                let offset = f64::from(number * step) / f64::from(size);
                values.into_iter().map(|value| value + offset).collect()
            };
            let ranks = Ranks([0, 2, 4, 5].map(stratum).into());
            let (strata, joined) = (ranks.metric(), ranks.joined().metric());
            let proportional: Vec<u32> = strata.sizes.iter().map(|size| size / 2).collect();
            let variance = |metric: &StratifiedMetric, sampled: &[u32]| {
                EstimateVariance::of(&metric.strata(sampled)).unwrap().variance
            };
            let is_better = variance(&strata, &proportional)
                < variance(&joined, &[proportional.iter().sum::<u32>()]);
            assert_eq!(is_better, is_stratification_worthwhile(&ranks), "{size} {step}");
            both[usize::from(is_better)] += 1;
        }
    }
    assert!(both.iter().all(|number| *number >= 3), "{both:?}");
}

#[test]
fn clusters_need_fewer_ranks_than_all_ranks_together() {
    let mut random = Random::new(7);
    for size in [64, 1024, 65_536] {
        let ranks = Ranks::clustered(size, &mut random);
        assert!(is_stratification_worthwhile(&ranks));
        for precision in PRECISIONS {
            let [strata, joined] = [&ranks, &ranks.joined()].map(|it| number(it, precision));
            println!("{size} {precision:?}: {strata} in strata, {joined} joined");
            assert!(strata < joined, "{size} {precision:?}: {strata} {joined}");
        }
    }
}

#[test]
fn strata_get_ranks_by_size_and_deviation() {
    let stratum = |mean: f64, deviation: f64| CentralMoments {
        mean,
        variance: deviation.powi(2),
        third: 0.0,
    };
    let metric = StratifiedMetric {
        sizes: vec![1, 2000, 1000, 1000, 20],
        moments: vec![
            stratum(9.0, 0.0),
            stratum(1.0, 0.2),
            stratum(2.0, 0.8),
            stratum(1.0, 0.0),
            stratum(5.0, 90.0),
        ],
    };
    let precision = Precision { confidence: 0.95, error: 0.03 };
    let sampled = metric.required(precision, &smallest(&metric.sizes));
    // The single rank and the most varying stratum are whole; 2 of equal ranks suffice.
    assert_eq!((sampled[0], sampled[3], sampled[4]), (1, 2, 20));
    let ratio = f64::from(sampled[2]) / f64::from(sampled[1]);
    assert!((1.9..2.1).contains(&ratio), "1000 x 0.8 to 2000 x 0.2: {sampled:?}");
    assert!(metric.has(precision, &sampled));
    // No other allocation of the same number is as precise.
    let width = |sampled: &[u32]| half_width(&metric.strata(sampled), 0.95).unwrap();
    for shift in [-8i64, 8] {
        let other = [1, sampled[1].saturating_add_signed(shift as i32), 0, 2, 20];
        let other = [1, other[1], sampled[1] + sampled[2] - other[1], 2, 20];
        assert!(width(&other) > width(&sampled), "{other:?} {sampled:?}");
    }
}

#[test]
fn a_sample_has_the_precision_in_all_metrics() {
    let mut random = Random::new(6);
    let precision = Precision { confidence: 0.95, error: 0.03 };
    let sizes = vec![512, 256, 256];
    let metrics: Vec<StratifiedMetric> = [[0.01, 0.3, 0.01], [0.2, 0.02, 0.0], [0.0, 0.01, 0.4]]
        .into_iter()
        .map(|deviations| {
            let strata = sizes.iter().zip(deviations).map(|(size, deviation)| {
                Ranks::of(Shape::Normal { deviation }, *size, &mut random).0.remove(0)
            });
            Ranks(strata.collect()).metric()
        })
        .collect();
    let sampled = sufficient(&metrics, &sizes, precision);
    assert!(metrics.iter().all(|metric| metric.has(precision, &sampled)), "{sampled:?}");
    for metric in &metrics {
        let alone = metric.required(precision, &smallest(&sizes));
        let others = metrics.iter().filter(|other| *other != metric);
        assert!(others.into_iter().all(|other| !other.has(precision, &alone)), "{alone:?}");
    }
    assert!(sampled.iter().zip(&sizes).all(|(sampled, size)| sampled < size), "{sampled:?}");
}

/// A metric that is zero in all ranks is exact with the smallest sample.
#[test]
fn a_metric_that_is_zero_needs_the_smallest_sample() {
    let moments = vec![CentralMoments::default(); 2];
    let metric = StratifiedMetric { sizes: vec![9, 1], moments };
    let precision = Precision { confidence: 0.99, error: 0.001 };
    assert_eq!(metric.required(precision, &smallest(&metric.sizes)), [2, 1]);
}
