//! Sets of ranks, stored as strided ranges, and their form in the summary:
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
    fn count(self) -> u64 {
        u64::from((self.last - self.first) / self.step) + 1
    }

    fn ranks(self) -> impl Iterator<Item = u32> {
        (self.first..=self.last).step_by(self.step as usize)
    }

    fn contains(self, rank: u32) -> bool {
        self.first <= rank && rank <= self.last && (rank - self.first).is_multiple_of(self.step)
    }

    fn contains_all(self, other: Self) -> bool {
        self.contains(other.first)
            && self.contains(other.last)
            && (other.first == other.last || other.step.is_multiple_of(self.step))
    }

    /// Returns the ranks up to `end`, which is not before the first.
    fn until(self, end: u32) -> Self {
        let end = end.min(self.last);
        Self { last: end - (end - self.first) % self.step, ..self }
    }

    /// Returns the ranks behind `rank`.
    fn behind(self, rank: u32) -> Option<Self> {
        match rank {
            _ if rank >= self.last => None,
            _ if rank < self.first => Some(self),
            _ => Some(Self { first: self.until(rank).last + self.step, ..self }),
        }
    }

    /// Returns the lowest ranks of both runs, as far as they form one run.
    fn beginning(self, other: Self) -> Self {
        let (low, high) = if self.first <= other.first { (self, other) } else { (other, self) };
        if low.last < high.first {
            return low;
        }
        let end = low.last.min(high.last);
        let gap = high.first - low.first;
        if low.contains_all(high.until(end)) {
            low.until(end)
        } else if low.step == high.step && low.step.is_multiple_of(2) && gap == low.step / 2 {
            Self { first: low.first, last: end, step: gap }
        } else {
            // No other runs merge, so the result has about as many runs as this loop makes.
            low.until(low.first.max(high.first.saturating_sub(1)))
        }
    }
}

/// A set of ranks. Equal sets have equal representations, independent of the order of insertion.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "UncheckedRuns")]
pub struct RankSet {
    // Each run lies wholly behind the one before it; runs are formed greedily in ascending order.
    runs: Vec<Run>,
}

/// A set as somebody's file has it.
#[derive(Deserialize)]
struct UncheckedRuns {
    runs: Vec<Run>,
}

impl TryFrom<UncheckedRuns> for RankSet {
    type Error = &'static str;

    fn try_from(UncheckedRuns { runs }: UncheckedRuns) -> Result<Self, Self::Error> {
        let is_run = |run: &Run| {
            run.step > 0 && run.first <= run.last && run.last == run.until(run.last).last
        };
        let ascend = runs.windows(2).all(|pair| pair[0].last < pair[1].first);
        match ascend && runs.iter().all(is_run) {
            true => Ok(Self { runs }),
            false => Err("these are no ascending ranges of ranks"),
        }
    }
}

impl RankSet {
    /// Returns the number of ranks; the largest number for all 2^32.
    pub fn len(&self) -> u32 {
        let count: u64 = self.runs.iter().map(|run| run.count()).sum();
        u32::try_from(count).unwrap_or(u32::MAX)
    }

    /// Returns whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.runs.is_empty()
    }

    /// Returns the lowest rank; `None` if the set is empty.
    pub fn first(&self) -> Option<u32> {
        self.runs.first().map(|run| run.first)
    }

    /// Iterates over the ranks in ascending order.
    pub fn iter(&self) -> impl Iterator<Item = u32> {
        self.runs.iter().flat_map(|run| run.ranks())
    }

    /// Returns whether the set contains `rank`.
    pub fn contains(&self, rank: u32) -> bool {
        let at = self.runs.partition_point(|run| run.last < rank);
        self.runs.get(at).is_some_and(|run| run.contains(rank))
    }

    /// Returns the number of ranks below `rank`; `None` if the set does not contain `rank`.
    pub fn position(&self, rank: u32) -> Option<u32> {
        let at = self.runs.partition_point(|run| run.last < rank);
        let run = self.runs.get(at).filter(|run| run.contains(rank))?;
        let before: u64 = self.runs[..at].iter().map(|run| run.count()).sum();
        Some(before as u32 + (rank - run.first) / run.step)
    }

    /// Returns the ranks of both sets. The time grows with the number of ranges in the sets and in
    /// the result, not with the number of ranks.
    pub fn union(&self, other: &Self) -> Self {
        self.merged(other, usize::MAX)
    }

    /// Returns the ranks of both sets, or, if these take more ranges, the first of them in more
    /// than `max_runs` ranges.
    fn merged(&self, other: &Self, max_runs: usize) -> Self {
        let (mut ours, mut theirs) = (self.runs.iter().copied(), other.runs.iter().copied());
        let (mut our, mut their) = (ours.next(), theirs.next());
        let mut both = Ascending::default();
        while let Some(run) = match (our, their) {
            (Some(our), Some(their)) => Some(our.beginning(their)),
            (one, other) => one.or(other),
        } {
            both.add_run(run);
            if both.runs.len() > max_runs {
                break;
            }
            our = our.and_then(|it| it.behind(run.last)).or_else(|| ours.next());
            their = their.and_then(|it| it.behind(run.last)).or_else(|| theirs.next());
        }
        both.finish()
    }
}

