//! Hooks of the calls that begin and end MPI, and of MPI_Pcontrol, in C and in Fortran.
//!
//! A Fortran layer may call the C function of the same name, which enters a hook again; the inner
//! call is passed on unchanged.

use std::ffi::{c_int, c_void};

use plimsoll_calls::{CallId, id_of};
use plimsoll_sys::float_environment::in_default_environment;

use crate::guard::guarded;
use crate::stubs::Frame;
use crate::{job, log, message, real, termination, wrappers};

const INIT: CallId = id_of("MPI_Init");
const INIT_THREAD: CallId = id_of("MPI_Init_thread");
const SESSION_INIT: CallId = id_of("MPI_Session_init");
const SESSION_FINALIZE: CallId = id_of("MPI_Session_finalize");
const FINALIZE: CallId = id_of("MPI_Finalize");
const ABORT: CallId = id_of("MPI_Abort");
const PCONTROL: CallId = id_of("MPI_Pcontrol");

/// Result for a function that no library provides. MPI_ERR_OTHER of every ABI is at least this
/// value, and it is not MPI_SUCCESS.
const FAILED: isize = 15;

/// The real function behind a hook, with the application's arguments. All arguments are words that
/// fit into registers.
struct Real<'f> {
    frame: &'f Frame,
    definition: *const c_void,
}

impl<'f> Real<'f> {
    fn of(frame: &'f Frame) -> Option<Self> {
        let caller = frame.return_address() as *const c_void;
        let definition = real::find(frame.call(), frame.symbol_variant(), caller);
        if definition.is_none() {
            let name = frame.entry().name;
            log::warn(&format!("the program calls {name}, which no loaded library provides"));
        }
        definition.map(|definition| Self { frame, definition })
    }

    fn call(&self) -> isize {
        type Words = unsafe extern "C-unwind" fn(usize, usize, usize, usize, usize, usize) -> isize;
        // SAFETY: MPI-4.1, 11.2: all arguments are words, and the function reads only those that it
        // declares; the frame holds six, as the application passed them.
        unsafe {
            let function = std::mem::transmute::<*const c_void, Words>(self.definition);
            let argument = |index| self.frame.argument(index);
            function(argument(0), argument(1), argument(2), argument(3), argument(4), argument(5))
        }
    }

    /// Returns whether the call that returned `result` succeeded.
    fn succeeded(&self, result: isize) -> bool {
        // SAFETY: the call has returned; the table gives the position of ierror.
        unsafe { message::succeeded(self.frame, result as c_int) }
    }
}

/// Hook of all these functions, called by their stubs.
///
/// # Safety
/// The frame belongs to a stub.
pub unsafe extern "C-unwind" fn hook(frame: &Frame) -> isize {
    let call = frame.call();
    let caller = frame.return_address() as *const c_void;
    // Other libraries, too, may have functions named like mpi_init_.
    if !frame.is_c() && real::find(INIT, 0, caller).is_none() {
        return Real::of(frame).map_or(FAILED, |real| real.call());
    }
    if call == ABORT {
        guarded("MPI_Abort", termination::by_abort, || ());
    }
    let Some(real) = Real::of(frame) else {
        if call == ABORT {
            // SAFETY: no preconditions.
            unsafe { libc::abort() }
        }
        // MPI_Pcontrol does nothing by the standard (MPI-4.1, 15.2.4), and a library may omit it.
        return if call == PCONTROL { 0 } else { FAILED };
    };
    match call {
        INIT | INIT_THREAD => {
            let init = || {
                let result = real.call();
                (result, real.succeeded(result))
            };
            job::around_mpi_init(real.definition, init)
        }
        SESSION_INIT => {
            let init = || {
                let result = real.call();
                (result, real.succeeded(result).then(|| session(frame)).flatten())
            };
            job::around_session_init(real.definition, init)
        }
        FINALIZE => {
            in_default_environment(|| job::finalize(|wait| wrappers::as_region(frame, wait)));
            termination::await_end();
            real.call()
        }
        SESSION_FINALIZE => {
            let wait = |wait: &mut dyn FnMut()| wrappers::as_region(frame, wait);
            in_default_environment(|| job::finalize_session(wait));
            termination::await_end();
            real.call()
        }
        PCONTROL => {
            guarded("MPI_Pcontrol", || control(frame), || ());
            real.call()
        }
        _ => real.call(),
    }
}

/// Returns the address of the session made by a successful MPI_Session_init.
fn session(frame: &Frame) -> Option<job::Session> {
    // SAFETY: the session is the third argument.
    let handle = unsafe { frame.argument(2) } as *const c_void;
    (!handle.is_null()).then_some(job::Session { handle, fortran: !frame.is_c() })
}

/// Applies MPI_Pcontrol: level 0 pauses the measurement, level 1 resumes it; other levels are
/// ignored.
fn control(frame: &Frame) {
    // SAFETY: the level is the first argument, in Fortran a reference.
    let level = unsafe {
        let word = frame.argument(0);
        if frame.is_c() { Some(word as c_int) } else { (word as *const c_int).as_ref().copied() }
    };
    match level {
        Some(0) => job::pause(true),
        Some(1) => job::pause(false),
        _ => {}
    }
}
