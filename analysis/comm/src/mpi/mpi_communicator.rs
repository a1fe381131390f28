//! The job's own MPI as a [`Communicator`].

use std::ffi::c_int;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread;
use std::time::Duration;

use crate::communicator::{Communicator, CommunicatorError};

use super::joint::all_made;
use super::mpi_library::{Handle, Library};

/// Tag of the first messages.
const TAG: c_int = 0x504c;

/// Value in place of a message's length: the sender has left.
const LEFT: u64 = u64::MAX;

/// Number of polls of a waiting rank before it sleeps between polls, and duration of the sleep.
const LOOKS: u32 = 1000;
/// Set by [`MpiCommunicator::wait_busily`].
static WAITS_BUSILY: AtomicBool = AtomicBool::new(false);
const NAP: Duration = Duration::from_micros(50);

/// Error returned by an MPI function.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{call} failed with error {code}")]
pub struct MpiError {
    /// Name of the function.
    pub call: &'static str,
    /// Error code.
    pub code: c_int,
}

fn check(code: c_int, call: &'static str) -> Result<(), MpiError> {
    if code == 0 { Ok(()) } else { Err(MpiError { call, code }) }
}

/// A communicator of our own, duplicated or split from the application's world.
pub struct MpiCommunicator {
    library: Arc<Library>,
    handle: Handle,
    rank: u32,
    size: u32,
    /// Tag of current messages; messages with another tag are no longer received.
    tag: AtomicI32,
}

impl MpiCommunicator {
    /// Duplicates the application's communicator of all ranks, if all of them can. Collective:
    /// every rank of the job must call it. Errors do not end the job, even if the application wants
    /// that for its own calls.
    ///
    /// # Safety
    /// The communicator must be valid, and no message of the application may be in transit in it.
    pub unsafe fn duplicate(library: Arc<Library>, of_all: Handle) -> Result<Self, String> {
        let (functions, mut handler) = (library.functions, 0);
        // SAFETY: as the caller promises.
        let known = unsafe { (functions.comm_get_errhandler)(of_all, &mut handler) } == 0;
        let theirs =
            Self::new(library.clone(), of_all, 0, "").map_err(|error| error.to_string())?;
        let mut handle = 0;
        // SAFETY: as the caller promises.
        let code = unsafe { (functions.comm_dup)(of_all, &mut handle) };
        let made = all_made(&theirs, Self::new(library, handle, code, "MPI_Comm_dup"));
        if known {
            // SAFETY: the handler is what the call above returned, which is given back.
            unsafe {
                (functions.comm_set_errhandler)(of_all, handler);
                (functions.errhandler_free)(&mut handler);
            }
        }
        made
    }

    /// Returns its handle.
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// Returns a communicator of the ranks that share memory with this one. Collective.
    pub fn node(&self) -> Result<Self, MpiError> {
        let (mut handle, constants) = (0, &self.library.constants);
        // SAFETY: our own communicator, constants of this ABI.
        let code = unsafe {
            (self.library.functions.comm_split_type)(
                self.handle,
                constants.shared,
                self.rank as c_int,
                constants.info_null,
                &mut handle,
            )
        };
        Self::new(self.library.clone(), handle, code, "MPI_Comm_split_type")
    }

    /// Returns a communicator of the ranks that pass the same `color`, in the order of their ranks
    /// here. Collective.
    pub fn split(&self, color: u32) -> Result<Self, MpiError> {
        let mut handle = 0;
        // SAFETY: our own communicator.
        let code = unsafe {
            (self.library.functions.comm_split)(
                self.handle,
                color as c_int,
                self.rank as c_int,
                &mut handle,
            )
        };
        Self::new(self.library.clone(), handle, code, "MPI_Comm_split")
    }

    fn new(
        library: Arc<Library>,
        handle: Handle,
        code: c_int,
        call: &'static str,
    ) -> Result<Self, MpiError> {
        check(code, call)?;
        let (mut rank, mut size) = (0, 0);
        // SAFETY: the communicator was just created.
        unsafe {
            (library.functions.comm_set_errhandler)(handle, library.constants.errors_return);
            check((library.functions.comm_rank)(handle, &mut rank), "MPI_Comm_rank")?;
            check((library.functions.comm_size)(handle, &mut size), "MPI_Comm_size")?;
        }
        let tag = AtomicI32::new(TAG);
        Ok(Self { library, handle, rank: rank as u32, size: size as u32, tag })
    }

    /// Returns the number of ranks of a communicator of the application. Local.
    ///
    /// # Safety
    /// The communicator must be valid.
    pub unsafe fn size_of(library: &Library, communicator: Handle) -> Option<u32> {
        let mut size = 0;
        // SAFETY: as the caller promises.
        let code = unsafe { (library.functions.comm_size)(communicator, &mut size) };
        u32::try_from(size).ok().filter(|_| code == 0)
    }

    /// Returns rank and size of the application's world. Local.
    pub fn place_in_world(library: &Library) -> Result<(u32, u32), MpiError> {
        let (mut rank, mut size) = (0, 0);
        // SAFETY: the world is valid between MPI_Init and MPI_Finalize, where the caller is.
        unsafe {
            check(
                (library.functions.comm_rank)(library.constants.world, &mut rank),
                "MPI_Comm_rank",
            )?;
            check(
                (library.functions.comm_size)(library.constants.world, &mut size),
                "MPI_Comm_size",
            )?;
        }
        Ok((rank as u32, size as u32))
    }

