//! The record format: what one thread writes into its ring, and how it is read back.
//!
//! A ring is a stream of records, each a tag byte (kind in the low, flags in the high half)
//! followed by LEB128 integers. Times are stamps: the time stamp counter shifted right by
//! [`STAMP_SHIFT`]. A *timed* record closes the interval since the thread's previous timed record,
//! so that the intervals partition the thread's life and no second is counted twice.
//!
//! Most samples follow the previous one after one period, with a few new frames. A *tick* encodes
//! such a sample in its tag, one byte of delay, and the new frames.
//!
//! Stacks are lists of address ids, outermost first, and are encoded as differences: the number of
//! innermost frames of the previous stack that are gone, the number of new frames (both numbers
//! share one byte where they are small), then the new frames. A frame that was not dropped is the
//! same call still running, not merely the same function (PPoPP20, 3: the LCA).
//! Ids are interned per process ([`crate::segment::Address`]); an address below
//! `plimsoll_calls::FIRST_CODE_ADDRESS` is a wrapped call.
//!
//! A stack of a thread that executes its share of a parallel region lies inside the call path that
//! made the region, in another thread, and any other stack of a thread inside the call path that
//! created the thread: [`Record::Graft`] names that path.
//!
//! A stream begins with an empty stack, no slots and no such path, and [`Record::Lost`] resets it
//! to that state. The first timed record after the begin or a reset is a resynchronisation: its
//! stamp is absolute.

mod decoder;
mod encoder;
#[cfg(test)]
mod tests;

pub use decoder::{DecodeError, Decoder};
pub use encoder::Encoder;

use crate::increments::{Counts, MAX_EVENTS};
use crate::lengths::{LengthCount, LengthOf};
use crate::lock_waits::LockWaitTotals;
use crate::sync_id::SyncId;
use crate::teams::{PathKey, RegionTotals, ShareTotals, TaskTotals};

/// Version of the format and of the segment that carries it.
pub const VERSION: u32 = 10;

/// Right shift from time stamp counter ticks to stamps: a stamp is about 20 ns.
pub const STAMP_SHIFT: u32 = 6;

/// Maximum number of recorded frames per stack. Outer frames beyond it are left out, and the stack
/// counts as truncated.
pub const MAX_DEPTH: usize = 512;

/// Largest encoded record, in bytes.
pub const MAX_RECORD_BYTES: usize = 16 + 10 * 8 + 5 * MAX_DEPTH;
const _: () = assert!(MAX_RECORD_BYTES >= 2 + 10 * (MAX_EVENTS + 1));

const SAMPLE: u8 = 1;
const SLOT: u8 = 2;
const TALLY: u8 = 3;
const EXIT: u8 = 4;
const PAUSE: u8 = 5;
const RESUME: u8 = 6;
const END: u8 = 7;
const LOST: u8 = 8;
/// First tag value of ticks. The rest of the tag holds the numbers of dropped and added frames.
const TICK: u8 = 9;

/// Resolution of a tick's delay: a sampling period has 2^7 to 2^8 units. Finer differences are
/// timer noise, and the rounding errors of successive stamps do not add up.
const DELAY_BITS: u32 = 7;

/// From this number of dropped or added frames on, the remainder follows a tick's tag.
const TICK_DROPPED: u32 = 7;
const TICK_ADDED: u32 = 13;
const _: () = assert!((TICK_DROPPED + 1) * (TICK_ADDED + 1) <= (16 - TICK as u32) * 16);

/// Two small numbers of frames share a byte; from this value on, the remainder of a number follows.
const COUNT_ESCAPE: u32 = 15;

/// Right shift of encoded CPU times and delays, in nanoseconds: a reading of the clock takes longer
/// than one unit (64 ns).
const OFF_CPU_SHIFT: u32 = 6;

