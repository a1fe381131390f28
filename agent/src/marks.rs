//! Return-address marks: show which frames have stayed on the stack since the last sample.
//!
//! After a sample, and at the return of a wrapped call that was recorded, one return address on the
//! stack is replaced by the address of a stub (the mark, see [`mark_stubs`]). When the marked
//! function returns, the stub moves the mark one frame outwards. At the next sample the mark stands
//! at the innermost frame that has not returned: the least common ancestor (LCA) of the two stacks.
//! A comparison of the stacks alone cannot distinguish one call from two calls of the same function
//! from the same place.
//!
//! The unwinder stops at the mark, since the frames outside the mark are known.
//!
//! A mark is never removed by restoring the return address: an unwinder may be between two reads of
//! that word. The agent forgets the mark instead, and the stub still returns correctly (the
//! exceptions are [`restore_all`] and [`keep_free`]). Nothing is marked while the exception
//! unwinder or the dynamic loader is on the stack, or on a stack with missing outer frames. The
//! three outermost frames are never marked.

pub mod mark_stubs;
pub mod marks_disabled;
pub mod runtimes;
pub mod unwinders;

use core::sync::atomic::{AtomicU32, Ordering};

use crate::modules::LoadedModule;
use crate::observed_process::{self, Observed};
use crate::regions::declared;
use crate::thread_state::{State, add_owned};
use crate::tls;
use crate::unwind::{Frame, Frames, Path, Start, WalkEnd, interrupted};
use plimsoll_wire::clock_anchor::ticks;
use plimsoll_wire::segment::MAX_ADDRESSES;

use marks_disabled::MarksDisabled;

/// Whether and where return addresses are marked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Marks {
    /// One mark after each sample, at the innermost frame that can be marked.
    On,
    /// No marks.
    Off,
    /// Self-check of Plimsoll: half of the marks are placed at a random frame, so that stubs return
    /// everywhere, and each stack that a mark shortened is unwound a second time without the mark.
    Verify,
}

/// Number of outermost frames that are never marked: those that start threads and coroutines.
const OUTERMOST: usize = 3;

/// Number of frames outside the mark that are checked before the mark is trusted: their return
/// addresses must be unchanged. Runtimes that copy stacks can bring the stub of another stack to
/// the same place.
const WITNESSES: usize = 2;

/// A thread's live mark, read and written by the code of the stubs. All zeros: no mark.
#[repr(C)]
pub struct LiveMark {
    /// Place of the marked return address on the stack; 0: nothing is marked.
    pub return_slot: u64,
    /// Index into `frames` of the marked frame; all ones after the mark moved beyond the outermost.
    pub index: u64,
    /// The stack when the mark was set, outermost first.
    pub frames: *const Frame,
    /// Number of returns through the live mark.
    pub passes: u64,
    /// Number of returns through forgotten marks.
    pub strays: u64,
    /// Place of a return address that is a stub and that awaits the return of a declared function
    /// ([`crate::regions::declared`]); 0: none.
    pub awaited_slot: u64,
    /// Time stamp counter when that function returned; 0: it has not.
    pub awaited_return: u64,
    /// `index` and `passes` at that time, without that return.
    pub index_at_return: u64,
    /// See `index_at_return`.
    pub passes_at_return: u64,
}

/// State of the mark when the thread's current stack was taken.
#[derive(Clone, Copy, Debug, Default)]
pub struct MarkCheckpoint {
    /// Index of the marked frame.
    index: usize,
    /// Number of returns through the live mark until then.
    passes: u64,
}

/// Per address id: number of the stub for the return address, 0 for none yet, or `DENIED`.
pub struct Markable([AtomicU32; MAX_ADDRESSES]);

/// Entry of an address that must not be marked; neither are the frames that it calls.
const DENIED: u32 = u32::MAX;

impl Markable {
    /// Forbids marks around an address.
    pub fn deny(&self, id: u32) {
        self.0[id as usize].store(DENIED, Ordering::Relaxed);
    }

    fn is_denied(&self, id: u32) -> bool {
        self.0[id as usize].load(Ordering::Relaxed) == DENIED
    }

    /// Returns the stub for the return address with this id, created on first use; 0 if the address
    /// is denied. Fails when all stubs are in use.
    #[inline]
    fn stub(&self, id: u32, return_address: u64) -> Result<u32, MarksDisabled> {
        match self.0[id as usize].load(Ordering::Relaxed) {
            0 => {
                let stub =
                    mark_stubs::create(return_address).ok_or(MarksDisabled::PoolExhausted)?;
                self.0[id as usize].store(stub, Ordering::Relaxed);
                Ok(stub)
            }
            DENIED => Ok(0),
            stub => Ok(stub),
        }
    }
}

