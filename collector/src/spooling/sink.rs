//! A file of ours in a process that is not: the application may close any descriptor, and the next
//! file that it opens gets its number.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::fd::IntoRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use plimsoll_agent::descriptors::hide;

/// Where a spool's bytes go: into memory until there is a file.
pub(crate) enum Sink {
    Memory(Vec<u8>),
    File(OwnFile),
}

/// A file, and how to know it again.
pub(crate) struct OwnFile {
    file: Option<File>,
    path: PathBuf,
    identity: (u64, u64),
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
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl crate::spool::Restart for Sink {
    fn restart(&mut self) -> io::Result<()> {
        match self {
            Self::Memory(held) => held.clear(),
            Self::File(own) => own.own()?.set_len(0)?,
        }
        Ok(())
    }
}

impl OwnFile {
    fn create(path: &Path) -> io::Result<Self> {
        // All writes append, so that a file that was closed for us is gone on with where it ended.
        let file = OpenOptions::new().append(true).create_new(true).open(path)?;
        let file = File::from(hide(file.into()));
        let identity = identity(&file)?;
        Ok(Self { file: Some(file), path: path.to_owned(), identity })
    }

    /// The file; opened again, if the application has closed it.
    fn own(&mut self) -> io::Result<&mut File> {
        if !self.is_ours() {
            self.let_go();
            let file = OpenOptions::new().append(true).open(&self.path)?;
            let file = File::from(hide(file.into()));
            if identity(&file)? != self.identity {
                return Err(io::Error::other("the file was replaced by another"));
            }
            self.file = Some(file);
        }
        self.file.as_mut().ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Whether the descriptor still is that of the file that was created.
    fn is_ours(&self) -> bool {
        self.file.as_ref().is_some_and(|file| identity(file).is_ok_and(|id| id == self.identity))
    }

    /// Forgets a descriptor that is not ours any more: it may be a file of the application's.
    fn let_go(&mut self) {
        if let Some(file) = self.file.take() {
            let _ = file.into_raw_fd();
        }
    }
}

impl Drop for OwnFile {
    fn drop(&mut self) {
        if !self.is_ours() {
            self.let_go();
        }
    }
}

fn identity(file: &File) -> io::Result<(u64, u64)> {
    let metadata = file.metadata()?;
    Ok((metadata.dev(), metadata.ino()))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;
    use crate::spool::Restart;

    #[test]
    fn a_descriptor_that_the_application_closed_is_not_written_to() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("x.spool");
        let mut sink = Sink::default();
        sink.write_all(b"one ").unwrap();
        sink.open(&path).unwrap();
        sink.write_all(b"two ").unwrap();
        let Sink::File(own) = &sink else { panic!("it has a file") };
        let number = own.file.as_ref().unwrap().as_raw_fd();
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
