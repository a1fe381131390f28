//! What the agent keeps for each observed thread.
//!
//! The block is private memory, wiped in every child of a fork (MADV_WIPEONFORK): a child finds
//! zeros, and a zeroed block is inert. So no record of the parent's ring is ever written by a
//! child, whatever way of forking the application uses.

use core::cell::UnsafeCell;
use core::mem::MaybeUninit;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicU64, Ordering};
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::cfi::CfiScratch;
use crate::marks::{self, LiveMark, Since};
use crate::memory::StackMemory;
use crate::modules::Snapshot;
use crate::offcpu::OffCpuClock;
use crate::process;
use crate::regions::RegionTable;
use crate::started_requests::StartedRequests;
use crate::stream::Stream;
use crate::timer::Timer;
use crate::unwind::{Frame, Frames, Path, RuleCache};
use plimsoll_wire::record::{Delta, MAX_DEPTH};
use plimsoll_wire::segment::ThreadArea;

/// What the outermost frame of our own code holds while it runs ([`ThreadBlock::busy`]).
const RUNS: u64 = 0x5aa5_c33c_9669_f00f;

/// Bytes of the stack on which the handler runs: unwinding needs 17.5 KB at most.
pub const HANDLER_STACK: usize = 64 << 10;

/// A thread's block. The assembly of the handler's entry reads the first field.
#[repr(C)]
pub struct ThreadBlock {
    /// Upper end of the handler's stack; 0 in a forked child.
    pub handler_stack_top: usize,
    /// The mark on the thread's stack, used by the stubs that the thread returns through.
    pub mark: UnsafeCell<LiveMark>,
    /// The thread is observed: set last when the block is ready, cleared first when it goes.
    pub active: AtomicBool,
    /// Our own code runs on this thread: the handler must leave everything alone. Address of the word
    /// in its outermost frame that holds [`RUNS`]; 0: it does not run.
    pub busy: AtomicU64,
    /// The application believes that it has blocked the sampling signal.
    pub signal_hidden: AtomicBool,
    /// What interrupts the thread.
    pub timer: Timer,
    /// The snapshot that this thread uses now.
    pub hazard: AtomicPtr<Snapshot>,
    /// The state that the handler and the wrappers share, never at the same time (`busy`).
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
    /// The thread's own stack: lowest and one past the highest address.
    pub stack_bounds: (u64, u64),
    /// The handler's stack: lowest and one past the highest address.
    pub handler_stack: (u64, u64),
    /// Outgoing records.
    pub stream: Stream,
    /// The stack as the reader knows it, outermost first.
    pub current: Frames,
    /// Room for what a walk over the stack finds.
    pub found: Frames,
    /// The stack when it was last marked.
    pub marked: Frames,
    /// How many outermost frames `current` and `marked` have in common, at least.
    pub common: usize,
    /// Room for the stack that marks are checked against.
    pub whole: Frames,
    /// The thread's mark, in its block.
    pub mark: *mut LiveMark,
    /// Where the mark stood when `current` was taken.
    pub since: Since,
    /// Room for the ids of a stack's new frames.
    pub ids: [u32; MAX_DEPTH],
    /// Wrapped calls.
    pub regions: RegionTable,
    /// Stamp of the last time that the partner table was written out.
    pub partners_written: u64,
    /// Requests whose partners are known.
    pub requests: StartedRequests,
    /// framehop's cache.
    pub cache: RuleCache,
    /// Scratch for CFI rows.
    pub scratch: CfiScratch,
    /// CPU time and run-queue delay.
    pub off_cpu: OffCpuClock,
    /// The measurement is paused.
    pub paused: bool,
    /// The run is over, or something of ours has gone wrong.
    pub muted: bool,
}

impl State {
    /// The thread's area in the segment.
    pub fn area(&self) -> &ThreadArea {
        // SAFETY: the area stays mapped until the thread has been detached, and the state with it.
        unsafe { &*self.area }
    }

    /// The thread's mark.
    pub fn live(&self) -> &LiveMark {
        // SAFETY: it lies in the thread's block, as this state does, and only the thread's own
        // stubs write it, which do not run while our code does.
        unsafe { &*self.mark }
    }

    /// After a record did not fit, the reader knows nothing: say everything again.
    pub fn written(&mut self, fitted: bool) {
        if !fitted {
            self.forget_reader();
        }
    }

