//! Parallel regions of GCC's OpenMP runtime: the outlined function that a program passes to the
//! runtime is replaced by [`share`], so that each thread's begin and end of its share are known. A
//! thread that is known to be alone in its team works from begin to end, and nothing is replaced.
//!
//! The replaced function's data is the [`Team`] of the region, which lies in the stack frame of the
//! wrapper. The runtime calls the function once per thread of the team and returns to the wrapper
//! after all threads have returned, so that the team outlives its use.

use std::arch::naked_asm;
use std::mem::{MaybeUninit, offset_of};
use std::sync::atomic::Ordering;

use plimsoll_agent::regions::Entry;
use plimsoll_agent::regions::shares::{self, IdlePlace, Runtime, Share, Team};
use plimsoll_agent::tls;
use plimsoll_calls::{CALLS, CallId, OPENMP_IDLE, id_of};
use plimsoll_wire::clock_anchor::ticks;

use crate::bodies::{measured_body, open_frame, save_code, save_words};
use crate::gomp::{self, Gomp};
use crate::guard::guarded;
use crate::stubs::{Entered, Frame, call_of, symbol_variant_of};
use crate::this_thread::this_thread;
use crate::wrappers::REGIONS;

/// Stack frame of a wrapper of a region.
#[repr(C)]
struct RegionFrame {
    team: Team,
    frame: Frame,
}

/// A region with reductions over tasks: the data begins with their description.
const REDUCTIONS: CallId = id_of("GOMP_parallel_reductions");

/// Size in bytes of a [`RegionFrame`] below the caller's rbp, and of its part below the [`Frame`].
const ROOM: usize = offset_of!(RegionFrame, frame.caller_rbp);
const FRAME: usize = offset_of!(RegionFrame, frame);
const _: () = assert!(ROOM.is_multiple_of(16) && FRAME.is_multiple_of(16));

measured_body! {
    /// Body of a call that makes a parallel region. [`enter`] may replace the first two arguments.
    pub parallel, enter, leave, room: ROOM, words: FRAME
}

/// Called by [`parallel`] before the real call.
///
/// # Safety
/// The frame belongs to a stub, and `code` is the stub's code.
unsafe extern "C" fn enter(frame: &mut RegionFrame, code: u32) -> Entered {
    let function = gomp::definition(call_of(code), symbol_variant_of(code));
    let unmeasured = Entered { function, measured: 0 };
    if !REGIONS.load(Ordering::Relaxed) {
        return unmeasured;
    }
    // SAFETY: as the caller promises.
    let begin = || unsafe { begin(frame, code) };
    match guarded("region", begin, || None) {
        Some(measured) => Entered { function, measured },
        None => unmeasured,
    }
}

/// Begins a region and replaces the outlined function and its data. Returns
/// [`Entered::measured`], or `None` if the region is not measured.
///
/// # Safety
/// As [`enter`].
#[inline(always)]
unsafe fn begin(frame: &mut RegionFrame, code: u32) -> Option<usize> {
    let (block, observed) = this_thread()?;
    let call = call_of(code);
    let entry = frame.frame.begun(call, -1);
    let team = &raw mut frame.team;
    // SAFETY: the wrapper's frame stays in place until the call has returned.
    let begun = block.enter(|state| unsafe {
        shares::begin_region(observed, block, state, &entry, None, team)
    })?;
    if !begun {
        return None;
    }
    let [function, data, threads, ..] = frame.frame.registers;
    // SAFETY: the team belongs to this call. With reductions, the runtime reads the first word of
    // the data.
    unsafe {
        (&raw mut (*team).function).write(function);
        (&raw mut (*team).data).write(data);
        let first_word = if call == REDUCTIONS { *(data as *const usize) } else { 0 };
        (&raw mut (*team).first_word).write(first_word);
    }
    if gomp::makes_team_of_one(threads as u32) {
        frame.team.set_alone();
    } else {
        frame.frame.registers[0] = share as *const () as usize;
        frame.frame.registers[1] = team as usize;
    }
    let arity = CALLS[usize::from(call) - 1].arity;
    Some(1 + usize::from(arity).saturating_sub(6))
}

/// Called by [`parallel`] after the real call.
///
/// # Safety
/// [`begin`] has begun the region of the frame.
unsafe extern "C" fn leave(frame: &RegionFrame) {
    let now = ticks();
    let end = || {
        let Some((block, observed)) = this_thread() else { return };
        block.enter(|state| shares::end_region(observed, state, &frame.team, &Gomp, now));
    };
    guarded("region's end", end, || ());
}

