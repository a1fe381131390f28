//! Reader of a thread's records, frame by frame, skipping damaged frames.

use plimsoll_wire::record::Decoder;

use crate::history::{History, Setting, ThreadHistory};
use plimsoll_binary::Structures;
use plimsoll_spool::{Frame, Step};

/// Thread under replay, with the state that its records update.
pub(super) struct Reading<'a, 's> {
    pub(super) thread: &'a mut ThreadHistory,
    pub(super) history: &'a mut History,
    pub(super) setting: &'a Setting<'s>,
    pub(super) structures: &'a mut Structures,
    /// Set if all records so far were read.
    pub(super) sound: bool,
}

impl Reading<'_, '_> {
    /// Replays a frame of records; returns their number.
    pub(super) fn frame(&mut self, frame: &Frame<'_>) -> u64 {
        let Ok(mut records) = frame.records() else {
            self.mark_gap();
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
                Err(_) => break self.mark_gap(),
            };
            if known > 0 {
                known -= 1;
                continue;
            }
            if self.history.apply(self.thread, &record, self.setting, self.structures).is_err() {
                self.mark_gap();
            }
        }
        all
    }

    /// Replays a frame of raw ring bytes; returns the number of records. Losses in it were already
    /// counted by the collector.
    pub(super) fn ring(&mut self, frame: &Frame<'_>) -> u64 {
        let (mut bytes, mut decoder, mut all) = (frame.payload(), Decoder::default(), 0);
        if bytes.is_empty() {
            self.history.mark_gap(self.thread);
        }
        while !bytes.is_empty() {
            let Ok(Some((record, length))) = decoder.next(bytes) else {
                self.history.mark_gap(self.thread);
                return all;
            };
            bytes = &bytes[length..];
            all += 1;
            if self.history.apply(self.thread, &record, self.setting, self.structures).is_err() {
                self.history.mark_gap(self.thread);
                return all;
            }
        }
        all
    }

    /// Handles a missing or damaged part of the stream.
    pub(super) fn interrupted(&mut self, step: &Step<'_>) {
        // Damage of an unknown stream is skipped here: the gap in the frame numbers reveals the
        // stream.
        if !matches!(step, Step::Damaged(damage) if damage.frame.is_none()) {
            self.mark_gap();
        }
    }

    pub(super) fn mark_gap(&mut self) {
        self.history.count_unreadable(self.thread);
        self.sound = false;
    }
}
