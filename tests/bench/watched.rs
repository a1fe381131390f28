//! This very process as the subject: the agent is linked in, and observes it.

use std::ffi::c_int;
use std::hint::black_box;
use std::sync::atomic::Ordering;

use plimsoll_agent::clock::clock_ns;
use plimsoll_agent::marks::Marks;
use plimsoll_agent::process::{self, Config, Observed};
use plimsoll_agent::segment::{ClockKind, Thread};
use plimsoll_agent::timer::SIGNAL;

/// Begins to observe this process, once in its life.
///
/// # Panics
/// If it cannot be observed.
pub fn start(period_ns: u64, marks: Marks) -> &'static Observed {
    let config = Config { period_ns, clock: ClockKind::Cpu, marks, sigaction: libc::sigaction };
    process::start(&config).unwrap_or_else(|error| panic!("{error}"))
}

/// Nanoseconds of a tick of the time stamp counter.
pub fn ns_per_tick(observed: &Observed) -> f64 {
    observed.header().ns_per_ticks_q32.load(Ordering::Relaxed) as f64 / 2f64.powi(32)
}

/// The calling thread's part of the segment.
///
/// # Panics
/// If the calling thread is not observed.
pub fn thread(observed: &Observed) -> &'static Thread {
    let area = observed.with_thread(|state| state.area).expect("this thread is observed");
    // SAFETY: the area stays mapped until the thread is detached; those who ask never outlive it.
    unsafe { &(*area).thread }
}

/// Frames of the last stack.
pub fn depth(observed: &Observed) -> usize {
    observed.with_thread(|state| state.current.as_slice().len()).unwrap_or(0)
}

/// Frames that the last sample had to unwind.
pub fn unwound(observed: &Observed) -> usize {
    observed.with_thread(|state| state.found.as_slice().len()).unwrap_or(0)
}

/// Sends the sampling signal to the calling thread; it is handled before this returns.
pub fn interrupt() {
    // SAFETY: no pointers; the ids are our own.
    unsafe {
        let thread = libc::syscall(libc::SYS_gettid);
        libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, SIGNAL);
    }
}

extern "C" fn nothing(_: c_int) {}

/// Puts a handler that does nothing in the place of ours, which is returned.
pub fn install_nothing() -> libc::sigaction {
    // SAFETY: all-zero is a valid sigaction; the handler does nothing at all.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = nothing as *const () as usize;
        action.sa_flags = libc::SA_ONSTACK | libc::SA_RESTART;
        install(&action)
    }
}

/// Installs a handler of the sampling signal and returns the one before.
///
/// # Safety
/// The action's handler may run at any time.
pub unsafe fn install(action: &libc::sigaction) -> libc::sigaction {
    // SAFETY: as promised; all-zero is a valid sigaction.
    unsafe {
        let mut before: libc::sigaction = std::mem::zeroed();
        assert_eq!(libc::sigaction(SIGNAL, action, &mut before), 0);
        before
    }
}

/// CPU time of the calling thread, in nanoseconds.
pub fn cpu_ns() -> u64 {
    clock_ns(libc::CLOCK_THREAD_CPUTIME_ID)
}

/// Runs `work` inside so many calls.
#[inline(never)]
pub fn inside<R>(calls: usize, work: &mut dyn FnMut() -> R) -> R {
    let result = if calls == 0 { work() } else { inside(calls - 1, black_box(work)) };
    black_box(());
    result
}

/// Works for so many rounds, in one of two functions by turns.
#[inline(never)]
pub fn burn(rounds: u64) -> u64 {
    let mut value = 1;
    for round in 0..rounds {
        value = if round & 64 == 0 { multiply(value) } else { shift(value) };
    }
    value
}

#[inline(never)]
fn multiply(mut value: u64) -> u64 {
    for _ in 0..50 {
        value = black_box(value.wrapping_mul(6_364_136_223_846_793_005) + 1);
    }
    value
}

#[inline(never)]
fn shift(mut value: u64) -> u64 {
    for _ in 0..50 {
        value = black_box(value ^ value << 13 ^ value >> 7) + 1;
    }
    value
}
