//! Holders of locks: the call paths that have a lock of OpenMP while another thread waits for it.
//!
//! A lock that a thread has waited for gets an entry in a table of the process. Each thread that
//! acquires the lock from then on closes the time of the previous holder and stores its own call
//! path. A thread that waits notes these times at its begin, and compares them when it has the
//! lock: the differences are the parts of the wait in which each call path had the lock (Tallent,
//! Mellor-Crummey and Porterfield, PPoPP 2010, blame holders in the same way). A lock that is never
//! waited for costs two lookups.
//!
//! The lock itself lets one thread at a time change its entry. Two threads can change an entry at
//! the same time only if the entry changes from one lock to another, or if two teams are in ordered
//! sections: then a wait may be charged to the wrong call path, but never more than its duration.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering, fence};

use super::{open_until, write_for_slot};
use crate::thread_state::{State, store_owned};
use plimsoll_wire::lock_waits::{LockWaitCounters, MAX_LOCK_WAITS};
use plimsoll_wire::record::Record;
use plimsoll_wire::segment::{MAX_SLOTS, ThreadArea};
use plimsoll_wire::teams::PathKey;

/// Number of locks in the table.
const MAX_LOCKS: usize = 256;
/// Number of call paths of a lock. The last one stands for all further ones.
const MAX_HOLDERS: usize = 6;
/// Number of candidate entries of a lock.
const PROBES: usize = 4;
/// Number of attempts to read an entry while others change it.
const ATTEMPTS: usize = 4;
/// Minimum duration of a wait, in ticks. Shorter calls have not waited.
const MIN_WAIT_TICKS: u64 = 2_000;
/// Number of candidate entries in a thread's table of waits.
const WAIT_PROBES: usize = 8;

/// Name of a lock: its address, or one of the names below for sections without an address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockId(pub u64);

impl LockId {
    /// The critical section without a name.
    pub const CRITICAL: Self = Self(1);
    /// Atomic updates that need a lock.
    pub const ATOMIC: Self = Self(2);
    /// Ordered sections.
    pub const ORDERED: Self = Self(3);
}

/// A lock for which threads wait, on cache lines of its own.
#[repr(C, align(128))]
struct LockEntry {
    /// A [`LockId`]; 0: the entry is unused.
    lock: AtomicU64,
    /// Odd while the entry changes.
    version: AtomicU32,
    /// Index in `holders` of the call path that has acquired the lock last.
    current: AtomicU32,
    /// When it has acquired the lock, in ticks.
    since: AtomicU64,
    holders: [Holder; MAX_HOLDERS],
}

/// A call path that acquires the lock.
struct Holder {
    /// A [`PathKey`]; 0: unused, or all further paths.
    path: AtomicU64,
    /// Time from its acquisitions of the lock to the next ones, in ticks.
    held: AtomicU64,
}

static LOCKS: [LockEntry; MAX_LOCKS] = [const {
    LockEntry {
        lock: AtomicU64::new(0),
        version: AtomicU32::new(0),
        current: AtomicU32::new(0),
        since: AtomicU64::new(0),
        holders: [const { Holder { path: AtomicU64::new(0), held: AtomicU64::new(0) } };
            MAX_HOLDERS],
    }
}; MAX_LOCKS];

/// A thread's wait for a lock. All zeros before the first wait.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct LockWait {
    /// Holders' times when the wait began; `None` if the lock had no entry then.
    held: Option<HeldTimes>,
}

/// Times of a lock's holders until a moment, in ticks.
type HeldTimes = [u64; MAX_HOLDERS];

/// Returns the candidate entries of a lock.
fn candidates(lock: LockId) -> impl Iterator<Item = &'static LockEntry> {
    let first = (lock.0.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as usize;
    (first..first + PROBES).map(|at| &LOCKS[at % MAX_LOCKS])
}

/// Returns the entry of a lock. The first unused candidate ends the search: entries are taken in
/// order, and are never given back.
#[inline]
fn find(lock: LockId) -> Option<&'static LockEntry> {
    for entry in candidates(lock) {
        match entry.lock.load(Ordering::Relaxed) {
            0 => return None,
            found if found == lock.0 => return Some(entry),
            _ => {}
        }
    }
    None
}

