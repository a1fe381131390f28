//! Shared objects that are loaded into this process, MPI libraries among them.

use std::cell::OnceCell;
use std::ffi::{CStr, CString, c_void};
use std::ops::ControlFlow;

use plimsoll_agent::loader;

/// A handle of the dynamic loader that is never closed.
#[derive(Clone, Copy)]
pub(super) struct Object(*mut c_void);

// SAFETY: the dynamic loader's handles may be used by any thread.
unsafe impl Send for Object {}
// SAFETY: as above.
unsafe impl Sync for Object {}

impl Object {
    /// Returns the loaded object that contains `address`, and its path.
    pub(super) fn holding(address: *const c_void) -> Option<(Self, String)> {
        let path = path_of(address)?;
        // SAFETY: a C string; RTLD_NOLOAD only takes a reference to what is loaded.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
        (!handle.is_null()).then(|| (Self(handle), path.to_string_lossy().into_owned()))
    }

    /// Returns the address of `name` in the object or its dependencies; null if neither defines it.
    pub(super) fn symbol(self, name: &CStr) -> *mut c_void {
        // SAFETY: a handle from dlopen and a C string.
        unsafe { libc::dlsym(self.0, name.as_ptr()) }
    }
}

/// Returns the path of the loaded object that contains `address`.
fn path_of(address: *const c_void) -> Option<CString> {
    // SAFETY: all-zero is a valid Dl_info; dladdr fills it in and its strings live as long as the
    // object is loaded.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(address, &mut info) == 0 || info.dli_fname.is_null() {
            return None;
        }
        Some(CStr::from_ptr(info.dli_fname).to_owned())
    }
}

/// Returns the path of this library, so that its own hooks are not taken for MPI.
fn is_ours(address: *const c_void) -> bool {
    path_of(address).is_some_and(|path| path_of(is_ours as *const c_void) == Some(path))
}

/// Searches definitions in the objects that are loaded.
#[derive(Default)]
pub struct Definitions {
    /// Loaded objects with `mpi` in their names, listed once for all searches.
    objects: OnceCell<Vec<Object>>,
}

impl Definitions {
    /// Returns the definition of `name` that the application would call without Plimsoll, the first
    /// of:
    /// - the next one in the global scope;
    /// - for an MPI that was loaded RTLD_LOCAL, the one among the dependencies of the object that
    ///   contains `caller`;
    /// - that of any loaded object with `mpi` in its name.
    pub fn next(&self, name: &CStr, caller: *const c_void) -> Option<*const c_void> {
        // SAFETY: a C string.
        let global = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr()) };
        if !global.is_null() {
            return Some(global);
        }
        let found = |pointer: *mut c_void| {
            (!pointer.is_null() && !is_ours(pointer)).then_some(pointer.cast_const())
        };
        Object::holding(caller).and_then(|(object, _)| found(object.symbol(name))).or_else(|| {
            let objects = self.objects.get_or_init(loaded_mpi_objects);
            objects.iter().find_map(|object| found(object.symbol(name)))
        })
    }
}

fn loaded_mpi_objects() -> Vec<Object> {
    let mut names = Vec::new();
    loader::each_object(&mut |info| {
        // SAFETY: the loader's names are C strings.
        names.push(unsafe { CStr::from_ptr(info.dlpi_name) }.to_owned());
        ControlFlow::Continue(())
    });
    names
        .iter()
        .filter(|name| {
            let name = name.to_string_lossy();
            name.rsplit('/').next().is_some_and(|file| file.contains("mpi"))
        })
        .filter_map(|name| {
            // SAFETY: a C string; RTLD_NOLOAD only takes a reference to what is loaded.
            let handle =
                unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
            (!handle.is_null()).then_some(Object(handle))
        })
        .collect()
}
