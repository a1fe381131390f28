//! What the ranks must agree on before their values can be added: which phases the run has, and
//! which of its instances all of them kept.

use plimsoll_collector::profile::ProcessProfile;
use serde::{Deserialize, Serialize};

/// How phases of different ranks belong together.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Matching {
    /// By the index of the synchronisation that ends their first instance: all ranks saw the same.
    Phases,
    /// Not at all: the ranks saw different synchronisations, so the run is one phase.
    WholeRun,
}

/// What all ranks agree on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Agreed {
    /// How phases are matched.
    pub matching: Matching,
    /// Level of the instances that all ranks kept.
    pub level: u32,
    /// Number of ranks.
    pub ranks: u32,
}

/// What some ranks have to say: (first index, instances) of each phase, by index.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Proposal {
    /// `None` as long as no rank has spoken, `Some(None)` if two have contradicted each other.
    phases: Option<Option<Vec<(u64, u64)>>>,
    level: u32,
    ranks: u32,
}

impl Proposal {
    /// What one rank says.
    pub fn of(profile: &ProcessProfile) -> Self {
        let named = profile.phases.iter().map(|phase| (phase.first_index, phase.instances));
        let mut phases: Vec<(u64, u64)> = named.collect();
        phases.sort_unstable();
        let distinct = phases.windows(2).all(|pair| pair[0].0 != pair[1].0);
        let phases = Some(distinct.then_some(phases));
        Self { phases, level: profile.rows.level, ranks: 1 }
    }

    /// What two groups of ranks say together.
    pub fn combine(self, other: Self) -> Self {
        let phases = match (self.phases, other.phases) {
            (Some(ours), Some(theirs)) => Some(ours.filter(|ours| theirs.as_ref() == Some(ours))),
            (one, None) | (None, one) => one,
        };
        let level = self.level.max(other.level);
        Self { phases, level, ranks: self.ranks + other.ranks }
    }

    /// The conclusion.
    pub fn conclude(&self) -> Agreed {
        let matching = match self.phases {
            Some(Some(_)) => Matching::Phases,
            _ => Matching::WholeRun,
        };
        Agreed { matching, level: self.level, ranks: self.ranks }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn proposal() -> impl Strategy<Value = Proposal> {
        let phases = prop::option::of(prop::option::of(prop_oneof![
            Just(vec![(0, 1)]),
            Just(vec![(0, 1), (1, 9)]),
            Just(vec![(0, 1), (1, 8)]),
        ]));
        (phases, 0u32..4, 0u32..4).prop_map(|(phases, level, ranks)| Proposal {
            phases,
            level,
            ranks,
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

    #[test]
    fn one_rank_that_saw_other_phases_leaves_only_the_whole_run() {
        let phases = |list: &[(u64, u64)]| Proposal {
            phases: Some(Some(list.to_vec())),
            level: list.len() as u32,
            ranks: 1,
        };
        let same = phases(&[(0, 1), (1, 9)]).combine(phases(&[(0, 1), (1, 9)]));
        let agreed = Agreed { matching: Matching::Phases, level: 2, ranks: 2 };
        assert_eq!(same.conclude(), agreed);
        let other = same.combine(phases(&[(0, 1), (1, 8)]));
        assert_eq!(other.conclude().matching, Matching::WholeRun);
    }
}
