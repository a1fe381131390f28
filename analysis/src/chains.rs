//! Losses to partners, after the ranks have reported their waits: finds the ranks that are waited
//! for, and the rank and context at which a chain of waiting ranks begins.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_collector::profile::{ContextTree, FrameKind, NodeId};

use crate::canonical::{find, path};
use crate::delays::{Waits, origins};
use crate::finding::Finding;
use crate::imbalance::{Cause, shared_functions};
use crate::late_partners::{LatePartners, Origins, Reasons};
use crate::metrics::NS_PER_S;
use crate::owners::{Owners, function_around};
use crate::pairs::{Begin, MatrixAxis, Pairs, Work};
use crate::partner_work::names_partner;
use crate::ranks::RankSet;
use crate::summary::{Lateness, LossKind, Pattern, WaitsFor};
use crate::thresholds::{
    MIN_CAUSE_SHARE, MIN_EXPLAINED_WAIT_FRACTION, MIN_FOLLOWED_FRACTION, MIN_LATE_CALL_NS,
    MIN_PATTERN_FRACTION,
};
use crate::totals::Totals;

/// Ranks with at least this fraction of the waiting are named individually, all others together.
const NAMED_FRACTION: f64 = 0.1;
/// Ranks that wait at least this fraction of the longest wait are said to wait.
const WAITING_FRACTION: f64 = 0.5;
/// Minimum fraction of a loss's waiting that must begin at the origin's ranks.
const ORIGIN_FRACTION: f64 = 0.3;
/// Ranks with at least this fraction of the largest rank's share begin a chain together.
const ALIKE_FRACTION: f64 = 0.5;
/// The excess of the origin's work over the mean rank determines the causes if it is at least this
/// fraction of the origin's work; otherwise all of the work does.
const EXCESS_FRACTION: f64 = 0.1;
/// Minimum fraction of the origin's work (or excess) that makes a context a cause.
const CAUSE_FRACTION: f64 = 0.2;

/// Error of times even if all ranks read one clock, in nanoseconds.
const MIN_ERROR_NS: i64 = 1000;

/// Waits behind one loss.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Chain {
    /// Ranks that are waited for.
    pub waits_for: Vec<WaitsFor>,
    /// Begin of the chain; `None` if no ranks stand out.
    pub origin: Option<Beginning>,
    /// Reasons of the waiting; `None` if the loss has no point-to-point waits.
    pub lateness: Option<Lateness>,
    /// Main reason; `None` if there is none.
    pub pattern: Option<Pattern>,
    /// Duration of a stage of the pipeline in which the ranks wait, in nanoseconds
    /// ([`LatePartners::stage_ns`]); `None` if there is none.
    pub stage_ns: Option<f64>,
    /// Whether most of the waiting is for partners that are unknown, such as those outside of the
    /// job.
    pub are_unknown: bool,
    /// Whether messages show late partners in a loss that was taken for frequent communication,
    /// because its calls are short, or for large messages, because no call was faster.
    pub has_late_partners: bool,
}

/// The ranks at which a chain begins.
#[derive(Clone, Debug, PartialEq)]
pub struct Beginning {
    /// The ranks.
    pub ranks: RankSet,
    /// Fraction of the waiting that leads to these ranks.
    pub share: f64,
    /// Context that these ranks compute in while the others wait; `None` if none stands out.
    pub node: Option<NodeId>,
    /// Whether different ranks are the begin at different times.
    pub changes: bool,
}

/// Returns the call paths in which each loss shows.
pub fn shown_paths(totals: &Totals, findings: &[Finding]) -> Vec<Vec<Vec<crate::canonical::Step>>> {
    let contexts = &totals.tree.contexts;
    let paths = |finding: &Finding| finding.shown_in().map(|node| path(contexts, node)).collect();
    findings.iter().map(paths).collect()
}

