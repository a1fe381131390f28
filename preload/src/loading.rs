//! Hooks of dlopen and dlclose, which keep the map of loaded code up to date.
//!
//! dlopen reads its own return address to find its caller, and with it the RUNPATH to search. The
//! hook must therefore not call dlopen: it rings a doorbell and jumps to dlopen. Plimsoll's own
//! thread then polls the loader's list until it has changed. The return address may be marked: a
//! sample may fall into the hook, and a function that ends by a jump to dlopen passes on its own.
//! The hook restores it and keeps it free from marks.

use std::ffi::{c_int, c_void};
use std::ops::ControlFlow;

use plimsoll_agent::loader;
use plimsoll_agent::marks;
use plimsoll_agent::observed_process::{self, Observed};
use plimsoll_wire::doorbell::Doorbell;

use crate::guard::guarded;
use crate::passing_hook;
use crate::real::Function;
use crate::{job, redirect, signals};

/// Doorbell rung by every call of dlopen; Plimsoll's own thread sleeps on it.
static NOTED: Doorbell = Doorbell::new();

/// Intervals between polls of the loader's list after a dlopen, in milliseconds: loading takes
/// microseconds to seconds.
const LOOKS_MS: [u64; 10] = [1, 4, 15, 80, 400, 500, 1000, 1000, 1000, 1000];

/// Interval between checks that the sampling signal and the timers that raise it are still
/// Plimsoll's, in milliseconds.
const SAMPLING_LOOK_MS: u64 = 1000;

mod c {
    use super::*;
    crate::real! {
        /// Unloads a library.
        dlclose(handle: *mut c_void) -> c_int
    }
}

/// Notes a call with its return address at `return_slot`.
///
/// # Safety
/// The calling thread is making the call.
unsafe fn note(return_slot: *mut u64) {
    // SAFETY: as the caller promises.
    unsafe { marks::keep_free(return_slot) };
    if observed_process::current().is_some() {
        NOTED.ring();
    }
}

/// # Safety
/// As [`note`]; this holds for the next function, too.
unsafe extern "C" fn note_dlopen(
    _: usize,
    _: usize,
    _: usize,
    return_slot: *mut u64,
) -> *const c_void {
    static FUNCTION: Function = Function::named(c"dlopen");
    // SAFETY: as the caller promises.
    guarded("dlopen", || unsafe { note(return_slot) }, || ());
    FUNCTION.get()
}

unsafe extern "C" fn note_dlmopen(
    _: usize,
    _: usize,
    _: usize,
    return_slot: *mut u64,
) -> *const c_void {
    static FUNCTION: Function = Function::named(c"dlmopen");
    // SAFETY: as the caller promises.
    guarded("dlmopen", || unsafe { note(return_slot) }, || ());
    FUNCTION.get()
}

passing_hook! {
    /// Hook of dlopen.
    dlopen, note_dlopen
}
passing_hook! {
    /// Hook of dlmopen.
    dlmopen, note_dlmopen
}

/// Hook of dlclose: during the call, handlers see only modules that the call cannot unload.
///
/// # Safety
/// As the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn dlclose(handle: *mut c_void) -> c_int {
    let begin = || observed_process::current().map(Observed::begin_unload);
    match guarded("dlclose", begin, || None) {
        // The module stays loaded; to the application, dlclose has succeeded.
        Some(None) => 0,
        Some(Some(unloading)) => {
            // SAFETY: as the caller promises.
            let result = unsafe { c::dlclose(handle) };
            guarded("after dlclose", || drop(unloading), || ());
            result
        }
        // SAFETY: as the caller promises.
        None => unsafe { c::dlclose(handle) },
    }
}

/// Body of a thread that keeps the map of loaded code up to date until `stop` returns `true`.
pub fn follow(stop: impl Fn() -> bool) {
    let mut seen = NOTED.rings();
    let mut objects = loader_changes();
    while !stop() {
        let noted = NOTED.wait(seen, SAMPLING_LOOK_MS);
        look_after_sampling();
        if noted == seen {
            continue;
        }
        seen = noted;
        for pause in LOOKS_MS {
            let now = loader_changes();
            if now != objects
                && let Some(observed) = observed_process::current()
            {
                objects = now;
                observed.notice_modules();
                redirect::redirect_calls();
                if let Some(job) = job::get() {
                    job.declare_functions(observed);
                }
            }
            look_after_sampling();
            if stop() || NOTED.wait(seen, pause) != seen {
                break;
            }
        }
    }
}

/// Checks whether the application has taken the sampling signal, or closed the timers that raise
/// it.
fn look_after_sampling() {
    signals::look_after_sampling();
    if let Some(observed) = observed_process::current() {
        observed.look_after_timers(false);
    }
}

/// Wakes the thread in [`follow`], so that it checks whether to stop.
pub fn wake() {
    NOTED.ring();
}

/// Returns the numbers of objects ever loaded and ever unloaded.
fn loader_changes() -> (u64, u64) {
    let mut counts = (0, 0);
    loader::each_object(&mut |info| {
        counts = (info.dlpi_adds, info.dlpi_subs);
        ControlFlow::Break(())
    });
    counts
}
