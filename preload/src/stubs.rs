//! Assembly between the application and the functions that it calls: one stub of two instructions
//! for each symbol, and two bodies that all stubs share.
//!
//! A body saves the argument words in a [`Frame`]. The body of measured calls asks [`enter`] for
//! the real function and whether the call is measured. It then either jumps to the real function,
//! with the stack as the caller left it, or calls the function and passes its result to [`leave`].
//! During the real call the stack holds the stub's frame only and no Rust frame, so that
//! exceptions, cancellation and longjmp pass as they would without Plimsoll.

use std::arch::naked_asm;
use std::ffi::{CStr, c_int};
use std::mem::offset_of;

use plimsoll_calls::{CALLS, Call, CallId, SYMBOLS, Symbol, id_of};
use plimsoll_comm::mpi::Members;

use plimsoll_agent::marks;
use plimsoll_agent::regions::Entry;
use plimsoll_agent::timer::Suspension;
use plimsoll_wire::clock_anchor::ticks;

use crate::bodies::{measured_body, open_frame, pop, push, save_code, save_words};
use crate::mpi_hooks::hook;
use crate::parallel::parallel;
use crate::wrappers::{
    enter, enter_runtime, leave, pthread_mutex_trylock, pthread_rwlock_tryrdlock,
    pthread_rwlock_trywrlock,
};

/// Stack frame of a body: the caller's argument words, and space for Plimsoll's values.
#[repr(C)]
pub struct Frame {
    /// Arguments that are passed in registers.
    pub registers: [usize; 6],
    result: usize,
    code: u32,
    /// Members of the window or file that the call frees; set only for calls that free one.
    pub freed: Members,
    /// Suspension of the thread's timer during the call.
    pub suspension: Suspension,
    /// Message arguments of a Fortran call, read before the real call.
    pub noted: Noted,
    /// Value of rbp in the caller.
    pub caller_rbp: u64,
    /// Return address of the call, or the mark that replaces it.
    return_address: u64,
}

/// Arguments that Fortran passes by reference, read when the call begins.
// The alignment keeps the stack pointer of the call a multiple of 16.
#[repr(C, align(16))]
#[derive(Clone, Copy)]
pub struct Noted {
    /// Number of elements; 0 if the call has no count.
    pub count: u64,
    /// Handle of the elements' datatype.
    pub datatype: c_int,
    /// Handle of the communicator.
    pub communicator: c_int,
    /// Destination and source rank, in this order.
    pub ranks: [c_int; 2],
    /// Tags of the sent and of the received message, in this order.
    pub tags: [c_int; 2],
    /// Number of partitions, or of requests in a list; 0 if the call has neither.
    pub number: u64,
}

impl Frame {
    /// Offsets of the stub's code and of the result of the real call, for assembly.
    pub const CODE: usize = offset_of!(Frame, code);
    /// See [`Self::CODE`].
    pub const RESULT: usize = offset_of!(Frame, result);

    /// Returns the id of the call.
    #[inline]
    pub fn call(&self) -> CallId {
        call_of(self.code)
    }

    /// Returns whether the call is made in C, not in Fortran.
    #[inline]
    pub fn is_c(&self) -> bool {
        self.symbol_variant() == 0
    }

    /// Returns the call's entry in the table of calls.
    #[inline]
    pub fn entry(&self) -> &'static Call {
        &CALLS[usize::from(self.call()) - 1]
    }

    /// Returns the symbol by which the call was made.
    pub fn symbol(&self) -> &'static Symbol {
        &SYMBOLS[self.symbol_variant()]
    }

    /// Returns the index of that symbol among [`SYMBOLS`].
    #[inline]
    pub fn symbol_variant(&self) -> usize {
        symbol_variant_of(self.code)
    }

    /// Returns the return address of the call. If the caller's own return is marked and the caller
    /// ends by a jump to this function (a tail call), returns the address that the mark replaced.
    #[inline]
    pub fn return_address(&self) -> u64 {
        marks::mark_stubs::original(self.return_address)
    }

    /// Returns the entry of a call, which has just begun, for its record. `descriptor` is that of
    /// the call, or -1.
    #[inline(always)]
    pub fn begun(&self, call: CallId, descriptor: i32) -> Entry {
        Entry {
            call,
            return_slot: self.return_slot(),
            return_address: self.return_address(),
            caller_rbp: self.caller_rbp,
            descriptor,
            ticks: ticks(),
        }
    }

    /// Returns the stack address of the return address.
    pub fn return_slot(&self) -> u64 {
        &raw const self.return_address as u64
    }

    /// Returns argument word `index`: the first six are passed in registers, the others above the
    /// return address.
    ///
    /// # Safety
    /// The call has more than `index` arguments.
    #[inline(always)]
    pub unsafe fn argument(&self, index: u8) -> usize {
        let place = PLACES[usize::from(index) % PLACES.len()];
        // SAFETY: the body keeps this frame directly below the caller's words, and the caller
        // promises that there are enough of them.
        unsafe { (&raw const *self).cast::<usize>().add(usize::from(place)).read() }
    }
}

/// Places of argument words, counted in words from the begin of a [`Frame`]. The frame begins with
/// the first six, and the others lie above the return address.
static PLACES: [u8; 32] = {
    let above = (offset_of!(Frame, return_address) / size_of::<usize>() + 1) as u8;
    let mut places = [0; 32];
    let mut index = 0;
    while index < places.len() {
        let word = index as u8;
        places[index] = if word < 6 { word } else { above + word - 6 };
        index += 1;
    }
    places
};

