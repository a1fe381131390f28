//! A thread's outgoing records.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::thread_state::add_owned;
use plimsoll_wire::record::{Encoder, MAX_RECORD_BYTES, Record, Stamp, delay_shift, tick_stamp};
use plimsoll_wire::ring::Producer;
use plimsoll_wire::segment::Thread;

/// The writing end of a thread's record stream: stamps, encoding, loss.
pub struct Stream {
    ring: Producer,
    thread: *const Thread,
    readers: *const AtomicU32,
    reader: u32,
    last_stamp: u64,
    resync: bool,
    lost: u64,
    /// Whether a [`Record::Lost`] must come first, since the consumer knows no stack or slots.
    broken: bool,
    buffer: [u8; MAX_RECORD_BYTES],
}

impl Stream {
    /// Begins a stream; the first timed record carries an absolute stamp.
    ///
    /// # Safety
    /// `thread` and `readers`, the segment's count of readers, stay valid as long as the stream
    /// lives.
    pub unsafe fn new(
        ring: Producer,
        thread: *const Thread,
        readers: *const AtomicU32,
        stamp: u64,
    ) -> Self {
        // SAFETY: promised by the caller.
        let reader = unsafe { (*readers).load(Ordering::Acquire) };
        Self {
            ring,
            thread,
            readers,
            reader,
            last_stamp: stamp,
            resync: true,
            lost: 0,
            broken: false,
            buffer: [0; MAX_RECORD_BYTES],
        }
    }

    /// Restarts the stream, since the last record may have been begun but not written. The caller
    /// must forget what the consumer knew.
    pub fn break_off(&mut self) {
        self.broken = true;
        self.resync = true;
    }

    /// Returns whether the consumer has changed since the last call. If so the stream restarts, and
    /// the caller must forget what the consumer knew.
    #[inline]
    pub fn reader_changed(&mut self) -> bool {
        // SAFETY: promised to `new`.
        let reader = unsafe { (*self.readers).load(Ordering::Acquire) };
        let changed = reader != self.reader;
        if changed {
            self.reader = reader;
            self.break_off();
        }
        changed
    }

    /// Returns the stamp of the last timed record.
    #[inline]
    pub fn last_stamp(&self) -> u64 {
        self.last_stamp
    }

    /// Returns the form of `stamp` for the next timed record, which must then be written.
    pub fn stamp(&mut self, stamp: u64) -> Stamp {
        let stamp = stamp.max(self.last_stamp);
        let form =
            if self.resync { Stamp::Resync(stamp) } else { Stamp::Delta(stamp - self.last_stamp) };
        self.last_stamp = stamp;
        self.thread().last_stamp.store(stamp, Ordering::Relaxed);
        form
    }

    /// Returns the delay of `stamp` beyond one `period` (in stamps) after the last timed record, in
    /// the unit of [`Record::Tick`]; `None` if a tick cannot encode it. The tick must then be
    /// written.
    pub fn delay(&mut self, stamp: u64, period: u64) -> Option<i8> {
        if self.resync {
            return None;
        }
        let late = stamp.checked_sub(self.last_stamp)?.wrapping_sub(period).cast_signed();
        let delay = i8::try_from(late >> delay_shift(period)).ok()?;
        self.last_stamp = tick_stamp(self.last_stamp, period, delay)?;
        self.thread().last_stamp.store(self.last_stamp, Ordering::Relaxed);
        Some(delay)
    }

    /// Writes a record. False if it, or the note of an earlier loss, did not fit: from then on the
    /// reader knows neither the current stack nor any slot.
    #[must_use]
    pub fn write(&mut self, record: &Record<'_>) -> bool {
        if self.broken {
            if !self.push(&Record::Lost { records: self.lost }) {
                return self.lose();
            }
            self.lost = 0;
            self.broken = false;
        }
        if !self.push(record) {
            return self.lose();
        }
        if record.is_timed() {
            self.resync = false;
        }
        true
    }

    /// Writes a record that names a slot. The record is lost unless the consumer knows the slot.
    #[must_use]
    pub fn write_for_slot(&mut self, is_known: bool, record: &Record<'_>) -> bool {
        if is_known { self.write(record) } else { self.lose() }
    }

    fn push(&mut self, record: &Record<'_>) -> bool {
        let mut encoder = Encoder::new(&mut self.buffer);
        encoder.put(record).is_some_and(|bytes| self.ring.push(bytes))
    }

    fn lose(&mut self) -> bool {
        self.lost += 1;
        self.broken = true;
        self.resync = true;
        add_owned(&self.thread().lost, 1);
        false
    }

    fn thread(&self) -> &Thread {
        // SAFETY: promised to `new`.
        unsafe { &*self.thread }
    }
}
