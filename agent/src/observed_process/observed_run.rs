//! The observed run: begin, end, pauses, and the ways in which the measurement ends early.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::time::Duration;

use super::{ALIVE, Observed};
use crate::counters;
use crate::regions::{declared, discard_tallies, flush_openmp, flush_partners, flush_tallies};
use crate::thread_state::ThreadBlock;
use crate::timer::{LostTimer, Suspension};
use crate::{sampler, tls, tracer};
use plimsoll_wire::clock_anchor::stamp_now;
use plimsoll_wire::record::Record;
use plimsoll_wire::segment::ClockKind;

/// Maximum wait for handlers that run on other threads, in milliseconds. A handler takes
/// microseconds while it has a core.
const HANDLER_TIMEOUT_MS: u32 = 50;

/// Total samples of this process's threads when [`Observed::look_for_debugger`] last counted them.
static LAST_SAMPLES: AtomicU64 = AtomicU64::new(u64::MAX);

/// Other user of the sampling signal, for which sampling is disabled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aside {
    /// The program, or the runtime of its language, handles the signal.
    Program = 1,
    /// A debugger stops the program at the signal.
    Debugger = 2,
}

impl Observed {
    /// Begins the observed run on the calling thread, after the return of MPI_Init. The consumer of
    /// the rings may have changed, so that every thread describes its stack and slots anew.
    pub fn begin(&self) {
        // Before the stamp: the collector restarts the run at a new stamp, and then looks for the
        // thread. A thread that is named later would restart the run again.
        self.with_thread(|state| {
            self.header().main_thread.store(state.index, Ordering::Release);
        });
        self.header().reader.fetch_add(1, Ordering::Release);
        self.header().begin_stamp.store(stamp_now(), Ordering::Release);
        self.with_thread(|state| {
            discard_tallies(state);
            counters::discard(state);
            let thread = &state.area().thread;
            thread.syncs.store(0, Ordering::Relaxed);
            thread.synced.store(0, Ordering::Relaxed);
            thread.clear_counters();
        });
    }

    /// Ends the observed run: flushes the calling thread's counters and stops measuring that
    /// thread.
    ///
    /// With `at_last_record` the run ended with the calling thread's last record, and counters
    /// since then are not written.
    pub fn end(&self, at_last_record: bool) {
        let last = self.with_thread(|state| {
            if !at_last_record {
                declared::settle(self, state);
                flush_tallies(state);
                flush_partners(state);
                flush_openmp(state);
                counters::write(self, state, stamp_now(), false);
            }
            state.muted = true;
            state.stream.last_stamp()
        });
        let end = last.filter(|_| at_last_record).unwrap_or_else(stamp_now);
        self.header().end_stamp.store(end, Ordering::Release);
    }

