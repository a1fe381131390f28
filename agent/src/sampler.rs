//! Signal handler: takes one sample of the interrupted thread.
//!
//! The kernel delivers the signal on the thread's alternate stack if it has one, else on its
//! current stack; either may be small. The assembly entry therefore switches at once to the handler
//! stack in the thread's block, so that the application's stacks carry nothing but the kernel's
//! signal frame. All signals are blocked while the handler runs.

use core::arch::naked_asm;
use core::ffi::c_int;
use core::sync::atomic::Ordering;

use crate::counters;
use crate::marks::{self, MarkTarget, mark_stubs};
use crate::observed_process::{self, Observed};
use crate::regions::outlined::is_ended;
use crate::regions::{RegionTable, declared, flush_tallies, lie_in};
use crate::thread_state::{State, ThreadBlock, add_owned, common_prefix, difference};
use crate::unwind::{Frame, Frames, Path, Start, Unwinding, WalkEnd, interrupted};
use plimsoll_calls::FIRST_CODE_ADDRESS;
use plimsoll_wire::clock_anchor::{stamp, ticks};
use plimsoll_wire::record::{MAX_DEPTH, Record};
use plimsoll_wire::segment::Thread;

/// Entry point of the signal handler, for sigaction with SA_SIGINFO, SA_ONSTACK and SA_RESTART.
///
/// # Safety
/// Only the kernel may call this function.
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

/// Body of the signal handler, on the handler's own stack.
///
/// # Safety
/// `context` is the kernel's, `block` the calling thread's.
unsafe extern "C" fn handle(context: *const libc::ucontext_t, block: *const ThreadBlock) {
    let begin = ticks();
    // SAFETY: errno's location is valid in every thread; context and block as promised.
    let (errno, context, block) = unsafe { (*libc::__errno_location(), &*context, &*block) };
    if let Some(observed) = observed_process::current() {
        block.enter(|state| {
            if !(state.paused || state.muted) {
                block.guard(state, |state| sample(observed, state, context, begin));
            }
            let thread = &state.area().thread;
            let took = ticks().wrapping_sub(begin);
            add_owned(&thread.handler_ticks, spent(thread, took, observed.interrupted_ticks));
        });
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

/// Returns the ticks that a handler of `took` ticks spent on the CPU. With more runnable threads
/// than cores, the scheduler often preempts the thread inside the handler, since time slice and
/// sampling period expire together. A preempted handler (`took` above `interrupted`) counts as the
/// mean of the thread's handlers, at most `interrupted`, and the wait for a core counts as the
/// application's.
fn spent(thread: &Thread, took: u64, interrupted: u64) -> u64 {
    if took <= interrupted {
        return took;
    }
    let [ticks, samples] =
        [&thread.handler_ticks, &thread.samples].map(|count| count.load(Ordering::Relaxed));
    ticks.checked_div(samples).unwrap_or(interrupted).min(interrupted)
}

/// Takes a sample of the thread, interrupted at `context`.
fn sample(observed: &Observed, state: &mut State, context: &libc::ucontext_t, now_ticks: u64) {
    if mark_stubs::contains(context.uc_mcontext.gregs[libc::REG_RIP as usize] as u64) {
        // A stub is about to move the thread's mark: nothing on the stack may be changed.
        return;
    }
    declared::settle(observed, state);
    let now = stamp(now_ticks);
    flush_tallies(state);
    counters::write(observed, state, now, state.regions.open_call().is_some());
    let Some((end, outside)) = walk(observed, state, context) else { return };
    if observed.verifies_marks() {
        verify(observed, state, context, end, outside);
    }
    let (entered, before) = match state.regions.sample_open() {
        Some((entered, before)) => (Some(now.saturating_sub(entered)), before),
        None => (None, None),
    };
    let truncation = match end {
        WalkEnd::Truncated(reason) if entered.is_none() => Some(reason),
        _ => None,
    };
    let truncated = truncation.is_some();
    let late = now.saturating_sub(state.stream.last_stamp()) > observed.late_stamps;
    let off_cpu = if entered.is_some() {
        before
    } else {
        late.then(|| state.off_cpu.read(observed.descriptors()))
    };
    let thread = &state.area().thread;
    add_owned(&thread.samples, 1);
    if let Some(reason) = truncation {
        add_owned(&thread.truncated[reason as usize], 1);
    }
    lie_in(state, state.graft);
    let path = path(&state.marked, &state.regions, &state.found, outside);
    let known = outside.min(state.common);
    let common_prefix = marks::limit_common(state, common_prefix(&state.current, path, known));
    let stack = difference(&state.current, path, common_prefix, &mut state.ids);
    let plain = entered.is_none() && off_cpu.is_none() && !truncated;
    let fitted = match plain.then(|| state.stream.delay(now, observed.period_stamps)).flatten() {
        Some(delay) => state.stream.write(&Record::Tick { delay, stack }),
        None => {
            let stamp = state.stream.stamp(now);
            state.stream.write(&Record::Sample { stamp, stack, entered, off_cpu, truncated })
        }
    };
    state.current.follow(path, common_prefix);
    state.common = outside;
    if fitted && end.is_whole() && observed.marks() {
        marks::plant(observed, state);
    } else {
        marks::forget(state);
    }
    state.written(fitted);
}

/// Returns the whole call path after a walk: the frames in `found`, and outside them the outermost
/// `outside` frames of the marked stack or, if `outside` is 0, the frames outside the open call.
fn path<'s>(
    marked: &'s Frames,
    regions: &'s RegionTable,
    found: &'s Frames,
    outside: usize,
) -> Path<'s> {
    let outer = match regions.open_call() {
        Some(open) if outside == 0 => open.path,
        _ => &marked.as_slice()[..outside],
    };
    Path { outer, inner: found.as_slice() }
}

