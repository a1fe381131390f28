//! Records in, columns out.

use plimsoll_wire::increments::Counts;
use plimsoll_wire::lengths;
use plimsoll_wire::record::{Delta, MAX_DEPTH, OffCpu, PartnerMessages, Record, Stamp};
use plimsoll_wire::sync_id::SyncId;

use super::super::numbers::{fold, put};
use super::super::payload::Payload;
use super::super::spool_error::PayloadError;
use super::{
    COLUMNS, COUNTS, COUNTS_IN_CALL, Column, END, EXIT, EXIT_BYTES, GRAFT, IN_REGION, LENGTH,
    LOCK_WAIT, LOST, MESSAGE, OFF_CPU, OFF_CPU_SHIFT, PART_EXIT, PARTNER, PAUSE, REGION, RESUME,
    RESYNC, SAMPLE, SENT_MESSAGE, SHARE, SLOT, SYNC, TALLY, TALLY_BYTES, TASK, TICK_ADDED,
    TICK_DROPPED, TRUNCATED, ids,
};

/// Columns that grow by one record at a time.
#[derive(Default)]
pub struct Builder {
    columns: [Vec<u8>; COLUMNS],
    /// Ids of innermost new frames, and of all others: coded when all are known.
    leaves: Vec<u32>,
    inner: Vec<u32>,
    records: u64,
    prelude: u64,
    merged: u64,
    last_stamp: u64,
    last_sync: u64,
    last_part_sync: u64,
    last_tally: u32,
}

impl Builder {
    /// Returns the number of records.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Returns the number of records in the prelude.
    pub fn prelude(&self) -> u64 {
        self.prelude
    }

    /// Returns the bytes of the columns so far, roughly.
    pub fn raw_bytes(&self) -> usize {
        let ids = self.leaves.len() + self.inner.len();
        self.columns.iter().map(Vec::len).sum::<usize>() + ids * size_of::<u32>()
    }

    /// Returns the number of samples that were merged into these records.
    pub fn merged(&self) -> u64 {
        self.merged
    }

    /// Marks all records so far as the prelude, which repeats the state of a reader of the previous
    /// payload.
    pub fn end_prelude(&mut self) {
        self.prelude = self.records;
    }

    /// Counts samples that were merged into the next record.
    pub fn merge(&mut self, samples: u64) {
        self.merged += samples;
    }