    /// Stops sampling the calling thread and refuses to attach further threads: the run is over.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.look_after_timers(true);
        // A lost timer is counted already.
        let _ = self.stop_timer();
    }

    /// Stops the calling thread's timer.
    pub(super) fn stop_timer(&self) -> Result<(), LostTimer> {
        let _guard = self.lock.lock();
        // SAFETY: the block is the calling thread's.
        match unsafe { tls::get().as_ref() } {
            Some(block) => block.timer.stop(&self.descriptors),
            None => Ok(()),
        }
    }

    fn enable_timer(&self, on: bool) {
        // SAFETY: the block is the calling thread's.
        if let Some(block) = unsafe { tls::get().as_ref() } {
            block.timer.enable(on, self.period_ns);
        }
    }

    /// Ends the suspension of the calling thread's timer. `block` is the calling thread's.
    pub fn resume_timer(&self, block: &ThreadBlock, suspension: &Suspension) {
        block.timer.resume(suspension, self.period_ns);
    }

    /// Pauses or resumes the measurement of the calling thread.
    pub fn pause(&self, pause: bool) {
        self.with_thread(|state| {
            if state.paused == pause {
                return;
            }
            declared::settle(self, state);
            flush_tallies(state);
            state.paused = pause;
            if !pause {
                state.channels.restart();
            }
            self.enable_timer(!pause);
            let now = stamp_now();
            if pause {
                counters::write(self, state, now, false);
            } else {
                counters::discard(state);
            }
            let stamp = state.stream.stamp(now);
            let fitted = state.stream.write(&if pause {
                Record::Pause { stamp }
            } else {
                Record::Resume { stamp }
            });
            state.written(fitted);
        });
    }

    /// Disables the calling thread's timer before an exec, or enables the timer again after a
    /// failed one: a pending sampling signal would kill the new program.
    pub fn hold(&self, hold: bool) {
        self.with_thread(|state| self.enable_timer(!hold && !state.paused));
    }

    /// Stops sampling on all threads and refuses to attach further ones, after the agent's code
    /// failed. The measurement is then not to be trusted.
    pub fn break_off(&self) {
        self.header().failed.store(1, Ordering::SeqCst);
        self.stopped.store(true, Ordering::Relaxed);
        // If the lock is taken, perhaps by the code that this thread has interrupted, useless
        // samples continue until the end.
        if let Some(_guard) = self.lock.try_lock() {
            self.silence();
        }
    }

    /// Stops sampling on all threads because the application, or the runtime of its language, uses
    /// the sampling signal itself.
    pub fn step_aside(&self) {
        self.step_aside_for(Aside::Program);
    }

    /// Stops sampling on all threads in favour of another user of the sampling signal.
    pub(super) fn step_aside_for(&self, whom: Aside) {
        self.header().stepped_aside.store(whom as u32, Ordering::SeqCst);
        let _guard = self.lock.lock();
        self.silence();
    }

    /// Ends the observation of the process, which is about to forbid system calls to itself
    /// (seccomp): no thread is interrupted from here on.
    pub fn withdraw(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        {
            let _guard = self.lock.lock();
            self.silence();
            self.await_handlers();
        }
        tls::set(null_mut());
        ALIVE.store(null_mut(), Ordering::Release);
    }

    /// Waits until the agent's code runs on no other thread, at most [`HANDLER_TIMEOUT_MS`]. The
    /// caller holds the lock.
    fn await_handlers(&self) {
        let own = tls::get();
        let runs = |block: &AtomicPtr<ThreadBlock>| {
            let block = block.load(Ordering::Acquire);
            // SAFETY: blocks are unlisted under the lock before they are unmapped.
            block != own && unsafe { block.as_ref() }.is_some_and(ThreadBlock::runs)
        };
        for _ in 0..HANDLER_TIMEOUT_MS {
            // Within this time, handlers of signals that were pending when the timers stopped
            // begin, and handlers that have cleared `busy` return.
            std::thread::sleep(Duration::from_millis(1));
            if !self.blocks.iter().any(runs) {
                return;
            }
        }
    }

    /// Silences the timers of all threads. The caller holds the lock.
    fn silence(&self) {
        for block in &self.blocks {
            // SAFETY: blocks are unlisted under the lock before they are unmapped.
            if let Some(block) = unsafe { block.load(Ordering::Acquire).as_ref() } {
                block.timer.silence();
            }
        }
    }

    /// Finds threads with a perf event that the application has closed, and samples them by a POSIX
    /// timer from here on. At the end of the run (`ends`), such threads are only counted.
    pub fn look_after_timers(&self, ends: bool) {
        let _guard = self.lock.lock();
        for block in &self.blocks {
            // SAFETY: blocks are unlisted under the lock before they are unmapped.
            let Some(block) = (unsafe { block.load(Ordering::Acquire).as_ref() }) else { continue };
            if !block.timer.is_lost() {
                continue;
            }
            if ends {
                self.header().unsampled_threads.fetch_add(1, Ordering::Relaxed);
            } else if block.timer.replace(self.period_ns) {
                self.note_fallback();
            }
        }
    }

    /// Notes in the header that a CPU-time timer has replaced a perf event.
    pub(super) fn note_fallback(&self) {
        let header = self.header();
        header.kept_period_stamps.store(self.ticked_stamps, Ordering::Relaxed);
        header.clock.store(ClockKind::Timer as u32, Ordering::Relaxed);
    }

    /// Stops sampling if a debugger was attached to the process. A debugger that stops at the
    /// sampling signal delivers none of the signals, so the check is made only if no samples were
    /// taken since the last call.
    pub fn look_for_debugger(&self) {
        let samples = |block: &AtomicPtr<ThreadBlock>| {
            // SAFETY: blocks are unlisted under the lock before they are unmapped.
            unsafe { block.load(Ordering::Acquire).as_ref() }.map_or(0, ThreadBlock::samples)
        };
        if self.has_stepped_aside() || self.stopped.load(Ordering::Relaxed) {
            return;
        }
        let now = {
            let _guard = self.lock.lock();
            self.blocks.iter().map(samples).fold(0u64, u64::wrapping_add)
        };
        if LAST_SAMPLES.swap(now, Ordering::Relaxed) == now && tracer::is_debugger() {
            self.step_aside_for(Aside::Debugger);
        }
    }

    /// Returns the user of the sampling signal for which sampling was disabled; `None` if it was
    /// not.
    pub fn aside(&self) -> Option<Aside> {
        match self.header().stepped_aside.load(Ordering::Relaxed) {
            0 => None,
            debugger if debugger == Aside::Debugger as u32 => Some(Aside::Debugger),
            _ => Some(Aside::Program),
        }
    }

    /// Returns whether sampling was disabled in favour of another user of the sampling signal.
    #[inline]
    pub fn has_stepped_aside(&self) -> bool {
        self.header().stepped_aside.load(Ordering::Relaxed) != 0
    }

    /// Returns whether the sampling signal still belongs to the agent, and stops sampling if not.
    /// Some runtimes install their handler without the C library.
    pub fn may_sample(&self) -> bool {
        if !self.has_stepped_aside() && !sampler::is_installed() {
            self.step_aside();
        }
        !self.has_stepped_aside()
    }
}