/// Unwinds the interrupted stack into `state.found`, outermost first. The unwind stops at the mark,
/// at the open call (the frame of the call is then the outermost one), or at the end of the stack.
///
/// Returns how the unwind ended, and the number of frames of the marked stack that lie outside the
/// found frames. Returns `None` if the process cannot unwind yet.
fn walk(
    observed: &Observed,
    state: &mut State,
    context: &libc::ucontext_t,
) -> Option<(WalkEnd, usize)> {
    let mut open = open_return(state, context);
    let mut mark_target = marks::mark_target(state);
    let (end, outside) = loop {
        let stop = open.map_or(NOWHERE, |open| (open.return_slot, open.address));
        let end = observed.with_unwinding(state, |unwinding, walk| {
            unwind(unwinding, walk.stack_bounds, context, stop, mark_target, walk.found)
        })?;
        if end == WalkEnd::Abandoned {
            state.regions.leave();
            open = None;
            continue;
        }
        if end != WalkEnd::ReachedMark {
            break (end, 0);
        }
        // A stack deeper than MAX_DEPTH is truncated at its outer end, as without a mark.
        if let Some(outside) = marks::outside(state)
            && outside + state.found.as_slice().len() < MAX_DEPTH
        {
            break (end, outside);
        }
        mark_target = MarkTarget::NONE;
    };
    marks::count(state, end);
    if let Some(open) = state.regions.open_call()
        && (outside == 0 || mark_target.return_slot() >= open.return_slot)
    {
        let frame = open.frame;
        // The wrapper of the call is the agent's code; the frame of the call replaces it.
        if state.found.as_slice().last().is_some_and(|frame| observed.is_own(frame.address)) {
            state.found.pop();
        }
        state.found.push(frame);
    }
    state.found.reverse();
    // The time of a wrapper before the call begins and after it ends is charged to the caller or to
    // the call: a polling loop is sampled in wrappers as often as in the calls themselves.
    let is_own = |frame: &Frame| observed.is_own(frame.address);
    while state.found.as_slice().last().is_some_and(is_own)
        && state.found.as_slice().len() + outside > 1
    {
        state.found.pop();
    }
    Some((end, outside))
}

/// Stop position when no wrapped call is open.
const NOWHERE: (u64, u64) = (u64::MAX, 0);

/// Returns the caller's frame of the open call, if its return address lies on the stack that the
/// thread uses now.
fn open_return(state: &State, context: &libc::ucontext_t) -> Option<Frame> {
    let sp = context.uc_mcontext.gregs[libc::REG_RSP as usize] as u64;
    let own = |return_slot: u64| {
        return_slot >= state.stack_bounds.0 && return_slot < state.stack_bounds.1
    };
    let caller = *state.regions.open_call()?.path.last()?;
    (own(caller.return_slot) == own(sp)).then_some(caller)
}

