//! Where a long interval went: on the CPU, waiting for a core, or blocked.
//!
//! Read only when a sample is late, or before and after a long part of an interval: the thread's
//! CPU clock costs 200 ns, its scheduler statistics 300 ns, its resource usage 250 ns.
//!
//! A thread that never gave up its core of its own accord was ready to run all the time, so what it
//! did not run, it waited for a core. The scheduler's run-queue delay says less: a virtual machine's
//! core can itself be waiting for a real one, which the scheduler inside counts as neither.

use crate::clock::clock_ns;
use crate::record::OffCpu;

/// A thread's CPU clock and run-queue delay, as differences between readings.
pub struct OffCpuClock {
    /// `/proc/thread-self/schedstat`, or -1.
    schedstat: libc::c_int,
    last: Reading,
}

#[derive(Clone, Copy, Default)]
struct Reading {
    wall_ns: u64,
    cpu_ns: u64,
    run_delay_ns: u64,
    /// Times that the thread gave up its core of its own accord.
    blocked: u64,
}

impl OffCpuClock {
    /// A clock that reads the scheduler's statistics of the calling thread from `schedstat`
    /// (-1: the delay of a thread that blocks is not known and reads as 0).
    pub fn new(schedstat: libc::c_int) -> Self {
        let mut clock = Self { schedstat, last: Reading::default() };
        clock.read();
        clock
    }

    /// The descriptor, to be closed when the thread ends.
    pub fn descriptor(&self) -> libc::c_int {
        self.schedstat
    }

    /// What happened since the previous reading.
    pub fn read(&mut self) -> OffCpu {
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

    /// Second field of schedstat: time runnable but not running, in nanoseconds (Linux,
    /// Documentation/scheduler/sched-stats).
    fn run_delay(&self) -> Option<u64> {
        if self.schedstat < 0 {
            return None;
        }
        let mut text = [0u8; 64];
        // The raw system call: the library's wrapper is one of the calls that we observe.
        // SAFETY: the buffer is as long as said.
        let length = unsafe {
            libc::syscall(libc::SYS_pread64, self.schedstat, text.as_mut_ptr(), text.len(), 0i64)
        };
        let text = text.get(..usize::try_from(length).ok()?)?;
        second_number(text)
    }
}

/// Voluntary context switches of the calling thread (getrusage(2)).
fn times_blocked() -> u64 {
    // SAFETY: all zero is a valid value of this structure of integers.
    let mut usage: libc::rusage = unsafe { core::mem::zeroed() };
    // SAFETY: the pointer is valid for the call.
    unsafe { libc::syscall(libc::SYS_getrusage, libc::RUSAGE_THREAD, &raw mut usage) };
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
    fn work_shows_as_cpu_time() {
        let mut clock = OffCpuClock::new(-1);
        let start = clock_ns(libc::CLOCK_THREAD_CPUTIME_ID);
        while clock_ns(libc::CLOCK_THREAD_CPUTIME_ID) < start + 5_000_000 {}
        let split = clock.read();
        assert!(split.cpu_ns >= 5_000_000, "{split:?}");
    }

    #[test]
    fn a_thread_that_blocks_does_not_wait_for_a_core() {
        let mut clock = OffCpuClock::new(-1);
        std::thread::sleep(std::time::Duration::from_millis(20));
        let split = clock.read();
        assert!(split.cpu_ns < 5_000_000 && split.run_delay_ns == 0, "{split:?}");
    }
}