/// Returns the call that a stub's code names.
#[inline]
pub fn call_of(code: u32) -> CallId {
    (code & 0xffff) as CallId
}

/// Returns the index among [`SYMBOLS`] of the symbol that a stub's code names.
#[inline]
pub fn symbol_variant_of(code: u32) -> usize {
    (code >> 16) as usize
}

/// Result of [`enter`] for the body, before the real call.
#[repr(C)]
pub struct Entered {
    /// Address of the real function.
    pub function: *const std::ffi::c_void,
    /// 0 if the call is not measured; otherwise 1 plus the number of words above the return
    /// address.
    pub measured: usize,
}

/// Size in bytes of the part of a [`Frame`] below the caller's rbp.
const ROOM: usize = offset_of!(Frame, caller_rbp);
const _: () = assert!(ROOM.is_multiple_of(16) && offset_of!(Frame, return_address) == ROOM + 8);

measured_body! {
    /// Body of a measured call of MPI or the C library.
    pub measured, enter, leave, room: ROOM, words: 0
}
measured_body! {
    /// Body of a measured call of the OpenMP runtime.
    in_runtime, enter_runtime, leave, room: ROOM, words: 0
}

/// Body of a call that a hook of Plimsoll implements.
#[unsafe(naked)]
unsafe extern "C-unwind" fn hooked() {
    naked_asm!(
        ".cfi_startproc",
        open_frame!(),
        save_words!(),
        save_code!(),
        "call {hook}",
        "leave",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
        room = const ROOM,
        words = const 0,
        code = const Frame::CODE,
        hook = sym hook,
    )
}

/// Body of a stub: loads the code of its call and jumps to the body of its kind.
macro_rules! stub_body {
    ($id:expr, $symbol_variant:expr, $body:ident) => {
        naked_asm!(
            ".cfi_startproc",
            "mov r11d, {code}",
            "jmp {body}",
            ".cfi_endproc",
            code = const $id as u32 | ($symbol_variant as u32) << 16,
            body = sym $body,
        )
    };
}

macro_rules! stub {
    ($symbol:ident, $id:literal, $symbol_variant:literal, $body:ident) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C-unwind" fn $symbol() {
            stub_body!($id, $symbol_variant, $body)
        }
    };
}

/// Stub without an exported name; calls are redirected to it where MPI has the function.
macro_rules! unexported_stub {
    ($symbol:ident, $id:literal, $symbol_variant:literal, $body:ident) => {
        #[allow(non_snake_case, reason = "named after its call")]
        #[unsafe(naked)]
        unsafe extern "C-unwind" fn $symbol() {
            stub_body!($id, $symbol_variant, $body)
        }
    };
}

/// Stub of a function of MPI that is not exported.
pub struct MpiStub {
    /// The call.
    pub call: CallId,
    /// Symbol of the function.
    pub name: &'static CStr,
    /// Index of the symbol's rule among [`SYMBOLS`].
    pub symbol_variant: usize,
    /// The stub.
    pub wrapper: unsafe extern "C-unwind" fn(),
}

/// Stub of a function of the OpenMP runtime.
pub struct RuntimeStub {
    /// Symbol of the function.
    pub name: &'static CStr,
    /// Version of the symbol; `None` if there is only one.
    pub version: Option<&'static CStr>,
    /// The call.
    pub call: CallId,
    /// Index of the symbol among [`plimsoll_calls::RUNTIME_SYMBOLS`].
    pub symbol: usize,
    /// The stub.
    pub wrapper: unsafe extern "C-unwind" fn(),
}

// One line for each symbol, written by build.rs.
include!(concat!(env!("OUT_DIR"), "/stubs.rs"));

/// Stub of a syscall that waits for a futex.
///
/// # Safety
/// As the C library's function.
#[unsafe(naked)]
pub unsafe extern "C-unwind" fn futex_wait() {
    stub_body!(id_of("syscall"), 0, measured)
}

/// Hook of a function that acquires a lock: a free lock is taken immediately by `$try`, without
/// being measured. Only EBUSY (16) leads to the real function, which alone knows the meaning of a
/// busy lock of each kind. `$contended` is the stub of a call that has to wait.
macro_rules! lock_hook {
    ($name:ident, $try:ident, $lock:ty, $contended:ident, $try_lock:ident) => {
        #[unsafe(naked)]
        unsafe extern "C-unwind" fn $contended() {
            stub_body!(id_of(stringify!($name)), 0, measured)
        }

        /// # Safety
        /// As the C library's function.
        unsafe extern "C" fn $try_lock(lock: *mut $lock) -> c_int {
            // SAFETY: as the caller promises.
            unsafe { $try(lock) }
        }

        /// # Safety
        /// As the C library's function.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C-unwind" fn $name(lock: *mut $lock) -> c_int {
            naked_asm!(
                ".cfi_startproc",
                push!(rdi),
                "call {try_lock}",
                pop!(rdi),
                "cmp eax, 16",
                "je {contended}",
                "ret",
                ".cfi_endproc",
                try_lock = sym $try_lock,
                contended = sym $contended,
            )
        }
    };
}

lock_hook!(
    pthread_mutex_lock,
    pthread_mutex_trylock,
    libc::pthread_mutex_t,
    mutex_contended,
    try_mutex
);
lock_hook!(
    pthread_rwlock_rdlock,
    pthread_rwlock_tryrdlock,
    libc::pthread_rwlock_t,
    readers_contended,
    try_to_read
);
lock_hook!(
    pthread_rwlock_wrlock,
    pthread_rwlock_trywrlock,
    libc::pthread_rwlock_t,
    writer_contended,
    try_to_write
);
