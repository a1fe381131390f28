//! Transfer of values, states and frames from one spool to another.

use std::io::Write;

use super::{Frame, Kind, MAX_RAW_BYTES, Packed, SpoolError, SpoolWriter, Stream};

impl<W: Write> SpoolWriter<W> {
    /// Adds a JSON value ([`SpoolWriter::json`]) to this spool and another one, compressed only
    /// once.
    pub fn json_in_both(
        &mut self,
        other: &mut Self,
        stream: u32,
        json: &[u8],
    ) -> Result<(), SpoolError> {
        if self.error.is_some() || other.error.is_some() || json.len() > MAX_RAW_BYTES {
            return self.json(stream, json).and_then(|()| other.json(stream, json));
        }
        self.payload.clear();
        self.payload.part(json);
        let Some(packed) = self.packed() else { return other.json(stream, json) };
        let stream = Stream { kind: Kind::Meta, number: stream };
        for writer in [&mut *self, other] {
            let (sequence, bytes) = writer.add_frame(stream, &packed, 0, 0);
            writer.added(stream, sequence, bytes, 1);
        }
        self.packer.reuse(packed);
        Ok(())
    }

    /// Writes the state of this spool's running threads (begun, not ended) to another spool, for a
    /// reader of the other spool's ring frames that has not seen all records of this one.
    pub fn restate(&self, other: &mut Self) {
        for (stream, thread) in &self.threads {
            if thread.restate(&mut other.payload) {
                other.put(Stream { kind: Kind::Records, number: *stream }, 0, 0);
            }
        }
    }

    /// Adds a frame of another spool unchanged, to the stream of the same number. Fails if a frame
    /// of records cannot be decoded; an error of the file is returned by [`SpoolWriter::error`]
    /// instead.
    pub fn copy(&mut self, frame: &Frame<'_>) -> Result<(), SpoolError> {
        let (records, merged) = match frame.info.stream.kind {
            Kind::Records => {
                let records = frame.records()?;
                (records.records() - records.prelude().min(records.records()), records.merged())
            }
            _ => (0, 0),
        };
        if self.error.is_some() {
            self.counts.lost += records + merged;
            return Ok(());
        }
        let packed = Packed::new(frame.payload().len(), frame.packed().to_vec());
        let (sequence, bytes) = self.add_frame(frame.info.stream, &packed, records, merged);
        self.added(frame.info.stream, sequence, bytes, frame.info.items.unwrap_or(records.max(1)));
        Ok(())
    }
}
