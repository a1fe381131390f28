//! Waits for locks, by the call path that has held the lock in the meantime.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::record::STAMP_SHIFT;
use crate::teams::PathKey;

/// Number of entries of a thread's table of waits for locks.
pub const MAX_LOCK_WAITS: usize = 64;

/// Waits of a thread in calls through a slot, while one call path held the lock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LockWaitTotals {
    /// Name of the call path that acquired the lock; [`PathKey::NONE`] if unknown.
    pub holder: PathKey,
    /// Number of waits, each counted for every holder during the wait.
    pub count: u64,
    /// Sum of the wait times while this holder had the lock: in stamps in records, and in ticks in
    /// the agent.
    pub waited: u64,
}

impl LockWaitTotals {
    /// Number of integers that the totals and their slot are written as.
    pub const NUMBERS: usize = 4;

    /// Adds waits for the same holder, saturating.
    pub fn add(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.waited = self.waited.saturating_add(other.waited);
    }

    /// Returns the slot and the totals as integers. Inverse of [`Self::of_numbers`].
    pub fn numbers(&self, slot: u32) -> [u64; Self::NUMBERS] {
        [slot.into(), self.holder.0, self.count, self.waited]
    }

    /// Returns the slot and the totals; `None` if an integer is out of range.
    pub fn of_numbers(numbers: [u64; Self::NUMBERS]) -> Option<(u32, Self)> {
        let [slot, holder, count, waited] = numbers;
        Some((u32::try_from(slot).ok()?, Self { holder: PathKey(holder), count, waited }))
    }
}

/// Entry of a thread's table of waits for locks, in the segment: totals that are in no record yet.
#[repr(C)]
pub struct LockWaitCounters {
    /// Slot of the waiting call plus one; 0: the entry is unused.
    slot: AtomicU64,
    holder: AtomicU64,
    count: AtomicU64,
    /// In ticks.
    waited: AtomicU64,
}

impl LockWaitCounters {
    /// Adds a wait of `ticks` if the entry is unused or has this slot and holder. Returns whether
    /// it was added. Only the thread of the area writes.
    #[inline]
    pub fn add(&self, slot: u16, holder: PathKey, ticks: u64) -> bool {
        let key = u64::from(slot) + 1;
        match self.slot.load(Ordering::Relaxed) {
            0 => {
                self.holder.store(holder.0, Ordering::Relaxed);
                self.count.store(1, Ordering::Relaxed);
                self.waited.store(ticks, Ordering::Relaxed);
                self.slot.store(key, Ordering::Release);
                true
            }
            used if used == key && self.holder.load(Ordering::Relaxed) == holder.0 => {
                for (place, value) in [(&self.waited, ticks), (&self.count, 1)] {
                    let sum = place.load(Ordering::Relaxed).wrapping_add(value);
                    place.store(sum, Ordering::Relaxed);
                }
                true
            }
            _ => false,
        }
    }

    /// Returns the slot, and the totals in stamps; `None` if the entry is unused.
    pub fn read(&self) -> Option<(u32, LockWaitTotals)> {
        let slot = self.slot.load(Ordering::Acquire).checked_sub(1)?;
        let value = |place: &AtomicU64| place.load(Ordering::Relaxed);
        let waited = value(&self.waited) >> STAMP_SHIFT;
        LockWaitTotals::of_numbers([slot, value(&self.holder), value(&self.count), waited])
    }

    /// Frees the entry.
    pub fn clear(&self) {
        // Entries that were never used take no memory.
        if self.slot.load(Ordering::Relaxed) != 0 {
            self.slot.store(0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_adds_up_the_waits_of_one_slot_for_one_holder() {
        // SAFETY: atomics are valid as zeros.
        let entry = unsafe { Box::<LockWaitCounters>::new_zeroed().assume_init() };
        assert_eq!(entry.read(), None);
        let ticks = |stamps: u64| stamps << STAMP_SHIFT;
        assert!(entry.add(3, PathKey(9), ticks(5)));
        assert!(entry.add(3, PathKey(9), ticks(6)));
        assert!(!entry.add(4, PathKey(9), ticks(1)));
        assert!(!entry.add(3, PathKey(8), ticks(1)));
        let totals = LockWaitTotals { holder: PathKey(9), count: 2, waited: 11 };
        assert_eq!(entry.read(), Some((3, totals)));
        entry.clear();
        assert_eq!(entry.read(), None);
        assert!(entry.add(4, PathKey::NONE, ticks(2)));
        let totals = LockWaitTotals { holder: PathKey::NONE, count: 1, waited: 2 };
        assert_eq!(entry.read(), Some((4, totals)));
    }
}
