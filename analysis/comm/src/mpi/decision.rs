//! Decision of the ranks of a node whether all go on together, made by their first rank.
//!
//! The first rank may be stopped, or hang in a file system that does not answer. The others then
//! decide without it, and the first rank, if it goes on, must learn of that: a rank that enters a
//! collective which the others have given up would wait for ever.
//!
//! All ranks therefore append to one file in memory (memfd_create(2)), which the first rank makes
//! and processes of the same user open through /proc. All readers see the appends in the same
//! order: the entries, read one after another, lead every reader through the same states.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use plimsoll_sys::own::Own;

use crate::fingerprint::fingerprint;

/// An entry: the event, and for [`ASKED`] the number of the mailbox.
type Entry = [u8; ENTRY_BYTES];
const ENTRY_BYTES: usize = 9;
/// The first rank has left MPI_Init.
const LEFT_INIT: u8 = b'i';
/// The first rank is at work.
const AT_WORK: u8 = b'.';
/// The first rank is about to ask the other nodes, or to announce the decision on all nodes.
const ASKED: u8 = b'a';
/// The first rank has decided.
const TOGETHER: u8 = b't';
const APART: u8 = b'f';
/// Another rank has given up the first one.
const GIVEN_UP: u8 = b'g';

/// Maximum size that is read: more than the first rank writes in its longest wait.
const MAX_BYTES: usize = 64 << 10;

/// State of the decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The first rank is still in MPI_Init.
    InInit,
    /// The first rank has not decided yet.
    Open,
    /// Other nodes may count on the first rank, represented by its mailbox with this number: their
    /// decision holds.
    Asked(u64),
    /// As [`Self::Asked`], but the first rank is given up: it asks no other node, and reads the
    /// decision.
    Closed(u64),
    /// All ranks go on together (true), or none does (false).
    Decided(bool),
}

/// Decision of a node, in the first rank or in another one.
#[derive(Debug)]
pub struct Decision {
    file: Own<File>,
}

impl Decision {
    /// Makes the decision of the ranks that have the process with this token as their first.
    pub fn make(token: &str) -> io::Result<Self> {
        let name = CString::new(name(token))?;
        // SAFETY: a C string; a new descriptor is nobody else's.
        let file = unsafe {
            let descriptor = libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC);
            if descriptor < 0 {
                return Err(io::Error::last_os_error());
            }
            let _closed_when_dropped = OwnedFd::from_raw_fd(descriptor);
            // Opened anew, so that writes append.
            open(Path::new(&format!("/proc/self/fd/{descriptor}")))?
        };
        Ok(Self { file: Own::hidden(file)? })
    }

    /// Finds the decision made by another process of this user.
    pub fn find(token: &str, process: u32) -> Option<Self> {
        let target = PathBuf::from(format!("/memfd:{} (deleted)", name(token)));
        let descriptors = fs::read_dir(format!("/proc/{process}/fd")).ok()?;
        let mut paths = descriptors.flatten().map(|descriptor| descriptor.path());
        let path = paths.find(|path| fs::read_link(path).is_ok_and(|to| to == target))?;
        let file = open(&path).ok()?;
        // Root may open files of other users, too.
        // SAFETY: no preconditions.
        let is_ours = file.metadata().is_ok_and(|file| file.uid() == unsafe { libc::geteuid() });
        if is_ours { Some(Self { file: Own::hidden(file).ok()? }) } else { None }
    }

    /// Records that the first rank has left MPI_Init.
    pub fn left_init(&mut self) -> io::Result<()> {
        self.append(LEFT_INIT, 0)
    }

    /// Records that the first rank is at work. Returns whether to go on: true unless it was given
    /// up or the decision is made.
    pub fn goes_on(&mut self) -> bool {
        self.append(AT_WORK, 0).is_ok() && matches!(self.state(), State::Open | State::Asked(_))
    }

    /// Records that the first rank is about to ask other nodes by the mailbox with this number.
    /// Returns whether it may.
    pub fn ask(&mut self, mailbox: u64) -> bool {
        self.append(ASKED, mailbox).is_ok() && self.state() == State::Asked(mailbox)
    }

    /// Records the decision of the first rank. Returns the decision that holds; another rank may
    /// have decided before.
    pub fn decide(&mut self, together: bool) -> bool {
        // A decision that cannot be written stays unknown to the other ranks.
        let is_written = self.append(if together { TOGETHER } else { APART }, 0).is_ok();
        is_written && self.state() == State::Decided(true)
    }

    /// Records that the first rank is given up. Returns the state of the decision after that.
    pub fn give_up(&mut self) -> State {
        match self.append(GIVEN_UP, 0) {
            Ok(()) => self.state(),
            Err(_) => State::Decided(false),
        }
    }

    /// Returns the state of the decision. A rank that cannot read the decision goes on alone.
    pub fn state(&self) -> State {
        self.read().map_or(State::Decided(false), |entries| state(&entries))
    }

    /// Returns the number of entries: while it grows, the first rank is at work.
    pub fn entries(&self) -> usize {
        self.read().map_or(0, |entries| entries.len())
    }

    fn append(&mut self, what: u8, mailbox: u64) -> io::Result<()> {
        let mut entry: Entry = [what; ENTRY_BYTES];
        entry[1..].copy_from_slice(&mailbox.to_le_bytes());
        self.file.write_all(&entry)
    }

    fn read(&self) -> io::Result<Vec<Entry>> {
        let mut bytes = vec![0; MAX_BYTES];
        let length = self.file.get()?.read_at(&mut bytes, 0)?;
        Ok(bytes[..length].as_chunks().0.to_vec())
    }
}

/// Returns the state after all entries, which are in the order of writing.
fn state(entries: &[Entry]) -> State {
    let mut state = State::InInit;
    for [what, mailbox @ ..] in entries {
        state = match (state, *what) {
            (State::InInit, LEFT_INIT) => State::Open,
            (State::InInit | State::Open, ASKED) => State::Asked(u64::from_le_bytes(*mailbox)),
            (State::InInit | State::Open, GIVEN_UP) => State::Decided(false),
            (State::Asked(mailbox), GIVEN_UP) => State::Closed(mailbox),
            (State::Decided(_), _) => state,
            (_, TOGETHER) => State::Decided(true),
            (_, APART) => State::Decided(false),
            _ => state,
        };
    }
    state
}

fn open(path: &Path) -> io::Result<File> {
    File::options().read(true).append(true).open(path)
}

fn name(token: &str) -> String {
    format!("plimsoll-{:016x}", fingerprint(token))
}