/// Stack frame of [`share`].
#[repr(C, align(16))]
struct ShareFrame {
    /// The outlined function, beside the return address of its call.
    function: usize,
    /// Initialised if the share is measured.
    share: MaybeUninit<Share>,
    /// 1 if the share is measured, 0 otherwise.
    is_measured: u64,
    /// Keeps the frame a multiple of 16 bytes long.
    unused: u64,
    caller_rbp: u64,
    return_address: u64,
}

/// Size in bytes of a [`ShareFrame`] below the caller's rbp.
const SHARE_ROOM: usize = offset_of!(ShareFrame, caller_rbp);
const _: () = assert!(SHARE_ROOM.is_multiple_of(16));

/// The outlined function and its data, returned in registers (rax, rdx).
#[repr(C)]
struct Outlined {
    function: usize,
    data: usize,
}

/// Replaces the outlined function: executes the calling thread's share of the region of `team`.
#[unsafe(naked)]
unsafe extern "C-unwind" fn share(team: *const Team) {
    naked_asm!(
        ".cfi_startproc",
        open_frame!(),
        "mov rsi, rdi",
        "mov rdi, rsp",
        "call {begin_share}",
        "mov rdi, rdx",
        "call rax",
        ".globl plimsoll_share_return",
        ".hidden plimsoll_share_return",
        "plimsoll_share_return:",
        "cmp qword ptr [rsp + {is_measured}], 0",
        "je 2f",
        "mov rdi, rsp",
        "call {end_share}",
        "2:",
        "leave",
        ".cfi_def_cfa rsp, 8",
        "ret",
        ".cfi_endproc",
        room = const SHARE_ROOM,
        is_measured = const offset_of!(ShareFrame, is_measured),
        begin_share = sym begin_share,
        end_share = sym end_share,
    )
}

/// # Safety
/// The frame and the team are those of [`share`].
unsafe extern "C" fn begin_share(frame: *mut ShareFrame, team: &Team) -> Outlined {
    // SAFETY: the block is the calling thread's, and stays until the thread has ended.
    let block = unsafe { tls::get().as_ref() };
    let is_measured = match block {
        Some(block) if team.is_alone(block, &Gomp) => false,
        // SAFETY: as the caller promises.
        _ => unsafe { begin_measured_share(&raw mut (*frame).share, team) },
    };
    // SAFETY: as the caller promises.
    unsafe {
        (&raw mut (*frame).is_measured).write(is_measured.into());
        (&raw mut (*frame).function).write(team.function);
    }
    Outlined { function: team.function, data: team.data }
}

/// Begins the calling thread's share at `place`; false if the share is not measured. Out of line: a
/// thread that is alone in its team needs no share.
///
/// # Safety
/// A share may be written to `place`.
#[inline(never)]
unsafe fn begin_measured_share(place: *mut MaybeUninit<Share>, team: &Team) -> bool {
    let begin = || {
        let (block, observed) = this_thread()?;
        block.enter(|state| shares::begin_share(observed, block, state, team, &Gomp))
    };
    let share = guarded("share", begin, || None);
    match share {
        // SAFETY: as the caller promises.
        Some(share) => unsafe { place.write(MaybeUninit::new(share)) },
        None => team.leave_out(Gomp.thread_number()),
    }
    share.is_some()
}

/// # Safety
/// The frame is that of [`share`], its share is measured, and the outlined function has returned.
unsafe extern "C" fn end_share(frame: &ShareFrame) {
    let end = || {
        let Some((block, observed)) = this_thread() else { return };
        // SAFETY: as the caller promises.
        let share = unsafe { frame.share.assume_init_ref() };
        let from = Entry {
            call: OPENMP_IDLE,
            return_slot: &raw const frame.return_address as u64,
            return_address: plimsoll_agent::marks::mark_stubs::original(frame.return_address),
            caller_rbp: frame.caller_rbp,
            descriptor: -1,
            ticks: 0,
        };
        // SAFETY: the share was begun on this thread, and the region ends after all its shares.
        block.enter(|state| unsafe {
            shares::end_share(observed, block, state, share, &from, IdlePlace::Caller);
        });
    };
    guarded("share's end", end, || ());
}