/// Unwinds the stack that was interrupted at `context` into `frames`, innermost first.
fn unwind(
    unwinding: &mut Unwinding<'_>,
    stack_bounds: (u64, u64),
    context: &libc::ucontext_t,
    (stop_at, stop_address): (u64, u64),
    mark_target: MarkTarget,
    frames: &mut Frames,
) -> WalkEnd {
    let regs = interrupted(context);
    let start = Start {
        address: regs.ip(),
        is_return: false,
        return_slot: 0,
        regs,
        stack_bounds,
        stop_at,
        stop_address,
        mark_target,
    };
    frames.clear();
    unwinding.walk(start, frames)
}

/// Compares a stack that was shortened by a mark or an open call with the whole stack, unwound
/// without either, and counts mismatches.
#[cold]
fn verify(
    observed: &Observed,
    state: &mut State,
    context: &libc::ucontext_t,
    end: WalkEnd,
    outside: usize,
) {
    if !matches!(end, WalkEnd::ReachedMark | WalkEnd::ReachedCall) {
        return;
    }
    let whole = observed.with_unwinding(state, |unwinding, walk| {
        unwind(unwinding, walk.stack_bounds, context, NOWHERE, MarkTarget::NONE, walk.whole)
    });
    state.whole.reverse();
    // In the path, the frame of an open call replaces the frame of its wrapper.
    let is_code =
        |frame: &&Frame| frame.address >= FIRST_CODE_ADDRESS && !observed.is_own(frame.address);
    let step = |frame: &Frame| (frame.address, frame.return_slot);
    let path = path(&state.marked, &state.regions, &state.found, outside);
    let frames = || path.frames_beyond(0).filter(is_code).filter(|frame| !is_ended(frame));
    let whole_frames = || state.whole.as_slice().iter().filter(is_code);
    // While a library is being unloaded, the unwinder cannot step through other libraries: only the
    // inner frames are compared then.
    let missing = match whole {
        Some(WalkEnd::Truncated(_)) => frames().count().saturating_sub(whole_frames().count()),
        _ => 0,
    };
    let right = frames().skip(missing).map(step).eq(whole_frames().map(step));
    let thread = &state.area().thread;
    add_owned(&thread.marks_verified, 1);
    add_owned(&thread.marks_mismatched, u64::from(!right));
}

/// Installs the handler through the C library's own `sigaction` and returns the previous
/// disposition.
pub fn install(sigaction: observed_process::Sigaction) -> libc::sigaction {
    // SAFETY: all-zero is a valid sigaction; the pointers are valid for the calls.
    unsafe {
        let mut action: libc::sigaction = core::mem::zeroed();
        let mut previous: libc::sigaction = core::mem::zeroed();
        action.sa_sigaction = handler_entry as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK | libc::SA_RESTART;
        // Block all signals, also the one for asynchronous thread cancellation, which sigfillset(3)
        // leaves out: a handler that was left half-way would never finish for the threads that wait
        // for it.
        (&raw mut action.sa_mask).write_bytes(0xff, 1);
        sigaction(crate::timer::SIGNAL, &action, &mut previous);
        previous
    }
}

/// Returns whether the kernel would still call the agent's handler. Queries the kernel by system
/// call: code that replaces the handler unnoticed also uses the system call.
pub fn is_installed() -> bool {
    /// `struct sigaction` of the kernel (rt_sigaction(2)).
    #[repr(C)]
    #[derive(Default)]
    struct Disposition {
        handler: usize,
        flags: libc::c_ulong,
        restorer: usize,
        mask: u64,
    }
    let mut now = Disposition::default();
    // SAFETY: the kernel writes one structure; its mask has 8 bytes, as the last argument says.
    let known = unsafe {
        let none = core::ptr::null::<Disposition>();
        libc::syscall(libc::SYS_rt_sigaction, crate::timer::SIGNAL, none, &raw mut now, 8) == 0
    };
    !known || now.handler == handler_entry as *const () as usize
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_handler_that_lost_its_core_counts_as_the_others() {
        // SAFETY: counters are valid as zeros.
        let thread: Thread = unsafe { core::mem::zeroed() };
        assert_eq!(spent(&thread, 700, 1000), 700);
        assert_eq!(spent(&thread, 1_000_000, 1000), 1000);
        add_owned(&thread.samples, 4);
        add_owned(&thread.handler_ticks, 400);
        assert_eq!(spent(&thread, 1_000_000, 1000), 100);
        assert_eq!(spent(&thread, 700, 1000), 700);
    }
}
