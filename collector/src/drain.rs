//! Draining of the rings: from bytes to replayed records. Draining ends at the head of the ring for
//! any ring content.

use std::sync::atomic::Ordering;

use plimsoll_wire::record::{DecodeError, MAX_RECORD_BYTES};
use plimsoll_wire::segment::{MAX_THREADS, ThreadState};
use plimsoll_wire::teams::PathKey;

use crate::attach::Area;
use crate::collected_process::{Process, Scratch, ThreadReader, ThreadSlot, final_state, setting};
use crate::replay::Replay;
use crate::replay_target::{CorruptStream, Window};
use crate::spooling::Spooling;

/// Maximum number of bytes copied out of a ring at a time; holds many records.
const CHUNK_BYTES: usize = 1 << 16;
const _: () = assert!(CHUNK_BYTES > 2 * MAX_RECORD_BYTES);

impl Process {
    /// Drains the rings of all threads; returns the fill level of the fullest ring in percent.
    pub(crate) fn drain(&mut self, scratch: &mut Scratch) -> u64 {
        let used = self.segment.process().threads.load(Ordering::Acquire) as usize;
        let used = used.min(MAX_THREADS);
        if self.thread_slots.len() < used {
            self.thread_slots.resize_with(used, || None);
        }
        let mut fullest = 0;
        for index in 0..self.thread_slots.len() {
            let mut slot = match self.thread_slots[index].take() {
                Some(slot) => slot,
                None => match self.segment.area(index) {
                    Ok(area) => ThreadSlot { area, reader: None },
                    // Tried again in the next round. A thread with an area that is never mapped
                    // counts as unsampled.
                    Err(_) => continue,
                },
            };
            fullest = fullest.max(self.drain_slot(index, &mut slot, scratch));
            self.thread_slots[index] = Some(slot);
        }
        self.first_round = false;
        fullest
    }

    fn drain_slot(&mut self, index: usize, slot: &mut ThreadSlot, scratch: &mut Scratch) -> u64 {
        let thread = slot.area.thread();
        // The order of the loads matters: later loads are at least as new. Therefore the head of an
        // ended thread is final, and all records up to the head were written under the begin of the
        // run that is read last.
        let state = thread.state.load(Ordering::Acquire);
        if state != ThreadState::Live as u32 && state != ThreadState::Ended as u32 {
            slot.reader = None;
            return 0;
        }
        let generation = thread.generation.load(Ordering::Acquire);
        let mut reader = match slot.reader.take() {
            Some(reader) if reader.generation == generation => reader,
            _ => self.begin_reader(&slot.area, generation, scratch.spool.as_mut()),
        };
        let head = thread.head.load(Ordering::Acquire);
        let window = self.window();
        self.choose_main(index, &mut reader);
        reader.thread.is_main = self.is_main(index, &reader);
        let full = slot.area.percent(head.wrapping_sub(reader.unread()));
        self.read(&slot.area, &mut reader, head, window, scratch);
        if state == ThreadState::Ended as u32 {
            let last = thread.last_stamp.load(Ordering::Relaxed).min(window.latest);
            let counters = final_state(&slot.area, self.history.is_unfollowed(&reader.thread));
            self.close_reader(&mut reader, counters, last, scratch);
            slot.area.free();
        } else {
            slot.reader = Some(reader);
        }
        full
    }

    /// Registers a thread that is new to this collector. Its stream is read from the beginning,
    /// even if another collector has read a part, provided that the ring still holds all of it.
    fn begin_reader(
        &mut self,
        area: &Area,
        generation: u32,
        spool: Option<&mut Spooling>,
    ) -> ThreadReader {
        let thread = area.thread();
        let head = thread.head.load(Ordering::Acquire);
        let tail = thread.tail.load(Ordering::Acquire);
        let mut born = Some(thread.born.load(Ordering::Relaxed)).filter(|stamp| *stamp != 0);
        let mut replay = Replay::new(born);
        let mut position = tail;
        let mut is_whole = true;
        if self.first_round && tail != 0 {
            born = None;
            replay = Replay::new(born);
            if generation <= 1 && tail <= head && head <= area.ring_bytes() {
                position = 0;
            } else {
                replay.mark_gap();
                is_whole = false;
            }
        }
        let routine = thread.start_routine.load(Ordering::Relaxed);
        let origin = PathKey(thread.origin.load(Ordering::Relaxed));
        let thread = self.history.thread(routine, origin, replay, &self.segment);
        let period = self.segment.process().period_stamps.load(Ordering::Relaxed);
        let stream = spool.zip(self.spool_cursor.as_ref()).map(|(spool, spool_cursor)| {
            let process = spool_cursor.process;
            let stream = spool.thread(process, thread.routine, origin, born, period);
            if !is_whole {
                spool.ring(stream, &[]);
            }
            stream
        });
        ThreadReader {
            generation,
            position,
            journaled: position,
            read_before: tail,
            thread,
            stream,
        }
    }

