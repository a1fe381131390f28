//! The MPI library that serves this process, found at run time.
//!
//! Plimsoll is built without any `mpi.h`. Handles are machine words; ABIs differ only in a few
//! constants (MPI-5, chapter 20, for the standard ABI; mpi.h of MPICH and Open MPI for theirs).
//! Functions are called under their PMPI_ names, so that no tool sees our calls.

use std::ffi::{CStr, c_char, c_int, c_void};

use super::objects::Object;

/// A handle: an integer (MPICH, standard ABI) or a pointer (Open MPI).
pub type Handle = usize;

/// The families of MPI ABIs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Abi {
    /// MPICH and its derivatives: Intel MPI, Cray MPICH, MVAPICH.
    Mpich,
    /// Open MPI.
    OpenMpi,
    /// The standard ABI of MPI 5.
    Standard,
}

impl Abi {
    /// Returns the name of the ABI in summaries.
    pub fn name(self) -> &'static str {
        match self {
            Self::Mpich => "mpich",
            Self::OpenMpi => "openmpi",
            Self::Standard => "standard",
        }
    }
}

/// Constants of the ABI.
#[derive(Clone, Copy, Debug)]
pub(super) struct Constants {
    pub(super) world: Handle,
    pub(super) byte: Handle,
    pub(super) info_null: Handle,
    pub(super) errors_return: Handle,
    pub(super) shared: c_int,
    pub(super) status_ignore: usize,
    /// MPI_MODE_NOPRECEDE.
    pub(super) no_precede: c_int,
    /// MPI_ANY_SOURCE.
    pub(super) any_source: c_int,
    pub(super) status: StatusLayout,
}

/// The representation of a status, in C and in Fortran alike.
#[derive(Clone, Copy, Debug)]
pub(super) struct StatusLayout {
    /// Bytes of a status.
    pub(super) bytes: usize,
    /// Offset of MPI_SOURCE, in bytes.
    pub(super) source: usize,
}

