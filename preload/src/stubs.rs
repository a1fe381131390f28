//! The assembly between the application and the functions that it calls: one stub of two
//! instructions for each symbol, and two bodies that all of them share.
//!
//! A body saves the argument words in a [`Frame`]. The one of measured calls asks [`enter`] for the
//! real function and whether the call is measured, and either jumps to it, as if we were not there,
//! or calls it and tells [`leave`]. During the real call the stack holds the stub's frame only: no
//! Rust frame, so that exceptions, cancellation and longjmp pass as they would without us.

use std::arch::naked_asm;
use std::ffi::c_int;
use std::mem::offset_of;

use plimsoll_calls::{CALLS, Call, CallId, SYMBOLS, Symbol, id_of};

use plimsoll_agent::marks;

use crate::mpi_hooks::hook;
use crate::wrappers::{enter, leave, pthread_mutex_trylock};

/// What a body keeps on the stack: the caller's words, and room for ours.
#[repr(C)]
pub struct Frame {
    registers: [usize; 6],
    result: usize,
    code: u32,
    /// What a Fortran call says about its message, read before it.
    pub noted: Noted,
    /// rbp of the caller.
    pub caller_rbp: u64,
    /// Where the call returns to, or the mark that stands for it.
    return_address: u64,
}

/// Arguments that Fortran passes by reference, read when the call begins.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Noted {
    /// Number of elements; 0 if it says nothing.
    pub count: u64,
    /// Their datatype.
    pub datatype: c_int,
    /// The communicator.
    pub communicator: c_int,
    /// Ranks that messages go to and come from.
    pub ranks: [c_int; 2],
    /// Number of partitions, or of requests in a list.
    pub number: u64,
}

impl Frame {
    /// Which call.
    #[inline]
    pub fn call(&self) -> CallId {
        call_of(self.code)
    }

    /// Whether it is a call in C, not in Fortran.
    #[inline]
    pub fn is_c(&self) -> bool {
        self.spelling() == 0
    }

    /// Its entry in the table.
    pub fn entry(&self) -> &'static Call {
        &CALLS[usize::from(self.call()) - 1]
    }

    /// By which of its symbols it was called.
    pub fn symbol(&self) -> &'static Symbol {
        &SYMBOLS[self.spelling()]
    }

    /// Index of that symbol.
    pub fn spelling(&self) -> usize {
        spelling_of(self.code)
    }

    /// Where the call returns to. A function whose own return is marked may end by jumping here.
    pub fn return_address(&self) -> u64 {
        marks::stubs::original(self.return_address)
    }

    /// Place of the return address.
    pub fn place(&self) -> u64 {
        &raw const self.return_address as u64
    }

    /// Argument word `index`: six were in registers, the rest stand above the return address.
    ///
    /// # Safety
    /// The call has more than `index` arguments.
    pub unsafe fn argument(&self, index: u8) -> usize {
        let index = usize::from(index);
        match self.registers.get(index) {
            Some(word) => *word,
            // SAFETY: the body keeps this frame right below the caller's words, of which there are
            // enough, as the caller promises.
            None => unsafe {
                (&raw const self.return_address).add(1).cast::<usize>().add(index - 6).read()
            },
        }
    }
}

/// Which call a stub's code stands for.
#[inline]
pub fn call_of(code: u32) -> CallId {
    (code & 0xffff) as CallId
}

/// Index of its symbol among [`SYMBOLS`].
#[inline]
pub fn spelling_of(code: u32) -> usize {
    (code >> 16) as usize
}

/// What the body learns before the real call.
#[repr(C)]
pub struct Entered {
    /// The real function.
    pub function: *const std::ffi::c_void,
    /// 0: not measured; else one more than the words that stand above the return address.
    pub measured: usize,
}

/// Bytes of a [`Frame`] below the caller's rbp.
const ROOM: usize = offset_of!(Frame, caller_rbp);
const _: () = assert!(ROOM.is_multiple_of(16) && offset_of!(Frame, return_address) == ROOM + 8);

/// Begin of both bodies: `r11d` says which stub it was. Nothing else of the call is touched.
macro_rules! save {
    () => {
        "push rbp
        .cfi_def_cfa_offset 16
        .cfi_offset rbp, -16
        mov rbp, rsp
        .cfi_def_cfa_register rbp
        sub rsp, {room}
        mov [rsp], rdi
        mov [rsp + 8], rsi
        mov [rsp + 16], rdx
        mov [rsp + 24], rcx
        mov [rsp + 32], r8
        mov [rsp + 40], r9
        mov [rsp + {code}], r11d
        mov rdi, rsp
        mov esi, r11d"
    };
}

