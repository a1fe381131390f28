//! A lock of one word that forks hold, so that the child finds what it protects consistent.

use core::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use crate::syscalls::syscall;

/// Maximum time that a fork waits for the lock.
const FORK_TIMEOUT: Duration = Duration::from_millis(100);

/// The lock. A thread that waits for it yields its core.
#[derive(Debug, Default)]
pub struct ForkLock {
    locked: AtomicBool,
    /// Thread that holds the lock for a fork ([`this_thread`]); 0: none does.
    forking: AtomicUsize,
}

/// Number of yields before a waiting thread sleeps.
const YIELDS: u32 = 100;
/// Sleep between attempts.
static PAUSE: libc::timespec = libc::timespec { tv_sec: 0, tv_nsec: 50_000 };

impl ForkLock {
    /// Creates a lock that is free.
    pub const fn new() -> Self {
        Self { locked: AtomicBool::new(false), forking: AtomicUsize::new(0) }
    }

    fn try_lock(&self) -> bool {
        self.locked.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Waits until no other thread holds the lock, and takes it.
    pub fn lock(&self) {
        let mut tries = 0;
        while !self.try_lock() {
            tries += 1;
            // SAFETY: no preconditions; the time is valid. The holder may be off its core, and a
            // yield leaves the core only to threads of at least the same priority.
            unsafe {
                if tries < YIELDS {
                    libc::sched_yield();
                } else {
                    let _ = syscall!(libc::SYS_nanosleep, &raw const PAUSE, 0);
                }
            }
        }
    }

    /// Releases the lock. The caller holds it.
    pub fn unlock(&self) {
        self.locked.store(false, Ordering::Release);
    }

    /// Takes the lock for a fork. After [`FORK_TIMEOUT`] the fork proceeds without the lock: a
    /// signal handler that forks may have interrupted the holder.
    pub fn before_fork(&self) {
        let begin = Instant::now();
        while !self.try_lock() {
            if begin.elapsed() >= FORK_TIMEOUT {
                return;
            }
            // SAFETY: no preconditions. The holder may be off its core.
            unsafe { libc::sched_yield() };
        }
        self.forking.store(this_thread(), Ordering::Relaxed);
    }

    /// Releases the lock after a fork in the parent, if the calling thread took it for the fork.
    pub fn after_fork(&self) {
        let (us, order) = (this_thread(), Ordering::Relaxed);
        if self.forking.compare_exchange(us, 0, order, order).is_ok() {
            self.unlock();
        }
    }

    /// Releases the lock in the child, which consists of the forking thread alone, if any thread
    /// held it for a fork. Otherwise the lock is free, or code holds it that a forking signal
    /// handler has interrupted and returns to.
    pub fn in_child(&self) {
        if self.forking.swap(0, Ordering::Relaxed) != 0 {
            self.unlock();
        }
    }
}

/// Returns a number of the calling thread other than 0, unique among the living ones. The child of
/// a fork keeps that of the forking thread.
fn this_thread() -> usize {
    // SAFETY: no preconditions.
    unsafe { libc::pthread_self() as usize }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_two_forks_at_a_time_the_one_that_took_the_lock_releases_it() {
        let lock = ForkLock::new();
        lock.before_fork();
        std::thread::scope(|scope| {
            let second = || {
                lock.before_fork();
                lock.after_fork();
            };
            scope.spawn(second);
        });
        assert!(!lock.try_lock(), "the first fork goes on");
        lock.after_fork();
        assert!(lock.try_lock());
        // Nothing is released that a fork did not take.
        lock.after_fork();
        lock.in_child();
        assert!(!lock.try_lock());
    }

    #[test]
    fn a_child_releases_what_any_fork_has_taken() {
        let lock = ForkLock::new();
        std::thread::scope(|scope| {
            scope.spawn(|| lock.before_fork());
        });
        lock.in_child();
        assert!(lock.try_lock());
    }
}
