//! The observed run: its begin and end, pauses, and what ends the measurement before.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, AtomicU64, Ordering};
use std::time::Duration;

use super::{ALIVE, Observed};
use crate::regions::{discard_tallies, flush_partners, flush_tallies};
use crate::thread::ThreadBlock;
use crate::{sampler, tls, tracer};
use plimsoll_wire::clock::stamp_now;
use plimsoll_wire::record::Record;
use plimsoll_wire::segment::ClockKind;

/// Longest wait for handlers that run on other threads, in milliseconds: one takes microseconds while it
/// has a core.
const HANDLER_PATIENCE_MS: u32 = 50;

/// Samples that the threads of this process had taken when they were last counted.
static LAST_SAMPLES: AtomicU64 = AtomicU64::new(u64::MAX);

/// For whom sampling steps aside.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Aside {
    /// The program, or the runtime of its language, handles the signal.
    Program = 1,
    /// A debugger stops the program at it.
    Debugger = 2,
}

impl Observed {
    /// The observed run begins now, on the calling thread: MPI_Init has returned. The reader may be
    /// another one than before.
    pub fn begin(&self) {
        self.header().reader.fetch_add(1, Ordering::Release);
        self.header().begin_stamp.store(stamp_now(), Ordering::Release);
        self.with_thread(|state| {
            self.header().main_thread.store(state.index, Ordering::Release);
            discard_tallies(state);
            let thread = &state.area().thread;
            thread.syncs.store(0, Ordering::Relaxed);
            thread.synced.store(0, Ordering::Relaxed);
            thread.clear_counters();
        });
    }

    /// The observed run ends now: writes what the calling thread has not yet written, and measures
    /// it no more.
    ///
    /// `at_last_record`: the run ended with the calling thread's last record, and nothing is to be
    /// said of what followed it.
    pub fn end(&self, at_last_record: bool) {
        let last = self.with_thread(|state| {
            if !at_last_record {
                flush_tallies(state);
                flush_partners(state);
            }
            state.muted = true;
            state.stream.last_stamp()
        });
        let end = last.filter(|_| at_last_record).unwrap_or_else(stamp_now);
        self.header().end_stamp.store(end, Ordering::Release);
    }

    /// Stops sampling the calling thread and lets no further thread be attached: the run is over.
    pub fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
        self.look_after_timers(true);
        self.stop_timer();
    }

    /// Stops the calling thread's timer.
    pub(super) fn stop_timer(&self) {
        let _guard = self.lock.lock();
        // SAFETY: the block is the calling thread's.
        if let Some(block) = unsafe { tls::get().as_ref() } {
            block.timer.stop(&self.descriptors);
        }
    }

    fn enable_timer(&self, on: bool) {
        // SAFETY: the block is the calling thread's.
        if let Some(block) = unsafe { tls::get().as_ref() } {
            block.timer.enable(on, self.period_ns);
        }
    }

    /// Pauses or resumes the measurement of the calling thread.
    pub fn pause(&self, pause: bool) {
        self.with_thread(|state| {
            if state.paused == pause {
                return;
            }
            flush_tallies(state);
            state.paused = pause;
            self.enable_timer(!pause);
            let stamp = state.stream.stamp(stamp_now());
            let fitted = state.stream.write(&if pause {
                Record::Pause { stamp }
            } else {
                Record::Resume { stamp }
            });
            state.written(fitted);
        });
    }

    /// Holds this thread's interruptions back around an exec, or lets them go on after one that
    /// failed: a pending signal would kill the new program.
    pub fn hold(&self, hold: bool) {
        self.with_thread(|state| self.enable_timer(!hold && !state.paused));
    }

    /// Code of ours failed: samples no more, on any thread, and attaches no further one. What was
    /// measured is not to be trusted.
    pub fn break_off(&self) {
        self.header().failed.store(1, Ordering::SeqCst);
        self.stopped.store(true, Ordering::Relaxed);
        // Where the lock is taken, perhaps by what this thread has interrupted, samples go on until
        // the end, in vain.
        if let Some(_guard) = self.lock.try_lock() {
            self.silence();
        }
    }

    /// The application, or the runtime of its language, uses the sampling signal itself: samples no more,
    /// on any thread.
    pub fn step_aside(&self) {
        self.step_aside_for(Aside::Program);
    }

    /// Samples no more, on any thread, since others have to do with the sampling signal.
    pub(super) fn step_aside_for(&self, whom: Aside) {
        self.header().stepped_aside.store(whom as u32, Ordering::SeqCst);
        let _guard = self.lock.lock();
        self.silence();
    }

    /// The process is about to forbid itself system calls: no thread of it is interrupted any more, and from
    /// here on it is none that is observed.
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

    /// Waits, for a bounded time, until our code runs on no other thread. The lock is held.
    fn await_handlers(&self) {
        let own = tls::get();
        let runs = |block: &AtomicPtr<ThreadBlock>| {
            let block = block.load(Ordering::Acquire);
            // SAFETY: blocks are unlisted under the lock before they are unmapped.
            block != own && unsafe { block.as_ref() }.is_some_and(ThreadBlock::runs)
        };
        for _ in 0..HANDLER_PATIENCE_MS {
            // What is on its way when the timers stop begins within this time, and a handler that has said
            // that it is over returns.
            std::thread::sleep(Duration::from_millis(1));
            if !self.blocks.iter().any(runs) {
                return;
            }
        }
    }

    /// Lets no timer interrupt any more. The lock is held.
    fn silence(&self) {
        for block in &self.blocks {
            // SAFETY: blocks are unlisted under the lock before they are unmapped.
            if let Some(block) = unsafe { block.load(Ordering::Acquire).as_ref() } {
                block.timer.silence();
            }
        }
    }

    /// Finds threads whose perf event the application has closed. They are sampled by a POSIX timer from
    /// here on. At the end of the run (`ends`), such threads are only counted.
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

    /// A timer of CPU time has taken the place of a perf event.
    pub(super) fn note_fallback(&self) {
        let header = self.header();
        header.kept_period_stamps.store(self.ticked_stamps, Ordering::Relaxed);
        header.clock.store(ClockKind::Timer as u32, Ordering::Relaxed);
    }

    /// Steps aside for a debugger that was attached to the process. One that stops at our signals lets none of
    /// them through: it is looked for where no samples come.
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

    /// For whom sampling has stepped aside.
    pub fn aside(&self) -> Option<Aside> {
        match self.header().stepped_aside.load(Ordering::Relaxed) {
            0 => None,
            debugger if debugger == Aside::Debugger as u32 => Some(Aside::Debugger),
            _ => Some(Aside::Program),
        }
    }

    /// Whether sampling has stepped aside.
    #[inline]
    pub fn has_stepped_aside(&self) -> bool {
        self.header().stepped_aside.load(Ordering::Relaxed) != 0
    }

    /// Whether the sampling signal still is ours; steps aside if it is not. Not every runtime goes through
    /// the C library to take it.
    pub fn may_sample(&self) -> bool {
        if !self.has_stepped_aside() && !sampler::is_installed() {
            self.step_aside();
        }
        !self.has_stepped_aside()
    }
}
