//! Writer of a spool.

mod another;
mod restart;

use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Write};

use plimsoll_wire::record::Record;
use serde::Serialize;

use super::address_columns::{self, Address};
use super::frame::{Kind, MAX_RAW_BYTES, Packed, Packer, Stream};
use super::index::Index;
use super::payload::Payload;
use super::reader::Frame;
use super::spool_error::SpoolError;
use super::thread_stream::Thread;
use super::{PREAMBLE_BYTES, preamble};
use rustc_hash::FxHashMap;

pub use restart::Restart;

/// Minimum size, in raw bytes, at which a thread's columns become a frame.
const FRAME_BYTES: usize = 256 << 10;

/// Size in bytes below which a payload stays uncompressed: compression saves a few bytes of it, and
/// takes microseconds. A thread that does little is three such payloads.
const MIN_PACKED_BYTES: usize = 160;

/// Number of [`SpoolWriter::record`] calls between checks of the columns' size. Each call adds at
/// most two records, so columns exceed [`FRAME_BYTES`] by at most 700 KiB.
const LOOK_EVERY: u32 = 64;

/// Minimum size, in bytes, at which the held frames are written to the sink.
const WRITE_BYTES: usize = 1 << 20;

/// Counts of what a writer has written and lost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SpoolCounts {
    /// Number of bytes written.
    pub bytes: u64,
    /// Number of whole frames written, indices included.
    pub frames: u64,
    /// Number of records in the written frames.
    pub records: u64,
    /// Number of samples merged into a later record since [`SpoolWriter::halve`] was called.
    pub merged_samples: u64,
    /// Number of records neither in a written frame nor merged into a record that is: their stacks
    /// were too deep, or the disk was full.
    pub lost: u64,
}

/// Frame that is not yet written to the sink.
struct Unwritten {
    /// Offset of its end in `SpoolWriter::frames`.
    end: usize,
    records: u64,
    merged: u64,
}

/// Writer of a spool. After an error of the sink the writer writes nothing more, whole frames
/// stay valid, and [`SpoolWriter::error`] returns the error: the job continues without the spool.
pub struct SpoolWriter<W: Write> {
    sink: W,
    packer: Packer,
    payload: Payload,
    /// Bytes of whole frames that are not yet written.
    frames: Vec<u8>,
    unwritten: Vec<Unwritten>,
    /// Offset in the file of the end of `frames`.
    offset: u64,
    /// Number of the next frame of each stream, without those of ended threads.
    sequences: BTreeMap<Stream, u32>,
    threads: FxHashMap<u32, Thread>,
    index: Index,
    /// Whether each frame of a thread restores the reader's state from the frames before.
    checkpoint: bool,
    /// Whether frames stay uncompressed, apart from frames shared with another spool.
    stored: bool,
    /// Thinning level: one sample in 2^`level` is kept.
    level: u32,
    counts: SpoolCounts,
    error: Option<io::Error>,
}

impl<W: Write> SpoolWriter<W> {
    /// Begins a spool in an empty file. Fails if there is no memory for the compressor; an error of
    /// the file is returned by [`SpoolWriter::error`] instead.
    pub fn new(sink: W) -> Result<Self, SpoolError> {
        let mut writer = Self {
            sink,
            packer: Packer::new()?,
            payload: Payload::default(),
            frames: preamble().to_vec(),
            unwritten: Vec::new(),
            offset: PREAMBLE_BYTES as u64,
            sequences: BTreeMap::new(),
            threads: FxHashMap::default(),
            index: Index::new(PREAMBLE_BYTES as u64),
            checkpoint: false,
            stored: false,
            level: 0,
            counts: SpoolCounts::default(),
            error: None,
        };
        writer.write_out();
        Ok(writer)
    }

    /// Returns the sink.
    pub fn sink_mut(&mut self) -> &mut W {
        &mut self.sink
    }

    /// Begins each frame, from the next thread on, with the reader's state after the previous
    /// frames, so that a lost frame does not make later ones unreadable. Costs a few hundred bytes
    /// per frame: intended for frames of some seconds.
    pub fn stand_alone(mut self) -> Self {
        self.checkpoint = true;
        self
    }

    /// Turns compression off: for a temporary file of many small frames.
    pub fn uncompressed(mut self) -> Self {
        self.stored = true;
        self
    }

    /// Releases the memory in which frames were made, about 0.7 MiB after a large one. The next
    /// frame allocates it again.
    pub fn release(&mut self) {
        self.packer.release();
        self.payload = Payload::default();
    }

    /// Adds a value as JSON to the stream of values `stream`. Like everything added, the value is
    /// in the file after the next flush at the latest, and before any record that is added later.
    pub fn meta(&mut self, stream: u32, value: &impl Serialize) -> Result<(), SpoolError> {
        self.json(stream, &serde_json::to_vec(value)?)
    }

