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
mod heap;
mod job;
mod loading;
mod message;
mod mpi_hooks;
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
use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll_agent::process;
use plimsoll_analysis::settings::{Settings, Warning};

/// The library may observe this process, when it calls MPI_Init at the latest.
static ALLOWED: AtomicBool = AtomicBool::new(false);

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;

#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = destructor;

extern "C" fn constructor() {
    let _ = std::panic::catch_unwind(|| {
        // The standard library is our own copy: the application's panics are not seen here.
        std::panic::set_hook(Box::new(say::fault));
        real::resolve_all();
        // SAFETY: no preconditions. A privileged program must not be influenced by its caller.
        if unsafe { libc::getauxval(libc::AT_SECURE) } != 0 {
            return;
        }
        let Some((settings, warnings)) = read_settings() else { return };
        ALLOWED.store(true, Ordering::Relaxed);
        redirect::redirect_calls();
        if is_root(&settings) {
            start(settings, &warnings);
        }
    });
}

extern "C" fn destructor() {
    let _ = std::panic::catch_unwind(|| {
        if process::current().is_some_and(|observed| observed.is_own_process()) {
            // What the application has printed is safe before a launcher that sees a rank end
            // kills the others: its own exit would write it out right after us.
            // SAFETY: flushes all streams.
            unsafe { libc::fflush(std::ptr::null_mut()) };
            ending::by_exit();
        }
    });
}

/// Runs at quick_exit, after the application's own functions.
unsafe extern "C" fn at_quick_exit(_: *mut c_void) {
    if process::current().is_some_and(|observed| observed.is_own_process()) {
        ending::by_exit();
    }
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

fn start(settings: Settings, warnings: &[Warning]) {
    if surroundings::rank_told_by_launcher().is_none_or(|rank| rank == 0) {
        for warning in warnings {
            say::warn(&warning.to_string());
        }
    }
    wrappers::REGIONS.store(settings.regions, Ordering::Relaxed);
    // SAFETY: the library is never unloaded, so the function outlives the process.
    unsafe { __cxa_at_quick_exit(at_quick_exit, std::ptr::null_mut()) };
    job::begin(settings);
}

/// MPI_Init was entered: the process is observed from now on, if it was not before.
fn begin_for_mpi() {
    if !ALLOWED.load(Ordering::Relaxed) {
        return;
    }
    let _ = std::panic::catch_unwind(redirect::redirect_calls);
    if process::current().is_none() {
        let _ = std::panic::catch_unwind(|| {
            if let Some((settings, warnings)) = read_settings() {
                start(settings, &warnings);
            }
        });
    }
}
