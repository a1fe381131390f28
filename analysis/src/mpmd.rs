//! Losses of phases in which groups of ranks have separate tasks (PPoPP20, 5.4): imbalance within
//! groups, imbalance between groups, and losses in the groups' calls.
//!
//! PPoPP20 applies the analysis of a phase to each group. But the loss of one group costs the run
//! nothing while another group takes longer. Here the groups therefore supply the causes, and the
//! phase as a whole supplies the cost: the loss by work within groups is the work of the slowest
//! rank minus the mean of its heaviest group; the group imbalance is that mean minus the mean of
//! all ranks; and the loss in the calls of all groups is limited to the time that work leaves of
//! the phase.
//!
//! File operations are analysed for the phase as a whole, because writing files is the task of one
//! group. Code that all groups have in common (PPoPP20's third step) lies in each group's tree of
//! causes: a context that is uneven in several groups is one cause and belongs to no group.

use std::collections::BTreeMap;

use plimsoll_collector::profile::NodeId;

use crate::agreement::Agreed;
use crate::canonical::{CanonicalTree, Threads};
use crate::communication;
use crate::communicator::{Communicator, CommunicatorError, reduce};
use crate::finding::{Finding, Scope, cause_time};
use crate::groups::{self, Alike};
use crate::imbalance::{Cause, PhaseImbalance, imbalances};
use crate::labelling::ContextClass;
use crate::losses::{is_uneven_in_subgroups, min_loss_of, uneven_work};
use crate::metrics::NS_PER_S;
use crate::owners::Owners;
use crate::queries::Query;
use crate::rank::Rank;
use crate::ranks::RankSet;
use crate::summary::LossKind;
use crate::thresholds::{
    MAX_GROUPS, MIN_GROUPS_EXPLAIN_FRACTION, MIN_SEVERITY, MIN_SYMPTOM_FRACTION,
    MIN_WITHIN_GROUP_FRACTION, SERIAL_FRACTION,
};
use crate::totals::{PhaseSums, PhaseTotals, Totals};

/// Ranks of each group, by first index of the phase.
pub type Members = BTreeMap<u64, Vec<RankSet>>;

/// A group of ranks in a phase.
pub struct Group {
    /// Ranks of the group.
    pub ranks: RankSet,
    /// Totals of its ranks in the phase.
    pub phase: PhaseTotals,
    /// Imbalance among its ranks.
    pub imbalance: PhaseImbalance,
}

/// Groups of each phase that has several, by first index of the phase.
pub type Groups = BTreeMap<u64, Vec<Group>>;

impl Group {
    /// Returns the scope of this group, which has index `place` in the phase.
    fn scope(&self, index: u64, place: u32) -> Scope<'_> {
        Scope {
            index,
            phase: &self.phase,
            imbalance: &self.imbalance,
            ranks: self.ranks.len(),
            group: Some((place, &self.ranks)),
        }
    }
}

/// Returns the members of the groups that are analysed separately, by first index of the phase.
pub fn members(alike: &BTreeMap<u64, Vec<Alike>>) -> Members {
    let several = alike.iter().filter(|(_, groups)| (2..=MAX_GROUPS).contains(&groups.len()));
    let ranks = |groups: &[Alike]| groups.iter().map(|group| group.ranks.clone()).collect();
    several.map(|(index, groups)| (*index, ranks(groups))).collect()
}

/// Sums of the ranks of each group, by first index of the phase and index of the group in it.
type Sums = BTreeMap<(u64, u32), PhaseSums>;