/// Forms ranges of ranks that arrive in ascending order.
#[derive(Default)]
struct Ascending {
    runs: Vec<Run>,
    /// That to which the next rank may belong.
    open: Option<Run>,
}

impl Ascending {
    fn add(&mut self, rank: u32) {
        self.open = Some(match self.open {
            None => Run { first: rank, last: rank, step: 1 },
            Some(run) if run.first == run.last => {
                Run { first: run.first, last: rank, step: rank - run.first }
            }
            Some(run) if rank - run.last == run.step => Run { last: rank, ..run },
            // Two ranks apart are no rhythm yet: the second may begin one.
            Some(run) if run.last - run.first == run.step && run.step > 1 => {
                self.runs.push(Run { first: run.first, last: run.first, step: 1 });
                Run { first: run.last, last: rank, step: rank - run.last }
            }
            Some(run) => {
                self.runs.push(run);
                Run { first: rank, last: rank, step: 1 }
            }
        });
    }

    /// Adds one rank after the other until the rest goes on as the open run does.
    fn add_run(&mut self, run: Run) {
        let mut rest = Some(run);
        while let Some(run) = rest {
            self.add(run.first);
            rest = run.behind(run.first);
            if let (Some(open), Some(run)) = (&mut self.open, rest)
                && open.first < open.last
                && open.step == run.step
            {
                open.last = run.last;
                return;
            }
        }
    }

    fn finish(mut self) -> RankSet {
        match self.open {
            Some(run) if run.last - run.first == run.step && run.step > 1 => {
                let alone = |rank| Run { first: rank, last: rank, step: 1 };
                self.runs.extend([alone(run.first), alone(run.last)]);
            }
            run => self.runs.extend(run),
        }
        RankSet { runs: self.runs }
    }
}

impl FromIterator<u32> for RankSet {
    fn from_iter<I: IntoIterator<Item = u32>>(ranks: I) -> Self {
        let mut ranks: Vec<u32> = ranks.into_iter().collect();
        ranks.sort_unstable();
        ranks.dedup();
        let mut set = Ascending::default();
        ranks.into_iter().for_each(|rank| set.add(rank));
        set.finish()
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

/// Maximum number of ranges that a rank list takes in addition to twice those in its text:
/// together, huge ranges with different steps take one for every few ranks.
const MAX_FURTHER_RANGES: usize = 1 << 16;

/// Reason why a rank list cannot be read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RankListError {
    /// This part of it is neither a rank nor a range.
    #[error("\"{0}\" is not a list of ranks: write single ranks and ranges like 0-3,8,16-30:2")]
    Part(String),
    /// The ranges have different steps and do not form few ranges together.
    #[error("the list of ranks has too many ranges with different steps")]
    TooManyRanges,
}

impl FromStr for RankSet {
    type Err = RankListError;

