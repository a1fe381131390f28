//! The decision of the ranks of a node whether all go on together, which their first rank makes.
//!
//! That rank may be stopped, or hang in a file system that does not answer. The others then decide
//! without it, and the first rank, if it goes on, must learn that: one that enters a collective which
//! the others have given up would wait for ever.
//!
//! So everybody appends to one file in memory (memfd_create(2)), which the first rank makes and
//! processes of the same user open through /proc. Appends have an order that is the same for all
//! readers: the entries, read one after another, lead every reader through the same states.

use std::ffi::CString;
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::fd::{FromRawFd, OwnedFd};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};

use plimsoll_sys::own::Own;

use crate::fingerprint::fingerprint;

/// An entry: what happened, and for [`ASKED`] the number of the post.
type Entry = [u8; ENTRY_BYTES];
const ENTRY_BYTES: usize = 9;
/// The first rank has left MPI_Init.
const LEFT_INIT: u8 = b'i';
/// The first rank is at work.
const AT_WORK: u8 = b'.';
/// The first rank is about to ask the other nodes, or to say on all nodes what is decided.
const ASKED: u8 = b'a';
/// The first rank has decided.
const TOGETHER: u8 = b't';
const APART: u8 = b'f';
/// Another rank has given the first one up.
const GIVEN_UP: u8 = b'g';

/// Maximum size that is read: more than the first rank writes in its longest wait.
const MAX_BYTES: usize = 64 << 10;

/// Where the decision stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The first rank is still in MPI_Init.
    InInit,
    /// The first rank decides.
    Open,
    /// Other nodes may count on the first rank, in whose name its post with this number speaks: what
    /// they have decided holds.
    Asked(u64),
    /// As before, but the first rank is given up: it asks nobody else, and reads what was decided.
    Closed(u64),
    /// All go on together, or none does.
    Decided(bool),
}

/// The decision, in the first rank or in another one.
#[derive(Debug)]
pub struct Decision {
    file: Own<File>,
}

impl Decision {
    /// Makes the decision of the ranks whose first one has this token.
    pub fn make(token: &str) -> io::Result<Self> {
        let name = CString::new(name(token))?;
        // SAFETY: a C string; a new descriptor is nobody else's.
        let file = unsafe {
            let descriptor = libc::memfd_create(name.as_ptr(), libc::MFD_CLOEXEC);
            if descriptor < 0 {
                return Err(io::Error::last_os_error());
            }
            let _closed_when_dropped = OwnedFd::from_raw_fd(descriptor);
            // Opened anew: what is written is appended.
            open(Path::new(&format!("/proc/self/fd/{descriptor}")))?
        };
        Ok(Self { file: Own::hidden(file)? })
    }

    /// Finds the decision that another process of this user has made.
    pub fn find(token: &str, process: u32) -> Option<Self> {
        let target = PathBuf::from(format!("/memfd:{} (deleted)", name(token)));
        let descriptors = fs::read_dir(format!("/proc/{process}/fd")).ok()?;
        let mut paths = descriptors.flatten().map(|descriptor| descriptor.path());
        let path = paths.find(|path| fs::read_link(path).is_ok_and(|to| to == target))?;
        let file = open(&path).ok()?;
        // Root may open other users' files, too.
        // SAFETY: no preconditions.
        let is_ours = file.metadata().is_ok_and(|file| file.uid() == unsafe { libc::geteuid() });
        if is_ours { Some(Self { file: Own::hidden(file).ok()? }) } else { None }
    }

    /// The first rank has left MPI_Init.
    pub fn left_init(&mut self) -> io::Result<()> {
        self.append(LEFT_INIT, 0)
    }

    /// The first rank is at work. Returns whether it is to go on: nobody has given it up.
    pub fn goes_on(&mut self) -> bool {
        self.append(AT_WORK, 0).is_ok() && matches!(self.state(), State::Open | State::Asked(_))
    }

    /// The first rank is about to ask other nodes by the post with this number. Returns whether it may.
    pub fn ask(&mut self, post: u64) -> bool {
        self.append(ASKED, post).is_ok() && self.state() == State::Asked(post)
    }

    /// The first rank decides. Returns what holds, which somebody else may have decided before.
    pub fn decide(&mut self, together: bool) -> bool {
        // What cannot be written nobody learns.
        let is_written = self.append(if together { TOGETHER } else { APART }, 0).is_ok();
        is_written && self.state() == State::Decided(true)
    }

    /// Gives the first rank up. Returns where the decision stands then.
    pub fn give_up(&mut self) -> State {
        match self.append(GIVEN_UP, 0) {
            Ok(()) => self.state(),
            Err(_) => State::Decided(false),
        }
    }

    /// Where the decision stands; who cannot read it goes on alone.
    pub fn state(&self) -> State {
        self.read().map_or(State::Decided(false), |entries| state(&entries))
    }

    /// Number of entries: as long as it grows, the first rank is at work.
    pub fn entries(&self) -> usize {
        self.read().map_or(0, |entries| entries.len())
    }

    fn append(&mut self, what: u8, post: u64) -> io::Result<()> {
        let mut entry: Entry = [what; ENTRY_BYTES];
        entry[1..].copy_from_slice(&post.to_le_bytes());
        self.file.write_all(&entry)
    }

    fn read(&self) -> io::Result<Vec<Entry>> {
        let mut bytes = vec![0; MAX_BYTES];
        let length = self.file.get()?.read_at(&mut bytes, 0)?;
        Ok(bytes[..length].as_chunks().0.to_vec())
    }
}

/// The state that the entries lead to. The order in which they were written is that of the file.
fn state(entries: &[Entry]) -> State {
    let mut state = State::InInit;
    for [what, post @ ..] in entries {
        state = match (state, *what) {
            (State::InInit, LEFT_INIT) => State::Open,
            (State::InInit | State::Open, ASKED) => State::Asked(u64::from_le_bytes(*post)),
            (State::InInit | State::Open, GIVEN_UP) => State::Decided(false),
            (State::Asked(post), GIVEN_UP) => State::Closed(post),
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
