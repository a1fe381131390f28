//! One round over all processes: drains rings, looks up names and writes due data to disk.

use std::time::{Duration, Instant};

use super::{FULL_PERCENT, IDLE, MAX_BUSY_INTERVAL, PollResult, State};
use crate::collected_process::Process;
use crate::death::end_at_first;
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
    pub(super) fn poll_once(&mut self, is_asked: bool, now: Instant) -> PollResult {
        if self.liveness_checks.is_due(now) {
            end_at_first(&mut self.processes);
        }
        let (mut fullest, mut pending, mut has_changed) = (0, 0u64, false);
        for process in self.processes.values_mut() {
            process.listen();
            let occupancy = process.poll();
            fullest = fullest.max(occupancy.fullest);
            pending = pending.saturating_add(occupancy.pending);
            has_changed |= occupancy.has_changed;
        }
        let is_due = self.drain_schedule.is_due(now, pending);
        let reads = is_due || is_asked || has_changed || fullest > FULL_PERCENT;
        if reads {
            self.drain_schedule.begin(now);
            self.drain();
        }
        self.look_up();
        self.keep(reads, now);
        let is_nameless = self.processes.values().any(Process::has_nameless);
        let goes_on = has_changed || is_nameless;
        PollResult {
            fullest,
            max_interval: if goes_on {
                MAX_BUSY_INTERVAL
            } else {
                self.drain_schedule.pause(now, MAX_BUSY_INTERVAL)
            },
            until_flush: match &self.scratch.spool {
                Some(spool) => spool.until_flush(now),
                None => Duration::MAX,
            },
        }
    }

    /// Drains the rings; returns the fill level of the fullest ring in percent.
    pub(super) fn drain(&mut self) -> u64 {
        let Self { processes, scratch, lookup_budget, reserved, .. } = self;
        let before = scratch.structures.cpu_ns();
        // If the run ends meanwhile, the drain gets all of the lookup time: temporal context trees
        // keep a function that was not found as unknown, even if its name is found later.
        scratch.structures.set_grace(*reserved);
        let fullest = processes.values_mut().map(|process| process.drain(scratch)).max();
        scratch.structures.set_grace(Duration::ZERO);
        // Temporal context trees need functions during the drain; this lookup time is charged to
        // the budget for names.
        lookup_budget.spend(Duration::from_nanos(scratch.structures.cpu_ns() - before));
        fullest.unwrap_or(0)
    }

    /// Looks up names, as far as the time budget allows.
    pub(super) fn look_up(&mut self) {
        let Self { processes, scratch, lookup_budget, keeping, looked_up, .. } = self;
        let mut nameless =
            processes.values_mut().filter(|process| process.has_nameless()).peekable();
        if nameless.peek().is_some() {
            for process in nameless {
                let begin = Instant::now();
                let allowed = lookup_budget.allows(begin, scratch.structures.is_open());
                if allowed > Duration::ZERO {
                    let before = scratch.structures.cpu_ns();
                    process.name_some(allowed, &mut scratch.structures);
                    lookup_budget.spend(Duration::from_nanos(scratch.structures.cpu_ns() - before));
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
    pub(super) fn keep(&mut self, read: bool, now: Instant) {
        if self.scratch.spool.as_ref().is_some_and(|spool| spool.is_due(now)) {
            self.write_out(read, now);
        }
    }

    /// Writes all pending data to disk. Without `read`, the unread bytes of the rings go to the
    /// journal first.
    pub(super) fn write_out(&mut self, read: bool, now: Instant) {
        let Self { processes, scratch, .. } = self;
        for process in processes.values_mut().filter(|_| !read) {
            process.journal(scratch);
        }
        let Some(spool) = &mut scratch.spool else { return };
        for process in processes.values_mut() {
            process.write_tables(None, &process.info(), spool);
        }
        spool.flush(read, now);
    }
}
