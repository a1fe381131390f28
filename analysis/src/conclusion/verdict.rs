//! Converts a loss to the summary's form: symptom, causes and advice.

use std::collections::BTreeMap;

use plimsoll_collector::profile::NodeId;

use super::{Conclusion, phase_id};
use crate::advice::{AdviceInput, advice};
use crate::awaited_threads::cause_in_threads;
use crate::chains::Chain;
use crate::communication::transfer_part;
use crate::finding::{Finding, Holder, cause_time};
use crate::imbalance::Cause;
use crate::label::Label;
use crate::labelling::{ContextClass, shown};
use crate::metrics::{Accumulator, NS_PER_S};
use crate::ranks::RankSet;
use crate::sibling_losses::is_between_siblings;
use crate::summary::{self, Loss, LossKind, Symptom};
use crate::summary_tree::shown_path;
use crate::totals::{CallTotals, PhaseTotals, Totals};
use crate::work_differences::Compared;

pub(super) fn loss(
    conclusion: &Conclusion,
    (finding, chain): (&Finding, &Chain),
    slow: &RankSet,
    waiting: &RankSet,
    places: &[Option<u32>],
) -> Loss {
    let totals = &conclusion.totals;
    let elapsed_s = totals.job.elapsed_ns as f64 / NS_PER_S;
    let of_group = |group| phases_of_group(conclusion, finding, group);
    // A context without time is not in the summary's tree; the one around it stands for it.
    let shown_at = |node: NodeId| {
        let mut outwards = totals.tree.contexts.outwards(node);
        outwards.find(|node| places[*node as usize].is_some()).unwrap_or(0)
    };
    let place = |node: NodeId| places[shown_at(node) as usize].unwrap_or(0);
    // The work of a phase can be more uneven than one of the losses shows that it causes: it
    // explains all of each. Only causes that even each other out exceed the loss together.
    let share = |cause: &Cause| {
        let share = cause.ns / NS_PER_S / finding.seconds;
        if finding.evened_out { share } else { share.min(1.0) }
    };
    let cause = |(cause, shown): (&Cause, NodeId)| {
        let in_run = totals.nodes[cause.node as usize].inclusive;
        let all = totals.job.ranks.len();
        let times = match finding.kind {
            // These causes are blamed for their calls, not for their work: with the time in all
            // phases and ranks.
            LossKind::FrequentCommunication
            | LossKind::LargeMessage
            | LossKind::LargeIo
            | LossKind::LockContention
            | LossKind::ThreadImbalance
            | LossKind::FineGrainedTasks
            | LossKind::FineGrainedRegions => Times::of(&in_run, all),
            LossKind::SerialSection => {
                let serial = totals.teams.serial.get(&cause.node).copied().unwrap_or_default();
                Times::of(&serial.time, all)
            }
            _ => {
                let (phases, ranks) = of_group(cause.group.or(finding.group));
                let times = phases.iter().map(|phase| cause_time(phase, cause));
                let times = Times::in_phases(times, ranks);
                // The slowest ranks of the phases may differ.
                Times { max_s: times.max_s.min(in_run.max as f64 / NS_PER_S), ..times }
            }
        };
        summary::Cause {
            path: shown_path(totals, shown_at(shown)),
            node: place(shown),
            group: None,
            seconds: cause.ns / NS_PER_S,
            share: share(cause),
            mean_s: times.mean_s,
            max_s: times.max_s,
            difference: None,
        }
    };
    let holder = |holder: &Holder| summary::LockHolder {
        path: shown_path(totals, shown_at(holder.call)),
        node: place(holder.call),
        share: holder.share,
    };
    let causes: Vec<summary::Cause> =
        finding.causes.iter().zip(shown_causes(totals, finding)).map(cause).collect();
    let cause_s = causes.first().map_or((0.0, 0.0), |cause| (cause.mean_s, cause.max_s));
    let transfer = chain.lateness.map_or(0.0, |lateness| lateness.transfer);
    let context_class = conclusion.context_classes[finding.symptom as usize];
    let symptom = |node: NodeId| Symptom {
        path: shown_path(totals, shown_at(node)),
        node: place(node),
        ..symptom(conclusion, finding, node)
    };
    Loss {
        kind: finding.kind,
        severity: finding.seconds / elapsed_s,
        seconds: finding.seconds,
        elapsed_without_s: (elapsed_s - finding.seconds).max(0.0),
        phase: phase_id(totals, finding.phase),
        also_in_phases: finding.other_phases.keys().map(|it| phase_id(totals, *it)).collect(),
        group: finding.group,
        label: match finding.kind {
            LossKind::Oversubscription => Label::Computation,
            _ => shown(context_class, totals.nodes[finding.symptom as usize].derived),
        },
        polling: context_class.polling,
        evened_out: finding.evened_out,
        by_turns: finding.by_turns,
        slow_ranks: slow.to_string(),
        waiting_ranks: waiting.to_string(),
        when: None,
        advice: advice(totals, &AdviceInput { finding, slow, waiting, cause_s, transfer }),
        symptom: symptom(finding.symptom),
        also_in: finding.also_in.iter().map(|node| symptom(*node)).collect(),
        causes,
        median_s: match finding.kind {
            LossKind::FineGrainedTasks => totals.openmp.median_of_short_tasks(),
            LossKind::FineGrainedRegions => totals.openmp.median_of_region(finding.symptom),
            _ => None,
        },
        holders: finding.holders.iter().map(holder).collect(),
        waits_for: chain.waits_for.clone(),
        node: finding.place.as_ref().map(|place| place.host.clone()),
        factor: finding.place.as_ref().map(|place| place.factor),
        origin: chain.origin.as_ref().map(|origin| summary::Origin {
            ranks: origin.ranks.to_string(),
            node: origin.node.and_then(|node| places[node as usize]),
            share: origin.share.min(1.0),
            changes: origin.changes,
        }),
        pattern: chain.pattern,
        lateness: chain.lateness,
    }
}

