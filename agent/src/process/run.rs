//! The observed run: its begin and end, pauses, and what ends the measurement before.

use core::sync::atomic::Ordering;

use super::Observed;
use crate::clock::stamp_now;
use crate::record::Record;
use crate::regions::{discard_tallies, flush_tallies};

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
        self.with_thread(|state| state.timer.stop(&self.descriptors));
    }

    /// Pauses or resumes the measurement of the calling thread.
    pub fn pause(&self, pause: bool) {
        self.with_thread(|state| {
            if state.paused == pause {
                return;
            }
            flush_tallies(state);
            state.paused = pause;
            state.timer.enable(!pause, self.period_ns);
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
        self.with_thread(|state| state.timer.enable(!hold && !state.paused, self.period_ns));
    }

    /// The application uses the sampling signal itself: sample no more.
    pub fn step_aside(&self) {
        self.header().stepped_aside.store(1, Ordering::Relaxed);
        self.with_thread(|state| state.timer.stop(&self.descriptors));
    }
}
