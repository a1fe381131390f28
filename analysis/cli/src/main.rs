//! The `plimsoll` command.
//!
//! The entry point is C's: Rust's own would ignore SIGPIPE and open closed standard descriptors,
//! and the program that replaces `plimsoll run` would inherit both.

#![no_main]

use std::ffi::{c_char, c_int};

/// C's entry point; std finds the arguments by itself.
// SAFETY: the name is the one that the C runtime calls, with this signature.
#[unsafe(no_mangle)]
pub extern "C" fn main(_count: c_int, _arguments: *const *const c_char) -> c_int {
    c_int::from(plimsoll_cli::main(std::env::args_os()))
}
