//! Bytes that were found by fuzzing, or were its beginning: kept in `fuzz/seeds`, checked as there.

use std::path::{Path, PathBuf};

#[path = "../../fuzz/src/checks.rs"]
mod checks;

use plimsoll_spool as spool;

use crate::digest;

fn seeds(target: &str) -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/seeds").join(target);
    let mut seeds: Vec<_> =
        std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect();
    seeds.sort();
    assert!(!seeds.is_empty());
    seeds
}

#[test]
fn seeds_of_payloads_are_survived() {
    for seed in seeds("payloads") {
        checks::payload(&std::fs::read(seed).unwrap());
    }
}

#[test]
fn seeds_of_files_are_survived() {
    for seed in seeds("files") {
        let bytes = std::fs::read(seed).unwrap();
        checks::file(&checks::forge(&bytes));
        checks::file(&bytes);
    }
}

#[test]
fn seeds_of_digests_are_survived() {
    for seed in seeds("digests") {
        let bytes = std::fs::read(seed).unwrap();
        checks::digest(&checks::forge_process(&bytes), &[]);
    }
}

/// The forged file is digested as a process: otherwise the target would fuzz nothing.
#[test]
fn a_forged_process_is_digested() {
    let forged = checks::forge_process(&[7; 32]);
    let digest = digest::Digest::new(std::io::Cursor::new(forged), None).unwrap();
    assert_eq!(digest.damages(), [""; 0]);
    assert_eq!(digest.processes().len(), 1);
}
