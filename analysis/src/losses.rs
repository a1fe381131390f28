//! Scalability losses: their size, their symptoms and their causes (PPoPP20, 5.3 and Table 2).

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

use plimsoll_collector::profile::NodeId;

use crate::canonical::{Step, Threads, path};
use crate::communication::{communication, left_ns, merge_by_source, residual_ns};
use crate::finding::{Finding, Scope, cause_time, half_query};
use crate::imbalance::{Cause, PhaseImbalance, shared_functions};
use crate::job_totals::JobTotals;
use crate::labelling::ContextClass;
use crate::metrics::{Accumulator, NS_PER_S};
use crate::mpmd::{self, Groups};
use crate::owners::{Owners, are_parts_of_one};
use crate::partner_work::names_partner;
use crate::queries::{Quantity, Query};
use crate::resources::{files, locks};
use crate::sibling_losses::{is_between_siblings, siblings};
use crate::sites::Sites;
use crate::slow_places::SlowPlaces;
use crate::summary::LossKind;
use crate::team_losses::teams;
use crate::team_times::is_team_call;
use crate::thresholds::{
    CROWDED_COMMUNICATION_FACTOR, EVENED_OUT_FACTOR, MIN_CAUSE_SHARE, MIN_FRACTION_OF_RESIDUAL,
    MIN_FRACTION_OF_RUN_DELAY, MIN_INNER_FRACTION, MIN_OWN_CAUSE_FRACTION, MIN_RUN_DELAY_FRACTION,
    MIN_SECOND_SYMPTOM_FRACTION, MIN_SEVERITY, MIN_SYMPTOM_FRACTION, SERIAL_FRACTION,
    TURNS_FRACTION,
};
use crate::totals::{PhaseTotals, Totals, uneven_ns};

/// Minimum losses that are reported, in seconds of run time.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct MinLoss {
    /// Minimum for uneven work, files and locks.
    pub seconds: f64,
    /// Minimum for communication.
    pub communication_s: f64,
}

/// Returns the minimum losses that are reported for this run. They are at least one sampling
/// period, because no sample may show the cause of a shorter loss.
pub fn min_loss_of(totals: &Totals) -> MinLoss {
    min_loss(totals, oversubscription(totals).as_ref())
}

fn min_loss(totals: &Totals, delay: Option<&Finding>) -> MinLoss {
    let delay_s = delay.map_or(0.0, |finding| finding.seconds);
    let seconds = (MIN_SEVERITY * totals.job.elapsed_ns as f64 / NS_PER_S)
        .max(MIN_FRACTION_OF_RUN_DELAY * delay_s)
        .max(period_s(totals));
    let communication_s = match totals.job.crowding() > 1.0 {
        true => CROWDED_COMMUNICATION_FACTOR * seconds,
        // The partners of a rank that waits for a core wait equally long.
        false => seconds + delay_s,
    };
    MinLoss { seconds, communication_s }
}

fn period_s(totals: &Totals) -> f64 {
    totals.job.kept_period_ns as f64 / NS_PER_S
}

