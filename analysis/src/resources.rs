//! Losses in activities of a rank that involve no other rank: long file operations, and locks for
//! which its threads wait for each other.
//!
//! PPoPP20 (5.3.2) treats files like messages, and does not cover locks. Both are work of the rank
//! from the point of view of other ranks, so uneven files and locks are causes of load imbalance;
//! the loss here is the part that all ranks have in common, their mean.

use std::collections::BTreeMap;

use plimsoll_collector::profile::{LONG_CALL_NS, NodeId};

use crate::awaited_threads::all_awaited_ns;
use crate::canonical::Threads;
use crate::communication::{Reason, frequent};
use crate::finding::{Finding, Holder, calls_query, half_query};
use crate::imbalance::Cause;
use crate::label::Label;
use crate::labelling::ContextClass;
use crate::metrics::NS_PER_S;
use crate::openmp_totals::RegionSums;
use crate::owners::{Owners, function_around};
use crate::queries::Quantity;
use crate::summary::LossKind;
use crate::thresholds::{
    LONG_CALLS_FRACTION, MAX_IO_IMBALANCE, MIN_CAUSE_SHARE, MIN_FURTHER_SYMPTOM_FRACTION,
    MIN_LARGE_BYTES, MIN_LOCK_WAIT_FRACTION,
};
use crate::totals::{CallTotals, PhaseTotals, Totals};

/// Returns the losses by long file operations in a phase, by the function that reads or writes.
pub fn files(
    totals: &Totals,
    context_classes: &[ContextClass],
    (index, phase): (u64, &PhaseTotals),
) -> Vec<Finding> {
    let ranks = totals.job.ranks.len();
    let mut by_function: BTreeMap<Option<NodeId>, Vec<(NodeId, &CallTotals)>> = BTreeMap::new();
    for (call, time) in &phase.resources {
        if context_classes[*call as usize].label.is_a(Label::Io) {
            let function = function_around(&totals.tree.contexts, *call);
            by_function.entry(function).or_default().push((*call, time));
        }
    }
    let of_function = |(function, mut calls): (Option<NodeId>, Vec<(NodeId, &CallTotals)>)| {
        calls.sort_by_key(|(call, time)| (std::cmp::Reverse(time.time.sum), *call));
        let (symptom, _) = *calls.first()?;
        let sum = |of: fn(&CallTotals) -> u64| calls.iter().map(|(_, time)| of(time)).sum::<u64>();
        let mean_ns: f64 = calls.iter().map(|(_, time)| time.time.mean(ranks)).sum();
        // Several calls may be slowest on different ranks: the sum is an upper bound for one rank.
        let max_ns: u64 = calls.iter().map(|(_, time)| time.time.max).sum();
        // With few ranks, even the time of one rank alone is no large multiple of the mean.
        let max_imbalance = MAX_IO_IMBALANCE.min(f64::midpoint(1.0, ranks.into()));
        if max_ns as f64 > max_imbalance * mean_ns && ranks > 1 {
            return None;
        }
        let time_ns = mean_ns * f64::from(ranks);
        let number = sum(|time| time.calls);
        let is_short = time_ns < LONG_CALL_NS as f64 * number as f64
            && (sum(|time| time.long_ns) as f64) < LONG_CALLS_FRACTION * time_ns;
        let reason = match is_short && sum(|time| time.bytes) < MIN_LARGE_BYTES * number {
            true => frequent(totals, symptom),
            false => Reason { kind: LossKind::LargeIo, cause: function },
        };
        let nodes: Vec<NodeId> = calls.iter().map(|(call, _)| *call).collect();
        let cause = reason.cause.map(|node| Cause::new(node, false, mean_ns));
        Some(Finding {
            also_in: calls[1..].iter().map(|(call, _)| *call).collect(),
            causes: cause.into_iter().collect(),
            waiting: calls_query(&totals.tree.contexts, (index, phase, ranks), &nodes),
            ..Finding::new(reason.kind, index, mean_ns / NS_PER_S, symptom)
        })
    };
    by_function.into_iter().filter_map(of_function).collect()
}

/// Time in a lock over the whole run, of the communicating threads or of the others.
struct Locked {
    call: NodeId,
    sum_ns: u128,
}

/// Returns the fraction of `waited_ns`, the time in locks, without which the run would be shorter.
fn useful_fraction(totals: &Totals, waited_ns: u128) -> f64 {
    let slack_ns = |(_, region): (NodeId, &RegionSums)| u128::from(region.sums.lock_slack_ns());
    let slack_ns: u128 = totals.openmp.regions().map(slack_ns).sum();
    1.0 - (slack_ns as f64 / waited_ns.max(1) as f64).min(1.0)
}

