//! The wrappers of the calls in the agent's table: one assembly stub each, made by one macro.
//!
//! A stub saves the argument words, asks [`enter`] for the real function and whether the call is
//! measured, and either jumps to it, as if we were not there, or calls it and tells [`leave`].
//! During the real call the stack holds the stub's frame only: no Rust frame, so that exceptions,
//! cancellation and longjmp pass as they would without us.

use std::arch::naked_asm;
use std::ffi::c_void;
use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll_agent::calls::{self, CALLS, CallClass, CallId, Provider, id_of};
use plimsoll_agent::clock::ticks;
use plimsoll_agent::marks::stubs;
use plimsoll_agent::regions::{self, Entry};
use plimsoll_agent::{for_each_call, process};

use crate::{job, real};

/// PLIMSOLL_REGIONS: calls are measured.
pub static REGIONS: AtomicBool = AtomicBool::new(true);

/// Bytes of a stub's frame below its saved rbp: six argument words, the result, padding.
const FRAME: usize = 64;

/// What a stub learns before the real call.
#[repr(C)]
pub struct Entered {
    function: *const c_void,
    measured: usize,
}

/// A stub's saved words, as seen from its frame.
#[derive(Clone, Copy)]
struct Saved(*const usize);

impl Saved {
    /// Argument word `index`: six were in registers, the rest stand above the return address.
    ///
    /// # Safety
    /// The call has more than `index` arguments.
    unsafe fn argument(self, index: u8) -> usize {
        let index = usize::from(index);
        let above = FRAME / 8 + 2;
        // SAFETY: as the caller promises.
        unsafe { *self.0.add(if index < 6 { index } else { index - 6 + above }) }
    }

    /// Place of the return address.
    fn place(self) -> u64 {
        self.0 as u64 + FRAME as u64 + 8
    }

    /// # Safety
    /// The stub's frame is intact.
    unsafe fn caller(self) -> (u64, u64) {
        // SAFETY: the stub pushed rbp below its return address.
        let (word, rbp) =
            unsafe { (*self.0.add(FRAME / 8 + 1) as u64, *self.0.add(FRAME / 8) as u64) };
        // A function whose own return is marked may end by jumping here.
        (stubs::original(word), rbp)
    }
}

/// Called by a stub before the real call.
///
/// # Safety
/// `saved` is the stub's frame, `call` its id.
unsafe extern "C" fn enter(call: u32, saved: *const usize) -> Entered {
    let (call, saved) = (call as CallId, Saved(saved));
    // SAFETY: promised by the stub.
    let (return_address, caller_rbp) = unsafe { saved.caller() };
    let function = real::call(call, return_address as *const c_void);
    let entered = |measured| Entered { function, measured };
    if !REGIONS.load(Ordering::Relaxed) {
        return entered(0);
    }
    if call == COMM_FREE || call == COMM_DISCONNECT || call == TYPE_FREE {
        job::handle_freed();
    }
    // SAFETY: the block is the calling thread's.
    let Some(block) = (unsafe { plimsoll_agent::tls::get().as_ref() }) else { return entered(0) };
    let Some(observed) = process::current() else { return entered(0) };
    let entry = Entry {
        call,
        place: saved.place(),
        return_address,
        caller_rbp,
        descriptor: if reads_descriptor(call) {
            // SAFETY: such calls have a descriptor as their first argument.
            unsafe { saved.argument(0) as i32 }
        } else {
            -1
        },
        ticks: ticks(),
    };
    entered(usize::from(
        block.enter(|state| regions::enter(observed, state, &entry)).unwrap_or(false),
    ))
}

/// Called by a stub after the real call, with its result.
///
/// # Safety
/// As [`enter`].
unsafe extern "C" fn leave(call: u32, saved: *const usize, result: isize) {
    let now = ticks();
    let (call, saved) = (call as CallId, Saved(saved));
    let entry = &CALLS[usize::from(call) - 1];
    let mpi = entry.provider == Provider::Mpi;
    let (mut bytes, mut sync) = (0, false);
    if mpi {
        // MPI_SUCCESS is 0 in every ABI (int result).
        if result as i32 == 0
            && let Some(facts) = job::handle_facts()
        {
            // SAFETY: the table says where a call of this arity has its words; MPI accepted them.
            unsafe {
                if let (Some(count), Some(datatype)) = (entry.count, entry.datatype) {
                    let count = u64::try_from(saved.argument(count) as i32).unwrap_or(0);
                    bytes = count * facts.type_bytes(saved.argument(datatype));
                }
                if entry.class == CallClass::CollectiveSync
                    && let Some(communicator) = entry.communicator
                {
                    sync = job::is_main_thread() && facts.is_world(saved.argument(communicator));
                }
            }
        }
    } else if entry.count.is_some() && result > 0 {
        bytes = result as u64;
    }
    let Some(observed) = process::current() else { return };
    observed
        .with_thread(|state| regions::exit(observed, state, saved.place(), now, bytes, sync, mpi));
}

const COMM_FREE: CallId = id_of("MPI_Comm_free");
const COMM_DISCONNECT: CallId = id_of("MPI_Comm_disconnect");
const TYPE_FREE: CallId = id_of("MPI_Type_free");