/// Returns all losses of a run, largest first. With slow places, `totals` and `imbalances` are
/// corrected for their slowness, so that uneven work does not count twice.
pub fn losses(
    totals: &Totals,
    imbalances: &BTreeMap<u64, PhaseImbalance>,
    slow_places: Option<&SlowPlaces>,
    groups: &Groups,
    (context_classes, owners): (&[ContextClass], &Owners),
) -> Vec<Finding> {
    // A run without duration has no fractions.
    if totals.job.elapsed_ns == 0 {
        return Vec::new();
    }
    let delay = oversubscription(totals);
    let min_loss = min_loss(totals, delay.as_ref());
    let classes = (context_classes, owners);
    let mut all = Vec::new();
    for (index, phase) in &totals.sums.phases {
        let ranks = totals.job.ranks.len();
        let imbalance = &imbalances[index];
        let whole = Scope { index: *index, phase, imbalance, ranks, group: None };
        all.extend(uneven_work(totals, owners, &whole));
        // Calls are charged for the waiting that work as measured does not explain.
        let measured = slow_places.and_then(|slow| {
            let (phase, imbalance) = slow.sums.phases.get(index).zip(slow.imbalances.get(index))?;
            Some(Scope { phase, imbalance, ..whole })
        });
        let whole = measured.unwrap_or(whole);
        let delay_ns = slow_places.map_or(0.0, |slow| slow.delay_in_ns(phase, ranks));
        let left_ns = (left_ns(totals, &whole) - delay_ns).max(0.0);
        let in_calls = match groups.get(index) {
            Some(groups) => mpmd::communication(totals, classes, (&whole, groups), left_ns),
            None if ranks > 1 => communication(totals, classes, (&whole, &whole), left_ns),
            None => Vec::new(),
        };
        with_further_waits(&mut all, in_calls);
        all.extend(files(totals, context_classes, (*index, phase)));
    }
    all.extend(locks(totals, context_classes, owners));
    all.extend(teams(totals, owners));
    all.extend(siblings(totals, owners));
    let mut findings = with_first_instances(merge_by_source(all, totals), totals);
    let crowded = totals.job.crowding() > 1.0;
    // The time of a poll, and of a transfer of many bytes, does not depend on whether a partner has
    // a core.
    let waits_for_none = |finding: &Finding| match finding.kind {
        LossKind::FrequentCommunication => context_classes[finding.symptom as usize].polling,
        kind => kind == LossKind::LargeMessage,
    };
    findings.retain(|finding| match finding.kind {
        LossKind::LoadImbalance
        | LossKind::Serialization
        | LossKind::LargeIo
        | LossKind::LockContention
        | LossKind::ThreadImbalance
        | LossKind::SerialSection
        | LossKind::FineGrainedTasks
        | LossKind::FineGrainedRegions => finding.seconds > min_loss.seconds,
        _ if crowded => {
            (delay.is_none() || waits_for_none(finding))
                && finding.seconds > min_loss.communication_s
        }
        _ => finding.seconds > min_loss.communication_s,
    });
    if let Some(slow) = slow_places {
        let slow = slow.findings(totals, imbalances).into_iter();
        findings.extend(slow.filter(|finding| finding.seconds > min_loss.seconds));
    }
    let slow_work_ns = slow_places.map_or(0.0, |slow| slow.mean_work_ns(totals));
    let delay = delay
        .and_then(|delay| remaining(delay, slow_places, totals))
        .and_then(|delay| outside_calls(delay, totals, owners, &findings))
        .map(|delay| beside_others(delay, totals, slow_work_ns, &findings));
    findings.extend(delay.filter(|delay| delay.seconds > period_s(totals)));
    findings.sort_by(|a, b| b.seconds.total_cmp(&a.seconds).then(a.phase.cmp(&b.phase)));
    findings
}

/// Returns the loss by waiting for a core that slow places leave; `None` if it is too small.
fn remaining(delay: Finding, slow_places: Option<&SlowPlaces>, totals: &Totals) -> Option<Finding> {
    let ranks = totals.job.ranks.len();
    let Some(slow) = slow_places else { return Some(delay) };
    let explained_ns = slow.mean_delay_ns(ranks);
    let left_ns = totals.job.run_delay.mean(ranks) - explained_ns;
    (explained_ns == 0.0 || is_much(&totals.job, left_ns))
        .then(|| Finding { seconds: left_ns / NS_PER_S, ..delay })
}

/// Returns the loss by waiting for a core outside of the calls on files and locks that other losses
/// have in full; `None` if it is too small.
fn outside_calls(
    delay: Finding,
    totals: &Totals,
    owners: &Owners,
    findings: &[Finding],
) -> Option<Finding> {
    let lost: BTreeSet<NodeId> = findings.iter().flat_map(Finding::shown_in).collect();
    let is_inside = |node: NodeId| {
        totals.tree.threads[node as usize] == Threads::Main
            && owners.resource[node as usize].is_some_and(|call| lost.contains(&call))
    };
    let nodes = totals.nodes.iter().zip(0..).filter(|(_, node)| is_inside(*node));
    let inside_ns: u64 = nodes.map(|(node, _)| node.run_delay_ns).sum();
    let inside_ns = inside_ns as f64 / f64::from(totals.job.ranks.len().max(1));
    let seconds = delay.seconds - inside_ns / NS_PER_S;
    (inside_ns == 0.0 || is_much(&totals.job, seconds * NS_PER_S))
        .then_some(Finding { seconds, ..delay })
}

