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
//! [`crate::calls::FIRST_CODE_ADDRESS`] is a wrapped call.
//!
//! A stream begins with an empty stack and no slots, and is thrown back to that by [`Record::Lost`].
//! The first timed record after either is a resynchronisation: its stamp is absolute.

/// Version of the format and of the segment that carries it.
pub const VERSION: u32 = 1;

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

/// A tick's delay travels in stamps shifted right by this: a good microsecond.
pub const DELAY_SHIFT: u32 = 6;

/// From this number of dropped and of added frames on, the rest follows a tick's tag.
const TICK_DROPPED: u32 = 7;
const TICK_ADDED: u32 = 13;
const _: () = assert!((TICK_DROPPED + 1) * (TICK_ADDED + 1) <= (16 - TICK as u32) * 16);

/// Two small numbers of frames share a byte; from this one on, the rest of it follows.
const MANY: u32 = 15;

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
        /// How much more (or less), in stamps shifted right by [`DELAY_SHIFT`].
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
        /// Shortest, in stamps.
        min: u64,
        /// Longest, in stamps.
        max: u64,
        /// Bytes sent, received, read or written, where the arguments tell.
        bytes: u64,
    },
    /// A wrapped call returned: it lasted a period or more, was sampled, or is a global
    /// synchronisation. Its path becomes the current stack.
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
        /// Index of the global synchronisation that it was: the same on every rank.
        sync: Option<u64>,
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

/// Stamp of a tick: the last timed record's, `period` stamps, and the delay. `None` if there is no
/// such stamp.
pub fn tick_stamp(last: u64, period: u64, delay: i8) -> Option<u64> {
    last.checked_add(period)?.checked_add_signed(i64::from(delay) << DELAY_SHIFT)
}

impl Record<'_> {
    /// Whether the record closes an interval.
    pub fn is_timed(&self) -> bool {
        !matches!(self, Self::Slot { .. } | Self::Tally { .. } | Self::Lost { .. })
    }
}

/// Writes records into a fixed buffer. Never allocates; a record that does not fit is an error
/// that cannot happen for stacks of up to [`MAX_DEPTH`] frames.
pub struct Encoder<'b> {
    buffer: &'b mut [u8],
    length: usize,
    overflow: bool,
}

impl<'b> Encoder<'b> {
    /// An encoder that writes to `buffer`, which should hold [`MAX_RECORD_BYTES`].
    pub fn new(buffer: &'b mut [u8]) -> Self {
        Self { buffer, length: 0, overflow: false }
    }

    fn byte(&mut self, byte: u8) {
        match self.buffer.get_mut(self.length) {
            Some(place) => {
                *place = byte;
                self.length += 1;
            }
            None => self.overflow = true,
        }
    }

    fn varint(&mut self, mut value: u64) {
        while value >= 0x80 {
            self.byte(value as u8 | 0x80);
            value >>= 7;
        }
        self.byte(value as u8);
    }

    fn tag(&mut self, kind: u8, flags: u8, stamp: Stamp) {
        let (resync, value) = match stamp {
            Stamp::Delta(value) => (0, value),
            Stamp::Resync(value) => (RESYNC, value),
        };
        self.byte(kind | flags | resync);
        self.varint(value);
    }

    fn stack(&mut self, stack: Delta<'_>) {
        let (dropped, added) = (stack.dropped, stack.added.len() as u32);
        self.byte((dropped.min(MANY) << 4 | added.min(MANY)) as u8);
        for number in [dropped, added] {
            if number >= MANY {
                self.varint(u64::from(number - MANY));
            }
        }
        for id in stack.added {
            self.varint(u64::from(*id));
        }
    }

    fn tick(&mut self, delay: i8, stack: Delta<'_>) {
        let (dropped, added) = (stack.dropped, stack.added.len() as u32);
        let shape = dropped.min(TICK_DROPPED) * (TICK_ADDED + 1) + added.min(TICK_ADDED);
        self.byte((TICK + (shape >> 4) as u8) | (shape as u8) << 4);
        self.byte(delay as u8);
        for (number, most) in [(dropped, TICK_DROPPED), (added, TICK_ADDED)] {
            if number >= most {
                self.varint(u64::from(number - most));
            }
        }
        for id in stack.added {
            self.varint(u64::from(*id));
        }
    }

