//! What the user reads while the job runs: lines on stderr, with our name in front.

use std::io::Write;
use std::panic::PanicHookInfo;
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

/// Says that something of ours went wrong. It may have done so in a signal handler: no memory is taken.
pub fn fault(panic: &PanicHookInfo<'_>) {
    if VERBOSE.load(Ordering::Relaxed) == 0 {
        return;
    }
    let mut text = [0u8; 512];
    let mut rest = &mut text[..];
    let (file, line) = panic.location().map_or(("?", 0), |at| (at.file(), at.line()));
    let payload = panic.payload();
    let reason = payload.downcast_ref::<&str>().copied();
    let reason = reason.or_else(|| payload.downcast_ref::<String>().map(String::as_str));
    // A message that is too long is cut.
    let _ = writeln!(
        rest,
        "plimsoll: an error of our own ({file}:{line}: {}). Please report this line.",
        reason.unwrap_or("unknown")
    );
    let left = rest.len();
    let length = text.len() - left;
    // SAFETY: the text is as long as said.
    unsafe { libc::syscall(libc::SYS_write, 2, text.as_ptr(), length) };
}

/// One write per line, so that lines of several ranks do not mix. The raw call: a buffered stream
/// would lose a line at exit, and the library's `write` is one of the calls that we observe.
fn write_line(line: &str) {
    let text = format!("plimsoll: {line}\n");
    // SAFETY: the text is as long as said. Nothing can be done if stderr is closed.
    unsafe { libc::syscall(libc::SYS_write, 2, text.as_ptr(), text.len()) };
}
