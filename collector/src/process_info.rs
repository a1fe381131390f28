//! Values that processes and threads provide outside their records.

use std::iter::once;

use plimsoll_wire::increments::MAX_EVENTS;
use plimsoll_wire::lengths;
use plimsoll_wire::lock_waits::LockWaitTotals;
use plimsoll_wire::record::{PartnerMessages, Record};
use plimsoll_wire::teams::{
    MAX_SHARES, RegionCounters, RegionEntry, RegionTotals, ShareTotals, TaskTotals,
};
use plimsoll_wire::truncation::Truncation;
use serde::{Deserialize, Serialize};

use crate::clock_rate::Rate;
use crate::profile::CountedEvent;

/// Values of a thread outside its records, at its end or at the end of the run. In a spool, empty
/// values and zeros are left out, and so are values that earlier builds did not have.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct FinalThreadState {
    /// Calls that are in no record: slot, number of calls, time in stamps, bytes.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) tallies: Vec<(u32, u64, u64, u64)>,
    /// Messages per slot and partner that are in no record.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) partners: Vec<(u32, PartnerCounts)>,
    /// Parallel regions that are in no record.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) regions: Vec<RegionCounts>,
    /// Explicit tasks that are in no record, as [`TaskTotals::numbers`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) tasks: Vec<[u64; TaskTotals::NUMBERS]>,
    /// Durations of tasks and regions that are in no record, as [`lengths::numbers`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) lengths: Vec<[u64; lengths::NUMBERS]>,
    /// Waits for locks that are in no record, as [`LockWaitTotals::numbers`].
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(crate) lock_waits: Vec<[u64; LockWaitTotals::NUMBERS]>,
    /// Slot of the open wrapped call and the stamp of its entry; `None` if no call is open.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) open: Option<(u32, u64)>,
    /// Set if the thread had no temporal context tree, because too many others had one.
    #[serde(skip_serializing_if = "is_false")]
    pub(crate) is_unfollowed: bool,
    /// Counters of the thread.
    pub(crate) counters: ThreadCounters,
}

impl FinalThreadState {
    /// Returns the records that the thread would have written next.
    pub(crate) fn records(&self) -> impl Iterator<Item = Record<'static>> + '_ {
        let tallies = self.tallies.iter().map(|it| {
            let (slot, count, sum, bytes) = *it;
            Record::Tally { slot, count, sum, bytes }
        });
        let partners = self.partners.iter();
        let partners = partners.map(|&(slot, it)| Record::Partner { slot, messages: it.into() });
        let tasks = self.tasks.iter().filter_map(|it| TaskTotals::of_numbers(*it));
        let tasks = tasks.map(|totals| Record::Task { totals });
        let lock_waits = self.lock_waits.iter().filter_map(|it| LockWaitTotals::of_numbers(*it));
        let lock_waits = lock_waits.map(|(slot, totals)| Record::LockWait { slot, totals });
        let regions = self.regions.iter().flat_map(RegionCounts::records);
        let lengths = self.lengths.iter().filter_map(|it| lengths::of_numbers(*it));
        let lengths = lengths.map(|(of, length)| Record::Length { of, length });
        tallies.chain(partners).chain(tasks).chain(lock_waits).chain(regions).chain(lengths)
    }
}

/// [`PartnerMessages`] in the format of the spool: partner, messages sent, their bytes, messages
/// received, wait time in stamps.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
pub(crate) struct PartnerCounts(u32, u64, u64, u64, u64);

impl From<PartnerMessages> for PartnerCounts {
    fn from(it: PartnerMessages) -> Self {
        Self(it.partner, it.sent, it.bytes, it.received, it.waited)
    }
}

impl From<PartnerCounts> for PartnerMessages {
    fn from(PartnerCounts(partner, sent, bytes, received, waited): PartnerCounts) -> Self {
        Self { partner, sent, bytes, received, waited }
    }
}

/// Slot and totals of a region, and thread number and totals of its shares, in the format of the
/// spool: as [`RegionTotals::numbers`] and [`ShareTotals::numbers`].
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub(crate) struct RegionCounts([u64; RegionTotals::NUMBERS], Vec<[u64; ShareTotals::NUMBERS]>);