    fn off_cpu(&mut self, off_cpu: Option<OffCpu>) {
        if let Some(split) = off_cpu {
            self.varint(split.cpu_ns >> OFF_CPU_SHIFT);
            self.varint(split.run_delay_ns >> OFF_CPU_SHIFT);
        }
    }

    /// Appends a record and returns the encoded bytes of all so far, or `None` if the buffer is
    /// too small, in which case its content is meaningless.
    pub fn put(&mut self, record: &Record<'_>) -> Option<&[u8]> {
        let flag = |set: bool, flag: u8| if set { flag } else { 0 };
        match *record {
            Record::Sample { stamp, stack, entered, off_cpu, truncated } => {
                let flags = flag(entered.is_some(), IN_REGION)
                    | flag(off_cpu.is_some(), OFF_CPU)
                    | flag(truncated, TRUNCATED);
                self.tag(SAMPLE, flags, stamp);
                self.stack(stack);
                if let Some(entered) = entered {
                    self.varint(entered);
                }
                self.off_cpu(off_cpu);
            }
            Record::Tick { delay, stack } => self.tick(delay, stack),
            Record::Slot { slot, stack } => {
                self.byte(SLOT);
                self.varint(u64::from(slot));
                self.stack(stack);
            }
            Record::Tally { slot, count, sum, min, max, bytes } => {
                self.byte(TALLY | flag(bytes > 0, BYTES));
                for value in [u64::from(slot), count, sum, min, max.saturating_sub(min)] {
                    self.varint(value);
                }
                if bytes > 0 {
                    self.varint(bytes);
                }
            }
            Record::Exit { stamp, slot, kept, duration, bytes, sync, off_cpu } => {
                let flags = flag(sync.is_some(), SYNC)
                    | flag(off_cpu.is_some(), OFF_CPU)
                    | flag(bytes > 0, BYTES);
                self.tag(EXIT, flags, stamp);
                self.varint(u64::from(slot));
                self.varint(u64::from(kept));
                self.varint(duration);
                if bytes > 0 {
                    self.varint(bytes);
                }
                if let Some(index) = sync {
                    self.varint(index);
                }
                self.off_cpu(off_cpu);
            }
            Record::Pause { stamp } => self.tag(PAUSE, 0, stamp),
            Record::Resume { stamp } => self.tag(RESUME, 0, stamp),
            Record::End { stamp } => self.tag(END, 0, stamp),
            Record::Lost { records } => {
                self.byte(LOST);
                self.varint(records);
            }
        }
        if self.overflow { None } else { Some(&self.buffer[..self.length]) }
    }
}

/// Why a stream could not be read on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecodeError {
    /// The bytes end inside a record.
    Truncated,
    /// No record begins with this tag.
    UnknownTag(u8),
    /// An integer does not fit its field.
    Overflow,
    /// A stack is deeper than [`MAX_DEPTH`].
    TooDeep,
}

impl core::fmt::Display for DecodeError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Truncated => write!(f, "the stream ends inside a record"),
            Self::UnknownTag(tag) => write!(f, "no record begins with tag {tag:#04x}"),
            Self::Overflow => write!(f, "an integer does not fit its field"),
            Self::TooDeep => write!(f, "a stack is deeper than {MAX_DEPTH} frames"),
        }
    }
}

impl core::error::Error for DecodeError {}

/// Reads records from bytes; holds the buffer for the frames of one stack.
pub struct Decoder {
    added: [u32; MAX_DEPTH],
}

impl Default for Decoder {
    fn default() -> Self {
        Self { added: [0; MAX_DEPTH] }
    }
}

