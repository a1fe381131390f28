//! The `plimsoll` command as tests start it.

use std::ffi::OsStr;
use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Returns the command at this path, without the settings of the test's environment and with a
/// library that changes nothing.
pub fn plimsoll(path: impl AsRef<OsStr>) -> Command {
    let mut command = Command::new(path);
    for (name, _) in std::env::vars_os() {
        if name.to_string_lossy().starts_with("PLIMSOLL_") || name == "LD_PRELOAD" {
            command.env_remove(name);
        }
    }
    command.stdin(Stdio::null()).env("PLIMSOLL_LIBRARY", harmless_library());
    command
}

/// Returns a library that every program loads anyway: preloading it changes nothing.
pub fn harmless_library() -> PathBuf {
    let maps = fs::read_to_string("/proc/self/maps").unwrap();
    let libraries = maps.lines().filter_map(|line| line.split_ascii_whitespace().nth(5));
    let mut libc = libraries.filter(|path| path.contains("/libc.so") || path.contains("/libc-"));
    libc.next().expect("this test is linked with a C library").into()
}
