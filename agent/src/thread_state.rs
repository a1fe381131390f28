//! Per-thread state of the agent.
//!
//! A thread's block is private memory that the kernel zeroes in every forked child
//! (MADV_WIPEONFORK), and a zeroed block is inert. A child therefore never writes a record into
//! the parent's ring, after any way of forking.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::cfi::CfiScratch;
use crate::channels::Channels;
use crate::counters::Counters;
use crate::marks::{self, LiveMark, MarkCheckpoint};
use crate::modules::Snapshot;
use crate::observed_process;
use crate::offcpu::OffCpuClock;
use crate::regions::RegionTable;
use crate::regions::shares::CallTimes;
use crate::regions::thread_creations::ThreadOrigin;
use crate::stack_memory::StackMemory;
use crate::started_requests::StartedRequests;
use crate::stream::Stream;
use crate::timer::Timer;
use crate::unwind::{Frame, Frames, Path, RuleCache};
use plimsoll_wire::record::{Delta, MAX_DEPTH};
use plimsoll_wire::segment::ThreadArea;
use plimsoll_wire::teams::PathKey;

/// Value of the witness word in the outermost frame of the agent's code while that code runs
/// ([`ThreadBlock::busy`]).
const RUNS: u64 = 0x5aa5_c33c_9669_f00f;

/// Size of the handler's stack in bytes. Unwinding needs 15 KB at most, in builds for tests 70 KB.
pub const HANDLER_STACK: usize = 128 << 10;

/// A thread's block. The assembly of the handler's entry reads the first field.
#[repr(C)]
pub struct ThreadBlock {
    /// Upper end of the handler's stack; 0 in a forked child.
    pub handler_stack_top: usize,
    /// The mark on the thread's stack, used by the stubs that the thread returns through.
    pub mark: UnsafeCell<LiveMark>,
    /// Whether the thread is observed. Set last, after the rest of the block is ready; cleared
    /// first, before the block is taken down.
    pub active: AtomicBool,
    /// Address of the witness word that holds [`RUNS`] in the outermost frame of the agent's code;
    /// 0 while no agent code runs on this thread. While nonzero, the handler changes nothing.
    pub busy: AtomicU64,
    /// Whether the application believes that it has blocked the sampling signal.
    pub signal_hidden: AtomicBool,
    /// Signals that the thread waits for, without the sampling signal; bit 0 is signal 1.
    pub awaited_signals: AtomicU64,
    /// Timer that sends the sampling signal to the thread.
    pub timer: Timer,
    /// Hazard pointer: the module snapshot that this thread uses now; null if none.
    pub hazard: AtomicPtr<Snapshot>,
    /// State shared by the handler and the wrappers. `busy` excludes simultaneous access.
    pub state: UnsafeCell<MaybeUninit<State>>,
}

/// A thread's measuring state.
pub struct State {
    /// The thread's area in the segment.
    pub area: *const ThreadArea,
    /// Index of the area.
    pub index: u32,
    /// Kernel thread id.
    pub tid: libc::pid_t,
    /// Bounds of the thread's own stack: lowest and one past the highest address.
    pub stack_bounds: (u64, u64),
    /// Bounds of the handler's stack: lowest and one past the highest address.
    pub handler_stack: (u64, u64),
    /// Outgoing records.
    pub stream: Stream,
    /// The stack as the consumer knows it from the records so far, outermost frame first.
    pub current: Frames,
    /// Buffer for the frames that an unwind finds.
    pub found: Frames,
    /// The stack when it was last marked, outermost frame first.
    pub marked: Frames,
    /// Length of a common prefix of `current` and `marked`, in outermost frames. The true common
    /// prefix may be longer.
    pub common: usize,
    /// Buffer for the whole stack that shortened stacks are verified against (`Marks::Verify`).
    pub whole: Frames,
    /// The thread's mark, in its block.
    pub mark: *mut LiveMark,
    /// Position and pass count of the mark when `current` was taken.
    pub mark_checkpoint: MarkCheckpoint,
    /// Place and value of a return address that must not be marked ([`marks::keep_free`]).
    pub unmarkable: (u64, u64),
    /// Buffer for the address ids of a stack's new frames.
    pub ids: [u32; MAX_DEPTH],
    /// Table of wrapped calls by call path.
    pub regions: RegionTable,
    /// Call path that created the thread.
    pub origin: ThreadOrigin,
    /// Call path of another thread that the thread's stack lies in: that of the region during a
    /// share of OpenMP, else that of `origin`.
    pub graft: PathKey,
    /// Such a path as the consumer knows it from the records so far.
    pub announced_graft: PathKey,
    /// Times in measured calls.
    pub call_times: CallTimes,
    /// Last stamp of the record stream when the tables of partners and regions were last flushed.
    pub partners_written: u64,
    /// Started requests with known partners.
    pub requests: StartedRequests,
    /// Channels of the thread's messages.
    pub channels: Channels,
    /// framehop's cache.
    pub cache: RuleCache,
    /// Scratch for CFI rows.
    pub scratch: CfiScratch,
    /// CPU time and run-queue delay.
    pub off_cpu: OffCpuClock,
    /// perf events.
    pub counters: Counters,
    /// Whether the measurement is paused.
    pub paused: bool,
    /// Whether the thread is no longer measured: the run is over, or the agent's code failed.
    pub muted: bool,
}

