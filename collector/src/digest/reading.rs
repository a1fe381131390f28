//! The records of a thread, read frame by frame past what is damaged.

use crate::history::{History, Setting, ThreadHistory};
use crate::spool::{Frame, Step};

/// A thread whose records are read.
pub(super) struct Reading<'a, 's> {
    pub(super) thread: &'a mut ThreadHistory,
    pub(super) history: &'a mut History,
    pub(super) setting: &'a Setting<'s>,
    /// All records so far were read.
    pub(super) sound: bool,
}

impl Reading<'_, '_> {
    /// Reads a frame; returns how many records it has.
    pub(super) fn frame(&mut self, frame: &Frame<'_>) -> u64 {
        let Ok(mut records) = frame.records() else {
            self.lose();
            return 0;
        };
        let all = records.records();
        let mut known = if self.sound { records.prelude() } else { 0 };
        if records.prelude() > 0 {
            self.sound = true;
        }
        loop {
            let record = match records.next() {
                Ok(Some(record)) => record,
                Ok(None) => return all,
                Err(_) => break self.lose(),
            };
            if known > 0 {
                known -= 1;
                continue;
            }
            if self.history.apply(self.thread, &record, self.setting).is_err() {
                self.lose();
            }
        }
        all
    }

    /// Something of the stream is not there.
    pub(super) fn interrupted(&mut self, step: &Step<'_>) {
        // Where it is not known of which stream the bytes were, a gap in the numbers tells.
        if !matches!(step, Step::Damaged(damage) if damage.frame.is_none()) {
            self.lose();
        }
    }

    pub(super) fn lose(&mut self) {
        self.history.lose(self.thread);
        self.sound = false;
    }
}
