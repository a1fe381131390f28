//! Converts loops to the summary's form.

use plimsoll_collector::profile::{ContextTree, FrameKind, LoopCluster, LoopSlice, NodeId};

use crate::clocks::Alignment;
use crate::distinctions::distinction;
use crate::loop_totals::{Longest, Step, proves};
use crate::metrics::NS_PER_S;
use crate::ranks::RankSet;
use crate::summary::{
    self, Distinction, IterationCluster, IterationInstance, IterationSlice, Iterations,
};
use crate::summary_tree::shown_path;
use crate::totals::Totals;

/// Maximum number of iteration durations in a summary.
const MAX_DURATIONS: usize = 200;

/// Returns the program's loops for the summary, longest first; `places` are the contexts' numbers
/// in the summary's tree.
pub fn shown(totals: &Totals, places: &[Option<u32>], alignment: &Alignment) -> Vec<summary::Loop> {
    let (ranks, elapsed_ns) = (totals.job.ranks.len(), totals.job.elapsed_ns);
    let loops = totals.loops.longest_first().into_iter();
    let of_program = loops.filter(|(node, _)| !is_of_runtime(&totals.tree.contexts, *node));
    let shown = of_program.filter_map(|(node, it)| {
        let longest = &it.longest;
        let each = |number: u64| number.div_ceil(longest.executions.max(1));
        let accepted = each(longest.accepted);
        let calls_seen = longest.calls.map(each);
        let mean_ns = it.duration_ns as f64 / it.executions.max(1) as f64;
        // If samples do not distinguish iterations on some ranks, the loop's contexts still contain
        // the time of these ranks.
        let in_contexts_ns = totals.nodes[node as usize].inclusive.sum as f64;
        let whole_ns = in_contexts_ns.max(it.duration_ns as f64) / f64::from(ranks.max(1));
        let rejected = each(longest.rejected);
        let (steps, stride) = it.steps(MAX_DURATIONS);
        let run_begin_ns = longest.run_begin.as_ref().map(|begin| alignment.begin_of_ns(begin));
        let begin_s = |step: &Step| {
            let begin_ns = run_begin_ns?.saturating_add_unsigned(step.begin_ns?);
            // The rank may have begun to work before the reference did.
            Some(begin_ns.max(0) as f64 / NS_PER_S)
        };
        let number = |step: &Step| u32::try_from(step.first).unwrap_or(u32::MAX);
        let first_iterations: RankSet = steps.iter().map(number).collect();
        Some(summary::Loop {
            path: shown_path(totals, node),
            node: places[node as usize]?,
            ranks: it.ranks.to_string(),
            executions: it.executions,
            mean_duration_s: mean_ns / NS_PER_S,
            longest_s: Some(longest.mean_ns as f64 / NS_PER_S),
            fraction: if elapsed_ns > 0 { whole_ns / elapsed_ns as f64 } else { 0.0 },
            iterations: Iterations {
                accepted,
                rejected,
                calls_seen,
                exact: longest.proves_executions
                    && calls_seen.is_some_and(|calls| proves(calls, accepted, rejected)),
            },
            durations_s: steps.iter().map(Step::mean_s).collect(),
            first_iterations: first_iterations.to_string(),
            stride: Some(stride),
            begins_s: match run_begin_ns {
                Some(_) => steps.iter().map(begin_s).collect(),
                None => Vec::new(),
            },
            clusters: clusters(totals, places, node, longest),
            rank: Some(longest.rank),
        })
    });
    let mut shown: Vec<summary::Loop> = shown.collect();
    shown.sort_by(|one, other| other.fraction.total_cmp(&one.fraction));
    shown
}

/// Returns whether a loop is one of the MPI library or of the OpenMP runtime.
fn is_of_runtime(tree: &ContextTree, node: NodeId) -> bool {
    let is_in_mpi = |at: NodeId| tree.frame_of(at).kind == FrameKind::Mpi;
    tree.frame_of(node).is_of_thread_runtime() || tree.outwards(node).any(is_in_mpi)
}

impl Step {
    fn mean_s(&self) -> f64 {
        self.time_ns as f64 / self.count as f64 / NS_PER_S
    }
}

fn clusters(
    totals: &Totals,
    places: &[Option<u32>],
    node: NodeId,
    longest: &Longest,
) -> Vec<IterationCluster> {
    let mut clusters: Vec<&LoopCluster> = longest.clusters.iter().collect();
    clusters.sort_by_key(|cluster| cluster.members.first());
    let shown = clusters.iter().map(|cluster| {
        let slice = |it: &LoopSlice| {
            Some(IterationSlice {
                node: places[it.node as usize]?,
                begin_s: it.begin_ns as f64 / NS_PER_S,
                duration_s: it.duration_ns as f64 / NS_PER_S,
            })
        };
        let others = clusters.iter().copied().filter(|other| !std::ptr::eq(*other, *cluster));
        let distinction = distinction(&totals.tree.contexts, node, cluster, others);
        IterationCluster {
            iterations: cluster.members.to_string(),
            mean_s: cluster.duration_ns as f64 / cluster.count.max(1) as f64 / NS_PER_S,
            representative: cluster.representative().map(|it| it.number),
            weight: Some(cluster.count),
            period: cluster.members.period(),
            distinction: distinction.and_then(|it| {
                Some(Distinction {
                    node: places[it.node as usize]?,
                    path: shown_path(totals, it.node),
                    mean_s: it.mean_ns / NS_PER_S,
                    others_s: it.others_ns / NS_PER_S,
                })
            }),
            slices: cluster.slices.iter().filter_map(slice).collect(),
            instance: cluster.instance.as_ref().map(|instance| IterationInstance {
                duration_s: instance.duration_ns as f64 / NS_PER_S,
                slices: instance.slices.iter().filter_map(slice).collect(),
            }),
        }
    });
    shown.collect()
}
