//! A spool that begins anew where it is.

use std::io::{self, Write};

use super::{Index, PREAMBLE_BYTES, SpoolCounts, SpoolError, SpoolWriter, preamble};

/// A sink whose content can be thrown away.
pub trait Restart {
    /// Makes it empty.
    fn restart(&mut self) -> io::Result<()>;
}

impl<W: Write + Restart> SpoolWriter<W> {
    /// Throws away the spool, and begins another in its place.
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
