//! End of the process: at any kind of end, the report is written first.
//!
//! Plimsoll's own thread writes the report, since the thread that ends the process may be in a
//! signal handler, between any two instructions. The ending thread waits for the report for a
//! bounded time.

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicI32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_agent::observed_process;
use plimsoll_wire::doorbell::Doorbell;

use crate::own_threads::current_id;
use crate::{job, loading};

/// Kind of the process's end: 0 before it, [`EXIT`], [`ABORT`], [`FILTER`], [`NO_CLOCK`], or a
/// signal's number.
static HOW: AtomicI32 = AtomicI32::new(0);
const EXIT: i32 = -1;
const ABORT: i32 = -2;
/// A process of the node forbids itself system calls: no further measurement is possible, but the
/// process lives on.
const FILTER: i32 = -3;
/// A thread of the process forbids itself the time stamp counter, with which calls are timed. The
/// process lives on, as for [`FILTER`].
const NO_CLOCK: i32 = -4;

/// Whether the report is written or cannot be written.
static DONE: AtomicBool = AtomicBool::new(false);
/// Doorbell rung when [`DONE`] is set.
static WRITTEN: Doorbell = Doorbell::new();

/// Maximum wait for the report: a launcher that kills a job allows little more time.
const SIGNAL_TIMEOUT: Duration = Duration::from_secs(5);
const EXIT_TIMEOUT: Duration = Duration::from_secs(20);
/// Maximum wait while the report is not begun and Plimsoll's own thread takes no CPU time: the
/// report cannot be made then, and no job ends more than about a second later because of it. Once
/// begun, the report takes as long as its evaluation and the disk need.
const STANDSTILL: Duration = Duration::from_millis(900);

/// Id of the thread that ends the process and waits for the report; 0 if there is none.
static ENDS: AtomicI32 = AtomicI32::new(0);
/// Maximum time from the report to the end of the process.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// Id of the thread of this process that makes the report; 0 until the report is begun.
static REPORTS: AtomicI32 = AtomicI32::new(0);

/// Notes that the calling thread makes the report, unless another thread does.
pub fn begin_report() {
    let _ = REPORTS.compare_exchange(0, current_id(), Ordering::Relaxed, Ordering::Relaxed);
}

/// Returns the summary's text for how the run ended.
fn words(how: i32) -> String {
    match how {
        EXIT => String::from("exit"),
        ABORT => String::from("abort"),
        FILTER => String::from("seccomp filter"),
        NO_CLOCK => String::from("time stamp counter forbidden"),
        signal => format!("signal {signal}"),
    }
}

/// Has the report written before a fatal signal ends the process. Async-signal-safe.
pub fn by_signal(signal: i32) {
    end(signal, SIGNAL_TIMEOUT);
}

/// Waits for the end of the process if another thread has begun to end it. Without Plimsoll the
/// calling thread would be gone by now. A rank that enters MPI_Finalize and then dies can crash the
/// launcher of Open MPI 4.1 (a use after free in PMIx 4.2.2), so MPI_Finalize must not be entered.
pub fn await_end() {
    let ends = ENDS.load(Ordering::Relaxed);
    if ends == 0 || ends == current_id() {
        return;
    }
    let begin = Instant::now();
    while !is_done() && begin.elapsed() < SIGNAL_TIMEOUT {
        thread::sleep(Duration::from_millis(1));
    }
    thread::sleep(END_TIMEOUT);
}

/// Has the report written before the process exits.
pub fn by_exit() {
    end(EXIT, EXIT_TIMEOUT);
}

/// Has the report written before MPI_Abort ends the process.
pub fn by_abort() {
    end(ABORT, SIGNAL_TIMEOUT);
}

/// Has the report written before the process forbids itself system calls.
pub fn by_filter() {
    end(FILTER, EXIT_TIMEOUT);
}

/// Has the report written before a thread of the process forbids itself the time stamp counter.
pub fn by_lost_clock() {
    end(NO_CLOCK, EXIT_TIMEOUT);
}

/// Returns whether the process lives on after this end, so that it still comes to MPI_Finalize.
const fn is_outlived(how: i32) -> bool {
    matches!(how, FILTER | NO_CLOCK)
}

/// Returns what the program has forbidden itself, if that ended the run: the process lives on.
pub fn forbidden() -> Option<&'static str> {
    match HOW.load(Ordering::Acquire) {
        FILTER => Some("system calls (seccomp)"),
        NO_CLOCK => Some("use of the time stamp counter (PR_SET_TSC)"),
        _ => None,
    }
}

/// Requests the report, because a rank that this process collects has announced its end by `code`.
pub fn by_rank(code: u32) {
    if HOW.compare_exchange(0, code as i32, Ordering::AcqRel, Ordering::Acquire).is_ok() {
        loading::wake();
    }
}

/// Marks the report as written, or as not to be written, and wakes the waiting threads.
pub fn finished() {
    DONE.store(true, Ordering::Release);
    WRITTEN.ring();
}

/// Returns whether the report is written, or another process writes it.
pub fn is_done() -> bool {
    DONE.load(Ordering::Acquire)
}

/// Whether Plimsoll's own thread is to end while the process continues.
static DISMISSED: AtomicBool = AtomicBool::new(false);