/// Returns the chain behind each loss, in the order of `findings`. A chain is empty if messages
/// explain too little of the time in the calls in which the loss shows: a rank that polls spends
/// most of it in calls that complete no message. `error_us` is the error of the clocks.
pub fn chains(
    totals: &Totals,
    findings: &[Finding],
    pairs: &Pairs,
    axis: &MatrixAxis,
    error_us: f64,
) -> Vec<Chain> {
    let all = pairs.waits();
    let error_ns = (error_us * 1e3).ceil() as i64 + MIN_ERROR_NS;
    let partners = LatePartners::new(pairs.ends().calls(error_ns));
    let chain = |(at, finding): (usize, &Finding)| {
        let waits = pairs.loss_waits(at).unwrap_or_default();
        let whole_ns: f64 = waits.values().sum();
        let are_unknown = pairs.unknown_of_loss_ns(at) > whole_ns;
        if whole_ns < MIN_EXPLAINED_WAIT_FRACTION * shown_ns(totals, finding) {
            return Chain { are_unknown, ..Chain::default() };
        }
        let known_ns = pairs.ends().are_all().then_some(whole_ns);
        let lateness = (whole_ns > 0.0).then(|| lateness(&partners.reasons(at), known_ns));
        let known = lateness.as_ref().filter(|it| is_late(it));
        let may_be_late = known.is_some() && has_long_calls(totals, finding);
        let is_partners = finding.kind == LossKind::WaitForPartner;
        let begin = || {
            let single = beginning_of_steps(&partners.origins(at), known_ns, axis);
            single.unwrap_or_else(|| beginning(&waits, &all, axis))
        };
        let origin = (is_partners || may_be_late).then(begin).flatten();
        // Work that moves from rank to rank is uneven work ([`crate::moving_work`]).
        let has_late_partners = may_be_late && !origin.as_ref().is_some_and(|it| it.changes);
        let for_last = known.map(|_| for_last(&partners.waits(at), whole_ns, axis));
        Chain {
            waits_for: waits_for(&for_last.unwrap_or(waits), axis),
            origin: origin.filter(|_| is_partners || has_late_partners),
            lateness,
            pattern: lateness.as_ref().and_then(pattern),
            stage_ns: known.and_then(|_| partners.stage_ns(at)),
            are_unknown,
            has_late_partners,
        }
    };
    findings.iter().enumerate().map(chain).collect()
}

/// Returns whether calls that count as frequent, or as large messages, take longer than a small
/// message does, on ranks with cores enough: a partner without a core is late, too.
fn has_long_calls(totals: &Totals, finding: &Finding) -> bool {
    let calls = &totals.nodes[finding.symptom as usize];
    let per_call_ns = calls.inclusive.sum as f64 / calls.calls.max(1) as f64;
    let is_long = per_call_ns >= MIN_LATE_CALL_NS as f64;
    let kinds = [LossKind::FrequentCommunication, LossKind::LargeMessage];
    let may_wait = kinds.contains(&finding.kind) && finding.group.is_none();
    may_wait && is_long && !totals.job.lacks_cores()
}

/// Returns the time of all ranks in the contexts in which a loss shows, without collectives, in
/// nanoseconds.
fn shown_ns(totals: &Totals, finding: &Finding) -> f64 {
    let shown: BTreeSet<NodeId> = finding.shown_in().collect();
    // A loop that polls may be shown beside its polls.
    let is_outermost = |node: &&NodeId| {
        totals.tree.contexts.outwards(**node).skip(1).all(|outer| !shown.contains(&outer))
    };
    let ns = |node: &NodeId| totals.nodes[*node as usize].inclusive.sum as f64;
    let may_be_explained = shown.iter().filter(|node| names_partner(totals, **node));
    may_be_explained.filter(is_outermost).map(ns).sum()
}

/// Returns the fractions of the waiting by reason. `whole_ns`: the waiting including calls without
/// exemplary messages; `None` if only a part of the exemplary messages is here.
fn lateness(reasons: &Reasons, whole_ns: Option<f64>) -> Lateness {
    let recorded_ns = reasons.whole_ns();
    let unrecorded_ns = whole_ns.map_or(0.0, |ns| (ns - recorded_ns).max(0.0));
    let all_ns = recorded_ns + unrecorded_ns;
    if recorded_ns <= 0.0 {
        return Lateness { unknown: 1.0, ..Lateness::default() };
    }
    Lateness {
        late_sender: reasons.late_sender_ns / all_ns,
        late_receiver: reasons.late_receiver_ns / all_ns,
        transfer: reasons.transfer_ns / all_ns,
        unknown: (reasons.unknown_ns + unrecorded_ns) / all_ns,
    }
}

fn pattern(lateness: &Lateness) -> Option<Pattern> {
    if lateness.late_sender >= MIN_PATTERN_FRACTION {
        return Some(Pattern::LateSender);
    }
    (lateness.late_receiver >= MIN_PATTERN_FRACTION).then_some(Pattern::LateReceiver)
}

