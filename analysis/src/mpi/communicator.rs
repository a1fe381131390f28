//! The job's own MPI as a [`Communicator`].

use std::ffi::c_int;
use std::sync::Arc;

use crate::communicator::{Communicator, CommunicatorError};

use super::library::{Handle, Library};

/// Tag of our messages, on communicators that are ours alone.
const TAG: c_int = 0x504c;

/// An MPI function returned an error.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MpiError {
    /// The function.
    pub call: &'static str,
    /// What it returned.
    pub code: c_int,
}

impl std::fmt::Display for MpiError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} failed with error {}", self.call, self.code)
    }
}

impl std::error::Error for MpiError {}

fn check(code: c_int, call: &'static str) -> Result<(), MpiError> {
    if code == 0 { Ok(()) } else { Err(MpiError { call, code }) }
}

/// A communicator of our own, duplicated or split from the application's world.
pub struct MpiCommunicator {
    library: Arc<Library>,
    handle: Handle,
    rank: u32,
    size: u32,
}

impl MpiCommunicator {
    /// A duplicate of a communicator of all ranks. Collective: every rank of the job must call it.
    ///
    /// # Safety
    /// The communicator is valid.
    pub unsafe fn duplicate(library: Arc<Library>, of_all: Handle) -> Result<Self, MpiError> {
        let mut handle = 0;
        // SAFETY: as the caller promises.
        let code = unsafe { (library.functions.comm_dup)(of_all, &mut handle) };
        Self::new(library, handle, code, "MPI_Comm_dup")
    }

    /// Its handle.
    pub fn handle(&self) -> Handle {
        self.handle
    }

    /// The ranks that share memory with this one. Collective.
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

    /// The ranks that pass the same `color`, in the order of their ranks here. Collective.
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
        Ok(Self { library, handle, rank: rank as u32, size: size as u32 })
    }

    /// Number of ranks of a communicator of the application's. Local.
    ///
    /// # Safety
    /// It is valid.
    pub unsafe fn size_of(library: &Library, communicator: Handle) -> Option<u32> {
        let mut size = 0;
        // SAFETY: as the caller promises.
        let code = unsafe { (library.functions.comm_size)(communicator, &mut size) };
        u32::try_from(size).ok().filter(|_| code == 0)
    }

    /// Rank and size of the application's world. Local.
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

    /// Waits until all ranks are here.
    pub fn barrier(&self) -> Result<(), MpiError> {
        // SAFETY: our own communicator.
        check(unsafe { (self.library.functions.barrier)(self.handle) }, "MPI_Barrier")
    }

    /// Gives the communicator back. Collective.
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
                TAG,
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
                TAG,
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

    /// A message is two of MPI's: its length, so that the receiver can make room, and its bytes.
    fn send(&self, to: u32, bytes: &[u8]) -> Result<(), CommunicatorError> {
        let length = bytes.len() as u64;
        self.send_bytes(to, &length.to_le_bytes())
            .and_then(|()| self.send_bytes(to, bytes))
            .map_err(|error| transport(to, error))
    }

    fn receive(&self, from: u32) -> Result<Vec<u8>, CommunicatorError> {
        let mut length = [0; 8];
        self.receive_bytes(from, &mut length).map_err(|error| transport(from, error))?;
        let mut bytes = vec![0; u64::from_le_bytes(length) as usize];
        self.receive_bytes(from, &mut bytes).map_err(|error| transport(from, error))?;
        Ok(bytes)
    }
}

fn transport(peer: u32, error: MpiError) -> CommunicatorError {
    CommunicatorError::Transport { peer, reason: error.to_string() }
}
