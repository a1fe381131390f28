//! The spool of a process with arbitrary metadata and arbitrary bytes as records.

#![no_main]
#![allow(dead_code, reason = "each target uses a part of the checks")]

use plimsoll_collector::digest;
use plimsoll_spool as spool;

#[path = "../src/checks.rs"]
mod checks;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| checks::digest(&checks::forge_process(bytes), &[]));
