//! Sets of ranks, small where the ranks are regular, and their form in the summary:
//! `0-3,8,16-30:2` is ranks 0 to 3, rank 8, and every second rank from 16 to 30.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// Ranks `first`, `first + step`, ... `last`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
struct Run {
    first: u32,
    last: u32,
    step: u32,
}

impl Run {
    fn count(self) -> u32 {
        (self.last - self.first) / self.step + 1
    }

    fn ranks(self) -> impl Iterator<Item = u32> {
        (self.first..=self.last).step_by(self.step as usize)
    }
}

/// A set of ranks. Equal sets have equal representations, whatever the order of insertion.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RankSet {
    // Each run lies wholly behind the one before it; runs are formed greedily in ascending order.
    runs: Vec<Run>,
}

impl RankSet {
    /// Number of ranks.
    pub fn len(&self) -> u32 {
        self.runs.iter().map(|run| run.count()).sum()
    }

    /// Whether it holds no rank.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// The lowest rank.
    pub fn first(&self) -> Option<u32> {
        self.runs.first().map(|run| run.first)
    }

    /// The ranks in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.runs.iter().flat_map(|run| run.ranks())
    }

    /// Whether it holds `rank`.
    pub fn contains(&self, rank: u32) -> bool {
        let at = self.runs.partition_point(|run| run.last < rank);
        self.runs
            .get(at)
            .is_some_and(|run| run.first <= rank && (rank - run.first).is_multiple_of(run.step))
    }

    /// The ranks of both sets.
    pub fn union(&self, other: &Self) -> Self {
        if self.is_empty() {
            return other.clone();
        }
        if other.is_empty() {
            return self.clone();
        }
        let (mut ours, mut theirs) = (self.iter().peekable(), other.iter().peekable());
        std::iter::from_fn(|| match (ours.peek(), theirs.peek()) {
            (Some(our), Some(their)) if our < their => ours.next(),
            (Some(our), Some(their)) if our == their => {
                theirs.next();
                ours.next()
            }
            (_, Some(_)) => theirs.next(),
            (_, None) => ours.next(),
        })
        .ascending()
    }
}

trait Ascending {
    fn ascending(self) -> RankSet;
}

impl<I: Iterator<Item = u32>> Ascending for I {
    /// Forms the runs of strictly ascending ranks.
    fn ascending(self) -> RankSet {
        let mut runs = Vec::new();
        let mut open: Option<Run> = None;
        for rank in self {
            open = Some(match open {
                None => Run { first: rank, last: rank, step: 1 },
                Some(run) if run.first == run.last => {
                    Run { first: run.first, last: rank, step: rank - run.first }
                }
                Some(run) if rank - run.last == run.step => Run { last: rank, ..run },
                // Two ranks apart are no rhythm yet: the second may begin one.
                Some(run) if run.count() == 2 && run.step > 1 => {
                    runs.push(Run { first: run.first, last: run.first, step: 1 });
                    Run { first: run.last, last: rank, step: rank - run.last }
                }
                Some(run) => {
                    runs.push(run);
                    Run { first: rank, last: rank, step: 1 }
                }
            });
        }
        match open {
            Some(run) if run.count() == 2 && run.step > 1 => {
                runs.push(Run { first: run.first, last: run.first, step: 1 });
                runs.push(Run { first: run.last, last: run.last, step: 1 });
            }
            Some(run) => runs.push(run),
            None => {}
        }
        RankSet { runs }
    }
}

impl FromIterator<u32> for RankSet {
    fn from_iter<I: IntoIterator<Item = u32>>(ranks: I) -> Self {
        let mut ranks: Vec<u32> = ranks.into_iter().collect();
        ranks.sort_unstable();
        ranks.dedup();
        ranks.into_iter().ascending()
    }
}

impl fmt::Display for RankSet {
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

/// A rank list that cannot be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RankListError {
    part: String,
}

impl fmt::Display for RankListError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            formatter,
            "\"{}\" is not a list of ranks: write single ranks and ranges like 0-3,8,16-30:2",
            self.part
        )
    }
}

impl std::error::Error for RankListError {}

impl FromStr for RankSet {
    type Err = RankListError;

    /// Reads a rank list; ranges may overlap and stand in any order. A range whose last rank is
    /// below its first, or whose step is 0, is an error.
    fn from_str(text: &str) -> Result<Self, RankListError> {
        let mut set = Self::default();
        for part in text.split(',').map(str::trim).filter(|_| !text.trim().is_empty()) {
            let run = run(part).ok_or_else(|| RankListError { part: part.to_owned() })?;
            set = set.union(&run.ranks().ascending());
        }
        Ok(set)
    }
}

fn run(part: &str) -> Option<Run> {
    let (range, step) = match part.split_once(':') {
        Some((range, step)) => (range, step.parse().ok()?),
        None => (part, 1),
    };
    let (first, last) = match range.split_once('-') {
        Some((first, last)) => (first.parse().ok()?, last.parse().ok()?),
        None => (range.parse().ok()?, range.parse().ok()?),
    };
    (step > 0 && first <= last).then_some(Run { first, last, step })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    #[test]
    fn lists_are_short() {
        for (ranks, text) in [
            (vec![], ""),
            (vec![5], "5"),
            (vec![0, 1], "0-1"),
            (vec![0, 5], "0,5"),
            (vec![3, 0, 1, 2, 8, 16, 18, 20, 22], "0-3,8,16-22:2"),
            (vec![0, 5, 6, 7], "0,5-7"),
            (vec![0, 2, 4, 5, 6], "0-4:2,5-6"),
        ] {
            assert_eq!(RankSet::from_iter(ranks).to_string(), text);
        }
    }

    #[test]
    fn what_is_no_list_is_refused() {
        for text in ["a", "3-1", "1-", "0-8:0", "1,,2", "-1", "4294967296"] {
            assert!(text.parse::<RankSet>().is_err(), "{text}");
        }
        assert_eq!("".parse(), Ok(RankSet::default()));
    }

    proptest! {
        #[test]
        fn sets_of_ranks_are_sets(
            a in prop::collection::btree_set(0u32..200, 0..80),
            b in prop::collection::btree_set(0u32..200, 0..80),
            step in 1u32..7,
        ) {
            let strided: BTreeSet<u32> = a.iter().map(|rank| rank * step).collect();
            for truth in [&a, &b, &strided] {
                let set: RankSet = truth.iter().copied().collect();
                prop_assert_eq!(set.iter().collect::<BTreeSet<_>>(), truth.clone());
                prop_assert_eq!(set.len() as usize, truth.len());
                prop_assert_eq!(set.first(), truth.first().copied());
                prop_assert_eq!(set.to_string().parse(), Ok(set.clone()));
                for rank in 0..220 {
                    prop_assert_eq!(set.contains(rank), truth.contains(&rank));
                }
            }
            let (left, right) = (RankSet::from_iter(a.clone()), RankSet::from_iter(b.clone()));
            let both: RankSet = a.union(&b).copied().collect();
            prop_assert_eq!(left.union(&right), both.clone());
            prop_assert_eq!(right.union(&left), both);
        }
    }
}