/// Calls whose label depends on what their descriptor is.
fn reads_descriptor(call: CallId) -> bool {
    static READERS: [bool; CALLS.len() + 1] = {
        let mut readers = [false; CALLS.len() + 1];
        let mut at = 0;
        while at < CALLS.len() {
            let entry = &CALLS[at];
            let io =
                matches!(entry.class, CallClass::Io) && matches!(entry.provider, Provider::Libc);
            // msync takes an address.
            readers[at + 1] = io && at + 1 != id_of("msync") as usize;
            at += 1;
        }
        readers
    };
    READERS[usize::from(call)]
}

/// The body of a stub. Arguments beyond the sixth are pushed again for the real call.
macro_rules! stub_body {
    ($name:ident, $arity:literal) => {
        naked_asm!(
            ".cfi_startproc",
            "push rbp",
            ".cfi_def_cfa_offset 16",
            ".cfi_offset rbp, -16",
            "mov rbp, rsp",
            ".cfi_def_cfa_register rbp",
            "sub rsp, 64",
            "mov [rbp - 64], rdi",
            "mov [rbp - 56], rsi",
            "mov [rbp - 48], rdx",
            "mov [rbp - 40], rcx",
            "mov [rbp - 32], r8",
            "mov [rbp - 24], r9",
            "mov edi, {call}",
            "mov rsi, rsp",
            "call {enter}",
            "mov r11, rax",
            "test rdx, rdx",
            "mov rdi, [rbp - 64]",
            "mov rsi, [rbp - 56]",
            "mov rdx, [rbp - 48]",
            "mov rcx, [rbp - 40]",
            "mov r8, [rbp - 32]",
            "mov r9, [rbp - 24]",
            "jz 3f",
            // The stack must be aligned to 16 at the call: one more word if their number is odd.
            ".if {pushed} & 1",
            "sub rsp, 8",
            ".endif",
            ".set plimsoll_word, {pushed}",
            ".rept {pushed}",
            "push qword ptr [rbp + 8 + 8 * plimsoll_word]",
            ".set plimsoll_word, plimsoll_word - 1",
            ".endr",
            "call r11",
            "mov [rbp - 16], rax",
            "mov edi, {call}",
            "lea rsi, [rbp - 64]",
            "mov rdx, rax",
            "lea rsp, [rbp - 64]",
            "call {leave}",
            "mov rax, [rbp - 16]",
            ".cfi_remember_state",
            "leave",
            ".cfi_def_cfa rsp, 8",
            "ret",
            ".cfi_restore_state",
            "3:",
            "leave",
            ".cfi_def_cfa rsp, 8",
            "jmp r11",
            ".cfi_endproc",
            call = const id_of(stringify!($name)) as u32,
            pushed = const if $arity > 6 { $arity - 6 } else { 0 },
            enter = sym enter,
            leave = sym leave,
        )
    };
}

macro_rules! wrapper {
    (Own $name:ident $arity:literal) => {};
    (Libc pthread_mutex_lock $arity:literal) => {
        /// A contended pthread_mutex_lock.
        #[unsafe(naked)]
        pub(crate) unsafe extern "C-unwind" fn lock_contended() {
            stub_body!(pthread_mutex_lock, $arity)
        }
    };
    ($provider:ident $name:ident $arity:literal) => {
        /// The wrapper of the function of this name.
        ///
        /// # Safety
        /// As the wrapped function.
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        pub unsafe extern "C-unwind" fn $name() {
            stub_body!($name, $arity)
        }
    };
}

macro_rules! wrappers {
    ($($provider:ident $name:ident $arity:literal $class:ident $comm:literal $count:literal $datatype:literal)*) => {
        $(wrapper!($provider $name $arity);)*
    };
}

for_each_call!(wrappers);

real! {
    /// Takes a mutex if it is free.
    pthread_mutex_trylock(mutex: *mut libc::pthread_mutex_t) -> libc::c_int
}

/// # Safety
/// As pthread_mutex_trylock.
unsafe extern "C" fn try_lock(mutex: *mut libc::pthread_mutex_t) -> libc::c_int {
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
pub unsafe extern "C-unwind" fn pthread_mutex_lock(
    mutex: *mut libc::pthread_mutex_t,
) -> libc::c_int {
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

/// Begins a measured call on behalf of a hook that is not in the table's macro: `place` is where
/// its return address lies, with the caller's rbp right below.
///
/// # Safety
/// `place` is as described.
pub unsafe fn begin_region(call: CallId, place: *const usize) -> bool {
    let Some(observed) = process::current() else { return false };
    // SAFETY: promised by the caller.
    let (return_address, caller_rbp) = unsafe { (*place as u64, *place.sub(1) as u64) };
    let entry = Entry {
        call,
        place: place as u64,
        return_address,
        caller_rbp,
        descriptor: -1,
        ticks: ticks(),
    };
    observed.with_thread(|state| regions::enter(observed, state, &entry)).unwrap_or(false)
}

/// Ends it; `sync`: it was a global synchronisation.
pub fn end_region(call: CallId, place: *const usize, sync: bool) {
    let now = ticks();
    let Some(observed) = process::current() else { return };
    let mpi = calls::call(call).is_some_and(|call| call.provider != Provider::Libc);
    observed.with_thread(|state| regions::exit(observed, state, place as u64, now, 0, sync, mpi));
}
