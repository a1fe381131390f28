//! Rank and size of a process in a job that uses sessions (MPI-4.1, 11.3).

use std::ffi::{CStr, c_char, c_int, c_void};
use std::mem::transmute;

use super::mpi_library::{Abi, Handle, Library};

impl Library {
    /// Returns MPI_COMM_WORLD, which is valid from MPI_Init to MPI_Finalize.
    pub fn world(&self) -> Handle {
        self.constants.world
    }

    /// Returns whether at most one thread at a time calls MPI, as the program has promised in
    /// MPI_Init_thread; `None` if MPI does not say. MPI must be initialised.
    pub fn calls_are_serialised(&self) -> Option<bool> {
        /// MPI_THREAD_MULTIPLE, in the ABI of MPI 5 and in all others.
        const MULTIPLE: [c_int; 2] = [4096, 3];
        let mut level = MULTIPLE[0];
        // SAFETY: the call is local.
        let code = unsafe { (self.functions.query_thread)(&mut level) };
        (code == 0).then(|| !MULTIPLE.contains(&level))
    }

    /// Reads the handle at an address, in MPI's C representation.
    ///
    /// # Safety
    /// The address is that of a handle.
    pub unsafe fn handle_at(&self, place: *const c_void) -> Handle {
        // SAFETY: as the caller promises.
        unsafe {
            match self.abi {
                Abi::Mpich => place.cast::<u32>().read() as Handle,
                Abi::OpenMpi | Abi::Standard => place.cast::<Handle>().read(),
            }
        }
    }

    /// Returns rank and size in the process set `mpi://WORLD`, from a session of the application.
    /// Local. `None` if the library does not know them.
    ///
    /// # Safety
    /// `session` must point to the handle of a valid session, in C or in Fortran if `fortran`.
    pub unsafe fn place_in_session(
        &self,
        session: *const c_void,
        fortran: bool,
    ) -> Option<(u32, u32)> {
        type FromSession = unsafe extern "C" fn(Handle, *const c_char, *mut Handle) -> c_int;
        type Ask = unsafe extern "C" fn(Handle, *mut c_int) -> c_int;
        let function = |name: &CStr| {
            let pointer = self.symbol(name);
            (!pointer.is_null()).then_some(pointer)
        };
        // SAFETY: MPI-4.1, 11.3.1 and 7.3.1: the functions' types, handles being words; the session
        // is valid, and the group that it gives is ours and given back.
        unsafe {
            let session = match (fortran, self.abi) {
                (true, _) => {
                    let integer = session.cast::<c_int>().read();
                    match function(c"PMPI_Session_f2c") {
                        Some(convert) => transmute::<
                            *mut c_void,
                            unsafe extern "C" fn(c_int) -> Handle,
                        >(convert)(integer),
                        None => integer as u32 as Handle,
                    }
                }
                (false, _) => self.handle_at(session),
            };
            let from_session: FromSession =
                transmute::<*mut c_void, FromSession>(function(c"PMPI_Group_from_session_pset")?);
            let rank_in = transmute::<*mut c_void, Ask>(function(c"PMPI_Group_rank")?);
            let size_of = transmute::<*mut c_void, Ask>(function(c"PMPI_Group_size")?);
            let free = transmute::<*mut c_void, unsafe extern "C" fn(*mut Handle) -> c_int>(
                function(c"PMPI_Group_free")?,
            );
            let (mut group, mut rank, mut size) = (0, -1, -1);
            if from_session(session, c"mpi://WORLD".as_ptr(), &mut group) != 0 {
                return None;
            }
            let known = rank_in(group, &mut rank) == 0 && size_of(group, &mut size) == 0;
            free(&mut group);
            known.then_some((u32::try_from(rank).ok()?, u32::try_from(size).ok()?))
        }
    }
}
