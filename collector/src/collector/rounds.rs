//! One round over all processes: drains rings, looks up names and writes due data to disk.

use std::time::{Duration, Instant};

use super::{CALM, FULL_PERCENT, IDLE, Look, State};
use crate::death::end_at_first;
use crate::process::Process;
use crate::spooling::Spooling;
use plimsoll_binary::Limit;

impl State {
    /// Lifts the deadline of lookups, because the run goes on.
    pub(super) fn go_on(&mut self, limit: &Limit) {
        self.ended = None;
        limit.set(None);
        self.scratch.structures.resume();
    }

    /// Polls the rings, and drains them, looks up names and writes to disk as needed. `is_asked`:
    /// drain in any case.
    pub(super) fn turn(&mut self, is_asked: bool, now: Instant) -> Look {
        if self.looks.is_due(now) {
            end_at_first(&mut self.processes);
        }
        let (mut fullest, mut pending, mut has_changed) = (0, 0u64, false);
        for process in self.processes.values_mut() {
            process.listen();
            let glance = process.glance();
            fullest = fullest.max(glance.fullest);
            pending = pending.saturating_add(glance.pending);
            has_changed |= glance.has_changed;
        }
        let is_due = self.reading.is_due(now, pending);
        let reads = is_due || is_asked || has_changed || fullest > FULL_PERCENT;
        if reads {
            self.reading.begin(now);
            self.drain();
        }
        self.look_up();
        self.keep(reads);
        let is_nameless = self.processes.values().any(Process::has_nameless);
        let goes_on = has_changed || is_nameless;
        Look { fullest, calm: if goes_on { CALM } else { self.reading.pause(now, CALM) } }
    }

    /// Drains the rings; returns the fill level of the fullest ring in percent.
    pub(super) fn drain(&mut self) -> u64 {
        let Self { processes, scratch, pace, .. } = self;
        let before = scratch.structures.cpu_ns();
        let fullest = processes.values_mut().map(|process| process.drain(scratch)).max();
        // Temporal context trees need functions during the drain; this lookup time is charged to
        // the budget for names.
        pace.spend(Duration::from_nanos(scratch.structures.cpu_ns() - before));
        fullest.unwrap_or(0)
    }

    /// Looks up names, as far as the time budget allows.
    pub(super) fn look_up(&mut self) {
        let Self { processes, scratch, pace, keeping, looked_up, .. } = self;
        let mut nameless =
            processes.values_mut().filter(|process| process.has_nameless()).peekable();
        if nameless.peek().is_some() {
            for process in nameless {
                let begin = Instant::now();
                let allowed = pace.allows(begin, scratch.structures.is_open());
                if allowed > Duration::ZERO {
                    let before = scratch.structures.cpu_ns();
                    process.name_some(allowed, &mut scratch.structures);
                    pace.spend(Duration::from_nanos(scratch.structures.cpu_ns() - before));
                    *looked_up = Some(Instant::now());
                }
            }
        } else {
            if scratch.structures.has_news() && keeping.is_due(Instant::now()) {
                scratch.structures.save();
            }
            if !scratch.structures.is_open() {
                *looked_up = None;
            } else if looked_up.get_or_insert_with(Instant::now).elapsed() >= IDLE {
                // Parsed debug information takes much memory.
                scratch.structures.release();
            }
        }
    }

    /// Writes to disk if that is due. `read`: the rings have just been drained.
    pub(super) fn keep(&mut self, read: bool) {
        if self.scratch.spool.as_ref().is_some_and(Spooling::is_due) {
            self.write_out(read);
        }
    }

    /// Writes all pending data to disk. Without `read`, the unread bytes of the rings go to the
    /// journal first.
    pub(super) fn write_out(&mut self, read: bool) {
        let Self { processes, scratch, .. } = self;
        for process in processes.values_mut().filter(|_| !read) {
            process.journal(scratch);
        }
        let Some(spool) = &mut scratch.spool else { return };
        for process in processes.values_mut() {
            process.tell(None, &process.facts(), spool);
        }
        spool.flush(read);
    }
}