/// Flags shared by timed records.
const RESYNC: u8 = 0x80;
const OFF_CPU: u8 = 0x40;
/// Flags of samples.
const IN_REGION: u8 = 0x20;
const TRUNCATED: u8 = 0x10;
/// Flags of region exits and tallies.
const SYNC: u8 = 0x20;
const BYTES: u8 = 0x10;
/// Flag of a slot's tag: messages of a partner, not a call path.
const PARTNER: u8 = 0x10;
/// Flag of a slot's tag: increments of perf events, not a call path.
const COUNTS: u8 = 0x20;
/// Flag of a tag with [`COUNTS`]: the increments are those in the open wrapped call.
const IN_CALL: u8 = 0x40;
/// Flag of a slot's tag: an exemplary message. Flag of a tag with it: the message was sent.
const MESSAGE: u8 = 0x80;
const SENT: u8 = 0x40;
/// Both flags together: OpenMP. The two highest bits tell what follows.
const OPENMP: u8 = PARTNER | COUNTS;
const REGION_TOTALS: u8 = OPENMP;
const SHARE_TOTALS: u8 = OPENMP | 0x40;
const GRAFT: u8 = OPENMP | 0x80;
const TASK_TOTALS: u8 = OPENMP | 0xc0;
/// Flags of a slot's tag: durations of tasks or regions.
const LENGTHS: u8 = PARTNER | MESSAGE;
/// Flags of a slot's tag: waits for a lock.
const LOCK_WAITS: u8 = PARTNER | 0x40;

/// CPU time and run-queue delay since the thread's previous reading of its CPU clock. In the rest
/// of the interval the thread was blocked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OffCpu {
    /// Time on a core, user and kernel, in nanoseconds.
    pub cpu_ns: u64,
    /// Time ready to run and waiting for a core, in nanoseconds. In a virtual machine, includes the
    /// wait of the virtual core for a real one.
    pub run_delay_ns: u64,
}

/// Rank of an unknown partner: the application ignored the status that names the sender.
pub const UNKNOWN_PARTNER: u32 = u32::MAX;
/// Rank that stands for all partners beyond the capacity for distinct partners.
pub const OTHER_PARTNERS: u32 = u32::MAX - 1;

/// Messages between a rank and one of its partners.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartnerMessages {
    /// Rank of the partner among all ranks, [`UNKNOWN_PARTNER`] or [`OTHER_PARTNERS`].
    pub partner: u32,
    /// Messages sent to the partner.
    pub sent: u64,
    /// Bytes of the messages sent.
    pub bytes: u64,
    /// Messages received from the partner.
    pub received: u64,
    /// Time in calls that completed these messages, in stamps.
    pub waited: u64,
}

impl PartnerMessages {
    /// Adds messages of the same partner, saturating.
    pub fn add(&mut self, other: &Self) {
        self.sent = self.sent.saturating_add(other.sent);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.received = self.received.saturating_add(other.received);
        self.waited = self.waited.saturating_add(other.waited);
    }
}

/// An exemplary message at one of its two ends. Both ends number the messages of a channel alike,
/// and choose the same ones.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Message {
    /// Whether the thread has sent the message; otherwise it has received it.
    pub is_sent: bool,
    /// Rank of the partner among all ranks.
    pub partner: u32,
    /// Name of the communicator's members, the same on all of them.
    pub group: u32,
    /// Tag; messages with different tags may share a channel.
    pub tag: i32,
    /// Number of the message in its channel.
    pub number: u32,
    /// Stamp of the begin of the call that sent or posted the message, at most `left`.
    pub posted: u64,
    /// Stamp of the begin of the call that completed the message, at most `left`.
    pub entered: u64,
    /// Stamp of the return of that call.
    pub left: u64,
    /// Time that the thread had spent in calls of point-to-point communication before that call,
    /// in stamps.
    pub waited: u64,
}

impl Message {
    /// Number of integers that a message and its slot are written as.
    pub const NUMBERS: usize = 9;

