//! libplimsoll.so: the symbols that the application calls.
//!
//! This is the only crate that defines symbols of the C library and of MPI. Each hook is a few
//! lines that call the agent, the collector or the analysis.
//!
//! # Design constraints
//! - A hook that has nothing to do behaves as if it were not there; most jump to the real function
//!   with the stack as they found it.
//! - No panic of Plimsoll leaves a hook, and the application's exceptions pass through all of them.

mod bodies;
mod call_plans;
mod communicating_thread;
mod environment;
mod filters;
mod gomp;
mod guard;
mod heap;
mod idle_code;
mod instrumentation;
mod job;
mod loading;
mod log;
mod message;
mod mpi_hooks;
mod namespaces;
mod ompt;
mod outlined_tasks;
mod own_threads;
mod parallel;
mod partners;
mod passing;
mod processes;
mod real;
mod redirect;
mod signals;
mod stream_calls;
mod stubs;
mod synchronisations;
mod termination;
mod this_thread;
mod threads;
mod wrappers;
mod write_report;

use std::ffi::{c_int, c_void};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use guard::guarded;
use plimsoll_agent::observed_process;
use plimsoll_comm::mpi::launcher;
use plimsoll_summary::settings::{Settings, Warning};
use plimsoll_sys::syscalls::keep_errno;

/// Whether the library may observe this process, from MPI_Init on at the latest.
static ALLOWED: AtomicBool = AtomicBool::new(false);

/// Name of the tool that instruments this process, which is therefore not observed; unset if there
/// is none.
static TOOL: OnceLock<&'static str> = OnceLock::new();

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = constructor;

#[used]
#[unsafe(link_section = ".fini_array")]
static DESTRUCTOR: extern "C" fn() = destructor;

/// The application's main begins with an errno of 0, as without Plimsoll.
extern "C" fn constructor() {
    log::find_stderr();
    // Plimsoll has its own copy of the standard library: the application's panics do not reach this
    // hook.
    std::panic::set_hook(Box::new(log::fault));
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
        gomp::allow(settings.regions && settings.openmp);
        redirect::redirect_calls();
        if is_root(&settings) {
            start(settings, &warnings);
        }
        ompt::look_for_other_tool();
    };
    keep_errno(|| guarded("constructor", construct, || ()));
}

extern "C" fn destructor() {
    let report = || {
        if observed_process::current().is_some_and(|observed| observed.is_own_process())
            && !termination::is_done()
        {
            flush_output();
            termination::by_exit();
        }
    };
    guarded("destructor", report, || ());
}

/// Flushes stdout and stderr, as the application's own exit would directly after the destructor:
/// while this process waits for the report, a launcher that sees another rank end may kill it. A
/// stream that another thread holds is left alone. In particular, fflush(NULL) would wait for
/// threads that are blocked reading a stream.
fn flush_output() {
    unsafe extern "C" {
        static stdout: *mut libc::FILE;
        static stderr: *mut libc::FILE;
        fn ftrylockfile(stream: *mut libc::FILE) -> c_int;
        fn funlockfile(stream: *mut libc::FILE);
    }
    // SAFETY: the C library defines both variables; each stream is locked while it is flushed.
    unsafe {
        for stream in [stdout, stderr] {
            if ftrylockfile(stream) == 0 {
                libc::fflush(stream);
                funlockfile(stream);
            }
        }
    }
}

/// Has the report written at quick_exit, after the application's own functions.
unsafe extern "C" fn at_quick_exit(_: *mut c_void) {
    let report = || {
        if observed_process::current().is_some_and(|observed| observed.is_own_process()) {
            termination::by_exit();
        }
    };
    guarded("quick_exit", report, || ());
}

unsafe extern "C" {
    /// Function that the C library's static at_quick_exit calls (Itanium C++ ABI, 3.3.6, for the
    /// object).
    fn __cxa_at_quick_exit(
        function: unsafe extern "C" fn(*mut c_void),
        object: *mut c_void,
    ) -> c_int;
}

/// Returns the settings and their warnings; `None` if the settings exclude this process.
fn read_settings() -> Option<(Settings, Vec<Warning>)> {
    let (settings, warnings) = Settings::from_env(std::env::vars_os());
    if settings.disable {
        return None;
    }
    log::set_verbosity(u32::from(settings.verbose));
    settings.watches_program(&environment::executable()).then_some((settings, warnings))
}

/// Returns whether this is the process that the user started: the process that `plimsoll run`
/// became, or, preloaded by hand, a process with a parent that does not carry the library.
/// Launchers and shells are excluded.
fn is_root(settings: &Settings) -> bool {
    let first = match settings.root_pid {
        Some(pid) => pid == std::process::id(),
        None => !environment::parent_carries_library(),
    };
    first && !environment::is_launcher(&environment::executable())
}

/// Prints once that nothing is measured because a tool instruments the process.
fn say_aside() {
    static SAID: AtomicBool = AtomicBool::new(false);
    if let Some(tool) = TOOL.get()
        && speaks()
        && !SAID.swap(true, Ordering::Relaxed)
    {
        log::warn(&format!("this process runs under {tool}: nothing is measured beside it"));
    }
}

/// Returns whether this process prints the messages that hold for all ranks.
fn speaks() -> bool {
    launcher::launcher_rank().is_none_or(|rank| rank == 0)
}

fn start(settings: Settings, warnings: &[Warning]) {
    if guard::has_failed() {
        return;
    }
    if speaks() {
        for warning in warnings {
            log::warn(&warning.to_string());
        }
    }
    // SAFETY: the library is never unloaded, so the function outlives the process.
    unsafe { __cxa_at_quick_exit(at_quick_exit, std::ptr::null_mut()) };
    job::begin(settings);
}

/// Starts the observation when MPI_Init is entered, if the process is not observed yet.
fn begin_for_mpi() {
    if !ALLOWED.load(Ordering::Relaxed) {
        return say_aside();
    }
    redirect::redirect_calls();
    if observed_process::current().is_none()
        && let Some((settings, warnings)) = read_settings()
    {
        start(settings, &warnings);
    }
}
