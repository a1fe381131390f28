//! MPI_Init, MPI_Finalize, MPI_Abort, MPI_Pcontrol.

use std::arch::naked_asm;
use std::ffi::{CStr, c_char, c_int, c_void};

use plimsoll_agent::calls::id_of;
use plimsoll_analysis::mpi::next_definition;

use crate::{ending, job, say};

/// MPI_ERR_OTHER of every ABI is at least this; it is not MPI_SUCCESS.
const FAILED: c_int = 15;

fn real(name: &CStr, caller: usize) -> Option<*const c_void> {
    let definition = next_definition(name, caller as *const c_void);
    if definition.is_none() {
        say::warn(&format!(
            "the program calls {}, which no loaded library provides",
            name.to_string_lossy()
        ));
    }
    definition
}

/// Defines an exported hook that passes its arguments and, as the last one, its caller's address
/// to a function of ours: a Rust function cannot know its caller.
macro_rules! with_caller {
    ($(#[$meta:meta])* $name:ident($register:literal) -> $hook:ident) => {
        $(#[$meta])*
        ///
        /// # Safety
        /// As the MPI function of this name.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C-unwind" fn $name() {
            naked_asm!(concat!("mov ", $register, ", [rsp]"), "jmp {hook}", hook = sym $hook)
        }
    };
}

with_caller! {
    /// MPI_Init.
    MPI_Init("rdx") -> init
}
with_caller! {
    /// MPI_Init_thread.
    MPI_Init_thread("r8") -> init_thread
}
with_caller! {
    /// MPI_Abort.
    MPI_Abort("rdx") -> abort
}

/// # Safety
/// As MPI_Init.
unsafe extern "C-unwind" fn init(
    count: *mut c_int,
    values: *mut *mut *mut c_char,
    caller: usize,
) -> c_int {
    let Some(definition) = real(c"MPI_Init", caller) else { return FAILED };
    job::around_mpi_init(definition, || {
        // SAFETY: MPI-3.1, 8.7: the function's type; the caller keeps its contract.
        unsafe {
            let function: unsafe extern "C-unwind" fn(*mut c_int, *mut *mut *mut c_char) -> c_int =
                std::mem::transmute(definition);
            function(count, values)
        }
    })
}

/// # Safety
/// As MPI_Init_thread.
unsafe extern "C-unwind" fn init_thread(
    count: *mut c_int,
    values: *mut *mut *mut c_char,
    required: c_int,
    provided: *mut c_int,
    caller: usize,
) -> c_int {
    let Some(definition) = real(c"MPI_Init_thread", caller) else { return FAILED };
    job::around_mpi_init(definition, || {
        // SAFETY: MPI-3.1, 12.4.3: the function's type; the caller keeps its contract.
        unsafe {
            let function: unsafe extern "C-unwind" fn(
                *mut c_int,
                *mut *mut *mut c_char,
                c_int,
                *mut c_int,
            ) -> c_int = std::mem::transmute(definition);
            function(count, values, required, provided)
        }
    })
}

/// # Safety
/// As MPI_Abort.
unsafe extern "C-unwind" fn abort(communicator: usize, code: c_int, caller: usize) -> c_int {
    ending::by_abort();
    let Some(definition) = real(c"MPI_Abort", caller) else {
        // SAFETY: no preconditions.
        unsafe { libc::abort() }
    };
    // SAFETY: MPI-3.1, 8.7: the function's type, the handle being a word.
    unsafe {
        let function: unsafe extern "C-unwind" fn(usize, c_int) -> c_int =
            std::mem::transmute(definition);
        function(communicator, code)
    }
}

/// MPI_Finalize. The assembly keeps a frame, so that the wait for the other ranks is measured as a
/// call of the application.
///
/// # Safety
/// As the MPI function.
#[unsafe(no_mangle)]
#[unsafe(naked)]
pub unsafe extern "C-unwind" fn MPI_Finalize() -> c_int {
    naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "lea rdi, [rbp + 8]",
        "call {finalize}",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
        finalize = sym finalize,
    )
}

/// # Safety
/// As MPI_Finalize; `place` is where its return address lies, above the caller's rbp.
unsafe extern "C-unwind" fn finalize(place: *const usize) -> c_int {
    const CALL: u16 = id_of("MPI_Finalize");
    // SAFETY: promised by the assembly.
    let caller = unsafe { *place };
    let Some(definition) = real(c"MPI_Finalize", caller) else { return FAILED };
    job::finalize(|wait| {
        // SAFETY: promised by the assembly.
        let measured = unsafe { crate::wrappers::begin_region(CALL, place) };
        wait();
        if measured {
            crate::wrappers::end_region(CALL, place, true);
        }
    });
    // SAFETY: MPI-3.1, 8.7: the function's type.
    unsafe {
        let function: unsafe extern "C-unwind" fn() -> c_int = std::mem::transmute(definition);
        function()
    }
}

/// MPI_Pcontrol: 0 pauses the measurement, 1 resumes it; other levels are not ours. The real one
/// does nothing by the standard (MPI-3.1, 14.2.4), but another tool may stand behind us.
///
/// # Safety
/// As the MPI function.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn MPI_Pcontrol(level: c_int) -> c_int {
    match level {
        0 => job::pause(true),
        1 => job::pause(false),
        _ => {}
    }
    let Some(definition) = next_definition(c"MPI_Pcontrol", std::ptr::null()) else { return 0 };
    // SAFETY: the function's type, without its variable arguments, of which the standard defines
    // none.
    unsafe {
        let function: unsafe extern "C-unwind" fn(c_int) -> c_int = std::mem::transmute(definition);
        function(level)
    }
}
