//! Imbalance of the work in a phase, and the contexts that cause the imbalance (PPoPP20, 5.3.1).

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};

use plimsoll_collector::profile::{ContextTree, NodeId};

use crate::frame_classes::is_loop;
use crate::instances::{Instance, Instances};
use crate::owners::Owners;
use crate::subgroup_intervals::{Excess, SubgroupLosses, UnevenNode};
use crate::thresholds::{
    EVENED_OUT_FACTOR, MIN_CAUSE_SHARE, MIN_INNER_FRACTION, MIN_OWN_CAUSE_FRACTION,
    MIN_PERIODS_PER_INSTANCE, MIN_SHARED_FRACTION, SUBGROUP_FACTOR,
};
use crate::totals::{PhaseNode, PhaseSums, PhaseTotals};

/// Imbalance of one context's work: the run time that would be saved if that work were even.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct NodeImbalance {
    /// Imbalance of the context's work, callees included, in nanoseconds.
    pub inclusive_ns: f64,
    /// Imbalance of the work that the context itself is responsible for, in nanoseconds.
    pub own_ns: f64,
}

/// Imbalance in all instances of a phase.
#[derive(Clone, Debug, PartialEq)]
pub struct PhaseImbalance {
    /// Uneven wait time in the ending synchronisation (imb_symptom): sum over instances of mean
    /// minus minimum, in nanoseconds.
    pub symptom_ns: f64,
    /// Uneven work: sum over instances of maximum minus mean, net of waiting for a core, in
    /// nanoseconds. Ranks leave an instance together, and all time in it except work is wait time
    /// and communication. Uneven work is therefore equal to the uneven wait time anywhere in the
    /// instance.
    pub work_ns: f64,
    /// Even time in the ending synchronisation: sum over instances of the minimum over ranks, in
    /// nanoseconds.
    pub even_ns: f64,
    /// Loss by uneven work that shows in the ending synchronisation, in nanoseconds: at most
    /// `symptom_ns`, and at most the uneven work, because wait time is also uneven where ranks wait
    /// for a core instead of for each other.
    pub ending_ns: f64,
    /// Context in which most of the loss between subgroup synchronisations
    /// ([`crate::subgroup_intervals`]) shows, and the loss there, in nanoseconds. `None` without
    /// such a loss.
    pub in_parts: Option<(NodeId, f64)>,
    /// Losses between subgroup synchronisations.
    pub subgroup_losses: SubgroupLosses,
    /// Imbalance (imb_cause) of each context that is responsible for work.
    pub nodes: BTreeMap<NodeId, NodeImbalance>,
}

/// Computes the imbalance of each phase, by first index, over `ranks` ranks with a sampling period
/// of `period_ns` nanoseconds.
pub fn imbalances(sums: &PhaseSums, ranks: u32, period_ns: u64) -> BTreeMap<u64, PhaseImbalance> {
    let of_phase = |(index, phase): (&u64, &PhaseTotals)| {
        let whole = PhaseImbalance::new((*index, phase), &sums.instances, ranks, period_ns);
        let subgroup_losses = sums.subgroup_intervals.of_phase(*index, ranks);
        (*index, whole.with_subgroups(subgroup_losses, phase.ends_in, ranks))
    };
    sums.phases.iter().map(of_phase).collect()
}

