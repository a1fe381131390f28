//! Decoder of records, from untrusted bytes.

use super::{
    BYTES, COUNT_ESCAPE, COUNTS, Delta, END, EXIT, GRAFT, IN_CALL, IN_REGION, LENGTHS, LOCK_WAITS,
    LOST, MAX_DEPTH, MESSAGE, Message, OFF_CPU, OFF_CPU_SHIFT, OPENMP, OffCpu, PARTNER, PAUSE,
    PartnerMessages, REGION_TOTALS, RESUME, RESYNC, Record, SAMPLE, SENT, SHARE_TOTALS, SLOT, SYNC,
    Stamp, TALLY, TASK_TOTALS, TICK, TICK_ADDED, TICK_DROPPED, TRUNCATED,
};
use crate::increments::Counts;
use crate::leb128;
use crate::lengths;
use crate::lock_waits::LockWaitTotals;
use crate::sync_id::{Subgroup, SyncId};
use crate::teams::{PathKey, RegionTotals, ShareTotals, TaskTotals};

/// Reason why a stream could not be decoded further.
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
        leb128::read(|| self.byte(), DecodeError::Overflow)
    }

    fn numbers<const N: usize>(&mut self) -> Result<[u64; N], DecodeError> {
        let mut numbers = [0; N];
        for number in &mut numbers {
            *number = self.varint()?;
        }
        Ok(numbers)
    }

    fn small(&mut self) -> Result<u32, DecodeError> {
        u32::try_from(self.varint()?).map_err(|_| DecodeError::Overflow)
    }

    /// Returns a number that is encoded as `few` alone if it is less than `many`.
    fn number(&mut self, few: u32, many: u32) -> Result<u32, DecodeError> {
        if few < many {
            return Ok(few);
        }
        self.small()?.checked_add(many).ok_or(DecodeError::Overflow)
    }

    fn sync(&mut self) -> Result<SyncId, DecodeError> {
        let (ranks, index) = (self.small()?, self.varint()?);
        let subgroup = if ranks > 0 { Some(Subgroup { name: self.small()?, ranks }) } else { None };
        Ok(SyncId { subgroup, index })
    }

    fn counts(&mut self) -> Result<Counts, DecodeError> {
        let mut counts = Counts::NONE;
        let used = usize::from(self.byte()?);
        for value in counts.values.get_mut(..used).ok_or(DecodeError::Overflow)? {
            *value = self.varint()?;
        }
        counts.uncounted_ns = self.varint()?;
        Ok(counts)
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
            SLOT if tag & OPENMP == OPENMP => match tag & !SLOT {
                REGION_TOTALS => {
                    let (slot, totals) =
                        RegionTotals::of_numbers(cursor.numbers()?).ok_or(DecodeError::Overflow)?;
                    Record::Region { slot, totals }
                }
                SHARE_TOTALS => {
                    let (slot, number, totals) =
                        ShareTotals::of_numbers(cursor.numbers()?).ok_or(DecodeError::Overflow)?;
                    Record::Share { slot, number, totals }
                }
                TASK_TOTALS => {
                    let totals = TaskTotals::of_numbers(cursor.numbers()?);
                    Record::Task { totals: totals.ok_or(DecodeError::Overflow)? }
                }
                GRAFT => Record::Graft { path: PathKey(cursor.varint()?) },
                _ => return Err(DecodeError::UnknownTag(tag)),
            },
            SLOT if tag & !SLOT == LENGTHS => {
                let (of, length) =
                    lengths::of_numbers(cursor.numbers()?).ok_or(DecodeError::Overflow)?;
                Record::Length { of, length }
            }
            SLOT if tag & !SLOT == LOCK_WAITS => {
                let (slot, totals) =
                    LockWaitTotals::of_numbers(cursor.numbers()?).ok_or(DecodeError::Overflow)?;
                Record::LockWait { slot, totals }
            }
            SLOT if tag & PARTNER != 0 => {
                let slot = cursor.small()?;
                let messages = PartnerMessages {
                    partner: cursor.small()?,
                    sent: cursor.varint()?,
                    bytes: cursor.varint()?,
                    received: cursor.varint()?,
                    waited: cursor.varint()?,
                };
                Record::Partner { slot, messages }
            }
            SLOT if tag & COUNTS != 0 => {
                Record::Counts { in_call: tag & IN_CALL != 0, counts: cursor.counts()? }
            }
            SLOT if tag & MESSAGE != 0 => {
                let (slot, message) = Message::of_numbers(cursor.numbers()?, tag & SENT != 0)
                    .ok_or(DecodeError::Overflow)?;
                Record::Message { slot, message }
            }
            SLOT => {
                let slot = cursor.small()?;
                let (dropped, count) = self.stack(&mut cursor)?;
                Record::Slot { slot, stack: Delta { dropped, added: &self.added[..count] } }
            }
            TALLY => {
                let slot = cursor.small()?;
                let (count, sum) = (cursor.varint()?, cursor.varint()?);
                let bytes = if tag & BYTES != 0 { cursor.varint()? } else { 0 };
                Record::Tally { slot, count, sum, bytes }
            }
            EXIT => {
                let stamp = cursor.stamp(tag)?;
                let (slot, common) = (cursor.small()?, cursor.small()?);
                let duration = cursor.varint()?;
                let bytes = if tag & BYTES != 0 { cursor.varint()? } else { 0 };
                let sync = if tag & SYNC != 0 { Some(cursor.sync()?) } else { None };
                let off_cpu = cursor.off_cpu(tag)?;
                Record::Exit { stamp, slot, common, duration, bytes, sync, off_cpu }
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
        let dropped = cursor.number(both >> 4, COUNT_ESCAPE)?;
        let added = cursor.number(both & COUNT_ESCAPE, COUNT_ESCAPE)?;
        Ok((dropped, self.frames(cursor, added)?))
    }

    /// Reads the ids of `count` frames.
    fn frames(&mut self, cursor: &mut Cursor<'_>, count: u32) -> Result<usize, DecodeError> {
        let count = count as usize;
        for place in self.added.get_mut(..count).ok_or(DecodeError::TooDeep)? {
            *place = cursor.small()?;
        }
        Ok(count)
    }
}
