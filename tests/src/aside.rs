//! Work beside jobs that are measured: it gives way to them.

use std::os::unix::process::CommandExt;
use std::process::Command;

/// Lets a command have only what other processes leave of the cores.
pub fn aside(command: &mut Command) -> &mut Command {
    const LEAST: libc::c_int = 19;
    // SAFETY: one system call without pointers is made between fork and exec.
    unsafe {
        command.pre_exec(|| {
            // Without it, everything is as well, only slower.
            libc::setpriority(libc::PRIO_PROCESS, 0, LEAST);
            Ok(())
        })
    }
}
