//! Plimsoll's file descriptors, hidden from the application: high numbers, close-on-exec, few.

use core::sync::atomic::{AtomicI32, Ordering};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};

use crate::syscalls::syscall;

/// Lowest number of hidden descriptors, if the limit allows it: beyond the range of select(), and
/// low enough that the kernel's table stays small.
const HIGH_NUMBER: libc::rlim_t = 4000;

/// Divisor of the process's descriptor limit: at most one in this many descriptors is Plimsoll's.
const MIN_LIMIT_PER_OWN: libc::rlim_t = 8;

/// Maximum number of Plimsoll's descriptors at any limit.
const MAX_OWN: libc::rlim_t = 256;

/// Moves an open file out of the application's sight, to a high number that closes on exec. If that
/// is not possible, the file keeps its number.
pub fn hide(file: OwnedFd) -> OwnedFd {
    let lowest = Descriptors::new().lowest;
    match duplicate(file.as_raw_fd(), lowest) {
        // SAFETY: the duplicate has no other owner; the original closes with `file`.
        Some(high) => unsafe { OwnedFd::from_raw_fd(high) },
        None => file,
    }
}

/// Counts Plimsoll's descriptors against a cap, so that the application never runs out of
/// descriptors because of them.
pub struct Descriptors {
    left: AtomicI32,
    lowest: libc::c_int,
}

impl Descriptors {
    /// Creates a counter with a cap derived from the process's soft limit.
    pub fn new() -> Self {
        let mut limit = libc::rlimit { rlim_cur: 0, rlim_max: 0 };
        // SAFETY: the pointer is valid for the call.
        unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &mut limit) };
        let cap = (limit.rlim_cur / MIN_LIMIT_PER_OWN).min(MAX_OWN);
        let lowest = limit.rlim_cur.saturating_sub(2 * cap).min(HIGH_NUMBER);
        Self { left: AtomicI32::new(cap as i32), lowest: lowest as libc::c_int }
    }

    /// Moves `descriptor` to a high number with close-on-exec, and closes the original. Returns
    /// `None` if the cap is reached or the kernel refuses; `descriptor` is closed then too.
    pub fn adopt(&self, descriptor: libc::c_int) -> Option<libc::c_int> {
        if descriptor < 0 {
            return None;
        }
        let granted = self.left.fetch_sub(1, Ordering::Relaxed) > 0;
        let high = granted.then(|| duplicate(descriptor, self.lowest)).flatten();
        // SAFETY: the caller has passed on the ownership of the descriptor.
        unsafe { close(descriptor) };
        if high.is_none() {
            self.left.fetch_add(1, Ordering::Relaxed);
        }
        high
    }

    /// Releases an adopted descriptor, and closes it if `is_ours`: the application has not closed
    /// it and opened another file under its number.
    pub fn release(&self, descriptor: libc::c_int, is_ours: bool) {
        self.left.fetch_add(1, Ordering::Relaxed);
        if is_ours {
            // SAFETY: the descriptor belongs to Plimsoll.
            unsafe { close(descriptor) };
        }
    }
}

/// Duplicates a descriptor to a number of at least `lowest` with close-on-exec; `None` if the
/// kernel refuses. A raw system call, since the C library's function may be observed.
fn duplicate(descriptor: libc::c_int, lowest: libc::c_int) -> Option<libc::c_int> {
    // SAFETY: fcntl(2) on any descriptor; the existing descriptors stay as they are.
    let high = unsafe { syscall!(libc::SYS_fcntl, descriptor, libc::F_DUPFD_CLOEXEC, lowest) };
    high.ok().map(|high| high as libc::c_int)
}

/// Closes a descriptor.
///
/// # Safety
/// The descriptor is the caller's to close.
unsafe fn close(descriptor: libc::c_int) {
    // SAFETY: as the caller promises.
    let _ = unsafe { syscall!(libc::SYS_close, descriptor) };
}

impl Default for Descriptors {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn adopted_descriptors_are_high_and_close_on_exec() {
        let descriptors = Descriptors::new();
        // SAFETY: a C string.
        let low = unsafe { libc::open(c"/dev/null".as_ptr(), libc::O_RDONLY) };
        let high = descriptors.adopt(low).expect("the cap is not reached");
        assert!(high >= 100, "{high}");
        // SAFETY: asks about a descriptor.
        let flags = unsafe { libc::fcntl(high, libc::F_GETFD) };
        assert_eq!(flags & libc::FD_CLOEXEC, libc::FD_CLOEXEC);
        descriptors.release(high, false);
        // SAFETY: asks about a descriptor.
        assert!(unsafe { libc::fcntl(high, libc::F_GETFD) } >= 0, "not ours any more: left alone");
        descriptors.release(high, true);
        // SAFETY: asks about a descriptor.
        assert_eq!(unsafe { libc::fcntl(high, libc::F_GETFD) }, -1);
        assert_eq!(descriptors.adopt(-1), None);
    }

    #[test]
    fn refusals_leave_errno_alone() {
        let descriptors = Descriptors::new();
        // SAFETY: errno's location is valid.
        let errno = unsafe { &mut *libc::__errno_location() };
        *errno = 4711;
        // No such descriptor is open.
        assert_eq!(descriptors.adopt(libc::c_int::MAX), None);
        descriptors.release(libc::c_int::MAX, true);
        assert_eq!(*errno, 4711);
    }
}
