//! Guard around Plimsoll's part of every hook: no panic of Plimsoll reaches the application.
//!
//! The application's own call is made outside the guard, so that exceptions and cancellations from
//! that call pass as they would without Plimsoll. After a panic the process is no longer measured,
//! and the report omits its rank and says so.

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll_agent::observed_process;

use crate::wrappers::REGIONS;

/// Runs [`contained`]; `at` names the part of the hook, for tests that make it panic at its start.
#[inline(always)]
pub fn guarded<R>(at: &'static str, work: impl FnOnce() -> R, otherwise: impl FnOnce() -> R) -> R {
    let work = || {
        raise(at);
        work()
    };
    contained(work, otherwise)
}

/// Runs `work`, Plimsoll's part of a hook. If it panics, the hook continues with the result of
/// `otherwise`.
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

/// Whether a part of Plimsoll has panicked.
static FAILED: AtomicBool = AtomicBool::new(false);

/// Returns whether a part of Plimsoll has panicked in this process, which must then not be
/// observed.
pub fn has_failed() -> bool {
    FAILED.load(Ordering::Relaxed)
}

/// Stops measuring this process after a panic.
#[cold]
#[inline(never)]
fn stand_back(panic: Box<dyn Any + Send>) {
    // The panic's memory is not freed: this may be a signal handler.
    std::mem::forget(panic);
    FAILED.store(true, Ordering::Relaxed);
    REGIONS.store(false, Ordering::Relaxed);
    if let Some(observed) = observed_process::current() {
        observed.break_off();
    }
}

/// Panics where a test requests it: PANIC_IN names the part of a hook, and optionally the only
/// rank, as in "reduction@1".
#[cfg(feature = "panics")]
pub fn raise(at: &'static str) {
    // SAFETY: a C string; no thread changes the environment in these tests.
    let wanted = unsafe { libc::getenv(c"PANIC_IN".as_ptr()) };
    if wanted.is_null() {
        return;
    }
    // SAFETY: the environment's strings end in a NUL.
    let wanted = unsafe { std::ffi::CStr::from_ptr(wanted) }.to_str().unwrap_or_default();
    let (part, rank) = wanted.split_once('@').unwrap_or((wanted, ""));
    let is_here = rank.is_empty()
        || plimsoll_comm::mpi::launcher::launcher_rank()
            .is_some_and(|known| known.to_string() == rank);
    if part == at && is_here {
        panic!("wanted in {at}");
    }
}

#[cfg(not(feature = "panics"))]
#[inline(always)]
pub fn raise(_at: &'static str) {}
