//! Signal hooks: the sampling signal is hidden from the application, and a fatal signal leaves a
//! report behind.
//!
//! Plimsoll installs a handler only where the application left the default. When the application
//! installs a handler, it replaces Plimsoll's permanently; when the application restores the
//! default, Plimsoll's handler is installed again. The application always reads back what it set.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll_agent::observed_process::{self, Aside, Observed};
use plimsoll_agent::sampler::handler_entry;
use plimsoll_agent::timer::SIGNAL;
use plimsoll_sys::syscalls::keep_errno;

use crate::guard::guarded;
use crate::{job, log, termination};

/// Signals that end a process by default and can be handled, without [`SIGNAL`] and the real-time
/// ones (signal(7)).
const FATAL: [c_int; 21] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGABRT,
    libc::SIGTERM,
    libc::SIGINT,
    libc::SIGXCPU,
    libc::SIGHUP,
    libc::SIGQUIT,
    libc::SIGSYS,
    libc::SIGUSR1,
    libc::SIGUSR2,
    libc::SIGXFSZ,
    libc::SIGPIPE,
    libc::SIGALRM,
    libc::SIGVTALRM,
    libc::SIGPROF,
    libc::SIGIO,
    libc::SIGPWR,
    libc::SIGTRAP,
];

/// Returns whether the signal's default action ends the process, so that a report is written first.
/// The C library keeps the real-time signals below SIGRTMIN for itself.
fn is_fatal(signal: c_int) -> bool {
    FATAL.contains(&signal) || (libc::SIGRTMIN()..=libc::SIGRTMAX()).contains(&signal)
}

/// Message printed once when sampling stops because the program handles the sampling signal.
const STEPPED_ASIDE: &str = "plimsoll: the program or its runtime (Go's does) handles SIGSTKFLT, \
    the signal that takes samples: no samples from here on. Calls are still measured.\n";

/// Message printed once when sampling stops because a debugger would stop at each sample.
const DEBUGGED: &str = "plimsoll: a debugger traces this process, and would stop at each sample \
    (SIGSTKFLT): no samples from here on. Calls are still measured.\n";

mod c {
    use super::*;
    crate::real! {
        /// Examines and changes a disposition.
        sigaction(signal: c_int, new: *const libc::sigaction, old: *mut libc::sigaction) -> c_int
    }
    crate::real! {
        /// Changes a disposition.
        signal(signal: c_int, handler: libc::sighandler_t) -> libc::sighandler_t
    }
    crate::real! {
        /// Changes the thread's mask.
        pthread_sigmask(how: c_int, new: *const libc::sigset_t, old: *mut libc::sigset_t) -> c_int
    }
    crate::real! {
        /// Creates a descriptor that reads signals, or changes its set.
        signalfd(descriptor: c_int, signals: *const libc::sigset_t, flags: c_int) -> c_int
    }
    crate::real! {
        /// Changes the thread's mask.
        sigprocmask(how: c_int, new: *const libc::sigset_t, old: *mut libc::sigset_t) -> c_int
    }
}

/// Calls the C library's sigaction; passed to the agent.
///
/// # Safety
/// As sigaction.
pub unsafe extern "C" fn real_sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { c::sigaction(signal, new, old) }
}

/// Calls the C library's pthread_sigmask.
///
/// # Safety
/// As pthread_sigmask.
pub unsafe fn real_sigmask(
    how: c_int,
    new: *const libc::sigset_t,
    old: *mut libc::sigset_t,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe { c::pthread_sigmask(how, new, old) }
}

/// Returns whether `handler` is Plimsoll's; the application sees the default action in its place.
fn is_handler_of_ours(handler: usize) -> bool {
    handler == handler_entry as *const () as usize || handler == fatal as *const () as usize
}