/// Returns the loss by waiting for a core, at most as long as the run lasts beside work and other
/// losses: a thread that waits for its team may wait for a core of another thread.
fn beside_others(
    delay: Finding,
    totals: &Totals,
    slow_work_ns: f64,
    findings: &[Finding],
) -> Finding {
    let elapsed_s = totals.job.elapsed_ns as f64 / NS_PER_S;
    let lost_s: f64 = findings.iter().map(|finding| finding.seconds).sum();
    let left_s = elapsed_s - lost_s - left_work_s(totals, slow_work_ns, findings);
    Finding { seconds: delay.seconds.min(left_s), ..delay }
}

/// Merges losses of first instances into those of the recurring phase. The first instance of a loop
/// begins at another place than the others, so it is a phase of its own. Its loss in the same
/// synchronisation and with the same first cause, or a part of it, is counted with the recurring
/// phase. Of a loop with two iterations, the instance with the larger loss counts as recurring.
fn with_first_instances(mut findings: Vec<Finding>, totals: &Totals) -> Vec<Finding> {
    let instances = |finding: &Finding| totals.sums.phases[&finding.phase].instances;
    findings.sort_by(|a, b| {
        let by_instances = instances(b).cmp(&instances(a));
        by_instances.then(b.seconds.total_cmp(&a.seconds)).then(a.phase.cmp(&b.phase))
    });
    let mut kept: Vec<Finding> = Vec::new();
    for finding in findings {
        let same = |other: &&mut Finding| {
            // The slowest of several calls may differ in the first instance: then the cause
            // decides.
            let by_cause = matches!(
                finding.kind,
                LossKind::FrequentCommunication | LossKind::LargeMessage | LossKind::LargeIo
            );
            let by_cause = by_cause && instances(other) > 1;
            other.kind == finding.kind
                && other.group == finding.group
                && (by_cause || other.symptom == finding.symptom)
                && match (other.causes.first(), finding.causes.first()) {
                    (Some(one), Some(other)) if by_cause => one.node == other.node,
                    (Some(one), Some(other)) => {
                        are_parts_of_one(&totals.tree.contexts, one.node, other.node)
                    }
                    // The cause of a wait for partners may show in one of the phases only.
                    _ => true,
                }
        };
        match kept.iter_mut().find(same).filter(|_| instances(&finding) == 1) {
            Some(recurring) => {
                recurring.add_seconds_of(&finding);
                // Other ranks may be slow in it, and wait.
                if 2.0 * finding.seconds >= recurring.own_s() {
                    recurring.waits_also_where(&finding);
                    recurring.slow.extend(finding.slow);
                }
                for cause in &mut recurring.causes {
                    let first = finding.causes.iter().find(|other| other.node == cause.node);
                    cause.ns += first.map_or(0.0, |other| other.ns);
                }
                let is_known =
                    |it: &Cause| recurring.causes.iter().any(|known| known.node == it.node);
                let first = finding.causes.first().filter(|it| !is_known(it)).copied();
                recurring.causes.extend(first);
            }
            None => kept.push(finding),
        }
    }
    kept
}

/// Returns the run time without all losses, in seconds: no second is counted in two losses, and no
/// run is shorter than its work evenly spread over its ranks. `slow_work_ns` is the mean work that
/// slow places add, in nanoseconds.
pub fn projected_s(totals: &Totals, slow_work_ns: f64, findings: &[Finding]) -> f64 {
    let elapsed_s = totals.job.elapsed_ns as f64 / NS_PER_S;
    let lost_s: f64 = findings.iter().map(|finding| finding.seconds).sum();
    let work_s = left_work_s(totals, slow_work_ns, findings);
    // Without all losses, the run is at least as short as without the largest one: other threads
    // may wait for locks while the communicating thread is useful.
    let largest_s = findings.iter().map(|finding| finding.seconds).fold(0.0, f64::max);
    (elapsed_s - lost_s).max(work_s.min(elapsed_s - largest_s)).max(0.0)
}

/// Returns the mean work of a rank without the losses, net of waiting for a core, in seconds.
fn left_work_s(totals: &Totals, slow_work_ns: f64, findings: &[Finding]) -> f64 {
    let ranks = totals.job.ranks.len();
    let (useful_ns, on_core_ns) =
        (totals.job.useful.mean(ranks), totals.job.useful_on_core.mean(ranks));
    // What teams lose is time of the communicating threads that counts as useful, with waiting for
    // a core.
    let on_core = if useful_ns > 0.0 { on_core_ns / useful_ns } else { 1.0 };
    let work_s = (on_core_ns - slow_work_ns) / NS_PER_S;
    (work_s - on_core * of_teams_s(totals, findings)).max(0.0)
}