    /// Adds a value that is JSON already, like [`SpoolWriter::meta`]; at most [`MAX_RAW_BYTES`].
    pub fn json(&mut self, stream: u32, json: &[u8]) -> Result<(), SpoolError> {
        if json.len() > MAX_RAW_BYTES {
            return Err(SpoolError::TooLarge(json.len()));
        }
        self.payload.clear();
        self.payload.part(json);
        self.put(Stream { kind: Kind::Meta, number: stream }, 1, 0);
        Ok(())
    }

    /// Adds addresses of the process `stream`. The first address has id `first`; the ids of the
    /// others are consecutive.
    pub fn addresses(&mut self, stream: u32, first: u32, addresses: &[Address]) {
        let mut id = first;
        for addresses in addresses.chunks(address_columns::MAX_PER_FRAME) {
            address_columns::write(id, addresses, &mut self.payload);
            let stream = Stream { kind: Kind::Addresses, number: stream };
            self.put(stream, addresses.len() as u64, 0);
            id = id.wrapping_add(addresses.len() as u32);
        }
    }

    /// Begins the records of a thread with ticks `period` stamps apart. Without this call, ticks
    /// are never merged. The stream must be new.
    pub fn begin(&mut self, stream: u32, period: u64) {
        if self.error.is_none() {
            let thread = Thread::new(Some(period), self.checkpoint);
            let earlier = self.threads.insert(stream, thread);
            debug_assert!(earlier.is_none(), "a stream has the records of one thread");
        }
    }

    /// Adds a record to those of a thread.
    pub fn record(&mut self, stream: u32, record: &Record<'_>) {
        if self.error.is_some() {
            self.counts.lost += 1;
            return;
        }
        let checkpoint = self.checkpoint;
        let thread = self.threads.entry(stream).or_insert_with(|| Thread::new(None, checkpoint));
        self.counts.lost += thread.pass(record, self.level);
        thread.calls += 1;
        if thread.calls == LOOK_EVERY {
            thread.calls = 0;
            if thread.builder.raw_bytes() >= FRAME_BYTES {
                self.close(stream);
            }
        }
    }

    /// Adds records of a thread as encoded in its ring: whole records that continue the previous
    /// ones, at most [`MAX_RAW_BYTES`]. Empty `bytes` mean that records are lost here, and that
    /// later ones are usable from the next whole stack on.
    pub fn ring(&mut self, stream: u32, bytes: &[u8]) {
        debug_assert!(bytes.len() <= MAX_RAW_BYTES, "rings are smaller");
        self.payload.clear();
        self.payload.part(bytes);
        self.put(Stream { kind: Kind::Ring, number: stream }, 1, 0);
    }

    /// Ends the records of a thread: adds its held records as a frame and frees its memory. The
    /// stream must not be used again, because its frames would be numbered anew.
    pub fn end(&mut self, stream: u32) {
        if let Some(thread) = self.threads.get_mut(&stream) {
            self.counts.lost += thread.release();
            self.close(stream);
            self.threads.remove(&stream);
            self.sequences.remove(&Stream { kind: Kind::Records, number: stream });
        }
    }

    /// Writes all records so far to the sink, so that they survive a sudden end of the process.
    pub fn flush(&mut self) {
        let mut streams: Vec<u32> = self.threads.keys().copied().collect();
        streams.sort_unstable();
        for stream in streams {
            if let Some(thread) = self.threads.get_mut(&stream) {
                self.counts.lost += thread.release();
            }
            self.close(stream);
        }
        self.write_out();
    }

    /// Returns the streams of the threads that have begun and not ended, with the number of their
    /// next frame.
    pub fn next_frames(&self) -> Vec<(u32, u32)> {
        let next = |number: &u32| {
            let stream = Stream { kind: Kind::Records, number: *number };
            (*number, self.sequences.get(&stream).copied().unwrap_or(0))
        };
        self.threads.keys().map(next).collect()
    }

    /// Returns the number of bytes that a flush would write, roughly, before compression.
    pub fn held_bytes(&self) -> usize {
        self.threads.values().map(|thread| thread.builder.raw_bytes()).sum::<usize>()
            + self.frames.len()
    }

    /// Halves the fraction of samples kept of each thread from now on, for a disk that fills too
    /// fast. Frames of few samples take more bytes per sample: also flush less often.
    pub fn halve(&mut self) {
        self.level = self.level.saturating_add(1);
    }

    /// Returns the thinning level: one sample in 2^level is kept.
    pub fn level(&self) -> u32 {
        self.level
    }

    /// Writes the remaining records and the index.
    pub fn finish(mut self) -> Result<SpoolCounts, SpoolError> {
        let streams: Vec<u32> = self.threads.keys().copied().collect();
        for stream in streams {
            self.end(stream);
        }
        self.put_index();
        self.frames.extend_from_slice(&self.index.trailer());
        self.write_out();
        match self.error {
            Some(error) => Err(SpoolError::Io(error)),
            None => Ok(self.counts),
        }
    }

    /// Returns the error after which nothing more is written, mostly a full disk; `None` while
    /// there is none.
    pub fn error(&self) -> Option<&io::Error> {
        self.error.as_ref()
    }

