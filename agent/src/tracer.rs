//! Detection of a debugger that traces this process: debuggers stop the program at unknown signals.
//!
//! gdb has no name for SIGSTKFLT: it stops at each sample, cannot be configured to pass the signal,
//! and does not deliver the signal when the program continues. strace and similar tools pass on all
//! signals, so programs are sampled under them.

use std::fs;

/// Prefixes of debugger names, as in /proc/pid/comm: GNU's, LLVM's, TotalView's servers.
const DEBUGGERS: [&str; 4] = ["gdb", "lldb", "debugserver", "tv"];

/// Returns whether a debugger traces this process now.
pub fn is_debugger() -> bool {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    tracer(&status).is_some_and(|pid| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        stops_at_signals(&name)
    })
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
    use super::*;

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
