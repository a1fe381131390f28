//! Cross-check of the phases (PPoPP20, 4): ranks count the synchronisations that delimit phases,
//! and the k-th is taken to be the same one on every rank. All ranks leave it together, so its
//! returns lie side by side on a common clock. A rank that counts another call as the k-th returns
//! from it earlier or later, typically by the length of an instance.

use serde::{Deserialize, Serialize};

use super::{Known, Reference};
use crate::metrics::NS_PER_S;
use crate::ranks::RankSet;
use crate::thresholds::{MIN_APART_INSTANCE_FRACTION, MIN_APART_PERIODS};

/// Minimum number of synchronisations: a few may all be delayed on one rank.
const MIN_CHECKED_SYNCS: usize = 10;

/// Typical return of a rank, in nanoseconds after the earliest one on the reference clock.
type Return = (i64, u32);

/// Ranks of one clock that return first and last from the synchronisations.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ReturnRange {
    first: Return,
    last: Return,
}

impl ReturnRange {
    /// Returns the range of one rank.
    pub(super) fn of_rank(middle_ns: i64, rank: u32) -> Self {
        Self { first: (middle_ns, rank), last: (middle_ns, rank) }
    }

    /// Returns the range of the ranks of both.
    pub(super) fn union(self, other: Self) -> Self {
        Self { first: self.first.min(other.first), last: self.last.max(other.last) }
    }

    fn length_ns(&self) -> i64 {
        self.last.0.saturating_sub(self.first.0)
    }
}

/// Returns the sentence about ranks that do not leave synchronisations together; `None` if all do.
/// Ranks of different clocks are not compared, because the synchronisations relate their clocks.
pub(super) fn note<'a>(
    clocks: impl Iterator<Item = &'a Known>,
    reference: &Reference,
    period_ns: u64,
) -> Option<String> {
    let (first, last) = (reference.ends.first_key_value()?, reference.ends.last_key_value()?);
    // Returns found in samples are matched by time already.
    if reference.by_samples || reference.ends.len() < MIN_CHECKED_SYNCS {
        return None;
    }
    let instance_ns = last.1.saturating_sub(*first.1) as f64 / (last.0 - first.0) as f64;
    let least_ns =
        (MIN_APART_INSTANCE_FRACTION * instance_ns).max(MIN_APART_PERIODS * period_ns as f64);
    let ranges = clocks.filter_map(|known| known.returns);
    let widest = ranges.max_by_key(ReturnRange::length_ns)?;
    (widest.length_ns() as f64 > least_ns).then(|| {
        let name = |(_, rank): Return| RankSet::from_iter([rank]);
        format!(
            "Rank {} typically leaves the synchronisations that delimit phases {:.3} s before rank \
             {}: these ranks may count different calls, and their phases may not correspond.",
            name(widest.first),
            widest.length_ns() as f64 / NS_PER_S,
            name(widest.last)
        )
    })
}

#[cfg(test)]
mod tests {
    use crate::diagnose::diagnose_alone;
    use crate::synthetic_run::{MS, Subject, doing, job};

    /// Returns what is noted about the returns of four ranks from synchronisations after every
    /// `step_ms`; the last rank returns as late as `late_ns` says.
    fn noted(steps: u32, step_ms: u64, late_ns: fn(u64) -> u64) -> Vec<String> {
        let mut subject = Subject::new(4);
        for _ in 0..steps {
            subject.step("main/MPI_Barrier", |_| vec![doing("main/work", step_ms * MS)]);
        }
        subject.clocks[3].late_ns = late_ns;
        let mut notes = diagnose_alone(subject.inputs(), &job()).unwrap().notes;
        notes.retain(|note| note.contains("leaves the synchronisations"));
        notes
    }

    #[test]
    fn ranks_that_return_half_an_instance_apart_are_named() {
        let notes = noted(20, 60, |_| 31_500_000);
        let [note] = &notes[..] else { panic!("{notes:?}") };
        assert!(note.starts_with("Rank 0 typically") && note.contains("0.032 s before rank 3:"));
        assert!(noted(20, 60, |_| 28_500_000).is_empty());
        // Of short instances, the period decides: it is 4 ms here.
        assert_eq!(noted(20, 10, |_| 21_000_000).len(), 1);
        assert!(noted(20, 10, |_| 19_000_000).is_empty());
    }

    #[test]
    fn single_delays_and_few_synchronisations_prove_nothing() {
        let often = |index: u64| if index.is_multiple_of(2) { 50_000_000 } else { 0 };
        assert!(noted(20, 60, often).is_empty());
        assert!(noted(9, 60, |_| 50_000_000).is_empty());
        assert_eq!(noted(10, 60, |_| 50_000_000).len(), 1);
    }

    #[test]
    fn a_rank_that_counts_one_call_more_is_found() {
        let mut subject = Subject::new(4);
        for step in 0..40 {
            let ms = 40 + 10 * (step % 3);
            subject.step("main/MPI_Barrier", |_| vec![doing("main/work", ms * MS)]);
        }
        let mut inputs = subject.inputs();
        for (index, _) in &mut inputs[2].profile.sync_returns.as_mut().unwrap().ends {
            *index += 1;
        }
        let notes = diagnose_alone(inputs, &job()).unwrap().notes;
        assert!(notes.iter().any(|note| note.contains("Rank 2 typically leaves")), "{notes:?}");
    }
}
