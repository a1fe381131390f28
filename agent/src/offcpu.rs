//! Division of a long interval into time on the CPU, waiting for a core, and blocked.
//!
//! Read only when a sample is late, or before and after a long part of an interval: the thread's
//! CPU clock costs 200 ns, its scheduler statistics 300 ns, its resource usage 250 ns.
//!
//! A thread without voluntary context switches was ready to run all the time, so that it waited for
//! a core whenever it did not run. The scheduler's run-queue delay is less complete: a virtual core
//! can itself wait for a real one, and the scheduler inside the virtual machine does not count that
//! time.

use plimsoll_sys::descriptors::Descriptors;
use plimsoll_sys::own::Known;
use plimsoll_sys::posix_clocks::clock_ns;
use plimsoll_sys::syscalls::syscall;
use plimsoll_wire::record::OffCpu;

/// A thread's CPU clock and run-queue delay, as differences between readings.
pub struct OffCpuClock {
    schedstat: Schedstat,
    last: Reading,
}

/// `/proc/thread-self/schedstat`, opened when it is first read: most short threads never read it.
#[derive(Clone, Copy)]
enum Schedstat {
    Unopened,
    Open(Known),
    /// The file could not be opened: the delay of a thread that blocks is unknown and reads as 0.
    Missing,
}

#[derive(Clone, Copy, Default)]
struct Reading {
    wall_ns: u64,
    cpu_ns: u64,
    run_delay_ns: u64,
    /// Number of voluntary context switches at the previous reading.
    blocked: u64,
}

impl OffCpuClock {
    /// Creates the clock of the calling thread, which has just begun.
    pub fn new() -> Self {
        let last = Reading {
            wall_ns: clock_ns(libc::CLOCK_MONOTONIC),
            cpu_ns: clock_ns(libc::CLOCK_THREAD_CPUTIME_ID),
            run_delay_ns: 0,
            blocked: times_blocked(),
        };
        Self { schedstat: Schedstat::Unopened, last }
    }

    /// Returns the file descriptor, to be closed when the thread ends; `None` if none is open.
    pub fn descriptor(&self) -> Option<Known> {
        match self.schedstat {
            Schedstat::Open(known) => Some(known),
            Schedstat::Unopened | Schedstat::Missing => None,
        }
    }

    /// Returns CPU time and run-queue delay since the previous reading. Async-signal-safe.
    pub fn read(&mut self, descriptors: &Descriptors) -> OffCpu {
        if let Schedstat::Unopened = self.schedstat {
            self.schedstat = open(descriptors).map_or(Schedstat::Missing, Schedstat::Open);
        }
        let last = self.last;
        let now = Reading {
            wall_ns: clock_ns(libc::CLOCK_MONOTONIC),
            cpu_ns: clock_ns(libc::CLOCK_THREAD_CPUTIME_ID),
            run_delay_ns: self.run_delay().unwrap_or(last.run_delay_ns),
            blocked: times_blocked(),
        };
        self.last = now;
        let cpu_ns = now.cpu_ns.saturating_sub(last.cpu_ns);
        let run_delay_ns = if now.blocked == last.blocked {
            now.wall_ns.saturating_sub(last.wall_ns).saturating_sub(cpu_ns)
        } else {
            now.run_delay_ns.saturating_sub(last.run_delay_ns)
        };
        OffCpu { cpu_ns, run_delay_ns }
    }

    /// Returns the second field of schedstat: time runnable but not running, in nanoseconds (Linux,
    /// Documentation/scheduler/sched-stats).
    fn run_delay(&self) -> Option<u64> {
        let schedstat = self.descriptor()?.get()?;
        let mut text = [0u8; 64];
        // Raw system call, since the C library's function is one of the wrapped calls.
        // SAFETY: the buffer is as long as said.
        let length =
            unsafe { syscall!(libc::SYS_pread64, schedstat, text.as_mut_ptr(), text.len(), 0) };
        let text = text.get(..length.ok()?)?;
        second_number(text)
    }
}