    /// Waits until all ranks are here. Calls `goes_on` from time to time during a long wait; if it
    /// returns false, the result is `false`, and no collective operation may follow.
    pub fn wait_for_all(&self, goes_on: &mut dyn FnMut() -> bool) -> Result<bool, MpiError> {
        let Library { functions, constants, .. } = &*self.library;
        let mut request = 0;
        // SAFETY: our own communicator.
        let code = unsafe { (functions.start_barrier)(self.handle, &mut request) };
        check(code, "MPI_Ibarrier")?;
        let mut looks = 0;
        loop {
            let mut done = 0;
            // SAFETY: the request was begun above; no status is asked for.
            let code =
                unsafe { (functions.test)(&mut request, &mut done, constants.status_ignore) };
            check(code, "MPI_Test")?;
            if done != 0 {
                return Ok(true);
            }
            looks += 1;
            if WAITS_BUSILY.load(Ordering::Relaxed) {
                if !goes_on() {
                    return Ok(false);
                }
            } else if looks < LOOKS {
                thread::yield_now();
            } else if goes_on() {
                thread::sleep(NAP);
            } else {
                return Ok(false);
            }
        }
    }

    /// Lets this process wait for others without system calls other than those of MPI, from now on.
    pub fn wait_busily() {
        WAITS_BUSILY.store(true, Ordering::Relaxed);
    }

    /// Waits until all ranks are here.
    pub fn barrier(&self) -> Result<(), MpiError> {
        self.wait_for_all(&mut || true).map(drop)
    }

    /// Tells all other ranks that this rank answers no more.
    pub(super) fn leave(&self) {
        for peer in (0..self.size).filter(|peer| *peer != self.rank) {
            // A rank that this message does not reach cannot be informed in any other way.
            let _ = self.send_bytes(peer, &LEFT.to_le_bytes());
        }
    }

    /// Receives and discards all messages that have arrived.
    pub(super) fn discard(&self) {
        for peer in (0..self.size).filter(|peer| *peer != self.rank) {
            while self.discard_from(peer) {}
        }
    }

    /// Receives and discards one message from one rank; returns `false` if there is none.
    fn discard_from(&self, peer: u32) -> bool {
        let Library { functions, constants, .. } = &*self.library;
        let (mut found, mut message, mut bytes) = (0, 0, 0);
        // Larger than MPI_Status in any ABI.
        let mut status = [0u64; 16];
        let status = status.as_mut_ptr().cast();
        let tag = self.tag.load(Ordering::Relaxed);
        // SAFETY: our own communicator; the buffer is as long as the message.
        unsafe {
            let handle = self.handle;
            let probe = functions.probe;
            if probe(peer as c_int, tag, handle, &mut found, &mut message, status) != 0
                || found == 0
                || (functions.count)(status, constants.byte, &mut bytes) != 0
            {
                return false;
            }
            let mut buffer = vec![0u8; usize::try_from(bytes).unwrap_or(0)];
            let into = buffer.as_mut_ptr().cast();
            (functions.take)(into, bytes, constants.byte, &mut message, constants.status_ignore)
                == 0
        }
    }

    /// Stops receiving messages that were sent before. All ranks must call this at the same point.
    pub(super) fn begin_anew(&self) {
        self.tag.fetch_add(1, Ordering::Relaxed);
    }

    /// Frees the communicator. Collective.
    pub fn free(mut self) {
        // SAFETY: our own communicator, not used any more.
        unsafe { (self.library.functions.comm_free)(&mut self.handle) };
    }

    fn send_bytes(&self, to: u32, bytes: &[u8]) -> Result<(), MpiError> {
        // SAFETY: the buffer is as long as said.
        let code = unsafe {
            (self.library.functions.send)(
                bytes.as_ptr().cast(),
                bytes.len() as c_int,
                self.library.constants.byte,
                to as c_int,
                self.tag.load(Ordering::Relaxed),
                self.handle,
            )
        };
        check(code, "MPI_Send")
    }

    fn receive_bytes(&self, from: u32, bytes: &mut [u8]) -> Result<(), MpiError> {
        // SAFETY: the buffer is as long as said; no status is asked for.
        let code = unsafe {
            (self.library.functions.receive)(
                bytes.as_mut_ptr().cast(),
                bytes.len() as c_int,
                self.library.constants.byte,
                from as c_int,
                self.tag.load(Ordering::Relaxed),
                self.handle,
                self.library.constants.status_ignore,
            )
        };
        check(code, "MPI_Recv")
    }
}

impl Communicator for MpiCommunicator {
    fn rank(&self) -> u32 {
        self.rank
    }

    fn size(&self) -> u32 {
        self.size
    }

    /// Sends a message as two MPI messages: its length, so that the receiver can allocate
    /// memory, and its bytes.
    fn send(&self, to: u32, bytes: &[u8]) -> Result<(), CommunicatorError> {
        let length = bytes.len() as u64;
        self.send_bytes(to, &length.to_le_bytes())
            .and_then(|()| self.send_bytes(to, bytes))
            .map_err(|error| transport(to, error))
    }

    fn receive(&self, from: u32) -> Result<Vec<u8>, CommunicatorError> {
        let mut length = [0; 8];
        self.receive_bytes(from, &mut length).map_err(|error| transport(from, error))?;
        let length = u64::from_le_bytes(length);
        if length == LEFT {
            return Err(CommunicatorError::Elsewhere(format!("process {from} has left")));
        }
        let mut bytes = vec![0; length as usize];
        self.receive_bytes(from, &mut bytes).map_err(|error| transport(from, error))?;
        Ok(bytes)
    }
}

fn transport(peer: u32, error: MpiError) -> CommunicatorError {
    CommunicatorError::Transport { peer, reason: error.to_string() }
}