/// Returns the run time that losses in teams of threads cost, in seconds.
fn of_teams_s(totals: &Totals, findings: &[Finding]) -> f64 {
    let of_teams = findings.iter().filter(|finding| is_of_team(totals, finding));
    of_teams.map(|finding| finding.seconds).sum()
}

/// Returns whether a loss lies within the OpenMP teams of single ranks.
fn is_of_team(totals: &Totals, finding: &Finding) -> bool {
    match finding.kind {
        LossKind::ThreadImbalance => !is_between_siblings(totals, finding),
        LossKind::SerialSection | LossKind::FineGrainedTasks | LossKind::FineGrainedRegions => true,
        LossKind::LockContention => is_team_call(totals.tree.contexts.frame_of(finding.symptom)),
        _ => false,
    }
}

/// Returns the load imbalance of a phase, or its special case serialization: the loss that shows in
/// the ending synchronisation, and the loss that shows before it, in messages and subgroup
/// synchronisations.
pub fn uneven_work(totals: &Totals, owners: &Owners, scope: &Scope<'_>) -> Vec<Finding> {
    let Scope { phase, imbalance, ranks, .. } = *scope;
    let Some(ending) = phase.ends_in.filter(|_| ranks > 1) else { return Vec::new() };
    let shared = shared_functions(&totals.tree.contexts, owners, phase, ranks);
    let causes_of =
        |loss_ns: f64| imbalance.causes((&totals.tree.contexts, owners), &shared, loss_ns);
    let least_ns = MIN_SEVERITY * totals.job.elapsed_ns as f64;
    if imbalance.work_ns < MIN_FRACTION_OF_RESIDUAL * residual_ns(phase, imbalance, ranks) {
        return Vec::new();
    }
    let likely_causes = |ns: f64, symptom: NodeId, alone: bool| {
        let mut causes = causes_of(ns);
        // Of several losses, the cause nearest in size is most likely a loss's own, if it is large
        // enough. The causes of a single loss stay in the order of their sizes.
        causes.sort_by_cached_key(|cause| {
            let is_small = !alone && cause.ns < MIN_OWN_CAUSE_FRACTION * ns;
            let distance_ns = if alone { 0.0 } else { (cause.ns - ns).abs() };
            // The bits of floats that are not negative are in the order of the floats.
            (likelihood(scope, symptom, cause), is_small, distance_ns.to_bits())
        });
        causes
    };
    let finding = |ns: f64, symptom: NodeId, causes: Vec<Cause>| {
        let in_turn = slow_in_turn(totals, scope, (ns, symptom), &causes, &shared);
        if let Some(cause) = in_turn {
            let finding = uneven((totals, owners), scope, (ns, symptom), vec![cause])?;
            let finding = Finding { by_turns: true, kind: LossKind::LoadImbalance, ..finding };
            return Some(in_turns(scope, finding));
        }
        // Causes that add up to more than the loss even each other out in part.
        let evened_out = imbalance.evened_out(&causes) && lie_on_different_ranks(scope, &causes);
        let finding = uneven((totals, owners), scope, (ns, symptom), causes)?;
        // Partners in separate pairs do not even each other out, and ranks that are slow in turn
        // have no causes of their own.
        let evened_out =
            evened_out && finding.kind != LossKind::WaitForPartner && !finding.by_turns;
        Some(in_turns(scope, Finding { evened_out, ..finding }))
    };
    let (ending_ns, work_ns) = (imbalance.ending_ns, imbalance.work_ns);
    let before_ns = work_ns - ending_ns;
    let both_ns = ending_ns.min(before_ns);
    let waited = phase.waits_most(ranks).map(|(node, wait)| (node, uneven_ns(wait, ranks)));
    let waits = waited.into_iter().chain(imbalance.in_parts).chain(by_turns(totals, scope));
    let before =
        waits.filter(|(_, ns)| *ns > MIN_SYMPTOM_FRACTION * before_ns).map(|(node, _)| node).next();
    let parts = match before.filter(|_| before_ns > least_ns) {
        Some(before)
            if both_ns > least_ns.max(MIN_SECOND_SYMPTOM_FRACTION * work_ns)
                && causes_of(work_ns).len() > 1 =>
        {
            vec![(ending_ns, ending), (before_ns, before)]
        }
        Some(_) if ending_ns > before_ns => vec![(work_ns, ending)],
        Some(before) => {
            let of_calls = in_calls_of_subgroups(scope, &causes_of(least_ns), least_ns);
            if of_calls.len() > 1 {
                let found = of_calls.into_iter();
                return found.filter_map(|(ns, call, own)| finding(ns, call, own)).collect();
            }
            vec![(work_ns, before)]
        }
        None => vec![(ending_ns, ending)],
    };
    let alone = parts.len() == 1;
    let found = parts.into_iter().filter_map(|(ns, symptom)| {
        // A single loss is reported with one of the places in which ranks wait.
        let waited_ns = match alone {
            true => phase.sync.time.mean(ranks) + phase.waited.mean(ranks),
            false => phase.waited_ns(symptom, ranks),
        };
        let ns = ns.min(waited_ns);
        finding(ns, symptom, likely_causes(ns, symptom, alone))
    });
    found.collect()
}

