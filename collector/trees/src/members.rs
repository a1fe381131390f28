//! Members of a cluster, iterations or ranks: sets of numbers, small for periodic patterns and
//! bounded for others.

use std::fmt;

use serde::{Deserialize, Serialize};

use super::runs::{Run, cover};

/// Maximum number of runs of a set. Beyond it, neighbouring runs are joined with the numbers
/// between them.
pub const MAX_RUNS: usize = 32;

/// Size above which sets are not searched for periodic patterns: their parts have been.
const MAX_NUMBERS_SEARCHED: u64 = 128;

/// Set of numbers as arithmetic progressions, written like the summary's rank lists:
/// `0-3,8,16-30:2`. Unlike there, progressions may interleave, so that every periodic pattern is
/// bounded: of period three, `1-998:3,2-998:3`. Exact sets of up to 128 numbers are equal if they
/// hold the same numbers.
///
/// Holds at most [`MAX_RUNS`] progressions. Members without a pattern are widened to ranges that
/// include them all, and the set [is approximate](Self::is_approximate). The exact number of
/// members is the count of the cluster's tree.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Members {
    /// By ascending first number; no number is in two runs of an exact set.
    runs: Vec<Run>,
    approximate: bool,
}

impl Members {
    /// Creates the set of one number.
    pub fn one(number: u64) -> Self {
        Self { runs: vec![Run { first: number, last: number, step: 1 }], approximate: false }
    }

    /// Creates the set of a range.
    pub fn range(range: std::ops::Range<u64>) -> Self {
        let run = (range.start < range.end).then(|| Run::new(range.start, range.end - 1, 1));
        Self { runs: run.into_iter().collect(), approximate: false }
    }

