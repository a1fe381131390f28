//! The records of a thread, read frame by frame past what is damaged.

use plimsoll_wire::record::Decoder;

use crate::history::{History, Setting, ThreadHistory};
use plimsoll_binary::Structures;
use plimsoll_spool::{Frame, Step};

/// A thread whose records are read.
pub(super) struct Reading<'a, 's> {
    pub(super) thread: &'a mut ThreadHistory,
    pub(super) history: &'a mut History,
    pub(super) setting: &'a Setting<'s>,
    pub(super) structures: &'a mut Structures,
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
            if self.history.apply(self.thread, &record, self.setting, self.structures).is_err() {
                self.lose();
            }
        }
        all
    }

    /// Reads a frame of a ring; returns how many records it has. What is lost there its collector has counted.
    pub(super) fn ring(&mut self, frame: &Frame<'_>) -> u64 {
        let (mut bytes, mut decoder, mut all) = (frame.payload(), Decoder::default(), 0);
        if bytes.is_empty() {
            self.history.skip(self.thread);
        }
        while !bytes.is_empty() {
            let Ok(Some((record, length))) = decoder.next(bytes) else {
                self.history.skip(self.thread);
                return all;
            };
            bytes = &bytes[length..];
            all += 1;
            if self.history.apply(self.thread, &record, self.setting, self.structures).is_err() {
                self.history.skip(self.thread);
                return all;
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