    /// Returns the counts so far.
    pub fn counts(&self) -> SpoolCounts {
        self.counts
    }

    /// Makes a frame of a thread's columns, unless they are empty.
    fn close(&mut self, stream: u32) {
        let Some(Thread { builder, .. }) = self.threads.get_mut(&stream) else { return };
        if builder.records() == 0 {
            return;
        }
        let (records, merged) = (builder.records() - builder.prelude(), builder.merged());
        builder.finish(&mut self.payload);
        self.put(Stream { kind: Kind::Records, number: stream }, records, merged);
    }

    /// Makes a frame of the payload, which has `items` items; `merged` samples were merged into its
    /// records.
    fn put(&mut self, stream: Stream, items: u64, merged: u64) {
        let records = if stream.kind == Kind::Records { items } else { 0 };
        if let Some((sequence, bytes)) = self.put_frame(stream, records, merged) {
            self.added(stream, sequence, bytes, items);
        }
    }

    /// Registers a new frame in the index; writes the index or the held frames when due.
    fn added(&mut self, stream: Stream, sequence: u32, bytes: u64, items: u64) {
        if self.index.add(stream, sequence, bytes, items) {
            self.put_index();
        }
        if self.frames.len() >= WRITE_BYTES {
            self.write_out();
        }
    }

    fn put_index(&mut self) {
        self.index.write(&mut self.payload);
        let offset = self.offset;
        if self.put_frame(Stream { kind: Kind::Index, number: 0 }, 0, 0).is_some() {
            self.index.written(offset, self.offset);
        }
    }

    /// Makes a frame of the payload. Returns its number in the stream and its size in bytes, `None`
    /// after an error.
    fn put_frame(&mut self, stream: Stream, records: u64, merged: u64) -> Option<(u32, u64)> {
        if self.error.is_some() {
            self.counts.lost += records + merged;
            return None;
        }
        let Some(packed) = self.packed() else {
            self.counts.lost += records + merged;
            return None;
        };
        let added = self.add_frame(stream, &packed, records, merged);
        self.packer.reuse(packed);
        Some(added)
    }

    /// Returns the payload, compressed unless compression is off or hardly saves anything. If the
    /// compression fails, the writer fails and writes nothing more.
    fn packed(&mut self) -> Option<Packed> {
        if self.stored || self.payload.bytes().len() < MIN_PACKED_BYTES {
            return Some(self.packer.store(self.payload.bytes()));
        }
        let packed = self.packer.pack(&self.payload).inspect_err(|_| self.write_out());
        packed.map_err(|error| self.fail(error)).ok()
    }

    /// Appends a frame to the held frames. Returns its number in the stream and its size in bytes.
    fn add_frame(
        &mut self,
        stream: Stream,
        packed: &Packed,
        records: u64,
        merged: u64,
    ) -> (u32, u64) {
        let before = self.frames.len();
        let next = self.sequences.entry(stream).or_default();
        let sequence = *next;
        packed.frame(stream, sequence, &mut self.frames);
        // The number wraps to 0, which a reader takes for damage: after 136 years at a frame per
        // second.
        *next = sequence.wrapping_add(1);
        let end = self.frames.len();
        self.unwritten.push(Unwritten { end, records, merged });
        let bytes = (end - before) as u64;
        self.offset += bytes;
        (sequence, bytes)
    }

    fn write_out(&mut self) {
        let mut written = 0;
        while self.error.is_none() && written < self.frames.len() {
            match self.sink.write(&self.frames[written..]) {
                Ok(0) => self.fail(ErrorKind::WriteZero.into()),
                Ok(bytes) => written += bytes,
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                Err(error) => self.fail(error),
            }
        }
        if self.error.is_none()
            && let Err(error) = self.sink.flush()
        {
            self.fail(error);
        }
        self.counts.bytes += written as u64;
        for frame in self.unwritten.drain(..) {
            if frame.end <= written {
                self.counts.frames += 1;
                self.counts.records += frame.records;
                self.counts.merged_samples += frame.merged;
            } else {
                self.counts.lost += frame.records + frame.merged;
            }
        }
        self.frames.clear();
    }

    /// Stores the error and drops all held records, counting them as lost: nothing is written any
    /// more.
    fn fail(&mut self, error: io::Error) {
        self.error = Some(error);
        for (_, mut thread) in self.threads.drain() {
            let builder = &thread.builder;
            self.counts.lost += builder.records() - builder.prelude() + builder.merged();
            thread.thinning.release(|_, merged| self.counts.lost += merged + 1);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ended_threads_take_no_memory() {
        let mut writer = SpoolWriter::new(io::sink()).unwrap();
        for stream in 0..100 {
            writer.begin(stream, 100);
            writer.record(stream, &Record::Lost { records: 1 });
            writer.end(stream);
        }
        assert!(writer.threads.is_empty() && writer.sequences.is_empty());
    }
}
