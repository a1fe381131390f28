//! Imbalance of work in a phase, and the contexts that cause it (PPoPP20, 5.3.1).

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_collector::profile::{ContextTree, NodeId};

use crate::divisions::{Divided, Excess};
use crate::frames::is_loop;
use crate::instances::{Instance, Instances};
use crate::owners::Owners;
use crate::thresholds::{
    EVENED_OUT_FACTOR, MIN_CAUSE_SHARE, MIN_INNER_FRACTION, MIN_PERIODS_PER_INSTANCE,
    MIN_SHARED_FRACTION, SUBGROUP_FACTOR,
};
use crate::totals::{PhaseSums, PhaseTotals};

/// Imbalance of one context's work: what the run would be shorter by if that work were even.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NodeImbalance {
    /// With the contexts that it calls, in nanoseconds.
    pub inclusive_ns: f64,
    /// Of the part for which it answers itself, in nanoseconds.
    pub own_ns: f64,
}

/// Imbalance in all instances of a phase.
#[derive(Clone, Debug, PartialEq)]
pub struct PhaseImbalance {
    /// Uneven waiting in the ending synchronisation: imb_symptom, sum over instances of mean less
    /// minimum, in nanoseconds.
    pub symptom_ns: f64,
    /// Uneven work: sum over instances of maximum less mean, net of waiting for a core, in
    /// nanoseconds. Ranks leave an instance together, and what is not work in it is waiting and
    /// communication: so this is what uneven waiting anywhere in it adds up to.
    pub work_ns: f64,
    /// What all ranks spend in the ending synchronisation alike: sum over instances of the minimum, in
    /// nanoseconds.
    pub even_ns: f64,
    /// What is lost by uneven work and shows in the ending synchronisation, in nanoseconds. Waiting
    /// is uneven also where ranks wait for a core and not for each other, so uneven work must
    /// confirm it.
    pub ending_ns: f64,
    /// Where most of what is lost between synchronisations of parts of the ranks shows, and how much that
    /// is, in nanoseconds ([`crate::divisions`]).
    pub in_parts: Option<(NodeId, f64)>,
    /// imb_cause of each context that answers for work.
    pub nodes: BTreeMap<NodeId, NodeImbalance>,
}

/// Imbalance of each phase over `ranks` ranks whose sampling period is `period_ns`, by first index.
pub fn imbalances(sums: &PhaseSums, ranks: u32, period_ns: u64) -> BTreeMap<u64, PhaseImbalance> {
    let of_phase = |(index, phase): (&u64, &PhaseTotals)| {
        let whole = PhaseImbalance::new((*index, phase), &sums.instances, ranks, period_ns);
        let divided = sums.divisions.of_phase(*index, ranks);
        (*index, whole.divided(&divided, phase.ends_in, ranks))
    };
    sums.phases.iter().map(of_phase).collect()
}

impl PhaseImbalance {
    /// Measures a phase over `ranks` ranks whose sampling period is `period_ns`.
    ///
    /// Single instances decide where they are kept, the totals of the phase elsewhere. Where only
    /// some are kept, their sums are scaled to all.
    pub fn new(
        (index, phase): (u64, &PhaseTotals),
        instances: &Instances,
        ranks: u32,
        period_ns: u64,
    ) -> Self {
        let kept: Vec<&Instance> = instances.of_phase(index, ranks).collect();
        let totals = totals_of(phase, ranks);
        if kept.is_empty() {
            return totals;
        }
        let per_kept = phase.instances as f64 / kept.len() as f64;
        let scale = per_kept / f64::from(ranks);
        let symptom: u128 = kept
            .iter()
            .map(|i| i.wait_sum.saturating_sub(u128::from(i.wait_min) * u128::from(ranks)))
            .sum();
        let even: u128 = kept.iter().map(|i| u128::from(i.wait_min)).sum();
        let work: u128 = kept.iter().map(|instance| instance.work.excess(ranks)).sum();
        let mean_ns = phase.duration.mean(ranks) / phase.instances.max(1) as f64;
        let nodes = if mean_ns < MIN_PERIODS_PER_INSTANCE * period_ns as f64 {
            totals.nodes
        } else {
            nodes_of(&kept, &totals.nodes, ranks, scale, period_ns)
        };
        let (symptom_ns, work_ns) = (symptom as f64 * scale, work as f64 * scale);
        let ending_ns = symptom_ns.min(work_ns);
        // Of single instances waiting for a core counts as waiting here; of the totals it does not.
        let even_ns = (even as f64 * per_kept).min(totals.even_ns);
        Self { symptom_ns, work_ns, even_ns, ending_ns, in_parts: None, nodes }
    }

