//! Polling of the rings without draining them.
//!
//! Reading a record costs time and pollutes the application's caches; the cost per record falls
//! with the batch size. Therefore rings are polled first, and drained when a batch is worthwhile.
//! Until then the journal gets a raw copy of the ring bytes, so that a crash loses none of them.

use std::sync::atomic::Ordering;

use plimsoll_wire::segment::{MAX_THREADS, ThreadState};

use crate::collected_process::{Process, Scratch, ThreadSlot};

/// Fill state of the rings of a process.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct RingOccupancy {
    /// Fill level of the fullest ring, in percent.
    pub(crate) fullest: u64,
    /// Number of unread bytes in all rings.
    pub(crate) pending: u64,
    /// Set if threads have begun or ended since the last drain.
    pub(crate) has_changed: bool,
}

impl Process {
    /// Polls the rings.
    pub(crate) fn poll(&self) -> RingOccupancy {
        let used = self.segment.process().threads.load(Ordering::Acquire) as usize;
        let has_changed = self.thread_slots.len() < used.min(MAX_THREADS);
        let mut occupancy = RingOccupancy { has_changed, ..RingOccupancy::default() };
        for slot in self.thread_slots.iter().flatten() {
            match slot.unread() {
                Some((from, head)) => {
                    let pending = head.wrapping_sub(from);
                    occupancy.fullest = occupancy.fullest.max(slot.area.percent(pending));
                    occupancy.pending = occupancy.pending.saturating_add(pending);
                }
                None => {
                    let state = slot.area.thread().state.load(Ordering::Acquire);
                    let ended = state == ThreadState::Ended as u32;
                    occupancy.has_changed |= ended || state == ThreadState::Live as u32;
                }
            }
        }
        occupancy
    }

    /// Copies new bytes of the rings to the spool's journal.
    pub(crate) fn journal(&mut self, scratch: &mut Scratch) {
        let Some(spool) = &mut scratch.spool else { return };
        for slot in self.thread_slots.iter_mut().flatten() {
            let Some((from, head)) = slot.unread() else { continue };
            let ThreadSlot { area, reader: Some(reader) } = slot else { continue };
            let from = from.max(reader.journaled);
            let new = head.wrapping_sub(from);
            // Bytes that exceed the ring are lost; the drain reports the loss.
            if new == 0 || new > area.ring_bytes() || reader.position < reader.read_before {
                continue;
            }
            if let Some(stream) = reader.stream {
                area.copy(from, new as usize, &mut scratch.bytes);
                spool.ring(stream, &scratch.bytes);
                reader.journaled = head;
            }
        }
    }
}

impl ThreadSlot {
    /// Returns the positions from which and up to which the ring holds unread bytes; `None` unless
    /// the thread last read here is still alive.
    fn unread(&self) -> Option<(u64, u64)> {
        let (thread, reader) = (self.area.thread(), self.reader.as_ref()?);
        let is_live = thread.state.load(Ordering::Acquire) == ThreadState::Live as u32;
        let is_same = thread.generation.load(Ordering::Acquire) == reader.generation;
        (is_live && is_same).then(|| (reader.unread(), thread.head.load(Ordering::Acquire)))
    }
}
