//! Conclusions from the moments of the ranks: the ranks to sample, or estimates for all ranks from
//! the sampled ones.

use plimsoll_collector::profile::NodeId;
use plimsoll_summary::settings::SamplingRequest;
use plimsoll_summary::{
    Estimate, Population, Quantity, SampledMean, SampledMetric, SampledWindow, Stratum, Summary,
};

use super::random_choice::chosen;
use super::sample_size::{Precision, StratifiedMetric, interval_half_width, smallest, sufficient};
use super::stratum_moments::StratumMoments;
use super::{Moments, Plan, Purpose, list};
use crate::fingerprint::{BASIS, extended};
use crate::input::JobInfo;
use crate::metrics::NS_PER_S;
use crate::random::Random;
use crate::ranks::RankSet;
use crate::thresholds::MIN_SAMPLED_METRIC_FRACTION;

/// A metric of the run with its moments.
struct RunMetric {
    kind: MetricKind,
    /// Length of the run or of the window, in nanoseconds.
    span_ns: u64,
    /// Number of ranks with values in each stratum.
    found: Vec<u32>,
    values: StratifiedMetric,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum MetricKind {
    Work,
    Window { begin_ns: u64, end_ns: u64 },
    Context { node: NodeId, quantity: Quantity },
}

impl RunMetric {
    /// Returns whether the metric is large enough to decide the number of sampled ranks.
    fn decides(&self, mean_s: f64) -> bool {
        let span_s = self.span_ns as f64 / NS_PER_S;
        mean_s > 0.0 && mean_s >= MIN_SAMPLED_METRIC_FRACTION * span_s
    }
}

/// Returns all metrics of a plan, in seconds; `sizes` are the numbers of ranks in the strata.
fn run_metrics(plan: &Plan, moments: &Moments, sizes: &[u32]) -> Vec<RunMetric> {
    let unit_s = 2f64.powi(plan.shift() as i32) / NS_PER_S;
    let windows = (0..plan.windows.count).map(|at| {
        let (begin_ns, end_ns) = plan.windows.window(at, plan.span_ns);
        (MetricKind::Window { begin_ns, end_ns }, end_ns.saturating_sub(begin_ns))
    });
    let contexts = plan.contexts.iter().flat_map(|node| {
        [Quantity::Inclusive, Quantity::Exclusive]
            .map(|quantity| (MetricKind::Context { node: *node, quantity }, plan.elapsed_ns))
    });
    let kinds = [(MetricKind::Work, plan.elapsed_ns)].into_iter().chain(windows).chain(contexts);
    let metric = |(at, (kind, span_ns)): (usize, (MetricKind, u64))| {
        let strata: Vec<&StratumMoments> = moments.0.iter().map(|stratum| &stratum[at]).collect();
        RunMetric {
            kind,
            span_ns,
            found: strata.iter().map(|it| it.ranks).collect(),
            values: StratifiedMetric {
                sizes: sizes.to_owned(),
                moments: strata.iter().map(|it| it.central().scaled(unit_s)).collect(),
            },
        }
    };
    kinds.enumerate().map(metric).collect()
}

/// Conclusions from the moments: the population, and estimates for the tree.
pub struct Outcome {
    population: Population,
    /// Contexts of the population's metrics, in their order.
    contexts: Vec<Option<NodeId>>,
    estimates: Vec<(NodeId, Quantity, Estimate)>,
}

/// Draws the conclusion from the moments of all ranks.
pub fn conclude(purpose: Purpose, plan: &Plan, moments: &Moments, job: &JobInfo) -> Outcome {
    match purpose {
        Purpose::Choose(request) => choose(request, plan, moments, job),
        Purpose::Estimate(population) => estimate(population, plan, moments),
    }
}

/// Chooses the ranks to sample.
fn choose(request: SamplingRequest, plan: &Plan, moments: &Moments, job: &JobInfo) -> Outcome {
    let precision = Precision { confidence: request.confidence, error: request.error };
    let sizes: Vec<u32> = plan.strata.iter().map(RankSet::len).collect();
    let mut metrics = run_metrics(plan, moments, &sizes);
    let work = metrics.first().map(|work| work.values.moments.clone()).unwrap_or_default();
    metrics.retain(|metric| metric.decides(metric.values.mean()));
    let values: Vec<StratifiedMetric> = metrics.iter().map(|it| it.values.clone()).collect();
    let numbers = sufficient(&values, &sizes, precision);
    let seed = request.seed.unwrap_or_else(|| seed_of(job));
    let mut random = Random::new(u64::from(seed));
    let mut sampled = Vec::new();
    for (stratum, number) in plan.strata.iter().zip(&numbers) {
        let mut ranks: Vec<u32> = stratum.iter().collect();
        sampled.push(chosen(&mut ranks, *number, &mut random).iter().copied().collect());
    }
    let mean = |metric: &RunMetric| {
        let mean_s = metric.values.mean();
        let width = interval_half_width(&metric.values.strata(&numbers), precision, mean_s);
        let required = metric.values.required(precision, &smallest(&sizes));
        SampledMean {
            mean_s,
            low_s: None,
            high_s: None,
            error: width.map(|width| width / mean_s),
            required: Some(required.iter().sum()),
        }
    };
    let means: Vec<(MetricKind, SampledMean)> =
        metrics.iter().map(|metric| (metric.kind, mean(metric))).collect();
    let strata = plan.strata.iter().zip(&sampled).zip(work);
    let strata = strata.map(|((ranks, sampled), work): ((_, &RankSet), _)| Stratum {
        ranks: ranks.to_string(),
        sampled: sampled.to_string(),
        variance: work.variance,
    });
    Outcome::new(strata.collect(), precision, seed, means)
}

/// Estimates means over all ranks from the sampled ranks. A stratum without ranks could have any
/// mean: then nothing is estimated.
fn estimate(mut population: Population, plan: &Plan, moments: &Moments) -> Outcome {
    for (stratum, found) in population.strata.iter_mut().zip(&plan.strata) {
        stratum.sampled = found.to_string();
    }
    let Population { strata, confidence, error, seed, .. } = population;
    let precision = Precision { confidence, error };
    let sizes: Vec<u32> = strata.iter().map(|stratum| list(&stratum.ranks).len()).collect();
    let (mut means, mut estimates) = (Vec::new(), Vec::new());
    let is_known = plan.strata.iter().all(|found| !found.is_empty());
    for metric in run_metrics(plan, moments, &sizes).into_iter().filter(|_| is_known) {
        let mean_s = metric.values.mean();
        let sampled = metric.values.strata(&metric.found);
        let width = interval_half_width(&sampled, precision, mean_s);
        let interval = width.map(|width| [(mean_s - width).max(0.0), mean_s + width]);
        if let (MetricKind::Context { node, quantity }, Some([low_s, high_s])) =
            (metric.kind, interval)
        {
            estimates.push((node, quantity, Estimate { mean_s, low_s, high_s }));
        }
        if metric.decides(mean_s) {
            let mean = SampledMean {
                mean_s,
                low_s: interval.map(|[low_s, _]| low_s),
                high_s: interval.map(|[_, high_s]| high_s),
                error: width.map(|width| width / mean_s),
                required: None,
            };
            means.push((metric.kind, mean));
        }
    }
    Outcome { estimates, ..Outcome::new(strata, precision, seed, means) }
}

impl Outcome {
    fn new(
        strata: Vec<Stratum>,
        Precision { confidence, error }: Precision,
        seed: u32,
        means: Vec<(MetricKind, SampledMean)>,
    ) -> Self {
        let errors: Option<Vec<f64>> = means.iter().map(|(_, time)| time.error).collect();
        let achieved_error = errors.and_then(|all| all.into_iter().reduce(f64::max));
        let (mut metrics, mut contexts, mut windows) = (Vec::new(), Vec::new(), Vec::new());
        for (kind, time) in means {
            let seconds = |ns: u64| ns as f64 / NS_PER_S;
            match kind {
                MetricKind::Window { begin_ns, end_ns } => windows.push(SampledWindow {
                    begin_s: seconds(begin_ns),
                    end_s: seconds(end_ns),
                    time,
                }),
                MetricKind::Work => {
                    metrics.push(SampledMetric { quantity: Quantity::Work, node: None, time });
                    contexts.push(None);
                }
                MetricKind::Context { node, quantity } => {
                    metrics.push(SampledMetric { quantity, node: None, time });
                    contexts.push(Some(node));
                }
            }
        }
        let population =
            Population { strata, confidence, error, seed, achieved_error, metrics, windows };
        Self { population, contexts, estimates: Vec::new() }
    }

