//! Ranks that were chosen at random to keep their samples, in sentences: their number, and how
//! precisely they stand for all ranks.

use plimsoll_summary::phrase::{counted, end_of, percent, rank_count, rank_list, seconds};
use plimsoll_summary::{Population, Quantity, SampledMean, SampledMetric, Stratum, Summary};

/// Maximum number of strata that are named one by one.
const MAX_STRATA: usize = 4;
/// Maximum number of contexts with their intervals.
const MAX_CONTEXTS: usize = 2;
/// Maximum length of a list of ranks, in characters.
const MAX_LIST_CHARS: usize = 30;

/// Returns the sampled ranks and their precision; `None` if no ranks were sampled.
pub fn population(summary: &Summary) -> Option<String> {
    let population = summary.population.as_ref()?;
    let estimates = estimates(summary, population);
    let sampled = sampled(population, estimates.is_some());
    let confidence = percent(population.confidence);
    Some(match (estimates, population.achieved_error) {
        (Some(estimates), _) => format!("{sampled} With {confidence} confidence, {estimates}."),
        (None, Some(0.0)) => format!("{sampled} Fewer would not have the precision that is asked."),
        (None, Some(error)) => format!(
            "{sampled} With {confidence} confidence, their means are within {} of those of all \
             ranks (asked: {}).",
            percent(error),
            percent(population.error)
        ),
        (None, None) => format!("{sampled} Nothing can be said of the others."),
    })
}

/// Returns how many ranks of each stratum are sampled.
fn sampled(population: &Population, is_digest: bool) -> String {
    let strata = &population.strata;
    let number = |list: fn(&Stratum) -> &str| -> u64 {
        strata.iter().map(|stratum| rank_count(list(stratum))).sum()
    };
    let (some, all) = (number(|it| &it.sampled), number(|it| &it.ranks));
    let named: Vec<String> = strata.iter().take(MAX_STRATA).map(stratum).collect();
    let more = match strata.len() - named.len() {
        0 => String::new(),
        more => format!("; and some of {}", counted(more as u64, "further cluster")),
    };
    let what = match (is_digest, some) {
        (true, 1) => "stands for all",
        (true, _) => "stand for all",
        (false, 1) => "keeps its samples",
        (false, _) => "keep their samples",
    };
    format!(
        "{some} of {} {what}: {}{more} (random choice, seed {}).",
        counted(all, "rank"),
        named.join("; "),
        population.seed
    )
}

/// Returns how many ranks of a stratum are sampled: `3 of ranks 4-15`, or `rank 0` if it has no
/// other.
fn stratum(stratum: &Stratum) -> String {
    let list = rank_list(&stratum.ranks, MAX_LIST_CHARS);
    match rank_count(&stratum.ranks) {
        1 => format!("rank {list}"),
        _ => format!("{} of ranks {list}", rank_count(&stratum.sampled)),
    }
}

/// Returns the intervals of work and of the contexts with the longest exclusive times; `None` if
/// there are no intervals, as in the summary of a job.
fn estimates(summary: &Summary, population: &Population) -> Option<String> {
    let of = |wanted: Quantity| population.metrics.iter().filter(move |it| it.quantity == wanted);
    let work = of(Quantity::Work).next().and_then(|work| between(&work.time));
    let work = work.map(|between| format!("computes for {between}"));
    let mut contexts: Vec<&SampledMetric> = of(Quantity::Exclusive).collect();
    contexts.sort_by(|a, b| b.time.mean_s.total_cmp(&a.time.mean_s));
    let context = |metric: &SampledMetric| {
        let name = end_of(&summary.tree.path(metric.node?));
        Some(format!("{} in {name}", between(&metric.time)?))
    };
    let contexts: Vec<String> =
        contexts.into_iter().take(MAX_CONTEXTS).filter_map(context).collect();
    let contexts = (!contexts.is_empty()).then(|| format!("spends {}", contexts.join(" and ")));
    let both: Vec<String> = work.into_iter().chain(contexts).collect();
    (!both.is_empty()).then(|| format!("a rank on average {}", both.join(", and ")))
}

/// Returns an interval: `1.40 s to 1.44 s`.
fn between(time: &SampledMean) -> Option<String> {
    Some(format!("{} to {}", seconds(time.low_s?), seconds(time.high_s?)))
}