impl State {
    /// Returns the thread's area in the segment.
    #[inline]
    pub fn area(&self) -> &ThreadArea {
        // SAFETY: the area stays mapped until the thread has been detached, and the state with it.
        unsafe { &*self.area }
    }

    /// Returns the thread's mark.
    pub fn live(&self) -> &LiveMark {
        // SAFETY: the mark lies in the thread's block, as this state does. Only the thread's own
        // stubs write the mark, and no stub runs while the agent's code runs.
        unsafe { &*self.mark }
    }

    /// Takes the result of a write. After a record that did not fit the ring, the consumer knows
    /// neither stack nor slots, so that later records describe both again in full.
    pub fn written(&mut self, fitted: bool) {
        if !fitted {
            self.forget_reader();
        }
    }

    #[cold]
    fn forget_reader(&mut self) {
        self.current.clear();
        self.common = 0;
        self.announced_graft = PathKey::NONE;
        self.regions.announce_all_again();
    }
}

/// Returns the number of outermost frames of `path` that are the same calls as in `current`,
/// judged by address id and place of the return address. The first `known` frames are taken to be
/// the same without a comparison.
pub fn common_prefix(current: &Frames, path: Path<'_>, known: usize) -> usize {
    let same = |(old, new): &(&Frame, &Frame)| {
        old.return_slot == new.return_slot && old.id == new.id && old.return_slot != 0
    };
    let current = &current.as_slice()[known..];
    known + current.iter().zip(path.frames_beyond(known)).take_while(same).count()
}

/// Returns the difference from `current` to `path`, which share the outermost `common_prefix`
/// frames. `ids` is the buffer for the ids of the added frames. Innermost frames beyond
/// [`MAX_DEPTH`] are left out, as [`Frames::follow`] does.
pub fn difference<'i>(
    current: &Frames,
    path: Path<'_>,
    common_prefix: usize,
    ids: &'i mut [u32; MAX_DEPTH],
) -> Delta<'i> {
    let mut new = 0;
    let room = ids.iter_mut().take(MAX_DEPTH - common_prefix);
    for (id, frame) in room.zip(path.frames_beyond(common_prefix)) {
        *id = frame.id;
        new += 1;
    }
    Delta { dropped: (current.as_slice().len() - common_prefix) as u32, added: &ids[..new] }
}

/// Adds to a counter that only this thread writes.
#[inline(always)]
pub fn add_owned(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
}

/// Sets a word that only this thread writes.
#[inline(always)]
pub fn store_owned(word: &AtomicU32, value: u32) {
    word.store(value, Ordering::Relaxed);
}

impl ThreadBlock {
    /// Runs `work` on the thread's state while the handler is excluded. Returns `None` if the
    /// thread is not observed or the agent's code already runs on it.
    #[inline]
    pub fn enter<R>(&self, work: impl FnOnce(&mut State) -> R) -> Option<R> {
        if !self.active.load(Ordering::Relaxed) {
            return None;
        }
        let witness = AtomicU64::new(RUNS);
        let at = witness.as_ptr().expose_provenance() as u64;
        let busy = self.busy.load(Ordering::Relaxed);
        if busy != 0 && !self.was_left(busy, at) {
            return None;
        }
        self.busy.store(at, Ordering::Relaxed);
        core::sync::atomic::compiler_fence(Ordering::SeqCst);
        // SAFETY: `active` says that the state is initialised; `busy` keeps the handler of this
        // thread, the only other user, away until it is cleared again.
        let state = unsafe { (*self.state.get()).assume_init_mut() };
        if state.stream.reader_changed() {
            state.forget_reader();
        }
        let result = work(state);
        core::sync::atomic::compiler_fence(Ordering::SeqCst);
        self.busy.store(0, Ordering::Relaxed);
        Some(result)
    }

