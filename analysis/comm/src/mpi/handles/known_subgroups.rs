//! Subgroups of the world that have communicators.

use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll_sys::lock::Lock;
use plimsoll_wire::sync_id::{MAX_SUBGROUPS, Subgroup, SyncScope};

/// Members of a communicator: no other rank to compare with, all ranks, or, from the third number
/// on, one of the subgroups in [`Subgroups`].
pub(super) const NOBODY: u32 = 0;
pub(super) const ALL: u32 = 1;
pub(super) const FIRST_SUBGROUP: u32 = 2;

/// A subgroup of the world that has communicators.
struct KnownSubgroup {
    subgroup: Subgroup,
    /// Number of synchronisations that have begun; each took the number before it as its index.
    begun: u64,
    /// Index of the most recent synchronisation that has ended, plus one.
    ended: u64,
}

/// Subgroups that have communicators, and the number of synchronisations of each.
pub(super) struct Subgroups {
    known: Lock<Vec<KnownSubgroup>>,
    /// Whether there were more than [`MAX_SUBGROUPS`] subgroups.
    pub(super) are_more: AtomicBool,
}

impl Subgroups {
    pub(super) const fn new() -> Self {
        Self { known: Lock::new(Vec::new()), are_more: AtomicBool::new(false) }
    }

    /// Returns the number of a subgroup; communicators with the same members share one. Returns
    /// [`NOBODY`] beyond [`MAX_SUBGROUPS`] subgroups.
    pub(super) fn number(&self, subgroup: Subgroup) -> u32 {
        let mut subgroups = self.known.lock();
        let number =
            subgroups.iter().position(|known| known.subgroup == subgroup).unwrap_or_else(|| {
                subgroups.push(KnownSubgroup { subgroup, begun: 0, ended: 0 });
                subgroups.len() - 1
            });
        if number >= MAX_SUBGROUPS {
            subgroups.pop();
            self.are_more.store(true, Ordering::Relaxed);
            return NOBODY;
        }
        FIRST_SUBGROUP + number as u32
    }

    /// Returns the index of a synchronisation that begins in a subgroup.
    pub(super) fn begin(&self, number: u32) -> Option<u64> {
        let mut subgroups = self.known.lock();
        let known = subgroups.get_mut(number as usize)?;
        known.begun += 1;
        Some(known.begun - 1)
    }

    /// Ends a synchronisation of a subgroup; returns `None` if one that began later has already
    /// ended.
    pub(super) fn end(&self, number: u32, index: u64) -> Option<SyncScope> {
        let mut subgroups = self.known.lock();
        let known = subgroups.get_mut(number as usize)?;
        if index < known.ended {
            return None;
        }
        known.ended = index + 1;
        Some(SyncScope::Subgroup(known.subgroup, index))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_counts_its_own_synchronisations() {
        let subgroups = Subgroups::new();
        let subgroup = |name: u32| Subgroup { name, ranks: 4 };
        let (row, column) = (subgroups.number(subgroup(7)), subgroups.number(subgroup(8)));
        assert_eq!(subgroups.number(subgroup(7)), row, "another communicator of the same ranks");
        let count = |number: u32| {
            let index = subgroups.begin(number - FIRST_SUBGROUP)?;
            subgroups.end(number - FIRST_SUBGROUP, index)
        };
        assert_eq!(count(row), Some(SyncScope::Subgroup(subgroup(7), 0)));
        assert_eq!(count(column), Some(SyncScope::Subgroup(subgroup(8), 0)));
        assert_eq!(count(row), Some(SyncScope::Subgroup(subgroup(7), 1)));
        assert!(!subgroups.are_more.load(Ordering::Relaxed));
        let numbers: Vec<u32> =
            (0..MAX_SUBGROUPS as u32 + 5).map(|name| subgroups.number(subgroup(name))).collect();
        assert_eq!(numbers[MAX_SUBGROUPS..], [NOBODY; 5], "what more there are is not followed");
        assert!(subgroups.are_more.load(Ordering::Relaxed));
        assert_eq!(count(row), Some(SyncScope::Subgroup(subgroup(7), 2)));
        let started = subgroups.begin(row - FIRST_SUBGROUP).unwrap();
        assert_eq!(count(row), Some(SyncScope::Subgroup(subgroup(7), 4)));
        assert_eq!(
            subgroups.end(row - FIRST_SUBGROUP, started),
            None,
            "a later one has ended before"
        );
    }
}
