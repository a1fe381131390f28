//! Agreement of the ranks before their values are added: the phases of the run, the sampling level
//! of the instances that all ranks kept, and the labelling rules.

use plimsoll_collector::profile::{PhaseProfile, ProcessProfile};
use serde::{Deserialize, Serialize};

use crate::broken_off::LastCommon;
use crate::rules::Rules;

/// Correspondence between the phases of different ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Matching {
    /// Phases correspond by the index of the synchronisation that ends their first instance: all
    /// ranks saw the same synchronisations.
    Phases,
    /// As in `Phases`, except in these sections of the run, by first and last index:
    /// synchronisations there occur in contexts that do not correspond, and each section is one
    /// phase.
    Joined(Vec<(u64, u64)>),
    /// No correspondence: the ranks saw different synchronisations, so the whole run is one phase.
    /// In a run that was broken off, [`crate::broken_off`] removes the differences at its end.
    WholeRun,
}

/// Result of the agreement, the same on all ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agreed {
    /// Correspondence between the ranks' phases.
    pub matching: Matching,
    /// Sampling level of the instances that all ranks kept.
    pub level: u32,
    /// Sampling level of the subgroup intervals of instances that are compared.
    pub subgroup_level: u32,
    /// Number of ranks.
    pub ranks: u32,
    /// User's labelling rules, as process 0 read them.
    pub rules: Rules,
    /// Whether some ranks have samples only, without records of calls; samples cover few of the
    /// calls.
    pub by_samples: bool,
}

/// Smallest section of the run that contains all instances of its phases.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Stretch {
    first: u64,
    last: u64,
    /// (First index, number of instances) of the section's phases, by index; `None` if ranks
    /// contradict each other.
    phases: Option<Vec<(u64, u64)>>,
}

/// Proposal of some of the ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposal {
    /// Sections of the run in their order. `None` before the first rank is added; `Some(None)` if
    /// two ranks saw different numbers of synchronisations.
    stretches: Option<Option<Vec<Stretch>>>,
    level: u32,
    subgroup_level: u32,
    /// Number of subgroup intervals in units of 1/[`FIXED_POINT_ONE`]; each member adds its share.
    subgroup_intervals: u64,
    ranks: u32,
    /// `None` before the first rank is added.
    last_common: Option<LastCommon>,
}

/// Maximum number of subgroup intervals that are compared. If the ranks of a subgroup are far
/// apart, its subgroup intervals are combined only in the last steps of the reduction.
const MAX_SUBGROUP_INTERVALS: u64 = 1 << 14;
/// Sum of the shares of a subgroup's members.
const FIXED_POINT_ONE: u64 = 1 << 20;

impl Proposal {
    /// Returns the proposal of one rank.
    pub fn of(profile: &ProcessProfile) -> Self {
        let rows = &profile.subgroup_intervals;
        let parts = rows.rows.iter().filter_map(|row| row.subgroup);
        let subgroup_intervals =
            parts.map(|part| FIXED_POINT_ONE / u64::from(part.ranks.max(1))).sum();
        let phases = Self::of_phases(&profile.phases, profile.rows.level);
        Self { subgroup_level: rows.level, subgroup_intervals, ..phases }
    }

    fn of_phases(phases: &[PhaseProfile], level: u32) -> Self {
        let last_common = LastCommon::of(phases);
        let mut phases: Vec<&PhaseProfile> = phases.iter().collect();
        phases.sort_unstable_by_key(|phase| phase.first_index);
        let distinct = phases.windows(2).all(|pair| pair[0].first_index != pair[1].first_index);
        let single = |phase: &&PhaseProfile| Stretch {
            first: phase.first_index,
            last: phase.last_index.max(phase.first_index),
            phases: Some(vec![(phase.first_index, phase.instances)]),
        };
        let append = |mut ours: Vec<_>, mut theirs: Vec<_>| {
            ours.append(&mut theirs);
            Some(ours)
        };
        let stretches = distinct.then(|| united(phases.iter().map(single), append));
        let last_common = Some(last_common);
        Self { stretches: Some(stretches), level, ranks: 1, last_common, ..Self::default() }
    }

    /// Combines the proposals of two sets of ranks; associative and commutative.
    pub fn combine(self, other: Self) -> Self {
        let stretches = match (self.stretches, other.stretches) {
            (Some(ours), Some(theirs)) => {
                Some(ours.zip(theirs).and_then(|(ours, theirs)| agreed(ours, theirs)))
            }
            (one, None) | (None, one) => one,
        };
        let last = self.last_common.into_iter().chain(other.last_common);
        Self {
            stretches,
            level: self.level.max(other.level),
            subgroup_level: self.subgroup_level.max(other.subgroup_level),
            subgroup_intervals: self.subgroup_intervals.saturating_add(other.subgroup_intervals),
            ranks: self.ranks + other.ranks,
            last_common: last.reduce(LastCommon::combine),
        }
    }

    /// Returns the last synchronisation that all ranks saw; `None` without ranks.
    pub fn last_common(&self) -> Option<LastCommon> {
        self.last_common
    }

    /// Returns the agreement, with the `rules` to apply.
    pub fn conclude(&self, rules: Rules) -> Agreed {
        let matching = match &self.stretches {
            Some(Some(stretches)) => {
                let unclear = stretches.iter().filter(|stretch| stretch.phases.is_none());
                let joined: Vec<_> = unclear.map(|stretch| (stretch.first, stretch.last)).collect();
                match joined.len() {
                    0 => Matching::Phases,
                    _ if joined.len() == stretches.len() => Matching::WholeRun,
                    _ => Matching::Joined(joined),
                }
            }
            _ => Matching::WholeRun,
        };
        let too_many =
            (self.subgroup_intervals / FIXED_POINT_ONE).div_ceil(MAX_SUBGROUP_INTERVALS).max(1);
        let subgroup_level = self.subgroup_level + too_many.next_power_of_two().ilog2();
        let (level, ranks) = (self.level, self.ranks);
        Agreed { matching, level, subgroup_level, ranks, rules, by_samples: false }
    }
}

