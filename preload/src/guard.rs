//! The guard around our part of every hook: no panic of ours reaches the application.
//!
//! The application's own call is made outside of it, so that exceptions and cancellations that come
//! out of that call pass as they would without us. After a panic nothing of the process is measured
//! any more, and its rank is left out of the report, which says so.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll_agent::process;

use crate::wrappers::REGIONS;

/// As [`contained`]; `at` names the part, for tests that let it panic at its begin.
#[inline(always)]
pub fn guarded<R>(at: &'static str, work: impl FnOnce() -> R, otherwise: impl FnOnce() -> R) -> R {
    let work = || {
        raise(at);
        work()
    };
    contained(work, otherwise)
}

/// Runs `work`, our part of a hook. If it panics, the hook goes on with what `otherwise` returns.
#[inline(always)]
pub fn contained<R>(work: impl FnOnce() -> R, otherwise: impl FnOnce() -> R) -> R {
    match catch_unwind(AssertUnwindSafe(work)) {
        Ok(result) => result,
        Err(panic) => {
            stand_back(panic);
            otherwise()
        }
    }
}

/// A part of ours has panicked.
static FAILED: AtomicBool = AtomicBool::new(false);

/// Whether a part of ours has panicked in this process: it must not be observed.
pub fn has_failed() -> bool {
    FAILED.load(Ordering::Relaxed)
}

/// Measures this process no more.
#[cold]
#[inline(never)]
fn stand_back(panic: Box<dyn Any + Send>) {
    // Its memory is not given back: this may be a signal handler.
    std::mem::forget(panic);
    FAILED.store(true, Ordering::Relaxed);
    REGIONS.store(false, Ordering::Relaxed);
    if let Some(observed) = process::current() {
        observed.break_off();
    }
}

/// Panics where a test wants it: PANIC_IN names the part of a hook, and perhaps the only rank, as in
/// "reduction@1".
#[cfg(feature = "panics")]
pub fn raise(at: &'static str) {
    // SAFETY: a C string; nobody changes the environment in these tests.
    let wanted = unsafe { libc::getenv(c"PANIC_IN".as_ptr()) };
    if wanted.is_null() {
        return;
    }
    // SAFETY: the environment's strings end in a NUL.
    let wanted = unsafe { std::ffi::CStr::from_ptr(wanted) }.to_str().unwrap_or_default();
    let (part, rank) = wanted.split_once('@').unwrap_or((wanted, ""));
    let is_here = rank.is_empty()
        || plimsoll_comm::mpi::launch::told_rank().is_some_and(|told| told.to_string() == rank);
    if part == at && is_here {
        panic!("wanted in {at}");
    }
}

#[cfg(not(feature = "panics"))]
#[inline(always)]
pub fn raise(_at: &'static str) {}
