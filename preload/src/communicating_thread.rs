//! The thread that has the phases of the run: its collectives delimit them. At first, this is the
//! thread that called MPI_Init. Programs that communicate in a thread of their own make collectives
//! there: the first one hands the run over to that thread, and the run begins anew at the return of
//! this collective, on all ranks at the same one.
//!
//! A program that may call MPI in several threads at a time (MPI_THREAD_MULTIPLE) makes the
//! collectives of different communicators in any order, but those of one communicator in the same
//! order on all ranks (MPI-4.1, 6.13). There, only the collectives on MPI_COMM_WORLD itself decide.

use std::ffi::c_void;
use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};

use plimsoll_agent::{observed_process, tls};
use plimsoll_comm::mpi::{HandleFacts, Named};

/// Minimum number of deciding collectives after which a thread keeps the run. With fewer, the
/// thread that called MPI_Init takes the run back at its own first collective: the other one has
/// only helped at the start.
const MIN_KEPT_COLLECTIVES: u32 = 10;

/// Thread block of the thread that communicates; null if that thread has ended.
static THREAD: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
/// Thread block of the thread that called MPI_Init; null if that thread has ended.
static FIRST: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
/// Whether the run may be handed over.
static MAY_CHANGE: AtomicBool = AtomicBool::new(false);
/// Whether at most one thread at a time calls MPI.
static IS_SERIALISED: AtomicBool = AtomicBool::new(true);
/// Number of deciding collectives that the thread has made, at most [`MIN_KEPT_COLLECTIVES`].
static MADE: AtomicU32 = AtomicU32::new(0);

/// Calls of MPI by several threads.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum ThreadSupport {
    /// At most one thread at a time calls MPI.
    Serialised,
    /// Several threads may call MPI at a time.
    Multiple,
    /// Unknown: the run stays with the thread that has it.
    Unknown,
}

/// Makes the calling thread, which has called MPI_Init, the one that communicates.
pub fn begin(support: ThreadSupport) {
    let block = tls::get().cast();
    FIRST.store(block, Ordering::Relaxed);
    THREAD.store(block, Ordering::Relaxed);
    MADE.store(0, Ordering::Relaxed);
    MAY_CHANGE.store(support != ThreadSupport::Unknown, Ordering::Relaxed);
    IS_SERIALISED.store(support == ThreadSupport::Serialised, Ordering::Relaxed);
}

/// Returns whether a collective on a communicator, which must be valid, decides which thread
/// communicates.
fn decides(facts: &HandleFacts, communicator: Named) -> bool {
    MAY_CHANGE.load(Ordering::Relaxed)
        && match IS_SERIALISED.load(Ordering::Relaxed) {
            true => facts.has_all(communicator),
            false => facts.is_world(communicator),
        }
}

/// Returns whether the calling thread is the one that communicates.
pub fn is_current() -> bool {
    is(&THREAD)
}

/// Counts a collective that the thread has made on a communicator.
pub fn count_collective(facts: &HandleFacts, communicator: Named) {
    // A thread that keeps the run needs no further count.
    if MADE.load(Ordering::Relaxed) < MIN_KEPT_COLLECTIVES && decides(facts, communicator) {
        MADE.fetch_add(1, Ordering::Relaxed);
    }
}

/// Hands the run over to the calling thread, which has made a collective on a communicator, if the
/// collective decides so. Returns whether it was handed over.
pub fn take_over(facts: &HandleFacts, communicator: Named) -> bool {
    if !decides(facts, communicator) {
        return false;
    }
    let Some(observed) = observed_process::current() else { return false };
    let made = MADE.load(Ordering::Relaxed);
    let is_first = is(&FIRST);
    let was_first = THREAD.load(Ordering::Relaxed) == FIRST.load(Ordering::Relaxed);
    let changes = if is_first { made < MIN_KEPT_COLLECTIVES } else { was_first && made == 0 };
    if changes {
        THREAD.store(tls::get().cast(), Ordering::Relaxed);
        MADE.store(u32::from(is_first), Ordering::Relaxed);
        observed.begin();
    }
    changes
}

/// Forgets the calling thread, which ends: another thread may reuse its block.
pub fn forget_current() {
    for thread in [&THREAD, &FIRST] {
        if is(thread) {
            thread.store(null_mut(), Ordering::Relaxed);
        }
    }
}

/// Forgets all threads, in a forked child.
pub fn forget_all() {
    MAY_CHANGE.store(false, Ordering::Relaxed);
    THREAD.store(null_mut(), Ordering::Relaxed);
    FIRST.store(null_mut(), Ordering::Relaxed);
}

fn is(thread: &AtomicPtr<c_void>) -> bool {
    let block: *mut c_void = tls::get().cast();
    !block.is_null() && block == thread.load(Ordering::Relaxed)
}