/// Declares the functions of the library that we call ourselves: name, symbol, arguments. All
/// return an MPI error code.
macro_rules! functions {
    ($($name:ident $symbol:literal ($($argument:ty),*);)*) => {
        /// Functions of the library that we call ourselves.
        #[derive(Clone, Copy)]
        pub(super) struct Functions {
            $(pub(super) $name: unsafe extern "C" fn($($argument),*) -> c_int,)*
        }

        impl Functions {
            /// Looks all of them up.
            fn new(
                get: impl Fn(&'static CStr) -> Result<*mut c_void, LibraryError>,
            ) -> Result<Self, LibraryError> {
                Ok(Self {
                    // SAFETY: the MPI standard gives the function this type, handles being words.
                    $($name: unsafe {
                        std::mem::transmute::<
                            *mut c_void,
                            unsafe extern "C" fn($($argument),*) -> c_int,
                        >(get($symbol)?)
                    },)*
                })
            }
        }
    };
}

functions! {
    comm_rank c"PMPI_Comm_rank" (Handle, *mut c_int);
    comm_size c"PMPI_Comm_size" (Handle, *mut c_int);
    comm_dup c"PMPI_Comm_dup" (Handle, *mut Handle);
    comm_split c"PMPI_Comm_split" (Handle, c_int, c_int, *mut Handle);
    comm_split_type c"PMPI_Comm_split_type" (Handle, c_int, c_int, Handle, *mut Handle);
    comm_test_inter c"PMPI_Comm_test_inter" (Handle, *mut c_int);
    comm_group c"PMPI_Comm_group" (Handle, *mut Handle);
    comm_remote_group c"PMPI_Comm_remote_group" (Handle, *mut Handle);
    group_size c"PMPI_Group_size" (Handle, *mut c_int);
    group_translate_ranks c"PMPI_Group_translate_ranks"
        (Handle, c_int, *const c_int, Handle, *mut c_int);
    group_free c"PMPI_Group_free" (*mut Handle);
    win_get_group c"PMPI_Win_get_group" (Handle, *mut Handle);
    comm_free c"PMPI_Comm_free" (*mut Handle);
    comm_set_errhandler c"PMPI_Comm_set_errhandler" (Handle, Handle);
    comm_get_errhandler c"PMPI_Comm_get_errhandler" (Handle, *mut Handle);
    errhandler_free c"PMPI_Errhandler_free" (*mut Handle);
    start_barrier c"PMPI_Ibarrier" (Handle, *mut Handle);
    test c"PMPI_Test" (*mut Handle, *mut c_int, usize);
    probe c"PMPI_Improbe" (c_int, c_int, Handle, *mut c_int, *mut Handle, *mut c_void);
    count c"PMPI_Get_count" (*const c_void, Handle, *mut c_int);
    take c"PMPI_Mrecv" (*mut c_void, c_int, Handle, *mut Handle, usize);
    send c"PMPI_Send" (*const c_void, c_int, Handle, c_int, c_int, Handle);
    receive c"PMPI_Recv" (*mut c_void, c_int, Handle, c_int, c_int, Handle, usize);
    type_size c"PMPI_Type_size" (Handle, *mut c_int);
    query_thread c"PMPI_Query_thread" (*mut c_int);
}

/// The MPI library of this process.
pub struct Library {
    /// ABI of the library.
    pub abi: Abi,
    /// First line of MPI_Get_library_version.
    pub version: String,
    /// Path of the shared object.
    pub path: String,
    pub(super) constants: Constants,
    pub(super) functions: Functions,
    pub(super) fortran: FortranHandles,
    /// PMPI_File_get_group; `None` in a library built without MPI's input and output.
    pub(super) file_get_group: Option<FileGetGroup>,
    object: Object,
}

/// PMPI_File_get_group.
pub(super) type FileGetGroup = unsafe extern "C" fn(Handle, *mut Handle) -> c_int;

/// Functions that convert a Fortran handle, an integer, to a C handle (MPI-3.1, 17.2.4).
#[derive(Clone, Copy)]
pub(super) struct FortranHandles {
    communicator: Option<unsafe extern "C" fn(c_int) -> Handle>,
    datatype: Option<unsafe extern "C" fn(c_int) -> Handle>,
    window: Option<unsafe extern "C" fn(c_int) -> Handle>,
    file: Option<unsafe extern "C" fn(c_int) -> Handle>,
}

impl FortranHandles {
    /// Looks the functions up. MPICH lacks them: its handles are the same integers.
    fn new(object: Object) -> Self {
        let function = |name: &CStr| {
            let pointer = object.symbol(name);
            // SAFETY: the standard gives these functions this type, handles being words.
            (!pointer.is_null()).then(|| unsafe {
                std::mem::transmute::<*mut c_void, unsafe extern "C" fn(c_int) -> Handle>(pointer)
            })
        };
        Self {
            communicator: function(c"PMPI_Comm_f2c"),
            datatype: function(c"PMPI_Type_f2c"),
            window: function(c"PMPI_Win_f2c"),
            file: function(c"PMPI_File_f2c"),
        }
    }

    pub(super) fn window(&self, handle: c_int) -> Handle {
        // SAFETY: a local function that takes any integer.
        self.window.map_or(handle as u32 as Handle, |function| unsafe { function(handle) })
    }

    /// Converts a file handle: files are pointers to objects in all libraries.
    pub(super) fn file(&self, handle: c_int) -> Option<Handle> {
        // SAFETY: as above.
        self.file.map(|function| unsafe { function(handle) })
    }

    pub(super) fn communicator(&self, handle: c_int) -> Handle {
        // SAFETY: a local function that takes any integer.
        self.communicator.map_or(handle as u32 as Handle, |function| unsafe { function(handle) })
    }

    pub(super) fn datatype(&self, handle: c_int) -> Handle {
        // SAFETY: as above.
        self.datatype.map_or(handle as u32 as Handle, |function| unsafe { function(handle) })
    }
}

/// Reason why the MPI library of this process cannot be used for the reduction.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LibraryError {
    /// No loaded object defines the function.
    #[error("the MPI library of this process was not found; is it linked statically?")]
    NotFound,
    /// The library lacks a function or object that every MPI has.
    #[error("the MPI library of this process does not provide {0}")]
    Missing(&'static str),
    /// The library names itself so; its handles are unknown.
    #[error(
        "the MPI library of this process, \"{0}\", has the ABI neither of MPICH nor of Open MPI \
         nor that of MPI 5"
    )]
    UnknownAbi(String),
}

