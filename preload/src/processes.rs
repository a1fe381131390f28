//! Hooks of fork, exec and the functions that end a process.
//!
//! A forked child is not observed; Plimsoll's heap and the loader's lock are free in the child.
//! Before an exec the pending sampling signal is taken, since it would kill the new program. Before
//! an end without exit handlers the report is written.

use std::ffi::{c_char, c_int};

use plimsoll_agent::loader;
use plimsoll_agent::observed_process::{self, Observed};
use plimsoll_agent::timer::SIGNAL;
use plimsoll_sys::syscalls::keep_errno;

use crate::guard::guarded;
use crate::{filters, heap, job, log, termination};

mod c {
    use super::*;
    macro_rules! reals {
        ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
            $(crate::real! {
                /// The C library's function of this name.
                $name($($argument: $type),*) -> $result
            })*
        };
    }
    reals! {
        execve(
            path: *const c_char,
            arguments: *const *const c_char,
            environment: *const *const c_char
        ) -> c_int;
        execvpe(
            file: *const c_char,
            arguments: *const *const c_char,
            environment: *const *const c_char
        ) -> c_int;
        fexecve(
            descriptor: c_int,
            arguments: *const *const c_char,
            environment: *const *const c_char
        ) -> c_int;
        _exit(status: c_int) -> !;
        daemon(stays: c_int, keeps_streams: c_int) -> c_int;
    }
}

/// Registers handlers for forks (pthread_atfork(3)). Handlers that the application registers later
/// run before Plimsoll's in the parent and after Plimsoll's in the child.
pub fn follow_forks() {
    // SAFETY: the functions stay mapped, since the library is never unloaded.
    let result =
        unsafe { libc::pthread_atfork(Some(before_fork), Some(after_fork), Some(in_child)) };
    if result != 0 {
        log::debug(|| String::from("forks cannot be followed: no memory"));
    }
}

unsafe extern "C" fn before_fork() {
    loader::before_fork();
    heap::before_fork();
}

unsafe extern "C" fn after_fork() {
    heap::after_fork();
    loader::after_fork();
}

/// Resets the library in the child, which starts unobserved.
unsafe extern "C" fn in_child() {
    heap::in_child();
    loader::in_child();
    let forget = || {
        observed_process::forget_in_child();
        job::forget_in_child();
    };
    keep_errno(|| guarded("fork", forget, || ()));
}

/// Stops the sampling signals that would interrupt the next program, runs `exec`, and resumes
/// sampling if it failed.
fn around_exec(exec: impl FnOnce() -> c_int) -> c_int {
    let Some(observed) = guarded("exec", before_exec, || None) else { return exec() };
    let result = exec();
    // Only a failed exec returns.
    keep_errno(|| guarded("after exec", || observed.hold(false), || ()));
    result
}

/// Pauses sampling on the calling thread and returns the process; `None` if the thread is not
/// observed.
fn before_exec() -> Option<&'static Observed> {
    let observed = observed_process::current().filter(|observed| observed.is_own_thread())?;
    observed.hold(true);
    // SAFETY: blocks the sampling signal, takes a pending one without waiting, and restores the
    // mask.
    unsafe {
        let (mut ours, mut before): (libc::sigset_t, libc::sigset_t) =
            (std::mem::zeroed(), std::mem::zeroed());
        libc::sigemptyset(&mut ours);
        libc::sigaddset(&mut ours, SIGNAL);
        crate::signals::real_sigmask(libc::SIG_BLOCK, &ours, &mut before);
        let now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let mut info: libc::siginfo_t = std::mem::zeroed();
        libc::syscall(libc::SYS_rt_sigtimedwait, &raw const ours, &raw mut info, &raw const now, 8);
        crate::signals::real_sigmask(libc::SIG_SETMASK, &before, std::ptr::null_mut());
    }
    Some(observed)
}

/// Hook of daemon: the program continues in a child, which is not measured. The report covers the
/// parent.
///
/// # Safety
/// As the C library's function.
#[unsafe(no_mangle)]
pub unsafe extern "C-unwind" fn daemon(stays: c_int, keeps_streams: c_int) -> c_int {
    let before = || {
        if observed_process::current().is_some_and(|observed| observed.is_own_process()) {
            log::warn("the program becomes a daemon: it is measured until here");
            termination::by_exit();
        }
    };
    guarded("daemon", before, || ());
    // SAFETY: as the caller promises.
    unsafe { c::daemon(stays, keeps_streams) }
}

unsafe extern "C" {
    /// The process's environment (environ(7)).
    static environ: *const *const c_char;
}

/// Environment given to an exec, or that of this process.
macro_rules! environment {
    ($given:ident) => {
        $given
    };
    () => {
        // SAFETY: the C library defines the variable.
        unsafe { environ }
    };
}

/// Defines the hooks of the exec functions; each calls the `real` one with the environment of the
/// new program.
macro_rules! exec_hooks {
    ($($name:ident($path:ident: $type:ty $(, $environment:ident)?) => $real:ident;)*) => {
        $(
            /// Hook of the exec function of this name.
            ///
            /// # Safety
            /// As the C library's function.
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name(
                $path: $type,
                arguments: *const *const c_char
                $(, $environment: *const *const c_char)?
            ) -> c_int {
                let given = environment!($($environment)?);
                // SAFETY: as the caller promises; the new program receives a copy.
                let real = |environment| unsafe { c::$real($path, arguments, environment) };
                around_exec(|| filters::with_environment(given, real))
            }
        )*
    };
}

exec_hooks! {
    execve(path: *const c_char, environment) => execve;
    execv(path: *const c_char) => execve;
    execvp(file: *const c_char) => execvpe;
    execvpe(file: *const c_char, environment) => execvpe;
    fexecve(descriptor: c_int, environment) => fexecve;
}

/// Has the report written before the process ends without its exit handlers.
pub fn report() {
    if observed_process::current().is_some_and(|observed| observed.is_own_process()) {
        termination::by_exit();
    }
}

macro_rules! exit_hooks {
    ($($name:ident;)*) => {
        $(
            /// Ends the process immediately, without its exit handlers; the report is written
            /// first.
            ///
            /// # Safety
            /// As the C library's function.
            #[unsafe(no_mangle)]
            pub unsafe extern "C-unwind" fn $name(status: c_int) -> ! {
                guarded("_exit", report, || ());
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