/// Returns whether Plimsoll's handler is installed for the signal. Asks the kernel, because a
/// program may replace the handler by a system call that bypasses the hooks below.
fn is_ours(signal: c_int) -> bool {
    let ours = match signal {
        SIGNAL => handler_entry as *const () as usize,
        _ if is_fatal(signal) => fatal as *const () as usize,
        _ => return false,
    };
    let mut now = default_action();
    // SAFETY: the pointers are valid for the call.
    let known = unsafe { c::sigaction(signal, std::ptr::null(), &mut now) } == 0;
    known && now.sa_sigaction == ours
}

/// Stops sampling, because the application installs a handler of its own for the sampling signal.
fn step_aside() {
    if let Some(observed) = observed_process::current() {
        observed.step_aside();
        tell_stepped_aside();
    }
}

/// Checks whether a debugger is attached, or the sampling signal was taken by a system call that
/// bypasses the C library. Called from Plimsoll's own thread.
pub fn look_after_sampling() {
    let Some(observed) = observed_process::current() else { return };
    observed.look_for_debugger();
    if !observed.may_sample() {
        tell_stepped_aside();
    }
}

/// Prints once that there are no further samples. Async-signal-safe: the application may be in a
/// signal handler of its own.
pub fn tell_stepped_aside() {
    static REPORTED: AtomicBool = AtomicBool::new(false);
    let Some(aside) = observed_process::current().and_then(Observed::aside) else { return };
    // Any single rank may be under a debugger, so that rank prints the message itself.
    if !REPORTED.swap(true, Ordering::Relaxed) && (job::speaks() || aside == Aside::Debugger) {
        log::block(match aside {
            Aside::Program => STEPPED_ASIDE,
            Aside::Debugger => DEBUGGED,
        });
    }
}

fn default_action() -> libc::sigaction {
    // SAFETY: all-zero is a valid sigaction: SIG_DFL.
    unsafe { std::mem::zeroed() }
}

/// Installs the fatal handler for each fatal signal that has the default action.
pub fn watch_fatal() {
    for signal in FATAL.into_iter().chain(libc::SIGRTMIN()..=libc::SIGRTMAX()) {
        let mut now = default_action();
        // SAFETY: the pointers are valid for the call.
        let known = unsafe { c::sigaction(signal, std::ptr::null(), &mut now) } == 0;
        if known && now.sa_sigaction == libc::SIG_DFL {
            install_fatal(signal);
        }
    }
}

fn install_fatal(signal: c_int) {
    let mut action = default_action();
    action.sa_sigaction = fatal as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
    // SAFETY: the pointers are valid for the call. Where it fails, the default stays.
    unsafe { c::sigaction(signal, &action, std::ptr::null_mut()) };
}

/// Removes all of Plimsoll's handlers, so that none of them runs at any signal. Pending samples are
/// discarded: an ignored signal does not stay pending (sigaction(2)).
pub fn withdraw() {
    let mut ignored = default_action();
    ignored.sa_sigaction = libc::SIG_IGN;
    let signals = FATAL.into_iter().chain(libc::SIGRTMIN()..=libc::SIGRTMAX());
    for signal in signals.filter(|signal| is_ours(*signal)) {
        // SAFETY: the pointers are valid for the call.
        unsafe { c::sigaction(signal, &default_action(), std::ptr::null_mut()) };
    }
    if is_ours(SIGNAL) {
        for action in [ignored, default_action()] {
            // SAFETY: as above.
            unsafe { c::sigaction(SIGNAL, &action, std::ptr::null_mut()) };
        }
    }
}

/// Writes the report, then lets the signal end the process as its default action would.
extern "C" fn fatal(signal: c_int, info: *mut libc::siginfo_t, _context: *mut c_void) {
    keep_errno(|| {
        guarded("fatal signal", || termination::by_signal(signal), || ());
        // SAFETY: the default action is restored and the signal sent again; the signal is delivered
        // when this handler returns. A fault recurs by itself, with its own siginfo.
        unsafe {
            c::sigaction(signal, &default_action(), std::ptr::null_mut());
            let sent = info.is_null() || (*info).si_code <= 0 || !is_fault(signal);
            if sent {
                let tid = libc::syscall(libc::SYS_gettid);
                libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, signal);
            }
        }
    });
}

