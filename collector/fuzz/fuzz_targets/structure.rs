//! Any bytes as the code of a function.

#![no_main]
#![allow(dead_code, reason = "each target uses a part of the checks")]

use plimsoll_binary as structure;

#[path = "../src/structure.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::code(bytes));