/// Returns whether a library reads return addresses on the stack: the exception unwinders, the
/// dynamic loader, which looks up its caller, and the part of UCX that replaces dlopen.
pub fn is_sensitive(module: &LoadedModule) -> bool {
    const NAMES: [&[u8]; 5] = [b"libgcc_s", b"ld-linux", b"ld-2", b"libunwind", b"libucm"];
    let file = module.name.rsplit(|byte| *byte == b'/').next().unwrap_or_default();
    NAMES.iter().any(|name| file.starts_with(name))
}

/// The mark as the unwinder searches for it: place and expected word.
#[derive(Clone, Copy)]
pub struct MarkTarget {
    return_slot: u64,
    stub: u64,
}

impl MarkTarget {
    /// No mark to search for.
    pub const NONE: Self = Self { return_slot: 0, stub: 0 };

    /// Returns the place of the marked return address on the stack; 0 without a mark.
    pub fn return_slot(&self) -> u64 {
        self.return_slot
    }

    /// Returns whether `word`, read as a return address at `return_slot`, is the mark.
    #[inline]
    pub fn is(&self, return_slot: u64, word: u64) -> bool {
        return_slot == self.return_slot && word == self.stub && return_slot != 0
    }
}

/// Returns the thread's mark as the target of the unwinder; [`MarkTarget::NONE`] if there is no
/// mark or its data are inconsistent.
pub fn mark_target(state: &State) -> MarkTarget {
    let live = state.live();
    let frames = state.marked.as_slice();
    let Some(frame) = frames.get(live.index as usize).filter(|_| live.return_slot != 0) else {
        return MarkTarget::NONE;
    };
    if frame.return_slot != live.return_slot || frame.stub == 0 {
        return MarkTarget::NONE;
    }
    MarkTarget { return_slot: live.return_slot, stub: mark_stubs::address(frame.stub) }
}

/// Returns whether the [`WITNESSES`] return addresses outside the mark are unchanged.
///
/// # Safety
/// The unwinder has just read the mark at its place, so that the same stack is still mapped outside
/// it.
unsafe fn outer_frames_unchanged(frames: &[Frame], index: usize, bounds: (u64, u64)) -> bool {
    let outside = frames[..index].iter().rev().filter(|frame| frame.is_native());
    outside.take(WITNESSES).all(|frame| {
        frame.return_slot >= bounds.0
            && frame.return_slot < bounds.1
            // SAFETY: the place lies on the thread's own stack, further out than its frames.
            && mark_stubs::original(unsafe { *(frame.return_slot as *const u64) }) == frame.address
    })
}

/// Returns the number of frames of the marked stack outside the mark, the marked frame included,
/// after the unwinder has reached the mark. Returns `None` if this is not the stack that was
/// marked.
pub fn outside(state: &State) -> Option<usize> {
    let index = state.live().index as usize;
    // SAFETY: the unwinder has reached the mark.
    let same =
        unsafe { outer_frames_unchanged(state.marked.as_slice(), index, state.stack_bounds) };
    same.then_some(index + 1)
}

/// Counts whether an unwind reached the mark or missed it.
pub fn count(state: &State, end: WalkEnd) {
    let thread = &state.area().thread;
    match end {
        WalkEnd::ReachedMark => add_owned(&thread.marks_hit, 1),
        WalkEnd::Complete if state.live().return_slot != 0 => add_owned(&thread.marks_stale, 1),
        _ => {}
    }
}

/// Forgets the mark. The stub stays on the stack and still returns correctly.
pub fn forget(state: &mut State) {
    // SAFETY: the thread's own mark; no stub of the thread runs now.
    unsafe { (*state.mark).return_slot = 0 };
    note(state);
}

