//! What processes and threads know of themselves beside their records.

use plimsoll_wire::record::PartnerMessages;
use serde::{Deserialize, Serialize};

use crate::clock::Rate;

/// What a thread knew at its end, or knows at the end of the run, beside its records.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct LastWords {
    /// Calls that no record tells of: slot, their number, their time in stamps, their bytes.
    pub(crate) tallies: Vec<(u32, u64, u64, u64)>,
    /// Slots, and messages of partners that no record tells of. Spools of earlier builds do not tell them.
    #[serde(default)]
    pub(crate) partners: Vec<(u32, PartnerWords)>,
    /// Slot of the wrapped call that is open, and the stamp of its entry.
    pub(crate) open: Option<(u32, u64)>,
    /// Its counters.
    pub(crate) counters: ThreadCounters,
}

/// [`PartnerMessages`], as a spool has them: partner, messages sent, their bytes, messages received, stamps.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct PartnerWords(u32, u64, u64, u64, u64);

impl From<PartnerMessages> for PartnerWords {
    fn from(it: PartnerMessages) -> Self {
        Self(it.partner, it.sent, it.bytes, it.received, it.waited)
    }
}

impl From<PartnerWords> for PartnerMessages {
    fn from(PartnerWords(partner, sent, bytes, received, waited): PartnerWords) -> Self {
        Self { partner, sent, bytes, received, waited }
    }
}

/// Counters of a thread, as in its area of the segment.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct ThreadCounters {
    pub(crate) samples: u64,
    pub(crate) lost: u64,
    pub(crate) truncated: u64,
    pub(crate) mpi_calls: u64,
    pub(crate) marks_planted: u64,
    pub(crate) marks_hit: u64,
    pub(crate) marks_stale: u64,
    pub(crate) marks_verified: u64,
    pub(crate) marks_mismatched: u64,
    pub(crate) handler_ticks: u64,
}

/// What a process knows of itself at the end of its run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Facts {
    /// Asked sampling period in nanoseconds.
    pub(crate) period_ns: u64,
    /// What drove the samples: a [`plimsoll_wire::segment::ClockKind`].
    pub(crate) clock: u32,
    /// Length of a stamp, exactly.
    pub(crate) rate: Rate,
    /// One moment on the process's counter, in ticks, and on its CLOCK_MONOTONIC, in nanoseconds. Spools
    /// of earlier builds do not tell it.
    #[serde(default)]
    pub(crate) anchor: Option<(u64, u64)>,
    /// Why return addresses were not marked; 0 where they were.
    pub(crate) marks_off: u32,
    /// Its calls are not measured: only samples tell of it.
    #[serde(default)]
    pub(crate) only_samples: bool,
    /// Threads that could not be sampled, or not to their end.
    pub(crate) unsampled_threads: u64,
    /// Those of them of which nothing was recorded. Spools of earlier builds do not tell it.
    #[serde(default)]
    pub(crate) unseen_threads: u64,
    /// What it did not follow: bits of [`plimsoll_wire::sync::unfollowed`]. Spools of earlier builds do not
    /// tell it.
    #[serde(default)]
    pub(crate) unfollowed: u32,
    /// The application took the sampling signal for itself.
    pub(crate) stepped_aside: bool,
    /// Code of ours failed in it. Spools of earlier builds do not tell it.
    #[serde(default)]
    pub(crate) failed: bool,
}
