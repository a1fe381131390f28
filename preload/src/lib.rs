//! libplimsoll.so: the symbols that the application calls.
//!
//! The only crate that defines symbols of the C library and of MPI. Each hook is a few lines that
//! hand over to the agent, the collector or the analysis.
//!
//! # Design constraints
//! - A hook that has nothing to do behaves as if it were not there; most jump to the real function
//!   with the stack as they found it.
//! - No panic of ours leaves a hook, and the application's exceptions pass through all of them.
//! - A process that is not to be observed is left alone: its hooks find no observed process.

mod ending;
mod filters;
mod guard;
mod heap;
mod instrumentation;
mod job;
mod loading;
mod message;
mod mpi_hooks;
mod partners;
mod passing;
mod processes;
mod real;
mod redirect;
mod report;
mod say;
mod signals;
mod stubs;
mod surroundings;
mod threads;
mod wrappers;

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use guard::guarded;
use plimsoll_agent::process;
use plimsoll_comm::mpi::launch;
use plimsoll_summary::settings::{Settings, Warning};

/// The library may observe this process, when it calls MPI_Init at the latest.
static ALLOWED: AtomicBool = AtomicBool::new(false);

/// What instruments this process, so that it is left alone, until that is said.
static TOOL: OnceLock<&'static str> = OnceLock::new();

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;

#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = destructor;

extern "C" fn constructor() {
    say::find_stderr();
    // The standard library is our own copy: the application's panics are not seen here.
    std::panic::set_hook(Box::new(say::fault));
    let construct = || {
        real::resolve_all();
        filters::resolve();
        // SAFETY: no preconditions. A privileged program must not be influenced by its caller.
        if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
            return;
        }
        processes::follow_forks();
        let Some((settings, warnings)) = read_settings() else { return };
        if let Some(tool) = instrumentation::tool() {
            let _ = TOOL.set(tool);
            if is_root(&settings) {
                say_aside();
            }
            return;
        }
        ALLOWED.store(true, Ordering::Relaxed);
        redirect::redirect_calls();
        if is_root(&settings) {
            start(settings, &warnings);
        }
    };
    guarded("constructor", construct, || ());
}

extern "C" fn destructor() {
    let report = || {
        if process::current().is_some_and(|observed| observed.is_own_process()) {
            // What the application has printed is safe before a launcher that sees a rank end
            // kills the others: its own exit would write it out right after us.
            // SAFETY: flushes all streams.
            unsafe { libc::fflush(std::ptr::null_mut()) };
            ending::by_exit();
        }
    };
    guarded("destructor", report, || ());
}

/// Runs at quick_exit, after the application's own functions.
unsafe extern "C" fn at_quick_exit(_: *mut c_void) {
    let report = || {
        if process::current().is_some_and(|observed| observed.is_own_process()) {
            ending::by_exit();
        }
    };
    guarded("quick_exit", report, || ());
}

unsafe extern "C" {
    /// What the C library's static at_quick_exit calls (Itanium C++ ABI, 3.3.6, for the object).
    fn __cxa_at_quick_exit(
        function: unsafe extern "C" fn(*mut c_void),
        object: *mut c_void,
    ) -> c_int;
}

/// The settings and what is wrong with them, unless they say that this process is to be left
/// alone.
fn read_settings() -> Option<(Settings, Vec<Warning>)> {
    let (settings, warnings) = Settings::from_env(std::env::vars_os());
    if settings.disable {
        return None;
    }
    say::set_verbosity(u32::from(settings.verbose));
    settings.watches_program(&surroundings::executable()).then_some((settings, warnings))
}

/// Whether this is the very process that the user started: the one that `plimsoll run` became, or,
/// preloaded by hand, one whose parent does not carry the library. Launchers and shells are not.
fn is_root(settings: &Settings) -> bool {
    let first = match settings.root_pid {
        Some(pid) => pid == std::process::id(),
        None => !surroundings::parent_carries_library(),
    };
    first && !surroundings::is_launcher(&surroundings::executable())
}

/// Says, once, that nothing is measured beside a tool that instruments the process.
fn say_aside() {
    static SAID: AtomicBool = AtomicBool::new(false);
    if let Some(tool) = TOOL.get()
        && speaks()
        && !SAID.swap(true, Ordering::Relaxed)
    {
        say::warn(&format!("this process runs under {tool}: nothing is measured beside it"));
    }
}

/// Whether this process says what holds for all ranks.
fn speaks() -> bool {
    launch::told_rank().is_none_or(|rank| rank == 0)
}

fn start(settings: Settings, warnings: &[Warning]) {
    if guard::has_failed() {
        return;
    }
    if speaks() {
        for warning in warnings {
            say::warn(&warning.to_string());
        }
    }
    // SAFETY: the library is never unloaded, so the function outlives the process.
    unsafe { __cxa_at_quick_exit(at_quick_exit, std::ptr::null_mut()) };
    job::begin(settings);
}

/// MPI_Init was entered: the process is observed from now on, if it was not before.
fn begin_for_mpi() {
    if !ALLOWED.load(Ordering::Relaxed) {
        return say_aside();
    }
    redirect::redirect_calls();
    if process::current().is_none()
        && let Some((settings, warnings)) = read_settings()
    {
        start(settings, &warnings);
    }
}
