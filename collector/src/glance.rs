//! Looking at the rings without reading them.
//!
//! To read a record takes time that the application's caches pay for, too: less for each of many. So rings
//! are looked at first, and read when it is worth it. What a sudden end must not take is copied as it is.

use std::sync::atomic::Ordering;

use plimsoll_wire::segment::{MAX_THREADS, ThreadState};

use crate::process::{Process, Scratch, Seat};

/// What the rings of a process look like.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Glance {
    /// How full the fullest is, in percent.
    pub(crate) fullest: u64,
    /// Bytes in all of them that were not read yet.
    pub(crate) pending: u64,
    /// Threads have begun or ended.
    pub(crate) has_changed: bool,
}

impl Process {
    /// Looks at the rings.
    pub(crate) fn glance(&self) -> Glance {
        let used = self.segment.process().threads.load(Ordering::Acquire) as usize;
        let has_changed = self.seats.len() < used.min(MAX_THREADS);
        let mut glance = Glance { has_changed, ..Glance::default() };
        for seat in self.seats.iter().flatten() {
            match seat.unread() {
                Some((from, head)) => {
                    let pending = head.wrapping_sub(from);
                    glance.fullest = glance.fullest.max(seat.area.percent(pending));
                    glance.pending = glance.pending.saturating_add(pending);
                }
                None => {
                    let state = seat.area.thread().state.load(Ordering::Acquire);
                    let ended = state == ThreadState::Ended as u32;
                    glance.has_changed |= ended || state == ThreadState::Live as u32;
                }
            }
        }
        glance
    }

    /// Gives the spool's journal what is new in the rings.
    pub(crate) fn journal(&mut self, scratch: &mut Scratch) {
        let Some(spool) = &mut scratch.spool else { return };
        for seat in self.seats.iter_mut().flatten() {
            let Some((from, head)) = seat.unread() else { continue };
            let Seat { area, life: Some(life) } = seat else { continue };
            let from = from.max(life.journaled);
            let new = head.wrapping_sub(from);
            // What does not fit into the ring is lost; who reads it says so.
            if new == 0 || new > area.ring_bytes() || life.position < life.read_before {
                continue;
            }
            if let Some(stream) = life.stream {
                area.copy(from, new as usize, &mut scratch.bytes);
                spool.ring(stream, &scratch.bytes);
                life.journaled = head;
            }
        }
    }
}

impl Seat {
    /// From where to where the ring holds what was not read yet; `None` unless the thread lives that was
    /// last read here.
    fn unread(&self) -> Option<(u64, u64)> {
        let (thread, life) = (self.area.thread(), self.life.as_ref()?);
        let is_live = thread.state.load(Ordering::Acquire) == ThreadState::Live as u32;
        let is_same = thread.generation.load(Ordering::Acquire) == life.generation;
        (is_live && is_same).then(|| (life.unread(), thread.head.load(Ordering::Acquire)))
    }
}
