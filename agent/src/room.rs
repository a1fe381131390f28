//! Stack switch: runs work that needs much stack on the thread's handler stack.
//!
//! A wrapped call may come from any stack: an alternate one of 8 KiB, a coroutine's, a thread's own
//! that is nearly full. Unwinding a path and writing records take tens of KiB. Both therefore move
//! to the thread's handler stack if the stack in use is not the thread's own or has little room
//! left. All signals are blocked meanwhile, so that neither the agent's handler, which begins at
//! the top of the same stack, nor a handler of the application runs on it.

use core::arch::naked_asm;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};

use crate::thread_state::{HANDLER_STACK, State};
use plimsoll_sys::syscalls::syscall;

/// Minimum number of free bytes on the thread's own stack for work to run in place.
const ROOM: u64 = HANDLER_STACK as u64;

impl State {
    /// Runs `work` on a stack with enough room for it: in place, or on the handler stack.
    #[inline]
    pub fn with_room<R>(&mut self, work: impl FnOnce(&mut State) -> R) -> R {
        let sp = stack_pointer();
        let moved = self.handler_stack.0 <= sp && sp < self.handler_stack.1;
        if moved || is_room(self.stack_bounds, sp) {
            return apart(self, work);
        }
        let top = self.handler_stack.1 as usize;
        // SAFETY: the calling thread's handler stack; no agent code runs on it.
        unsafe { on_stack(top, || work(self)) }
    }
}

/// Returns whether the thread's own stack, between `low` and `high`, is in use and has [`ROOM`]
/// bytes left.
#[inline]
fn is_room((low, high): (u64, u64), sp: u64) -> bool {
    low <= sp && sp < high && sp - low >= ROOM
}

/// Runs `work` in place if the thread's own stack has room for it, else on the stack that ends at
/// `top`.
///
/// # Safety
/// As [`on_stack`].
pub(crate) unsafe fn with_room_on<R>(
    stack_bounds: (u64, u64),
    top: usize,
    work: impl FnOnce() -> R,
) -> R {
    if is_room(stack_bounds, stack_pointer()) {
        return work();
    }
    // SAFETY: as the caller promises.
    unsafe { on_stack(top, work) }
}

/// Runs `work` in a frame of its own, so that the caller's frame stays small.
#[inline(never)]
fn apart<R>(state: &mut State, work: impl FnOnce(&mut State) -> R) -> R {
    work(state)
}

/// Work passed to another stack, and the result passed back.
struct Passage<W, R> {
    work: Option<W>,
    result: Option<std::thread::Result<R>>,
}

/// Runs `work` on the stack that ends at `top` with all signals blocked; in place if signals cannot
/// be blocked.
///
/// # Safety
/// The stack has [`HANDLER_STACK`] bytes, and only the agent's handler on this thread also uses it.
#[cold]
#[inline(never)]
unsafe fn on_stack<R, W: FnOnce() -> R>(top: usize, work: W) -> R {
    let (all, mut before) = (u64::MAX, 0u64);
    // SAFETY: sets the calling thread's mask; both pointers are valid for the kernel's eight bytes.
    let blocked = unsafe {
        syscall!(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const all, &raw mut before, 8)
    };
    if blocked.is_err() {
        // A system call filter refused: the handler cannot be kept off its stack.
        return work();
    }
    let mut passage = Passage { work: Some(work), result: None };
    // SAFETY: the handler's stack is free: the handler runs with all signals blocked, and so does
    // this. `arrive` takes the passage, which outlives the call, and nothing unwinds out of it.
    unsafe { call_on((&raw mut passage).cast(), arrive::<R, W>, top) };
    let result = passage.result.take();
    // SAFETY: as above; the mask is the thread's own again.
    let _ =
        unsafe { syscall!(libc::SYS_rt_sigprocmask, libc::SIG_SETMASK, &raw const before, 0, 8) };
    match result {
        Some(Ok(result)) => result,
        Some(Err(panic)) => resume_unwind(panic),
        None => unreachable!("the work was run"),
    }
}

/// Runs the work of a passage on the new stack and stores the result.
///
/// # Safety
/// `passage` is a `Passage` of these types that nothing else uses.
unsafe extern "C" fn arrive<R, W: FnOnce() -> R>(passage: *mut libc::c_void) {
    // SAFETY: as the caller promises.
    let passage = unsafe { &mut *passage.cast::<Passage<W, R>>() };
    if let Some(work) = passage.work.take() {
        // No cancellation can be pending: signals are blocked, and no call in here is a
        // cancellation point.
        passage.result = Some(catch_unwind(AssertUnwindSafe(work)));
    }
}

/// Calls `function` with `argument` on the stack that ends at `top`.
///
/// # Safety
/// The stack is large enough and otherwise unused; `function` may be called with `argument`, and
/// returns.
#[unsafe(naked)]
unsafe extern "C" fn call_on(
    argument: *mut libc::c_void,
    function: unsafe extern "C" fn(*mut libc::c_void),
    top: usize,
) {
    naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "mov rsp, rdx",
        "call rsi",
        "mov rsp, rbp",
        "pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
    )
}

/// Returns the current stack pointer.
#[inline(always)]
fn stack_pointer() -> u64 {
    let sp: u64;
    // SAFETY: reads a register.
    unsafe {
        core::arch::asm!("mov {}, rsp", out(reg) sp, options(nomem, nostack, preserves_flags))
    };
    sp
}
