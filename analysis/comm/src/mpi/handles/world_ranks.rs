//! World ranks of communicators' members, in bounded memory. Lists are never removed, so that
//! reading takes no lock.

use std::ffi::c_int;
use std::sync::OnceLock;

use plimsoll_sys::lock::Lock;

use crate::fingerprint::{BASIS, extended};

/// Maximum number of lists of ranks. Communicators with different members, or with a different
/// order of members, need separate lists.
const MAX_LISTS: usize = 256;
/// Maximum number of ranks in all lists together.
const MAX_RANKS: usize = 1 << 20;

/// World ranks of a communicator's members, in their order there.
struct List {
    ranks: Box<[c_int]>,
    name: u32,
}

/// Lists of ranks by number.
pub(super) struct WorldRanks {
    lists: [OnceLock<List>; MAX_LISTS],
    /// Number of lists, and number of ranks in them.
    used: Lock<(usize, usize)>,
}

impl WorldRanks {
    /// Number of communicators with unknown ranks.
    pub(super) const UNKNOWN: u32 = 0;
    /// Number of communicators with the ranks of the world.
    pub(super) const WORLD: u32 = 1;
    const FIRST: u32 = 2;

    pub(super) const fn new() -> Self {
        Self { lists: [const { OnceLock::new() }; MAX_LISTS], used: Lock::new((0, 0)) }
    }

    /// Returns the number of a list; equal lists share one number. Returns [`Self::UNKNOWN`] if
    /// there is no room.
    pub(super) fn number(&self, ranks: Vec<c_int>) -> u32 {
        let mut used = self.used.lock();
        let (lists, in_lists) = *used;
        let known = |list: &OnceLock<List>| list.get().is_some_and(|it| *it.ranks == ranks[..]);
        if let Some(at) = self.lists[..lists].iter().position(known) {
            return Self::FIRST + at as u32;
        }
        if lists == MAX_LISTS || in_lists + ranks.len() > MAX_RANKS {
            return Self::UNKNOWN;
        }
        *used = (lists + 1, in_lists + ranks.len());
        self.lists[lists].get_or_init(|| {
            let hash = ranks.iter().fold(BASIS, |hash, rank| extended(hash, &rank.to_le_bytes()));
            List { ranks: ranks.into_boxed_slice(), name: (hash ^ hash >> 32) as u32 }
        });
        Self::FIRST + lists as u32
    }

    /// Returns a hash of a list, the same in every process; `None` if unknown.
    pub(super) fn name(&self, number: u32) -> Option<u32> {
        match number {
            Self::UNKNOWN => None,
            Self::WORLD => Some(Self::WORLD),
            list => Some(self.lists.get((list - Self::FIRST) as usize)?.get()?.name),
        }
    }

    /// Returns the world rank of a rank in a list; `None` if unknown.
    #[inline(always)]
    pub(super) fn get(&self, number: u32, rank: u32) -> Option<u32> {
        match number {
            Self::WORLD => Some(rank),
            list => self.in_list(list, rank),
        }
    }

    #[inline(never)]
    fn in_list(&self, number: u32, rank: u32) -> Option<u32> {
        let at = number.checked_sub(Self::FIRST)?;
        let list = self.lists.get(at as usize)?.get()?;
        u32::try_from(*list.ranks.get(rank as usize)?).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_those_of_their_list() {
        let ranks = WorldRanks::new();
        let (row, column) = (ranks.number(vec![4, 5, 6]), ranks.number(vec![2, -32766, 6]));
        assert_eq!(ranks.number(vec![4, 5, 6]), row, "another communicator of the same ranks");
        assert_eq!([0, 2, 3].map(|rank| ranks.get(row, rank)), [Some(4), Some(6), None]);
        // A process outside of the world has no rank there.
        assert_eq!([0, 1, 2].map(|rank| ranks.get(column, rank)), [Some(2), None, Some(6)]);
        assert_eq!(ranks.get(WorldRanks::WORLD, 9), Some(9));
        assert_eq!(ranks.get(WorldRanks::UNKNOWN, 0), None);
        let other = WorldRanks::new();
        other.number(vec![7]);
        let same = other.number(vec![4, 5, 6]);
        assert!(other.name(same).is_some() && other.name(same) == ranks.name(row));
        assert_ne!(ranks.name(row), ranks.name(column));
    }

    #[test]
    fn lists_beyond_the_bounds_are_unknown() {
        let ranks = WorldRanks::new();
        assert_eq!(ranks.number(vec![0; MAX_RANKS + 1]), WorldRanks::UNKNOWN);
        let numbers: Vec<u32> = (0..300).map(|rank| ranks.number(vec![rank, rank + 1])).collect();
        assert!(numbers[..MAX_LISTS].iter().all(|number| *number >= WorldRanks::FIRST));
        assert!(numbers[MAX_LISTS..].iter().all(|number| *number == WorldRanks::UNKNOWN));
    }
}
