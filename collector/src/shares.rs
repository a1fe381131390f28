//! Unsampled work, shared out: a rest in a context goes to the contexts at or below it that were
//! sampled outside wrapped calls in the same phase, in proportion to their sampled work.

use std::collections::{BTreeMap, BTreeSet};

use crate::profile::{Node, NodeId};

/// Who shares in the rests of one phase.
pub(crate) struct Shares {
    sharers: BTreeMap<NodeId, Vec<(NodeId, u64)>>,
}

impl Shares {
    /// The sharers of the contexts `rests`; `worked` are the contexts with sampled work, and how
    /// much.
    pub(crate) fn new(
        nodes: &[Node],
        rests: &BTreeSet<NodeId>,
        worked: impl Iterator<Item = (NodeId, u64)>,
    ) -> Self {
        let mut sharers: BTreeMap<NodeId, Vec<(NodeId, u64)>> = BTreeMap::new();
        for (node, work) in worked.filter(|(_, work)| *work > 0) {
            let mut outer = Some(node);
            while let Some(at) = outer {
                if rests.contains(&at) {
                    sharers.entry(at).or_default().push((node, work));
                }
                outer = nodes.get(at as usize).and_then(|node| node.parent);
            }
        }
        Self { sharers }
    }

    /// Shares out a rest: calls `give` with each context and its part. The parts sum up to `rest`;
    /// where nobody shares, it stays at `node`.
    pub(crate) fn split(&self, node: NodeId, rest: u64, mut give: impl FnMut(NodeId, u64)) {
        let sharers = self.sharers.get(&node).map(Vec::as_slice).unwrap_or_default();
        let total: u128 = sharers.iter().map(|(_, work)| u128::from(*work)).sum();
        if total == 0 {
            return give(node, rest);
        }
        let mut work_before = 0u128;
        let mut given = 0u64;
        for (sharer, work) in sharers {
            work_before += u128::from(*work);
            let until = (u128::from(rest) * work_before / total) as u64;
            if until > given {
                give(*sharer, until - given);
            }
            given = until;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_go_to_sampled_contexts_below_in_proportion() {
        let node = |parent| Node { parent, frame: 0, site: 0 };
        // 0 -> {1 -> 2, 3}
        let nodes = [node(None), node(Some(0)), node(Some(1)), node(Some(0))];
        let rests = BTreeSet::from([0, 1, 3]);
        let worked = [(1, 10), (2, 30), (3, 0)];
        let shares = Shares::new(&nodes, &rests, worked.into_iter());
        let split = |node, rest| {
            let mut parts = Vec::new();
            shares.split(node, rest, |node, part| parts.push((node, part)));
            parts
        };
        assert_eq!(split(0, 8), [(1, 2), (2, 6)]);
        assert_eq!(split(1, 7), [(1, 1), (2, 6)], "no stamp is lost to rounding");
        assert_eq!(split(3, 5), [(3, 5)], "nobody was sampled there");
    }
}