/// The body of a measured call. Arguments beyond the sixth are pushed again for the real call.
#[unsafe(naked)]
unsafe extern "C-unwind" fn measured() {
    naked_asm!(
        ".cfi_startproc",
        save!(),
        "call {enter}",
        "mov r11, rax",
        "mov r10, rdx",
        "mov rdi, [rsp]",
        "mov rsi, [rsp + 8]",
        "mov rdx, [rsp + 16]",
        "mov rcx, [rsp + 24]",
        "mov r8, [rsp + 32]",
        "mov r9, [rsp + 40]",
        "sub r10, 1",
        "jb 4f",
        "jz 3f",
        // The stack must be aligned to 16 at the call: one more word if their number is odd.
        "test r10d, 1",
        "jz 2f",
        "sub rsp, 8",
        "2:",
        "push qword ptr [rbp + 8 + 8 * r10]",
        "sub r10, 1",
        "jnz 2b",
        "3:",
        "call r11",
        "lea rsp, [rbp - {room}]",
        "mov [rsp + {result}], rax",
        "mov rdi, rsp",
        "mov rsi, rax",
        "call {leave}",
        "mov rax, [rsp + {result}]",
        ".cfi_remember_state",
        "leave",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_restore_state",
        "4:",
        "leave",
        ".cfi_def_cfa rsp, 8",
        "jmp r11",
        ".cfi_endproc",
        room = const ROOM,
        code = const offset_of!(Frame, code),
        result = const offset_of!(Frame, result),
        enter = sym enter,
        leave = sym leave,
    )
}

/// The body of a call that a hook of ours answers.
#[unsafe(naked)]
unsafe extern "C-unwind" fn hooked() {
    naked_asm!(
        ".cfi_startproc",
        save!(),
        "call {hook}",
        "leave",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
        room = const ROOM,
        code = const offset_of!(Frame, code),
        hook = sym hook,
    )
}

/// The body of a stub: says which call it is and goes to the body of its kind.
macro_rules! stub_body {
    ($id:expr, $spelling:expr, $body:ident) => {
        naked_asm!(
            ".cfi_startproc",
            "mov r11d, {code}",
            "jmp {body}",
            ".cfi_endproc",
            code = const $id as u32 | ($spelling as u32) << 16,
            body = sym $body,
        )
    };
}

macro_rules! stub {
    ($symbol:ident, $id:literal, $spelling:literal, $body:ident) => {
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C-unwind" fn $symbol() {
            stub_body!($id, $spelling, $body)
        }
    };
}

/// A stub that no name leads to; calls are redirected to it where there is something to wrap.
macro_rules! unexported_stub {
    ($symbol:ident, $id:literal, $spelling:literal, $body:ident) => {
        #[allow(non_snake_case, reason = "named after its call")]
        #[unsafe(naked)]
        unsafe extern "C-unwind" fn $symbol() {
            stub_body!($id, $spelling, $body)
        }
    };
}

// One line for each symbol, written by build.rs.
include!(concat!(env!("OUT_DIR"), "/stubs.rs"));

/// A contended pthread_mutex_lock.
#[unsafe(naked)]
unsafe extern "C-unwind" fn lock_contended() {
    stub_body!(id_of("pthread_mutex_lock"), 0, measured)
}

/// # Safety
/// As pthread_mutex_trylock.
unsafe extern "C" fn try_lock(mutex: *mut libc::pthread_mutex_t) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { pthread_mutex_trylock(mutex) }
}

/// pthread_mutex_lock: a free mutex is taken at once, without being measured. Only EBUSY (16) goes
/// on to the real lock, which alone knows what a busy mutex of each kind means.
///
/// # Safety
/// As the C library's function.
#[unsafe(no_mangle)]
#[unsafe(naked)]
unsafe extern "C-unwind" fn pthread_mutex_lock(mutex: *mut libc::pthread_mutex_t) -> c_int {
    naked_asm!(
        ".cfi_startproc",
        "push rdi",
        ".cfi_adjust_cfa_offset 8",
        "call {try_lock}",
        "pop rdi",
        ".cfi_adjust_cfa_offset -8",
        "cmp eax, 16",
        "je {contended}",
        "ret",
        ".cfi_endproc",
        try_lock = sym try_lock,
        contended = sym lock_contended,
    )
}
