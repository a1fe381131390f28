//! Loops in sentences: number and duration of their iterations, and the clusters of iterations.

use plimsoll_summary::phrase::{count, counted, end_of, percent, seconds};
use plimsoll_summary::{IterationCluster, Loop, Summary};

/// Maximum number of loops that are shown.
const MAX_LOOPS: usize = 2;
/// Minimum part of the run of a loop that is shown.
const MIN_LOOP_FRACTION: f64 = 0.1;
/// Maximum number of clusters that are named one by one.
const MAX_CLUSTERS: usize = 3;
/// Maximum length of a list of iterations, in characters.
const MAX_LIST_CHARS: usize = 40;

/// Returns one sentence for each of the loops that take most of the run.
pub fn hottest(summary: &Summary) -> Vec<String> {
    let is_shown = |it: &&Loop| it.iterations.accepted > 1 && it.fraction >= MIN_LOOP_FRACTION;
    summary.loops.iter().filter(is_shown).take(MAX_LOOPS).map(sentence).collect()
}

fn sentence(it: &Loop) -> String {
    let iterations = &it.iterations;
    // Rejected iterations are too short to be described, but they were told apart.
    let told_apart = iterations.accepted + iterations.rejected;
    let proven = iterations.calls_seen.filter(|_| iterations.exact);
    let all = proven.unwrap_or(told_apart).max(1);
    let number = counted(all, "iteration");
    // Samples alone give a lower bound.
    let number = if iterations.exact { number } else { format!("at least {number}") };
    let each_s = it.mean_duration_s / all as f64;
    let mut sentence = format!(
        "{}: {number}, {} each on average ({} of the run)",
        end_of(&it.path),
        seconds(each_s),
        percent(it.fraction)
    );
    let mut clusters: Vec<&IterationCluster> = it.clusters.iter().collect();
    let is_short = clusters.iter().all(|cluster| cluster.iterations.len() <= MAX_LIST_CHARS);
    if clusters.len() > 1 && clusters.len() <= MAX_CLUSTERS && is_short {
        clusters.sort_by(|a, b| b.mean_s.total_cmp(&a.mean_s));
        let in_words = |it: &&IterationCluster| {
            format!("{} in iterations {}", seconds(it.mean_s), it.iterations)
        };
        sentence.push_str("; ");
        sentence.push_str(&clusters.iter().map(in_words).collect::<Vec<_>>().join(", "));
    } else if clusters.len() > 1 {
        sentence.push_str(&format!("; {} clusters of iterations", count(clusters.len() as u64)));
    }
    sentence.push('.');
    sentence
}

#[cfg(test)]
mod tests {
    use plimsoll_summary::Iterations;

    use super::*;

    #[test]
    fn proven_iterations_are_exact_and_others_at_least() {
        let mut it = Loop {
            path: Vec::new(),
            node: 0,
            ranks: "0-3".into(),
            executions: 4,
            mean_duration_s: 2.0,
            fraction: 0.97,
            iterations: Iterations {
                accepted: 198,
                rejected: 1,
                calls_seen: Some(200),
                exact: true,
            },
            durations_s: Vec::new(),
            clusters: Vec::new(),
        };
        let plain = |it: &Loop| sentence(it).replace('\u{a0}', " ");
        assert!(plain(&it).contains(": 200 iterations, 10.0 ms each"), "{}", plain(&it));
        it.iterations.exact = false;
        assert!(plain(&it).contains(": at least 199 iterations"), "{}", plain(&it));
    }
}