/// Returns the contexts that are shown as the causes of a loss. Where a cause is only a wait for
/// other threads of the rank, this is their work, unless several causes are waits for it.
fn shown_causes(totals: &Totals, finding: &Finding) -> Vec<NodeId> {
    let causes = finding.causes.iter().map(|cause| cause.node);
    let work: Vec<Option<NodeId>> =
        causes.clone().map(|cause| cause_in_threads(totals, cause)).collect();
    let is_of_one = |it: &NodeId| work.iter().flatten().filter(|other| *other == it).count() == 1;
    causes.zip(&work).map(|(cause, work)| work.filter(is_of_one).unwrap_or(cause)).collect()
}

/// Returns the phase and the ranks over which a cause's time is compared.
pub(super) fn compared<'a>(
    conclusion: &'a Conclusion,
    finding: &Finding,
    cause: &Cause,
) -> Compared<'a> {
    let group = cause.group.or(finding.group);
    let (phases, ranks) = phases_of_group(conclusion, finding, group);
    let members = conclusion.groups.get(&finding.phase).zip(group);
    let among = members.and_then(|(groups, group)| Some(groups.get(group as usize)?.ranks.clone()));
    Compared { phase: phases[0], ranks, among }
}

/// Returns the phases of a loss ([`Finding::phases`]), and the number of ranks that its values are
/// averaged over: the ranks of `group`, or all ranks in a group imbalance and if no group is named.
fn phases_of_group<'a>(
    conclusion: &'a Conclusion,
    finding: &Finding,
    group: Option<u32>,
) -> (Vec<&'a PhaseTotals>, u32) {
    let Conclusion { totals, groups, .. } = conclusion;
    let of_phase = groups.get(&finding.phase).filter(|_| finding.kind != LossKind::GroupImbalance);
    match group.and_then(|group| of_phase?.get(group as usize)) {
        Some(group) => {
            // The ranks of a first instance may form other groups.
            let same = |index| groups.get(index)?.iter().find(|it| it.ranks == group.ranks);
            let others = finding.other_phases.keys().filter_map(same);
            let groups = [group].into_iter().chain(others);
            (groups.map(|group| &group.phase).collect(), group.ranks.len())
        }
        None => (finding.phases(totals), totals.job.ranks.len()),
    }
}

/// Returns the symptom of a loss in the context `node`, without its path.
fn symptom(conclusion: &Conclusion, finding: &Finding, node: NodeId) -> Symptom {
    let (totals, context_class) = (&conclusion.totals, conclusion.context_classes[node as usize]);
    let (phases, ranks) = phases_of_group(conclusion, finding, finding.group);
    match finding.kind {
        LossKind::Oversubscription => delayed(totals, node, phases[0], context_class),
        LossKind::LockContention | LossKind::SerialSection | LossKind::FineGrainedTasks => {
            locking(totals, node, context_class)
        }
        LossKind::ThreadImbalance if is_between_siblings(totals, finding) => {
            locking(totals, node, context_class)
        }
        LossKind::ThreadImbalance | LossKind::FineGrainedRegions => {
            idling(totals, node, context_class)
        }
        kind => synchronising(totals, (kind, node), (&phases, ranks)),
    }
}

/// Returns the symptom of ranks that wait for each other, in a synchronisation or in another call.
fn synchronising(
    totals: &Totals,
    (kind, node): (LossKind, NodeId),
    (phases, ranks): (&[&PhaseTotals], u32),
) -> Symptom {
    let mut calls: Vec<&CallTotals> = phases.iter().filter_map(|phase| phase.wait(node)).collect();
    if calls.is_empty() {
        calls.push(&phases[0].sync);
    }
    let times = Times::in_phases(calls.iter().map(|call| call.time), ranks);
    let mut sync = CallTotals::default();
    calls.into_iter().for_each(|call| sync.combine(call));
    let (calls, total_ns) = (sync.calls, sync.time.sum as f64);
    let fraction = |ns: u64| ns as f64 / total_ns;
    Symptom {
        calls,
        calls_exact: is_wrapped(totals, node),
        per_call_s: (calls > 0).then(|| total_ns / calls as f64 / NS_PER_S),
        bytes: (sync.bytes > 0).then_some(sync.bytes),
        breakdown: match kind {
            LossKind::WaitForPartner | LossKind::LargeMessage => transfer(totals, &sync),
            _ => sync.by_label.iter().map(|(label, ns)| (*label, fraction(*ns))).collect(),
        },
        ..times.symptom()
    }
}