/// Returns the context with most of the work if each time another rank is slow, without a context
/// of its own in which it is: then all ranks work equally long in total, and the contexts that
/// differ a little between the ranks (`causes`) do not explain the loss of `loss_ns` nanoseconds.
/// `None` if they do, or if some ranks work longer.
fn slow_in_turn(
    totals: &Totals,
    scope: &Scope<'_>,
    (loss_ns, symptom): (f64, NodeId),
    causes: &[Cause],
    shared: &BTreeSet<NodeId>,
) -> Option<Cause> {
    let Scope { phase, imbalance, ranks, .. } = *scope;
    let explained_ns: f64 = causes.iter().map(|cause| cause.ns).sum();
    // Of tasks that even each other out, each may be late in turn.
    let is_of_all = |cause: &Cause| cause_time(phase, cause).ranks == ranks;
    let evens_out = imbalance.evened_out(causes) && causes.iter().all(is_of_all);
    let is_explained = explained_ns >= MIN_OWN_CAUSE_FRACTION * loss_ns && !evens_out;
    // Where ranks wait before the end, the work between these waits decides.
    let waits_before = phase.waited.mean(ranks) >= TURNS_FRACTION * loss_ns;
    let is_even = phase.work.imbalance(ranks) < TURNS_FRACTION * loss_ns;
    // Ranks that share cores wait for each other also without uneven work.
    let may_be_crowding = causes.is_empty() && totals.job.lacks_cores();
    let is_elsewhere = Some(symptom) != phase.ends_in || waits_before;
    if is_explained || is_elsewhere || !is_even || may_be_crowding {
        return None;
    }
    let least = MIN_INNER_FRACTION * phase.work.sum as f64;
    let depth = |node: NodeId| totals.tree.contexts.outwards(node).count();
    let most = phase
        .nodes
        .iter()
        .filter(|(node, work)| work.inclusive.sum as f64 >= least && !shared.contains(node));
    let innermost = most.map(|(node, _)| *node).max_by_key(|node| (depth(*node), Reverse(*node)));
    innermost.map(|node| Cause::new(node, false, loss_ns))
}

