//! Detection of a debugger that traces this process: debuggers stop the program at unknown signals.
//!
//! gdb has no name for SIGSTKFLT: it stops at each sample, cannot be configured to pass the signal,
//! and does not deliver the signal when the program continues. strace and similar tools pass on all
//! signals, so programs are sampled under them.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;

use plimsoll_sys::lock::Lock;
use plimsoll_sys::own::Own;

/// Prefixes of debugger names, as in /proc/pid/comm: GNU's, LLVM's, TotalView's servers.
const DEBUGGERS: [&str; 4] = ["gdb", "lldb", "debugserver", "tv"];

/// Returns whether a debugger traces this process now.
pub fn is_debugger() -> bool {
    tracer(&status().unwrap_or_default()).is_some_and(|pid| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        stops_at_signals(&name)
    })
}

/// The open `/proc/self/status` of a process.
struct Status {
    file: Own<File>,
    /// Process that opened the file. A forked child inherits the descriptor, which still shows the
    /// parent.
    pid: u32,
}

/// File that all checks read. If each check opened the file, a file that the application opens at
/// that moment, in MPI_Init for instance, would get another number.
static STATUS: Lock<Option<Status>> = Lock::new(None);

/// Maximum number of bytes read from `/proc/self/status`: the tracer is in one of its first lines.
const MAX_STATUS_BYTES: usize = 512;

/// Returns the beginning of `/proc/self/status`. Opens the file only if the application has closed
/// it.
fn status() -> io::Result<String> {
    let pid = std::process::id();
    let open = || {
        let file = Own::hidden(File::open("/proc/self/status")?)?;
        io::Result::Ok(Status { file, pid })
    };
    let read = |status: &Status| {
        let mut text = [0; MAX_STATUS_BYTES];
        let length = status.file.get()?.read_at(&mut text, 0)?;
        io::Result::Ok(String::from_utf8_lossy(&text[..length]).into_owned())
    };
    // A child that was forked during a check inherits the lock.
    let Some(mut kept) = STATUS.try_lock() else { return read(&open()?) };
    match kept.as_ref().filter(|status| status.pid == pid && status.file.is_ours()) {
        Some(status) => read(status),
        None => read(kept.insert(open()?)),
    }
}

/// Returns the tracer's process id (proc_pid_status(5)).
fn tracer(status: &str) -> Option<u32> {
    let pid = status.lines().find_map(|line| line.strip_prefix("TracerPid:"))?;
    pid.trim().parse().ok().filter(|pid| *pid != 0)
}

fn stops_at_signals(name: &str) -> bool {
    DEBUGGERS.iter().any(|debugger| name.starts_with(debugger))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;

    use super::*;

    #[test]
    fn one_file_serves_all_checks() {
        let number = || {
            assert!(status().unwrap().contains("TracerPid:"));
            let kept = STATUS.lock();
            let status = kept.as_ref().expect("the file is kept");
            (status.file.get().unwrap().as_raw_fd(), status.pid)
        };
        let (first, pid) = number();
        assert!(first >= 100, "{first} is a number of the application's");
        assert_eq!((first, pid), number());
        // The application closes the descriptor and opens a file that gets the number.
        // SAFETY: a C string; what is open under the number is closed.
        unsafe {
            let file = libc::open(c"/dev/null".as_ptr(), libc::O_RDONLY);
            assert_eq!(libc::dup2(file, first), first);
            libc::close(file);
        }
        let (second, _) = number();
        assert_ne!(first, second);
        // A forked child opens the file anew.
        STATUS.lock().as_mut().unwrap().pid += 1;
        assert_eq!(number().1, pid);
        // SAFETY: closes what this function has opened.
        assert_eq!(unsafe { libc::close(first) }, 0, "the file was not ours to close");
    }

    #[test]
    fn debuggers_are_distinguished_from_other_tracers() {
        assert_eq!(tracer("Name:\tgdb\nTracerPid:\t0\n"), None);
        assert_eq!(tracer("Name:\tapp\nTracerPid:\t4711\nUid:\t0\n"), Some(4711));
        assert_eq!(tracer(""), None);
        for debugger in ["gdb\n", "gdb-multiarch\n", "gdbserver\n", "lldb-server\n", "tvdsvr\n"] {
            assert!(stops_at_signals(debugger), "{debugger}");
        }
        for other in ["strace\n", "ltrace\n", "perf\n", "proot\n", ""] {
            assert!(!stops_at_signals(other), "{other}");
        }
    }
}
