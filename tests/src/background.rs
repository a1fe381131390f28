//! Background work that gives way to the jobs that are measured.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// Gives a command the lowest priority, so that it has only the CPU time that other processes
/// leave.
pub fn in_background(command: &mut Command) -> &mut Command {
    const LOWEST_PRIORITY: libc::c_int = 19;
    // SAFETY: one system call without pointers is made between fork and exec.
    unsafe {
        command.pre_exec(|| {
            // An error is ignored: without the priority, everything works, only slower.
            libc::setpriority(libc::PRIO_PROCESS, 0, LOWEST_PRIORITY);
            Ok(())
        })
    }
}