impl PhaseImbalance {
    /// Measures a phase over `ranks` ranks with a sampling period of `period_ns` nanoseconds.
    ///
    /// Uses the kept instances, with their sums scaled to all instances of the phase. Without any
    /// kept instance, uses the totals of the phase.
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
        // The wait time of single instances includes all waiting for a core in the instance, that
        // of the totals only the part in the synchronisation.
        let symptom_ns = (symptom as f64 * scale).min(phase.sync.time.mean(ranks));
        let work_ns = work as f64 * scale;
        let ending_ns = symptom_ns.min(work_ns);
        let even_ns = (even as f64 * per_kept).min(totals.even_ns);
        Self { symptom_ns, work_ns, even_ns, ending_ns, nodes, ..totals }
    }

    /// Sets `in_parts` and `subgroup_losses`. If the losses of the subgroup intervals exceed the
    /// uneven work of whole instances by more than [`SUBGROUP_FACTOR`], also replaces `work_ns`,
    /// `ending_ns` and `nodes` by those of the subgroup intervals: then a different rank of each
    /// subgroup is slow each time, and the subgroup waits for it.
    fn with_subgroups(
        self,
        subgroup_losses: SubgroupLosses,
        ends_in: Option<NodeId>,
        ranks: u32,
    ) -> Self {
        let per_rank = 1.0 / f64::from(ranks);
        let lost = |lost: u128| lost as f64 * per_rank;
        let work_ns = lost(subgroup_losses.values().map(|loss| loss.lost).sum());
        let before = subgroup_losses.iter().filter(|(node, _)| Some(**node) != ends_in);
        let most = before.max_by_key(|(node, loss)| (loss.lost, std::cmp::Reverse(**node)));
        let in_parts = most.map(|(node, loss)| (*node, lost(loss.lost)));
        if work_ns <= SUBGROUP_FACTOR * self.work_ns || in_parts.is_none() {
            return Self { in_parts, subgroup_losses, ..self };
        }
        let mut in_all: BTreeMap<NodeId, UnevenNode> = BTreeMap::new();
        for (node, uneven) in subgroup_losses.values().flat_map(|loss| &loss.nodes) {
            in_all.entry(*node).or_default().combine(uneven);
        }
        let nodes = self.nodes.iter().map(|(node, whole)| {
            let uneven = in_all.get(node).copied().unwrap_or_default();
            let imbalance = NodeImbalance {
                inclusive_ns: uneven.inclusive.certain_or_total(per_rank, whole.inclusive_ns),
                own_ns: uneven.own.certain_or_total(per_rank, whole.own_ns),
            };
            (*node, imbalance)
        });
        let ending = ends_in.and_then(|node| subgroup_losses.get(&node));
        Self {
            work_ns,
            ending_ns: ending.map_or(0.0, |loss| lost(loss.lost)),
            in_parts,
            nodes: nodes.collect(),
            subgroup_losses,
            ..self
        }
    }

    /// Returns the imbalance of a cause in the subgroup intervals that end in `symptom`, beyond the
    /// sampling error and as a sum over ranks, in nanoseconds.
    pub fn in_subgroups_ns(&self, symptom: NodeId, cause: &Cause) -> u128 {
        let loss = self.subgroup_losses.get(&symptom);
        let uneven = loss.and_then(|loss| loss.nodes.get(&cause.node)).copied().unwrap_or_default();
        if cause.own { uneven.own.certain } else { uneven.inclusive.certain }
    }

    /// Returns whether the causes add up to more than the total loss by uneven work. Such causes
    /// lie on different ranks and partly even each other out.
    pub fn evened_out(&self, causes: &[Cause]) -> bool {
        causes.iter().map(|cause| cause.ns).sum::<f64>() > EVENED_OUT_FACTOR * self.work_ns
    }

    /// Returns the contexts with the uneven work that causes a loss of `loss_ns` nanoseconds,
    /// largest first.
    ///
    /// PPoPP20 compares causes with imb_symptom of the ending synchronisation. Here a loss may also
    /// show in messages before that synchronisation, or in both places as two losses; the symptom
    /// is the part that shows in the place at hand. Contexts in `shared` are not named as causes
    /// ([`shared_functions`]).
    ///
    /// Two contexts that are uneven on different ranks make the function that calls both even. If
    /// subgroups synchronise between the two, both cost time. Where such synchronisations show the
    /// loss, and uneven functions explain too little of it, even ones are searched, too.
    pub fn causes(
        &self,
        (tree, owners): (&ContextTree, &Owners),
        shared: &BTreeSet<NodeId>,
        loss_ns: f64,
    ) -> Vec<Cause> {
        let mut inner: BTreeMap<Option<NodeId>, Vec<NodeId>> = BTreeMap::new();
        for node in self.nodes.keys().filter(|node| !shared.contains(node)) {
            inner.entry(owners.next_owner[*node as usize]).or_default().push(*node);
        }
        let least_ns = MIN_CAUSE_SHARE * loss_ns;
        let explained_ns = |causes: &[Cause]| causes.iter().map(|cause| cause.ns).sum::<f64>();
        let opened = BTreeSet::new();
        let mut walk = Walk { tree, nodes: &self.nodes, inner, least_ns, opened, causes: vec![] };
        walk.visit_all();
        let is_much = |ns: f64| ns >= MIN_OWN_CAUSE_FRACTION * loss_ns;
        if self.in_parts.is_some_and(|(_, ns)| is_much(ns)) && !is_much(explained_ns(&walk.causes))
        {
            let shown = std::mem::take(&mut walk.causes);
            walk.opened = self.around_uneven(owners, least_ns);
            walk.visit_all();
            let factor = explained_ns(&walk.causes) / loss_ns;
            // Contexts without a synchronisation between them even each other out.
            if !(MIN_OWN_CAUSE_FRACTION..=1.0 / MIN_OWN_CAUSE_FRACTION).contains(&factor) {
                walk.causes = shown;
            }
        }
        let mut causes = walk.causes;
        causes.sort_by(Cause::larger_first);
        causes
    }

    /// Returns the contexts around those with more than `least_ns` nanoseconds of imbalance.
    fn around_uneven(&self, owners: &Owners, least_ns: f64) -> BTreeSet<NodeId> {
        let uneven = self.nodes.iter().filter(|(_, it)| it.inclusive_ns.max(it.own_ns) > least_ns);
        let outwards = |(node, _): (&NodeId, _)| {
            std::iter::successors(Some(*node), |node| owners.next_owner[*node as usize])
        };
        uneven.flat_map(outwards).collect()
    }
}

