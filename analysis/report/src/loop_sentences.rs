//! Loops in sentences: number and duration of their iterations, and the clusters of iterations.

use plimsoll_summary::phrase::{count, counted, end_of, percent, rank_count, seconds};
use plimsoll_summary::ranks::RankSet;
use plimsoll_summary::{Distinction, IterationCluster, Loop, Summary};

/// Maximum number of loops that are shown.
const MAX_LOOPS: usize = 2;
/// Minimum part of the run of a loop that is shown.
const MIN_LOOP_FRACTION: f64 = 0.1;
/// Maximum number of clusters that are described; those that take most time come first.
const MAX_CLUSTERS: usize = 3;
/// Maximum difference between durations that a reader need not see, as a part of the longer one.
const MAX_ALIKE_FRACTION: f64 = 0.2;
/// Maximum length of a list of iterations, in characters.
const MAX_LIST_CHARS: usize = 40;

/// Returns one sentence for each of the loops that take most of the run.
pub fn hottest(summary: &Summary) -> Vec<String> {
    let is_shown = |it: &&Loop| it.iterations.accepted > 1 && it.fraction >= MIN_LOOP_FRACTION;
    summary.loops.iter().filter(is_shown).take(MAX_LOOPS).map(sentence).collect()
}

fn sentence(it: &Loop) -> String {
    let iterations = &it.iterations;
    // Samples alone give a lower bound. Rejected stretches may be no iterations.
    let (all, [least, most]) = match iterations.exact {
        true => {
            let told_apart = iterations.accepted + iterations.rejected;
            (iterations.calls_seen.unwrap_or(told_apart), ["", ""])
        }
        false => (iterations.accepted, ["at least ", "at most "]),
    };
    let all = all.max(1);
    // Iterations are counted on the rank with the longest executions.
    let each_s = it.longest_s.unwrap_or(it.mean_duration_s) / all as f64;
    let mut sentence = format!(
        "{}: {least}{}, {most}{} each on average ({} of the run)",
        end_of(&it.path),
        counted(all, "iteration"),
        seconds(each_s),
        percent(it.fraction)
    );
    let mut clusters = distinguishable(&it.clusters);
    let is_numbered = has_true_numbers(it, all);
    if clusters.len() > 1 {
        let time_s = |cluster: &IterationCluster| cluster.mean_s * weight(cluster) as f64;
        clusters.sort_by(|a, b| time_s(b).total_cmp(&time_s(a)));
        let shown = clusters.iter().take(MAX_CLUSTERS);
        sentence.push_str("; ");
        sentence.push_str(
            &shown.map(|it| cluster_in_words(it, is_numbered)).collect::<Vec<_>>().join(", "),
        );
        let rest = clusters.len().saturating_sub(MAX_CLUSTERS) as u64;
        if rest > 0 {
            sentence.push_str(&format!(", and {}", counted(rest, "smaller cluster")));
        }
    }
    sentence.push('.');
    sentence
}

/// Returns whether the iterations of a loop with `all` of them may be named by their numbers. Where
/// samples missed iterations, those that they tell apart have later numbers in truth; a number that
/// is not below the bound shows that to the reader.
fn has_true_numbers(it: &Loop, all: u64) -> bool {
    let numbers = it.clusters.iter().map(|cluster| &cluster.iterations);
    let last = numbers.filter_map(|list| list.parse::<RankSet>().ok()?.iter().last()).max();
    it.iterations.exact || last.is_none_or(|last| u64::from(last) < all)
}

/// Joins clusters that take about the same time, have no period, and differ little in what they
/// execute.
fn distinguishable(clusters: &[IterationCluster]) -> Vec<IterationCluster> {
    let is_plain = |it: &IterationCluster| {
        let differs = |by: &Distinction| by.mean_s - by.others_s > MAX_ALIKE_FRACTION * it.mean_s;
        it.period.is_none() && !distinction(it).is_some_and(differs)
    };
    let members = |it: &IterationCluster| it.iterations.parse::<RankSet>().ok();
    let mut joined: Vec<IterationCluster> = Vec::new();
    for cluster in clusters {
        let is_alike = |it: &&mut IterationCluster| {
            let longer_s = it.mean_s.max(cluster.mean_s);
            let is_close = (it.mean_s - cluster.mean_s).abs() <= MAX_ALIKE_FRACTION * longer_s;
            is_close && is_plain(it) && is_plain(cluster)
        };
        if let Some(alike) = joined.iter_mut().find(is_alike)
            && let (Some(known), Some(more)) = (members(alike), members(cluster))
        {
            let (before, added) = (weight(alike), weight(cluster));
            let total_s = alike.mean_s * before as f64 + cluster.mean_s * added as f64;
            alike.mean_s = total_s / (before + added).max(1) as f64;
            alike.weight = Some(before + added);
            alike.iterations = known.union(&more).to_string();
            alike.distinction = None;
        } else {
            joined.push(cluster.clone());
        }
    }
    joined
}

/// Returns the context that distinguishes a cluster from the others; `None` if the others spend
/// more time there.
fn distinction(cluster: &IterationCluster) -> Option<&Distinction> {
    cluster.distinction.as_ref().filter(|it| it.mean_s > it.others_s)
}

/// Returns how often iterations of a cluster were executed; files of earlier versions have only the
/// list.
fn weight(cluster: &IterationCluster) -> u64 {
    cluster.weight.unwrap_or_else(|| rank_count(&cluster.iterations))
}

