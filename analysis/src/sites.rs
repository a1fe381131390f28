//! Functions that ranks reach at different places of one function: `if (rank == 0) spin(...)`, else
//! another call of it. The ranks do equal work there, although at different lines.

use std::collections::BTreeMap;

use plimsoll_collector::profile::{ContextTree, NodeId};

use crate::frame_classes::is_loop;
use crate::metrics::Accumulator;
use crate::owners::Owners;
use crate::totals::PhaseTotals;

/// A function, called or inlined, within another one.
type CodeSite<'a> = (Option<NodeId>, &'a str);

/// Returns the function of a context and the function around it; `None` for a loop.
pub fn code_site<'a>(tree: &'a ContextTree, owners: &Owners, node: NodeId) -> Option<CodeSite<'a>> {
    let frame = tree.frame_of(node);
    (!is_loop(frame)).then(|| (owners.function_outside(tree, node), frame.function.as_str()))
}

/// Time over ranks in each function of a phase, added up over all places in the surrounding
/// function.
pub struct Sites<'a> {
    tree: &'a ContextTree,
    owners: &'a Owners,
    phase: &'a PhaseTotals,
    times: BTreeMap<CodeSite<'a>, Accumulator>,
}

impl<'a> Sites<'a> {
    /// Adds up the times of all places.
    pub fn new(tree: &'a ContextTree, owners: &'a Owners, phase: &'a PhaseTotals) -> Self {
        let mut sites = Self { tree, owners, phase, times: BTreeMap::new() };
        for (node, totals) in &phase.nodes {
            if let Some(place) = code_site(tree, owners, *node) {
                sites.times.entry(place).or_default().combine(&totals.inclusive);
            }
        }
        sites
    }

    /// Returns the time over ranks in a context and in all other contexts of its function within
    /// the surrounding function; for a loop, the time in that loop. A rank that is in several of
    /// these contexts counts once for each.
    pub fn time(&self, node: NodeId) -> Accumulator {
        match code_site(self.tree, self.owners, node) {
            Some(place) => self.times.get(&place).copied().unwrap_or_default(),
            None => {
                self.phase.nodes.get(&node).map_or_else(Accumulator::default, |it| it.inclusive)
            }
        }
    }

    /// Returns the outermost context, at or around `node`, in which at most half of the ranks were
    /// seen.
    pub fn branch(&self, node: NodeId, ranks: u32) -> Option<NodeId> {
        let is_of_few = |node: &NodeId| {
            self.phase.nodes.get(node).is_some_and(|it| it.inclusive.ranks <= ranks / 2)
        };
        self.owners.owners_outward(node).filter(is_of_few).last()
    }
}