/// Combines the sections of two sets of ranks; `None` if their numbers of synchronisations differ.
fn agreed(ours: Vec<Stretch>, theirs: Vec<Stretch>) -> Option<Vec<Stretch>> {
    if ours == theirs {
        return Some(ours);
    }
    let end = |stretches: &[Stretch]| stretches.last().map(|stretch| stretch.last);
    if end(&ours) != end(&theirs) {
        return None;
    }
    // Sections in both lists are kept once; sections in one list only do not correspond.
    let is_said = |stretch: &Stretch, others: &[Stretch]| {
        let at = others.binary_search_by_key(&stretch.first, |other| other.first);
        at.is_ok_and(|at| others[at] == *stretch)
    };
    let only = |some: &[Stretch], others: &[Stretch]| -> Vec<Stretch> {
        let unsaid = some.iter().filter(|stretch| !is_said(stretch, others));
        unsaid.map(|stretch| Stretch { phases: None, ..*stretch }).collect()
    };
    let (ours_only, theirs_only) = (only(&ours, &theirs), only(&theirs, &ours));
    let mut all: Vec<Stretch> = ours.into_iter().filter(|it| is_said(it, &theirs)).collect();
    all.extend(ours_only.into_iter().chain(theirs_only));
    all.sort_by_key(|stretch| stretch.first);
    Some(united(all, |_, _| None))
}

/// Merges overlapping sections. `stretches` are sorted by first index; `both` combines the phases
/// of two merged sections.
fn united(
    stretches: impl IntoIterator<Item = Stretch>,
    both: impl Fn(Vec<(u64, u64)>, Vec<(u64, u64)>) -> Option<Vec<(u64, u64)>>,
) -> Vec<Stretch> {
    let mut apart: Vec<Stretch> = Vec::new();
    for next in stretches {
        match apart.last_mut().filter(|last| next.first <= last.last) {
            Some(last) => {
                last.last = last.last.max(next.last);
                let phases = last.phases.take().zip(next.phases);
                last.phases = phases.and_then(|(ours, theirs)| both(ours, theirs));
            }
            None => apart.push(next),
        }
    }
    apart
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Returns the proposal of a rank that synchronises in these contexts, in this order.
    fn of_rank(places: &[u32]) -> Proposal {
        let mut phases: Vec<PhaseProfile> = Vec::new();
        let mut after = None;
        for (index, place) in (0..).zip(places) {
            let ends = (after, Some(*place));
            let known = phases.iter_mut().find(|it| (it.begins_after, it.ends_in) == ends);
            match known {
                Some(phase) => (phase.last_index, phase.instances) = (index, phase.instances + 1),
                None => phases.push(PhaseProfile {
                    begins_after: ends.0,
                    ends_in: ends.1,
                    first_index: index,
                    last_index: index,
                    instances: 1,
                    first_begin_ns: 0,
                    duration_ns: 0,
                    values: Vec::new(),
                }),
            }
            after = ends.1;
        }
        Proposal::of_phases(&phases, 0)
    }

    fn proposal() -> impl Strategy<Value = Proposal> {
        let ranks = prop::collection::vec(prop::collection::vec(0u32..3, 9..=10), 0..3);
        ranks.prop_map(|ranks| {
            let said = ranks.iter().map(|places| of_rank(places));
            said.fold(Proposal::default(), Proposal::combine)
        })
    }

    proptest! {
        #[test]
        fn agreeing_is_associative_and_free_of_order(
            a in proposal(), b in proposal(), c in proposal(),
        ) {
            prop_assert_eq!(a.clone().combine(b.clone()), b.clone().combine(a.clone()));
            prop_assert_eq!(
                a.clone().combine(b.clone()).combine(c.clone()),
                a.clone().combine(b.combine(c))
            );
            prop_assert_eq!(a.clone().combine(Proposal::default()), a);
        }
    }

    fn matching(ranks: &[&[u32]]) -> Matching {
        let said = ranks.iter().map(|places| of_rank(places));
        said.fold(Proposal::default(), Proposal::combine).conclude(Rules::default()).matching
    }

    #[test]
    fn ranks_that_see_the_same_have_the_same_phases() {
        // Each rank synchronises in contexts of its own.
        assert_eq!(matching(&[&[1, 2, 3, 2, 3, 4], &[5, 6, 7, 6, 7, 8]]), Matching::Phases);
    }

    #[test]
    fn what_does_not_correspond_is_one_phase_there() {
        // The second rank leaves the loop of 2 and 3 through a different context, after the
        // start-up and before the end.
        let joined = matching(&[&[1, 2, 3, 2, 3, 2, 4, 5], &[1, 2, 3, 2, 3, 9, 4, 5]]);
        assert_eq!(joined, Matching::Joined(vec![(2, 5)]));
    }

    #[test]
    fn ranks_with_other_synchronisations_have_only_the_whole_run() {
        assert_eq!(matching(&[&[1, 2, 3], &[1, 2, 3], &[1, 2, 3, 3]]), Matching::WholeRun);
        assert_eq!(matching(&[&[1, 1, 1], &[1, 1, 2]]), Matching::Joined(vec![(1, 2)]));
        assert_eq!(matching(&[&[1, 2, 1, 2, 1], &[1, 1, 1, 1, 1]]), Matching::Joined(vec![(1, 4)]));
        assert_eq!(matching(&[]), Matching::WholeRun);
    }
}