    /// Adds the population and the estimates to a summary. `places` holds the index of each context
    /// in the summary's tree.
    pub fn add_to(mut self, summary: &mut Summary, places: &[Option<u32>]) {
        let place = |node: NodeId| places.get(node as usize).copied().flatten();
        for (metric, node) in self.population.metrics.iter_mut().zip(&self.contexts) {
            metric.node = node.and_then(place);
        }
        for (node, quantity, estimate) in self.estimates {
            let node = place(node).and_then(|at| summary.tree.nodes.get_mut(at as usize));
            if let Some(node) = node {
                match quantity {
                    Quantity::Inclusive => node.inclusive.estimate = Some(estimate),
                    Quantity::Exclusive => node.exclusive.estimate = Some(estimate),
                    Quantity::Work => {}
                }
            }
        }
        summary.population = Some(self.population);
    }
}

/// Returns the seed of a job, which differs from job to job and is the same in each digest.
fn seed_of(job: &JobInfo) -> u32 {
    let JobInfo { executable, arguments, job, started, .. } = job;
    let texts = [executable.as_str(), started.as_str(), job.as_deref().unwrap_or("")];
    let texts = texts.into_iter().chain(arguments.iter().map(String::as_str));
    // The byte behind each text tells where it ends.
    let hash = texts.fold(BASIS, |hash, text| extended(extended(hash, text.as_bytes()), &[0]));
    (hash ^ hash >> 32) as u32
}
