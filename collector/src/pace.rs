//! How fast the collector may look up names and structure while the job runs.
//!
//! What is looked up is not urgent, and all of it comes from the cores that the job computes on: so it gets
//! a small share of one core, and what is left at the end is looked up then.

use std::time::{Duration, Instant};

/// Share of a core, as one of so many parts.
const SHARE: u32 = 20;
/// What is saved up at most, and needed to begin: to open the files of a module takes most of the time, so
/// they are opened for many addresses at once.
const MOST_SAVED: Duration = Duration::from_millis(20);
/// After how many times the time so far something is done again, of which this is the least.
const GROWTH: u32 = 2;
const SOONEST: Duration = Duration::from_millis(500);

/// Rings are read that hold so many bytes: some ten milliseconds of work, which at the end of a run is all
/// that is left.
const WORTH_BYTES: u64 = 32 << 10;
/// They are read after this part of the run in any case, but after so long at least, and at most.
const SHORTEST: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(4);
const EARLY_PART: u32 = 8;

/// Time that may be spent.
#[derive(Debug)]
pub(crate) struct Pace {
    /// What is saved up, in nanoseconds; below zero, what is owed.
    balance: i64,
    last: Option<Instant>,
}

impl Default for Pace {
    fn default() -> Self {
        Self { balance: nanoseconds(MOST_SAVED), last: None }
    }
}

impl Pace {
    /// What may be spent now, by one who `goes_on` or begins. Nothing else is zero.
    pub(crate) fn allows(&mut self, now: Instant, goes_on: bool) -> Duration {
        let earned = self.last.map_or(Duration::ZERO, |last| now.duration_since(last)) / SHARE;
        self.last = Some(now);
        let most = nanoseconds(MOST_SAVED);
        self.balance = self.balance.saturating_add(nanoseconds(earned)).min(most);
        let may_begin = goes_on || self.balance == most;
        Duration::from_nanos(u64::try_from(self.balance).unwrap_or(0)) * u32::from(may_begin)
    }

    /// So much was spent, perhaps more than was allowed.
    pub(crate) fn spend(&mut self, spent: Duration) {
        self.balance = self.balance.saturating_sub(nanoseconds(spent));
    }
}

/// Rings of which nobody rings are looked at so long after the last time at most: what is in them is to be
/// on disk within a second.
const LONGEST_PAUSE: Duration = Duration::from_millis(900);

/// When rings are read that have room left: not before it is worth it, for much at a time takes less for each
/// record. Early in a run that is sooner, since what it finds is still to be looked up.
#[derive(Debug, Default)]
pub(crate) struct Reading {
    /// When they were read first, and last.
    times: Option<(Instant, Instant)>,
}

impl Reading {
    /// Whether they are to be read now, with so many bytes in them.
    pub(crate) fn is_due(&self, now: Instant, pending: u64) -> bool {
        self.times.is_none_or(|(first, last)| {
            let age = now.duration_since(first);
            pending >= WORTH_BYTES
                || now.duration_since(last) >= (age / EARLY_PART).clamp(SHORTEST, LONGEST)
        })
    }

    /// How long they may be left alone where all is known that was seen: no longer than `shortest` early in a
    /// run, where reading finds what is still to be looked up.
    pub(crate) fn pause(&self, now: Instant, shortest: Duration) -> Duration {
        let age = self.times.map_or(Duration::ZERO, |(first, _)| now.duration_since(first));
        (age / EARLY_PART).clamp(shortest, LONGEST_PAUSE)
    }

    /// They are read now.
    pub(crate) fn begin(&mut self, now: Instant) {
        self.times = Some((self.times.map_or(now, |(first, _)| first), now));
    }
}

/// When to do again what takes long however little has changed since: after a multiple of the time, so that
/// it is done a few times in a run, however long that lasts.
#[derive(Debug, Default)]
pub(crate) struct Seldom {
    begin: Option<Instant>,
    /// Since then.
    next: Duration,
}

impl Seldom {
    /// Whether it is to be done now.
    pub(crate) fn is_due(&mut self, now: Instant) -> bool {
        let passed = now.duration_since(*self.begin.get_or_insert(now));
        let is_due = passed >= self.next;
        if is_due {
            self.next = GROWTH * passed.max(SOONEST);
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
        let mut reading = Reading::default();
        let mut read = Vec::new();
        for tick in 0..600 {
            let now = begin + tick * 100 * MS;
            // A ring fills in the last second.
            let pending = if tick >= 590 { WORTH_BYTES } else { 100 };
            if reading.is_due(now, pending) {
                reading.begin(now);
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
        let mut reading = Reading::default();
        let pause = |reading: &Reading, ms: u32| reading.pause(begin + ms * MS, 200 * MS);
        assert_eq!(pause(&reading, 9000), 200 * MS, "nothing was read yet");
        reading.begin(begin);
        assert_eq!([1000, 4000].map(|ms| pause(&reading, ms)), [200 * MS, 500 * MS]);
        reading.begin(begin + 5000 * MS);
        assert_eq!([6400, 90_000].map(|ms| pause(&reading, ms)), [800 * MS, LONGEST_PAUSE]);
    }

    #[test]
    fn what_is_spent_stays_within_its_share() {
        let (mut pace, begin) = (Pace::default(), Instant::now());
        let (mut now, mut spent) = (begin, Duration::ZERO);
        for round in 0..10_000u32 {
            let allowed = pace.allows(now, round % 3 > 0);
            if allowed > Duration::ZERO {
                // One lookup can take far longer than is allowed.
                let took = if round % 7 == 0 { 150 * MS } else { allowed };
                pace.spend(took);
                spent += took;
            }
            now += 100 * MS;
        }
        let share = (now - begin) / SHARE;
        assert!(spent <= share + MOST_SAVED + 150 * MS, "{spent:?} of {share:?}");
        assert!(spent >= share * 9 / 10, "{spent:?} of {share:?}");
    }

    #[test]
    fn one_who_begins_waits_until_all_is_saved() {
        let (mut pace, mut now) = (Pace::default(), Instant::now());
        assert_eq!(pace.allows(now, false), MOST_SAVED);
        pace.spend(MOST_SAVED + MS);
        now += 100 * MS;
        assert_eq!(pace.allows(now, false), Duration::ZERO);
        assert_eq!(pace.allows(now, true), 4 * MS, "5 ms earned, one owed");
        now += 400 * MS;
        assert_eq!(pace.allows(now, false), MOST_SAVED);
    }

    #[test]
    fn what_takes_long_is_done_seldom() {
        let (mut seldom, begin) = (Seldom::default(), Instant::now());
        let due: Vec<u32> = (0..100).filter(|at| seldom.is_due(begin + *at * 500 * MS)).collect();
        assert_eq!(due, [0, 2, 4, 8, 16, 32, 64]);
    }
}