struct Cursor<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Cursor<'_> {
    fn byte(&mut self) -> Result<u8, DecodeError> {
        let byte = *self.bytes.get(self.at).ok_or(DecodeError::Truncated)?;
        self.at += 1;
        Ok(byte)
    }

    fn varint(&mut self) -> Result<u64, DecodeError> {
        let mut value = 0u64;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            let part = u64::from(byte & 0x7f);
            if shift == 63 && part > 1 {
                return Err(DecodeError::Overflow);
            }
            value |= part << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(DecodeError::Overflow)
    }

    fn small(&mut self) -> Result<u32, DecodeError> {
        u32::try_from(self.varint()?).map_err(|_| DecodeError::Overflow)
    }

    /// A number that was written as `few` where it is less than `many`.
    fn number(&mut self, few: u32, many: u32) -> Result<u32, DecodeError> {
        if few < many {
            return Ok(few);
        }
        self.small()?.checked_add(many).ok_or(DecodeError::Overflow)
    }

    fn stamp(&mut self, tag: u8) -> Result<Stamp, DecodeError> {
        let value = self.varint()?;
        Ok(if tag & RESYNC != 0 { Stamp::Resync(value) } else { Stamp::Delta(value) })
    }

    fn off_cpu(&mut self, tag: u8) -> Result<Option<OffCpu>, DecodeError> {
        if tag & OFF_CPU == 0 {
            return Ok(None);
        }
        let mut ns = || self.varint()?.checked_mul(1 << OFF_CPU_SHIFT).ok_or(DecodeError::Overflow);
        Ok(Some(OffCpu { cpu_ns: ns()?, run_delay_ns: ns()? }))
    }
}

