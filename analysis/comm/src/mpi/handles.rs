//! Facts about the application's handles: the ranks of a communicator, the size of a datatype. MPI
//! is asked once per handle; the answers are forgotten when the application frees a handle of that
//! kind.

mod argument_lists;
mod collective_facts;
mod group_members;
mod handle_cache;
mod known_subgroups;
mod live_objects;
mod pending;
mod prepared;
mod world_ranks;

use std::ffi::c_int;
use std::sync::{Arc, OnceLock};

use plimsoll_sys::lock::Lock;

pub use self::collective_facts::{Members, RequestList};
use self::handle_cache::Memory;
use self::known_subgroups::Subgroups;
use self::live_objects::LiveObjects;
pub use self::live_objects::ObjectKind;
use self::pending::Pending;
use self::prepared::PreparedCollectives;
use self::world_ranks::WorldRanks;
use super::mpi_library::{Abi, Handle, Library};

/// A handle as the application passed it.
#[derive(Clone, Copy, Debug)]
pub enum Named {
    /// C handle: an argument word.
    C(Handle),
    /// Fortran handle: an integer.
    Fortran(c_int),
}

/// Facts about handles.
pub struct HandleFacts {
    library: Arc<Library>,
    /// Bits of an argument word that hold the handle: for ABIs with int handles the upper half of
    /// the word is undefined.
    handle_mask: Handle,
    members: Memory,
    windows: Memory,
    files: Memory,
    live_objects: LiveObjects,
    sizes: Memory,
    fortran_members: Memory,
    fortran_sizes: Memory,
    peers: Memory,
    subgroups: Subgroups,
    /// Nonblocking collectives in progress: their members, and their index among the collectives of
    /// those members.
    pending: Pending<(u32, u64)>,
    prepared: PreparedCollectives,
    /// Members and root of each reduction that no broadcast from the same root has followed yet.
    /// Kept when handles are freed: one rank may free a communicator of its own between the two
    /// calls and the others not.
    roots: Lock<Vec<(u32, c_int)>>,
    /// Communicator of all ranks; `None` if a session has made none yet.
    world: Option<Handle>,
    /// Possible addresses of Fortran's MPI_IN_PLACE; empty if unknown.
    in_place: Vec<usize>,
    /// Possible addresses of Fortran's MPI_STATUS_IGNORE, looked up when first needed.
    status_ignore: OnceLock<Vec<usize>>,
    /// Numbers of communicators in `world_ranks`.
    numbers: Memory,
    fortran_numbers: Memory,
    world_ranks: WorldRanks,
}

impl HandleFacts {
    /// Builds an empty store. `world` is MPI_COMM_WORLD, which exists once the program has called
    /// MPI_Init, or a communicator of the same ranks that outlives this store.
    pub fn new(library: Arc<Library>, world: Option<Handle>) -> Self {
        Self {
            handle_mask: if library.abi == Abi::Mpich { u32::MAX as Handle } else { Handle::MAX },
            world,
            members: Memory::new(),
            windows: Memory::new(),
            files: Memory::new(),
            live_objects: LiveObjects::new(),
            sizes: Memory::new(),
            fortran_members: Memory::new(),
            fortran_sizes: Memory::new(),
            peers: Memory::new(),
            subgroups: Subgroups::new(),
            pending: Pending::new(),
            prepared: PreparedCollectives::new(),
            roots: Lock::default(),
            in_place: library.fortran_in_place(),
            status_ignore: OnceLock::new(),
            numbers: Memory::new(),
            fortran_numbers: Memory::new(),
            world_ranks: WorldRanks::new(),
            library,
        }
    }

    /// Returns whether a communicator, which must be valid, is MPI_COMM_WORLD itself.
    pub fn is_world(&self, communicator: Named) -> bool {
        self.world.is_some_and(|world| self.communicator(communicator) == world)
    }

    pub(super) fn communicator(&self, communicator: Named) -> Handle {
        match communicator {
            Named::C(word) => self.handle(word),
            Named::Fortran(integer) => self.library.fortran.communicator(integer),
        }
    }

    /// Returns the bytes of one element of a datatype, which must be valid; 0 if MPI does not say.
    pub fn type_bytes(&self, datatype: Handle) -> u64 {
        let datatype = self.handle(datatype);
        let ask = || {
            let mut bytes: c_int = 0;
            // SAFETY: the datatype is valid; the call is local.
            let code = unsafe { (self.library.functions.type_size)(datatype, &mut bytes) };
            if code == 0 { u32::try_from(bytes).unwrap_or(0) } else { 0 }
        };
        u64::from(self.sizes.get(datatype, ask))
    }

    /// Like [`Self::type_bytes`], for a Fortran handle.
    pub fn fortran_type_bytes(&self, datatype: c_int) -> u64 {
        let functions = &self.library.fortran;
        let ask = || {
            let bytes = self.type_bytes(functions.datatype(datatype));
            u32::try_from(bytes).unwrap_or(0)
        };
        self.fortran_sizes.get(datatype as u32 as usize, ask).into()
    }

    /// Returns whether a buffer is MPI_IN_PLACE: in all ABIs one of two addresses that no buffer
    /// has.
    pub fn is_in_place(&self, buffer: usize) -> bool {
        matches!(buffer, 1 | usize::MAX)
    }

    /// Returns whether a buffer may be Fortran's MPI_IN_PLACE, a variable of the MPI library.
    pub fn fortran_may_be_in_place(&self, buffer: usize) -> bool {
        self.in_place.is_empty() || self.in_place.contains(&buffer)
    }

    /// Forgets the members of all handles. To be called when the application frees a communicator,
    /// a window or a file, because MPI may reuse the handle for other members.
    pub fn forget_members(&self) {
        self.members.clear();
        self.fortran_members.clear();
        self.windows.clear();
        self.files.clear();
        self.peers.clear();
        self.numbers.clear();
        self.fortran_numbers.clear();
    }

    /// Forgets the sizes of all datatypes. To be called when the application frees a datatype,
    /// because MPI may reuse the handle for another size.
    pub fn forget_datatypes(&self) {
        self.sizes.clear();
        self.fortran_sizes.clear();
    }

    /// Returns the handle in an argument word.
    #[inline(always)]
    pub(super) fn handle(&self, word: Handle) -> Handle {
        word & self.handle_mask
    }
}