impl Library {
    /// Finds the library behind `function`, a definition of an MPI function that the application
    /// calls (perhaps in a Fortran layer above the library). Calls only MPI functions that are
    /// allowed at any time.
    pub fn detect(function: *const c_void) -> Result<Self, LibraryError> {
        let (layer, _) = Object::holding(function).ok_or(LibraryError::NotFound)?;
        // The layer's dependencies include the C library.
        let rank = layer.symbol(c"PMPI_Comm_rank");
        let (object, path) = Object::holding(rank).ok_or(LibraryError::NotFound)?;
        let get = |name: &'static CStr| -> Result<*mut c_void, LibraryError> {
            let pointer = object.symbol(name);
            let missing = LibraryError::Missing(name.to_str().unwrap_or("a function"));
            if pointer.is_null() { Err(missing) } else { Ok(pointer) }
        };
        let functions = Functions::new(get)?;
        let (abi, constants) = constants(object, &path)?;
        let version = library_version(object);
        let fortran = FortranHandles::new(object);
        let pointer = object.symbol(c"PMPI_File_get_group");
        // SAFETY: the standard gives the function this type, handles being words.
        let file_get_group = (!pointer.is_null())
            .then(|| unsafe { std::mem::transmute::<*mut c_void, FileGetGroup>(pointer) });
        Ok(Self { abi, version, path, constants, functions, fortran, file_get_group, object })
    }

    /// Returns the address of a function that not every MPI library has; null if it is missing.
    pub(super) fn symbol(&self, name: &CStr) -> *mut c_void {
        self.object.symbol(name)
    }

    /// Returns the possible addresses of Fortran's MPI_IN_PLACE: variables of Open MPI and MPICH.
    pub(super) fn fortran_in_place(&self) -> Vec<usize> {
        const NAMES: [(&CStr, usize); 6] = [
            (c"mpi_fortran_in_place_", 0),
            (c"mpi_fortran_in_place", 0),
            (c"mpi_fortran_in_place__", 0),
            (c"MPI_FORTRAN_IN_PLACE", 0),
            (c"MPIR_F08_MPI_IN_PLACE", 0),
            // The second integer of a common block of mpif.h.
            (c"mpipriv1_", size_of::<c_int>()),
        ];
        let mut addresses = Vec::new();
        for (name, offset) in NAMES {
            // SAFETY: a C string.
            let address = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) } as usize;
            if address != 0 {
                addresses.push(address + offset);
            }
        }
        addresses
    }
}

impl Library {
    /// Returns the possible addresses of Fortran's MPI_STATUS_IGNORE and MPI_STATUSES_IGNORE:
    /// variables of the library (MPI-4.1, 19.3.5), and those in Open MPI's and MPICH's modules.
    /// Known once MPI is initialised.
    pub(super) fn fortran_status_ignore(&self) -> Vec<usize> {
        const POINTERS: [&CStr; 4] = [
            c"MPI_F_STATUS_IGNORE",
            c"MPI_F_STATUSES_IGNORE",
            c"MPI_F08_STATUS_IGNORE",
            c"MPI_F08_STATUSES_IGNORE",
        ];
        const VARIABLES: [&CStr; 8] = [
            c"mpi_fortran_status_ignore_",
            c"mpi_fortran_status_ignore",
            c"mpi_fortran_status_ignore__",
            c"MPI_FORTRAN_STATUS_IGNORE",
            c"mpi_fortran_statuses_ignore_",
            c"mpi_fortran_statuses_ignore",
            c"mpi_fortran_statuses_ignore__",
            c"MPI_FORTRAN_STATUSES_IGNORE",
        ];
        const MODULE: [&CStr; 2] =
            [c"MPIR_F08_MPI_STATUS_IGNORE_OBJ", c"MPIR_F08_MPI_STATUSES_IGNORE_OBJ"];
        let address = |name: &CStr| {
            // SAFETY: a C string.
            let global = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
            if global.is_null() { self.object.symbol(name) as usize } else { global as usize }
        };
        // SAFETY: the standard makes these variables pointers.
        let pointed = |at: usize| if at == 0 { 0 } else { unsafe { *(at as *const usize) } };
        let pointers = POINTERS.iter().map(|name| pointed(address(name)));
        let variables = VARIABLES.iter().chain(&MODULE).map(|name| address(name));
        pointers.chain(variables).filter(|address| *address != 0).collect()
    }
}