/// Returns whether recorded messages name the late partner in most of the waiting.
fn is_late(lateness: &Lateness) -> bool {
    lateness.late_sender + lateness.late_receiver >= MIN_PATTERN_FRACTION
}

/// Returns the waiting of a loss, `whole_ns` nanoseconds, divided as in `late`, the waits of ranks
/// for the partner that came last. A call that completes several messages waits for that one only,
/// while its measured time is shared among all partners.
fn for_last(late: &Waits, whole_ns: f64, axis: &MatrixAxis) -> Waits {
    let late_ns: f64 = late.values().sum();
    let mut waits = Waits::new();
    for ((waiter, partner), ns) in late {
        if let (Some(waiter), Some(partner)) = (axis.of(*waiter), axis.of(*partner)) {
            *waits.entry((waiter, partner)).or_default() += ns / late_ns * whole_ns;
        }
    }
    waits
}

/// Returns the ranks that the waiting ranks of a loss wait for. All ranks spend some time in the
/// calls in which the loss shows; those that wait little are not said to wait.
fn waits_for(waits: &Waits, axis: &MatrixAxis) -> Vec<WaitsFor> {
    let mut by_waiter: BTreeMap<u32, f64> = BTreeMap::new();
    for ((waiter, _), ns) in waits {
        *by_waiter.entry(*waiter).or_default() += ns / f64::from(axis.ranks(*waiter).len().max(1));
    }
    let most_ns = by_waiter.values().copied().fold(0.0, f64::max);
    let is_waiting = |waiter: &u32| by_waiter[waiter] >= WAITING_FRACTION * most_ns;
    let mut by_partner: BTreeMap<u32, f64> = BTreeMap::new();
    for ((_, partner), ns) in waits.iter().filter(|((waiter, _), _)| is_waiting(waiter)) {
        *by_partner.entry(*partner).or_default() += ns;
    }
    let whole_ns: f64 = by_partner.values().sum();
    if whole_ns <= 0.0 {
        return Vec::new();
    }
    let entry = |ranks: RankSet, ns: f64| WaitsFor {
        ranks: ranks.to_string(),
        share: ns / whole_ns,
        seconds: ns / NS_PER_S,
    };
    let is_named = |(_, ns): &(u32, f64)| *ns >= NAMED_FRACTION * whole_ns;
    let (mut named, rest): (Vec<_>, Vec<_>) =
        by_partner.into_iter().filter(|(_, ns)| *ns > 0.0).partition(is_named);
    named.sort_by(|a, b| b.1.total_cmp(&a.1).then(a.0.cmp(&b.0)));
    let mut all: Vec<WaitsFor> =
        named.into_iter().map(|(index, ns)| entry(axis.ranks(index), ns)).collect();
    if !rest.is_empty() {
        let ranks = rest.iter().fold(RankSet::default(), |all, it| all.union(&axis.ranks(it.0)));
        all.push(entry(ranks, rest.iter().map(|it| it.1).sum()));
    }
    all
}

/// Returns the ranks at which the waiting of a loss begins; `None` if the waiting leads to many
/// ranks or forms a cycle.
fn beginning(waits: &Waits, all: &Waits, axis: &MatrixAxis) -> Option<Beginning> {
    let whole_ns: f64 = waits.values().sum();
    let (alike, share) = stand_out(&origins(waits, all), whole_ns, axis.count())?;
    let ranks = alike.iter().fold(RankSet::default(), |all, it| all.union(&axis.ranks(*it)));
    Some(Beginning { ranks, share, node: None, changes: false })
}

/// Returns the ranks at which single waits originate: the same ranks all the time, or different
/// ranks at different steps. The outer `None` means that too few waits can be followed, the inner
/// one that they lead to many ranks. `whole_ns`: the waiting including calls without exemplary
/// messages; `None` if only a part of the exemplary messages is here.
fn beginning_of_steps(
    origins: &Origins,
    whole_ns: Option<f64>,
    axis: &MatrixAxis,
) -> Option<Option<Beginning>> {
    let count = axis.ranks_count();
    let begins = origins.ranks();
    let followed_ns: f64 = begins.values().sum();
    let whole_ns = whole_ns.unwrap_or(0.0).max(origins.whole_ns);
    if followed_ns <= 0.0 || followed_ns < MIN_FOLLOWED_FRACTION * whole_ns {
        return None;
    }
    if let Some((alike, share)) = stand_out(&begins, origins.whole_ns, count) {
        let ranks = alike.into_iter().collect();
        return Some(Some(Beginning { ranks, share, node: None, changes: false }));
    }
    let (mut ranks, mut explained_ns) = (RankSet::default(), 0.0);
    for step in origins.steps.values() {
        let whole_ns: f64 = step.values().sum();
        if let Some((alike, share)) = stand_out(step, whole_ns, count) {
            explained_ns += share * whole_ns;
            ranks = ranks.union(&alike.into_iter().collect());
        }
    }
    let share = explained_ns / origins.whole_ns;
    let changing = Beginning { ranks, share, node: None, changes: true };
    Some((share >= ORIGIN_FRACTION).then_some(changing))
}