/// Disables marks and restores all marked return addresses on the thread's stack, forgotten marks
/// included, after an unknown exception unwinder has met a mark. Its second phase then meets no
/// marks. Restoring is safe only here: the unwinder keeps the words that it has already read, and
/// the other marks lie further out.
pub fn restore_all() {
    let Some(observed) = observed_process::current() else { return };
    observed.disable_marks(MarksDisabled::UnknownUnwinder);
    observed.with_thread(|state| {
        // SAFETY: an all-zero context is valid, and getcontext(3) fills it in.
        let here = unsafe {
            let mut context: libc::ucontext_t = core::mem::zeroed();
            libc::getcontext(&mut context);
            context
        };
        let regs = interrupted(&here);
        let start = Start {
            address: regs.ip(),
            is_return: true,
            return_slot: 0,
            regs,
            stack_bounds: state.stack_bounds,
            stop_at: u64::MAX,
            stop_address: 0,
            mark_target: MarkTarget::NONE,
        };
        observed.with_unwinding(state, |unwinding, walk| {
            walk.found.clear();
            unwinding.walk(start, walk.found);
        });
        let on_stack = |frame: &&Frame| frame.return_slot != 0 && !frame.is_of_script();
        for frame in state.found.as_slice().iter().filter(on_stack) {
            let word = frame.return_slot as *mut u64;
            // SAFETY: the return address of a frame that has not returned, from where it was just
            // read.
            unsafe {
                let found = word.read_volatile();
                if mark_stubs::original(found) != found {
                    word.write_volatile(frame.address);
                }
            }
        }
        forget(state);
    });
}

/// Keeps the return address at `return_slot` free from marks until the next call of this function,
/// and restores it if a mark has replaced it. For functions that look up their caller by their
/// return address, as dlopen does: a sample may fall before they have read it, and a caller that
/// ends by a jump to such a function passes on its own return address. The thread enters that
/// function, so that no unwinder of it runs.
///
/// # Safety
/// The calling thread makes a call with its return address at `return_slot`.
pub unsafe fn keep_free(return_slot: *mut u64) {
    // SAFETY: as the caller promises.
    let restored = || unsafe {
        let found = return_slot.read_volatile();
        let original = mark_stubs::original(found);
        if original != found {
            return_slot.write_volatile(original);
        }
        original
    };
    // The stack of a forked child, or of a thread that is no longer observed, still has marks.
    restored();
    // SAFETY: the block of the calling thread, if the thread is observed.
    let Some(block) = (unsafe { tls::get().as_ref() }) else { return };
    block.enter(|state| {
        // A sample may have marked it meanwhile.
        let original = restored();
        let slot = return_slot as u64;
        state.unmarkable = (slot, original);
        for frame in state.marked.as_mut_slice() {
            if frame.return_slot == slot {
                frame.stub = 0;
            }
        }
        if state.live().return_slot == slot {
            forget(state);
        }
        if state.live().awaited_slot == slot {
            declared::give_up(state);
        }
    });
}

/// Returns the maximum number of outermost frames of a new stack that are the same calls as in the
/// thread's current one. `compared` is the number by comparison of the two stacks; returns through
/// the mark can only lower it.
pub fn limit_common(state: &State, compared: usize) -> usize {
    let live = state.live();
    limited(state, compared, live.index, live.passes)
}

/// As [`limit_common`], for the stack at the return of a declared function.
pub fn limit_common_at_return(state: &State, compared: usize) -> usize {
    let live = state.live();
    limited(state, compared, live.index_at_return, live.passes_at_return)
}

fn limited(state: &State, compared: usize, index: u64, passes: u64) -> usize {
    let checkpoint = state.mark_checkpoint;
    if passes == checkpoint.passes {
        return compared;
    }
    let at = checkpoint.index;
    // The index of the mark refers to both stacks only while both have the same frames outside it.
    let return_slot = |frames: &Frames| frames.as_slice().get(at).map(|frame| frame.return_slot);
    if return_slot(&state.current) != return_slot(&state.marked) {
        return compared;
    }
    // The frame with the mark has not returned, all frames further in have, except for functions of
    // scripts, which only a comparison tells. If the mark has moved beyond the outermost markable
    // frame, only the return of that frame is known.
    let outside = match usize::try_from(index).ok().and_then(|index| index.checked_add(1)) {
        Some(outside) => outside,
        None => state.marked.as_slice().iter().position(|frame| frame.stub != 0).unwrap_or(at),
    };
    let beyond = state.marked.as_slice().get(outside..).unwrap_or_default();
    let of_scripts = beyond.iter().take_while(|frame| frame.is_of_script()).count();
    compared.min(outside + of_scripts)
}

/// Stores the position of the mark after a change of the thread's current stack.
pub fn note(state: &mut State) {
    let live = state.live();
    state.mark_checkpoint = MarkCheckpoint { index: live.index as usize, passes: live.passes };
}

/// As [`note`], for the stack at the return of a declared function.
pub fn note_at_return(state: &mut State) {
    let live = state.live();
    state.mark_checkpoint =
        MarkCheckpoint { index: live.index_at_return as usize, passes: live.passes_at_return };
}