impl Decoder {
    /// Reads the record at the beginning of `bytes`: the record and its length in bytes, or `None`
    /// if `bytes` is empty.
    pub fn next<'d>(
        &'d mut self,
        bytes: &[u8],
    ) -> Result<Option<(Record<'d>, usize)>, DecodeError> {
        if bytes.is_empty() {
            return Ok(None);
        }
        let mut cursor = Cursor { bytes, at: 0 };
        let tag = cursor.byte()?;
        let record = match tag & 0x0f {
            SAMPLE => {
                let stamp = cursor.stamp(tag)?;
                let (dropped, count) = self.stack(&mut cursor)?;
                let entered = if tag & IN_REGION != 0 { Some(cursor.varint()?) } else { None };
                let off_cpu = cursor.off_cpu(tag)?;
                let stack = Delta { dropped, added: &self.added[..count] };
                Record::Sample { stamp, stack, entered, off_cpu, truncated: tag & TRUNCATED != 0 }
            }
            SLOT => {
                let slot = cursor.small()?;
                let (dropped, count) = self.stack(&mut cursor)?;
                Record::Slot { slot, stack: Delta { dropped, added: &self.added[..count] } }
            }
            TALLY => {
                let slot = cursor.small()?;
                let (count, sum, min) = (cursor.varint()?, cursor.varint()?, cursor.varint()?);
                let max = min.checked_add(cursor.varint()?).ok_or(DecodeError::Overflow)?;
                let bytes = if tag & BYTES != 0 { cursor.varint()? } else { 0 };
                Record::Tally { slot, count, sum, min, max, bytes }
            }
            EXIT => {
                let stamp = cursor.stamp(tag)?;
                let (slot, kept) = (cursor.small()?, cursor.small()?);
                let duration = cursor.varint()?;
                let bytes = if tag & BYTES != 0 { cursor.varint()? } else { 0 };
                let sync = if tag & SYNC != 0 { Some(cursor.varint()?) } else { None };
                let off_cpu = cursor.off_cpu(tag)?;
                Record::Exit { stamp, slot, kept, duration, bytes, sync, off_cpu }
            }
            PAUSE => Record::Pause { stamp: cursor.stamp(tag)? },
            RESUME => Record::Resume { stamp: cursor.stamp(tag)? },
            END => Record::End { stamp: cursor.stamp(tag)? },
            LOST => Record::Lost { records: cursor.varint()? },
            TICK..=0x0f => {
                let shape = u32::from(tag & 0x0f) - u32::from(TICK);
                let shape = shape << 4 | u32::from(tag >> 4);
                let delay = cursor.byte()? as i8;
                let (dropped, added) = (shape / (TICK_ADDED + 1), shape % (TICK_ADDED + 1));
                let dropped = cursor.number(dropped, TICK_DROPPED)?;
                let added = cursor.number(added, TICK_ADDED)?;
                let count = self.frames(&mut cursor, added)?;
                Record::Tick { delay, stack: Delta { dropped, added: &self.added[..count] } }
            }
            _ => return Err(DecodeError::UnknownTag(tag)),
        };
        Ok(Some((record, cursor.at)))
    }

    fn stack(&mut self, cursor: &mut Cursor<'_>) -> Result<(u32, usize), DecodeError> {
        let both = u32::from(cursor.byte()?);
        let dropped = cursor.number(both >> 4, MANY)?;
        let added = cursor.number(both & MANY, MANY)?;
        Ok((dropped, self.frames(cursor, added)?))
    }

    /// Reads the ids of so many frames.
    fn frames(&mut self, cursor: &mut Cursor<'_>, count: u32) -> Result<usize, DecodeError> {
        let count = count as usize;
        for place in self.added.get_mut(..count).ok_or(DecodeError::TooDeep)? {
            *place = cursor.small()?;
        }
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn stamp() -> impl Strategy<Value = Stamp> {
        prop_oneof![any::<u64>().prop_map(Stamp::Delta), any::<u64>().prop_map(Stamp::Resync)]
    }

    fn off_cpu() -> impl Strategy<Value = Option<OffCpu>> {
        prop::option::of((any::<u64>(), any::<u64>()).prop_map(|(cpu_ns, run_delay_ns)| OffCpu {
            cpu_ns: cpu_ns >> OFF_CPU_SHIFT << OFF_CPU_SHIFT,
            run_delay_ns: run_delay_ns >> OFF_CPU_SHIFT << OFF_CPU_SHIFT,
        }))
    }

    proptest! {
        #[test]
        fn every_record_is_read_back_as_written(
            stamp in stamp(),
            off_cpu in off_cpu(),
            entered in prop::option::of(any::<u64>()),
            sync in prop::option::of(any::<u64>()),
            added in prop::collection::vec(any::<u32>(), 0..MAX_DEPTH),
            numbers in any::<[u32; 4]>(),
            min in any::<u32>(), spread in any::<u32>(), sum in any::<u64>(), bytes in any::<u64>(),
            truncated in any::<bool>(),
            delay in any::<i8>(),
        ) {
            let [slot, dropped, kept, count] = numbers;
            let stack = Delta { dropped, added: &added };
            let (min, max) = (u64::from(min), u64::from(min) + u64::from(spread));
            let records = [
                Record::Sample { stamp, stack, entered, off_cpu, truncated },
                Record::Tick { delay, stack },
                Record::Tick { delay, stack: Delta { dropped: dropped % 9, added: &added[..added.len() % 16] } },
                Record::Slot { slot, stack },
                Record::Tally { slot, count: u64::from(count), sum, min, max, bytes },
                Record::Exit { stamp, slot, kept, duration: sum, bytes, sync, off_cpu },
                Record::Pause { stamp },
                Record::Resume { stamp },
                Record::End { stamp },
                Record::Lost { records: sum },
            ];
            let mut decoder = Decoder::default();
            for record in &records {
                let mut buffer = vec![0; MAX_RECORD_BYTES];
                let mut encoder = Encoder::new(&mut buffer);
                let bytes = encoder.put(record).expect("MAX_RECORD_BYTES is enough");
                prop_assert_eq!(decoder.next(bytes), Ok(Some((*record, bytes.len()))));
                for end in 1..bytes.len().min(40) {
                    prop_assert_eq!(decoder.next(&bytes[..end]), Err(DecodeError::Truncated));
                }
            }
        }

        #[test]
        fn any_bytes_are_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..4096)) {
            let mut decoder = Decoder::default();
            let mut rest = &bytes[..];
            while let Ok(Some((_, length))) = decoder.next(rest) {
                prop_assert!(length > 0);
                rest = &rest[length..];
            }
        }
    }

    #[test]
    fn a_record_that_does_not_fit_is_refused() {
        let mut buffer = [0; 4];
        let record = Record::Lost { records: u64::MAX };
        assert_eq!(Encoder::new(&mut buffer).put(&record), None);
    }
}
