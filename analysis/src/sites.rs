//! Functions that ranks reach at different places of one function: `if (rank == 0) call spin(...)`, else another
//! call of it. They do the same there, be it at different lines.

use std::collections::BTreeMap;

use plimsoll_collector::profile::{ContextTree, NodeId};

use crate::frames::is_loop;
use crate::metrics::Accumulator;
use crate::owners::Owners;
use crate::totals::PhaseTotals;

/// A function, called or inlined, within another one.
type Place<'a> = (Option<NodeId>, &'a str);

/// Time over ranks in each function of a phase, all places of the function around it taken together.
pub struct Sites<'a> {
    tree: &'a ContextTree,
    owners: &'a Owners,
    phase: &'a PhaseTotals,
    times: BTreeMap<Place<'a>, Accumulator>,
}

impl<'a> Sites<'a> {
    /// Takes them together.
    pub fn new(tree: &'a ContextTree, owners: &'a Owners, phase: &'a PhaseTotals) -> Self {
        let mut sites = Self { tree, owners, phase, times: BTreeMap::new() };
        for (node, totals) in &phase.nodes {
            if let Some(place) = sites.place(*node) {
                sites.times.entry(place).or_default().combine(&totals.inclusive);
            }
        }
        sites
    }

    /// Time over ranks in a context and in all others of its function within the function around it; of a loop, in
    /// that loop. A rank that is in several of them counts as often.
    pub fn time(&self, node: NodeId) -> Accumulator {
        match self.place(node) {
            Some(place) => self.times.get(&place).copied().unwrap_or_default(),
            None => {
                self.phase.nodes.get(&node).map_or_else(Accumulator::default, |it| it.inclusive)
            }
        }
    }

    /// The outermost context at or around one that at most half of the ranks are seen in.
    pub fn branch(&self, node: NodeId, ranks: u32) -> Option<NodeId> {
        let is_of_few = |node: &NodeId| {
            self.phase.nodes.get(node).is_some_and(|it| it.inclusive.ranks <= ranks / 2)
        };
        self.owners.chain(node).filter(is_of_few).last()
    }

    fn place(&self, node: NodeId) -> Option<Place<'a>> {
        let frame = &self.tree.frames[self.tree.nodes[node as usize].frame as usize];
        let outside = self.owners.function_outside(self.tree, node);
        (!is_loop(frame)).then_some((outside, &frame.function))
    }
}