    /// The same, or what its divisions lose, if that is more: then ranks are slow by turns, within parts of
    /// them that wait for each other.
    fn divided(self, divided: &Divided, ends_in: Option<NodeId>, ranks: u32) -> Self {
        let per_rank = 1.0 / f64::from(ranks);
        let work_ns = divided.lost() as f64 * per_rank;
        let before = divided.lost.iter().filter(|(node, _)| Some(**node) != ends_in);
        let most = before.max_by_key(|(node, lost)| (**lost, std::cmp::Reverse(**node)));
        let in_parts = most.map(|(node, lost)| (*node, *lost as f64 * per_rank));
        if work_ns <= SUBGROUP_FACTOR * self.work_ns || in_parts.is_none() {
            return Self { in_parts, ..self };
        }
        let nodes = self.nodes.iter().map(|(node, whole)| {
            let uneven = divided.nodes.get(node).copied().unwrap_or_default();
            let imbalance = NodeImbalance {
                inclusive_ns: uneven.inclusive.or_total(per_rank, whole.inclusive_ns),
                own_ns: uneven.own.or_total(per_rank, whole.own_ns),
            };
            (*node, imbalance)
        });
        let ending = ends_in.and_then(|node| divided.lost.get(&node)).copied().unwrap_or_default();
        Self {
            work_ns,
            ending_ns: ending as f64 * per_rank,
            in_parts,
            nodes: nodes.collect(),
            ..self
        }
    }

    /// Whether causes add up to more than all that uneven work costs: they lie on different ranks
    /// and even each other out in part.
    pub fn evened_out(&self, causes: &[Cause]) -> bool {
        causes.iter().map(|cause| cause.ns).sum::<f64>() > EVENED_OUT_FACTOR * self.work_ns
    }

    /// The contexts whose uneven work causes a loss of `loss_ns`, worst first.
    ///
    /// PPoPP20 holds causes against imb_symptom of the ending synchronisation. A loss may also show in messages
    /// before it, or in both, each then a loss: what shows of it is the symptom. `shared` are contexts that are not named themselves ([`shared_functions`]).
    pub fn causes(
        &self,
        (tree, owners): (&ContextTree, &Owners),
        shared: &BTreeSet<NodeId>,
        loss_ns: f64,
    ) -> Vec<Cause> {
        let mut inner: BTreeMap<Option<NodeId>, Vec<NodeId>> = BTreeMap::new();
        for node in self.nodes.keys().filter(|node| !shared.contains(node)) {
            inner.entry(owners.outer[*node as usize]).or_default().push(*node);
        }
        let least_ns = MIN_CAUSE_SHARE * loss_ns;
        let mut walk = Walk { tree, nodes: &self.nodes, inner, least_ns, causes: vec![] };
        for node in walk.significant(None) {
            walk.visit(node, true);
        }
        let mut causes = walk.causes;
        causes.sort_by(|a, b| b.ns.total_cmp(&a.ns).then(a.node.cmp(&b.node)));
        causes
    }
}

/// Contexts of a phase whose function serves several functions side by side, as a kernel that both
/// `assemble` and `solve` call: how long it takes is its caller's choice, so that the caller is
/// what a user wants to hear of.
pub fn shared_functions(
    tree: &ContextTree,
    owners: &Owners,
    phase: &PhaseTotals,
    ranks: u32,
) -> BTreeSet<NodeId> {
    let frame = |node: NodeId| &tree.frames[tree.nodes[node as usize].frame as usize];
    // What is inlined has another frame at each place; its name is the same.
    let name = |node: NodeId| frame(node).function.as_str();
    /// A context, the name of its caller, and its mean time in nanoseconds.
    type Use<'a> = (NodeId, &'a str, f64);
    let mut uses: BTreeMap<(NodeId, &str), Vec<Use<'_>>> = BTreeMap::new();
    for (node, totals) in phase.nodes.iter().filter(|(node, _)| !is_loop(frame(**node))) {
        let Some(caller) = owners.caller(tree, *node) else { continue };
        let Some(outer) = owners.caller(tree, caller) else { continue };
        let mean_ns = totals.inclusive.mean(ranks);
        uses.entry((outer, name(*node))).or_default().push((*node, name(caller), mean_ns));
    }
    let mut shared = BTreeSet::new();
    for users in uses.into_values() {
        let most = users.iter().map(|(_, _, ns)| *ns).fold(0.0, f64::max);
        let callers: BTreeSet<&str> = users
            .iter()
            .filter(|(_, _, ns)| *ns >= MIN_SHARED_FRACTION * most)
            .map(|(_, caller, _)| *caller)
            .collect();
        if callers.len() > 1 {
            shared.extend(users.into_iter().map(|(node, _, _)| node));
        }
    }
    shared
}

