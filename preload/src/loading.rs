//! dlopen and dlclose: the map of loaded code follows.
//!
//! dlopen looks at its own return address to learn who calls (whose RUNPATH to search), so the
//! hook must not stand between: it only notes that something will be loaded and jumps on. The
//! process's own thread then looks at the loader's list until it has changed.

use std::ffi::{c_int, c_void};
use std::ops::ControlFlow;

use plimsoll_agent::loader;
use plimsoll_agent::process::{self, Observed};
use plimsoll_wire::doorbell::Doorbell;

use crate::guard::guarded;
use crate::passing_hook;
use crate::real::Function;
use crate::{redirect, signals};

/// Rung by every call of dlopen; the process's own thread sleeps on it.
static NOTED: Doorbell = Doorbell::new();

/// Times after a dlopen at which the loader's list is looked at, in milliseconds from the previous
/// one: loading takes microseconds to seconds.
const LOOKS_MS: [u64; 10] = [1, 4, 15, 80, 400, 500, 1000, 1000, 1000, 1000];

/// How often it is looked whether the sampling signal still is ours, and what raises it, in milliseconds.
const SAMPLING_LOOK_MS: u64 = 1000;

mod c {
    use super::*;
    crate::real! {
        /// Unloads a library.
        dlclose(handle: *mut c_void) -> c_int
    }
}

fn note() {
    if process::current().is_some() {
        NOTED.ring();
    }
}

extern "C" fn note_dlopen() -> *const c_void {
    static FUNCTION: Function = Function::named(c"dlopen");
    guarded("dlopen", note, || ());
    FUNCTION.get()
}

extern "C" fn note_dlmopen() -> *const c_void {
    static FUNCTION: Function = Function::named(c"dlmopen");
    guarded("dlmopen", note, || ());
    FUNCTION.get()
}

passing_hook! {
    /// dlopen.
    dlopen, note_dlopen
}
passing_hook! {
    /// dlmopen.
    dlmopen, note_dlmopen
}

/// dlclose: while it runs, handlers see only what it cannot unload.
///
/// # Safety
/// As the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn dlclose(handle: *mut c_void) -> c_int {
    let begin = || process::current().map(Observed::begin_unload);
    match guarded("dlclose", begin, || None) {
        // What stays loaded has been closed all the same.
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

/// The body of a thread that keeps the map of loaded code up to date, until `stop` says so.
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
                && let Some(observed) = process::current()
            {
                objects = now;
                observed.notice_modules();
                redirect::redirect_calls();
            }
            look_after_sampling();
            if stop() || NOTED.wait(seen, pause) != seen {
                break;
            }
        }
    }
}

/// The application may have taken the sampling signal, or closed what raises it.
fn look_after_sampling() {
    signals::look_after_sampling();
    if let Some(observed) = process::current() {
        observed.look_after_timers(false);
    }
}

/// Wakes the thread in [`follow`], so that it looks whether to stop.
pub fn wake() {
    NOTED.ring();
}

/// How many objects were ever loaded and unloaded.
fn loader_changes() -> (u64, u64) {
    let mut counts = (0, 0);
    loader::each_object(&mut |info| {
        counts = (info.dlpi_adds, info.dlpi_subs);
        ControlFlow::Break(())
    });
    counts
}
