//! Columns in, records out.

use plimsoll_wire::increments::Counts;
use plimsoll_wire::lengths;
use plimsoll_wire::lock_waits::LockWaitTotals;
use plimsoll_wire::record::{Delta, MAX_DEPTH, Message, OffCpu, PartnerMessages, Record, Stamp};
use plimsoll_wire::sync_id::{Subgroup, SyncId};
use plimsoll_wire::teams::{PathKey, RegionTotals, ShareTotals, TaskTotals};

use super::super::numbers::{Cursor, unfold};
use super::super::spool_error::PayloadError;
use super::ids::Ids;
use super::{
    COLUMNS, COUNTS, COUNTS_IN_CALL, Column, END, EXIT, EXIT_BYTES, GRAFT, IN_REGION, LENGTH,
    LOCK_WAIT, LOST, MESSAGE, OFF_CPU, OFF_CPU_SHIFT, PART_EXIT, PARTNER, PAUSE, REGION, RESUME,
    RESYNC, SAMPLE, SENT_MESSAGE, SHARE, SLOT, SYNC, TALLY, TALLY_BYTES, TASK, TICK_ADDED,
    TICK_DROPPED, TICKS, TRUNCATED,
};

/// Reads the records of one payload.
pub struct Records<'a> {
    columns: [Cursor<'a>; COLUMNS],
    leaves: Ids<'a>,
    inner: Ids<'a>,
    records: u64,
    prelude: u64,
    merged: u64,
    left: u64,
    last_stamp: u64,
    last_sync: u64,
    last_part_sync: u64,
    last_tally: u32,
    added: Vec<u32>,
}

impl<'a> Records<'a> {
    /// Creates the records of a payload. Takes at most four times the payload's memory.
    pub fn new(payload: &'a [u8]) -> Result<Self, PayloadError> {
        let mut cursor = Cursor::new(payload);
        let (records, prelude) = (cursor.long()?, cursor.long()?);
        let (merged, there) = (cursor.long()?, cursor.long()?);
        if there >> COLUMNS != 0 {
            return Err(PayloadError::Leftover);
        }
        let mut lengths = [0; COLUMNS];
        for (column, length) in lengths.iter_mut().enumerate() {
            if there >> column & 1 != 0 {
                *length = cursor.long()?;
            }
        }
        let mut columns = [Cursor::default(); COLUMNS];
        for (column, length) in columns.iter_mut().zip(lengths) {
            *column = Cursor::new(cursor.take(length)?);
        }
        if cursor.left() > 0 {
            return Err(PayloadError::Leftover);
        }
        let mut ids = |places: Column, listed: Column| {
            let places = std::mem::take(&mut columns[places as usize]);
            Ids::new(places, std::mem::take(&mut columns[listed as usize]))
        };
        let leaves = ids(Column::Leaves, Column::LeafIds)?;
        let inner = ids(Column::Inner, Column::InnerIds)?;
        Ok(Self {
            columns,
            leaves,
            inner,
            records,
            prelude,
            merged,
            left: records,
            last_stamp: 0,
            last_sync: 0,
            last_part_sync: 0,
            last_tally: 0,
            added: Vec::new(),
        })
    }

    /// Returns the number of records according to the payload.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Returns the number of records at the beginning that are the prelude: a reader of the
    /// previous frame skips them, any other begins with them.
    pub fn prelude(&self) -> u64 {
        self.prelude
    }

    /// Returns the number of samples that were merged into these records.
    pub fn merged(&self) -> u64 {
        self.merged
    }

