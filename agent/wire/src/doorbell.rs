//! Doorbell: a futex word on which threads of all processes that share the memory can sleep.
//! Ringing is async-signal-safe. See futex(2).

use core::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use plimsoll_sys::syscalls::syscall;

/// Doorbell; holds the number of rings.
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct Doorbell(AtomicU32);

/// Maximum number of doorbells that one wait can cover (FUTEX_WAITV_MAX).
const MAX_BELLS: usize = 128;

/// Maximum sleep when the wait covers only the first doorbell, so that the others may ring
/// unnoticed.
const MAX_UNHEARD: Duration = Duration::from_millis(200);

/// As in linux/futex.h; since Linux 5.16.
#[repr(C)]
struct Waiter {
    value: u64,
    address: u64,
    flags: u32,
    reserved: u32,
}

/// FUTEX2_SIZE_U32: the word has 32 bits, and may be shared.
const WORD: u32 = 2;

impl Doorbell {
    /// Creates a doorbell with zero rings.
    pub const fn new() -> Self {
        Self(AtomicU32::new(0))
    }

    /// Returns the number of rings so far.
    pub fn rings(&self) -> u32 {
        self.0.load(Ordering::Acquire)
    }

    /// Rings the doorbell and wakes all waiting threads.
    pub fn ring(&self) {
        self.0.fetch_add(1, Ordering::Release);
        // SAFETY: wakes the threads that sleep on this word.
        let _ = unsafe { syscall!(libc::SYS_futex, self.0.as_ptr(), libc::FUTEX_WAKE, i32::MAX) };
    }

    /// Sleeps until the doorbell has been rung more than `seen` times, or `milliseconds` have
    /// passed; may wake early. Returns the number of rings.
    pub fn wait(&self, seen: u32, milliseconds: u64) -> u32 {
        self.sleep(seen, Duration::from_millis(milliseconds));
        self.rings()
    }

    fn sleep(&self, seen: u32, most: Duration) {
        let timeout = timespec(most);
        // SAFETY: the word and the timeout outlive the call.
        let _ = unsafe {
            syscall!(libc::SYS_futex, self.0.as_ptr(), libc::FUTEX_WAIT, seen, &raw const timeout)
        };
    }
}

/// Sleeps until one of several doorbells has been rung more often than its given count, or `most`
/// has passed; may wake early. If one wait cannot cover all doorbells (on kernels before Linux
/// 5.16, or with more than `MAX_BELLS`), only the first one wakes the thread, and the sleep is
/// limited to 200 ms.
pub fn wait_any(bells: &[(&Doorbell, u32)], most: Duration) {
    let Some((first, seen)) = bells.first() else { return };
    if bells.len() > MAX_BELLS || !sleep_by_all(bells, most) {
        first.sleep(*seen, most.min(MAX_UNHEARD));
    }
}

/// Sleeps on all doorbells at once. Returns false if the kernel cannot do that.
fn sleep_by_all(bells: &[(&Doorbell, u32)], most: Duration) -> bool {
    let waiter = |(bell, seen): &(&Doorbell, u32)| Waiter {
        value: u64::from(*seen),
        address: bell.0.as_ptr() as u64,
        flags: WORD,
        reserved: 0,
    };
    let waiters: Vec<Waiter> = bells.iter().map(waiter).collect();
    let mut now = timespec(Duration::ZERO);
    // SAFETY: the words, the list and the time outlive the calls; the time is absolute.
    let outcome = unsafe {
        libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now);
        let until = timespec(Duration::new(now.tv_sec as u64, now.tv_nsec as u32) + most);
        libc::syscall(
            libc::SYS_futex_waitv,
            waiters.as_ptr(),
            waiters.len(),
            0,
            &raw const until,
            libc::CLOCK_MONOTONIC,
        )
    };
    let error = std::io::Error::last_os_error().raw_os_error();
    // A ring meanwhile, a timeout, a signal: each is a valid reason to wake.
    outcome >= 0 || matches!(error, Some(libc::EAGAIN | libc::ETIMEDOUT | libc::EINTR))
}

fn timespec(time: Duration) -> libc::timespec {
    libc::timespec {
        tv_sec: time.as_secs() as libc::time_t,
        tv_nsec: time.subsec_nanos() as libc::c_long,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Instant;

    use super::*;

    const FOREVER: Duration = Duration::from_secs(600);

    /// Checks that doorbell `which` wakes a wait for three. A missed ring fails after [`FOREVER`].
    fn hears(which: usize) {
        let bells = [const { Doorbell::new() }; 3];
        let listened: Vec<_> = bells.iter().map(|bell| (bell, bell.rings())).collect();
        std::thread::scope(|scope| {
            scope.spawn(|| bells[which].ring());
            let begin = Instant::now();
            while bells[which].rings() == 0 {
                wait_any(&listened, FOREVER);
                assert!(begin.elapsed() < FOREVER, "bell {which} was not heard");
            }
        });
    }

    #[test]
    fn any_bell_wakes() {
        (0..3).for_each(hears);
    }

    #[test]
    fn what_has_rung_since_it_was_seen_lets_nobody_sleep() {
        let bells = [const { Doorbell::new() }; 2];
        let listened: Vec<_> = bells.iter().map(|bell| (bell, bell.rings())).collect();
        bells[1].ring();
        let begin = Instant::now();
        wait_any(&listened, FOREVER);
        bells[0].ring();
        assert_eq!(bells[0].wait(0, 600_000), 1);
        assert!(begin.elapsed() < FOREVER);
    }

    #[test]
    fn without_a_ring_time_is_up() {
        let bells = [const { Doorbell::new() }; MAX_BELLS + 1];
        for count in [1, MAX_BELLS, MAX_BELLS + 1] {
            let listened: Vec<_> = bells[..count].iter().map(|bell| (bell, 0)).collect();
            wait_any(&listened, Duration::from_millis(1));
        }
        wait_any(&[], FOREVER);
    }
}
