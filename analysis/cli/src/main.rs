//! The `plimsoll` command.
//!
//! Its entry is C's: Rust's own would set SIGPIPE to be ignored and open the standard descriptors
//! that are closed, and a program that `plimsoll run` becomes would inherit both.

#![no_main]

use std::ffi::{c_char, c_int};

/// C's entry point; std finds the arguments by itself.
// SAFETY: the name is the one that the C runtime calls, with this signature.
#[unsafe(no_mangle)]
pub extern "C" fn main(_count: c_int, _arguments: *const *const c_char) -> c_int {
    c_int::from(plimsoll_cli::main(std::env::args_os()))
}