/// Returns the ranks or axis entries, `count` in all, at which most of the waiting originates, and
/// their share; `None` if none stand out.
fn stand_out(begins: &BTreeMap<u32, f64>, whole_ns: f64, count: usize) -> Option<(Vec<u32>, f64)> {
    let most_ns = begins.values().copied().fold(0.0, f64::max);
    let alike = begins.iter().filter(|(_, ns)| **ns >= ALIKE_FRACTION * most_ns);
    let alike: Vec<(u32, f64)> = alike.map(|(index, ns)| (*index, *ns)).collect();
    let share = alike.iter().map(|it| it.1).sum::<f64>() / whole_ns.max(1.0);
    // If most ranks are equally waited for, none of them is the origin.
    let stands_out = 2 * alike.len() <= count || count <= 2 && alike.len() == 1;
    let named = alike.into_iter().map(|(index, _)| index).collect();
    (stands_out && share >= ORIGIN_FRACTION).then_some((named, share))
}

/// Returns the ranks at which chains begin, and their phases: these ranks are asked for their work.
pub fn begins(findings: &[Finding], chains: &[Chain]) -> Vec<Begin> {
    let begin = |(finding, chain): (&Finding, &Chain)| {
        let origin = chain.origin.as_ref()?;
        Some(Begin { phase: finding.phase, ranks: origin.ranks.clone() })
    };
    findings.iter().zip(chains).filter_map(begin).collect()
}

/// Sets the contexts in which the origins compute as causes of the losses. `answers` are the
/// answers to [`begins`], in the same order.
pub fn name_causes(
    (totals, owners): (&Totals, &Owners),
    findings: &mut [Finding],
    chains: &mut [Chain],
    answers: Vec<Work>,
) {
    let mut answers = answers.into_iter();
    for (finding, chain) in findings.iter_mut().zip(chains) {
        // Late ranks are evidence by themselves; a stage is one only if ranks of the job wait for
        // each other.
        let is_stage = finding.slow.is_empty();
        if finding.kind == LossKind::WaitForPartner && chain.are_unknown && is_stage {
            finding.causes.clear();
        }
        let lost_ns = finding.seconds * NS_PER_S;
        let late = chain.lateness.map_or(1.0, late_fraction);
        let beside_transfer = |mut causes: Vec<Cause>| {
            causes.iter_mut().for_each(|cause| cause.ns *= late);
            let explained_ns: f64 = causes.iter().map(|cause| cause.ns).sum();
            let is_enough = late == 1.0 || explained_ns >= MIN_CAUSE_SHARE * lost_ns;
            if is_enough { causes } else { Vec::new() }
        };
        if finding.kind == LossKind::WaitForPartner {
            finding.causes = beside_transfer(std::mem::take(&mut finding.causes));
        }
        let Some(origin) = &mut chain.origin else { continue };
        let Some(work) = answers.next() else { return };
        let explained_ns = lost_ns * origin.share.min(1.0);
        let causes = beside_transfer(computed(
            (totals, owners),
            finding.phase,
            &work,
            origin.ranks.len(),
            explained_ns,
        ));
        origin.node = causes.first().map(|cause| cause.node);
        // Ranks that are late by their work are not the ones that messages lead to.
        if !causes.is_empty() || !is_stage {
            finding.causes = causes;
        }
        finding.slow.clear();
        finding.slow_ranks = origin.ranks.clone();
    }
}

/// Returns the fraction of the waiting that work of late partners can explain. If most of it passes
/// after both ends of a message have begun, no work explains that time.
fn late_fraction(lateness: Lateness) -> f64 {
    match lateness.transfer >= MIN_PATTERN_FRACTION {
        true => 1.0 - lateness.transfer,
        false => 1.0,
    }
}

