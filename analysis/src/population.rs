//! Random choice of the ranks that keep their samples on disk (Fowler's slides: adaptive sampling;
//! PLIMSOLL_TRACE=sample). The population is all ranks; strata are the clusters of ranks.
//!
//! At the end of a run, Plimsoll knows all ranks. Process 0 sends a [`Plan`] to all processes; each
//! process fills [`Moments`] with the values of its ranks, and a reduction adds them up. With the
//! variance of each stratum in each metric, process 0 determines how many ranks must be sampled
//! ([`sample_size`]) and which ([`random_choice`]).
//!
//! The slides update the size of the sample at the end of fixed windows, as the variance changes.
//! Here all ranks record while the job runs, and the spool is reduced when the run has ended, so
//! that all windows are known at once: the sample must have the precision in every window. A rank
//! that is sampled keeps its samples of the whole run, which a reader can follow from window to
//! window.
//!
//! A digest of the reduced spool makes the same plan with the sampled ranks of each stratum, and
//! estimates means over all ranks from them.

pub mod mean_interval;
pub mod random_choice;
pub mod sample_outcome;
pub mod sample_size;
pub mod stratum_moments;

use plimsoll_collector::profile::NodeId;
use plimsoll_summary::settings::{SamplingRequest, TRACE};
use plimsoll_summary::{Population, Stratum};
use serde::{Deserialize, Serialize};

use crate::canonical::{CanonicalTree, Threads};
use crate::clocks::Alignment;
use crate::communicator::{Communicator, CommunicatorError, reduce};
use crate::input::JobInfo;
use crate::rank::Rank;
use crate::ranks::RankSet;
use crate::thresholds::{
    MAX_SAMPLED_WINDOWS, MIN_SAMPLED_METRIC_FRACTION, MIN_SAMPLED_WINDOW_PERIODS,
    SIGNIFICANT_FRACTION,
};
use crate::timeline::{Grid, useful_by_window};
use crate::times::Times;
use crate::totals::Totals;

pub use sample_outcome::conclude;
use stratum_moments::StratumMoments;

/// Maximum number of contexts with moments: those with the longest times. It bounds the size of a
/// reduction message.
const MAX_CONTEXTS: usize = 1024;
/// Resolution of values: 2^-28 of the run.
const RESOLUTION_BITS: u32 = 28;

/// Request of process 0 to all processes.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Plan {
    /// Ranks to add up, by stratum.
    strata: Vec<RankSet>,
    /// Contexts, ascending.
    contexts: Vec<NodeId>,
    windows: Grid,
    alignment: Alignment,
    elapsed_ns: u64,
    /// Duration of the run with pauses of the measurement, in nanoseconds.
    span_ns: u64,
}

/// Moments by stratum and metric. The metrics: work, work in each window, and the inclusive and
/// exclusive time of each context.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moments(Vec<Vec<StratumMoments>>);

/// Purpose of the moments.
#[derive(Clone, Debug)]
pub enum Purpose {
    /// To choose the ranks to sample: the strata are all ranks.
    Choose(SamplingRequest),
    /// To estimate means from the sampled ranks of this population.
    Estimate(Population),
}

impl Purpose {
    /// Returns the purpose for a job; `None` if it keeps its samples by another rule, or if not all
    /// of its ranks are known.
    pub fn of(job: &JobInfo, totals: &Totals) -> Option<Self> {
        if let Some(population) = &job.population {
            return is_sound(population).then(|| Self::Estimate(population.clone()));
        }
        let request = SamplingRequest::parse(job.settings.get(TRACE)?)?.ok()?;
        let knows_all = job.complete && totals.job.left_out.is_empty();
        (knows_all && totals.job.ranks.len() > 1).then_some(Self::Choose(request))
    }

    /// Returns the ranks to add up, by stratum; `clusters` are the ranks with similar behaviour.
    fn strata<'r>(
        &self,
        all: &RankSet,
        clusters: impl Iterator<Item = &'r RankSet>,
    ) -> Vec<RankSet> {
        match self {
            Self::Choose(_) => {
                let mut strata: Vec<RankSet> = clusters.cloned().collect();
                // Ranks without a temporal context tree are in no cluster.
                let clustered = strata.iter().fold(RankSet::default(), |all, it| all.union(it));
                let others = all.iter().filter(|rank| !clustered.contains(*rank));
                strata.push(others.collect());
                strata.retain(|stratum| !stratum.is_empty());
                strata
            }
            Self::Estimate(population) => {
                let sampled = population.strata.iter().map(|stratum| list(&stratum.sampled));
                // A spool may be missing, or may still hold all of its ranks.
                let found = |ranks: RankSet| all.iter().filter(|it| ranks.contains(*it)).collect();
                sampled.map(found).collect()
            }
        }
    }

    /// Returns the minimum time of a context with moments, as a fraction of the run.
    fn min_context_fraction(&self) -> f64 {
        match self {
            Self::Choose(_) => MIN_SAMPLED_METRIC_FRACTION,
            Self::Estimate(_) => SIGNIFICANT_FRACTION,
        }
    }
}