    /// Runs `work` and catches a panic in it: the application continues, and the thread is no
    /// longer measured. Callers must exclude a pending thread cancellation: catching the
    /// cancellation's forced unwind would end the process.
    pub fn guard(&self, state: &mut State, work: impl FnOnce(&mut State)) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| work(state))) {
            // The payload is leaked: freeing memory is not allowed in a signal handler.
            core::mem::forget(panic);
            self.give_up(state);
        }
    }

    #[cold]
    fn give_up(&self, state: &mut State) {
        if !state.muted {
            self.break_off(state);
            state.muted = true;
            if let Some(observed) = observed_process::current() {
                observed.header().unsampled_threads.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Restores a consistent state after the agent's code was left before its end.
    fn break_off(&self, state: &mut State) {
        self.hazard.store(core::ptr::null_mut(), Ordering::Release);
        // A record may have been begun but not written.
        state.stream.break_off();
        state.forget_reader();
        state.regions.leave();
        marks::forget(state);
    }

    /// Returns whether the agent's code with the witness word at `busy` was left by a jump out of a
    /// signal handler or by a cancellation, and if so restores a consistent state.
    ///
    /// While that code runs, nothing else writes its witness word. After it was left, a later call
    /// frame at the same place overwrites the word, at the latest the current frame of the agent,
    /// which has its own witness word at `here`. A comparison of the two addresses proves nothing:
    /// an alternate stack may lie anywhere, even inside the thread's own stack.
    #[cold]
    #[inline(never)]
    fn was_left(&self, busy: u64, here: u64) -> bool {
        let runs = busy != here && StackMemory::at(busy, (0, 0)).read(busy) == Ok(RUNS);
        if !runs {
            // SAFETY: `active` says that the state is initialised; no agent code is using it.
            let state = unsafe { (*self.state.get()).assume_init_mut() };
            self.break_off(state);
        }
        !runs
    }

    /// Returns the number of samples that the thread has taken; 0 if it is not observed.
    pub fn samples(&self) -> u64 {
        if !self.active.load(Ordering::Acquire) {
            return 0;
        }
        // SAFETY: `active` says that the state is initialised; the pointer to the area never
        // changes, and areas stay mapped.
        unsafe { (*(*(*self.state.get()).as_ptr()).area).thread.samples.load(Ordering::Relaxed) }
    }

    /// Returns whether the agent's code runs on the thread. Called from another thread, so that the
    /// answer may be outdated.
    pub fn runs(&self) -> bool {
        self.active.load(Ordering::Relaxed) && self.busy.load(Ordering::Relaxed) != 0
    }

    /// Clears `busy` and the hazard pointer at the end of the thread. Agent code that was left by a
    /// jump or a cancellation may still be noted there.
    pub fn settle(&self) {
        self.busy.store(0, Ordering::Relaxed);
        self.hazard.store(core::ptr::null_mut(), Ordering::Release);
    }
}

/// Maximum size of a stack. Without a limit (`ulimit -s unlimited`), the C library takes everything
/// down to the next mapping for the initial thread's stack, the heap included; between the two lie
/// many TiB.
const MAX_STACK: u64 = 1 << 40;

/// Returns the bounds of the calling thread's own stack: lowest and one past the highest address,
/// or (0, 0) if unknown.
pub fn stack_bounds() -> (u64, u64) {
    let mut attributes = MaybeUninit::<libc::pthread_attr_t>::uninit();
    let (mut low, mut size) = (core::ptr::null_mut(), 0);
    // SAFETY: the calls fill in what they are given; the attributes are destroyed once.
    unsafe {
        if libc::pthread_getattr_np(libc::pthread_self(), attributes.as_mut_ptr()) != 0 {
            return (0, 0);
        }
        let result = libc::pthread_attr_getstack(attributes.as_ptr(), &mut low, &mut size);
        libc::pthread_attr_destroy(attributes.as_mut_ptr());
        if result != 0 {
            return (0, 0);
        }
    }
    bounded(low as u64, low as u64 + size as u64)
}

fn bounded(low: u64, high: u64) -> (u64, u64) {
    (low.max(high.saturating_sub(MAX_STACK)), high)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_heap_is_no_part_of_an_unlimited_stack() {
        let (brk, high) = (0x5644_8b51_2000, 0x7ffc_ef43_b000);
        let (low, end) = bounded(brk, high);
        assert!(low > brk + MAX_STACK && end == high);
        assert_eq!(bounded(high - (8 << 20), high), (high - (8 << 20), high));
    }

    #[test]
    fn a_difference_adds_no_frames_beyond_the_deepest_stack() {
        // SAFETY: zeros are frames.
        let mut current = unsafe { Box::<Frames>::new_zeroed().assume_init() };
        let outer = vec![Frame { return_slot: 8, ..Frame::default() }; 10];
        current.follow(Path { outer: &outer, inner: &[] }, 0);
        let inner = vec![Frame::default(); MAX_DEPTH - 5];
        let path = Path { outer: &outer, inner: &inner };
        let mut ids = [0; MAX_DEPTH];
        let stack = difference(&current, path, 10, &mut ids);
        assert_eq!((stack.dropped, stack.added.len()), (0, MAX_DEPTH - 10));
        current.follow(path, 10);
        assert_eq!(current.as_slice().len(), MAX_DEPTH);
    }
}