    /// Returns the message and its slot as integers that are mostly small. Inverse of
    /// [`Self::of_numbers`].
    pub fn numbers(&self, slot: u32) -> [u64; Self::NUMBERS] {
        [
            slot.into(),
            self.partner.into(),
            self.group.into(),
            (self.tag as u32).rotate_left(1).into(),
            self.number.into(),
            self.left,
            self.left.wrapping_sub(self.entered),
            self.left.wrapping_sub(self.posted),
            self.waited,
        ]
    }

    /// Returns the slot and the message; `None` if an integer is out of range.
    pub fn of_numbers(numbers: [u64; Self::NUMBERS], is_sent: bool) -> Option<(u32, Self)> {
        let [slot, partner, group, tag, number, left, since_entry, since_post, waited] = numbers;
        let small = |value: u64| u32::try_from(value).ok();
        let message = Self {
            is_sent,
            partner: small(partner)?,
            group: small(group)?,
            tag: small(tag)?.rotate_right(1) as i32,
            number: small(number)?,
            posted: left.wrapping_sub(since_post),
            entered: left.wrapping_sub(since_entry),
            left,
            waited,
        };
        Some((small(slot)?, message))
    }
}

/// A stack as a difference to the thread's current one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delta<'a> {
    /// Number of innermost frames of the current stack that are gone.
    pub dropped: u32,
    /// Address ids of the new frames, outermost first.
    pub added: &'a [u32],
}

/// Stamp of a timed record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamp {
    /// Stamps since the previous timed record.
    Delta(u64),
    /// Absolute stamp: in the first timed record of a thread, and in the first after a loss.
    Resync(u64),
}

