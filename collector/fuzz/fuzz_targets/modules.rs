//! Any bytes as a module's file: its symbols, unwind tables, code and debug information.

#![no_main]
#![allow(dead_code, reason = "each target uses a part of the checks")]

use plimsoll_binary as structure;

#[path = "../src/structure.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let name = format!("plimsoll-fuzz-{}", std::process::id());
    checks::module(bytes, &std::env::temp_dir().join(name));
});
