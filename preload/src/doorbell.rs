//! A word that threads sleep on: safe to ring in a signal handler.

use std::sync::atomic::{AtomicU32, Ordering};

/// Counts the rings; see futex(2).
pub struct Doorbell(AtomicU32);

impl Doorbell {
    /// A bell that has not been rung.
    pub const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// How often it has been rung.
    pub fn rings(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }

    /// Rings, and wakes all who wait.
    pub fn ring(&self) {
        self.0.fetch_add(1, Ordering::Release);
        let operation = libc::FUTEX_WAKE | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: wakes who sleeps on a word of ours.
        unsafe { libc::syscall(libc::SYS_futex, self.0.as_ptr(), operation, i32::MAX) };
    }

    /// Sleeps until it has been rung more than `seen` times, or `milliseconds` have passed; may
    /// wake early. Returns how often it has been rung.
    pub fn wait(&self, seen: u32, milliseconds: u64) -> u32 {
        let timeout = libc::timespec {
            tv_sec: (milliseconds / 1000) as libc::time_t,
            tv_nsec: (milliseconds % 1000 * 1_000_000) as libc::c_long,
        };
        let operation = libc::FUTEX_WAIT | libc::FUTEX_PRIVATE_FLAG;
        // SAFETY: the word and the timeout outlive the call.
        unsafe {
            libc::syscall(libc::SYS_futex, self.0.as_ptr(), operation, seen, &raw const timeout)
        };
        self.rings()
    }
}
