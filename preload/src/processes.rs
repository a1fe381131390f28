//! fork, exec and the ways out of a process.
//!
//! A forked child is not observed; before an exec our pending signal is taken back, since it would
//! kill the new program; before an end without a return the report is written.

use std::ffi::{c_char, c_int};

use plimsoll_agent::process;
use plimsoll_agent::timer::SIGNAL;

use crate::{ending, heap, job};

mod c {
    use super::*;
    macro_rules! reals {
        ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
            $(crate::real! {
                /// The C library's.
                $name($($argument: $type),*) -> $result
            })*
        };
    }
    reals! {
        fork() -> libc::pid_t;
        execve(path: *const c_char, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
        execv(path: *const c_char, arguments: *const *const c_char) -> c_int;
        execvp(file: *const c_char, arguments: *const *const c_char) -> c_int;
        execvpe(file: *const c_char, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
        fexecve(descriptor: c_int, arguments: *const *const c_char, environment: *const *const c_char) -> c_int;
        _exit(status: c_int) -> !;
    }
}

/// fork: the child begins unobserved.
///
/// # Safety
/// As the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn fork() -> libc::pid_t {
    // SAFETY: as the caller promises.
    let child = heap::consistent_over_fork(|| unsafe { c::fork() });
    if child == 0 {
        process::forget_in_child();
        job::forget_in_child();
    }
    child
}

/// Takes back what would interrupt the next program, runs `exec`, and goes on if it failed.
fn around_exec(exec: impl FnOnce() -> c_int) -> c_int {
    let Some(observed) = process::current().filter(|observed| observed.is_own_thread()) else {
        return exec();
    };
    observed.hold(true);
    // SAFETY: blocks our signal, takes a pending one without waiting, and restores the mask.
    let result = unsafe {
        let (mut ours, mut before): (libc::sigset_t, libc::sigset_t) =
            (std::mem::zeroed(), std::mem::zeroed());
        libc::sigemptyset(&mut ours);
        libc::sigaddset(&mut ours, SIGNAL);
        crate::signals::real_sigmask(libc::SIG_BLOCK, &ours, &mut before);
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let mut info: libc::siginfo_t = std::mem::zeroed();
        libc::syscall(libc::SYS_rt_sigtimedwait, &raw const ours, &raw mut info, &raw const now, 8);
        crate::signals::real_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
        exec()
    };
    // Only a failed exec returns.
    // SAFETY: errno's location is valid in every thread.
    let errno = unsafe { *libc::__errno_location() };
    observed.hold(false);
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
    result
}

macro_rules! exec_hooks {
    ($($name:ident($($argument:ident: $type:ty),*);)*) => {
        $(
            /// The exec of this name.
            ///
            /// # Safety
            /// As the C library's function.
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name($($argument: $type),*) -> c_int {
                // SAFETY: as the caller promises.
                around_exec(|| unsafe { c::$name($($argument),*) })
            }
        )*
    };
}

exec_hooks! {
    execve(path: *const c_char, arguments: *const *const c_char, environment: *const *const c_char);
    execv(path: *const c_char, arguments: *const *const c_char);
    execvp(file: *const c_char, arguments: *const *const c_char);
    execvpe(file: *const c_char, arguments: *const *const c_char, environment: *const *const c_char);
    fexecve(descriptor: c_int, arguments: *const *const c_char, environment: *const *const c_char);
}

macro_rules! exit_hooks {
    ($($name:ident;)*) => {
        $(
            /// Ends the process at once, without its exit handlers: the report is written before.
            ///
            /// # Safety
            /// As the C library's function.
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name(status: c_int) -> ! {
                if process::current().is_some_and(|observed| observed.is_own_process()) {
                    ending::by_exit();
                }
                // SAFETY: as the caller promises.
                unsafe { c::_exit(status) }
            }
        )*
    };
}

exit_hooks! {
    _exit;
    _Exit;
}
