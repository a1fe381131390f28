//! Bytes of a module's file, read on demand.
//!
//! Files are read, never mapped: a file that shrinks meanwhile must not raise SIGBUS in the
//! application.

use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use object::ReadCache;
use parking_lot::Mutex;
use plimsoll_sys::own::Own;
use plimsoll_sys::vdso::{self, VDSO};

use plimsoll_sys::own_files::open_regular;

/// A file, or a piece of memory.
#[derive(Debug)]
pub(crate) enum Source {
    File {
        path: PathBuf,
        /// Closed between lookups.
        file: Mutex<Option<Own<File>>>,
        state: State,
        /// Bytes held in memory for sections that are read page by page.
        held: AtomicU64,
    },
    Memory(&'static [u8]),
}

/// Identity of a file's content: tells the file from another one at the same path, and from an
/// earlier state of itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct State {
    file: (u64, u64),
    size: u64,
    modified: (i64, i64),
}

impl State {
    fn of(metadata: &Metadata) -> Self {
        Self {
            file: (metadata.dev(), metadata.ino()),
            size: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}

impl Source {
    /// Opens a regular file with a descriptor hidden from the application; `[vdso]` is the kernel's
    /// code, which has no file.
    pub(crate) fn open(path: &Path) -> Option<Arc<Self>> {
        if path.as_os_str() == VDSO {
            return Some(Arc::new(Self::Memory(vdso::image()?)));
        }
        let (file, state) = open(path)?;
        let (path, file) = (path.to_owned(), Mutex::new(Some(file)));
        Some(Arc::new(Self::File { path, file, state, held: AtomicU64::new(0) }))
    }

    /// Closes the file until the next read, which reopens it if it is unchanged.
    pub(crate) fn close(&self) {
        if let Self::File { file, .. } = self {
            *file.lock() = None;
        }
    }

    /// Returns whether the file is open.
    pub(crate) fn is_open(&self) -> bool {
        match self {
            Self::File { file, .. } => file.lock().is_some(),
            Self::Memory(_) => false,
        }
    }

    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::File { state, .. } => state.size,
            Self::Memory(bytes) => bytes.len() as u64,
        }
    }

    /// Returns the number of bytes held for sections that are read page by page. The count stays
    /// when those sections are dropped.
    pub(crate) fn held(&self) -> u64 {
        match self {
            Self::File { held, .. } => held.load(Ordering::Relaxed),
            Self::Memory(_) => 0,
        }
    }

    /// Adds to the number of bytes held.
    pub(crate) fn hold(&self, bytes: u64) {
        if let Self::File { held, .. } = self {
            held.fetch_add(bytes, Ordering::Relaxed);
        }
    }

    /// Fills `into` from an offset in the file; returns false if the file does not have all bytes.
    pub(crate) fn read(&self, offset: u64, into: &mut [u8]) -> bool {
        match self {
            Self::File { path, file, state, .. } => {
                let mut file = file.lock();
                // The application may have closed the descriptor.
                if !file.as_ref().is_some_and(Own::is_ours) {
                    *file = open(path).filter(|(_, now)| now == state).map(|(file, _)| file);
                }
                file.as_ref().is_some_and(|file| {
                    file.get().is_ok_and(|file| file.read_exact_at(into, offset).is_ok())
                })
            }
            Self::Memory(bytes) => usize::try_from(offset)
                .ok()
                .and_then(|from| bytes.get(from..from.checked_add(into.len())?))
                .map(|bytes| into.copy_from_slice(bytes))
                .is_some(),
        }
    }

    /// Returns a reader for `object`, which keeps the bytes it reads until it is dropped.
    pub(crate) fn cache(self: &Arc<Self>) -> ReadCache<Cursor> {
        let source = self.clone();
        ReadCache::new(Cursor { source, position: 0, block: Vec::new(), block_start: 0 })
    }
}

fn open(path: &Path) -> Option<(Own<File>, State)> {
    let file = Own::hidden(open_regular(path).ok()?).ok()?;
    let state = State::of(&file.get().ok()?.metadata().ok()?);
    Some((file, state))
}

/// Position in a source, with the block around it: symbols are read a few bytes at a time.
#[derive(Debug)]
pub(crate) struct Cursor {
    source: Arc<Source>,
    position: u64,
    block: Vec<u8>,
    block_start: u64,
}

const BLOCK_BYTES: u64 = 1 << 16;

impl io::Read for Cursor {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let left = self.source.len().saturating_sub(self.position);
        let count = into.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        let into = &mut into[..count];
        if count as u64 >= BLOCK_BYTES {
            if !self.source.read(self.position, into) {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            self.position += count as u64;
            return Ok(count);
        }
        let start = self.position - self.position % BLOCK_BYTES;
        if self.block.is_empty() || self.block_start != start {
            self.block.resize((self.source.len() - start).min(BLOCK_BYTES) as usize, 0);
            self.block_start = start;
            if !self.source.read(start, &mut self.block) {
                self.block.clear();
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        let from = &self.block[(self.position - start) as usize..];
        let count = count.min(from.len());
        into[..count].copy_from_slice(&from[..count]);
        self.position += count as u64;
        Ok(count)
    }
}

impl io::Seek for Cursor {
    fn seek(&mut self, to: io::SeekFrom) -> io::Result<u64> {
        let position = match to {
            io::SeekFrom::Start(position) => Some(position),
            io::SeekFrom::End(distance) => self.source.len().checked_add_signed(distance),
            io::SeekFrom::Current(distance) => self.position.checked_add_signed(distance),
        };
        self.position = position.ok_or(io::ErrorKind::InvalidInput)?;
        Ok(self.position)
    }
}
