//! A thread's outgoing records.

use core::sync::atomic::Ordering;

use crate::record::{Encoder, MAX_RECORD_BYTES, Record, Stamp};
use crate::ring::Producer;
use crate::segment::Thread;
use crate::thread::bump;

/// The writing end of a thread's record stream: stamps, encoding, loss.
pub struct Stream {
    ring: Producer,
    thread: *const Thread,
    last_stamp: u64,
    resync: bool,
    lost: u64,
    buffer: [u8; MAX_RECORD_BYTES],
}

impl Stream {
    /// Begins a stream; the first timed record carries an absolute stamp.
    ///
    /// # Safety
    /// `thread` stays valid as long as the stream lives.
    pub unsafe fn new(ring: Producer, thread: *const Thread, stamp: u64) -> Self {
        Self {
            ring,
            thread,
            last_stamp: stamp,
            resync: true,
            lost: 0,
            buffer: [0; MAX_RECORD_BYTES],
        }
    }

    /// Stamp of the last timed record.
    pub fn last_stamp(&self) -> u64 {
        self.last_stamp
    }

    /// The form of `stamp` that the next timed record must carry. The record must be written.
    pub fn stamp(&mut self, stamp: u64) -> Stamp {
        let stamp = stamp.max(self.last_stamp);
        let form =
            if self.resync { Stamp::Resync(stamp) } else { Stamp::Delta(stamp - self.last_stamp) };
        self.last_stamp = stamp;
        self.thread().last_stamp.store(stamp, Ordering::Relaxed);
        form
    }

    /// Writes a record. False if it, or the note of an earlier loss, did not fit: from then on the
    /// reader knows neither the current stack nor any slot.
    #[must_use]
    pub fn write(&mut self, record: &Record<'_>) -> bool {
        if self.lost > 0 {
            if !self.push(&Record::Lost { records: self.lost }) {
                return self.lose();
            }
            self.lost = 0;
        }
        if !self.push(record) {
            return self.lose();
        }
        if record.is_timed() {
            self.resync = false;
        }
        true
    }

    fn push(&mut self, record: &Record<'_>) -> bool {
        let mut encoder = Encoder::new(&mut self.buffer);
        encoder.put(record).is_some_and(|bytes| self.ring.push(bytes))
    }

    fn lose(&mut self) -> bool {
        self.lost += 1;
        self.resync = true;
        bump(&self.thread().lost, 1);
        false
    }

    fn thread(&self) -> &Thread {
        // SAFETY: promised to `new`.
        unsafe { &*self.thread }
    }
}
