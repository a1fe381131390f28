//! Unsampled work, shared out: a rest in a context goes to the contexts at or below it that were
//! sampled outside wrapped calls in the same phase, in proportion to their sampled work.

use std::collections::{BTreeMap, BTreeSet};

use crate::profile::{Node, NodeId};

/// Recipients of the unsampled time of one phase.
pub(crate) struct Apportionment {
    recipients: BTreeMap<NodeId, Vec<(NodeId, u64)>>,
}

impl Apportionment {
    /// Creates the recipients of the contexts in `unsampled`; `worked` are the contexts with their
    /// sampled work.
    pub(crate) fn new(
        nodes: &[Node],
        unsampled: &BTreeSet<NodeId>,
        worked: impl Iterator<Item = (NodeId, u64)>,
    ) -> Self {
        let mut recipients: BTreeMap<NodeId, Vec<(NodeId, u64)>> = BTreeMap::new();
        for (node, work) in worked.filter(|(_, work)| *work > 0) {
            let mut outer = Some(node);
            while let Some(at) = outer {
                if unsampled.contains(&at) {
                    recipients.entry(at).or_default().push((node, work));
                }
                outer = nodes.get(at as usize).and_then(|node| node.parent);
            }
        }
        Self { recipients }
    }

    /// Shares out a rest: calls `give` with each context and its part. The parts sum up to `rest`;
    /// where nobody shares, it stays at `node`.
    pub(crate) fn split(&self, node: NodeId, rest: u64, mut give: impl FnMut(NodeId, u64)) {
        let recipients = self.recipients.get(&node).map(Vec::as_slice).unwrap_or_default();
        let total: u128 = recipients.iter().map(|(_, work)| u128::from(*work)).sum();
        if total == 0 {
            return give(node, rest);
        }
        let mut work_before = 0u128;
        let mut given = 0u64;
        for (recipient, work) in recipients {
            work_before += u128::from(*work);
            let until = (u128::from(rest) * work_before / total) as u64;
            if until > given {
                give(*recipient, until - given);
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
        let unsampled = BTreeSet::from([0, 1, 3]);
        let worked = [(1, 10), (2, 30), (3, 0)];
        let shares = Apportionment::new(&nodes, &unsampled, worked.into_iter());
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
