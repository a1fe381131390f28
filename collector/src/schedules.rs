//! Time budgets of the collector while the job runs: symbol lookup, draining and rare work.
//!
//! Lookups of names and structure are not urgent and take time from the cores that the job computes
//! on. They are limited to a small fraction of one core; the rest is looked up at the end of the
//! run.

use std::time::{Duration, Instant};

/// Lookup may use one part in `LOOKUP_CPU_DIVISOR` of a core.
const LOOKUP_CPU_DIVISOR: u32 = 20;
/// Maximum balance of the lookup budget, and the balance needed to start a batch. Most of the time
/// goes into opening the files of a module, so they are opened for many addresses at once.
const MAX_BALANCE: Duration = Duration::from_millis(20);
/// Exponential interval of [`ExponentialSchedule`]: the next run is due after `GROWTH` times the
/// elapsed time, which counts as at least `MIN_ELAPSED`.
const GROWTH: u32 = 2;
const MIN_ELAPSED: Duration = Duration::from_millis(500);

/// Rings with this many pending bytes are drained at once. This is about ten milliseconds of work,
/// which bounds what remains to be drained at the end of the run.
const MIN_BATCH_BYTES: u64 = 32 << 10;
/// Interval between drains of rings with fewer pending bytes: the elapsed run time divided by
/// `DRAIN_INTERVAL_DIVISOR`, at least `MIN_DRAIN_INTERVAL` and at most `MAX_DRAIN_INTERVAL`.
const MIN_DRAIN_INTERVAL: Duration = Duration::from_millis(100);
const MAX_DRAIN_INTERVAL: Duration = Duration::from_secs(4);
const DRAIN_INTERVAL_DIVISOR: u32 = 8;

/// Time budget for lookups: earns one part in [`LOOKUP_CPU_DIVISOR`] of the elapsed time.
#[derive(Debug)]
pub(crate) struct LookupBudget {
    /// Time available, in nanoseconds, at most [`MAX_BALANCE`]; negative after overspending.
    balance: i64,
    last: Option<Instant>,
}

impl Default for LookupBudget {
    fn default() -> Self {
        Self { balance: nanoseconds(MAX_BALANCE), last: None }
    }
}

impl LookupBudget {
    /// Returns the time that a lookup may take now. A lookup that `goes_on` may use any positive
    /// balance; a new one needs the full balance and otherwise gets zero.
    pub(crate) fn allows(&mut self, now: Instant, goes_on: bool) -> Duration {
        let earned =
            self.last.map_or(Duration::ZERO, |last| now.duration_since(last)) / LOOKUP_CPU_DIVISOR;
        self.last = Some(now);
        let most = nanoseconds(MAX_BALANCE);
        self.balance = self.balance.saturating_add(nanoseconds(earned)).min(most);
        let may_begin = goes_on || self.balance == most;
        Duration::from_nanos(u64::try_from(self.balance).unwrap_or(0)) * u32::from(may_begin)
    }

    /// Subtracts the time `spent`, which may exceed what [`LookupBudget::allows`] returned.
    pub(crate) fn spend(&mut self, spent: Duration) {
        self.balance = self.balance.saturating_sub(nanoseconds(spent));
    }
}

/// Maximum interval between polls while no doorbell rings.
const MAX_POLL_INTERVAL: Duration = Duration::from_millis(900);

/// Schedule of drains for rings that have room left. Drains are batched, because the cost per
/// record falls with the batch size. Early in a run they are more frequent, because the addresses
/// they find are still to be looked up.
#[derive(Debug, Default)]
pub(crate) struct DrainSchedule {
    /// Times of the first and the last drain; `None` before the first.
    times: Option<(Instant, Instant)>,
}

impl DrainSchedule {
    /// Returns whether the rings are to be drained now; `pending` is the number of bytes in them.
    pub(crate) fn is_due(&self, now: Instant, pending: u64) -> bool {
        self.times.is_none_or(|(first, last)| {
            let age = now.duration_since(first);
            pending >= MIN_BATCH_BYTES
                || now.duration_since(last)
                    >= (age / DRAIN_INTERVAL_DIVISOR).clamp(MIN_DRAIN_INTERVAL, MAX_DRAIN_INTERVAL)
        })
    }

    /// Returns the interval until the next poll if no address is left to look up: `shortest` early
    /// in a run, where draining finds new addresses, and at most [`MAX_POLL_INTERVAL`] later.
    pub(crate) fn pause(&self, now: Instant, shortest: Duration) -> Duration {
        let age = self.times.map_or(Duration::ZERO, |(first, _)| now.duration_since(first));
        (age / DRAIN_INTERVAL_DIVISOR).clamp(shortest, MAX_POLL_INTERVAL)
    }

