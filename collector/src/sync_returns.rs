//! Return times of the global synchronisations of a run in this process: the relation of its clock
//! to those of other ranks (PPoPP20, 4.1).
//!
//! Return times are kept apart from the instances ([`crate::instance_reservoir`]): one takes 16
//! bytes, an instance kilobytes, and a synchronisation without a kept instance still relates
//! clocks.

use crate::profile::instance_level;

/// Most releases that are kept.
const CAPACITY: usize = 1024;

/// The kept releases: when they are too many, every second one (by a hash of its index, which is
/// the same on every rank) is dropped.
#[derive(Default)]
pub(crate) struct SyncReturns {
    level: u32,
    /// Index of the synchronisation, and the stamp of its return.
    kept: Vec<(u64, u64)>,
}

impl SyncReturns {
    /// Adds the stamp at which the synchronisation `index` returned.
    pub(crate) fn insert(&mut self, index: u64, stamp: u64) {
        if instance_level(index) < self.level {
            return;
        }
        self.kept.push((index, stamp));
        // Records that repeat one index could hold it at one level for ever.
        while self.kept.len() > CAPACITY && self.level < u64::BITS {
            self.level += 1;
            let level = self.level;
            self.kept.retain(|(index, _)| instance_level(*index) >= level);
        }
    }

    /// Indices and stamps, in the order in which they were offered.
    pub(crate) fn kept(&self) -> &[(u64, u64)] {
        &self.kept
    }

    /// Returns the memory in use, roughly.
    pub(crate) fn bytes(&self) -> u64 {
        (self.kept.len() * size_of::<(u64, u64)>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_keep_the_releases_of_the_same_synchronisations() {
        let mut sync_returns = SyncReturns::default();
        (0..100_000).for_each(|index| sync_returns.insert(index, 10 * index));
        let kept = sync_returns.kept();
        assert!((CAPACITY / 3..=CAPACITY).contains(&kept.len()), "{}", kept.len());
        let level = sync_returns.level;
        let wanted = (0..100_000).filter(|index| instance_level(*index) >= level);
        assert!(kept.iter().copied().eq(wanted.map(|index| (index, 10 * index))));
        assert_eq!(sync_returns.bytes(), 16 * kept.len() as u64);
    }

    #[test]
    fn an_index_that_is_repeated_does_not_fill_memory() {
        let mut sync_returns = SyncReturns::default();
        (0..5000).for_each(|stamp| sync_returns.insert(7, stamp));
        assert!(sync_returns.kept().len() <= CAPACITY);
    }
}