/// Returns the contexts of a phase with a function that several callers use side by side, such as a
/// kernel called by both `assemble` and `solve`. The time of such a function depends on its caller,
/// so the report names the caller.
pub fn shared_functions(
    tree: &ContextTree,
    owners: &Owners,
    phase: &PhaseTotals,
    ranks: u32,
) -> BTreeSet<NodeId> {
    let frame = |node: NodeId| &tree.frames[tree.nodes[node as usize].frame as usize];
    // Inlined calls of one function have different frames with the same name.
    let name = |node: NodeId| frame(node).function.as_str();
    /// A context of a function.
    struct Use<'a> {
        /// The caller's caller, and the name of the function.
        within: (NodeId, &'a str),
        node: NodeId,
        /// Name of the caller.
        caller: &'a str,
        /// Mean time over ranks, in nanoseconds.
        mean_ns: f64,
    }
    let functions = phase.nodes.iter().filter(|(node, _)| !is_loop(frame(**node)));
    let use_of = |(node, totals): (&NodeId, &PhaseNode)| {
        let caller = owners.caller(tree, *node)?;
        let within = (owners.caller(tree, caller)?, name(*node));
        let mean_ns = totals.inclusive.mean(ranks);
        Some(Use { within, node: *node, caller: name(caller), mean_ns })
    };
    let mut uses: Vec<Use<'_>> = functions.filter_map(use_of).collect();
    uses.sort_by_key(|it| it.within);
    let mut shared = BTreeSet::new();
    for users in uses.chunk_by(|one, other| one.within == other.within) {
        let most = users.iter().map(|it| it.mean_ns).fold(0.0, f64::max);
        let large = users.iter().filter(|it| it.mean_ns >= MIN_SHARED_FRACTION * most);
        let callers: BTreeSet<&str> = large.map(|it| it.caller).collect();
        if callers.len() > 1 {
            shared.extend(users.iter().map(|it| it.node));
        }
    }
    shared
}