/// Returns an entry for a lock that has none: an unused one, or the one that was not used for the
/// longest time. `None` if another thread takes it first.
#[cold]
fn claim(lock: LockId) -> Option<&'static LockEntry> {
    let last_use = |entry: &&LockEntry| match entry.lock.load(Ordering::Relaxed) {
        0 => 0,
        _ => entry.since.load(Ordering::Relaxed),
    };
    let entry = candidates(lock).min_by_key(last_use)?;
    let before = entry.lock.load(Ordering::Relaxed);
    entry.lock.compare_exchange(before, lock.0, Ordering::Relaxed, Ordering::Relaxed).ok()?;
    entry.change(|| {
        for holder in &entry.holders {
            holder.path.store(0, Ordering::Relaxed);
            holder.held.store(0, Ordering::Relaxed);
        }
        entry.since.store(u64::MAX, Ordering::Relaxed);
    });
    Some(entry)
}

impl LockEntry {
    fn change(&self, change: impl FnOnce()) {
        let version = self.version.load(Ordering::Relaxed);
        self.version.store(version | 1, Ordering::Relaxed);
        fence(Ordering::Release);
        change();
        self.version.store((version | 1).wrapping_add(1), Ordering::Release);
    }

    /// Stores that the lock was acquired at `ticks` in a call path.
    fn acquire(&self, path: PathKey, ticks: u64) {
        self.change(|| {
            let current = self.current.load(Ordering::Relaxed) as usize % MAX_HOLDERS;
            let held = &self.holders[current].held;
            let since = ticks.saturating_sub(self.since.load(Ordering::Relaxed));
            held.store(held.load(Ordering::Relaxed).wrapping_add(since), Ordering::Relaxed);
            self.current.store(self.index_of(path) as u32, Ordering::Relaxed);
            self.since.store(ticks, Ordering::Relaxed);
        });
    }

    /// Returns the index of a call path among the holders, and adds the path if there is room.
    fn index_of(&self, path: PathKey) -> usize {
        let (_, named) = self.holders.split_last().expect("there are several");
        let is_it = |holder: &Holder| match holder.path.load(Ordering::Relaxed) {
            0 => {
                holder.path.store(path.0, Ordering::Relaxed);
                true
            }
            found => found == path.0,
        };
        named.iter().position(is_it).unwrap_or(MAX_HOLDERS - 1)
    }

    /// Returns the times of the holders until `ticks`; `None` if others change the entry all the
    /// time.
    fn held_until(&self, ticks: u64) -> Option<HeldTimes> {
        let read = || {
            let version = self.version.load(Ordering::Acquire);
            let mut held: HeldTimes =
                core::array::from_fn(|at| self.holders[at].held.load(Ordering::Relaxed));
            let current = self.current.load(Ordering::Relaxed) as usize % MAX_HOLDERS;
            let since = ticks.saturating_sub(self.since.load(Ordering::Relaxed));
            held[current] = held[current].wrapping_add(since);
            fence(Ordering::Acquire);
            let is_whole = version & 1 == 0 && self.version.load(Ordering::Relaxed) == version;
            is_whole.then_some(held)
        };
        (0..ATTEMPTS).find_map(|_| read())
    }
}

/// Notes that the thread begins at `ticks` to wait for a lock.
#[inline]
pub fn begin_lock_wait(state: &mut State, lock: LockId, ticks: u64) {
    let held = find(lock).and_then(|entry| entry.held_until(ticks));
    state.regions.lock_wait = LockWait { held };
}

/// Notes that the thread has acquired a lock at `ticks`, in the open call with its return address
/// at `return_slot`. The wait is charged to the call paths that had the lock in the meantime.
#[inline]
pub fn end_lock_wait(state: &mut State, lock: LockId, return_slot: u64, ticks: u64) {
    let Some((slot, waited)) = open_until(state, return_slot, ticks) else { return };
    let path = state.regions.slots[usize::from(slot)].path_key;
    let has_waited = waited >= MIN_WAIT_TICKS;
    let found = find(lock);
    let Some(entry) = found.or_else(|| if has_waited { claim(lock) } else { None }) else { return };
    entry.acquire(path, ticks);
    if has_waited {
        charge(state, entry, slot, waited);
    }
}

/// Charges the wait that ends now to the holders of its lock, and what remains to nobody known.
#[cold]
#[inline(never)]
fn charge(state: &mut State, entry: &LockEntry, slot: u16, waited: u64) {
    let mut rest = waited;
    if let Some(before) = state.regions.lock_wait.held {
        for (holder, before) in entry.holders.iter().zip(before) {
            let ticks = holder.held.load(Ordering::Relaxed).saturating_sub(before).min(rest);
            rest -= ticks;
            if ticks > 0 {
                let path = PathKey(holder.path.load(Ordering::Relaxed));
                count(state, slot, path, ticks);
            }
        }
    }
    if rest >= MIN_WAIT_TICKS {
        count(state, slot, PathKey::NONE, rest);
    }
}