impl RegionCounts {
    /// Reads an entry of a thread's table of regions; `None` if it is unused.
    pub(crate) fn read(counters: &RegionCounters) -> Option<Self> {
        let RegionEntry { slot, totals } = counters.read()?;
        let shares = (0..MAX_SHARES)
            .filter_map(|number| Some(counters.share(number)?.numbers(slot, number as u32)));
        Some(Self(totals.numbers(slot), shares.collect()))
    }

    /// Returns the records of the region and of its shares.
    fn records(&self) -> impl Iterator<Item = Record<'static>> + '_ {
        let (slot, totals) = RegionTotals::of_numbers(self.0).unwrap_or_default();
        let share = move |numbers: &[u64; ShareTotals::NUMBERS]| {
            let (_, number, totals) = ShareTotals::of_numbers(*numbers)?;
            Some(Record::Share { slot, number, totals })
        };
        once(Record::Region { slot, totals }).chain(self.1.iter().filter_map(share))
    }
}

/// Counters of a thread, as in its area of the segment.
#[derive(Clone, Copy, Debug, Default, Serialize, Deserialize)]
#[serde(default)]
pub(crate) struct ThreadCounters {
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) samples: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) lost: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) truncated: u64,
    /// `truncated` by [`plimsoll_wire::truncation::Truncation`].
    #[serde(skip_serializing_if = "are_zeros")]
    pub(crate) truncated_by: [u64; Truncation::COUNT],
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) mpi_calls: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) marks_planted: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) marks_hit: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) marks_stale: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) marks_verified: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) marks_mismatched: u64,
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) handler_ticks: u64,
    /// Instances of parallel regions that could not be measured.
    #[serde(skip_serializing_if = "is_zero")]
    pub(crate) unmeasured_regions: u64,
}

fn is_false(flag: &bool) -> bool {
    !flag
}

fn is_zero(count: &u64) -> bool {
    *count == 0
}

fn are_zeros(counts: &[u64]) -> bool {
    counts.iter().all(is_zero)
}

/// Values that a process provides at the end of its run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ProcessInfo {
    /// Requested sampling period in nanoseconds.
    pub(crate) period_ns: u64,
    /// Source of the sampling signals: a [`plimsoll_wire::segment::ClockKind`].
    pub(crate) clock: u32,
    /// Exact duration of a stamp.
    pub(crate) rate: Rate,
    /// One moment on the process's counter, in ticks, and on its CLOCK_MONOTONIC, in nanoseconds.
    /// `None` in spools of earlier builds.
    #[serde(default)]
    pub(crate) anchor: Option<(u64, u64)>,
    /// Reason why return addresses were not marked; 0 if they were marked.
    pub(crate) marks_off: u32,
    /// Set if wrapped calls are not measured: samples are the only data.
    #[serde(default)]
    pub(crate) only_samples: bool,
    /// Number of threads that were not sampled, or not to their end.
    pub(crate) unsampled_threads: u64,
    /// Number of unsampled threads without any record. 0 in spools of earlier builds.
    #[serde(default)]
    pub(crate) unseen_threads: u64,
    /// Features not followed: bits of [`plimsoll_wire::sync_id::unfollowed`]. 0 in spools of
    /// earlier builds.
    #[serde(default)]
    pub(crate) unfollowed: u32,
    /// Set if the application took over the sampling signal.
    pub(crate) stepped_aside: bool,
    /// Set if code of this library failed in the process. `false` in spools of earlier builds.
    #[serde(default)]
    pub(crate) failed: bool,
    /// perf events that the process was asked to count, with the error number of a refusal, 0 for
    /// none. Empty in spools of earlier builds.
    #[serde(default)]
    pub(crate) events: Vec<(String, u32)>,
    /// Number of threads with events that were not counted, or only in a part of the thread's life.
    #[serde(default)]
    pub(crate) uncounted_threads: u64,
}

impl ProcessInfo {
    /// Returns the events as a profile has them.
    pub(crate) fn counted_events(&self) -> Vec<CountedEvent> {
        let event = |(name, error): &(String, u32)| CountedEvent {
            name: name.clone(),
            refused: Some(*error).filter(|error| *error != 0),
        };
        self.events.iter().take(MAX_EVENTS).map(event).collect()
    }
}