/// A context that causes a loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cause {
    /// The context.
    pub node: NodeId,
    /// Only its own work, because contexts that it calls are causes of their own.
    pub own: bool,
    /// What the run would be shorter by if its work were even, in nanoseconds.
    pub ns: f64,
    /// The group of ranks that it lies in, by its place in the phase; `None` where it may be any rank.
    pub group: Option<u32>,
}

impl Cause {
    /// A cause that may lie in any rank.
    pub fn new(node: NodeId, own: bool, ns: f64) -> Self {
        Self { node, own, ns, group: None }
    }
}

fn totals_of(phase: &PhaseTotals, ranks: u32) -> PhaseImbalance {
    let nodes = phase.nodes.iter().map(|(node, totals)| {
        let inclusive_ns = totals.inclusive.imbalance(ranks);
        (*node, NodeImbalance { inclusive_ns, own_ns: totals.own.imbalance(ranks) })
    });
    let time = &phase.sync.time;
    let symptom_ns = (time.mean(ranks) - time.min(ranks) as f64).max(0.0);
    let work_ns = phase.work.imbalance(ranks);
    PhaseImbalance {
        symptom_ns,
        work_ns,
        even_ns: time.min(ranks) as f64,
        ending_ns: symptom_ns.min(work_ns),
        in_parts: None,
        nodes: nodes.collect(),
    }
}

fn nodes_of(
    kept: &[&Instance],
    totals: &BTreeMap<NodeId, NodeImbalance>,
    ranks: u32,
    scale: f64,
    period_ns: u64,
) -> BTreeMap<NodeId, NodeImbalance> {
    let error = u128::from(period_ns) * u128::from(ranks);
    let mut sums: BTreeMap<NodeId, (Excess, Excess)> = BTreeMap::new();
    for (node, values) in kept.iter().flat_map(|instance| instance.nodes()) {
        let (inclusive, own) = sums.entry(*node).or_default();
        inclusive.add(values.inclusive.excess(ranks), error);
        own.add(values.own.excess(ranks), error);
    }
    totals
        .iter()
        .map(|(node, total)| {
            let (inclusive, own) = sums.get(node).copied().unwrap_or_default();
            let imbalance = NodeImbalance {
                inclusive_ns: inclusive.or_total(scale, total.inclusive_ns),
                own_ns: own.or_total(scale, total.own_ns),
            };
            (*node, imbalance)
        })
        .collect()
}

/// The way from the outermost function to the contexts that are uneven.
struct Walk<'a> {
    tree: &'a ContextTree,
    nodes: &'a BTreeMap<NodeId, NodeImbalance>,
    inner: BTreeMap<Option<NodeId>, Vec<NodeId>>,
    least_ns: f64,
    causes: Vec<Cause>,
}

impl Walk<'_> {
    fn significant(&self, outer: Option<NodeId>) -> Vec<NodeId> {
        let inner = self.inner.get(&outer).map_or(&[][..], Vec::as_slice);
        inner.iter().copied().filter(|n| self.nodes[n].inclusive_ns > self.least_ns).collect()
    }

    fn visit(&mut self, node: NodeId, outermost: bool) {
        let imbalance = self.nodes[&node];
        let inner = self.significant(Some(node));
        let explained: f64 = inner.iter().map(|node| self.nodes[node].inclusive_ns).sum();
        // The outermost function holds everything: to name it says nothing.
        let split = outermost || explained >= MIN_INNER_FRACTION * imbalance.inclusive_ns;
        if inner.is_empty() || !split {
            self.causes.push(Cause::new(node, false, imbalance.inclusive_ns));
            return;
        }
        if imbalance.own_ns > self.least_ns {
            self.causes.push(Cause::new(node, true, imbalance.own_ns));
        }
        for node in inner {
            // A loop of it may hold everything as well.
            let frame = &self.tree.frames[self.tree.nodes[node as usize].frame as usize];
            self.visit(node, outermost && is_loop(frame));
        }
    }
}