/// Adds a wait to the thread's table.
fn count(state: &mut State, slot: u16, holder: PathKey, ticks: u64) {
    if !add(state, slot, holder, ticks) {
        state.with_room(flush_lock_waits);
        let added = add(state, slot, holder, ticks);
        debug_assert!(added, "an empty table has room");
    }
}

fn add(state: &State, slot: u16, holder: PathKey, ticks: u64) -> bool {
    let first = holder.then(u64::from(slot)).0 as usize % MAX_LOCK_WAITS;
    let area = state.area();
    store_owned(&area.thread.lock_waits, 1);
    let mut candidates =
        (first..first + WAIT_PROBES).map(|at| &area.lock_waits[at % MAX_LOCK_WAITS]);
    candidates.any(|entry| entry.add(slot, holder, ticks))
}

/// Writes all entries of the table of waits for locks and clears it.
#[cold]
#[inline(never)]
pub fn flush_lock_waits(state: &mut State) {
    // SAFETY: the area stays mapped as long as the state.
    let ThreadArea { thread, lock_waits, .. } = unsafe { &*state.area };
    if thread.lock_waits.load(Ordering::Relaxed) == 0 {
        return;
    }
    for counters in lock_waits {
        if let Some((slot, totals)) = counters.read() {
            write_for_slot(state, slot as usize % MAX_SLOTS, &Record::LockWait { slot, totals });
        }
        counters.clear();
    }
    store_owned(&thread.lock_waits, 0);
}

/// Discards the table of waits for locks.
pub fn discard_lock_waits(state: &mut State) {
    let area = state.area();
    if area.thread.lock_waits.load(Ordering::Relaxed) != 0 {
        area.lock_waits.iter().for_each(LockWaitCounters::clear);
        store_owned(&area.thread.lock_waits, 0);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns an entry for a lock that no other test uses.
    fn entry(lock: u64) -> &'static LockEntry {
        claim(LockId(lock)).expect("nobody else takes it")
    }

    #[test]
    fn a_wait_is_divided_among_all_holders_in_the_meantime() {
        let entry = entry(0x1000);
        assert!(core::ptr::eq(find(LockId(0x1000)).expect("it was claimed"), entry));
        let [one, other] = [PathKey(7), PathKey(8)];
        entry.acquire(one, 100);
        let before = entry.held_until(130).expect("nobody changes it");
        entry.acquire(other, 150);
        entry.acquire(one, 160);
        entry.acquire(other, 190);
        let after = entry.held_until(195).expect("nobody changes it");
        let parts: Vec<u64> =
            after.iter().zip(before).map(|(after, before)| after - before).collect();
        assert_eq!(parts, [20 + 30, 10 + 5, 0, 0, 0, 0]);
    }

    #[test]
    fn further_holders_share_the_last_place() {
        let entry = entry(0x2000);
        for path in 1..=10 {
            entry.acquire(PathKey(path), 10 * path);
        }
        let held = entry.held_until(110).expect("nobody changes it");
        assert_eq!(held, [10, 10, 10, 10, 10, 50]);
        assert_eq!(entry.holders[MAX_HOLDERS - 1].path.load(Ordering::Relaxed), 0);
    }

    #[test]
    fn an_entry_that_changes_is_not_read() {
        let entry = entry(0x3000);
        entry.acquire(PathKey(1), 10);
        entry.change(|| assert_eq!(entry.held_until(20), None));
        assert!(entry.held_until(20).is_some());
    }

    #[test]
    fn the_entry_that_was_not_used_for_longest_goes_to_another_lock() {
        // All locks that the table of another size would tell apart.
        let hash = |lock: u64| lock.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48;
        let alike = |lock: &u64| hash(*lock) as usize % MAX_LOCKS == 200;
        let locks: Vec<u64> = (1 << 20..).filter(alike).take(PROBES + 1).collect();
        for (lock, at) in locks.iter().zip(1..) {
            if find(LockId(*lock)).is_none() {
                entry(*lock).acquire(PathKey(1), at);
            }
        }
        assert!(find(LockId(locks[0])).is_none());
        assert!(locks[1..].iter().all(|lock| find(LockId(*lock)).is_some()));
    }
}
