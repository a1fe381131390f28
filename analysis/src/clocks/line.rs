//! Line of a clock relative to the reference clock over the run, from the fits of its ranks or from
//! messages.

use std::collections::BTreeMap;

use super::Reference;
use super::fit::Fit;
use crate::input::Exchange;

/// Drift units (parts per 10^12) in a ratio of one.
const PPT: f64 = 1e12;

/// Lead of a clock over the reference clock as a line over time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Line {
    /// Lead at the begin of the reference's run, in nanoseconds.
    pub(super) begin_ns: i64,
    /// Drift in parts per 10^12; positive if the clock is faster.
    pub(super) drift_ppt: i64,
    /// Residual error of the line, in nanoseconds.
    pub(super) error_ns: u64,
    /// Time since the begin at which the line is most precise, in nanoseconds.
    best_ns: i64,
}

impl Line {
    /// Returns the line from the fits of the ranks that read the clock. The line has a drift only
    /// if most fits have one.
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

    /// Returns the line from messages about this clock and about the reference clock at the same
    /// times. The line has a drift only if the drift exceeds the error of the messages.
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
        // Times are on process 0's clock: the begin is converted from the reference clock.
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
            // The shorter round trip is more precise.
            let better = if first_error_ns < last_error_ns { first_ns } else { last_ns };
            let error_ns = first_error_ns.min(last_error_ns);
            return Some(Self { begin_ns: better, drift_ppt: 0, error_ns, best_ns });
        }
        let drift_ppt = (more_ns as f64 / span_ns as f64 * PPT).round() as i64;
        let since_ns = first_at.saturating_sub(begin_ns);
        let begin_ns = first_ns.saturating_sub(drifted_ns(drift_ppt, since_ns));
        Some(Self { begin_ns, drift_ppt, error_ns: worst_ns, best_ns })
    }

    /// Returns the distance, in nanoseconds, to another line at the time at which that line is most
    /// precise.
    pub(super) fn apart_ns(&self, other: &Self) -> u64 {
        self.at(other.best_ns).abs_diff(other.at(other.best_ns))
    }

    fn at(&self, since_ns: i64) -> i64 {
        self.begin_ns.saturating_add(drifted_ns(self.drift_ppt, since_ns))
    }
}

/// Returns the median deviation of the ranks' gaps on a clock with the lead `middle_ns`, in
/// nanoseconds.
pub(super) fn spread(fits: &BTreeMap<u32, Fit>, middle_ns: i64) -> Option<u64> {
    let spread = |fit: &Fit| fit.spread_ns.saturating_add(fit.middle_ns.abs_diff(middle_ns));
    median(fits.values().map(spread))
}

fn error(ours: &Exchange, home: &Exchange) -> u64 {
    ours.error_ns.saturating_add(home.error_ns)
}

/// Returns the lead that a drift accumulates over some time, in nanoseconds.
pub(super) fn drifted_ns(drift_ppt: i64, over_ns: i64) -> i64 {
    (drift_ppt as f64 / PPT * over_ns as f64).round() as i64
}

/// Returns the median; of two middle values the lower one.
fn median<T: Ord + Copy>(values: impl Iterator<Item = T>) -> Option<T> {
    let mut values: Vec<T> = values.collect();
    values.sort_unstable();
    values.get(values.len().checked_sub(1)? / 2).copied()
}
