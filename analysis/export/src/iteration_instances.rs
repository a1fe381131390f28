//! Representative iterations as they ran, taken from a second summary that was made from the spool.

use std::collections::HashMap;

use plimsoll_summary::{Frame, IterationCluster, IterationInstance, IterationSlice, Loop, Summary};

/// Number of representative iterations of a summary.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct InstanceCounts {
    /// Iterations that stand for a described cluster.
    pub wanted: usize,
    /// Iterations of them that the spool has.
    pub found: usize,
}

/// Gives the clusters of a summary the representative iterations that `spooled` has of the same
/// loops on the same ranks: for contexts by their call paths, since the trees of both may differ.
pub fn adopt_instances(summary: &mut Summary, spooled: &Summary) -> InstanceCounts {
    let mut counts = InstanceCounts::default();
    let mut loops = std::mem::take(&mut summary.loops);
    let contexts: HashMap<Vec<Frame>, u32> =
        (0..summary.tree.nodes.len() as u32).map(|node| (summary.tree.path(node), node)).collect();
    let place = |node: u32| contexts.get(&spooled.tree.path(node)).copied();
    for it in &mut loops {
        let same = |other: &&Loop| other.path == it.path && other.rank == it.rank;
        let other = spooled.loops.iter().find(same);
        for cluster in it.clusters.iter_mut().filter(|cluster| !cluster.slices.is_empty()) {
            counts.wanted += 1;
            let same = |other: &&IterationCluster| {
                other.iterations == cluster.iterations
                    && other.representative == cluster.representative
            };
            let known = other.and_then(|other| other.clusters.iter().find(same));
            cluster.instance = known.and_then(|known| {
                let instance = known.instance.as_ref()?;
                let slice = |slice: &IterationSlice| {
                    Some(IterationSlice { node: place(slice.node)?, ..slice.clone() })
                };
                Some(IterationInstance {
                    duration_s: instance.duration_s,
                    slices: instance.slices.iter().filter_map(slice).collect(),
                })
            });
            counts.found += usize::from(cluster.instance.is_some());
        }
    }
    summary.loops = loops;
    counts
}
