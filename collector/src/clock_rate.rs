//! Clocks of the collector: the rate of the time stamp counter, and conversion of stamps.

use plimsoll_wire::clock_anchor::Anchor;
use plimsoll_wire::record::STAMP_SHIFT;
use serde::{Deserialize, Serialize};

/// Minimum time since a process's anchor, in nanoseconds, to measure its rate again. Over a shorter
/// time, the few ten nanoseconds between the two clock readings of an anchor cause a larger error
/// than that of the first measurement.
const REMEASURE_NS: u64 = 10_000_000;

/// Duration of a tick; converts between stamps, ticks and nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Rate {
    ns_per_ticks_q32: u64,
}

impl Rate {
    /// Returns the rate that a process measured when it started, in nanoseconds per 2^32 ticks.
    pub(crate) fn coarse(ns_per_ticks_q32: u64) -> Self {
        // A header that was never filled is read as a counter of 1 GHz.
        Self { ns_per_ticks_q32: if ns_per_ticks_q32 == 0 { 1 << 32 } else { ns_per_ticks_q32 } }
    }

    /// Returns the exact rate, measured between a process's anchor and now. Returns the process's
    /// own measurement if the anchor is too recent or was taken from other clocks than this node's.
    pub(crate) fn since(anchor: Anchor, ns_per_ticks_q32: u64) -> Self {
        let coarse = Self::coarse(ns_per_ticks_q32);
        let now = Anchor::now();
        let ns = now.ns.saturating_sub(anchor.ns);
        let ticks = now.ticks.saturating_sub(anchor.ticks);
        if ns < REMEASURE_NS || ticks == 0 {
            return coarse;
        }
        let exact = (u128::from(ns) << 32) / u128::from(ticks);
        let known = u128::from(coarse.ns_per_ticks_q32);
        if exact.abs_diff(known) > known / 20 {
            return coarse;
        }
        Self { ns_per_ticks_q32: exact as u64 }
    }

    /// Converts a number of stamps to nanoseconds.
    pub(crate) fn ns(self, stamps: u64) -> u64 {
        let q32 =
            (u128::from(stamps) << STAMP_SHIFT).saturating_mul(u128::from(self.ns_per_ticks_q32));
        u64::try_from(q32 >> 32).unwrap_or(u64::MAX)
    }

    /// Converts a number of ticks to nanoseconds.
    pub(crate) fn ns_of_ticks(self, ticks: u64) -> u64 {
        let q32 = u128::from(ticks).saturating_mul(u128::from(self.ns_per_ticks_q32));
        u64::try_from(q32 >> 32).unwrap_or(u64::MAX)
    }

    /// Converts a number of nanoseconds to stamps.
    pub(crate) fn stamps(self, ns: u64) -> u64 {
        let ticks = (u128::from(ns) << 32) / u128::from(self.ns_per_ticks_q32);
        u64::try_from(ticks >> STAMP_SHIFT).unwrap_or(u64::MAX)
    }
}

/// Conversion of a process's stamps to its CLOCK_MONOTONIC. A time namespace shifts this clock
/// relative to that of other processes of the node, but does not shift the counter.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Timeline {
    /// One moment on both clocks.
    pub(crate) anchor: Anchor,
    /// Duration of a stamp.
    pub(crate) rate: Rate,
}

impl Timeline {
    /// Returns the clock value at a stamp, in nanoseconds.
    pub(crate) fn ns(self, stamp: u64) -> u64 {
        let ticks = stamp.saturating_mul(1 << STAMP_SHIFT);
        let Anchor { ticks: at, ns } = self.anchor;
        if ticks >= at {
            ns.saturating_add(self.rate.ns_of_ticks(ticks - at))
        } else {
            ns.saturating_sub(self.rate.ns_of_ticks(at - ticks))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_and_nanoseconds_convert_back_and_forth() {
        let rate = Rate::coarse(1 << 31);
        assert_eq!(rate.ns(1000), 32_000);
        assert_eq!(rate.ns_of_ticks(1000), 500);
        assert_eq!(rate.stamps(32_000), 1000);
        assert_eq!(rate.ns(u64::MAX), u64::MAX);
    }

    #[test]
    fn a_stamp_is_a_moment_of_the_clock_before_and_after_the_anchor() {
        let anchor = Anchor { ticks: 3200, ns: 1_000_000 };
        let timeline = Timeline { anchor, rate: Rate::coarse(1 << 31) };
        let stamp = 3200 >> STAMP_SHIFT;
        assert_eq!(timeline.ns(stamp), 1_000_000);
        assert_eq!(timeline.ns(stamp + 10), 1_000_000 + 320);
        assert_eq!(timeline.ns(stamp - 10), 1_000_000 - 320);
        assert_eq!(timeline.ns(u64::MAX), 1_000_000 + timeline.rate.ns_of_ticks(u64::MAX - 3200));
    }

    #[test]
    fn the_rate_is_measured_again_when_the_anchor_is_old_enough() {
        let anchor = Anchor::now();
        std::thread::sleep(std::time::Duration::from_millis(30));
        let later = Anchor::now();
        let (ns, ticks) = (later.ns - anchor.ns, later.ticks - anchor.ticks);
        let truth = ((u128::from(ns) << 32) / u128::from(ticks)) as u64;
        // A first measurement that was 1 % off is corrected ...
        let exact = Rate::since(anchor, truth + truth / 100);
        assert!(exact.ns_per_ticks_q32.abs_diff(truth) < truth / 1000);
        // ... and an anchor of another clock is not believed.
        let foreign = Anchor { ns: u64::MAX / 2, ..anchor };
        assert_eq!(Rate::since(foreign, 1 << 32), Rate::coarse(1 << 32));
        assert_eq!(Rate::since(anchor, truth * 3), Rate::coarse(truth * 3));
    }
}