/// A context that causes a loss.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cause {
    /// The context.
    pub node: NodeId,
    /// Whether only the context's own work counts, because contexts called by it are separate
    /// causes.
    pub own: bool,
    /// Run time saved if the work were even, in nanoseconds.
    pub ns: f64,
    /// Index of the process group in the phase that holds the cause; `None` if the cause may lie in
    /// any rank.
    pub group: Option<u32>,
}

impl Cause {
    /// Builds a cause that may lie in any rank.
    pub fn new(node: NodeId, own: bool, ns: f64) -> Self {
        Self { node, own, ns, group: None }
    }

    /// Compares two causes by what they explain, the larger one first.
    pub fn larger_first(a: &Self, b: &Self) -> Ordering {
        b.ns.total_cmp(&a.ns).then(a.node.cmp(&b.node))
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
        subgroup_losses: SubgroupLosses::new(),
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
    for (node, values) in kept.iter().flat_map(|instance| &instance.nodes) {
        let (inclusive, own) = sums.entry(*node).or_default();
        inclusive.add(values.inclusive.excess(ranks), error);
        own.add(values.own.excess(ranks), error);
    }
    totals
        .iter()
        .map(|(node, total)| {
            let (inclusive, own) = sums.get(node).copied().unwrap_or_default();
            let imbalance = NodeImbalance {
                inclusive_ns: inclusive.certain_or_total(scale, total.inclusive_ns),
                own_ns: own.certain_or_total(scale, total.own_ns),
            };
            (*node, imbalance)
        })
        .collect()
}

/// Walk from the outermost function to the contexts that are uneven.
struct Walk<'a> {
    tree: &'a ContextTree,
    nodes: &'a BTreeMap<NodeId, NodeImbalance>,
    inner: BTreeMap<Option<NodeId>, Vec<NodeId>>,
    least_ns: f64,
    /// Contexts that are entered although they may be even as a whole.
    opened: BTreeSet<NodeId>,
    causes: Vec<Cause>,
}

impl Walk<'_> {
    /// Not recursive: the call paths of interpreters have thousands of functions and loops.
    fn visit_all(&mut self) {
        let outermost = self.significant(None).into_iter().rev();
        let mut next: Vec<(NodeId, bool)> = outermost.map(|node| (node, true)).collect();
        while let Some((node, outermost)) = next.pop() {
            let inner = self.visit(node, outermost);
            // A loop of the outermost function may hold all of the work as well.
            let frame = &self.tree.frames[self.tree.nodes[node as usize].frame as usize];
            let is_outermost = outermost && is_loop(frame);
            next.extend(inner.into_iter().rev().map(|node| (node, is_outermost)));
        }
    }

    fn is_uneven(&self, node: NodeId) -> bool {
        self.nodes[&node].inclusive_ns > self.least_ns
    }

    fn significant(&self, outer: Option<NodeId>) -> Vec<NodeId> {
        let inner = self.inner.get(&outer).map_or(&[][..], Vec::as_slice);
        let enters = |node: &NodeId| self.is_uneven(*node) || self.opened.contains(node);
        inner.iter().copied().filter(enters).collect()
    }

    /// Adds the context as a cause if it is one. Returns the contexts inside that may be others.
    fn visit(&mut self, node: NodeId, outermost: bool) -> Vec<NodeId> {
        let imbalance = self.nodes[&node];
        let inner = self.significant(Some(node));
        let explained: f64 = inner.iter().map(|node| self.nodes[node].inclusive_ns).sum();
        // The outermost function holds all of the work: naming it gives no information.
        let split = outermost || explained >= MIN_INNER_FRACTION * imbalance.inclusive_ns;
        if self.is_uneven(node) && (inner.is_empty() || !split) {
            self.causes.push(Cause::new(node, false, imbalance.inclusive_ns));
            return Vec::new();
        }
        if imbalance.own_ns > self.least_ns {
            self.causes.push(Cause::new(node, true, imbalance.own_ns));
        }
        inner
    }
}
