//! Work inside the application's process that raises no signal there.
//!
//! A write to a pipe without a reader raises SIGPIPE, and a write or a new size beyond RLIMIT_FSIZE
//! raises SIGXFSZ (write(2), setrlimit(2)). Both are sent to the thread that makes the system call,
//! so it is enough to block them on that thread, and to take the signals that the work has raised
//! before unblocking. A write to a terminal from the background may stop the process by SIGTTOU
//! (`stty tostop`), unless the thread blocks it: then the kernel lets the write pass.

use crate::syscalls::syscall;

/// Mask of these signals in the kernel's format: bit 0 is signal 1.
const RAISED: u64 = bit(libc::SIGPIPE) | bit(libc::SIGXFSZ) | bit(libc::SIGTTOU);

const fn bit(signal: libc::c_int) -> u64 {
    1 << (signal - 1)
}

/// Runs `work`. A signal raised by a write in `work` is not delivered; the write only returns its
/// error. Async-signal-safe if `work` is, and leaves errno alone.
pub fn quietly<R>(work: impl FnOnce() -> R) -> R {
    let _quiet = Quiet::begin();
    work()
}

/// Blocks the signals on the calling thread while this value lives.
struct Quiet {
    before: u64,
    pending: u64,
}

impl Quiet {
    fn begin() -> Self {
        let mut before = 0;
        mask(libc::SIG_BLOCK, RAISED, &mut before);
        Self { before, pending: pending() }
    }
}

impl Drop for Quiet {
    fn drop(&mut self) {
        // A signal that was pending before belongs to the application.
        let raised = pending() & RAISED & !self.pending;
        if raised != 0 {
            take(raised);
        }
        mask(libc::SIG_SETMASK, self.before, &mut 0);
    }
}

fn mask(how: libc::c_int, signals: u64, before: &mut u64) {
    let (new, old) = (&raw const signals, &raw mut *before);
    // SAFETY: both masks are valid for the call and have the given size.
    let _ = unsafe { syscall!(libc::SYS_rt_sigprocmask, how, new, old, size_of::<u64>()) };
}

fn pending() -> u64 {
    let mut pending = 0u64;
    // SAFETY: the mask is valid for the call and has the given size.
    let _ = unsafe { syscall!(libc::SYS_rt_sigpending, &raw mut pending, size_of::<u64>()) };
    pending
}

/// Takes pending signals, each once: the kernel returns signals sent to the thread first. A signal
/// that another process has sent meanwhile is sent again.
fn take(mut signals: u64) {
    // SAFETY: no preconditions.
    let pid = unsafe { syscall!(libc::SYS_getpid) }.unwrap_or(0);
    while signals != 0 {
        // SAFETY: all zeros are a valid siginfo_t and timespec; the pointers are valid for the
        // calls.
        unsafe {
            let mut info: libc::siginfo_t = core::mem::zeroed();
            let now: libc::timespec = core::mem::zeroed();
            let (set, info_at) = (&raw const signals, &raw mut info);
            let size = size_of::<u64>();
            let taken = syscall!(libc::SYS_rt_sigtimedwait, set, info_at, &raw const now, size);
            let Ok(signal) = taken else { return };
            signals &= !bit(signal as libc::c_int);
            if info.si_pid() as usize != pid {
                let _ = syscall!(libc::SYS_rt_sigqueueinfo, pid, signal, info_at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write_to_closed_pipe() -> Result<usize, libc::c_int> {
        let mut ends = [0; 2];
        // SAFETY: plain system calls on descriptors of this function.
        unsafe {
            assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
            libc::close(ends[0]);
            let written = syscall!(libc::SYS_write, ends[1], c"x".as_ptr(), 1);
            libc::close(ends[1]);
            written
        }
    }

    /// Lets SIGPIPE end this process, as it ends a program in C.
    fn default_action() {
        // SAFETY: no pointers. The standard library's programs ignore the signal.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
    }

    #[test]
    fn a_pipe_without_a_reader_raises_nothing() {
        default_action();
        let mut before = 0;
        mask(libc::SIG_BLOCK, 0, &mut before);
        assert_eq!(quietly(write_to_closed_pipe), Err(libc::EPIPE));
        let mut after = 0;
        mask(libc::SIG_BLOCK, 0, &mut after);
        assert_eq!((before, pending()), (after, 0));
    }

    #[test]
    fn a_signal_that_was_pending_stays_pending() {
        default_action();
        mask(libc::SIG_BLOCK, bit(libc::SIGPIPE), &mut 0);
        let _ = write_to_closed_pipe();
        assert_eq!(pending(), bit(libc::SIGPIPE));
        assert_eq!(quietly(write_to_closed_pipe), Err(libc::EPIPE));
        assert_eq!(pending(), bit(libc::SIGPIPE));
        take(bit(libc::SIGPIPE));
    }

    #[test]
    fn a_file_beyond_the_limit_raises_nothing() {
        // SAFETY: plain system calls on a descriptor of this function; the child ends by _exit.
        let status = unsafe {
            let child = libc::fork();
            if child == 0 {
                let limit = libc::rlimit { rlim_cur: 100, rlim_max: 100 };
                libc::setrlimit(libc::RLIMIT_FSIZE, &limit);
                let file = libc::memfd_create(c"limited".as_ptr(), 0);
                let grown = quietly(|| syscall!(libc::SYS_ftruncate, file, 101));
                libc::_exit(libc::c_int::from(grown != Err(libc::EFBIG)));
            }
            let mut status = 0;
            libc::waitpid(child, &mut status, 0);
            status
        };
        assert_eq!(status, 0);
    }
}