fn is_fault(signal: c_int) -> bool {
    matches!(signal, libc::SIGSEGV | libc::SIGBUS | libc::SIGFPE | libc::SIGILL)
}

/// Hook of sigaction: the application sees and sets its own dispositions only.
///
/// # Safety
/// As the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    let real = || {
        // SAFETY: as the caller promises.
        unsafe {
            let result = c::sigaction(signal, new, old);
            if result == 0 && !old.is_null() && is_handler_of_ours((*old).sa_sigaction) {
                *old = default_action();
            }
            result
        }
    };
    if observed_process::current().is_none() {
        return real();
    }
    // SAFETY: as the caller promises.
    guarded("sigaction", || unsafe { change_action(signal, new, old) }, real)
}

/// # Safety
/// As sigaction.
unsafe fn change_action(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        let ours = is_ours(signal);
        if signal == SIGNAL && ours {
            if new.is_null() || (*new).sa_sigaction == libc::SIG_DFL {
                if !old.is_null() {
                    *old = default_action();
                }
                return 0;
            }
            step_aside();
            let result = c::sigaction(signal, new, std::ptr::null_mut());
            if result == 0 && !old.is_null() {
                *old = default_action();
            }
            return result;
        }
        if !new.is_null() {
            // The copy is taken first: `old` may be the same memory as `new`.
            let to_default = (*new).sa_sigaction == libc::SIG_DFL;
            if ours && to_default {
                if !old.is_null() {
                    *old = default_action();
                }
                return 0;
            }
            let result = c::sigaction(signal, new, old);
            if result == 0 {
                if ours && !old.is_null() {
                    *old = default_action();
                }
                if to_default && is_fatal(signal) && !termination::is_done() {
                    install_fatal(signal);
                }
            }
            return result;
        }
        let result = c::sigaction(signal, new, old);
        if result == 0 && ours && !old.is_null() {
            *old = default_action();
        }
        result
    }
}

/// Hook of signal, the older form of `sigaction` above.
///
/// # Safety
/// As the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn signal(
    signal: c_int,
    handler: libc::sighandler_t,
) -> libc::sighandler_t {
    let real = || {
        // SAFETY: as the caller promises.
        let previous = unsafe { c::signal(signal, handler) };
        if is_handler_of_ours(previous) { libc::SIG_DFL } else { previous }
    };
    if observed_process::current().is_none() {
        return real();
    }
    // SAFETY: as the caller promises.
    guarded("signal", || unsafe { change_handler(signal, handler) }, real)
}

/// # Safety
/// As signal.
unsafe fn change_handler(signal: c_int, handler: libc::sighandler_t) -> libc::sighandler_t {
    // SAFETY: as the caller promises.
    unsafe {
        let ours = is_ours(signal);
        if handler == libc::SIG_DFL && ours {
            return libc::SIG_DFL;
        }
        if signal == SIGNAL && ours {
            step_aside();
        }
        let previous = c::signal(signal, handler);
        if previous == libc::SIG_ERR {
            return previous;
        }
        if handler == libc::SIG_DFL && is_fatal(signal) && !termination::is_done() {
            install_fatal(signal);
        }
        if ours { libc::SIG_DFL } else { previous }
    }
}