    /// Returns the number of members; an upper bound if the set is approximate.
    pub fn len(&self) -> u64 {
        self.runs.iter().map(|run| run.count()).sum()
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Returns whether the set may include numbers that are no members.
    pub fn is_approximate(&self) -> bool {
        self.approximate
    }

    /// Returns the lowest number.
    pub fn first(&self) -> Option<u64> {
        self.runs.first().map(|run| run.first)
    }

    /// Returns the progressions by ascending first number.
    pub fn runs(&self) -> &[Run] {
        &self.runs
    }

    /// Returns whether the set holds `number`.
    pub fn contains(&self, number: u64) -> bool {
        self.runs.iter().any(|run| run.contains(number))
    }

    /// Returns the memory in use, in bytes, without the value itself.
    pub fn bytes(&self) -> usize {
        self.runs.capacity() * size_of::<Run>()
    }

    /// Adds the numbers of another set.
    pub fn insert_all(&mut self, other: &Self) {
        self.approximate |= other.approximate;
        if self.overlaps_hull(other) {
            let rest = other.without(self);
            self.approximate |= rest.approximate;
            self.runs.extend(rest.runs);
        } else {
            self.runs.extend_from_slice(&other.runs);
        }
        self.compact();
    }

    /// Returns the numbers of both sets.
    pub fn intersection(&self, other: &Self) -> Self {
        let mut runs = Vec::new();
        if self.overlaps_hull(other) {
            for run in &self.runs {
                runs.extend(other.runs.iter().filter_map(|theirs| run.intersection(*theirs)));
            }
        }
        let mut common = Self { runs, approximate: self.approximate || other.approximate };
        common.compact();
        common
    }

    /// Returns the numbers that `other` lacks. A difference that needs too many progressions keeps
    /// further numbers and is approximate.
    pub fn without(&self, other: &Self) -> Self {
        let mut rest = self.clone();
        rest.approximate |= other.approximate;
        if !self.overlaps_hull(other) {
            return rest;
        }
        for theirs in &other.runs {
            let mut left = Vec::with_capacity(rest.runs.len());
            for run in &rest.runs {
                rest.approximate |= !run.subtract(*theirs, &mut left);
            }
            rest.runs = left;
            if rest.runs.len() > 4 * MAX_RUNS {
                rest.compact();
            }
        }
        rest.compact();
        rest
    }

    fn hull(&self) -> Option<(u64, u64)> {
        Some((self.first()?, self.runs.iter().map(|run| run.last).max()?))
    }

    fn overlaps_hull(&self, other: &Self) -> bool {
        match (self.hull(), other.hull()) {
            (Some((first, last)), Some((from, to))) => first <= to && from <= last,
            _ => false,
        }
    }

    fn compact(&mut self) {
        self.join();
        if self.runs.len() > 1 && self.len() <= MAX_NUMBERS_SEARCHED {
            let mut numbers: Vec<u64> = self.runs.iter().flat_map(|run| run.numbers()).collect();
            numbers.sort_unstable();
            numbers.dedup();
            self.runs = cover(&numbers);
        }
        if self.runs.len() > MAX_RUNS {
            self.widen();
        }
    }

    /// Joins runs that continue each other. Quadratic in the number of runs.
    fn join(&mut self) {
        self.runs.sort_unstable();
        let mut joined: Vec<Run> = Vec::with_capacity(self.runs.len());
        for run in self.runs.drain(..) {
            let longer = joined.iter_mut().rev().find_map(|open| Some((open.joined(run)?, open)));
            match longer {
                Some((longer, open)) => *open = longer,
                None => joined.push(run),
            }
        }
        self.runs = joined;
    }

    /// Joins neighbours until there are at most [`MAX_RUNS`], those with the fewest foreign numbers
    /// first.
    fn widen(&mut self) {
        self.approximate = true;
        while self.runs.len() > MAX_RUNS / 2 {
            let foreign = |pair: &[Run]| {
                let hull = pair[0].hull(pair[1]);
                hull.count().saturating_sub(pair[0].count() + pair[1].count())
            };
            let cheapest = self.runs.windows(2).enumerate().min_by_key(|(_, pair)| foreign(pair));
            let Some((at, _)) = cheapest else { break };
            self.runs[at] = self.runs[at].hull(self.runs[at + 1]);
            self.runs.remove(at + 1);
        }
    }
}

impl FromIterator<u64> for Members {
    fn from_iter<I: IntoIterator<Item = u64>>(numbers: I) -> Self {
        let mut numbers: Vec<u64> = numbers.into_iter().collect();
        numbers.sort_unstable();
        numbers.dedup();
        let mut members = Self { runs: cover(&numbers), approximate: false };
        members.compact();
        members
    }
}

impl fmt::Display for Members {
    /// Formats as in the summary: `0-3,8,16-30:2`, approximate or not.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, run) in self.runs.iter().enumerate() {
            if index > 0 {
                formatter.write_str(",")?;
            }
            match *run {
                Run { first, last, .. } if first == last => write!(formatter, "{first}")?,
                Run { first, last, step: 1 } => write!(formatter, "{first}-{last}")?,
                Run { first, last, step } => write!(formatter, "{first}-{last}:{step}")?,
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    /// Adds numbers in doubling blocks, as the streaming clusterer does.
    fn doubling(numbers: impl Fn(u64) -> bool, count: u64) -> Members {
        fn block(numbers: &dyn Fn(u64) -> bool, from: u64, to: u64) -> Members {
            if to - from == 1 {
                return if numbers(from) { Members::one(from) } else { Members::default() };
            }
            let middle = from + (to - from).next_power_of_two() / 2;
            let mut members = block(numbers, from, middle);
            members.insert_all(&block(numbers, middle, to));
            members
        }
        block(&numbers, 0, count)
    }

    #[test]
    fn periodic_patterns_stay_exact_and_small() {
        for period in 1..=7u64 {
            for pattern in 1u32..1 << period {
                let is_member = |number: u64| pattern >> (number % period) & 1 == 1;
                let members = doubling(is_member, 3_000);
                assert!(!members.is_approximate(), "{pattern:b} of {period}");
                assert!(members.runs().len() <= 3 * period as usize, "{members}");
                assert!((0..3_000).all(|number| members.contains(number) == is_member(number)));
            }
        }
        assert_eq!(doubling(|number| number % 2 == 0, 1 << 14).to_string(), "0-16382:2");
        assert_eq!(doubling(|number| number != 9, 11).to_string(), "0-8,10");
    }

    #[test]
    fn a_pattern_without_period_is_widened_and_approximate() {
        let hash = |number: u64| crate::tests::irregular_level(number) == 0;
        let members = doubling(hash, 100_000);
        assert!(members.is_approximate());
        assert!(members.runs().len() <= MAX_RUNS);
        assert!((0..100_000).filter(|number| hash(*number)).all(|number| members.contains(number)));
    }

    fn numbers() -> impl Strategy<Value = BTreeSet<u64>> {
        let random = prop::collection::btree_set(0u64..120, 0..40);
        let run = (0u64..40, 1u64..9, 0u64..20)
            .prop_map(|(first, step, count)| (0..count).map(|i| first + i * step).collect());
        prop_oneof![random, run]
    }

    proptest! {
        #[test]
        fn sets_are_sets(one in numbers(), other in numbers()) {
            let (a, b) = (Members::from_iter(one.clone()), Members::from_iter(other.clone()));
            let both = a.intersection(&b);
            let rest = a.without(&b);
            let mut all = a.clone();
            all.insert_all(&b);
            for number in 0..300 {
                let (in_a, in_b) = (one.contains(&number), other.contains(&number));
                prop_assert_eq!(a.contains(number), in_a);
                let sets =
                    [(&both, in_a && in_b), (&rest, in_a && !in_b), (&all, in_a || in_b)];
                for (set, truth) in sets {
                    let held = set.contains(number);
                    prop_assert!(held == truth || (held && set.is_approximate()));
                }
            }
            if !all.is_approximate() {
                prop_assert_eq!(all.len() as usize, one.union(&other).count());
            }
        }

        #[test]
        fn progressions_meet_where_they_meet(
            (first, step, count) in (0u64..50, 1u64..12, 1u64..30),
            (from, pace, length) in (0u64..50, 1u64..12, 1u64..30),
        ) {
            let one = Run::new(first, first + step * (count - 1), step);
            let other = Run::new(from, from + pace * (length - 1), pace);
            let truth: Vec<u64> = one.numbers().filter(|number| other.contains(*number)).collect();
            let met: Vec<u64> =
                one.intersection(other).map_or(vec![], |run| run.numbers().collect());
            prop_assert_eq!(met, truth);
            let mut rest = Vec::new();
            if one.subtract(other, &mut rest) {
                let mut left: Vec<u64> = rest.iter().flat_map(|run| run.numbers()).collect();
                left.sort_unstable();
                let truth: Vec<u64> =
                one.numbers().filter(|number| !other.contains(*number)).collect();
                prop_assert_eq!(left, truth);
            }
        }
    }
}
