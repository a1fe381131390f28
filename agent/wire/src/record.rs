//! The record format: what one thread writes into its ring, and how it is read back.
//!
//! A ring is a stream of records, each a tag byte (kind in the low, flags in the high half)
//! followed by LEB128 integers. Times are stamps: the time stamp counter shifted right by
//! [`STAMP_SHIFT`]. A *timed* record closes the interval since the thread's previous timed record,
//! so that the intervals partition the thread's life and no second is counted twice.
//!
//! Most samples come one period after the one before, with a few new frames: a *tick* says so in its
//! tag, one byte for how much later it came, and the frames.
//!
//! Stacks are lists of address ids, outermost first, and travel as differences: how many of the
//! innermost frames of the previous stack are gone, how many are new (both in one byte where they
//! are few), then the new ones. A frame that was not
//! dropped is the same call still running, not merely the same function (PPoPP20, 3: the LCA).
//! Ids are interned per process ([`crate::segment::Address`]); an address below
//! `plimsoll_calls::FIRST_CODE_ADDRESS` is a wrapped call.
//!
//! A stream begins with an empty stack and no slots, and is thrown back to that by [`Record::Lost`].
//! The first timed record after either is a resynchronisation: its stamp is absolute.

mod decoder;
mod encoder;
#[cfg(test)]
mod tests;

pub use decoder::{DecodeError, Decoder};
pub use encoder::Encoder;

use crate::sync::Sync;

/// Version of the format and of the segment that carries it.
pub const VERSION: u32 = 5;

/// Stamps are time stamp counter ticks shifted right by this: about 20 ns.
pub const STAMP_SHIFT: u32 = 6;

/// Deepest stack that is recorded; outer frames beyond it are cut and counted as truncated.
pub const MAX_DEPTH: usize = 512;

/// Largest encoded record, in bytes.
pub const MAX_RECORD_BYTES: usize = 16 + 10 * 8 + 5 * MAX_DEPTH;

const SAMPLE: u8 = 1;
const SLOT: u8 = 2;
const TALLY: u8 = 3;
const EXIT: u8 = 4;
const PAUSE: u8 = 5;
const RESUME: u8 = 6;
const END: u8 = 7;
const LOST: u8 = 8;
/// From here on: ticks, the numbers of whose frames share the rest of the tag.
const TICK: u8 = 9;

/// Units of a tick's delay in a sampling period, or up to twice as many: what is finer is noise of the
/// timer, which no later stamp adds to.
const DELAY_BITS: u32 = 7;

/// From this number of dropped and of added frames on, the rest follows a tick's tag.
const TICK_DROPPED: u32 = 7;
const TICK_ADDED: u32 = 13;
const _: () = assert!((TICK_DROPPED + 1) * (TICK_ADDED + 1) <= (16 - TICK as u32) * 16);

/// Two small numbers of frames share a byte; from this one on, the rest of it follows.
const COUNT_ESCAPE: u32 = 15;

/// Parts of an interval travel as nanoseconds shifted right by this: reading them takes longer.
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

/// Where the time since the thread's previous reading of its CPU clock went; the rest of the
/// interval the thread was blocked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OffCpu {
    /// On a core, user and kernel, in nanoseconds.
    pub cpu_ns: u64,
    /// Ready to run, waiting for a core (in a virtual machine, also its core for a real one), in
    /// nanoseconds.
    pub run_delay_ns: u64,
}

/// A partner that is not known: the status that names the sender was ignored.
pub const UNKNOWN_PARTNER: u32 = u32::MAX;
/// Partners that are not told apart: there were too many.
pub const OTHER_PARTNERS: u32 = u32::MAX - 1;

/// Messages between a rank and a partner of its.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartnerMessages {
    /// Rank of the partner among all ranks, [`UNKNOWN_PARTNER`] or [`OTHER_PARTNERS`].
    pub partner: u32,
    /// Messages sent to the partner.
    pub sent: u64,
    /// Bytes of these messages.
    pub bytes: u64,
    /// Messages received from the partner.
    pub received: u64,
    /// Time in calls that completed these messages, in stamps.
    pub waited: u64,
}