/// Divides the loss by uneven work among the calls in which subgroups wait for different work, such
/// as the members of a node for its slowest rank, and then for their leader. Returns the loss of
/// each such work in nanoseconds, the call in which most of it shows, and its causes among
/// `causes`, largest first. Empty if the loss does not show in synchronisations of subgroups.
fn in_calls_of_subgroups(
    scope: &Scope<'_>,
    causes: &[Cause],
    least_ns: f64,
) -> Vec<(f64, NodeId, Vec<Cause>)> {
    let Scope { phase, imbalance, ranks, .. } = *scope;
    let per_rank = 1.0 / f64::from(ranks);
    let before = imbalance.subgroup_losses.iter().filter(|(call, _)| Some(**call) != phase.ends_in);
    let mut of_calls: Vec<(f64, NodeId, Vec<Cause>)> = before
        .map(|(call, loss)| {
            let lost_ns = loss.lost as f64 * per_rank;
            let own = |cause: &Cause| {
                let ns = imbalance.in_subgroups_ns(*call, cause) as f64 * per_rank;
                (ns >= MIN_CAUSE_SHARE * lost_ns).then_some(Cause { ns, ..*cause })
            };
            let mut own: Vec<Cause> = causes.iter().filter_map(own).collect();
            own.sort_by(Cause::larger_first);
            (lost_ns, *call, own)
        })
        .filter(|(lost_ns, _, own)| *lost_ns > least_ns && !own.is_empty())
        .collect();
    of_calls.sort_by(|a, b| b.0.total_cmp(&a.0).then(a.1.cmp(&b.1)));
    let lost_ns: f64 = of_calls.iter().map(|(ns, ..)| ns).sum();
    if lost_ns < MIN_OWN_CAUSE_FRACTION * imbalance.work_ns {
        return Vec::new();
    }
    let mut of_works: Vec<(f64, NodeId, Vec<Cause>)> = Vec::new();
    for (ns, call, own) in of_calls {
        let ns = ns / lost_ns * imbalance.work_ns;
        match of_works.iter_mut().find(|(.., known)| known[0].node == own[0].node) {
            Some((known_ns, ..)) => *known_ns += ns,
            None => of_works.push((ns, call, own)),
        }
    }
    of_works
}

/// Returns a key that is smaller for more likely causes of a loss that shows in `symptom`. Causes
/// that make most of the wait there come first, causes with a slowest rank that waits there itself
/// come last.
fn likelihood(scope: &Scope<'_>, symptom: NodeId, cause: &Cause) -> (Reverse<u128>, bool) {
    let own_ns = scope.imbalance.in_subgroups_ns(symptom, cause);
    let is_own = is_uneven_in_subgroups(scope, symptom, cause);
    let (waits_ns, longest_ns) = scope.phase.slowest_waits_ns(cause, symptom);
    (Reverse(if is_own { own_ns } else { 0 }), waits_ns > 0 && waits_ns >= longest_ns.div_ceil(2))
}

/// Returns whether a cause is uneven enough before the synchronisations of subgroups in `symptom`
/// to make most of the wait there.
pub fn is_uneven_in_subgroups(scope: &Scope<'_>, symptom: NodeId, cause: &Cause) -> bool {
    let own_ns = scope.imbalance.in_subgroups_ns(symptom, cause);
    let waited_ns = scope.phase.wait(symptom).map_or(0.0, |wait| uneven_ns(wait, scope.ranks));
    own_ns as f64 >= MIN_OWN_CAUSE_FRACTION * waited_ns * f64::from(scope.ranks)
}

/// Returns the call before the ending synchronisation in which ranks wait longest, and the mean
/// wait time in nanoseconds: ranks that are slow in turn have waited equally long by the end.
/// `None` if ranks share cores and lose time by it, because they then also wait without uneven
/// work.
fn by_turns(totals: &Totals, scope: &Scope<'_>) -> Option<(NodeId, f64)> {
    let waits = scope.phase.waits.iter();
    let waits = waits.map(|(node, wait)| (*node, wait.time.mean(scope.ranks)));
    waits
        .max_by(|a, b| a.1.total_cmp(&b.1).then(b.0.cmp(&a.0)))
        .filter(|_| !totals.job.lacks_cores())
}

/// Builds a loss of `loss_ns` nanoseconds that shows in `symptom`. `causes` begins with the most
/// likely one; without causes there is no loss.
fn uneven(
    (totals, owners): (&Totals, &Owners),
    scope: &Scope<'_>,
    (loss_ns, symptom): (f64, NodeId),
    causes: Vec<Cause>,
) -> Option<Finding> {
    let Scope { index, phase, ranks, .. } = *scope;
    // Uneven wait time that no uneven work explains is not a load imbalance.
    let first = causes.first()?;
    let time = cause_time(phase, first);
    let sites = Sites::new(&totals.tree.contexts, owners, phase);
    // A rank that calls the function at another place does not wait for the ranks that call it
    // here.
    let branch = sites.branch(first.node, ranks).map(|branch| sites.time(branch));
    let alone = is_serial(&time, ranks) && branch.is_none_or(|time| is_serial(&time, ranks));
    // Several ranks, each alone in work of its own, keep their partners waiting side by side.
    let is_like_first = |cause: &Cause| {
        cause.ns >= MIN_OWN_CAUSE_FRACTION * first.ns && is_serial(&cause_time(phase, cause), ranks)
    };
    let of_several = || {
        let in_messages = Some(symptom) != phase.ends_in && names_partner(totals, symptom);
        in_messages && causes[1..].iter().any(is_like_first)
    };
    let kind = match alone {
        true if others_wait(phase, first, &time, ranks) => LossKind::Serialization,
        true if of_several() => LossKind::WaitForPartner,
        _ => LossKind::LoadImbalance,
    };
    Some(Finding {
        by_turns: time.imbalance(ranks) < TURNS_FRACTION * first.ns,
        group: scope.group_index(),
        slow: slow_query(totals, scope, first, &time).into_iter().collect(),
        waiting: waiting_query(totals, scope, symptom),
        causes,
        ..Finding::new(kind, index, loss_ns / NS_PER_S, symptom)
    })
}