/// Returns the stub for the innermost return address of a thread's call path; `None` if it must not
/// be marked.
pub fn stub_of_caller(observed: &Observed, state: &State, path: &[Frame]) -> Option<u32> {
    let markable = observed.markable();
    let frame = path.last()?;
    if !observed.marks()
        || path.iter().any(|frame| markable.is_denied(frame.id))
        || !may_be_marked(observed, state.stack_bounds, state.unmarkable, path.len() - 1, frame)
    {
        return None;
    }
    match markable.stub(frame.id, frame.address) {
        Ok(stub) => (stub != 0).then_some(stub),
        Err(reason) => {
            observed.disable_marks(reason);
            None
        }
    }
}

/// Returns whether the return address of frame `index` of a thread's own stack may be replaced.
fn may_be_marked(
    observed: &Observed,
    bounds: (u64, u64),
    unmarkable: (u64, u64),
    index: usize,
    frame: &Frame,
) -> bool {
    index >= OUTERMOST
        && frame.return_slot >= bounds.0
        && frame.return_slot < bounds.1
        && frame.is_native()
        && (frame.return_slot, frame.address) != unmarkable
        && !observed.is_own(frame.address)
}

/// Marks the thread's current stack. The stack has just been unwound, whole or up to the mark, or
/// it belongs to a wrapped call that is about to return, with return addresses unchanged since its
/// entry.
///
/// The outermost `state.common` frames are unchanged since the last mark: only the others are
/// examined.
pub fn plant(observed: &Observed, state: &mut State) {
    // SAFETY: the thread's own mark; it is interrupted outside the stubs, which also use it.
    let live = unsafe { &mut *state.mark };
    let markable = observed.markable();
    let known = state.common;
    let new = &state.current.as_slice()[known..];
    if new.iter().any(|frame| markable.is_denied(frame.id)) {
        // The exception unwinder may be at work: the stack is not changed.
        note(state);
        return;
    }
    state.marked.follow(Path { outer: state.current.as_slice(), inner: &[] }, known);
    state.common = state.marked.as_slice().len();
    live.frames = state.marked.as_slice().as_ptr();
    let marked = state.marked.as_mut_slice();
    // A longjmp leaves marks behind on frames that are gone, and may leave a stub half-way.
    let stands = |index: &usize| {
        let old = marked[..known].get(*index);
        old.is_some_and(|frame| frame.return_slot == live.return_slot && frame.stub != 0)
    };
    let mut innermost = Some(live.index as usize).filter(|_| live.return_slot != 0).filter(stands);
    for (index, frame) in marked.iter_mut().enumerate().skip(known) {
        let can = may_be_marked(observed, state.stack_bounds, state.unmarkable, index, frame);
        frame.stub = match can.then(|| markable.stub(frame.id, frame.address)) {
            None => 0,
            Some(Ok(stub)) => stub,
            Some(Err(reason)) => {
                observed.disable_marks(reason);
                forget(state);
                return;
            }
        };
        if frame.stub != 0 {
            innermost = Some(index);
        }
    }
    if observed.verifies_marks() {
        innermost = innermost.map(|index| random_markable_frame(marked, index));
    }
    live.return_slot = 0;
    if let Some(index) = innermost {
        let frame = marked[index];
        let word = frame.return_slot as *mut u64;
        let stub = mark_stubs::address(frame.stub);
        // SAFETY: the unwinder has just read the return address there, now or when the frame was
        // marked, or a wrapped call's frames were compared with the stack at its entry; the thread
        // is outside the stubs, and no unwinder of its own is on the stack.
        let planted = unsafe {
            let found = word.read_volatile();
            if found == frame.address {
                word.write_volatile(stub);
            }
            found == frame.address || found == stub
        };
        if planted {
            (live.return_slot, live.index) = (frame.return_slot, index as u64);
            add_owned(&state.area().thread.marks_planted, 1);
        }
    }
    note(state);
}

/// Returns the index of a random frame that can be marked, or in half of the cases the innermost
/// one. For [`Marks::Verify`], so that stubs return everywhere.
fn random_markable_frame(marked: &[Frame], innermost: usize) -> usize {
    let random = ticks().wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
    if random & 1 == 0 {
        return innermost;
    }
    let most = (random >> 1) as usize % (innermost + 1);
    marked[..=most].iter().rposition(|frame| frame.stub != 0).unwrap_or(innermost)
}
