//! The end of the process: the report is written, whatever the end.
//!
//! The process's own thread writes it: the thread that ends may be in a signal handler, in the
//! middle of anything. It waits, for a bounded time.

use std::io::Write;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use plimsoll_agent::process;
use plimsoll_wire::doorbell::Doorbell;

use crate::{job, loading};

/// How the process ends: 0 not yet, [`EXIT`], [`ABORT`], [`FILTER`], or a signal's number.
static HOW: AtomicI32 = AtomicI32::new(0);
const EXIT: i32 = -1;
const ABORT: i32 = -2;
/// A process of the node forbids itself system calls: nothing can be measured any more, but it lives on.
const FILTER: i32 = -3;

/// The report is written, or cannot be.
static DONE: AtomicBool = AtomicBool::new(false);
/// Rung then.
static WRITTEN: Doorbell = Doorbell::new();

/// Longest wait for the report: a launcher that kills a job gives it little more.
const SIGNAL_PATIENCE: Duration = Duration::from_secs(5);
const EXIT_PATIENCE: Duration = Duration::from_secs(20);
/// Longest wait while nothing goes forward: the report cannot come then, and no job ends more than
/// about a second later because of it.
const STANDSTILL: Duration = Duration::from_millis(900);

/// The thread that ends the process and waits for the report; 0 if there is none.
static ENDS: AtomicI32 = AtomicI32::new(0);
/// Longest time from the report to the process's end.
const END_PATIENCE: Duration = Duration::from_secs(1);

/// Steps towards the report that this process has made.
static STEPS: AtomicU32 = AtomicU32::new(0);

/// The report has come a step further: ranks that wait for the report go on waiting.
pub fn advance() {
    STEPS.fetch_add(1, Ordering::Relaxed);
}

/// In what words a summary says how the run ended.
fn words(how: i32) -> String {
    match how {
        EXIT => String::from("exit"),
        ABORT => String::from("abort"),
        FILTER => String::from("seccomp filter"),
        signal => format!("signal {signal}"),
    }
}

/// A fatal signal was delivered. Async-signal-safe.
pub fn by_signal(signal: i32) {
    end(signal, SIGNAL_PATIENCE);
}

/// Waits for the end of the process if another thread has begun to end it. Without Plimsoll the
/// calling thread would be gone by now. A rank that enters MPI_Finalize and then dies can crash the
/// launcher of Open MPI 4.1 (a use after free in PMIx 4.2.2), so MPI_Finalize must not be entered.
pub fn await_end() {
    let ends = ENDS.load(Ordering::Relaxed);
    if ends == 0 || ends == thread_id() {
        return;
    }
    let begin = Instant::now();
    while !is_done() && begin.elapsed() < SIGNAL_PATIENCE {
        thread::sleep(Duration::from_millis(1));
    }
    thread::sleep(END_PATIENCE);
}

/// The process exits.
pub fn by_exit() {
    end(EXIT, EXIT_PATIENCE);
}

/// The process calls MPI_Abort.
pub fn by_abort() {
    end(ABORT, SIGNAL_PATIENCE);
}

/// The process is about to forbid itself system calls.
pub fn by_filter() {
    end(FILTER, EXIT_PATIENCE);
}

/// Whether what ended the run is no end of a process: all of them come to MPI_Finalize.
pub fn is_by_filter() -> bool {
    HOW.load(Ordering::Acquire) == FILTER
}

/// A rank that this process collects is about to end in the way that it announced.
pub fn by_rank(code: u32) {
    if HOW.compare_exchange(0, code as i32, Ordering::AcqRel, Ordering::Acquire).is_ok() {
        loading::wake();
    }
}

/// The report is written already.
pub fn finished() {
    DONE.store(true, Ordering::Release);
    WRITTEN.ring();
}

/// Whether the report is written, or is not ours to write.
pub fn is_done() -> bool {
    DONE.load(Ordering::Acquire)
}

/// The process's own thread is to end, though the process goes on.
static DISMISSED: AtomicBool = AtomicBool::new(false);

/// Ends the process's own thread once it is woken, as if there had never been one.
pub fn dismiss() {
    DISMISSED.store(true, Ordering::Release);
}

/// Takes that back, for a new thread; whether it was so.
pub fn take_dismissal() -> bool {
    DISMISSED.swap(false, Ordering::AcqRel)
}

