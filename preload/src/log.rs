//! Messages to the user while the job runs: lines on stderr, prefixed with `plimsoll: `.

use std::io::Write;
use std::panic::PanicHookInfo;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};

use plimsoll_summary::printable;
use plimsoll_sys::own::Known;

/// File behind descriptor 2 at the program's start. The program may close the descriptor and open a
/// file that gets the number; no message may be written there.
static STDERR: OnceLock<Option<Known>> = OnceLock::new();

/// Records stderr. Must be called before the program runs; without this call, nothing is printed.
pub fn find_stderr() {
    let _ = STDERR.set(Known::new(libc::STDERR_FILENO));
}

/// Writes to stderr if descriptor 2 is still the same file. Uses one write, so that lines of
/// several ranks do not mix.
fn write(text: &[u8]) {
    if let Some(Some(stderr)) = STDERR.get() {
        stderr.write(text);
    }
}

/// Verbosity from PLIMSOLL_VERBOSE: 0 silent, 1 normal, 2 debug.
static VERBOSE: AtomicU32 = AtomicU32::new(1);

/// Sets the verbosity.
pub fn set_verbosity(level: u32) {
    VERBOSE.store(level, Ordering::Relaxed);
}

/// Prints a line that the user should read.
pub fn warn(line: &str) {
    if VERBOSE.load(Ordering::Relaxed) >= 1 {
        write_line(line);
    }
}

/// Prints a line for debugging.
pub fn debug(line: impl FnOnce() -> String) {
    if VERBOSE.load(Ordering::Relaxed) >= 2 {
        write_line(&line());
    }
}

/// Prints lines that contain the prefix already.
pub fn block(lines: &str) {
    if VERBOSE.load(Ordering::Relaxed) >= 1 {
        write(lines.as_bytes());
    }
}

/// Prints that Plimsoll has panicked. Allocates nothing, since the panic may be in a signal
/// handler.
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
    // A message longer than the array is truncated.
    let _ = writeln!(
        rest,
        "plimsoll: an error of our own ({file}:{line}: {}). Please report this line.",
        printable::line(reason.unwrap_or("unknown"))
    );
    let left = rest.len();
    let length = text.len() - left;
    write(&text[..length]);
}

/// Writes a line by a raw system call: a buffered stream would lose a line at exit, and the C
/// library's `write` is one of the observed calls.
fn write_line(line: &str) {
    write(format!("plimsoll: {}\n", printable::line(line)).as_bytes());
}