/// Lets Plimsoll's own thread end when it is next woken, without a report.
pub fn dismiss() {
    DISMISSED.store(true, Ordering::Release);
}

/// Clears the request of [`dismiss`], for a new thread. Returns whether it was set.
pub fn take_dismissal() -> bool {
    DISMISSED.swap(false, Ordering::AcqRel)
}

/// Returns whether [`dismiss`] was called.
pub fn is_dismissed() -> bool {
    DISMISSED.load(Ordering::Acquire)
}

/// Returns whether Plimsoll's own thread has to write the report now.
pub fn is_requested() -> bool {
    HOW.load(Ordering::Acquire) != 0
}

/// Id of Plimsoll's own thread; 0 before it starts.
static WRITER: AtomicI32 = AtomicI32::new(0);

/// Returns the id of Plimsoll's own thread; 0 before it starts.
pub fn helper_id() -> i32 {
    WRITER.load(Ordering::Relaxed)
}

/// Returns the CPU time of Plimsoll's own thread in nanoseconds, which rises during a long step
/// before the report. Async-signal-safe.
fn writer_cpu_ns() -> i64 {
    let thread = helper_id();
    if thread == 0 {
        return 0;
    }
    // Linux's number of the CPU clock of a thread (linux/posix-timers_types.h, CPUCLOCK_SCHED of
    // one thread).
    let clock = !thread << 3 | 6;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is valid for the call, which writes nothing if there is no such thread.
    unsafe { libc::syscall(libc::SYS_clock_gettime, clock, &raw mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

fn end(how: i32, timeout: Duration) {
    let Some(observed) = observed_process::current() else { return };
    // A signal handler can create no thread.
    let has_thread = || job::has_thread() || (how == EXIT && job::have_thread_again());
    if is_done() || !has_thread() {
        return;
    }
    if !is_outlived(how) {
        ENDS.store(current_id(), Ordering::Relaxed);
    }
    observed.end(false);
    observed.announce_ending(how as u32);
    if HOW.compare_exchange(0, how, Ordering::AcqRel, Ordering::Acquire).is_ok() {
        loading::wake();
    }
    let begin = Instant::now();
    // A collector that was killed writes no report.
    let by_collector = |pid| observed.is_reported() || !is_running(pid);
    let reported = || is_done() && job::collector_elsewhere().is_none_or(by_collector);
    // A signal may have interrupted the thread that makes the report, which then gets no further.
    let is_begun = || match job::collector_elsewhere() {
        Some(_) => observed.is_report_begun(),
        None => ![0, current_id()].contains(&REPORTS.load(Ordering::Relaxed)),
    };
    let (mut last, mut moved) = (writer_cpu_ns(), begin);
    while !reported() && begin.elapsed() < timeout && moved.elapsed() < STANDSTILL {
        let now = writer_cpu_ns();
        if now != last || is_begun() {
            (last, moved) = (now, Instant::now());
        }
        let seen = WRITTEN.rings();
        if !reported() {
            WRITTEN.wait(seen, 5);
        }
    }
}

/// Returns whether a process runs: it exists and is no zombie. Async-signal-safe.
fn is_running(pid: u32) -> bool {
    let mut path = [0u8; 32];
    // Formats into the array, without heap memory; the last byte stays zero.
    if write!(&mut path[..31], "/proc/{pid}/stat").is_err() {
        return true;
    }
    let mut stat = [0u8; 64];
    // SAFETY: plain system calls; the path ends in a zero, and the length passed is that of the
    // buffer.
    let length = unsafe {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        let file = libc::syscall(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags);
        if file < 0 {
            return std::io::Error::last_os_error().raw_os_error() != Some(libc::ENOENT);
        }
        let length = libc::syscall(libc::SYS_read, file, stat.as_mut_ptr(), stat.len());
        libc::syscall(libc::SYS_close, file);
        usize::try_from(length).unwrap_or(0)
    };
    // "pid (name) state ...": the name, of at most 16 characters, may contain any character.
    let text = &stat[..length];
    let state = text.iter().rposition(|byte| *byte == b')').and_then(|at| text.get(at + 2));
    !matches!(state, Some(b'Z' | b'X') | None)
}

/// Body of Plimsoll's own thread: follows the loader, and writes the report of an end without
/// MPI_Finalize.
pub fn helper_thread() {
    WRITER.store(current_id(), Ordering::Relaxed);
    loading::follow(|| is_requested() || is_done() || is_dismissed());
    if is_dismissed() && !is_requested() {
        return;
    }
    if is_requested() && !is_done() {
        if let Some(observed) = observed_process::current() {
            observed.look_after_timers(true);
        }
        let words = words(HOW.load(Ordering::Acquire));
        // A panic in Plimsoll must not keep the application from ending.
        if let Ok(false) = std::panic::catch_unwind(|| job::write_incomplete(&words)) {
            // Another thread writes the report, and calls `finished` when it is done.
            return;
        }
    }
    finished();
}

/// Resets the state in a forked child, which ends independently of its parent.
pub fn forget_in_child() {
    HOW.store(0, Ordering::Relaxed);
    DONE.store(false, Ordering::Relaxed);
    ENDS.store(0, Ordering::Relaxed);
    REPORTS.store(0, Ordering::Relaxed);
}