    /// Makes the thread in area `index` the communicating one if the header says so. A change of
    /// the communicating thread restarts the run.
    fn choose_main(&mut self, index: usize, reader: &mut ThreadReader) {
        let named = self.segment.process().main_thread.load(Ordering::Acquire) as usize;
        if named != index || self.main.is_some_and(|(area, _)| area == index) {
            return;
        }
        if self.main.is_some() {
            self.restart(self.history.begin());
        }
        self.main = Some((index, reader.generation));
        self.main_stream = reader.stream;
        self.history.make_main(&mut reader.thread);
    }

    /// Drains the ring of a thread up to `head`.
    pub(crate) fn read(
        &mut self,
        area: &Area,
        reader: &mut ThreadReader,
        head: u64,
        window: Window,
        scratch: &mut Scratch,
    ) {
        let thread = area.thread();
        while reader.position != head {
            let pending = head.wrapping_sub(reader.position);
            let length = pending.min(CHUNK_BYTES as u64) as usize;
            let again = reader.position < reader.read_before;
            let result = if pending > area.ring_bytes() {
                Err(CorruptStream)
            } else {
                area.copy(reader.position, length, &mut scratch.bytes);
                let overwritten = again && thread.head.load(Ordering::Acquire) > area.ring_bytes();
                if overwritten { Err(CorruptStream) } else { self.decode(reader, window, scratch) }
            };
            match result {
                // A chunk may end inside a record; the stream must not.
                Ok(used) if used == length || (used > 0 && pending > length as u64) => {
                    if let Some((spool, stream)) = scratch.spool.as_mut().zip(reader.stream) {
                        // The producer may overwrite bytes once they are read, so they go to the
                        // spool now.
                        let known = reader.journaled.saturating_sub(reader.position) as usize;
                        if known < used {
                            spool.ring(stream, &scratch.bytes[known..used]);
                        }
                    }
                    reader.position = reader.position.wrapping_add(used as u64);
                    self.history.counts.record_bytes += used as u64;
                }
                _ => {
                    self.history.count_unreadable(&mut reader.thread);
                    if let Some((spool, stream)) = scratch.spool.as_mut().zip(reader.stream) {
                        spool.mark_gap(stream);
                    }
                    if again {
                        reader.position = reader.read_before;
                    } else {
                        reader.position = head;
                        reader.read_before = reader.read_before.min(head);
                    }
                }
            }
            reader.journaled = reader.journaled.max(reader.position);
            if reader.position >= reader.read_before {
                thread.tail.store(reader.position, Ordering::Release);
            }
        }
    }

    /// Replays the complete records at the beginning of the scratch bytes; returns their length in
    /// bytes.
    fn decode(
        &mut self,
        reader: &mut ThreadReader,
        window: Window,
        scratch: &mut Scratch,
    ) -> Result<usize, CorruptStream> {
        let setting = setting(&self.segment, window);
        let Scratch { bytes, decoder, spool, structures } = scratch;
        let mut spool = spool.as_mut().zip(reader.stream);
        let mut used = 0;
        loop {
            let (record, length) = match decoder.next(&bytes[used..]) {
                Ok(Some(next)) => next,
                Ok(None) | Err(DecodeError::Truncated) => return Ok(used),
                Err(_) => return Err(CorruptStream),
            };
            used += length;
            let accepted = reader.thread.replay.accepts(&record);
            self.history.apply(&mut reader.thread, &record, &setting, structures)?;
            if let (true, Some((spool, stream))) = (accepted, &mut spool) {
                spool.record(*stream, &record);
            }
        }
    }
}
