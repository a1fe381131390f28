//! Scalability losses: what is lost, where it shows, and why (PPoPP20, 5.3 and Table 2).

use plimsoll_collector::profile::NodeId;

use crate::canonical::{Step, path};
use crate::imbalance::{Cause, PhaseImbalance, shared_functions};
use crate::job::Host;
use crate::metrics::{Accumulator, NS_PER_S};
use crate::queries::{Quantity, Query};
use crate::rank::Owners;
use crate::summary::LossKind;
use crate::totals::{PhaseTotals, Totals, uneven_ns};

/// A loss must cost at least this fraction of the run (PPoPP20, 5.3).
const LEAST_SEVERITY: f64 = 0.01;
/// Waiting for a core beyond this fraction of the run is a loss even where the job's own threads
/// do not exceed its cores.
const LEAST_DELAY_UNCROWDED: f64 = 0.05;
/// Beside waiting for cores, another loss must be at least this fraction of it: how long a rank
/// waited for a core is read between samples, and what a single instance is wrong by in that looks
/// like uneven work.
const LEAST_BESIDE_DELAY: f64 = 0.05;
/// The others do at most this fraction of the one rank's work: the run is serial there.
const SERIAL_FRACTION: f64 = 0.1;
/// If the totals of a cause are less uneven than this fraction of its instances, ranks take turns.
const TURNS_FRACTION: f64 = 0.5;

/// A loss, before its ranks are known by name.
#[derive(Clone, Debug, PartialEq)]
pub struct Finding {
    /// Its kind.
    pub kind: LossKind,
    /// First index of its phase.
    pub phase: u64,
    /// What the run would be shorter by, in seconds.
    pub seconds: f64,
    /// Where it shows.
    pub symptom: NodeId,
    /// Why, worst first.
    pub causes: Vec<Cause>,
    /// Causes partly even each other out.
    pub evened_out: bool,
    /// Which rank is slow changes from instance to instance.
    pub by_turns: bool,
    /// Finds the slow ranks.
    pub slow: Option<Query>,
    /// Finds the waiting ranks.
    pub waiting: Option<Query>,
}

/// All losses of a run, worst first.
pub fn losses(totals: &Totals, owners: &Owners) -> Vec<Finding> {
    // A run without length has no fractions.
    if totals.job.elapsed_ns == 0 {
        return Vec::new();
    }
    let delay = oversubscription(totals);
    let delay_s: f64 = delay.iter().map(|finding| finding.seconds).sum();
    let least_s = LEAST_SEVERITY * totals.job.elapsed_ns as f64 / NS_PER_S;
    let least_s = least_s.max(LEAST_BESIDE_DELAY * delay_s);
    let all =
        totals.phases.iter().flat_map(|(index, phase)| imbalance(totals, owners, *index, phase));
    let mut findings = with_first_instances(all.collect(), totals);
    findings.retain(|finding| finding.seconds > least_s);
    findings.extend(delay);
    findings.sort_by(|a, b| b.seconds.total_cmp(&a.seconds).then(a.phase.cmp(&b.phase)));
    findings
}

/// The first instance of a loop begins elsewhere than the others, so it is a phase of its own. What
/// it loses in the same synchronisation for the same first cause is the same loss, and is counted
/// with the phase that recurs.
fn with_first_instances(mut findings: Vec<Finding>, totals: &Totals) -> Vec<Finding> {
    let instances = |finding: &Finding| totals.phases[&finding.phase].instances;
    findings.sort_by_key(|finding| (std::cmp::Reverse(instances(finding)), finding.phase));
    let mut kept: Vec<Finding> = Vec::new();
    for finding in findings {
        let same = |other: &&mut Finding| {
            instances(other) > 1
                && other.symptom == finding.symptom
                && other.causes.first().map(|cause| cause.node)
                    == finding.causes.first().map(|cause| cause.node)
        };
        match kept.iter_mut().find(same).filter(|_| instances(&finding) == 1) {
            Some(recurring) => {
                recurring.seconds += finding.seconds;
                for cause in &mut recurring.causes {
                    let first = finding.causes.iter().find(|other| other.node == cause.node);
                    cause.ns += first.map_or(0.0, |other| other.ns);
                }
            }
            None => kept.push(finding),
        }
    }
    kept
}

/// What the run time would be without all losses, in seconds: losses count different seconds, and
/// no run is shorter than its work evenly spread over its ranks.
pub fn projected_s(totals: &Totals, findings: &[Finding]) -> f64 {
    let ranks = totals.job.ranks.len();
    let elapsed_s = totals.job.elapsed_ns as f64 / NS_PER_S;
    let lost_s: f64 = findings.iter().map(|finding| finding.seconds).sum();
    let work_s = totals.job.useful_on_core.mean(ranks) / NS_PER_S;
    (elapsed_s - lost_s).max(work_s.min(elapsed_s))
}

