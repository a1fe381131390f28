//! dlopen and dlclose: the map of loaded code follows.
//!
//! dlopen looks at its own return address to learn who calls (whose RUNPATH to search), so the
//! hook must not stand between: it only notes that something will be loaded and jumps on. The
//! process's own thread then looks at the loader's list until it has changed.

use std::arch::naked_asm;
use std::ffi::{c_int, c_void};

use plimsoll_agent::doorbell::Doorbell;
use plimsoll_agent::process;

use crate::real::Function;
use crate::redirect;

/// Rung by every call of dlopen; the process's own thread sleeps on it.
static NOTED: Doorbell = Doorbell::new();

/// Times after a dlopen at which the loader's list is looked at, in milliseconds from the previous
/// one: loading takes microseconds to seconds.
const LOOKS_MS: [u64; 7] = [1, 4, 15, 80, 400, 1500, 3000];

mod c {
    use super::*;
    crate::real! {
        /// Unloads a library.
        dlclose(handle: *mut c_void) -> c_int
    }
}

extern "C" fn note_dlopen() -> *const c_void {
    static FUNCTION: Function = Function::named(c"dlopen");
    NOTED.ring();
    FUNCTION.get()
}

extern "C" fn note_dlmopen() -> *const c_void {
    static FUNCTION: Function = Function::named(c"dlmopen");
    NOTED.ring();
    FUNCTION.get()
}

macro_rules! loading_hook {
    ($(#[$meta:meta])* $name:ident, $note:ident) => {
        $(#[$meta])*
        ///
        /// # Safety
        /// As the C library's function.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C-unwind" fn $name() {
            naked_asm!(
                ".cfi_startproc",
                "push rdi",
                ".cfi_adjust_cfa_offset 8",
                "push rsi",
                ".cfi_adjust_cfa_offset 8",
                "push rdx",
                ".cfi_adjust_cfa_offset 8",
                "call {note}",
                "pop rdx",
                ".cfi_adjust_cfa_offset -8",
                "pop rsi",
                ".cfi_adjust_cfa_offset -8",
                "pop rdi",
                ".cfi_adjust_cfa_offset -8",
                "jmp rax",
                ".cfi_endproc",
                note = sym $note,
            )
        }
    };
}

loading_hook! {
    /// dlopen.
    dlopen, note_dlopen
}
loading_hook! {
    /// dlmopen.
    dlmopen, note_dlmopen
}

/// dlclose: while it runs, handlers see only what it cannot unload.
///
/// # Safety
/// As the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn dlclose(handle: *mut c_void) -> c_int {
    // SAFETY: as the caller promises.
    let unload = || unsafe { c::dlclose(handle) };
    match process::current() {
        // What stays loaded has been closed all the same.
        Some(observed) => observed.around_unload(unload).unwrap_or(0),
        None => unload(),
    }
}

/// The body of a thread that keeps the map of loaded code up to date, until `stop` says so.
pub fn follow(stop: impl Fn() -> bool) {
    let mut seen = NOTED.rings();
    let mut objects = loader_changes();
    while !stop() {
        let noted = NOTED.wait(seen, 60_000);
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
            if stop() || NOTED.wait(seen, pause) != seen {
                break;
            }
        }
    }
}

/// Wakes the thread in [`follow`], so that it looks whether to stop.
pub fn wake() {
    NOTED.ring();
}

/// How many objects were ever loaded and unloaded.
fn loader_changes() -> (u64, u64) {
    unsafe extern "C" fn first(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        counts: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader's information, and the pair that `loader_changes` passes.
        unsafe { *counts.cast::<(u64, u64)>() = ((*info).dlpi_adds, (*info).dlpi_subs) };
        1
    }
    let mut counts = (0u64, 0u64);
    // SAFETY: the callback gets the pair, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(first), (&raw mut counts).cast()) };
    counts
}