/// Whether that was asked.
pub fn is_dismissed() -> bool {
    DISMISSED.load(Ordering::Acquire)
}

/// Whether the process's own thread has to write the report now.
pub fn is_requested() -> bool {
    HOW.load(Ordering::Acquire) != 0
}

/// Async-signal-safe.
fn thread_id() -> i32 {
    // SAFETY: no preconditions.
    unsafe { libc::syscall(libc::SYS_gettid) as i32 }
}

/// The process's own thread.
static WRITER: AtomicI32 = AtomicI32::new(0);

/// CPU time that the process's own thread has taken: a long step of the report takes some.
/// Async-signal-safe.
fn writer_cpu_ns() -> i64 {
    let thread = WRITER.load(Ordering::Relaxed);
    if thread == 0 {
        return 0;
    }
    // How Linux numbers the CPU clocks of threads (linux/posix-timers_types.h, CPUCLOCK_SCHED of one
    // thread).
    let clock = !thread << 3 | 6;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: the pointer is valid for the call, which leaves it alone where there is no such thread.
    unsafe { libc::syscall(libc::SYS_clock_gettime, clock, &raw mut time) };
    time.tv_sec * 1_000_000_000 + time.tv_nsec
}

fn end(how: i32, patience: Duration) {
    let Some(observed) = process::current() else { return };
    // A signal handler can create no thread.
    let has_thread = || job::has_thread() || (how == EXIT && job::have_thread_again());
    if is_done() || !has_thread() {
        return;
    }
    if how != FILTER {
        ENDS.store(thread_id(), Ordering::Relaxed);
    }
    observed.end(false);
    observed.announce_ending(how as u32);
    if HOW.compare_exchange(0, how, Ordering::AcqRel, Ordering::Acquire).is_ok() {
        loading::wake();
    }
    let begin = Instant::now();
    // A collector that is killed reports nothing any more.
    let by_collector = |pid| observed.is_reported() || !is_running(pid);
    let reported = || is_done() && job::collector_elsewhere().is_none_or(by_collector);
    let steps = || (STEPS.load(Ordering::Relaxed), observed.report_steps(), writer_cpu_ns());
    let (mut last, mut moved) = (steps(), begin);
    while !reported() && begin.elapsed() < patience && moved.elapsed() < STANDSTILL {
        let now = steps();
        if now != last {
            (last, moved) = (now, Instant::now());
        }
        let seen = WRITTEN.rings();
        if !reported() {
            WRITTEN.wait(seen, 5);
        }
    }
}

/// Whether a process runs: it is there, and more than a remnant that nobody has waited for.
/// Async-signal-safe.
fn is_running(pid: u32) -> bool {
    let mut path = [0u8; 32];
    // Formats into the array, without memory of the heap's; the last byte stays zero.
    if write!(&mut path[..31], "/proc/{pid}/stat").is_err() {
        return true;
    }
    let mut stat = [0u8; 64];
    // SAFETY: plain system calls; the path ends in a zero, and the buffer is as long as said.
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
    // "pid (name) state ...": the name, of at most 16 letters, may hold anything.
    let text = &stat[..length];
    let state = text.iter().rposition(|byte| *byte == b')').and_then(|at| text.get(at + 2));
    !matches!(state, Some(b'Z' | b'X') | None)
}

/// The body of the process's own thread: follows the loader, and writes the report of an end that
/// does not come through MPI_Finalize.
pub fn keep_house() {
    WRITER.store(thread_id(), Ordering::Relaxed);
    loading::follow(|| is_requested() || is_done() || is_dismissed());
    if is_dismissed() && !is_requested() {
        return;
    }
    if is_requested() && !is_done() {
        if let Some(observed) = process::current() {
            observed.look_after_timers(true);
        }
        let words = words(HOW.load(Ordering::Acquire));
        // A panic of ours must not keep the application from ending.
        if let Ok(false) = std::panic::catch_unwind(|| job::write_incomplete(&words)) {
            // Another thread writes it, and says when it is done.
            return;
        }
    }
    finished();
}

/// In a forked child: its end is its own.
pub fn forget_in_child() {
    HOW.store(0, Ordering::Relaxed);
    DONE.store(false, Ordering::Relaxed);
    ENDS.store(0, Ordering::Relaxed);
}
