//! Representative iterations of loops, laid out for formats with a time axis: one lane per cluster
//! of iterations. All lanes begin at time 0, so that their iterations can be compared. A lane shows
//! the iteration as it ran if the summary has it, else the mean course of its cluster.

use crate::call_forest::Span;
use plimsoll_summary::phrase::{counted, end_of};
use plimsoll_summary::{IterationCluster, Loop, Summary};

/// The representative iterations of a loop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LoopLanes {
    /// Name of the loop.
    pub name: String,
    /// Clusters of the loop, those with most time first.
    pub lanes: Vec<IterationLane>,
}

/// The representative iteration of a cluster.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IterationLane {
    /// The iteration, and what it stands for.
    pub name: String,
    /// Iteration with its calls and loops, outer spans before inner ones; inner spans lie within
    /// outer ones. Exclusive times are unknown.
    pub spans: Vec<Span>,
}

/// Returns the representative iterations of all loops with described clusters and more than one
/// iteration per execution.
pub fn iteration_lanes(summary: &Summary) -> Vec<LoopLanes> {
    let is_described = |it: &&Loop| {
        let has_slices = it.clusters.iter().any(|cluster| !cluster.slices.is_empty());
        has_slices && it.iterations.accepted > 1
    };
    let lanes = |it: &Loop| {
        let all = it.clusters.iter().map(weight).sum();
        let mut clusters: Vec<&IterationCluster> = it.clusters.iter().collect();
        let time_s = |cluster: &IterationCluster| cluster.mean_s * weight(cluster) as f64;
        clusters.sort_by(|one, other| time_s(other).total_cmp(&time_s(one)));
        let lane = |cluster: &&IterationCluster| IterationLane {
            name: lane_name(cluster, all),
            spans: spans(it.node, cluster),
        };
        LoopLanes {
            name: format!("representative iterations of {}", end_of(&it.path)),
            lanes: clusters.iter().map(lane).collect(),
        }
    };
    summary.loops.iter().filter(is_described).map(lanes).collect()
}

/// Returns stretches of a lane with the innermost node that is open in each, in order, without
/// gaps.
pub fn innermost(spans: &[Span]) -> Vec<(u32, u64, u64)> {
    let mut stretches = Vec::new();
    // Nodes and ends of the open spans, the innermost last.
    let mut open: Vec<(u32, u64)> = Vec::new();
    let mut reached = 0;
    for span in spans {
        close_until(&mut open, span.begin_ns, &mut reached, &mut stretches);
        if let Some((node, _)) = open.last().filter(|_| span.begin_ns > reached) {
            stretches.push((*node, reached, span.begin_ns));
        }
        reached = span.begin_ns;
        open.push((span.node, span.begin_ns + span.inclusive_ns));
    }
    close_until(&mut open, u64::MAX, &mut reached, &mut stretches);
    stretches
}

/// Closes the spans that end before or at `until_ns`.
fn close_until(
    open: &mut Vec<(u32, u64)>,
    until_ns: u64,
    reached: &mut u64,
    stretches: &mut Vec<(u32, u64, u64)>,
) {
    while let Some((node, end_ns)) = open.pop_if(|(_, end_ns)| *end_ns <= until_ns) {
        if end_ns > *reached {
            stretches.push((node, *reached, end_ns));
            *reached = end_ns;
        }
    }
}

fn weight(cluster: &IterationCluster) -> u64 {
    cluster.weight.unwrap_or(1)
}

fn lane_name(cluster: &IterationCluster, all: u64) -> String {
    let number = match (cluster.representative, &cluster.instance) {
        (Some(number), Some(_)) => format!("iteration {number}"),
        (Some(number), None) => format!("mean course for iteration {number}"),
        (None, _) => "mean iteration".to_owned(),
    };
    let mut name =
        format!("{number}, stands for {} of {}", weight(cluster), counted(all, "iteration"));
    if let Some(period) = cluster.period {
        name.push_str(&format!(", one in {period}"));
    }
    name
}

