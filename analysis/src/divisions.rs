//! What is lost between synchronisations of parts of the ranks.
//!
//! A solver on a grid of ranks synchronises rows of them and columns, and all of them once, at the end. Over
//! that one phase each rank may have done as much as any other, and yet in each row now this rank was
//! slow, now that one, and the row waited. So each division of an instance (the work of a rank since it
//! last synchronised with anybody) is compared among the ranks of the synchronisation that ends it,
//! as a whole instance is among all. What came before has held the members up alike, or shows in
//! their waiting there.
//!
//! A division loses no more than its members wait unevenly, and no more than their work is uneven. Summed up
//! over divisions and spread over all ranks, that is how much shorter the run would be, as with
//! instances of phases: each rank is held up in the parts that it belongs to.

use std::collections::BTreeMap;

use plimsoll_collector::profile::{NodeId, Part};
use plimsoll_wire::sync::least_level;
use serde::{Deserialize, Serialize};

use crate::instances::{Instance, each_of_rank};
use crate::rank::Rank;

/// A division over some of its members.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct Division {
    values: Instance,
    /// The lowest rank that has it, by whose contexts its end is named.
    named_by: u32,
    ends_in: Option<NodeId>,
    period_ns: u64,
}

/// Excess of the slowest rank over the mean, times the number of ranks, in nanoseconds: in all, and as much of
/// it as no error of the sampling can be.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Excess {
    /// All of it.
    pub all: u128,
    /// The part that is certain.
    pub certain: u128,
}

impl Excess {
    /// Adds that of one instance, which `error` may be no more than an error of.
    pub fn add(&mut self, excess: u128, error: u128) {
        self.all += excess;
        self.certain += excess.saturating_sub(error);
    }

    fn combine(&mut self, other: &Self) {
        self.all += other.all;
        self.certain += other.certain;
    }

    /// Where a function begins and ends is known to one period, and the slowest of many ranks is
    /// the one with the largest error: what exceeds that error shows that instances are uneven in
    /// their own ways. Otherwise the totals, in which such errors cancel, say it better.
    pub fn or_total(&self, scale: f64, total_ns: f64) -> f64 {
        if self.certain as f64 * scale > total_ns { self.all as f64 * scale } else { total_ns }
    }
}

/// Uneven work of a context in the divisions of a phase.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct UnevenNode {
    /// With that of the contexts that it calls.
    pub inclusive: Excess,
    /// That for which it answers itself.
    pub own: Excess,
}

/// What the divisions of a phase come to. Times are summed over ranks, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Divided {
    /// What is lost in them, by the synchronisation in which it shows.
    pub lost: BTreeMap<NodeId, u128>,
    /// What is uneven in them.
    pub nodes: BTreeMap<NodeId, UnevenNode>,
}

/// The divisions of all phases.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Divisions {
    /// Those of which not all members have spoken, by part and index. The end of those of all ranks is known
    /// only when no more come.
    open: BTreeMap<(Option<Part>, u64), Division>,
    /// The others, by first index of the phase.
    closed: BTreeMap<u64, Divided>,
    /// Level of those that all ranks kept.
    level: u32,
}

impl Divisions {
    /// Takes in those that one rank kept, of this level at least, of phases that `chosen` names by their first index;
    /// `places` are its contexts' canonical nodes.
    pub fn add_rank(
        &mut self,
        rank: &Rank<'_>,
        level: u32,
        places: &[Option<NodeId>],
        chosen: impl Fn(u64) -> bool,
    ) {
        self.level = level;
        let rows = rank.divisions(level).filter(|(_, phase)| chosen(phase.first_index));
        let rows = rows.map(|(row, phase)| (row, phase, row.ends_in));
        each_of_rank(rank, rows, places, |row, values| {
            let division = Division {
                values,
                named_by: rank.input.rank,
                ends_in: row.ends_in.and_then(|node| places[node as usize]),
                period_ns: rank.input.profile.kept_period_ns,
            };
            self.add(row.part, row.index, division);
        });
    }

    /// Takes in those of other ranks; `places` are their nodes in our tree.
    pub fn combine(&mut self, other: Self, places: &[NodeId]) {
        self.level = self.level.max(other.level);
        for (phase, theirs) in other.closed {
            let ours = self.closed.entry(phase).or_default();
            for (node, ns) in theirs.lost {
                *ours.lost.entry(places[node as usize]).or_default() += ns;
            }
            for (node, uneven) in theirs.nodes {
                let ours = ours.nodes.entry(places[node as usize]).or_default();
                ours.inclusive.combine(&uneven.inclusive);
                ours.own.combine(&uneven.own);
            }
        }
        for ((part, index), mut division) in other.open {
            division.values.move_to(places);
            division.ends_in = division.ends_in.map(|node| places[node as usize]);
            self.add(part, index, division);
        }
    }

    fn add(&mut self, part: Option<Part>, index: u64, division: Division) {
        let key = (part, index);
        let whole = match self.open.remove(&key) {
            Some(mut known) => {
                known.combine(division);
                known
            }
            None => division,
        };
        match part {
            Some(part) if whole.values.ranks == part.ranks => {
                let divided = self.closed.entry(whole.values.phase).or_default();
                divided.add(&whole, self.level.max(least_level(index)));
            }
            _ => {
                self.open.insert(key, whole);
            }
        }
    }

    /// What the divisions of a phase come to, those that all `ranks` end together included.
    pub fn of_phase(&self, phase: u64, ranks: u32) -> Divided {
        let mut divided = self.closed.get(&phase).cloned().unwrap_or_default();
        let of_all = self.open.iter().filter(|((part, _), division)| {
            part.is_none() && division.values.phase == phase && division.values.ranks == ranks
        });
        of_all.for_each(|(_, division)| divided.add(division, self.level));
        divided
    }
}

impl Division {
    fn combine(&mut self, other: Self) {
        if other.named_by < self.named_by {
            (self.named_by, self.ends_in) = (other.named_by, other.ends_in);
        }
        self.period_ns = self.period_ns.max(other.period_ns);
        self.values.combine(other.values);
    }
}

impl Divided {
    /// Adds a division that stands for as many as there are for one of its level.
    fn add(&mut self, division: &Division, level: u32) {
        let (values, ranks) = (&division.values, division.values.ranks);
        let stands_for = 1u128 << level.min(64);
        let waited =
            values.wait_sum.saturating_sub(u128::from(values.wait_min) * u128::from(ranks));
        let lost = waited.min(values.work.excess(ranks)) * stands_for;
        if let Some(end) = division.ends_in {
            *self.lost.entry(end).or_default() += lost;
        }
        let error = u128::from(division.period_ns) * u128::from(ranks) * stands_for;
        for (node, work) in values.nodes() {
            let uneven = self.nodes.entry(*node).or_default();
            uneven.inclusive.add(work.inclusive.excess(ranks) * stands_for, error);
            uneven.own.add(work.own.excess(ranks) * stands_for, error);
        }
    }

    /// What is lost in all of them.
    pub fn lost(&self) -> u128 {
        self.lost.values().sum()
    }
}
