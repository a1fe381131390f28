//! Finds the first death among the ranks of a digest; the run of all ranks ends at that time.
//!
//! After a rank has died, the other ranks wait for a rank that never comes; this waiting is no loss
//! of the program. Each rank's run begins when the rank leaves one barrier of all ranks, so times
//! since that begin are comparable even if clocks are not. Ranks of one spool are on one node and
//! read the same counter.
//!
//! The time of a rank's death is known if its node's collector observed the death. If the collector
//! itself was killed, its spool ends at most [`MAX_LAG_NS`] before the kill.

use serde::{Deserialize, Serialize};

use crate::input::{FirstDeath, MIN_OUTLIVED_NS};

/// Maximum time between the last record of a spool and the death of its collector, in nanoseconds.
const MAX_LAG_NS: u64 = 1_000_000_000;

/// Time of a rank's last record in its spool.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct LastMoment {
    /// Time since the begin of the rank's run, in nanoseconds.
    pub at_ns: u64,
    /// The rank.
    pub rank: u32,
    /// Number of the spool in the digest.
    pub spool: usize,
    /// Time of the death on the counter of the rank's node.
    pub stamp: u64,
}

/// End of a rank according to its spool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Ended with the run, by decision of its collector.
    Run,
    /// Died before the other ranks of its node.
    Death,
    /// Unknown: the collector died.
    Unknown,
}

/// Lifetimes of the ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lives {
    /// First of the ranks that died.
    died: Option<LastMoment>,
    /// Among ranks without a known end, the rank with the earliest end of its spool.
    vanished: Option<LastMoment>,
    longest_ns: u64,
}

impl Lives {
    /// Adds one rank.
    pub fn add(&mut self, last: LastMoment, end: End) {
        self.combine(Self {
            died: (end == End::Death).then_some(last),
            vanished: (end == End::Unknown).then_some(last),
            longest_ns: last.at_ns,
        });
    }

    /// Merges the lifetimes of other ranks.
    pub fn combine(&mut self, other: Self) {
        self.died = self.died.into_iter().chain(other.died).min();
        self.vanished = self.vanished.into_iter().chain(other.vanished).min();
        self.longest_ns = self.longest_ns.max(other.longest_ns);
    }

    /// Returns the first death, if one is known.
    pub fn first(&self) -> Option<LastMoment> {
        match (self.died, self.vanished) {
            (Some(died), Some(vanished)) if died.at_ns > vanished.at_ns + MAX_LAG_NS => {
                Some(vanished)
            }
            (Some(died), _) => Some(died),
            (None, vanished) => vanished,
        }
    }

    /// Returns the first death for the summary; `None` if no rank lived notably longer
    /// (`MIN_OUTLIVED_NS`).
    pub fn first_death(&self) -> Option<FirstDeath> {
        let first = self.first()?;
        let lag_ns = if self.died == Some(first) { 0 } else { MAX_LAG_NS };
        let outlived_ns = self.longest_ns.saturating_sub(first.at_ns);
        (outlived_ns > lag_ns + MIN_OUTLIVED_NS)
            .then_some(FirstDeath { rank: first.rank, at_ns: first.at_ns })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND_NS: u64 = 1_000_000_000;

    fn lives(each: &[(u32, u64, End)]) -> Lives {
        let mut lives = Lives::default();
        for (rank, tenths, end) in each {
            let at_ns = tenths * SECOND_NS / 10;
            let last = LastMoment { at_ns, rank: *rank, spool: *rank as usize / 4, stamp: at_ns };
            lives.add(last, *end);
        }
        lives
    }

    fn first_death(each: &[(u32, u64, End)]) -> Option<(u32, u64)> {
        let first_death = lives(each).first_death();
        first_death.map(|death| (death.rank, death.at_ns * 10 / SECOND_NS))
    }

    #[test]
    fn the_first_death_ends_the_run() {
        use End::{Death, Run, Unknown};
        assert_eq!(first_death(&[(0, 200, Run), (3, 124, Death), (4, 150, Death)]), Some((3, 124)));
        assert_eq!(first_death(&[(0, 200, Run), (4, 200, Run)]), None);
        // The collector of ranks 4 and 5 died.
        assert_eq!(
            first_death(&[(0, 200, Run), (4, 124, Unknown), (5, 125, Unknown)]),
            Some((4, 124))
        );
    }

    #[test]
    fn what_a_spool_lags_behind_is_no_death() {
        use End::{Death, Unknown};
        // All ranks were killed at once.
        let all = [(0, 195, Unknown), (4, 203, Unknown)];
        assert_eq!(first_death(&all), None);
        assert_eq!(lives(&all).first().map(|last| last.rank), Some(0));
        // Rank 5 was killed first; the spool of ranks 0 to 3 ends a moment earlier.
        assert_eq!(
            first_death(&[(0, 195, Unknown), (5, 200, Death), (6, 230, Death)]),
            Some((5, 200))
        );
        assert_eq!(first_death(&[(0, 150, Unknown), (5, 200, Death)]), Some((0, 150)));
    }

    #[test]
    fn others_that_hardly_live_longer_are_not_worth_a_word() {
        assert_eq!(first_death(&[(0, 200, End::Death), (1, 201, End::Death)]), None);
        assert_eq!(first_death(&[(0, 200, End::Death), (1, 202, End::Death)]), Some((0, 200)));
    }
}