    /// Appends a record. Refuses a record with more than [`MAX_DEPTH`] new frames, and changes
    /// nothing then.
    pub fn push(&mut self, record: &Record<'_>) -> Result<(), PayloadError> {
        if let Record::Sample { stack, .. }
        | Record::Tick { stack, .. }
        | Record::Slot { stack, .. } = record
            && stack.added.len() > MAX_DEPTH
        {
            return Err(PayloadError::TooDeep);
        }
        self.records += 1;
        match *record {
            Record::Tick { delay, stack } => {
                let added = stack.added.len() as u32;
                let (few, fewer) = (stack.dropped.min(TICK_DROPPED), added.min(TICK_ADDED));
                self.shape((few * (TICK_ADDED + 1) + fewer) as u8);
                self.column(Column::Delays).push(delay.cast_unsigned());
                if few == TICK_DROPPED {
                    self.put(Column::Dropped, u64::from(stack.dropped - few));
                }
                if fewer == TICK_ADDED {
                    self.put(Column::Added, u64::from(added - fewer));
                }
                self.sampled_frames(stack);
            }
            Record::Sample { stamp, stack, entered, off_cpu, truncated } => {
                let flags = flag(entered.is_some(), IN_REGION) | flag(truncated, TRUNCATED);
                self.timed(SAMPLE + (flags | flag(off_cpu.is_some(), OFF_CPU)), stamp);
                if let Stamp::Delta(delta) = stamp {
                    self.put(Column::Stamps, fold(delta.wrapping_sub(self.last_stamp)));
                    self.last_stamp = delta;
                }
                self.numbers_of_frames(stack);
                self.sampled_frames(stack);
                if let Some(entered) = entered {
                    self.put(Column::Entered, entered);
                }
                self.off_cpu(off_cpu);
            }
            Record::Slot { slot, stack } => {
                self.shape(SLOT);
                self.put(Column::Announced, u64::from(slot));
                self.numbers_of_frames(stack);
                self.inner.extend(stack.added);
            }
            Record::Tally { slot, count, sum, bytes } => {
                self.shape(TALLY + flag(bytes > 0, TALLY_BYTES));
                self.put(Column::TallySlots, difference(slot, self.last_tally));
                self.last_tally = slot;
                self.put(Column::Counts, count);
                self.put(Column::Sums, sum);
                if bytes > 0 {
                    self.put(Column::TallyBytes, bytes);
                }
            }
            Record::Partner { slot, messages } => {
                self.shape(PARTNER);
                let PartnerMessages { partner, sent, bytes, received, waited } = messages;
                for number in [slot.into(), partner.into(), sent, bytes, received, waited] {
                    self.put(Column::Partners, number);
                }
            }
            Record::Counts { in_call, counts } => {
                self.shape(if in_call { COUNTS_IN_CALL } else { COUNTS });
                self.counts(&counts);
            }
            Record::Message { slot, message } => {
                self.shape(if message.is_sent { SENT_MESSAGE } else { MESSAGE });
                for number in message.numbers(slot) {
                    self.put(Column::Messages, number);
                }
            }
            Record::Region { slot, totals } => {
                self.shape(REGION);
                for number in totals.numbers(slot) {
                    self.put(Column::Regions, number);
                }
            }
            Record::Share { slot, number, totals } => {
                self.shape(SHARE);
                for number in totals.numbers(slot, number) {
                    self.put(Column::Regions, number);
                }
            }
            Record::Task { totals } => {
                self.shape(TASK);
                for number in totals.numbers() {
                    self.put(Column::Regions, number);
                }
            }
            Record::Length { of, length } => {
                self.shape(LENGTH);
                for number in lengths::numbers(of, length) {
                    self.put(Column::Regions, number);
                }
            }
            Record::LockWait { slot, totals } => {
                self.shape(LOCK_WAIT);
                for number in totals.numbers(slot) {
                    self.put(Column::Regions, number);
                }
            }
            Record::Graft { path } => {
                self.shape(GRAFT);
                self.put(Column::Regions, path.0);
            }
            Record::Exit { stamp, slot, common, duration, bytes, sync, off_cpu } => {
                let (kind, is_sync) = match sync {
                    Some(SyncId { subgroup: Some(_), .. }) => (PART_EXIT, false),
                    sync => (EXIT, sync.is_some()),
                };
                let flags = flag(bytes > 0, EXIT_BYTES) | flag(is_sync, SYNC);
                self.timed(kind + (flags | flag(off_cpu.is_some(), OFF_CPU)), stamp);
                if let Stamp::Delta(delta) = stamp {
                    self.put(Column::Before, fold(delta.wrapping_sub(duration)));
                }
                self.put(Column::Durations, duration);
                self.put(Column::ExitSlots, u64::from(slot));
                self.put(Column::Kept, u64::from(common));
                if bytes > 0 {
                    self.put(Column::ExitBytes, bytes);
                }
                if let Some(sync) = sync {
                    self.sync(sync);
                }
                self.off_cpu(off_cpu);
            }
            Record::Pause { stamp } => self.stop(PAUSE, stamp),
            Record::Resume { stamp } => self.stop(RESUME, stamp),
            Record::End { stamp } => self.stop(END, stamp),
            Record::Lost { records } => {
                self.shape(LOST);
                self.put(Column::Lost, records);
            }
        }
        Ok(())
    }