/// Load imbalance of a phase, or serialization, its special case: what shows in the ending
/// synchronisation, and what shows before it, in messages and smaller synchronisations.
fn imbalance(totals: &Totals, owners: &Owners, index: u64, phase: &PhaseTotals) -> Vec<Finding> {
    let ranks = totals.job.ranks.len();
    let Some(ending) = phase.ends_in.filter(|_| ranks > 1) else { return Vec::new() };
    let imbalance =
        PhaseImbalance::new((index, phase), &totals.instances, ranks, totals.job.period_ns);
    let shared = shared_functions(&totals.tree.contexts, owners, phase, ranks);
    let causes = imbalance.causes(owners, &shared);
    let least_ns = LEAST_SEVERITY * totals.job.elapsed_ns as f64;
    let finding = |ns: f64, symptom: NodeId, alone: bool| {
        let mut causes = causes.clone();
        if !alone {
            // Of several causes the one that weighs as much as the loss is most likely its own.
            let distance = |cause: &Cause| (cause.ns - ns).abs();
            causes.sort_by(|a, b| distance(a).total_cmp(&distance(b)).then(a.node.cmp(&b.node)));
        }
        // Causes that add up to more than is lost even each other out.
        let evened_out = imbalance.evened_out(&causes);
        let finding = uneven(totals, (index, phase), (ns, symptom), causes)?;
        Some(Finding { evened_out, ..finding })
    };
    let (ending_ns, work_ns) = (imbalance.ending_ns(), imbalance.work_ns);
    let before_ns = work_ns - ending_ns;
    let before = phase.waits_most(ranks).filter(|_| before_ns > least_ns);
    let parts = match before.filter(|(_, wait)| uneven_ns(wait, ranks) > SHOWN * before_ns) {
        Some((before, _)) if ending_ns > least_ns => vec![(ending_ns, ending), (before_ns, before)],
        Some((before, _)) => vec![(work_ns, before)],
        None => vec![(ending_ns, ending)],
    };
    let alone = parts.len() == 1;
    parts.into_iter().filter_map(|(ns, symptom)| finding(ns, symptom, alone)).collect()
}

/// Uneven waiting in a call must be at least this fraction of a loss that is said to show there.
const SHOWN: f64 = 0.1;

/// A loss of so many nanoseconds that shows in `symptom`, from its causes, the most likely first.
fn uneven(
    totals: &Totals,
    (index, phase): (u64, &PhaseTotals),
    (loss_ns, symptom): (f64, NodeId),
    causes: Vec<Cause>,
) -> Option<Finding> {
    let ranks = totals.job.ranks.len();
    // Uneven waiting that no uneven work explains is no load imbalance.
    let first = causes.first()?;
    let time = cause_time(phase, first);
    let serial = is_serial(&time, ranks);
    let quantity = if Some(symptom) == phase.ends_in {
        Quantity::Sync { phase: index }
    } else {
        Quantity::Wait { phase: index, path: path(&totals.tree.contexts, symptom) }
    };
    Some(Finding {
        kind: if serial { LossKind::Serialization } else { LossKind::LoadImbalance },
        phase: index,
        seconds: loss_ns / NS_PER_S,
        symptom,
        evened_out: false,
        by_turns: time.imbalance(ranks) < TURNS_FRACTION * first.ns,
        slow: slow_query(totals, index, first, &time),
        waiting: half_query(quantity, phase.wait(symptom)?.time.max),
        causes,
    })
}

/// Time over ranks in a cause of a loss of this phase.
pub fn cause_time(phase: &PhaseTotals, cause: &Cause) -> Accumulator {
    let node = phase.nodes.get(&cause.node).copied().unwrap_or_default();
    if cause.own { node.own } else { node.inclusive }
}

/// One rank is responsible for the work (PPoPP20, 5.1). Where most ranks are seen in the same
/// function it is a part of the program that all go through, and some have less to do in it.
fn is_serial(time: &Accumulator, ranks: u32) -> bool {
    let others = time.sum.saturating_sub(u128::from(time.max)) as f64;
    let alone = time.ranks <= ranks / 2;
    alone && time.max > 0 && others <= SERIAL_FRACTION * time.max as f64 * f64::from(ranks - 1)
}

/// Ranks at or above mean + (maximum - mean) / 2.
fn slow_query(totals: &Totals, phase: u64, cause: &Cause, time: &Accumulator) -> Option<Query> {
    let ranks = u128::from(totals.job.ranks.len());
    let at_least = (time.sum + ranks * u128::from(time.max)).div_ceil(2 * ranks);
    let path: Vec<Step> = path(&totals.tree.contexts, cause.node);
    (time.max > 0).then_some(Query {
        quantity: Quantity::Work { phase, path, own: cause.own },
        at_least_ns: u64::try_from(at_least).unwrap_or(u64::MAX),
    })
}

/// Ranks at or above half of the largest.
fn half_query(quantity: Quantity, max_ns: u64) -> Option<Query> {
    (max_ns > 0).then_some(Query { quantity, at_least_ns: max_ns.div_ceil(2) })
}

/// More runnable threads than cores. Waiters that yield also wait for cores, so only what delays
/// work counts.
fn oversubscription(totals: &Totals) -> Option<Finding> {
    let job = &totals.job;
    let delay = &job.run_delay;
    let mean_ns = delay.mean(job.ranks.len());
    let elapsed_ns = job.elapsed_ns as f64;
    let crowded = job.hosts.values().any(Host::is_crowded);
    let least = if crowded { LEAST_SEVERITY } else { LEAST_DELAY_UNCROWDED };
    if mean_ns <= least * elapsed_ns {
        return None;
    }
    let (index, phase) = totals
        .phases
        .iter()
        .max_by_key(|(index, phase)| (phase.run_delay.sum, std::cmp::Reverse(**index)))?;
    let symptom = most_delayed(phase)?;
    Some(Finding {
        kind: LossKind::Oversubscription,
        phase: *index,
        seconds: mean_ns / NS_PER_S,
        symptom,
        causes: Vec::new(),
        evened_out: false,
        by_turns: false,
        slow: None,
        waiting: half_query(Quantity::RunDelay, delay.max),
    })
}

/// The context with the most waiting for a core; of equals the first in the tree.
fn most_delayed(phase: &PhaseTotals) -> Option<NodeId> {
    let delayed = phase.nodes.iter().filter(|(_, node)| node.run_delay.sum > 0);
    let most = delayed.max_by_key(|(id, node)| (node.run_delay.sum, std::cmp::Reverse(**id)))?;
    Some(*most.0)
}
