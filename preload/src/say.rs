//! What the user reads while the job runs: lines on stderr, with our name in front.

use std::sync::atomic::{AtomicU32, Ordering};

/// PLIMSOLL_VERBOSE: 0 silent, 1 normal, 2 debug.
static VERBOSE: AtomicU32 = AtomicU32::new(1);

/// Sets how much is said.
pub fn set_verbosity(level: u32) {
    VERBOSE.store(level, Ordering::Relaxed);
}

/// Says a line that the user should read.
pub fn warn(line: &str) {
    if VERBOSE.load(Ordering::Relaxed) >= 1 {
        write_line(line);
    }
}

/// Says a line for those who look for a fault.
pub fn debug(line: impl FnOnce() -> String) {
    if VERBOSE.load(Ordering::Relaxed) >= 2 {
        write_line(&line());
    }
}

/// Says lines that carry our name already.
pub fn block(lines: &str) {
    if VERBOSE.load(Ordering::Relaxed) >= 1 {
        // SAFETY: the text is as long as said.
        unsafe { libc::syscall(libc::SYS_write, 2, lines.as_ptr(), lines.len()) };
    }
}

/// One write per line, so that lines of several ranks do not mix. The raw call: a buffered stream
/// would lose a line at exit, and the library's `write` is one of the calls that we observe.
fn write_line(line: &str) {
    let text = format!("plimsoll: {line}\n");
    // SAFETY: the text is as long as said. Nothing can be done if stderr is closed.
    unsafe { libc::syscall(libc::SYS_write, 2, text.as_ptr(), text.len()) };
}