/// One record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Record<'a> {
    /// The thread was seen in this stack, which becomes the current one.
    Sample {
        /// When.
        stamp: Stamp,
        /// The stack.
        stack: Delta<'a>,
        /// Stamps since the open wrapped call was entered, if one is open. Its frame is in the
        /// stack.
        entered: Option<u64>,
        /// CPU time and run-queue delay of the interval, if the interval is long. Inside a wrapped
        /// call: of the part of the interval before the call.
        off_cpu: Option<OffCpu>,
        /// Whether outer frames are missing.
        truncated: bool,
    },
    /// The thread was seen in this stack, outside all wrapped calls, about one sampling period
    /// after its previous timed record.
    Tick {
        /// Deviation from one period, positive if later, in stamps shifted right by
        /// [`delay_shift`].
        delay: i8,
        /// The stack.
        stack: Delta<'a>,
    },
    /// Slot `slot` of the region table now stands for this stack, with the call as the last frame.
    /// The current stack does not change.
    Slot {
        /// Index into the thread's region table.
        slot: u32,
        /// The call path, as a difference to the current stack.
        stack: Delta<'a>,
    },
    /// Calls through a slot since its last tally that were too short for records of their own.
    /// Their time lies in the interval that the next timed record closes.
    Tally {
        /// Index into the thread's region table.
        slot: u32,
        /// Number of calls.
        count: u64,
        /// Sum of their durations, in stamps.
        sum: u64,
        /// Bytes sent, received, read or written, where the arguments give them. Calls that poll
        /// move none. For these calls: the sum of short times from one poll to the next without
        /// another wrapped call between, in ticks of the time stamp counter.
        bytes: u64,
    },
    /// Messages between the thread's rank and a partner in calls through a slot, since the previous
    /// such record for the same slot and partner.
    Partner {
        /// Index into the thread's region table.
        slot: u32,
        /// Totals of the messages.
        messages: PartnerMessages,
    },
    /// Increments of the thread's perf events in the interval that the next timed record closes,
    /// since the previous such record.
    Counts {
        /// Whether they were counted in the wrapped call at the end of the interval, rather than
        /// before it.
        in_call: bool,
        /// The increments.
        counts: Counts,
    },
    /// An exemplary message that a call through a slot has completed.
    Message {
        /// Index into the thread's region table.
        slot: u32,
        /// The message.
        message: Message,
    },
    /// Parallel regions that the thread has made in calls through a slot, since the previous such
    /// record for the slot.
    Region {
        /// Index into the thread's region table.
        slot: u32,
        /// Totals of the regions.
        totals: RegionTotals,
    },
    /// Shares of the threads with one number in the teams of these regions.
    Share {
        /// Index into the thread's region table.
        slot: u32,
        /// Number of the threads in their teams, less than [`crate::teams::MAX_SHARES`].
        number: u32,
        /// Totals of the shares.
        totals: ShareTotals,
    },
    /// Explicit tasks that the thread has executed, since the previous such record for their
    /// function.
    Task {
        /// Totals of the tasks.
        totals: TaskTotals,
    },
    /// Durations of tasks or of instances of a parallel region, since the previous such record for
    /// the bucket.
    Length {
        /// Construct that the durations belong to.
        of: LengthOf,
        /// Bucket of the durations, and their number.
        length: LengthCount,
    },
    /// Waits for locks in calls through a slot while one call path held the lock, since the
    /// previous such record for the slot and the holder.
    LockWait {
        /// Index into the thread's region table.
        slot: u32,
        /// The holder, and totals of the waits.
        totals: LockWaitTotals,
    },
    /// From now on, the thread's stacks and the slots that are announced lie inside the call path
    /// with this name, in another thread. The current stack does not change.
    Graft {
        /// Name of the path; [`PathKey::NONE`] if the stack is the whole path.
        path: PathKey,
    },
    /// A wrapped call returned that lasted a period or more, was sampled, or synchronised ranks.
    /// The path of the call becomes the current stack.
    Exit {
        /// When it returned.
        stamp: Stamp,
        /// Index into the thread's region table.
        slot: u32,
        /// Number of outermost frames of the current stack that are the same calls as in the slot's
        /// path.
        common: u32,
        /// Duration from entry to return, in stamps.
        duration: u64,
        /// Bytes moved, where the arguments give them.
        bytes: u64,
        /// The synchronisation that the call performed; `None` if none is to be recorded.
        sync: Option<SyncId>,
        /// CPU time and run-queue delay of the part of the interval before the call, if that part
        /// is long.
        off_cpu: Option<OffCpu>,
    },
    /// The application paused the measurement (MPI_Pcontrol(0)).
    Pause {
        /// When.
        stamp: Stamp,
    },
    /// The application resumed the measurement: the interval that this record closes is not
    /// counted.
    Resume {
        /// When.
        stamp: Stamp,
    },
    /// The thread ended.
    End {
        /// When.
        stamp: Stamp,
    },
    /// Records did not fit into the ring and are lost: the current stack is empty again, and all
    /// slots are unknown until they are announced again.
    Lost {
        /// Number of lost records; may be 0 when the stream only begins anew.
        records: u64,
    },
}

/// Returns the right shift from stamps to units of a tick's delay, for a sampling period of
/// `period` stamps. A unit is about a hundredth of the period or a little less.
#[inline]
pub fn delay_shift(period: u64) -> u32 {
    period.checked_ilog2().unwrap_or(0).saturating_sub(DELAY_BITS)
}

/// Returns the stamp of a tick: the sum of the last timed record's stamp, `period`, and the delay.
/// Returns `None` on overflow.
pub fn tick_stamp(last: u64, period: u64, delay: i8) -> Option<u64> {
    last.checked_add(period)?.checked_add_signed(i64::from(delay) << delay_shift(period))
}

impl Record<'_> {
    /// Returns whether the record is timed, that is, closes an interval.
    pub fn is_timed(&self) -> bool {
        matches!(
            self,
            Self::Sample { .. }
                | Self::Tick { .. }
                | Self::Exit { .. }
                | Self::Pause { .. }
                | Self::Resume { .. }
                | Self::End { .. }
        )
    }
}
