//! The signal handler: one sample of one thread.
//!
//! The kernel delivers the signal on the thread's alternate stack if it has one, else on its
//! current stack; either may be small. The entry, in assembly, therefore moves at once to a stack
//! of our own, kept with the thread's block, and the application's stacks carry nothing but the
//! kernel's frame. All signals are blocked meanwhile.

use core::arch::naked_asm;
use core::ffi::c_int;

use crate::clock::{stamp, ticks};
use crate::process::{self, Observed};
use crate::record::Record;
use crate::regions::flush_tallies;
use crate::thread::{State, ThreadBlock, bump, difference, kept};
use crate::unwind::{End, Start, interrupted};

/// Entry of the signal handler, for sigaction with SA_SIGINFO, SA_ONSTACK and SA_RESTART.
///
/// # Safety
/// To be called by the kernel only.
#[unsafe(naked)]
pub unsafe extern "C" fn handler_entry(
    signal: c_int,
    info: *mut libc::siginfo_t,
    context: *mut libc::c_void,
) {
    naked_asm!(
        ".cfi_startproc",
        "push rbp",
        ".cfi_def_cfa_offset 16",
        ".cfi_offset rbp, -16",
        "mov rbp, rsp",
        ".cfi_def_cfa_register rbp",
        "mov rcx, qword ptr [rip + plimsoll_thread@GOTTPOFF]",
        "mov rcx, qword ptr fs:[rcx]",
        "test rcx, rcx",
        "jz 2f",
        "mov rax, qword ptr [rcx]", // handler_stack_top; 0 in a forked child
        "test rax, rax",
        "jz 2f",
        "mov rsp, rax",
        "mov rdi, rdx",
        "mov rsi, rcx",
        "call {handle}",
        "mov rsp, rbp",
        "2: pop rbp",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
        handle = sym handle,
    )
}

/// The handler proper, on its own stack.
///
/// # Safety
/// `context` is the kernel's, `block` the calling thread's.
unsafe extern "C" fn handle(context: *const libc::ucontext_t, block: *const ThreadBlock) {
    let begin = ticks();
    // SAFETY: errno's location is valid in every thread; context and block as promised.
    let (errno, context, block) = unsafe { (*libc::__errno_location(), &*context, &*block) };
    if let Some(observed) = process::current() {
        block.enter(|state| {
            if !(state.paused || state.muted) {
                sample(observed, state, context, begin);
            }
            bump(&state.area().thread.handler_ticks, ticks().wrapping_sub(begin));
        });
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// Takes a sample of the thread, interrupted at `context`.
fn sample(observed: &Observed, state: &mut State, context: &libc::ucontext_t, now_ticks: u64) {
    let regs = interrupted(context);
    let now = stamp(now_ticks);
    let open_place = state.regions.open_place();
    let start = Start {
        address: regs.ip(),
        is_return: false,
        place: 0,
        regs,
        stack_bounds: state.stack_bounds,
        stop_at: open_place.unwrap_or(u64::MAX),
    };
    let Some(end) = observed.with_unwinding(state, |unwinding, walk| {
        let frames = if open_place.is_some() { &mut *walk.inner } else { &mut *walk.taken };
        frames.clear();
        let end = unwinding.walk(start, frames);
        frames.reverse();
        end
    }) else {
        return;
    };
    let mut entered = None;
    let mut before = None;
    let mut truncated = false;
    match state.regions.sample_open() {
        // Inside a wrapped call: its caller's frames are known, its own are whatever was found.
        Some(open) => {
            state.taken.copy_from(open.path);
            state.taken.push(open.frame);
            let inner = state.inner.as_slice();
            let wrapper =
                usize::from(inner.first().is_some_and(|frame| observed.is_own(frame.address)));
            for frame in &inner[wrapper..] {
                state.taken.push(*frame);
            }
            entered = Some(now.saturating_sub(open.entered));
            before = open.before;
        }
        None => truncated = end == End::Truncated,
    }
    let late = now.saturating_sub(state.stream.last_stamp()) > observed.late_stamps;
    let off_cpu = if entered.is_some() { before } else { late.then(|| state.off_cpu.read()) };
    flush_tallies(state);
    let thread = &state.area().thread;
    bump(&thread.samples, 1);
    bump(&thread.truncated, u64::from(truncated));
    let path = state.taken.as_slice();
    let kept = kept(&state.current, path);
    let form = state.stream.stamp(now);
    let stack = difference(&state.current, path, kept, &mut state.ids);
    let fitted =
        state.stream.write(&Record::Sample { stamp: form, stack, entered, off_cpu, truncated });
    state.current.follow(path, kept);
    state.written(fitted);
}

/// Installs the handler through `sigaction`, the C library's own.
///
/// Returns the previous disposition.
pub fn install(sigaction: process::Sigaction) -> libc::sigaction {
    // SAFETY: all-zero is a valid sigaction; the pointers are valid for the calls.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        let mut previous: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = handler_entry as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        libc::sigfillset(&mut action.sa_mask);
        sigaction(crate::timer::SIGNAL, &action, &mut previous);
        previous
    }
}