/// Adds up the values of all ranks by group; contexts are those of `tree`. Returns the groups on
/// process 0, `None` elsewhere. Collective.
pub fn add_up(
    comm: &dyn Communicator,
    local: &[Rank<'_>],
    agreed: &Agreed,
    tree: &mut CanonicalTree,
    members: &Members,
) -> Result<Option<Groups>, CommunicatorError> {
    if members.is_empty() {
        return Ok((comm.rank() == 0).then(Groups::default));
    }
    let same: Vec<NodeId> = (0..tree.contexts.nodes.len() as NodeId).collect();
    let mut sums = Sums::default();
    for rank in local {
        // A context that is missing in the tree has taken no time on any rank.
        let mut places = tree.adopt(&rank.input.profile.tree, Threads::Main, |_| true);
        places
            .iter_mut()
            .for_each(|place| *place = place.filter(|it| same.get(*it as usize).is_some()));
        for (index, groups) in members {
            let mine = groups.iter().position(|ranks| ranks.contains(rank.input.rank));
            if let Some(place) = mine {
                let sums = sums.entry((*index, place as u32)).or_default();
                sums.add_rank(rank, agreed, &places, |phase| phase == *index);
            }
        }
    }
    let combine = |mut ours: Sums, theirs: Sums| {
        for (group, sums) in theirs {
            ours.entry(group).or_default().combine(sums, &same);
        }
        ours
    };
    let period_ns = local.iter().map(|rank| rank.input.profile.kept_period_ns).max().unwrap_or(0);
    let all = reduce(comm, (sums, period_ns), |(ours, one), (theirs, other)| {
        (combine(ours, theirs), one.max(other))
    })?;
    Ok(all.map(|(sums, period_ns)| groups_of(sums, members, period_ns)))
}

fn groups_of(mut sums: Sums, members: &Members, period_ns: u64) -> Groups {
    let mut group = |(index, place): (u64, u32), ranks: &RankSet| {
        let mut sums = sums.remove(&(index, place))?;
        let imbalance = imbalances(&sums, ranks.len(), period_ns).remove(&index)?;
        Some(Group { ranks: ranks.clone(), phase: sums.phases.remove(&index)?, imbalance })
    };
    let of_phase = |(index, ranks): (&u64, &Vec<RankSet>)| {
        let places = (0..).map(|place| (*index, place));
        let groups: Option<Vec<Group>> =
            places.zip(ranks).map(|(place, ranks)| group(place, ranks)).collect();
        Some((*index, groups?))
    };
    members.iter().filter_map(of_phase).collect()
}

/// Returns the losses in calls in each group of a phase. `left_ns` is the maximum loss of all calls
/// together, in nanoseconds. One loss in several groups is reported once.
pub fn communication(
    totals: &Totals,
    classes: (&[ContextClass], &Owners),
    (whole, groups): (&Scope<'_>, &[Group]),
    left_ns: f64,
) -> Vec<Finding> {
    let even_ns = whole.imbalance.even_ns;
    let frame = |node: NodeId| totals.tree.contexts.nodes[node as usize].frame;
    let mut merged: BTreeMap<_, Finding> = BTreeMap::new();
    for (place, group) in (0..).zip(groups) {
        // Time that the whole group waits for a slower group at the end.
        let idle_ns = (group.imbalance.even_ns - even_ns).max(0.0);
        let imbalance = PhaseImbalance { even_ns, ..group.imbalance.clone() };
        let scope = Scope { imbalance: &imbalance, ..group.scope(whole.index, place) };
        let left_ns = (left_ns - idle_ns).max(0.0);
        let scopes = (&scope, whole);
        for mut finding in communication::communication(totals, classes, scopes, left_ns) {
            if finding.kind == LossKind::WaitForPartner {
                finding.causes.iter_mut().for_each(|it| it.group = holder(groups, place, it));
            }
            // The causes of late partners are work of groups; all others are code that calls.
            let cause = finding.causes.first().filter(|_| finding.kind != LossKind::WaitForPartner);
            let place = match cause {
                Some(cause) => (Some(frame(cause.node)), None),
                None => (None, Some(finding.symptom)),
            };
            match merged.get_mut(&(finding.kind, place)) {
                Some(known) => *known = of_both(known.clone(), finding),
                None => {
                    merged.insert((finding.kind, place), finding);
                }
            }
        }
    }
    let lost_s: f64 = merged.values().map(|finding| finding.seconds).sum();
    let scale = (left_ns / NS_PER_S / lost_s).min(1.0);
    let scaled = merged.into_values().map(|mut finding| {
        finding.seconds *= scale;
        finding.causes.iter_mut().for_each(|cause| cause.ns *= scale);
        finding
    });
    scaled.collect()
}

/// Returns the group that works longest in a cause of the waiting of group `waiting`; `None` if it
/// is the waiting group itself.
fn holder(groups: &[Group], waiting: u32, cause: &Cause) -> Option<u32> {
    let time_ns = |place: u32| cause_time(&groups[place as usize].phase, cause).max;
    let most = (0..groups.len() as u32).max_by_key(|place| (time_ns(*place), *place == waiting))?;
    (most != waiting).then_some(most)
}

/// Merges one loss found in two groups: all ranks may wait, and the group with the larger loss
/// determines its size.
fn of_both(one: Finding, other: Finding) -> Finding {
    let (less, mut more) = if one.seconds < other.seconds { (one, other) } else { (other, one) };
    more.shows_also_where(&less);
    let waiting = more.waiting.map(|query| Query { among: None, ..query });
    Finding { waiting, group: None, ..more }
}

/// Data that separates the losses of groups.
pub struct Tasks<'a> {
    /// Totals of all ranks.
    pub totals: &'a Totals,
    /// Imbalance of each phase among all ranks, by first index.
    pub imbalances: &'a BTreeMap<u64, PhaseImbalance>,
    /// Responsible context for each context's work.
    pub owners: &'a Owners,
    /// Groups of each phase that has several.
    pub alike: &'a BTreeMap<u64, Vec<Alike>>,
    /// Groups that are analysed separately.
    pub groups: &'a Groups,
}

impl Tasks<'_> {
    /// Returns all losses: in phases with groups, each with the group that it concerns; and group
    /// imbalances also in phases without uneven work.
    pub fn told_apart(&self, findings: Vec<Finding>) -> Vec<Finding> {
        let is_uneven = |finding: &Finding| {
            matches!(finding.kind, LossKind::LoadImbalance | LossKind::Serialization)
        };
        // Uneven work by phase, in seconds.
        let mut uneven_s: BTreeMap<u64, f64> = BTreeMap::new();
        for finding in findings.iter().filter(|finding| is_uneven(finding)) {
            *uneven_s.entry(finding.phase).or_default() += finding.own_s();
            // The loss of a first instance is part of the recurring phase's.
            finding.other_phases.keys().for_each(|phase| {
                uneven_s.entry(*phase).or_default();
            });
        }
        let least_s = min_loss_of(self.totals).seconds;
        let silent = self.alike.keys().filter(|index| !uneven_s.contains_key(index));
        let between = silent.filter_map(|index| self.between_alone(*index));
        let between: Vec<Finding> = between.filter(|it| it.seconds > least_s).collect();
        let refined = findings.into_iter().flat_map(|finding| match is_uneven(&finding) {
            true => {
                let uneven_s = uneven_s[&finding.phase];
                self.divided(finding, uneven_s)
            }
            false => vec![finding],
        });
        self.where_others_wait(refined.chain(between).collect())
    }

    /// Merges group imbalances that cannot show in their symptom into the one of the same group and
    /// phase that can.
    fn where_others_wait(&self, findings: Vec<Finding>) -> Vec<Finding> {
        let (misplaced, mut rest): (Vec<Finding>, Vec<Finding>) =
            findings.into_iter().partition(|finding| {
                finding.kind == LossKind::GroupImbalance && !self.is_awaited(finding)
            });
        for part in misplaced {
            let same = |other: &&mut Finding| {
                (other.kind, other.phase, other.group) == (part.kind, part.phase, part.group)
            };
            match rest.iter_mut().find(same) {
                Some(whole) => whole.add_seconds_of(&part),
                None => rest.push(part),
            }
        }
        rest
    }

    /// Returns whether a group imbalance can show in its symptom: synchronisations of subgroups
    /// wait for a group's task only if it is uneven among their members.
    fn is_awaited(&self, finding: &Finding) -> bool {
        let phase = &self.totals.sums.phases[&finding.phase];
        let (imbalance, ranks) = (&self.imbalances[&finding.phase], self.totals.job.ranks.len());
        let whole = Scope { index: finding.phase, phase, imbalance, ranks, group: None };
        Some(finding.symptom) == phase.ends_in
            || !imbalance.subgroup_losses.contains_key(&finding.symptom)
            || finding
                .causes
                .first()
                .is_some_and(|task| is_uneven_in_subgroups(&whole, finding.symptom, task))
    }

    /// Splits a loss by uneven work into the imbalance between groups and the imbalance within
    /// groups. `uneven_s` is the uneven work of the loss's phase, in seconds.
    fn divided(&self, mut finding: Finding, uneven_s: f64) -> Vec<Finding> {
        let Some(alike) = self.alike.get(&finding.phase) else { return vec![finding] };
        // A rank that is alone in its task while others have tasks of their own is not the only one
        // that works: no serialization.
        let least_ns = alike.iter().map(Alike::mean_work_ns).fold(f64::INFINITY, f64::min);
        let most_ns = alike.iter().map(Alike::mean_work_ns).fold(0.0, f64::max);
        if least_ns > SERIAL_FRACTION * most_ns {
            finding.kind = LossKind::LoadImbalance;
        }
        let phase = &self.totals.sums.phases[&finding.phase];
        let heaviest = groups::heaviest(self.totals, phase, alike)
            .filter(|_| finding.kind == LossKind::LoadImbalance);
        let Some((index, more_s)) = heaviest else { return vec![self.within(finding)] };
        // All losses of the phase are divided in the same proportion, and first instances, too.
        let more_s = more_s * finding.seconds / uneven_s;
        let within_s = finding.seconds - more_s;
        if more_s < MIN_GROUPS_EXPLAIN_FRACTION * finding.seconds {
            return vec![self.within(finding)];
        }
        let least_s = MIN_SEVERITY * self.totals.job.elapsed_ns as f64 / NS_PER_S;
        let apart = within_s > (MIN_WITHIN_GROUP_FRACTION * finding.seconds).max(least_s);
        let ranks = alike[index as usize].ranks.clone();
        // Contexts that only this group executes come first.
        let mut causes = finding.causes.clone();
        let is_own = |cause: &Cause| self.is_task(finding.phase, index, cause);
        let task = groups::task(&self.totals.tree.contexts, &finding, is_own);
        causes.sort_by(|a, b| {
            is_own(b).cmp(&is_own(a)).then(b.ns.total_cmp(&a.ns)).then(a.node.cmp(&b.node))
        });
        causes.splice(..0, task);
        let between = Finding {
            kind: LossKind::GroupImbalance,
            seconds: if apart { more_s } else { finding.seconds },
            causes,
            group: Some(index),
            slow_ranks: ranks,
            slow: Vec::new(),
            ..finding.clone()
        };
        let within = apart.then(|| self.within(Finding { seconds: within_s, ..finding }));
        [between].into_iter().chain(within).collect()
    }

    /// Returns whether all ranks of a group of the phase execute a context, and no others do.
    fn is_task(&self, phase: u64, group: u32, context: &Cause) -> bool {
        let ranks = self.alike[&phase][group as usize].ranks.len();
        let executes = |phase: &PhaseTotals| cause_time(phase, context).ranks == ranks;
        // Of too many groups only the numbers of ranks are known.
        let in_group = |groups: &Vec<Group>| executes(&groups[group as usize].phase);
        executes(&self.totals.sums.phases[&phase]) && self.groups.get(&phase).is_none_or(in_group)
    }

    /// Attributes uneven work to groups: with the causes of each group that is slower than the
    /// heaviest group would be if it were balanced.
    fn within(&self, finding: Finding) -> Finding {
        let Some(groups) = self.groups.get(&finding.phase) else { return finding };
        let mean_ns = |group: &Group| group.phase.work.mean(group.ranks.len());
        let bar_ns = groups.iter().map(mean_ns).fold(0.0, f64::max);
        let least_ns = MIN_SEVERITY * self.totals.job.elapsed_ns as f64;
        let mut found: Vec<(f64, Finding)> = Vec::new();
        for (place, group) in (0..).zip(groups) {
            let uneven_ns = group.imbalance.work_ns;
            let gain_ns = (mean_ns(group) + uneven_ns - bar_ns).min(uneven_ns);
            if gain_ns <= least_ns {
                continue;
            }
            let parts = uneven_work(self.totals, self.owners, &group.scope(finding.phase, place));
            let most = parts.into_iter().max_by(|a, b| a.seconds.total_cmp(&b.seconds));
            found.extend(most.map(|mut most| {
                for cause in &mut most.causes {
                    cause.ns *= gain_ns / uneven_ns;
                    cause.group = Some(place);
                }
                (gain_ns, most)
            }));
        }
        found.sort_by(|a, b| b.0.total_cmp(&a.0));
        // Groups that take turns wait for each other even if each of them is balanced.
        let most_s = found.first().map_or(0.0, |(gain_ns, _)| gain_ns / NS_PER_S);
        if most_s < MIN_GROUPS_EXPLAIN_FRACTION * finding.seconds {
            return finding;
        }
        let found: Vec<Finding> = found.into_iter().map(|(_, finding)| finding).collect();
        // Mean wait time of a group's ranks where the loss of all groups shows, in seconds.
        let in_symptom_s = |only: &Finding| {
            let group = &groups[only.group? as usize];
            let wait = group.phase.wait(finding.symptom);
            wait.map(|wait| wait.time.mean(group.ranks.len()) / NS_PER_S)
        };
        let own_s = |only: &Finding| finding.own_s().min(only.seconds);
        match &found[..] {
            [] => finding,
            // Its ranks wait for each other elsewhere than the groups do.
            [only]
                if in_symptom_s(only)
                    .is_some_and(|waited_s| waited_s < MIN_SYMPTOM_FRACTION * own_s(only)) =>
            {
                Finding {
                    seconds: finding.seconds - finding.own_s() + own_s(only),
                    other_phases: finding.other_phases,
                    ..only.clone()
                }
            }
            // The phase has one loss for each symptom, also if it lies in one group.
            [only] if in_symptom_s(only).is_some() => Finding {
                seconds: finding.seconds,
                other_phases: finding.other_phases,
                symptom: finding.symptom,
                waiting: finding.waiting,
                ..only.clone()
            },
            _ => Finding {
                by_turns: found.iter().all(|group| group.by_turns),
                slow: found.iter().flat_map(|group| group.slow.clone()).collect(),
                causes: together(&finding.causes, found.into_iter().flat_map(|it| it.causes)),
                evened_out: false,
                ..finding
            },
        }
    }

    /// Returns the group imbalance of a phase in which no uneven work shows.
    fn between_alone(&self, index: u64) -> Option<Finding> {
        let (phase, alike) = (&self.totals.sums.phases[&index], &self.alike[&index]);
        let (place, more_s) = groups::heaviest(self.totals, phase, alike)?;
        let all = self.totals.job.ranks.len();
        let most = phase.waits_most(all).map(|(node, _)| node);
        // Of equals the last.
        let shows = most.into_iter().chain(phase.ends_in);
        let waited_ns = |node: NodeId| phase.waited_ns(node, all);
        let symptom = shows.max_by(|a, b| waited_ns(*a).total_cmp(&waited_ns(*b)))?;
        // Ranks that wait for a core work less than others, but do not wait for them.
        let more_s = more_s.min(waited_ns(symptom) / NS_PER_S);
        let ranks = &alike[place as usize].ranks;
        let is_own = |node: NodeId| self.is_task(index, place, &Cause::new(node, false, 0.0));
        let own = phase.nodes.iter().filter(|(node, _)| is_own(**node));
        let (task, _) =
            own.max_by_key(|(node, it)| (it.inclusive.sum, std::cmp::Reverse(**node)))?;
        Some(Finding {
            causes: vec![Cause::new(*task, false, more_s * NS_PER_S)],
            group: Some(place),
            slow_ranks: ranks.clone(),
            ..Finding::new(LossKind::GroupImbalance, index, more_s, symptom)
        })
    }
}

/// Merges the causes of several groups. A context that several groups have in common belongs to no
/// group, with its value among all ranks, `whole`, if listed there.
fn together(whole: &[Cause], of_groups: impl Iterator<Item = Cause>) -> Vec<Cause> {
    let mut causes: Vec<Cause> = Vec::new();
    for cause in of_groups {
        let same = |known: &Cause| (known.node, known.own) == (cause.node, cause.own);
        match causes.iter_mut().find(|known| same(known)) {
            Some(known) => {
                let among_all = whole.iter().find(|known| same(known)).copied();
                *known = among_all.unwrap_or(Cause { group: None, ..*known });
            }
            None => causes.push(cause),
        }
    }
    causes.sort_by(Cause::larger_first);
    causes
}
