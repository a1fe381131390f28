//! OpenMP under LLVM's runtime and its relatives (libomp, libiomp5): the OpenMP tools interface.
//!
//! The runtime asks for a tool when it sets itself up, by calling `ompt_start_tool` of the first
//! library that has one. A runtime has one tool: if another library of the process, or one that
//! OMP_TOOL_LIBRARIES names, wants to be the tool, Plimsoll leaves the runtime to that tool and
//! says so. Where Plimsoll is the tool, the runtime's functions are not wrapped, so that each event
//! is noted once.

use std::ffi::{c_char, c_int, c_uint, c_void};
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll_agent::loader;
use plimsoll_agent::marks::marks_disabled::MarksDisabled;
use plimsoll_agent::observed_process;
use plimsoll_agent::regions::tool_events;

use crate::guard::guarded;
use crate::threads::library_of;
use crate::{ALLOWED, gomp, log, real, speaks};
use interface::{Data, Lookup, MIN_SET, SetCallback, StartTool, StartToolResult};

mod callbacks;
mod interface;

/// Called by an OpenMP runtime that looks for a tool (OpenMP 5.2, 19.2.1). Returns null if the
/// process is not observed, or the description of the tool: another one that was found, or
/// Plimsoll.
///
/// # Safety
/// Only an OpenMP runtime may call this function.
#[unsafe(no_mangle)]
unsafe extern "C" fn ompt_start_tool(
    omp_version: c_uint,
    runtime_version: *const c_char,
) -> *mut StartToolResult {
    // Outside the guard: this may be another tool's function. The runtime has one, too, which
    // returns the result of the next library's, or null.
    let other = real::resolve(c"ompt_start_tool", None).map_or(null_mut(), |next| {
        // SAFETY: a function of this name has this type.
        unsafe {
            let start: StartTool = std::mem::transmute(next);
            start(omp_version, runtime_version)
        }
    });
    guarded("ompt_start_tool", || start(other), || other)
}

/// Returns the tool of a runtime; `other` is the one that another library offers.
fn start(other: *mut StartToolResult) -> *mut StartToolResult {
    static mut RESULT: StartToolResult =
        StartToolResult { initialize, finalize, tool_data: Data { value: 0 } };

    if !ALLOWED.load(Ordering::Relaxed) {
        return other;
    }
    if !other.is_null() {
        step_aside("another library of the process");
        return other;
    }
    if std::env::var_os("OMP_TOOL_LIBRARIES").is_some_and(|libraries| !libraries.is_empty()) {
        step_aside("OMP_TOOL_LIBRARIES");
        return null_mut();
    }
    if !gomp::is_allowed() {
        return null_mut();
    }
    // The runtime alone uses it, and only Plimsoll's functions read it.
    &raw mut RESULT
}

/// Says so if the runtime that is loaded will find another tool first, and never ask for this one.
pub fn look_for_other_tool() {
    // SAFETY: C strings; nothing is called.
    let [runtime, tool] = [c"__kmpc_fork_call", c"ompt_start_tool"]
        .map(|name| unsafe { libc::dlsym(libc::RTLD_DEFAULT, name.as_ptr()) });
    // Not compared with `ompt_start_tool`: that name leads to the other tool here, too.
    let is_own = library_of(tool) == library_of(look_for_other_tool as *const c_void);
    if !runtime.is_null() && !is_own {
        step_aside("the program or a library loaded before this one");
    }
}

/// Says once that the runtime's events go to another tool, unless they are not wanted. Events name
/// calls by return addresses, which must not be those of marks.
fn step_aside(tool: &str) {
    if let Some(observed) = observed_process::current() {
        observed.disable_marks(MarksDisabled::OpenMpTool);
    }
    static SAID: AtomicBool = AtomicBool::new(false);
    if gomp::is_allowed() && speaks() && !SAID.swap(true, Ordering::Relaxed) {
        log::warn(&format!(
            "the OpenMP runtime has another tool ({tool}): parallel regions are not measured"
        ));
    }
}

/// Called by the runtime when it is ready: registers the callbacks. Returns 0, which declines, if
/// the runtime has no events of regions.
///
/// # Safety
/// Only the runtime may call this function.
unsafe extern "C" fn initialize(lookup: Lookup, _device: c_int, _tool: *mut Data) -> c_int {
    // SAFETY: the runtime's own function, called with a C string.
    let register = || unsafe {
        let Some(found) = lookup(c"ompt_set_callback".as_ptr()) else { return 0 };
        let set: SetCallback = std::mem::transmute(found);
        let is_set = |(event, entry): &(interface::Event, unsafe extern "C" fn())| {
            set(*event as c_int, *entry as *const c_void) >= MIN_SET
        };
        add_code(lookup as *const () as u64);
        let missing: Vec<_> =
            callbacks::ENTRIES.iter().filter(|it| !is_set(it)).map(|it| it.0).collect();
        if !missing.is_empty() {
            log::debug(|| format!("the OpenMP runtime has no events {missing:?}"));
        }
        c_int::from(!missing.contains(&interface::Event::ParallelBegin))
    };
    guarded("OpenMP tool", register, || 0)
}

/// Notes the code of the library that holds `address`.
fn add_code(address: u64) {
    if let Some(code) = loader::in_object_at(address, |_, code| code) {
        tool_events::add_runtime(code);
    }
}

/// Called by the runtime when it ends. Threads that end later are of no interest.
unsafe extern "C" fn finalize(_tool: *mut Data) {}