/// Returns the iteration as a whole, and its slices within it.
fn spans(outermost: u32, cluster: &IterationCluster) -> Vec<Span> {
    let nanoseconds = |time_s: f64| (time_s * 1e9).max(0.0).round() as u64;
    let span = |node, begin_ns, inclusive_ns| Span { node, begin_ns, inclusive_ns, own_ns: 0 };
    let (duration_s, slices) = match &cluster.instance {
        Some(instance) => (instance.duration_s, &instance.slices),
        None => (cluster.mean_s, &cluster.slices),
    };
    let mut spans = vec![span(outermost, 0, nanoseconds(duration_s))];
    // Ends of the open spans: rounding must not let an inner one end after an outer one.
    let mut ends = vec![nanoseconds(duration_s)];
    for slice in slices {
        let begin_ns = nanoseconds(slice.begin_s);
        while ends.len() > 1 && ends.last().is_some_and(|end_ns| *end_ns <= begin_ns) {
            ends.pop();
        }
        let limit_ns = ends.last().copied().unwrap_or(0);
        let end_ns = (begin_ns + nanoseconds(slice.duration_s)).min(limit_ns);
        if end_ns > begin_ns {
            spans.push(span(slice.node, begin_ns, end_ns - begin_ns));
            ends.push(end_ns);
        }
    }
    spans
}

#[cfg(test)]
mod tests {
    use plimsoll_summary::{IterationInstance, IterationSlice};

    use super::*;

    fn slice(node: u32, begin_s: f64, duration_s: f64) -> IterationSlice {
        IterationSlice { node, begin_s, duration_s }
    }

    fn cluster() -> IterationCluster {
        IterationCluster {
            iterations: "0-90:10".into(),
            mean_s: 10.0,
            representative: Some(40),
            weight: Some(10),
            period: Some(10),
            distinction: None,
            // The last slice seems to end after the iteration, by rounding.
            slices: vec![slice(5, 1.0, 4.0), slice(6, 2.0, 1.0), slice(7, 6.0, 4.5)],
            instance: None,
        }
    }

    #[test]
    fn slices_lie_within_their_iteration() {
        let spans: Vec<(u32, u64, u64)> = spans(3, &cluster())
            .iter()
            .map(|it| (it.node, it.begin_ns / 1_000_000_000, it.inclusive_ns / 1_000_000_000))
            .collect();
        assert_eq!(spans, [(3, 0, 10), (5, 1, 4), (6, 2, 1), (7, 6, 4)]);
        assert_eq!(
            lane_name(&cluster(), 100),
            "mean course for iteration 40, stands for 10 of 100 iterations, one in 10"
        );
    }

    #[test]
    fn an_iteration_that_ran_is_shown_as_it_ran() {
        let mut cluster = cluster();
        let slices = vec![slice(5, 1.0, 5.0), slice(7, 7.0, 2.0)];
        cluster.instance = Some(IterationInstance { duration_s: 11.0, slices });
        let spans: Vec<(u32, u64, u64)> = spans(3, &cluster)
            .iter()
            .map(|it| (it.node, it.begin_ns / 1_000_000_000, it.inclusive_ns / 1_000_000_000))
            .collect();
        assert_eq!(spans, [(3, 0, 11), (5, 1, 5), (7, 7, 2)]);
        assert!(lane_name(&cluster, 100).starts_with("iteration 40, stands for"));
    }

    #[test]
    fn each_moment_has_one_innermost_node() {
        let stretches = innermost(&spans(3, &cluster()));
        let seconds: Vec<(u32, u64, u64)> = stretches
            .iter()
            .map(|(node, begin, end)| (*node, begin / 1_000_000_000, end / 1_000_000_000))
            .collect();
        assert_eq!(seconds, [(3, 0, 1), (5, 1, 2), (6, 2, 3), (5, 3, 5), (3, 5, 6), (7, 6, 10)]);
    }
}
