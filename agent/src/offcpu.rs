//! Where a long interval went: on the CPU, waiting for a core, or blocked.
//!
//! Read only when a sample is late, or before and after a long part of an interval: the thread's
//! CPU clock costs 200 ns, its scheduler statistics 300 ns.

use crate::clock::clock_ns;
use crate::record::OffCpu;

/// A thread's CPU clock and run-queue delay, as differences between readings.
pub struct OffCpuClock {
    /// `/proc/thread-self/schedstat`, or -1.
    schedstat: libc::c_int,
    cpu_ns: u64,
    run_delay_ns: u64,
}

impl OffCpuClock {
    /// A clock that reads the scheduler's statistics of the calling thread from `schedstat`
    /// (-1: run-queue delay is not known and reads as 0).
    pub fn new(schedstat: libc::c_int) -> Self {
        let mut clock = Self { schedstat, cpu_ns: 0, run_delay_ns: 0 };
        clock.read();
        clock
    }

    /// The descriptor, to be closed when the thread ends.
    pub fn descriptor(&self) -> libc::c_int {
        self.schedstat
    }

    /// What happened since the previous reading.
    pub fn read(&mut self) -> OffCpu {
        let cpu_ns = clock_ns(libc::CLOCK_THREAD_CPUTIME_ID);
        let run_delay_ns = self.run_delay().unwrap_or(self.run_delay_ns);
        let split = OffCpu {
            cpu_ns: cpu_ns.saturating_sub(self.cpu_ns),
            run_delay_ns: run_delay_ns.saturating_sub(self.run_delay_ns),
        };
        (self.cpu_ns, self.run_delay_ns) = (cpu_ns, run_delay_ns);
        split
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
        assert!(split.cpu_ns >= 5_000_000 && split.run_delay_ns == 0, "{split:?}");
    }
}