/// Returns whether causes lie on different ranks over the whole run. In single instances, small
/// differences that change from one to the next also even each other out, even if the same ranks
/// have most of all causes.
fn lie_on_different_ranks(scope: &Scope<'_>, causes: &[Cause]) -> bool {
    let Scope { phase, ranks, .. } = *scope;
    let apart_ns: f64 = causes.iter().map(|it| cause_time(phase, it).imbalance(ranks)).sum();
    apart_ns > EVENED_OUT_FACTOR * phase.work.imbalance(ranks)
}

/// Returns a load imbalance in which another rank is slow each time as a serialization, if hardly
/// more than one rank works in its first cause at a time, such as ranks that write a file one after
/// another.
fn in_turns(scope: &Scope<'_>, finding: Finding) -> Finding {
    let is_imbalance = finding.by_turns && finding.kind == LossKind::LoadImbalance;
    match is_imbalance && is_one_at_a_time(scope.phase, &finding, scope.ranks) {
        true => Finding { kind: LossKind::Serialization, evened_out: false, ..finding },
        false => finding,
    }
}

/// Returns whether hardly more than one of `ranks` ranks is in the first cause of a loss at a time:
/// the imbalance of the cause is then as long as its work on all ranks but one. Part of that
/// imbalance may be lost to the cost of the calls, and not to uneven work.
pub fn is_one_at_a_time(phase: &PhaseTotals, finding: &Finding, ranks: u32) -> bool {
    let Some(cause) = finding.causes.first() else { return false };
    let others_ns = cause_time(phase, cause).mean(ranks) * f64::from(ranks.saturating_sub(1));
    let lost_ns = cause.ns.max(finding.own_s() * NS_PER_S);
    others_ns > 0.0 && lost_ns >= (1.0 - SERIAL_FRACTION) * others_ns
}

/// Returns the query for ranks that wait where a loss by uneven work shows.
fn waiting_query(totals: &Totals, scope: &Scope<'_>, symptom: NodeId) -> Option<Query> {
    let Scope { index, phase, imbalance, .. } = *scope;
    if Some(symptom) == phase.ends_in {
        return scope.half_query(Quantity::Sync { phase: index }, phase.sync.time.max);
    }
    // Members of a subgroup wait for each other in one call. Ranks wait for messages in different
    // calls of a function at different times.
    let contexts = &totals.tree.contexts;
    let is_alone = imbalance.subgroup_losses.contains_key(&symptom);
    let name = |node: NodeId| &contexts.frame_of(node).function;
    let calls = phase.waits.iter().filter(|(node, _)| match is_alone {
        true => **node == symptom,
        false => name(**node) == name(symptom),
    });
    let calls: Vec<NodeId> = calls.map(|(node, _)| *node).collect();
    scope
        .calls_query(contexts, &calls)
        .or_else(|| scope.half_query(Quantity::Waits { phase: index }, phase.waited.max))
}

/// Returns whether one rank is responsible for the work (PPoPP20, 5.1). A function in which most
/// ranks were seen is a part of the program that all ranks execute, and in which some have less to
/// do.
fn is_serial(time: &Accumulator, ranks: u32) -> bool {
    let others = time.sum.saturating_sub(u128::from(time.max)) as f64;
    let alone = time.ranks <= ranks / 2;
    alone && time.max > 0 && others <= SERIAL_FRACTION * time.max as f64 * f64::from(ranks - 1)
}

