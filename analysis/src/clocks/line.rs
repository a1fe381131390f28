//! How a clock stands to the reference over the run, from what its ranks or its messages tell.

use std::collections::BTreeMap;

use super::Reference;
use super::fit::Fit;
use crate::input::Exchange;

/// Parts of a drift's unit in one.
const PPT: f64 = 1e12;

/// A clock against the reference's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Line {
    /// By how much it is ahead at the begin of the reference's run, in nanoseconds.
    pub(super) begin_ns: i64,
    /// By how much it runs faster, in parts per 10^12.
    pub(super) drift_ppt: i64,
    /// What the line leaves unexplained, in nanoseconds.
    pub(super) error_ns: u64,
    /// A moment since the begin at which it is known best.
    best_ns: i64,
}

impl Line {
    /// From the fits of the ranks that read the clock: a drift only if most of them tell one.
    pub(super) fn of_fits(fits: &BTreeMap<u32, Fit>, reference: &Reference) -> Option<Self> {
        let (_, best_ns) = reference.run()?;
        let middle_ns = median(fits.values().map(|fit| fit.middle_ns))?;
        let drifts = fits.values().map(|fit| fit.drift_ppt).filter(|drift| *drift != 0);
        let tell = drifts.clone().count() * 2 > fits.len();
        let drift_ppt = median(drifts).filter(|_| tell).unwrap_or(0);
        Some(Self {
            begin_ns: middle_ns.saturating_sub(drifted_ns(drift_ppt, best_ns)),
            drift_ppt,
            error_ns: spread(fits, middle_ns)?,
            best_ns,
        })
    }

    /// From what messages told of the clock and of the reference, at the same times: a drift if it is
    /// larger than what the messages may be wrong by.
    pub(super) fn of_exchanges(
        ours: &[Exchange],
        home: &[Exchange],
        reference: &Reference,
    ) -> Option<Self> {
        let gap = |(ours, home): (&Exchange, &Exchange)| {
            (ours.at_ns, ours.ahead_ns.saturating_sub(home.ahead_ns), error(ours, home))
        };
        let mut gaps = ours.iter().zip(home).map(gap);
        let (first_at, first_ns, first_error_ns) = gaps.next()?;
        // Times are process 0's: begin is that of the reference on its clock.
        let (begin_ns, _) = reference.run()?;
        let begin_ns = super::signed(begin_ns, 0).saturating_sub(home[0].ahead_ns);
        let Some((last_at, last_ns, last_error_ns)) = gaps.next_back() else {
            let best_ns = first_at.saturating_sub(begin_ns);
            return Some(Self {
                begin_ns: first_ns,
                drift_ppt: 0,
                error_ns: first_error_ns,
                best_ns,
            });
        };
        let (more_ns, span_ns) =
            (last_ns.saturating_sub(first_ns), last_at.saturating_sub(first_at));
        let best_ns = last_at.saturating_sub(begin_ns);
        let worst_ns = first_error_ns.max(last_error_ns);
        if span_ns <= 0 || more_ns.unsigned_abs() <= first_error_ns.saturating_add(last_error_ns) {
            // The shorter way tells more exactly.
            let better = if first_error_ns < last_error_ns { first_ns } else { last_ns };
            let error_ns = first_error_ns.min(last_error_ns);
            return Some(Self { begin_ns: better, drift_ppt: 0, error_ns, best_ns });
        }
        let drift_ppt = (more_ns as f64 / span_ns as f64 * PPT).round() as i64;
        let since_ns = first_at.saturating_sub(begin_ns);
        let begin_ns = first_ns.saturating_sub(drifted_ns(drift_ppt, since_ns));
        Some(Self { begin_ns, drift_ppt, error_ns: worst_ns, best_ns })
    }

    /// How far another line is from this one where that one is known best.
    pub(super) fn apart_ns(&self, other: &Self) -> u64 {
        self.at(other.best_ns).abs_diff(other.at(other.best_ns))
    }

    fn at(&self, since_ns: i64) -> i64 {
        self.begin_ns.saturating_add(drifted_ns(self.drift_ppt, since_ns))
    }
}

/// What the typical rank of a clock that is ahead by so much saw else.
pub(super) fn spread(fits: &BTreeMap<u32, Fit>, middle_ns: i64) -> Option<u64> {
    let spread = |fit: &Fit| fit.spread_ns.saturating_add(fit.middle_ns.abs_diff(middle_ns));
    median(fits.values().map(spread))
}

fn error(ours: &Exchange, home: &Exchange) -> u64 {
    ours.error_ns.saturating_add(home.error_ns)
}

/// What a drift comes to over some time.
pub(super) fn drifted_ns(drift_ppt: i64, over_ns: i64) -> i64 {
    (drift_ppt as f64 / PPT * over_ns as f64).round() as i64
}

/// The lower one of two in the middle.
fn median<T: Ord + Copy>(values: impl Iterator<Item = T>) -> Option<T> {
    let mut values: Vec<T> = values.collect();
    values.sort_unstable();
    values.get(values.len().checked_sub(1)? / 2).copied()
}