/// Returns the fractions of a call's time by label. The part that no function name of the MPI
/// library explains is divided: the time in which the run's bandwidth estimate moves the call's
/// bytes is message transfer, the remainder is waiting for the partner.
fn transfer(totals: &Totals, call: &CallTotals) -> BTreeMap<Label, f64> {
    let fraction = |ns: u64| ns as f64 / call.time.sum as f64;
    let mut breakdown: BTreeMap<Label, f64> =
        call.by_label.iter().map(|(label, ns)| (*label, fraction(*ns))).collect();
    let unlabelled = breakdown.remove(&Label::Communication).unwrap_or(0.0);
    let labelled = |(label, _): &(&Label, &f64)| label.is_a(Label::DataTransfer);
    let labelled: f64 = breakdown.iter().filter(labelled).map(|(_, part)| part).sum();
    let moving = (transfer_part(call, &totals.bandwidths) - labelled).clamp(0.0, unlabelled);
    for (label, part) in [(Label::Message, moving), (Label::WaitPartner, unlabelled - moving)] {
        if part > 0.0 {
            *breakdown.entry(label).or_default() += part;
        }
    }
    breakdown
}

/// Returns the symptom of threads that are idle in a parallel region, over the whole run: the idle
/// time of one thread.
fn idling(totals: &Totals, node: NodeId, context_class: ContextClass) -> Symptom {
    let idle = totals.teams.idle.get(&node).copied().unwrap_or_default();
    let sums = totals.openmp.region(node).map(|region| &region.sums);
    let (calls, elapsed_ns) = sums.map_or((0, 0), |sums| (sums.instances, sums.elapsed_ns));
    Symptom {
        calls,
        calls_exact: true,
        per_call_s: (calls > 0).then(|| elapsed_ns as f64 / calls as f64 / NS_PER_S),
        breakdown: [(context_class.label, 1.0)].into(),
        ..Times::of(&idle, totals.job.ranks.len()).symptom()
    }
}

/// Returns the symptom of threads that wait for locks or for work, over the whole run.
fn locking(totals: &Totals, node: NodeId, context_class: ContextClass) -> Symptom {
    let of_node = &totals.nodes[node as usize];
    let time_s = of_node.inclusive.sum as f64 / NS_PER_S;
    Symptom {
        calls: of_node.calls,
        calls_exact: is_wrapped(totals, node),
        per_call_s: (of_node.calls > 0).then(|| time_s / of_node.calls as f64),
        breakdown: [(context_class.label, 1.0)].into(),
        ..Times::of(&of_node.inclusive, totals.job.ranks.len()).symptom()
    }
}

/// Returns the symptom of ranks that wait for a core: the waiting in the context that has most of
/// it.
fn delayed(
    totals: &Totals,
    node: NodeId,
    phase: &PhaseTotals,
    context_class: ContextClass,
) -> Symptom {
    let in_phase = phase.nodes.get(&node).copied().unwrap_or_default();
    Symptom {
        calls: totals.nodes[node as usize].calls,
        calls_exact: is_wrapped(totals, node),
        breakdown: [(context_class.label, 1.0)].into(),
        ..Times::of(&in_phase.run_delay, totals.job.ranks.len()).symptom()
    }
}

/// Mean, minimum and maximum over ranks of a time, in seconds.
struct Times {
    mean_s: f64,
    min_s: f64,
    max_s: f64,
}

impl Times {
    fn of(time: &Accumulator, ranks: u32) -> Self {
        Self {
            mean_s: time.mean(ranks) / NS_PER_S,
            min_s: time.min(ranks) as f64 / NS_PER_S,
            max_s: time.max as f64 / NS_PER_S,
        }
    }

    /// Adds up the times of the same `ranks` in several phases. Minimum and maximum are exact if
    /// the same ranks have them in all phases, and otherwise a lower and an upper bound.
    fn in_phases(times: impl Iterator<Item = Accumulator>, ranks: u32) -> Self {
        let nothing = Self { mean_s: 0.0, min_s: 0.0, max_s: 0.0 };
        times.map(|time| Self::of(&time, ranks)).fold(nothing, |sum, more| Self {
            mean_s: sum.mean_s + more.mean_s,
            min_s: sum.min_s + more.min_s,
            max_s: sum.max_s + more.max_s,
        })
    }

    /// Returns a symptom with these times.
    fn symptom(&self) -> Symptom {
        Symptom {
            path: Vec::new(),
            node: 0,
            mean_s: self.mean_s,
            min_s: self.min_s,
            max_s: self.max_s,
            calls: 0,
            calls_exact: false,
            per_call_s: None,
            bytes: None,
            breakdown: Default::default(),
        }
    }
}

fn is_wrapped(totals: &Totals, node: NodeId) -> bool {
    let contexts = &totals.tree.contexts;
    contexts.frames[contexts.nodes[node as usize].frame as usize].call.is_some()
}