    #[cold]
    fn forget_reader(&mut self) {
        self.current.clear();
        self.common = 0;
        self.regions.announce_all_again();
    }
}

/// How many outermost frames of `path` are the same calls as in `current`, as far as the places of
/// their return addresses tell. Of the first `known` this is known.
pub fn kept(current: &Frames, path: Path<'_>, known: usize) -> usize {
    let same = |(old, new): &(&Frame, &Frame)| {
        old.place == new.place && old.id == new.id && old.place != 0
    };
    let current = &current.as_slice()[known..];
    known + current.iter().zip(path.frames_beyond(known)).take_while(same).count()
}

/// The difference from `current` to `path`, of which `kept` frames stay. `ids` is room.
pub fn difference<'i>(
    current: &Frames,
    path: Path<'_>,
    kept: usize,
    ids: &'i mut [u32; MAX_DEPTH],
) -> Delta<'i> {
    let mut new = 0;
    for (id, frame) in ids.iter_mut().zip(path.frames_beyond(kept)) {
        *id = frame.id;
        new += 1;
    }
    Delta { dropped: (current.as_slice().len() - kept) as u32, added: &ids[..new] }
}

/// Adds to a counter that only this thread writes.
#[inline(always)]
pub fn bump(counter: &AtomicU64, by: u64) {
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(by), Ordering::Relaxed);
}

/// Sets a word that only this thread writes.
#[inline(always)]
pub fn set(word: &AtomicU32, value: u32) {
    word.store(value, Ordering::Relaxed);
}

impl ThreadBlock {
    /// Runs `work` on the thread's state with the handler held off. `None` if the thread is not
    /// observed, or our own code already runs on it.
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

    /// Runs `work`, whose panic does not end the application: the thread is not measured any more then.
    /// Only for where no cancellation can be on its way: catching one would end the process.
    pub fn guard(&self, state: &mut State, work: impl FnOnce(&mut State)) {
        if let Err(panic) = catch_unwind(AssertUnwindSafe(|| work(state))) {
            // Its memory is not given back: this may be a signal handler.
            core::mem::forget(panic);
            self.give_up(state);
        }
    }

    #[cold]
    fn give_up(&self, state: &mut State) {
        if !state.muted {
            self.break_off(state);
            state.muted = true;
            if let Some(observed) = process::current() {
                observed.header().unsampled_threads.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    /// Our own code has not come to its end: puts what it left behind in order.
    fn break_off(&self, state: &mut State) {
        self.hazard.store(core::ptr::null_mut(), Ordering::Release);
        // A record may have been begun and not written.
        state.stream.break_off();
        state.forget_reader();
        state.regions.leave();
        marks::forget(state);
    }

    /// Whether our own code, which said at `busy` that it runs, was left by a jump out of a signal
    /// handler or by a cancellation. While it runs, nobody else writes that word; once it was left, the
    /// frame of the next call there does, at the latest our own, whose word is `here`. An address alone
    /// proves nothing: an alternate stack may lie anywhere, also in the thread's own. If our code was
    /// left, what it left behind is put in order.
    #[cold]
    #[inline(never)]
    fn was_left(&self, busy: u64, here: u64) -> bool {
        let runs = busy != here && StackMemory::at(busy, (0, 0)).read(busy) == Ok(RUNS);
        if !runs {
            // SAFETY: `active` says that the state is initialised; our own code does not run.
            let state = unsafe { (*self.state.get()).assume_init_mut() };
            self.break_off(state);
        }
        !runs
    }

    /// Samples that the thread has taken.
    pub fn samples(&self) -> u64 {
        if !self.active.load(Ordering::Acquire) {
            return 0;
        }
        // SAFETY: `active` says that the state is initialised; the pointer to the area never changes, and
        // areas stay mapped.
        unsafe { (*(*(*self.state.get()).as_ptr()).area).thread.samples.load(Ordering::Relaxed) }
    }

    /// Whether our own code runs on the thread, as far as another one can tell.
    pub fn runs(&self) -> bool {
        self.active.load(Ordering::Relaxed) && self.busy.load(Ordering::Relaxed) != 0
    }

    /// The thread ends: whatever of our own code was left on it does not run any more.
    pub fn settle(&self) {
        self.busy.store(0, Ordering::Relaxed);
        self.hazard.store(core::ptr::null_mut(), Ordering::Release);
    }
}

/// A thread's own stack: lowest and one past the highest address; (0, 0) if unknown.
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
    (low as u64, low as u64 + size as u64)
}