    /// Parses a rank list; ranges may overlap and stand in any order. A range is an error if its
    /// last rank is below its first, or if its step is 0. Time and memory are bounded by the length
    /// of the text: the list may come from anybody's file.
    fn from_str(text: &str) -> Result<Self, RankListError> {
        let parts = text.split(',').map(str::trim).filter(|_| !text.trim().is_empty());
        let range = |part: &str| {
            let mut range = Ascending::default();
            range.add_run(run(part)?);
            Some(range.finish())
        };
        let mut sets: Vec<Self> = parts
            .map(|part| range(part).ok_or_else(|| RankListError::Part(part.to_owned())))
            .collect::<Result<_, _>>()?;
        let in_text: usize = sets.iter().map(|set| set.runs.len()).sum();
        // Pairs of neighbours, then pairs of these: the time grows little faster than the text.
        while sets.len() > 1 {
            let mut left = 2 * in_text + MAX_FURTHER_RANGES;
            let union = |pair: &[Self]| {
                let both = pair[0].merged(pair.get(1).unwrap_or(&Self::default()), left);
                left = left.checked_sub(both.runs.len())?;
                Some(both)
            };
            let unions: Option<Vec<Self>> = sets.chunks(2).map(union).collect();
            sets = unions.ok_or(RankListError::TooManyRanges)?;
        }
        Ok(sets.pop().unwrap_or_default())
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
    (step > 0 && first <= last).then(|| Run { first, last, step }.until(last))
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
    fn ranges_of_somebody_s_file_are_checked() {
        let read = |runs: &[[u32; 3]]| {
            let run = |[first, last, step]: &[u32; 3]| {
                format!(r#"{{"first":{first},"last":{last},"step":{step}}}"#)
            };
            let runs: Vec<String> = runs.iter().map(run).collect();
            serde_json::from_str::<RankSet>(&format!(r#"{{"runs":[{}]}}"#, runs.join(",")))
        };
        assert_eq!(read(&[[0, 4, 2], [5, 6, 1]]).unwrap().to_string(), "0-4:2,5-6");
        for wrong in [&[[0, 4, 0]][..], &[[4, 0, 1]], &[[0, 4, 3]], &[[0, 4, 2], [4, 6, 1]]] {
            assert!(read(wrong).is_err(), "{wrong:?}");
        }
    }

    /// 2^31 ranks each, so that walking them would be noticed.
    #[test]
    fn regular_sets_come_together_however_large_they_are() {
        let all = u32::MAX - 1;
        for (one, other, both) in [
            (format!("0-{all}"), "5-4000000000:5".to_owned(), format!("0-{all}")),
            (format!("0-{all}:2"), format!("1-{}:2", all - 1), format!("0-{all}")),
            (format!("0-{all}:2"), format!("0-{}:4", all - 2), format!("0-{all}:2")),
            ("0-3000000000:4".to_owned(), "2-3000000002:4".to_owned(), "0-3000000002:2".to_owned()),
            (
                "0-2000000000".to_owned(),
                "1000000000-4000000000".to_owned(),
                "0-4000000000".to_owned(),
            ),
            ("0-10:2,12-4000000000".to_owned(), "1-11:2".to_owned(), "0-4000000000".to_owned()),
            ("7".to_owned(), "0-4000000000:8".to_owned(), "0,7-8,16-4000000000:8".to_owned()),
        ] {
            let [left, right]: [RankSet; 2] = [&one, &other].map(|text| text.parse().unwrap());
            assert_eq!(left.union(&right).to_string(), both, "{one} and {other}");
            assert_eq!(right.union(&left).to_string(), both, "{other} and {one}");
        }
    }

    /// Written out, the ranks of two of these ranges take many gigabytes, and so do those of many
    /// pairs of smaller ones.
    #[test]
    fn lists_from_anybody_take_little_time_and_memory() {
        let (large, many) = ("0-4294967294:3,1-4294967294:5", ["0-90000:3,1-90000:5"; 20_000]);
        for text in [large.to_owned(), many.join(",")] {
            assert_eq!(text.parse::<RankSet>(), Err(RankListError::TooManyRanges));
        }
        let squares: Vec<u32> = (0..65_536).map(|root| root * root).collect();
        let texts: Vec<String> = squares.iter().rev().map(u32::to_string).collect();
        assert_eq!(texts.join(",").parse(), Ok(RankSet::from_iter(squares)));
        let all: RankSet = "0-4294967295".parse().unwrap();
        assert_eq!((all.len(), all.position(u32::MAX)), (u32::MAX, Some(u32::MAX)));
    }

    #[test]
    fn a_range_ends_at_its_last_rank() {
        let ranks = || (5..100).step_by(7);
        assert_eq!("5-100:7".parse(), Ok(RankSet::from_iter(ranks())));
        let both: RankSet = ranks().chain((0..100).step_by(3)).collect();
        assert_eq!("5-100:7,0-100:3".parse(), Ok(both));
    }

    #[test]
    fn an_invalid_list_is_refused() {
        for text in ["a", "3-1", "1-", "0-8:0", "1,,2", "-1", "4294967296"] {
            assert!(text.parse::<RankSet>().is_err(), "{text}");
        }
        assert_eq!("".parse(), Ok(RankSet::default()));
    }

    /// Runs that often touch, overlap, or lie within each other's gaps.
    fn runs() -> impl Strategy<Value = BTreeSet<u32>> {
        let run = (0u32..60, 1u32..20, prop_oneof![Just(1u32), Just(2), Just(4), Just(6), 1u32..9]);
        let run = run.prop_map(|(first, count, step)| (0..count).map(move |at| first + at * step));
        prop::collection::vec(run, 0..5).prop_map(|runs| runs.into_iter().flatten().collect())
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(500))]

        #[test]
        fn union_of_runs_holds_their_ranks(a in runs(), b in runs(), high in any::<bool>()) {
            // At the upper end, no rank may be looked for behind the last.
            let at = |rank: &u32| if high { u32::MAX - 250 + rank } else { *rank };
            let [a, b] = [a, b].map(|ranks| ranks.iter().map(at).collect::<BTreeSet<u32>>());
            let [left, right] = [&a, &b].map(|ranks| RankSet::from_iter(ranks.iter().copied()));
            let both: RankSet = a.union(&b).copied().collect();
            prop_assert_eq!(left.union(&right), both.clone());
            prop_assert_eq!(right.union(&left), both.clone());
            prop_assert_eq!(both.union(&left), both.clone());
            prop_assert!(both.iter().eq(a.union(&b).copied()));
            prop_assert_eq!(both.to_string().parse(), Ok(both));
        }
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
                    let position = set.iter().position(|one| one == rank);
                    prop_assert_eq!(set.position(rank), position.map(|at| at as u32));
                }
            }
            let (left, right) = (RankSet::from_iter(a.clone()), RankSet::from_iter(b.clone()));
            let both: RankSet = a.union(&b).copied().collect();
            prop_assert_eq!(left.union(&right), both.clone());
            prop_assert_eq!(right.union(&left), both);
        }
    }
}
