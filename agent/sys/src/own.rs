//! File descriptors of Plimsoll in the application's process.
//!
//! The application may close any descriptor, as daemons do with closefrom(3), and the next file
//! that it opens may get the number. So each use of a number first checks that it still refers to
//! the file that it was opened for. Between the check and the use lie microseconds, in which
//! another thread of the application may close the descriptor and open a file: this danger remains.

use core::ffi::c_int;
use core::mem::{ManuallyDrop, MaybeUninit};
use std::fs::File;
use std::io::{self, Read, Seek, Write};
use std::os::fd::{AsRawFd, OwnedFd};

use crate::descriptors::hide;
use crate::quiet::quietly;
use crate::syscalls::syscall;

/// Identity of the file behind a descriptor: equal for all descriptors of one file, pipe, socket or
/// terminal, and different for any other. All anonymous inodes (perf events, epoll(7)) share one
/// identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity {
    /// Device number of the file system that holds the inode.
    pub device: u64,
    /// Inode number, unique on its device.
    pub inode: u64,
    /// Device number of a special file.
    special: u64,
    /// Kind of the file, as in `st_mode` (inode(7)).
    kind: u32,
}

impl Identity {
    /// Returns the identity of an open descriptor; `None` if it is closed. Async-signal-safe, and
    /// leaves errno alone.
    pub fn of(descriptor: c_int) -> Option<Self> {
        let mut stat = MaybeUninit::<libc::stat>::uninit();
        // SAFETY: the kernel fills in the structure if it returns no error.
        let stat = unsafe {
            syscall!(libc::SYS_fstat, descriptor, stat.as_mut_ptr()).ok()?;
            stat.assume_init()
        };
        Some(Self {
            device: stat.st_dev,
            inode: stat.st_ino,
            special: stat.st_rdev,
            kind: stat.st_mode & libc::S_IFMT,
        })
    }
}

/// A descriptor's number and the identity of its file when it was opened.
#[derive(Clone, Copy, Debug)]
pub struct Known {
    number: c_int,
    identity: Identity,
}

impl Known {
    /// Records an open descriptor; `None` if it is closed.
    pub fn new(number: c_int) -> Option<Self> {
        Some(Self { number, identity: Identity::of(number)? })
    }

    /// Returns the number; `None` if it no longer refers to the same file.
    pub fn get(&self) -> Option<c_int> {
        self.is_ours().then_some(self.number)
    }

    /// Returns whether the number still refers to the same file.
    pub fn is_ours(&self) -> bool {
        Identity::of(self.number) == Some(self.identity)
    }

    /// Writes to the descriptor if it still refers to the same file, and raises no signal in the
    /// application. Bytes that cannot be written are lost. Async-signal-safe, and leaves errno
    /// alone.
    pub fn write(&self, bytes: &[u8]) {
        if self.is_ours() {
            quietly(|| {
                // SAFETY: the length is that of the bytes.
                let _ =
                    unsafe { syscall!(libc::SYS_write, self.number, bytes.as_ptr(), bytes.len()) };
            });
        }
    }

    /// Returns the number, even if it refers to another file now.
    pub fn number(&self) -> c_int {
        self.number
    }

    /// Returns the identity of the file that the number was opened for.
    pub fn identity(&self) -> Identity {
        self.identity
    }
}

/// An open file or socket of Plimsoll, used and closed only while its number refers to it.
#[derive(Debug)]
pub struct Own<T: AsRawFd> {
    open: ManuallyDrop<T>,
    known: Known,
}

impl<T: AsRawFd + From<OwnedFd> + Into<OwnedFd>> Own<T> {
    /// Moves an open file out of the application's sight, to a high number that closes on exec. If
    /// that is not possible, the file keeps its number.
    ///
    /// # Errors
    /// If the descriptor is closed already.
    pub fn hidden(open: T) -> io::Result<Self> {
        Self::new(hide(open.into()).into())
    }
}

impl<T: AsRawFd> Own<T> {
    /// Takes an open file, which keeps its number.
    ///
    /// # Errors
    /// If the descriptor is closed already.
    pub fn new(open: T) -> io::Result<Self> {
        let open = ManuallyDrop::new(open);
        let known = Known::new(open.as_raw_fd()).ok_or_else(gone)?;
        Ok(Self { open, known })
    }

    /// Returns the file.
    ///
    /// # Errors
    /// If the application has closed its descriptor.
    pub fn get(&self) -> io::Result<&T> {
        if self.is_ours() { Ok(&self.open) } else { Err(gone()) }
    }

    /// Returns whether the application has left the descriptor alone.
    pub fn is_ours(&self) -> bool {
        self.known.is_ours()
    }

    /// Returns the identity of the file.
    pub fn identity(&self) -> Identity {
        self.known.identity
    }
}

impl<T: AsRawFd> Drop for Own<T> {
    fn drop(&mut self) {
        if self.is_ours() {
            // SAFETY: dropped once, here.
            unsafe { ManuallyDrop::drop(&mut self.open) };
        }
    }
}

/// Writing raises no signal in the application.
impl Write for Own<File> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        quietly(|| self.get()?.write(bytes))
    }

    fn flush(&mut self) -> io::Result<()> {
        self.get()?.flush()
    }
}

impl Read for Own<File> {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        self.get()?.read(into)
    }
}

impl Seek for Own<File> {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        self.get()?.seek(to)
    }
}

fn gone() -> io::Error {
    io::Error::other("the program has closed its descriptor")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scratch(name: &str) -> (std::path::PathBuf, File) {
        let path = std::env::temp_dir().join(format!("own-{name}-{}", std::process::id()));
        let options =
            File::options().read(true).write(true).create(true).truncate(true).open(&path);
        (path, options.expect("temporary files can be made"))
    }

    #[test]
    fn a_number_that_was_given_to_another_file_is_neither_used_nor_closed() {
        let (ours_path, ours) = scratch("ours");
        let (theirs_path, theirs) = scratch("theirs");
        let mut own = Own::hidden(ours).unwrap();
        own.write_all(b"one").unwrap();
        let number = own.get().unwrap().as_raw_fd();
        // SAFETY: the descriptors are open; dup2 closes the file behind `number`.
        assert_eq!(unsafe { libc::dup2(theirs.as_raw_fd(), number) }, number);
        assert!(own.write_all(b"two").is_err());
        assert!(own.read(&mut [0; 4]).is_err());
        drop(own);
        // SAFETY: asks about a descriptor, and closes it.
        unsafe {
            assert!(libc::fcntl(number, libc::F_GETFD) >= 0, "it was closed");
            libc::close(number);
        }
        assert_eq!(std::fs::read(&ours_path).unwrap(), b"one");
        assert_eq!(std::fs::read(&theirs_path).unwrap(), b"");
        for path in [ours_path, theirs_path] {
            std::fs::remove_file(path).unwrap();
        }
    }
}
