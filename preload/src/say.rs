//! What the user reads while the job runs: lines on stderr, with our name in front.

use std::io::Write;
use std::panic::PanicHookInfo;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use plimsoll_summary::printable;
use plimsoll_sys::own::Known;

/// What descriptor 2 was when the program began. The program may close it and open a file of its own,
/// which gets the number: our lines do not belong there.
static STDERR: OnceLock<Option<Known>> = OnceLock::new();

/// Notes where lines go. To be called before the program runs; without this, nothing is said.
pub fn find_stderr() {
    let _ = STDERR.set(Known::new(libc::STDERR_FILENO));
}

/// Writes to stderr, if it still is what it was. One write, so that lines of several ranks do not mix.
fn write(text: &[u8]) {
    if let Some(Some(stderr)) = STDERR.get() {
        stderr.write(text);
    }
}

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
        write(lines.as_bytes());
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
        printable::line(reason.unwrap_or("unknown"))
    );
    let left = rest.len();
    let length = text.len() - left;
    write(&text[..length]);
}

/// The raw call: a buffered stream would lose a line at exit, and the library's `write` is one of the
/// calls that we observe.
fn write_line(line: &str) {
    write(format!("plimsoll: {}\n", printable::line(line)).as_bytes());
}