/// Returns the contexts in which the origin's ranks compute longer than the mean; none if they
/// hardly do: work that all ranks do alike says nothing about what they do while others wait.
fn computed(
    (totals, owners): (&Totals, &Owners),
    phase: u64,
    work: &Work,
    ranks: u32,
    lost_ns: f64,
) -> Vec<Cause> {
    let Some(phase) = totals.sums.phases.get(&phase) else { return Vec::new() };
    let (contexts, all_ranks) = (&totals.tree.contexts, totals.job.ranks.len());
    // Work of a function that several functions call is attributed to its caller.
    let shared = shared_functions(contexts, owners, phase, all_ranks);
    let mut known: BTreeMap<NodeId, (f64, f64)> = BTreeMap::new();
    for (path, ns) in work {
        let Some(node) = find(contexts, path) else { continue };
        let mean_ns = phase.nodes.get(&node).map_or(0.0, |it| it.own.mean(all_ranks));
        let mut doer = node;
        while let Some(function) = shared_around(contexts, doer, &shared) {
            let Some(caller) = owners.caller(contexts, function) else { break };
            doer = caller;
        }
        let (theirs, mean) = known.entry(doer).or_default();
        *theirs += *ns as f64 / f64::from(ranks.max(1));
        *mean += mean_ns;
    }
    let excess_ns = |(theirs, mean): &(f64, f64)| (theirs - mean).max(0.0);
    let whole_ns: f64 = known.values().map(|it| it.0).sum();
    let whole_excess_ns: f64 = known.values().map(excess_ns).sum();
    if whole_excess_ns < EXCESS_FRACTION * whole_ns {
        return Vec::new();
    }
    let weight = |it: &(f64, f64)| excess_ns(it) / whole_excess_ns.max(1.0);
    let large = known.iter().filter(|(_, it)| weight(it) >= CAUSE_FRACTION);
    let mut causes: Vec<Cause> =
        large.map(|(node, it)| Cause::new(*node, false, weight(it) * lost_ns)).collect();
    causes.sort_by(Cause::larger_first);
    causes
}

/// Returns the context itself, or the function around a loop, if several functions call it.
fn shared_around(
    contexts: &ContextTree,
    node: NodeId,
    shared: &BTreeSet<NodeId>,
) -> Option<NodeId> {
    let frame = &contexts.frames[contexts.nodes[node as usize].frame as usize];
    let function = match frame.kind {
        FrameKind::Loop => function_around(contexts, node)?,
        _ => node,
    };
    shared.contains(&function).then_some(function)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_partner_is_late_in_half_of_the_waiting() {
        let late = |late_sender: f64, late_receiver: f64| {
            pattern(&Lateness { late_sender, late_receiver, ..Lateness::default() })
        };
        assert_eq!(late(0.52, 0.48), Some(Pattern::LateSender));
        assert_eq!(late(0.48, 0.52), Some(Pattern::LateReceiver));
        assert_eq!(late(0.48, 0.48), None);
    }

    #[test]
    fn only_ranks_that_wait_long_are_said_to_wait() {
        // Ranks 0 and 2 wait for their late partners, which wait a little for them.
        let waits = Waits::from([((0, 1), 90.0), ((1, 0), 4.0), ((2, 3), 60.0), ((3, 2), 5.0)]);
        let found = waits_for(&waits, &MatrixAxis::Ranks((0..4).collect()));
        let found: Vec<_> = found.iter().map(|it| (it.ranks.as_str(), it.share)).collect();
        assert_eq!(found, [("1", 0.6), ("3", 0.4)]);
    }

    #[test]
    fn half_of_the_waiting_is_followed_to_its_origin() {
        let axis = MatrixAxis::Ranks((0..8).collect());
        let followed = |ns: f64, late_ns: f64, whole_ns: Option<f64>| {
            let steps = BTreeMap::from([(0, BTreeMap::from([(3, ns)]))]);
            beginning_of_steps(&Origins { steps, whole_ns: late_ns }, whole_ns, &axis).is_some()
        };
        assert!(followed(52.0, 100.0, None));
        assert!(!followed(48.0, 100.0, None));
        // All recorded waits are followed, but most of the waiting has no record.
        assert!(followed(52.0, 52.0, Some(100.0)));
        assert!(!followed(3.0, 3.0, Some(100.0)));
    }
}