/// Returns a cluster in words: duration, iterations (by number if `is_numbered`), period,
/// representative and distinction.
fn cluster_in_words(cluster: &IterationCluster, is_numbered: bool) -> String {
    let list = &cluster.iterations;
    let listed = rank_count(list);
    // A list that is longer than the cluster has iterations of other clusters, too.
    let is_exact = listed <= weight(cluster);
    let members = match listed {
        1 if is_numbered => format!("iteration {list}"),
        1 => "one iteration".to_owned(),
        _ if is_numbered && is_exact && list.len() <= MAX_LIST_CHARS => {
            format!("iterations {list}")
        }
        number => counted(number.min(weight(cluster)), "iteration"),
    };
    let mut words = format!("{} in {members}", seconds(cluster.mean_s));
    let every = cluster.period.map(|period| format!("every {}", ordinal(period)));
    let such_as = cluster.representative.filter(|_| is_numbered && listed > 1);
    let such_as = such_as.map(|number| format!("such as {number}"));
    let details: Vec<String> = every.into_iter().chain(such_as).collect();
    if !details.is_empty() {
        words.push_str(&format!(" ({})", details.join(", ")));
    }
    if let Some(it) = distinction(cluster) {
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
    use plimsoll_summary::{Frame, FrameKind, Iterations};

    use super::*;

    #[test]
    fn clusters_have_a_period_a_representative_and_a_distinction() {
        let build = Frame::new(FrameKind::Function, "build_list", "md");
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
        let words = |it: &IterationCluster| cluster_in_words(it, true).replace('\u{a0}', " ");
        assert_eq!(
            words(&cluster),
            "30.0 ms in iterations 9-99:10 (every 10th, such as 49) with 12.0 ms in build_list \
             (others: none)"
        );
        cluster.period = None;
        cluster.distinction = None;
        assert_eq!(words(&cluster), "30.0 ms in iterations 9-99:10 (such as 49)");
        // In each of ten executions of the loop.
        (cluster.iterations, cluster.weight) = ("7".into(), Some(10));
        assert_eq!(words(&cluster), "30.0 ms in iteration 7");
        cluster.representative = None;
        cluster.weight = None;
        assert_eq!(words(&cluster), "30.0 ms in iteration 7");
        // The list has numbers of other clusters, too.
        (cluster.iterations, cluster.weight) = ("0-99".into(), Some(60));
        assert_eq!(words(&cluster), "30.0 ms in 60 iterations");
        assert_eq!(
            [1, 2, 3, 11, 12, 21].map(ordinal),
            ["1st", "2nd", "3rd", "11th", "12th", "21st"]
        );
    }

    #[test]
    fn clusters_that_differ_little_are_joined() {
        let cluster = |iterations: &str, mean_s, weight, period| IterationCluster {
            iterations: iterations.into(),
            mean_s,
            representative: Some(3),
            weight: Some(weight),
            period,
            distinction: None,
            slices: Vec::new(),
            instance: None,
        };
        let taking =
            |mean_s, others_s| Some(Distinction { node: 2, path: Vec::new(), mean_s, others_s });
        let jitter = cluster("17", 0.023, 2, None);
        let jitter = IterationCluster { distinction: taking(0.0225, 0.0199), ..jitter };
        let other_work = cluster("18", 0.02, 2, None);
        let other_work = IterationCluster { distinction: taking(0.012, 0.0), ..other_work };
        let joined = distinguishable(&[
            cluster("0,2-7", 0.0202, 14, None),
            cluster("1", 0.0302, 2, None),
            cluster("0-4", 0.0201, 4, None),
            cluster("8,16", 0.0202, 2, Some(8)),
            jitter,
            other_work,
        ]);
        let joined: Vec<_> = joined
            .iter()
            .map(|it| (it.iterations.as_str(), weight(it), (it.mean_s * 1e5).round()))
            .collect();
        // 14 x 20.2 ms, 4 x 20.1 ms and 2 x 23 ms.
        let alike = ("0-7,17", 20, 2046.0);
        assert_eq!(joined, [alike, ("1", 2, 3020.0), ("8,16", 2, 2020.0), ("18", 2, 2000.0)]);
    }

    #[test]
    fn proven_iterations_are_exact_and_others_at_least() {
        let mut it = Loop {
            path: Vec::new(),
            node: 0,
            ranks: "0-3".into(),
            executions: 4,
            mean_duration_s: 2.0,
            longest_s: None,
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
        // Other ranks run fewer iterations than the one on which they are counted.
        it.longest_s = Some(4.0);
        assert!(plain(&it).contains(": 200 iterations, 20.0 ms each on average"), "{}", plain(&it));
        // A rejected stretch is not certain to be an iteration.
        it.iterations.exact = false;
        let bounds = ": at least 198 iterations, at most 20.2 ms each on average";
        assert!(plain(&it).contains(bounds), "{}", plain(&it));
        let cluster = |iterations: &str, mean_s, weight| IterationCluster {
            iterations: iterations.into(),
            mean_s,
            representative: Some(3),
            weight: Some(weight),
            period: None,
            distinction: None,
            slices: Vec::new(),
            instance: None,
        };
        it.clusters = vec![cluster("0-196", 0.02, 197), cluster("197", 0.9, 1)];
        let numbered = "20.0 ms in iterations 0-196 (such as 3), 0.90 s in iteration 197.";
        assert!(plain(&it).ends_with(numbered), "{}", plain(&it));
        // A number that is not below the bound: samples missed iterations before it.
        it.clusters[1].iterations = "198".into();
        let unnumbered = "20.0 ms in 197 iterations, 0.90 s in one iteration.";
        assert!(plain(&it).ends_with(unnumbered), "{}", plain(&it));
    }
}
