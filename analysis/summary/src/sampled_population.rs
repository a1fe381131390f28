//! Ranks that were chosen at random to keep their samples, and the precision with which they stand
//! for all ranks (PLIMSOLL_TRACE=sample).

use serde::{Deserialize, Serialize};

/// All ranks as a population, and the ranks that are sampled.
///
/// In the summary of the job, means are those of all ranks, and errors are the ones to expect of an
/// estimate from the sampled ranks. In a digest of the spool, which holds the sampled ranks alone,
/// means are estimates and have an interval.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Population {
    /// Strata: the clusters of ranks. Each rank is in one of them.
    pub strata: Vec<Stratum>,
    /// Requested minimum probability that an interval contains the mean over all ranks.
    pub confidence: f64,
    /// Requested maximum half-width of an interval, as a fraction of the mean.
    pub error: f64,
    /// Seed of the random choice of ranks: SplitMix64, a partial Fisher-Yates shuffle of each
    /// stratum's ranks, ascending, stratum by stratum.
    pub seed: u32,
    /// Largest error of `metrics` and `windows`; `None` if one of them is unknown.
    pub achieved_error: Option<f64>,
    /// Metrics of the whole run that decide the number of sampled ranks: work first, then contexts
    /// by index.
    pub metrics: Vec<SampledMetric>,
    /// Work in equal windows of the run, which decides the number of sampled ranks, too.
    pub windows: Vec<SampledWindow>,
}

/// Ranks of one cluster.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Stratum {
    /// Rank list: all ranks of the stratum.
    pub ranks: String,
    /// Rank list: the ranks among them with samples in the spool.
    pub sampled: String,
    /// Variance of the work over all ranks of the stratum, with divisor ranks - 1, in square
    /// seconds; 0 for a single rank.
    pub variance: f64,
}

/// Time that a metric counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Quantity {
    /// Useful time of the communicating threads, as in the efficiencies.
    Work,
    /// Time in a context and in all that it calls.
    Inclusive,
    /// Time in a context alone, as in the tree.
    Exclusive,
}

/// A metric of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SampledMetric {
    /// Time that it counts.
    pub quantity: Quantity,
    /// Context, as index into the tree's nodes; `None` for work.
    pub node: Option<u32>,
    /// Mean time per rank.
    pub time: SampledMean,
}

/// Work in a part of the run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SampledWindow {
    /// Begin, since the begin of the run on the reference's clock.
    pub begin_s: f64,
    /// End, on the same clock.
    pub end_s: f64,
    /// Work in the window per rank.
    pub time: SampledMean,
}

/// Mean of a metric over all ranks.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct SampledMean {
    /// The mean: in a digest of sampled ranks an estimate, otherwise exact.
    pub mean_s: f64,
    /// Begin of the interval; `None` if the mean is exact, or if too few ranks were found.
    pub low_s: Option<f64>,
    /// End of the interval.
    pub high_s: Option<f64>,
    /// Half-width of the interval as a fraction of the mean: the one to expect if the mean is
    /// exact. `None` if too few ranks were found.
    pub error: Option<f64>,
    /// Number of ranks that this metric alone needs; `None` in a digest of sampled ranks.
    pub required: Option<u32>,
}

/// Mean over all ranks, estimated from sampled ranks.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct Estimate {
    /// Estimated mean time per rank.
    pub mean_s: f64,
    /// Begin of the interval that contains the mean over all ranks with the requested confidence.
    pub low_s: f64,
    /// End of the interval.
    pub high_s: f64,
}