/// Returns the ABI of the library and its constants.
fn constants(object: Object, path: &str) -> Result<(Abi, Constants), LibraryError> {
    // Copy relocations may have moved Open MPI's objects into the program: ask the global scope
    // first.
    let open_mpi = |name: &'static CStr| -> Option<Handle> {
        // SAFETY: a C string.
        let global = unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) };
        let pointer = if global.is_null() { object.symbol(name) } else { global };
        (!pointer.is_null()).then_some(pointer as Handle)
    };
    let named_standard = path.rsplit('/').next().is_some_and(|file| file.starts_with("libmpi_abi"));
    if !named_standard && let Some(world) = open_mpi(c"ompi_mpi_comm_world") {
        let get = |name: &'static CStr| {
            open_mpi(name).ok_or(LibraryError::Missing(name.to_str().unwrap_or("an object")))
        };
        return Ok((
            Abi::OpenMpi,
            Constants {
                world,
                byte: get(c"ompi_mpi_byte")?,
                info_null: get(c"ompi_mpi_info_null")?,
                errors_return: get(c"ompi_mpi_errors_return")?,
                shared: 0,
                status_ignore: 0,
                no_precede: 2,
                any_source: -1,
                status: StatusLayout { bytes: 24, source: 0 },
            },
        ));
    }
    if named_standard || abi_major_version(object) > 0 {
        let constants = Constants {
            world: 0x101,
            byte: 0x247,
            info_null: 0x130,
            errors_return: 0x143,
            shared: 0xdd,
            status_ignore: 0,
            no_precede: 2048,
            any_source: -1,
            status: StatusLayout { bytes: 32, source: 0 },
        };
        return Ok((Abi::Standard, constants));
    }
    // Handles of another ABI would end the program: errors are fatal by default.
    let version = library_version(object);
    if !is_of_mpich(&version) {
        return Err(LibraryError::UnknownAbi(version));
    }
    let constants = Constants {
        world: 0x4400_0000,
        byte: 0x4c00_010d,
        info_null: 0x1c00_0000,
        errors_return: 0x5400_0001,
        shared: 1,
        status_ignore: 1,
        no_precede: 8192,
        any_source: -2,
        status: StatusLayout { bytes: 20, source: 8 },
    };
    Ok((Abi::Mpich, constants))
}

/// Returns whether a library with this version has MPICH's ABI: MPICH and Cray MPICH, MVAPICH,
/// Intel MPI, ParaStation MPI.
fn is_of_mpich(version: &str) -> bool {
    ["MPICH", "MVAPICH", "Intel", "ParaStation"].iter().any(|name| version.contains(name))
}

/// MPI_Abi_get_version: positive only where the standard ABI is in use; MPICH-ABI builds of new
/// libraries have the function too, and answer -1.
fn abi_major_version(object: Object) -> c_int {
    let pointer = object.symbol(c"PMPI_Abi_get_version");
    if pointer.is_null() {
        return -1;
    }
    let (mut major, mut minor) = (-1, -1);
    // SAFETY: MPI-5, 20.3: two integers out, callable before MPI_Init.
    unsafe {
        let function = std::mem::transmute::<
            *mut c_void,
            unsafe extern "C" fn(*mut c_int, *mut c_int) -> c_int,
        >(pointer);
        function(&mut major, &mut minor);
    }
    major
}

fn library_version(object: Object) -> String {
    let pointer = object.symbol(c"PMPI_Get_library_version");
    if pointer.is_null() {
        return String::from("unknown");
    }
    // MPI_MAX_LIBRARY_VERSION_STRING is at most 8192 in the known ABIs.
    let mut text = vec![0 as c_char; 16384];
    let mut length = 0;
    // SAFETY: MPI-3.1, 8.1.1: callable before MPI_Init; the buffer is larger than any ABI's limit.
    let text = unsafe {
        let function = std::mem::transmute::<
            *mut c_void,
            unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int,
        >(pointer);
        function(text.as_mut_ptr(), &mut length);
        CStr::from_ptr(text.as_ptr())
    };
    let text = text.to_string_lossy();
    // MPICH: "MPICH Version:\t4.0.2"; Open MPI: "Open MPI v4.1.4, package: ..., ident: ...".
    let line = text.lines().next().unwrap_or_default();
    let line = line.split(", package").next().unwrap_or_default();
    line.split_whitespace().filter(|word| *word != "Version:").collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_with_an_abi_of_their_own_are_not_taken_for_mpich() {
        for version in [
            "MPICH 4.0.2",
            "MPI VERSION : CRAY MPICH version 8.1.29 (ANL base 3.4a2)",
            "MVAPICH2 Version : 2.3.7",
            "Intel(R) MPI Library 2021.18.1 for Linux* OS",
        ] {
            assert!(is_of_mpich(version), "{version}");
        }
        for version in ["HPE MPT 2.27 08/10/22 17:25:10", "unknown"] {
            assert!(!is_of_mpich(version), "{version}");
        }
    }
}