/// Opens the calling thread's statistics.
fn open(descriptors: &Descriptors) -> Option<Known> {
    let path = c"/proc/thread-self/schedstat".as_ptr();
    let flags = libc::O_RDONLY | libc::O_CLOEXEC;
    // SAFETY: a C string; the raw call, since the library's may be observed.
    let low = unsafe { syscall!(libc::SYS_openat, libc::AT_FDCWD, path, flags) };
    Known::new(descriptors.adopt(low.ok()? as libc::c_int)?)
}

/// Returns the number of voluntary context switches of the calling thread (getrusage(2)).
fn times_blocked() -> u64 {
    // SAFETY: all zero is a valid value of this structure of integers.
    let mut usage: libc::rusage = unsafe { core::mem::zeroed() };
    // SAFETY: the pointer is valid for the call.
    let _ = unsafe { syscall!(libc::SYS_getrusage, libc::RUSAGE_THREAD, &raw mut usage) };
    usage.ru_nvcsw as u64
}

fn second_number(text: &[u8]) -> Option<u64> {
    let field = text.split(|byte| *byte == b' ').nth(1)?;
    field.iter().try_fold(0u64, |number, digit| {
        let digit = digit.wrapping_sub(b'0');
        (digit < 10).then(|| number.wrapping_mul(10).wrapping_add(u64::from(digit)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_read_and_nonsense_is_refused() {
        assert_eq!(second_number(b"12 345 6\n"), Some(345));
        assert_eq!(second_number(b"12"), None);
        assert_eq!(second_number(b"12 x 6"), None);
    }

    #[test]
    fn a_descriptor_that_was_closed_leaves_errno_alone() {
        // SAFETY: a C string; the descriptor is this function's.
        let closed = unsafe {
            let open = libc::open(c"/proc/thread-self/schedstat".as_ptr(), libc::O_RDONLY);
            let known = Known::new(open).unwrap();
            libc::close(open);
            known
        };
        let mut clock = OffCpuClock { schedstat: Schedstat::Open(closed), ..OffCpuClock::new() };
        // SAFETY: errno's location is valid.
        let errno = unsafe {
            *libc::__errno_location() = 4711;
            clock.read(&Descriptors::new());
            *libc::__errno_location()
        };
        assert_eq!(errno, 4711);
    }

    #[test]
    fn a_file_of_the_application_under_the_number_is_not_read() {
        // SAFETY: C strings; the descriptors are this function's.
        unsafe {
            let path = c"/proc/thread-self/schedstat".as_ptr();
            let own = libc::open(path, libc::O_RDONLY);
            let known = Known::new(own).unwrap();
            let clock = OffCpuClock { schedstat: Schedstat::Open(known), ..OffCpuClock::new() };
            assert!(clock.run_delay().is_some());
            // The same kind of file, of another thread.
            let other = std::thread::spawn(|| {
                libc::open(c"/proc/thread-self/schedstat".as_ptr(), libc::O_RDONLY)
            });
            let other = other.join().unwrap();
            assert_eq!(libc::dup2(other, own), own);
            assert_eq!(clock.run_delay(), None);
            libc::close(own);
            libc::close(other);
        }
    }

    #[test]
    fn work_shows_as_cpu_time() {
        let mut clock = OffCpuClock::new();
        let start = clock_ns(libc::CLOCK_THREAD_CPUTIME_ID);
        while clock_ns(libc::CLOCK_THREAD_CPUTIME_ID) < start + 5_000_000 {}
        let split = clock.read(&Descriptors::new());
        assert!(split.cpu_ns >= 5_000_000, "{split:?}");
    }

    #[test]
    fn a_thread_that_blocks_does_not_wait_for_a_core() {
        let mut clock = OffCpuClock::new();
        std::thread::sleep(std::time::Duration::from_millis(200));
        let split = clock.read(&Descriptors::new());
        // On a busy machine it gets its core a little later.
        assert!(split.cpu_ns < 50_000_000 && split.run_delay_ns < 100_000_000, "{split:?}");
    }
}