impl PartnerMessages {
    /// Adds messages of the same partner.
    pub fn add(&mut self, other: &Self) {
        self.sent = self.sent.saturating_add(other.sent);
        self.bytes = self.bytes.saturating_add(other.bytes);
        self.received = self.received.saturating_add(other.received);
        self.waited = self.waited.saturating_add(other.waited);
    }
}

/// A stack as a difference to the thread's current one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delta<'a> {
    /// Innermost frames of the current stack that are gone.
    pub dropped: u32,
    /// Address ids of the new frames, outermost first.
    pub added: &'a [u32],
}

/// Stamp of a timed record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stamp {
    /// Since the previous timed record.
    Delta(u64),
    /// Absolute: the first record of a thread, and the first after a loss.
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
        /// Stamps since the open wrapped call was entered, if one is open. Its frame is in the stack.
        entered: Option<u64>,
        /// Where the interval went, if it is long; inside a wrapped call: the part of it that lies
        /// before the call.
        off_cpu: Option<OffCpu>,
        /// Outer frames are missing.
        truncated: bool,
    },
    /// The thread was seen in this stack, outside all wrapped calls, a sampling period after its
    /// previous timed record and a little more.
    Tick {
        /// How much more (or less), in stamps shifted right by [`delay_shift`].
        delay: i8,
        /// The stack.
        stack: Delta<'a>,
    },
    /// Slot `slot` of the region table now stands for this stack (whose last frame is the call).
    /// The current stack does not change.
    Slot {
        /// Index into the thread's region table.
        slot: u32,
        /// The call path, as a difference to the current stack.
        stack: Delta<'a>,
    },
    /// Calls through a slot that were too short to be recorded alone, since its last tally. Their
    /// time lies in the interval that the next timed record closes.
    Tally {
        /// Index into the thread's region table.
        slot: u32,
        /// Number of calls.
        count: u64,
        /// Sum of their durations, in stamps.
        sum: u64,
        /// Bytes sent, received, read or written, where the arguments tell.
        bytes: u64,
    },
    /// Messages between the thread's rank and another one in calls through a slot, since the last such
    /// record of the two.
    Partner {
        /// Index into the thread's region table.
        slot: u32,
        /// What the calls add up to.
        messages: PartnerMessages,
    },
    /// A wrapped call returned: it lasted a period or more, was sampled, or synchronised ranks. Its
    /// path becomes the current stack.
    Exit {
        /// When it returned.
        stamp: Stamp,
        /// Index into the thread's region table.
        slot: u32,
        /// How many frames of the current stack are the same calls as in the slot's path.
        kept: u32,
        /// From entry to return, in stamps.
        duration: u64,
        /// Bytes moved, where the arguments tell.
        bytes: u64,
        /// The synchronisation that it was.
        sync: Option<Sync>,
        /// Where the part of the interval before the call went, if that is long.
        off_cpu: Option<OffCpu>,
    },
    /// The application paused the measurement (MPI_Pcontrol(0)).
    Pause {
        /// When.
        stamp: Stamp,
    },
    /// The application resumed it: the interval that this closes is not counted.
    Resume {
        /// When.
        stamp: Stamp,
    },
    /// The thread ended.
    End {
        /// When.
        stamp: Stamp,
    },
    /// So many records did not fit into the ring and are lost: the current stack is empty again,
    /// and all slots are unknown until they are announced again.
    Lost {
        /// Number of records.
        records: u64,
    },
}

/// By how much the stamps of a tick's delay are shifted, with a sampling period of `period` stamps: a
/// unit is a hundredth of it or a little less.
#[inline]
pub fn delay_shift(period: u64) -> u32 {
    period.checked_ilog2().unwrap_or(0).saturating_sub(DELAY_BITS)
}

/// Stamp of a tick: the last timed record's, `period` stamps, and the delay. `None` if there is no
/// such stamp.
pub fn tick_stamp(last: u64, period: u64, delay: i8) -> Option<u64> {
    last.checked_add(period)?.checked_add_signed(i64::from(delay) << delay_shift(period))
}

impl Record<'_> {
    /// Whether the record closes an interval.
    pub fn is_timed(&self) -> bool {
        !matches!(
            self,
            Self::Slot { .. } | Self::Tally { .. } | Self::Partner { .. } | Self::Lost { .. }
        )
    }
}
