//! Signals: the sampling signal is ours and stays out of the application's sight, and a fatal
//! signal leaves a report behind.
//!
//! A handler of ours stands only where the application left the default. When the application
//! installs one, it replaces ours for good; when it returns to the default, ours comes back. What
//! it reads is what it set.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use plimsoll_agent::process;
use plimsoll_agent::timer::SIGNAL;

use crate::{ending, job};

/// Signals whose default ends the process, in whose place a report is written.
const FATAL: [c_int; 11] = [
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
];

/// Bit n: a handler of ours stands for signal n.
static OURS: AtomicU64 = AtomicU64::new(0);

/// The application has taken the sampling signal.
static STEPPED_ASIDE: AtomicBool = AtomicBool::new(false);

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
        /// Changes the thread's mask.
        sigprocmask(how: c_int, new: *const libc::sigset_t, old: *mut libc::sigset_t) -> c_int
    }
}

/// The C library's sigaction, for the agent.
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

/// The C library's pthread_sigmask.
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

fn bit(signal: c_int) -> u64 {
    1 << signal
}

fn default_action() -> libc::sigaction {
    // SAFETY: all-zero is a valid sigaction: SIG_DFL.
    unsafe { std::mem::zeroed() }
}

/// Installs the fatal handler where the application has the default.
pub fn watch_fatal() {
    for signal in FATAL {
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
    // SAFETY: the pointers are valid for the call.
    if unsafe { c::sigaction(signal, &action, std::ptr::null_mut()) } == 0 {
        OURS.fetch_or(bit(signal), Ordering::Relaxed);
    }
}

/// A signal whose default would end the process: write the report, then let it end just so.
extern "C" fn fatal(signal: c_int, info: *mut libc::siginfo_t, _context: *mut c_void) {
    // SAFETY: errno's location is valid in every thread.
    let errno = unsafe { *libc::__errno_location() };
    ending::by_signal(signal);
    OURS.fetch_and(!bit(signal), Ordering::Relaxed);
    // SAFETY: the default is restored and the signal sent again; it is delivered when this handler
    // returns. A fault happens again by itself, with its own siginfo.
    unsafe {
        c::sigaction(signal, &default_action(), std::ptr::null_mut());
        let sent = info.is_null() || (*info).si_code <= 0 || !is_fault(signal);
        if sent {
            let tid = libc::syscall(libc::SYS_gettid);
            libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, signal);
        }
        *libc::__errno_location() = errno;
    }
}

fn is_fault(signal: c_int) -> bool {
    matches!(signal, libc::SIGSEGV | libc::SIGBUS | libc::SIGFPE | libc::SIGILL)
}

/// sigaction: the application sees and sets its own dispositions.
///
/// # Safety
/// As the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn sigaction(
    signal: c_int,
    new: *const libc::sigaction,
    old: *mut libc::sigaction,
) -> c_int {
    // SAFETY: as the caller promises.
    unsafe {
        let watched = process::current().is_some();
        if !watched || !(1..64).contains(&signal) {
            return c::sigaction(signal, new, old);
        }
        if signal == SIGNAL && !STEPPED_ASIDE.load(Ordering::Relaxed) {
            if new.is_null() || (*new).sa_sigaction == libc::SIG_DFL {
                if !old.is_null() {
                    *old = default_action();
                }
                return 0;
            }
            // The application wants the signal: it is its own.
            STEPPED_ASIDE.store(true, Ordering::Relaxed);
            job::step_aside();
            let result = c::sigaction(signal, new, std::ptr::null_mut());
            if result == 0 && !old.is_null() {
                *old = default_action();
            }
            return result;
        }
        let ours = OURS.load(Ordering::Relaxed) & bit(signal) != 0;
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
                OURS.fetch_and(!bit(signal), Ordering::Relaxed);
                if ours && !old.is_null() {
                    *old = default_action();
                }
                if to_default && FATAL.contains(&signal) && !ending::is_done() {
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

/// signal: what `sigaction` above does, in the older form.
///
/// # Safety
/// As the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn signal(
    signal: c_int,
    handler: libc::sighandler_t,
) -> libc::sighandler_t {
    let ours =
        OURS.load(Ordering::Relaxed) & if (1..64).contains(&signal) { bit(signal) } else { 0 } != 0;
    let sampling = signal == SIGNAL && !STEPPED_ASIDE.load(Ordering::Relaxed);
    // SAFETY: as the caller promises.
    unsafe {
        if process::current().is_none() || !(ours || sampling || FATAL.contains(&signal)) {
            return c::signal(signal, handler);
        }
        if handler == libc::SIG_DFL && (ours || sampling) {
            return libc::SIG_DFL;
        }
        if sampling {
            STEPPED_ASIDE.store(true, Ordering::Relaxed);
            job::step_aside();
        }
        let previous = c::signal(signal, handler);
        if previous == libc::SIG_ERR {
            return previous;
        }
        OURS.fetch_and(!bit(signal), Ordering::Relaxed);
        if handler == libc::SIG_DFL && FATAL.contains(&signal) && !ending::is_done() {
            install_fatal(signal);
        }
        if ours || sampling { libc::SIG_DFL } else { previous }
    }
}

/// Keeps the sampling signal unblocked while the application believes what it set: the bit that it
/// sees is kept with the thread.
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
            if libc::sigismember(new, SIGNAL) == 1 && !STEPPED_ASIDE.load(Ordering::Relaxed) {
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

/// pthread_sigmask.
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
    unsafe { change_mask(how, new, old, c::pthread_sigmask) }
}

/// sigprocmask.
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
    unsafe { change_mask(how, new, old, c::sigprocmask) }
}