    /// Returns the next record, or `None` after the last. Nothing useful comes after an error.
    #[allow(clippy::should_implement_trait, reason = "what it returns borrows from it")]
    pub fn next(&mut self) -> Result<Option<Record<'_>>, PayloadError> {
        if self.left == 0 {
            let read = self.columns.iter().all(|column| column.left() == 0)
                && self.leaves.at_end()
                && self.inner.at_end();
            return if read { Ok(None) } else { Err(PayloadError::Leftover) };
        }
        self.left -= 1;
        let shape = self.column(Column::Shapes).byte()?;
        if shape < TICKS {
            return self.tick(shape).map(Some);
        }
        self.other(shape).map(Some)
    }

    #[inline]
    fn tick(&mut self, shape: u8) -> Result<Record<'_>, PayloadError> {
        let delay = self.column(Column::Delays).byte()?.cast_signed();
        let shape = u32::from(shape);
        let (mut dropped, mut added) = (shape / (TICK_ADDED + 1), shape % (TICK_ADDED + 1));
        if dropped == TICK_DROPPED {
            let rest = self.column(Column::Dropped).short()?;
            dropped = dropped.checked_add(rest).ok_or(PayloadError::Overflow)?;
        }
        if added == TICK_ADDED {
            let rest = self.column(Column::Added).short()?;
            added = added.checked_add(rest).ok_or(PayloadError::TooDeep)?;
        }
        self.sampled_frames(added)?;
        Ok(Record::Tick { delay, stack: Delta { dropped, added: &self.added } })
    }

    fn other(&mut self, shape: u8) -> Result<Record<'_>, PayloadError> {
        Ok(match shape {
            SAMPLE..EXIT => {
                let flags = shape - SAMPLE;
                let stamp = match self.resync(flags)? {
                    Some(stamp) => stamp,
                    None => {
                        let difference = unfold(self.long(Column::Stamps)?);
                        self.last_stamp = self.last_stamp.wrapping_add(difference);
                        Stamp::Delta(self.last_stamp)
                    }
                };
                let (dropped, added) = (self.short(Column::Dropped)?, self.short(Column::Added)?);
                self.sampled_frames(added)?;
                let in_region = flags & IN_REGION != 0;
                let entered = if in_region { Some(self.long(Column::Entered)?) } else { None };
                let off_cpu = self.off_cpu(flags)?;
                let stack = Delta { dropped, added: &self.added };
                Record::Sample { stamp, stack, entered, off_cpu, truncated: flags & TRUNCATED != 0 }
            }
            EXIT..TALLY => self.exit(shape - EXIT, false)?,
            TALLY..PAUSE => self.tally(shape - TALLY)?,
            PAUSE..RESUME => Record::Pause { stamp: self.stop(shape - PAUSE)? },
            RESUME..END => Record::Resume { stamp: self.stop(shape - RESUME)? },
            END..SLOT => Record::End { stamp: self.stop(shape - END)? },
            SLOT => {
                let slot = self.short(Column::Announced)?;
                let (dropped, added) = (self.short(Column::Dropped)?, self.short(Column::Added)?);
                self.frames(added)?;
                Record::Slot { slot, stack: Delta { dropped, added: &self.added } }
            }
            LOST => Record::Lost { records: self.long(Column::Lost)? },
            PART_EXIT..PARTNER => self.exit(shape - PART_EXIT, true)?,
            PARTNER => self.partner()?,
            COUNTS => Record::Counts { in_call: false, counts: self.counts()? },
            COUNTS_IN_CALL => Record::Counts { in_call: true, counts: self.counts()? },
            MESSAGE => self.message(false)?,
            SENT_MESSAGE => self.message(true)?,
            REGION => {
                let (slot, totals) = RegionTotals::of_numbers(self.numbers(Column::Regions)?)
                    .ok_or(PayloadError::Overflow)?;
                Record::Region { slot, totals }
            }
            SHARE => {
                let (slot, number, totals) =
                    ShareTotals::of_numbers(self.numbers(Column::Regions)?)
                        .ok_or(PayloadError::Overflow)?;
                Record::Share { slot, number, totals }
            }
            TASK => {
                let totals = TaskTotals::of_numbers(self.numbers(Column::Regions)?);
                Record::Task { totals: totals.ok_or(PayloadError::Overflow)? }
            }
            LENGTH => {
                let (of, length) = lengths::of_numbers(self.numbers(Column::Regions)?)
                    .ok_or(PayloadError::Overflow)?;
                Record::Length { of, length }
            }
            LOCK_WAIT => {
                let (slot, totals) = LockWaitTotals::of_numbers(self.numbers(Column::Regions)?)
                    .ok_or(PayloadError::Overflow)?;
                Record::LockWait { slot, totals }
            }
            GRAFT => Record::Graft { path: PathKey(self.long(Column::Regions)?) },
            _ => return Err(PayloadError::UnknownShape(shape)),
        })
    }

    fn exit(&mut self, flags: u8, of_part: bool) -> Result<Record<'static>, PayloadError> {
        let resync = self.resync(flags)?;
        let before = if resync.is_none() { unfold(self.long(Column::Before)?) } else { 0 };
        let duration = self.long(Column::Durations)?;
        let stamp = resync.unwrap_or(Stamp::Delta(before.wrapping_add(duration)));
        let (slot, common) = (self.short(Column::ExitSlots)?, self.short(Column::Kept)?);
        let bytes = if flags & EXIT_BYTES != 0 { self.long(Column::ExitBytes)? } else { 0 };
        let sync = match (flags & SYNC != 0, of_part) {
            (true, _) => {
                self.last_sync = self.last_sync.wrapping_add(unfold(self.long(Column::Syncs)?));
                Some(SyncId { subgroup: None, index: self.last_sync })
            }
            (false, true) => {
                let difference = unfold(self.long(Column::PartSyncs)?);
                self.last_part_sync = self.last_part_sync.wrapping_add(difference);
                let name = self.short(Column::PartNames)?;
                let subgroup = Subgroup { name, ranks: self.short(Column::PartRanks)? };
                Some(SyncId { subgroup: Some(subgroup), index: self.last_part_sync })
            }
            (false, false) => None,
        };
        let off_cpu = self.off_cpu(flags)?;
        Ok(Record::Exit { stamp, slot, common, duration, bytes, sync, off_cpu })
    }

    fn tally(&mut self, flags: u8) -> Result<Record<'static>, PayloadError> {
        let difference = unfold(self.long(Column::TallySlots)?);
        let slot = u32::try_from(u64::from(self.last_tally).wrapping_add(difference))
            .map_err(|_| PayloadError::Overflow)?;
        self.last_tally = slot;
        let (count, sum) = (self.long(Column::Counts)?, self.long(Column::Sums)?);
        let bytes = if flags & TALLY_BYTES != 0 { self.long(Column::TallyBytes)? } else { 0 };
        Ok(Record::Tally { slot, count, sum, bytes })
    }

    fn partner(&mut self) -> Result<Record<'static>, PayloadError> {
        let (slot, partner) = (self.short(Column::Partners)?, self.short(Column::Partners)?);
        let messages = PartnerMessages {
            partner,
            sent: self.long(Column::Partners)?,
            bytes: self.long(Column::Partners)?,
            received: self.long(Column::Partners)?,
            waited: self.long(Column::Partners)?,
        };
        Ok(Record::Partner { slot, messages })
    }

    fn counts(&mut self) -> Result<Counts, PayloadError> {
        let mut counts = Counts::NONE;
        let used = self.short(Column::Events)? as usize;
        for value in counts.values.get_mut(..used).ok_or(PayloadError::Overflow)? {
            *value = self.column(Column::Events).long()?;
        }
        counts.uncounted_ns = self.long(Column::Events)?;
        Ok(counts)
    }

    fn message(&mut self, is_sent: bool) -> Result<Record<'static>, PayloadError> {
        let message = Message::of_numbers(self.numbers(Column::Messages)?, is_sent);
        let (slot, message) = message.ok_or(PayloadError::Overflow)?;
        Ok(Record::Message { slot, message })
    }

    fn numbers<const N: usize>(&mut self, column: Column) -> Result<[u64; N], PayloadError> {
        let mut numbers = [0; N];
        for number in &mut numbers {
            *number = self.long(column)?;
        }
        Ok(numbers)
    }

    fn stop(&mut self, flags: u8) -> Result<Stamp, PayloadError> {
        match self.resync(flags)? {
            Some(stamp) => Ok(stamp),
            None => Ok(Stamp::Delta(self.long(Column::Stamps)?)),
        }
    }

    fn resync(&mut self, flags: u8) -> Result<Option<Stamp>, PayloadError> {
        if flags & RESYNC == 0 {
            return Ok(None);
        }
        Ok(Some(Stamp::Resync(self.long(Column::Resyncs)?)))
    }

    fn off_cpu(&mut self, flags: u8) -> Result<Option<OffCpu>, PayloadError> {
        if flags & OFF_CPU == 0 {
            return Ok(None);
        }
        let cpu_ns = self.long(Column::Cpu)?.rotate_left(OFF_CPU_SHIFT);
        let run_delay_ns = self.long(Column::RunDelay)?.rotate_left(OFF_CPU_SHIFT);
        Ok(Some(OffCpu { cpu_ns, run_delay_ns }))
    }

    /// Reads the new frames of a sample or tick.
    #[inline]
    fn sampled_frames(&mut self, count: u32) -> Result<(), PayloadError> {
        self.frames(count.saturating_sub(1))?;
        if count > 0 {
            if self.added.len() == MAX_DEPTH {
                return Err(PayloadError::TooDeep);
            }
            self.added.push(self.leaves.next()?);
        }
        Ok(())
    }

    #[inline]
    fn frames(&mut self, count: u32) -> Result<(), PayloadError> {
        self.added.clear();
        if count as usize > MAX_DEPTH {
            return Err(PayloadError::TooDeep);
        }
        for _ in 0..count {
            self.added.push(self.inner.next()?);
        }
        Ok(())
    }

    #[inline]
    fn column(&mut self, column: Column) -> &mut Cursor<'a> {
        &mut self.columns[column as usize]
    }

    #[inline]
    fn long(&mut self, column: Column) -> Result<u64, PayloadError> {
        self.column(column).long()
    }

    #[inline]
    fn short(&mut self, column: Column) -> Result<u32, PayloadError> {
        self.column(column).short()
    }
}
