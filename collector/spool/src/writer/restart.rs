//! Restart of a spool in its file.

use std::io::{self, Write};

use super::{Index, PREAMBLE_BYTES, SpoolCounts, SpoolError, SpoolWriter, preamble};

/// Sink that can be emptied.
pub trait Restart {
    /// Empties the sink.
    fn restart(&mut self) -> io::Result<()>;
}

impl<W: Write + Restart> SpoolWriter<W> {
    /// Discards the spool's content and begins another spool in its place. The count of lost
    /// records is kept.
    pub fn restart(&mut self) -> Result<(), SpoolError> {
        self.threads.clear();
        self.sequences.clear();
        self.unwritten.clear();
        self.error = None;
        self.frames = preamble().to_vec();
        self.offset = PREAMBLE_BYTES as u64;
        self.index = Index::new(self.offset);
        self.counts = SpoolCounts { lost: self.counts.lost, ..SpoolCounts::default() };
        self.sink.restart()?;
        self.write_out();
        Ok(())
    }
}