/// Returns the loss by locks for which the threads of ranks wait. Its size is the mean wait time of
/// one thread, over the threads that take part and live at one time: a pool of threads that is
/// created anew in each step waits like one that stays. Run time is lost only as far as the
/// communicating threads wait themselves, for locks or for other threads: a helper that waits for
/// its next job delays no one.
pub fn locks(
    totals: &Totals,
    context_classes: &[ContextClass],
    owners: &Owners,
) -> Option<Finding> {
    let job = &totals.job;
    // The only thread of a rank has no other thread to wait for.
    let ranks = job.multithreaded_ranks;
    let others = job.concurrent_threads;
    let is_lock = |id: &NodeId| {
        owners.resource[*id as usize] == Some(*id)
            && context_classes[*id as usize].label.is_a(Label::WaitLock)
    };
    let mut locked: Vec<Locked> = Vec::new();
    let (mut main_ns, mut others_ns) = (0, 0);
    for call in (0..totals.nodes.len() as NodeId).filter(is_lock) {
        let in_phase = |phase: &PhaseTotals| Some(phase.resources.get(&call)?.time.sum);
        let (of_threads, sum_ns) = match totals.tree.threads[call as usize] {
            Threads::Main => (&mut main_ns, totals.sums.phases.values().filter_map(in_phase).sum()),
            Threads::Other => (&mut others_ns, totals.nodes[call as usize].inclusive.sum),
        };
        *of_threads += sum_ns;
        locked.push(Locked { call, sum_ns });
    }
    let per_thread = |ns: u128, threads: u32| ns as f64 / f64::from(threads.max(1));
    let mains_too = others == 0
        || per_thread(main_ns, ranks) >= MIN_LOCK_WAIT_FRACTION * per_thread(others_ns, others);
    let lost_ns = match mains_too {
        true => per_thread(main_ns + others_ns, ranks + others),
        false => per_thread(others_ns, others),
    } * useful_fraction(totals, main_ns + others_ns);
    let lost_ns = lost_ns.min(per_thread(main_ns + all_awaited_ns(totals), ranks));
    locked.sort_by_key(|it| (std::cmp::Reverse(it.sum_ns), it.call));
    let symptom = locked.first().filter(|it| it.sum_ns > 0)?.call;
    let whole_ns = (main_ns + others_ns) as f64;
    // A function takes a lock in all threads: its context with the most time represents it.
    let contexts = &totals.tree.contexts;
    let mut callers: BTreeMap<u32, (NodeId, u128)> = BTreeMap::new();
    for it in &locked {
        let caller = function_around(contexts, it.call).unwrap_or(it.call);
        let frame = contexts.nodes[caller as usize].frame;
        callers.entry(frame).or_insert((caller, 0)).1 += it.sum_ns;
    }
    let part = |ns: u128| ns as f64 / whole_ns;
    let mut causes: Vec<Cause> = callers
        .into_values()
        .filter(|(_, ns)| part(*ns) >= MIN_CAUSE_SHARE)
        .map(|(node, ns)| Cause::new(node, false, part(ns) * lost_ns))
        .collect();
    causes.sort_by(Cause::larger_first);
    let by_phase = |phase: &PhaseTotals| {
        let calls = phase.resources.iter();
        let locks =
            calls.filter(|(call, _)| context_classes[**call as usize].label.is_a(Label::WaitLock));
        locks.map(|(_, time)| time.time.sum).sum::<u128>()
    };
    // Of several phases with equal lock wait of the communicating threads, even 0, the longest is
    // taken.
    let (phase, _) = totals.sums.phases.iter().max_by_key(|(index, phase)| {
        (by_phase(phase), phase.duration.sum, std::cmp::Reverse(**index))
    })?;
    let is_waiter = |call| locked.iter().any(|it| it.call == call);
    let holders = totals.openmp.locks.holders(contexts, is_waiter);
    let holders = holders.iter().map(|it| Holder { call: it.call, share: part(it.ns).min(1.0) });
    let also = locked[1..].iter().filter(|it| part(it.sum_ns) > MIN_FURTHER_SYMPTOM_FRACTION);
    Some(Finding {
        also_in: also.map(|it| it.call).collect(),
        causes,
        holders: holders.filter(|it| it.share >= MIN_CAUSE_SHARE).collect(),
        waiting: half_query(Quantity::Locks, job.locked.max),
        ..Finding::new(LossKind::LockContention, *phase, lost_ns / NS_PER_S, symptom)
    })
}