/// Returns whether the other ranks wait while the slowest rank of a cause works, together for all
/// but [`SERIAL_FRACTION`] of that time. They do not if they have other work meanwhile, such as the
/// producers in other pairs of producers and consumers.
fn others_wait(phase: &PhaseTotals, cause: &Cause, time: &Accumulator, ranks: u32) -> bool {
    let node = phase.nodes.get(&cause.node).copied().unwrap_or_default();
    let waiting = if cause.own { node.slowest_own } else { node.slowest };
    let duration_ns = phase.duration.mean(ranks);
    // Upper bound of the slowest rank's work: some of it may be waiting for a core.
    let own_ns = duration_ns - (waiting.ending_ns + waiting.before_ns) as f64;
    let (alone_ns, others) = (time.max as f64, f64::from(ranks - 1));
    let least_ns = SERIAL_FRACTION * alone_ns * others;
    // Work for which the time outside of the cause is too short.
    let meanwhile_ns = |work_ns: f64, ranks: f64| work_ns - ranks * (duration_ns - alone_ns);
    let of_all_ns = meanwhile_ns(phase.work.sum as f64 - own_ns, others);
    let most_ns = phase.work.max as f64;
    let of_one_ns = if most_ns > own_ns + least_ns { meanwhile_ns(most_ns, 1.0) } else { 0.0 };
    of_all_ns.max(of_one_ns) <= least_ns
}

/// Merges the losses of a phase by waiting for partners in one call: by uneven work, in `all`, and
/// beyond it, in `further`.
fn with_further_waits(all: &mut Vec<Finding>, further: Vec<Finding>) {
    for finding in further {
        let same = |known: &&mut Finding| {
            (known.kind, known.phase, known.symptom)
                == (finding.kind, finding.phase, finding.symptom)
        };
        match all.iter_mut().find(same).filter(|it| it.kind == LossKind::WaitForPartner) {
            Some(known) => {
                known.seconds += finding.seconds;
                known.shows_also_where(&finding);
            }
            None => all.push(finding),
        }
    }
}

/// Returns the query for ranks at or above mean + (maximum - mean) / 2.
pub fn slow_query(
    totals: &Totals,
    scope: &Scope<'_>,
    cause: &Cause,
    time: &Accumulator,
) -> Option<Query> {
    let path: Vec<Step> = path(&totals.tree.contexts, cause.node);
    (time.max > 0).then_some(Query {
        quantity: Quantity::Work { phase: scope.index, path, own: cause.own },
        at_least: slow_at_least_ns(time, scope.ranks),
        among: scope.among(),
    })
}

/// Returns the minimum time of a slow rank: mean + (maximum - mean) / 2, in nanoseconds.
pub fn slow_at_least_ns(time: &Accumulator, ranks: u32) -> u64 {
    let ranks = u128::from(ranks);
    let at_least = (time.sum + ranks * u128::from(time.max)).div_ceil(2 * ranks);
    u64::try_from(at_least).unwrap_or(u64::MAX)
}

/// Returns the loss by more runnable threads than cores. Waiters that yield also wait for cores, so
/// only delays of work count.
fn oversubscription(totals: &Totals) -> Option<Finding> {
    let job = &totals.job;
    let delay = &job.run_delay;
    let mean_ns = delay.mean(job.ranks.len());
    if !is_much(job, mean_ns) {
        return None;
    }
    let (index, phase) = totals
        .sums
        .phases
        .iter()
        .max_by_key(|(index, phase)| (phase.run_delay.sum, Reverse(**index)))?;
    let symptom = most_delayed(phase)?;
    let seconds = mean_ns / NS_PER_S;
    Some(Finding {
        waiting: half_query(Quantity::RunDelay, delay.max),
        ..Finding::new(LossKind::Oversubscription, *index, seconds, symptom)
    })
}

/// Returns whether a mean wait for a core is a loss.
fn is_much(job: &JobTotals, delay_ns: f64) -> bool {
    let fraction = if job.crowding() > 1.0 { MIN_SEVERITY } else { MIN_RUN_DELAY_FRACTION };
    delay_ns > fraction * job.elapsed_ns as f64
}

/// Returns the context that waits longest for a core; of equals the first in the tree.
fn most_delayed(phase: &PhaseTotals) -> Option<NodeId> {
    let delayed = phase.nodes.iter().filter(|(_, node)| node.run_delay.sum > 0);
    let most = delayed.max_by_key(|(id, node)| (node.run_delay.sum, Reverse(**id)))?;
    Some(*most.0)
}