/// Changes the thread's mask without blocking the sampling signal. The application reads back the
/// mask that it set: the sampling signal's bit is stored in the thread block.
///
/// # Safety
/// `new` and `old` as for pthread_sigmask; `change` is that function or sigprocmask.
unsafe fn change_mask(
    how: c_int,
    new: *const libc::sigset_t,
    old: *mut libc::sigset_t,
    change: unsafe fn(c_int, *const libc::sigset_t, *mut libc::sigset_t) -> c_int,
) -> c_int {
    // SAFETY: the block is the calling thread's; the pointers are as the caller promises.
    unsafe {
        let Some(block) = plimsoll_agent::tls::get().as_ref() else { return change(how, new, old) };
        let hidden = &block.signal_hidden;
        let was_hidden = hidden.load(Ordering::Relaxed);
        let mut kept: libc::sigset_t = std::mem::zeroed();
        let mut now_hidden = was_hidden;
        let mut passed = new;
        if !new.is_null() {
            kept = *new;
            if hides_samples() && libc::sigismember(new, SIGNAL) == 1 {
                libc::sigdelset(&mut kept, SIGNAL);
                now_hidden = how != libc::SIG_UNBLOCK;
            } else if how == libc::SIG_SETMASK {
                now_hidden = false;
            }
            passed = &kept;
        }
        let result = change(how, passed, old);
        if result == 0 {
            hidden.store(now_hidden, Ordering::Relaxed);
            if !old.is_null() && was_hidden {
                libc::sigaddset(old, SIGNAL);
            }
        }
        let _ = &kept;
        result
    }
}

/// Returns whether the application must not take signals of samples.
fn hides_samples() -> bool {
    observed_process::current().is_some_and(|observed| !observed.has_stepped_aside())
}

/// Returns the set of signals for a call of sigwait, sigwaitinfo or sigtimedwait: that of the
/// caller, or a copy without the sampling signal. A program that waits for all signals would take
/// a sample for one of them, and many end then.
///
/// # Safety
/// `signals` as for these functions.
pub unsafe fn awaited_signals(signals: *const libc::sigset_t) -> *const libc::sigset_t {
    // SAFETY: the block is the calling thread's, and stays until the thread has ended; the set is
    // as the caller promises. Linux reads the first 64 signals only.
    unsafe {
        if !hides_samples() || signals.is_null() || libc::sigismember(signals, SIGNAL) != 1 {
            return signals;
        }
        let Some(block) = plimsoll_agent::tls::get().as_ref() else { return signals };
        let all = signals.cast::<u64>().read_unaligned();
        block.awaited_signals.store(all & !(1 << (SIGNAL - 1)), Ordering::Relaxed);
        (&raw const block.awaited_signals).cast()
    }
}

/// Hook of signalfd: a descriptor for all signals reads no samples.
///
/// # Safety
/// As the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn signalfd(
    descriptor: c_int,
    signals: *const libc::sigset_t,
    flags: c_int,
) -> c_int {
    let mut kept: Option<libc::sigset_t> = None;
    let ours = || {
        if hides_samples() && !signals.is_null() {
            // SAFETY: as the caller promises.
            unsafe { libc::sigdelset(kept.insert(*signals), SIGNAL) };
        }
    };
    guarded("signalfd", ours, || ());
    let signals = kept.as_ref().map_or(signals, std::ptr::from_ref);
    // SAFETY: as the caller promises.
    unsafe { c::signalfd(descriptor, signals, flags) }
}

/// Hook of pthread_sigmask.
///
/// # Safety
/// As the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn pthread_sigmask(
    how: c_int,
    new: *const libc::sigset_t,
    old: *mut libc::sigset_t,
) -> c_int {
    // SAFETY: as the caller promises.
    let ours = || unsafe { change_mask(how, new, old, c::pthread_sigmask) };
    // SAFETY: as the caller promises.
    guarded("pthread_sigmask", ours, || unsafe { c::pthread_sigmask(how, new, old) })
}

/// Hook of sigprocmask.
///
/// # Safety
/// As the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sigprocmask(
    how: c_int,
    new: *const libc::sigset_t,
    old: *mut libc::sigset_t,
) -> c_int {
    // SAFETY: as the caller promises.
    let ours = || unsafe { change_mask(how, new, old, c::sigprocmask) };
    // SAFETY: as the caller promises.
    guarded("sigprocmask", ours, || unsafe { c::sigprocmask(how, new, old) })
}