    /// Records a drain at `now`.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.times = Some((self.times.map_or(now, |(first, _)| first), now));
    }
}

/// Schedule of work that takes long even if little has changed. Its interval grows exponentially,
/// so the number of runs grows with the logarithm of the run time only.
#[derive(Debug, Default)]
pub(crate) struct ExponentialSchedule {
    begin: Option<Instant>,
    /// Time from `begin` to the next run.
    next: Duration,
}

impl ExponentialSchedule {
    /// Returns whether the work is due at `now`; if so, schedules the next run.
    pub(crate) fn is_due(&mut self, now: Instant) -> bool {
        let passed = now.duration_since(*self.begin.get_or_insert(now));
        let is_due = passed >= self.next;
        if is_due {
            self.next = GROWTH * passed.max(MIN_ELAPSED);
        }
        is_due
    }
}

fn nanoseconds(time: Duration) -> i64 {
    i64::try_from(time.as_nanos()).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: Duration = Duration::from_millis(1);

    #[test]
    fn rings_are_read_when_it_is_worth_it() {
        let begin = Instant::now();
        let mut schedule = DrainSchedule::default();
        let mut read = Vec::new();
        for tick in 0..600 {
            let now = begin + tick * 100 * MS;
            // A ring fills up in the last second.
            let pending = if tick >= 590 { MIN_BATCH_BYTES } else { 100 };
            if schedule.is_due(now, pending) {
                schedule.begin(now);
                read.push(tick);
            }
        }
        assert_eq!(read[..4], [0, 1, 2, 3], "early: each time");
        let calm: Vec<_> = read.iter().filter(|tick| (400..590).contains(*tick)).collect();
        assert!(calm.windows(2).all(|pair| pair[1] - pair[0] == 40), "{calm:?}");
        assert!((590..600).all(|tick| read.contains(&tick)), "{read:?}");
    }

    #[test]
    fn rings_are_left_alone_for_longer_the_longer_a_run_lasts() {
        let begin = Instant::now();
        let mut schedule = DrainSchedule::default();
        let pause = |schedule: &DrainSchedule, ms: u32| schedule.pause(begin + ms * MS, 200 * MS);
        assert_eq!(pause(&schedule, 9000), 200 * MS, "nothing was read yet");
        schedule.begin(begin);
        assert_eq!([1000, 4000].map(|ms| pause(&schedule, ms)), [200 * MS, 500 * MS]);
        schedule.begin(begin + 5000 * MS);
        assert_eq!([6400, 90_000].map(|ms| pause(&schedule, ms)), [800 * MS, MAX_POLL_INTERVAL]);
    }

    #[test]
    fn what_is_spent_stays_within_its_share() {
        let (mut budget, begin) = (LookupBudget::default(), Instant::now());
        let (mut now, mut spent) = (begin, Duration::ZERO);
        for round in 0..10_000u32 {
            let allowed = budget.allows(now, round % 3 > 0);
            if allowed > Duration::ZERO {
                // A single lookup can take far longer than the budget allows.
                let took = if round % 7 == 0 { 150 * MS } else { allowed };
                budget.spend(took);
                spent += took;
            }
            now += 100 * MS;
        }
        let share = (now - begin) / LOOKUP_CPU_DIVISOR;
        assert!(spent <= share + MAX_BALANCE + 150 * MS, "{spent:?} of {share:?}");
        assert!(spent >= share * 9 / 10, "{spent:?} of {share:?}");
    }

    #[test]
    fn one_who_begins_waits_until_all_is_saved() {
        let (mut budget, mut now) = (LookupBudget::default(), Instant::now());
        assert_eq!(budget.allows(now, false), MAX_BALANCE);
        budget.spend(MAX_BALANCE + MS);
        now += 100 * MS;
        assert_eq!(budget.allows(now, false), Duration::ZERO);
        assert_eq!(budget.allows(now, true), 4 * MS, "5 ms earned, one owed");
        now += 400 * MS;
        assert_eq!(budget.allows(now, false), MAX_BALANCE);
    }

    #[test]
    fn what_takes_long_is_done_seldom() {
        let (mut schedule, begin) = (ExponentialSchedule::default(), Instant::now());
        let due: Vec<u32> = (0..100).filter(|at| schedule.is_due(begin + *at * 500 * MS)).collect();
        assert_eq!(due, [0, 2, 4, 8, 16, 32, 64]);
    }
}
