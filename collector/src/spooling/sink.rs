//! A file of ours in a process that is not: the application may close any descriptor, and the next
//! file that it opens gets its number.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use plimsoll_sys::own::Own;

use plimsoll_sys::own_files;

/// Where a spool's bytes go: into memory until there is a file.
pub(crate) enum Sink {
    Memory(Vec<u8>),
    File(OwnFile),
    /// No file could be created: writes fail.
    Missing,
}

/// A file, and how to open it again.
pub(crate) struct OwnFile {
    file: Own<File>,
    path: PathBuf,
}

impl Default for Sink {
    fn default() -> Self {
        Self::Memory(Vec::new())
    }
}

impl Sink {
    /// Creates the file, which must not be there, and writes what memory holds.
    pub(super) fn open(&mut self, path: &Path) -> io::Result<()> {
        let Self::Memory(bytes) = self else { return Ok(()) };
        let mut own = OwnFile::create(path)?;
        own.own()?.write_all(bytes)?;
        *self = Self::File(own);
        Ok(())
    }
}

impl Write for Sink {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        match self {
            Self::Memory(held) => held.write(bytes),
            Self::File(own) => own.own()?.write(bytes),
            Self::Missing => Err(io::ErrorKind::NotFound.into()),
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        match self {
            Self::Memory(_) | Self::File(_) => Ok(()),
            Self::Missing => Err(io::ErrorKind::NotFound.into()),
        }
    }
}

impl plimsoll_spool::Restart for Sink {
    fn restart(&mut self) -> io::Result<()> {
        match self {
            Self::Memory(held) => held.clear(),
            Self::File(own) => own.own()?.get()?.set_len(0)?,
            Self::Missing => {}
        }
        Ok(())
    }
}

impl OwnFile {
    fn create(path: &Path) -> io::Result<Self> {
        // All writes append, so that a file that was closed for us is gone on with where it ended.
        Ok(Self { file: own_files::create(path)?, path: path.to_owned() })
    }

    /// Returns the file, reopened if the application has closed it.
    fn own(&mut self) -> io::Result<&mut Own<File>> {
        if !self.file.is_ours() {
            // A link or a pipe may have taken its place.
            let flags = libc::O_NOFOLLOW | libc::O_NONBLOCK;
            let file = File::options().append(true).custom_flags(flags).open(&self.path)?;
            let file = Own::hidden(file)?;
            if file.identity() != self.file.identity() {
                return Err(io::Error::other("the file was replaced by another"));
            }
            self.file = file;
        }
        Ok(&mut self.file)
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;
    use plimsoll_spool::Restart;

    #[test]
    fn a_descriptor_that_the_application_closed_is_not_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.spool");
        let mut sink = Sink::default();
        sink.write_all(b"one ").unwrap();
        sink.open(&path).unwrap();
        sink.write_all(b"two ").unwrap();
        let Sink::File(own) = &sink else { panic!("it has a file") };
        let number = own.file.get().unwrap().as_raw_fd();
        // The application closes it, and another file gets its number.
        let other = folder.path().join("other");
        let foreign = File::create(&other).unwrap();
        // SAFETY: plain system calls on descriptors of this test.
        unsafe { assert_eq!(libc::dup2(foreign.as_raw_fd(), number), number) };
        sink.write_all(b"three").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"one two three");
        sink.restart().unwrap();
        sink.write_all(b"four").unwrap();
        assert_eq!(std::fs::read(&path).unwrap(), b"four");
        drop(sink);
        assert_eq!(std::fs::read(&other).unwrap(), b"");
        // SAFETY: as above; it is still open, for it was not ours to close.
        unsafe { assert_eq!(libc::close(number), 0) };
        // What is there is not written over.
        assert!(Sink::default().open(&path).is_err());
    }
}