    /// Replaces `payload` by what was pushed, and begins anew.
    pub fn finish(&mut self, payload: &mut Payload) {
        let (places, listed) = ids::write(&self.leaves);
        *self.column(Column::Leaves) = places;
        *self.column(Column::LeafIds) = listed;
        let (places, listed) = ids::write(&self.inner);
        *self.column(Column::Inner) = places;
        *self.column(Column::InnerIds) = listed;
        let mut head = Vec::new();
        put(&mut head, self.records);
        put(&mut head, self.prelude);
        put(&mut head, self.merged);
        let there = |column: &&Vec<u8>| !column.is_empty();
        let bit = |(i, column): (usize, &Vec<u8>)| u64::from(!column.is_empty()) << i;
        put(&mut head, self.columns.iter().enumerate().map(bit).sum());
        for column in self.columns.iter().filter(there) {
            put(&mut head, column.len() as u64);
        }
        payload.clear();
        payload.part(&head);
        for column in self.columns.iter().filter(there) {
            payload.part(column);
        }
        self.begin();
    }

    fn begin(&mut self) {
        for column in &mut self.columns {
            // What a busy second took is given back by the calm ones after it.
            column.shrink_to(2 * column.len());
            column.clear();
        }
        for ids in [&mut self.leaves, &mut self.inner] {
            ids.shrink_to(2 * ids.len());
            ids.clear();
        }
        (self.records, self.prelude, self.merged) = (0, 0, 0);
        (self.last_stamp, self.last_tally) = (0, 0);
        (self.last_sync, self.last_part_sync) = (0, 0);
    }

    fn column(&mut self, column: Column) -> &mut Vec<u8> {
        &mut self.columns[column as usize]
    }

    fn put(&mut self, column: Column, value: u64) {
        put(self.column(column), value);
    }

    fn shape(&mut self, shape: u8) {
        self.column(Column::Shapes).push(shape);
    }

    fn timed(&mut self, shape: u8, stamp: Stamp) {
        match stamp {
            Stamp::Delta(_) => self.shape(shape),
            Stamp::Resync(absolute) => {
                self.shape(shape + RESYNC);
                self.put(Column::Resyncs, absolute);
            }
        }
    }

    fn stop(&mut self, shape: u8, stamp: Stamp) {
        self.timed(shape, stamp);
        if let Stamp::Delta(delta) = stamp {
            self.put(Column::Stamps, delta);
        }
    }

    fn sync(&mut self, SyncId { subgroup, index }: SyncId) {
        match subgroup {
            None => {
                self.put(Column::Syncs, fold(index.wrapping_sub(self.last_sync)));
                self.last_sync = index;
            }
            Some(subgroup) => {
                self.put(Column::PartSyncs, fold(index.wrapping_sub(self.last_part_sync)));
                self.last_part_sync = index;
                self.put(Column::PartNames, u64::from(subgroup.name));
                self.put(Column::PartRanks, u64::from(subgroup.ranks));
            }
        }
    }

    fn counts(&mut self, counts: &Counts) {
        let used = counts.values.iter().rposition(|value| *value > 0).map_or(0, |last| last + 1);
        self.put(Column::Events, used as u64);
        for value in &counts.values[..used] {
            self.put(Column::Events, *value);
        }
        self.put(Column::Events, counts.uncounted_ns);
    }

    fn numbers_of_frames(&mut self, stack: Delta<'_>) {
        self.put(Column::Dropped, u64::from(stack.dropped));
        self.put(Column::Added, stack.added.len() as u64);
    }

    fn sampled_frames(&mut self, stack: Delta<'_>) {
        if let Some((leaf, inner)) = stack.added.split_last() {
            self.inner.extend(inner);
            self.leaves.push(*leaf);
        }
    }

    fn off_cpu(&mut self, off_cpu: Option<OffCpu>) {
        if let Some(split) = off_cpu {
            self.put(Column::Cpu, split.cpu_ns.rotate_right(OFF_CPU_SHIFT));
            self.put(Column::RunDelay, split.run_delay_ns.rotate_right(OFF_CPU_SHIFT));
        }
    }
}

fn flag(set: bool, flag: u8) -> u8 {
    if set { flag } else { 0 }
}

fn difference(now: u32, before: u32) -> u64 {
    fold(u64::from(now).wrapping_sub(u64::from(before)))
}
