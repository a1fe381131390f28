//! The limits of lookups: a deadline, and the stack that reading debug information may take.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

/// Number of reads of debug information between two readings of the clock; together they take a few
/// microseconds.
const READS: u32 = 64;

/// Maximum number of bytes of stack for reading debug information. `addr2line` descends into
/// inlined calls by recursion, which takes about a kilobyte per level.
const MAX_STACK_BYTES: usize = 512 << 10;

const NEVER: u64 = u64::MAX;

/// A deadline shared by all lookups of one [`super::Structures`]. Any thread may set it, also while
/// a lookup runs: reading debug information then fails, which ends the lookup within microseconds.
#[derive(Clone, Debug, Default)]
pub struct Limit(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    origin: Instant,
    /// Nanoseconds since `origin`; [`NEVER`] without a deadline.
    deadline: AtomicU64,
    /// Time beyond the deadline that the current lookup may take, in nanoseconds.
    grace: AtomicU64,
    reads: AtomicU32,
    /// Whether a read has failed since the last call of [`Limit::take_interruption`].
    was_interrupted: AtomicBool,
    /// Lowest address that the stack of the current lookup may reach; 0 without a bound.
    lowest_stack: AtomicUsize,
}

impl Default for Shared {
    fn default() -> Self {
        Self {
            origin: Instant::now(),
            deadline: AtomicU64::new(NEVER),
            grace: AtomicU64::new(0),
            reads: AtomicU32::new(0),
            was_interrupted: AtomicBool::new(false),
            lowest_stack: AtomicUsize::new(0),
        }
    }
}

/// Returns an address within the stack of the calling function.
fn stack_address() -> usize {
    let here = 0u8;
    std::ptr::from_ref(&here).addr()
}

impl Limit {
    /// Sets the deadline; `None` removes it.
    pub fn set(&self, deadline: Option<Instant>) {
        let since = |at: Instant| at.saturating_duration_since(self.0.origin).as_nanos();
        let deadline = deadline.map_or(NEVER, |at| u64::try_from(since(at)).unwrap_or(NEVER));
        self.0.deadline.store(deadline, Relaxed);
    }

    /// Returns whether there is a deadline.
    pub(super) fn is_set(&self) -> bool {
        self.0.deadline.load(Relaxed) != NEVER
    }

    /// Returns whether the deadline has passed, including the grace time.
    pub fn is_over(&self) -> bool {
        let deadline = self.0.deadline.load(Relaxed);
        if deadline == NEVER {
            return false;
        }
        let now = self.0.origin.elapsed().as_nanos();
        now >= u128::from(deadline.saturating_add(self.0.grace.load(Relaxed)))
    }

    /// Sets the time beyond the deadline that lookups may take from now on.
    pub(super) fn set_grace(&self, grace: Duration) {
        self.0.grace.store(u64::try_from(grace.as_nanos()).unwrap_or(0), Relaxed);
    }

    /// Returns whether a read has to fail. The clock is read once in [`READS`] calls, so callers
    /// may check before every byte.
    pub(super) fn interrupts(&self) -> bool {
        let shared = &*self.0;
        if shared.deadline.load(Relaxed) == NEVER {
            return false;
        }
        // A lost update between threads does no harm.
        let reads = shared.reads.load(Relaxed).wrapping_add(1);
        shared.reads.store(reads, Relaxed);
        if reads.is_multiple_of(READS) && self.is_over() {
            shared.was_interrupted.store(true, Relaxed);
        }
        shared.was_interrupted.load(Relaxed)
    }

    /// Returns whether a read has to fail, with the clock read in every call: for use before a long
    /// step.
    pub(super) fn interrupts_now(&self) -> bool {
        if self.is_over() {
            self.0.was_interrupted.store(true, Relaxed);
        }
        self.0.was_interrupted.load(Relaxed)
    }

    /// Calls `read`, which may take [`MAX_STACK_BYTES`] of stack.
    pub(super) fn with_bounded_stack<T>(&self, read: impl FnOnce() -> T) -> T {
        let lowest = stack_address().saturating_sub(MAX_STACK_BYTES);
        self.0.lowest_stack.store(lowest, Relaxed);
        let result = read();
        self.0.lowest_stack.store(0, Relaxed);
        result
    }

    /// Returns whether a read has to fail because the stack is used up.
    pub(super) fn is_too_deep(&self) -> bool {
        stack_address() < self.0.lowest_stack.load(Relaxed)
    }

    /// Returns whether a read has failed since the last call.
    pub(super) fn take_interruption(&self) -> bool {
        self.0.was_interrupted.swap(false, Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_fail_soon_after_the_deadline_until_that_is_noticed() {
        let limit = Limit::default();
        assert!((0..1000).all(|_| !limit.interrupts()), "no deadline");
        limit.set(Some(Instant::now() + Duration::from_secs(3600)));
        assert!((0..1000).all(|_| !limit.interrupts()) && !limit.is_over());
        limit.set(Some(Instant::now()));
        assert!(limit.is_over());
        let first = (0..1000).position(|_| limit.interrupts()).unwrap();
        assert!(first < READS as usize && limit.interrupts(), "{first}");
        assert!(limit.take_interruption() && !limit.take_interruption());
        limit.set_grace(Duration::from_secs(3600));
        assert!(!limit.is_over() && (0..1000).all(|_| !limit.interrupts()));
        limit.set_grace(Duration::ZERO);
        limit.set(None);
        assert!(!limit.is_over());
    }
}
