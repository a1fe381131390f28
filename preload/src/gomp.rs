//! GCC's OpenMP runtime (libgomp): its functions, and the wrappers that calls are redirected to.
//!
//! A process may hold several copies of the runtime (Python packages bring their own), each with
//! threads and thread numbers of its own, and the locks have two symbol versions with different
//! layouts. An exported wrapper could not tell which function its caller was bound to. The entries
//! of the modules' offset tables that lead to functions of the first copy are therefore redirected
//! (`redirect.rs`); calls of other copies and of other runtimes stay as they are.

use std::ffi::{CStr, CString, c_int, c_void};
use std::ops::ControlFlow;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use plimsoll_agent::loader;
use plimsoll_agent::regions::outlined::set_returns;
use plimsoll_agent::regions::shares::Runtime;
use plimsoll_calls::{CALLS, CallId, RUNTIME_SYMBOLS};

use crate::redirect::{Binding, Target};
use crate::stubs::RUNTIME_STUBS;

/// Definitions of the wrapped functions by call id and index among [`RUNTIME_SYMBOLS`]; 0 while
/// unknown. Nothing is redirected to a wrapper before its function's definition is known.
static DEFINITIONS: [[AtomicUsize; RUNTIME_SYMBOLS.len()]; CALLS.len() + 1] =
    [const { [const { AtomicUsize::new(0) }; RUNTIME_SYMBOLS.len()] }; CALLS.len() + 1];

/// Functions of the runtime that tell a thread's place in its team, and the size of the next team.
static THREAD_NUMBER: AtomicUsize = AtomicUsize::new(0);
static THREADS: AtomicUsize = AtomicUsize::new(0);
static MAX_THREADS: AtomicUsize = AtomicUsize::new(0);
static LEVEL: AtomicUsize = AtomicUsize::new(0);

/// Whether calls may be redirected: PLIMSOLL_OPENMP and PLIMSOLL_REGIONS are on.
static ALLOWED: AtomicBool = AtomicBool::new(false);

/// Sets whether calls of the runtime may be redirected.
pub fn allow(allowed: bool) {
    unsafe extern "C" {
        /// Return addresses in [`crate::parallel`] and [`crate::outlined_tasks`].
        static plimsoll_share_return: u8;
        static plimsoll_task_return: u8;
    }
    set_returns([&raw const plimsoll_share_return as u64, &raw const plimsoll_task_return as u64]);
    ALLOWED.store(allowed, Ordering::Relaxed);
}

/// Whether OpenMP is to be measured.
pub fn is_allowed() -> bool {
    ALLOWED.load(Ordering::Relaxed)
}

/// Returns the function behind a wrapper.
#[inline]
pub fn definition(call: CallId, symbol: usize) -> *const c_void {
    DEFINITIONS[usize::from(call)][symbol].load(Ordering::Relaxed) as *const c_void
}

/// The runtime, as it is asked by a thread in a region.
pub struct Gomp;

impl Runtime for Gomp {
    #[inline]
    fn thread_number(&self) -> u32 {
        ask(&THREAD_NUMBER)
    }

    #[inline]
    fn threads(&self) -> u32 {
        ask(&THREADS)
    }

    fn level(&self) -> u32 {
        ask(&LEVEL)
    }
}

/// Returns whether the calling thread will be alone in the team of a region, for the number of
/// threads that its wrapped function is passed (0: no clause asks for a number). False if that
/// shows only when the team has been made.
#[inline]
pub fn makes_team_of_one(threads: u32) -> bool {
    match threads {
        0 => ask(&MAX_THREADS) == 1,
        number => number == 1,
    }
}

#[inline]
fn ask(function: &AtomicUsize) -> u32 {
    let function = function.load(Ordering::Relaxed);
    // SAFETY: the functions that tell a thread's place and team have this type. Regions are
    // redirected after these functions have been found.
    let function: Option<extern "C" fn() -> c_int> = unsafe { std::mem::transmute(function) };
    function.map_or(0, |function| function() as u32)
}

/// The copy of the runtime with redirected functions.
struct Copy {
    /// Handle of dlopen(3), kept so that the copy stays loaded.
    handle: usize,
    /// Whether names in the global scope lead to this copy.
    is_global: bool,
    /// Whether this is the only copy.
    is_single: bool,
}

/// Returns the functions to be redirected; none while no copy of the runtime is loaded.
pub fn targets() -> Vec<Target> {
    static RUNTIME: OnceLock<Copy> = OnceLock::new();
    if !ALLOWED.load(Ordering::Relaxed) {
        return Vec::new();
    }
    let runtime = match RUNTIME.get() {
        Some(runtime) => runtime,
        None => match find() {
            Some(runtime) => RUNTIME.get_or_init(|| runtime),
            None => return Vec::new(),
        },
    };
    let target = |stub: &crate::stubs::RuntimeStub| {
        let definition = lookup(runtime.handle, stub.name, stub.version)?;
        DEFINITIONS[usize::from(stub.call)][stub.symbol].store(definition, Ordering::Relaxed);
        Some(Target {
            name: stub.name.to_bytes(),
            version: stub.version.map(CStr::to_bytes),
            definition,
            wrapper: stub.wrapper as usize,
            unbound: match runtime {
                Copy { is_global: true, .. } | Copy { is_single: true, .. } => {
                    Binding::ToDefinition
                }
                _ => Binding::Unknown,
            },
        })
    };
    RUNTIME_STUBS.iter().filter_map(target).collect()
}

/// Finds the first copy of the runtime. LLVM's and Intel's runtimes may be installed under its
/// name.
fn find() -> Option<Copy> {
    let mut paths: Vec<CString> = Vec::new();
    loader::each_object(&mut |info| {
        // SAFETY: the loader's names are C strings.
        let path = unsafe { CStr::from_ptr(info.dlpi_name) };
        let file = path.to_bytes().rsplit(|byte| *byte == b'/').next().unwrap_or_default();
        if file.starts_with(b"libgomp") {
            paths.push(path.to_owned());
        }
        ControlFlow::Continue(())
    });
    let mut handles = paths.iter().filter_map(|path| {
        // SAFETY: a C string; RTLD_NOLOAD only takes a reference to what is loaded.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
        (!handle.is_null()).then_some(handle as usize)
    });
    let is_gcc = |handle: &usize| lookup(*handle, c"__kmpc_fork_call", None).is_none();
    let handle = handles.find(is_gcc)?;
    for (place, name) in [
        (&THREAD_NUMBER, c"omp_get_thread_num"),
        (&THREADS, c"omp_get_num_threads"),
        (&MAX_THREADS, c"omp_get_max_threads"),
        (&LEVEL, c"omp_get_level"),
    ] {
        place.store(lookup(handle, name, None)?, Ordering::Relaxed);
    }
    let region = lookup(handle, c"GOMP_parallel", None)?;
    // SAFETY: a C string.
    let global = unsafe { libc::dlsym(libc::RTLD_DEFAULT, c"GOMP_parallel".as_ptr()) };
    Some(Copy {
        handle,
        is_global: global as usize == region,
        is_single: global.is_null() && paths.len() == 1,
    })
}

fn lookup(handle: usize, name: &CStr, version: Option<&CStr>) -> Option<usize> {
    let handle = handle as *mut c_void;
    // SAFETY: the handle is that of a loaded library; names and versions are C strings.
    let found = unsafe {
        match version {
            Some(version) => libc::dlvsym(handle, name.as_ptr(), version.as_ptr()),
            None => libc::dlsym(handle, name.as_ptr()),
        }
    };
    (!found.is_null()).then_some(found as usize)
}
