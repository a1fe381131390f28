//! Records written.

use super::PartnerMessages;
use super::{
    BYTES, COUNT_ESCAPE, COUNTS, Delta, END, EXIT, GRAFT, IN_CALL, IN_REGION, LENGTHS, LOCK_WAITS,
    LOST, MESSAGE, OFF_CPU, OFF_CPU_SHIFT, OffCpu, PARTNER, PAUSE, REGION_TOTALS, RESUME, RESYNC,
    Record, SAMPLE, SENT, SHARE_TOTALS, SLOT, SYNC, Stamp, TALLY, TASK_TOTALS, TICK, TICK_ADDED,
    TICK_DROPPED, TRUNCATED,
};
use crate::increments::Counts;
use crate::leb128;
use crate::lengths;
use crate::sync_id::SyncId;

/// Writes records into a fixed buffer. Never allocates; a record that does not fit is an error
/// that cannot happen for stacks of up to [`MAX_DEPTH`] frames.
pub struct Encoder<'b> {
    buffer: &'b mut [u8],
    length: usize,
    overflow: bool,
}

impl<'b> Encoder<'b> {
    /// Creates an encoder that writes to `buffer`, which should hold [`MAX_RECORD_BYTES`].
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

    fn varint(&mut self, value: u64) {
        leb128::write(value, |byte| self.byte(byte));
    }

    fn numbers(&mut self, values: &[u64]) {
        for value in values {
            self.varint(*value);
        }
    }

    /// Writes a synchronisation; the subgroup of all ranks is written as none.
    fn sync(&mut self, SyncId { subgroup, index }: SyncId) {
        self.varint(subgroup.map_or(0, |subgroup| subgroup.ranks.into()));
        self.varint(index);
        if let Some(subgroup) = subgroup {
            self.varint(subgroup.name.into());
        }
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
        self.byte((dropped.min(COUNT_ESCAPE) << 4 | added.min(COUNT_ESCAPE)) as u8);
        for number in [dropped, added] {
            if number >= COUNT_ESCAPE {
                self.varint(u64::from(number - COUNT_ESCAPE));
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

    /// Writes the increments up to the last one that is not 0.
    fn counts(&mut self, counts: &Counts) {
        let used = counts.values.iter().rposition(|value| *value > 0).map_or(0, |last| last + 1);
        self.byte(used as u8);
        self.numbers(&counts.values[..used]);
        self.varint(counts.uncounted_ns);
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
            Record::Tally { slot, count, sum, bytes } => {
                self.byte(TALLY | flag(bytes > 0, BYTES));
                self.numbers(&[u64::from(slot), count, sum]);
                if bytes > 0 {
                    self.varint(bytes);
                }
            }
            Record::Partner { slot, messages } => {
                self.byte(SLOT | PARTNER);
                let PartnerMessages { partner, sent, bytes, received, waited } = messages;
                self.numbers(&[slot.into(), partner.into(), sent, bytes, received, waited]);
            }
            Record::Counts { in_call, counts } => {
                self.byte(SLOT | COUNTS | flag(in_call, IN_CALL));
                self.counts(&counts);
            }
            Record::Message { slot, message } => {
                self.byte(SLOT | MESSAGE | flag(message.is_sent, SENT));
                self.numbers(&message.numbers(slot));
            }
            Record::Region { slot, totals } => {
                self.byte(SLOT | REGION_TOTALS);
                self.numbers(&totals.numbers(slot));
            }
            Record::Share { slot, number, totals } => {
                self.byte(SLOT | SHARE_TOTALS);
                self.numbers(&totals.numbers(slot, number));
            }
            Record::Task { totals } => {
                self.byte(SLOT | TASK_TOTALS);
                self.numbers(&totals.numbers());
            }
            Record::Length { of, length } => {
                self.byte(SLOT | LENGTHS);
                self.numbers(&lengths::numbers(of, length));
            }
            Record::LockWait { slot, totals } => {
                self.byte(SLOT | LOCK_WAITS);
                self.numbers(&totals.numbers(slot));
            }
            Record::Graft { path } => {
                self.byte(SLOT | GRAFT);
                self.varint(path.0);
            }
            Record::Exit { stamp, slot, common, duration, bytes, sync, off_cpu } => {
                let flags = flag(sync.is_some(), SYNC)
                    | flag(off_cpu.is_some(), OFF_CPU)
                    | flag(bytes > 0, BYTES);
                self.tag(EXIT, flags, stamp);
                self.varint(u64::from(slot));
                self.varint(u64::from(common));
                self.varint(duration);
                if bytes > 0 {
                    self.varint(bytes);
                }
                if let Some(sync) = sync {
                    self.sync(sync);
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
