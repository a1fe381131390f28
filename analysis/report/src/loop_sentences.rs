//! Loops in sentences: number and duration of their iterations, and the clusters of iterations.

use plimsoll_summary::phrase::{count, counted, end_of, percent, rank_count, seconds};
use plimsoll_summary::{IterationCluster, Loop, Summary};

/// Maximum number of loops that are shown.
const MAX_LOOPS: usize = 2;
/// Minimum part of the run of a loop that is shown.
const MIN_LOOP_FRACTION: f64 = 0.1;
/// Maximum number of clusters that are described; those that take most time come first.
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
    // Rejected iterations are too short to be described, but were distinguished.
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
    if clusters.len() > 1 {
        let time_s = |cluster: &IterationCluster| cluster.mean_s * weight(cluster) as f64;
        clusters.sort_by(|a, b| time_s(b).total_cmp(&time_s(a)));
        let shown = clusters.iter().take(MAX_CLUSTERS);
        sentence.push_str("; ");
        sentence.push_str(
            &shown.map(|cluster| cluster_in_words(cluster)).collect::<Vec<_>>().join(", "),
        );
        let rest = clusters.len().saturating_sub(MAX_CLUSTERS) as u64;
        if rest > 0 {
            sentence.push_str(&format!(", and {}", counted(rest, "smaller cluster")));
        }
    }
    sentence.push('.');
    sentence
}

/// Returns the number of iterations in a cluster; files of earlier versions have only the list.
fn weight(cluster: &IterationCluster) -> u64 {
    cluster.weight.unwrap_or_else(|| rank_count(&cluster.iterations))
}

/// Returns a cluster in words: duration, iterations, period, representative and distinction.
fn cluster_in_words(cluster: &IterationCluster) -> String {
    let list = &cluster.iterations;
    let members = match weight(cluster) {
        1 => format!("iteration {list}"),
        _ if list.len() <= MAX_LIST_CHARS => format!("iterations {list}"),
        number => counted(number, "iteration"),
    };
    let mut words = format!("{} in {members}", seconds(cluster.mean_s));
    let every = cluster.period.map(|period| format!("every {}", ordinal(period)));
    let such_as = cluster.representative.filter(|_| weight(cluster) > 1);
    let such_as = such_as.map(|number| format!("such as {number}"));
    let details: Vec<String> = every.into_iter().chain(such_as).collect();
    if !details.is_empty() {
        words.push_str(&format!(" ({})", details.join(", ")));
    }
    if let Some(it) = cluster.distinction.as_ref().filter(|it| it.mean_s > it.others_s) {
        words.push_str(&format!(" with {} in {}", seconds(it.mean_s), end_of(&it.path)));
        match it.others_s > 0.0 {
            true => words.push_str(&format!(" (others: {})", seconds(it.others_s))),
            false => words.push_str(" (others: none)"),
        }
    }
    words
}

/// Returns a number as an ordinal: 2nd, 10th, 21st.
fn ordinal(number: u64) -> String {
    let suffix = match (number % 100, number % 10) {
        (11..=13, _) => "th",
        (_, 1) => "st",
        (_, 2) => "nd",
        (_, 3) => "rd",
        _ => "th",
    };
    format!("{}{suffix}", count(number))
}

#[cfg(test)]
mod tests {
    use plimsoll_summary::{Distinction, Frame, FrameKind, Iterations};

    use super::*;

    #[test]
    fn clusters_have_a_period_a_representative_and_a_distinction() {
        let build = Frame {
            kind: FrameKind::Function,
            function: "build_list".into(),
            file: None,
            line: None,
            offset: None,
            module: "md".into(),
        };
        let mut cluster = IterationCluster {
            iterations: "9-99:10".into(),
            mean_s: 0.03,
            representative: Some(49),
            weight: Some(10),
            period: Some(10),
            distinction: Some(Distinction {
                node: 2,
                path: vec![build],
                mean_s: 0.012,
                others_s: 0.0,
            }),
            slices: Vec::new(),
            instance: None,
        };
        let words = |it: &IterationCluster| cluster_in_words(it).replace('\u{a0}', " ");
        assert_eq!(
            words(&cluster),
            "30.0 ms in iterations 9-99:10 (every 10th, such as 49) with 12.0 ms in build_list \
             (others: none)"
        );
        cluster.period = None;
        cluster.distinction = None;
        assert_eq!(words(&cluster), "30.0 ms in iterations 9-99:10 (such as 49)");
        cluster.representative = None;
        (cluster.iterations, cluster.weight) = ("7".into(), None);
        assert_eq!(words(&cluster), "30.0 ms in iteration 7");
        assert_eq!(
            [1, 2, 3, 11, 12, 21].map(ordinal),
            ["1st", "2nd", "3rd", "11th", "12th", "21st"]
        );
    }

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
            first_iterations: String::new(),
            stride: None,
            begins_s: Vec::new(),
            clusters: Vec::new(),
            rank: Some(0),
        };
        let plain = |it: &Loop| sentence(it).replace('\u{a0}', " ");
        assert!(plain(&it).contains(": 200 iterations, 10.0 ms each"), "{}", plain(&it));
        it.iterations.exact = false;
        assert!(plain(&it).contains(": at least 199 iterations"), "{}", plain(&it));
    }
}
