//! Loops in sentences: how many iterations, how long, and which were alike.

use plimsoll_summary::phrase::{count, counted, end_of, percent, seconds};
use plimsoll_summary::{IterationCluster, Loop, Summary};

/// Loops that are told, and the part of the run that one takes at least.
const MOST: usize = 2;
const LEAST_FRACTION: f64 = 0.1;
/// Kinds of iterations that are told apart.
const MOST_KINDS: usize = 3;
/// Characters of a list of iterations that is shown.
const MOST_LIST: usize = 40;

/// The loops that take most of the run, a sentence each.
pub fn hottest(summary: &Summary) -> Vec<String> {
    let told = |it: &&Loop| it.iterations.accepted > 1 && it.fraction >= LEAST_FRACTION;
    summary.loops.iter().filter(told).take(MOST).map(sentence).collect()
}

fn sentence(it: &Loop) -> String {
    let iterations = &it.iterations;
    // Those that are too short to say more of were told apart, too.
    let all = (iterations.accepted + iterations.rejected).max(1);
    let number = counted(all, "iteration");
    // One mark or none: what samples cannot tell apart is at least that many.
    let number = if iterations.exact { number } else { format!("at least {number}") };
    let each_s = it.mean_duration_s / all as f64;
    let mut sentence = format!(
        "{}: {number}, {} each on average ({} of the run)",
        end_of(&it.path),
        seconds(each_s),
        percent(it.fraction)
    );
    let mut kinds: Vec<&IterationCluster> = it.clusters.iter().collect();
    let is_short = kinds.iter().all(|kind| kind.iterations.len() <= MOST_LIST);
    if kinds.len() > 1 && kinds.len() <= MOST_KINDS && is_short {
        kinds.sort_by(|a, b| b.mean_s.total_cmp(&a.mean_s));
        let kind = |it: &&IterationCluster| {
            format!("{} in iterations {}", seconds(it.mean_s), it.iterations)
        };
        sentence.push_str("; ");
        sentence.push_str(&kinds.iter().map(kind).collect::<Vec<_>>().join(", "));
    } else if kinds.len() > 1 {
        sentence.push_str(&format!("; of {} kinds", count(kinds.len() as u64)));
    }
    sentence.push('.');
    sentence
}