impl Plan {
    /// Makes the plan of a job.
    pub fn new<'r>(
        purpose: &Purpose,
        totals: &Totals,
        clusters: impl Iterator<Item = &'r RankSet>,
        alignment: Alignment,
    ) -> Self {
        let job = &totals.job;
        let count = job.ranks.len();
        let least_ns = purpose.min_context_fraction() * job.elapsed_ns as f64;
        let times = (0..).zip(&totals.nodes).map(|(id, node)| (node.inclusive.mean(count), id));
        let mut longest: Vec<(f64, NodeId)> = times.filter(|(ns, _)| *ns >= least_ns).collect();
        longest.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
        longest.truncate(MAX_CONTEXTS);
        let mut contexts: Vec<NodeId> = longest.into_iter().map(|(_, id)| id).collect();
        contexts.sort_unstable();
        let least_ns = job.kept_period_ns.saturating_mul(MIN_SAMPLED_WINDOW_PERIODS).max(1);
        let most = (job.elapsed_ns / least_ns).clamp(1, MAX_SAMPLED_WINDOWS);
        Self {
            strata: purpose.strata(&job.ranks, clusters),
            contexts,
            windows: Grid::of_run(job.span_ns, job.bin_ns).with_at_most(most),
            alignment,
            elapsed_ns: job.elapsed_ns,
            span_ns: job.span_ns,
        }
    }

    fn metrics(&self) -> usize {
        1 + self.windows.count as usize + 2 * self.contexts.len()
    }

    /// Number of bits by which times in nanoseconds are shifted before they are added up.
    fn shift(&self) -> u32 {
        let bits = u64::BITS - self.elapsed_ns.leading_zeros();
        bits.saturating_sub(RESOLUTION_BITS)
    }

    /// Returns the values of a rank in all metrics, in nanoseconds.
    fn values_ns(&self, rank: &Rank<'_>, tree: &mut CanonicalTree) -> Vec<u64> {
        let profile = &rank.input.profile;
        let mut values = vec![rank.useful_ns()];
        values.extend(useful_by_window(rank, self.windows, &self.alignment));
        let first = values.len();
        values.resize(self.metrics(), 0);
        let main = rank.phases.iter().flat_map(|phase| &phase.values);
        let others = profile.other_threads.iter();
        let times = [
            (Threads::Main, Times::new(&profile.tree, main)),
            (Threads::Other, Times::new(&profile.tree, others)),
        ];
        for (threads, times) in times {
            let places = tree.adopt(&profile.tree, threads, |node| times.present[node as usize]);
            for (index, place) in places.iter().enumerate() {
                let place = place.and_then(|place| self.contexts.binary_search(&place).ok());
                if let Some(place) = place {
                    values[first + 2 * place] += times.inclusive_ns[index];
                    values[first + 2 * place + 1] += times.exclusive_ns[index];
                }
            }
        }
        values
    }
}

/// Adds up the moments of all ranks. Returns them on process 0, `None` elsewhere. `tree` must hold
/// the contexts that the plan of process 0 names. Collective.
pub fn add_up(
    comm: &dyn Communicator,
    ranks: &[Rank<'_>],
    tree: &mut CanonicalTree,
    plan: &Plan,
) -> Result<Option<Moments>, CommunicatorError> {
    let mut ours = vec![vec![StratumMoments::default(); plan.metrics()]; plan.strata.len()];
    for rank in ranks {
        let of_rank = |stratum: &RankSet| stratum.contains(rank.input.rank);
        let Some(stratum) = plan.strata.iter().position(of_rank) else { continue };
        let values = plan.values_ns(rank, tree);
        for (moments, ns) in ours[stratum].iter_mut().zip(values) {
            moments.add(ns >> plan.shift());
        }
    }
    reduce(comm, Moments(ours), |mut ours, theirs| {
        let pairs = ours.0.iter_mut().flatten().zip(theirs.0.iter().flatten());
        pairs.for_each(|(ours, theirs)| ours.combine(theirs));
        ours
    })
}

/// Returns whether the population of a spool's note makes sense: notes are read from files.
fn is_sound(population: &Population) -> bool {
    let Population { confidence, error, strata, .. } = population;
    let is_possible = |stratum: &Stratum| {
        let (ranks, sampled) = (list(&stratum.ranks), list(&stratum.sampled));
        !ranks.is_empty() && sampled.len() <= ranks.len()
    };
    (0.0..1.0).contains(confidence)
        && (0.0..=1.0).contains(error)
        && !strata.is_empty()
        && strata.iter().all(is_possible)
}

/// Reads a rank list; the empty set if it is none, as in a damaged spool.
fn list(ranks: &str) -> RankSet {
    ranks.parse().unwrap_or_default()
}

/// Returns the ranks that a population samples.
pub fn sampled_ranks(population: &Population) -> RankSet {
    let sampled = population.strata.iter().map(|stratum| list(&stratum.sampled));
    sampled.fold(RankSet::default(), |all, stratum| all.union(&stratum))
}
