//! Inputs found by fuzzing, and its initial inputs: kept in `fuzz/seeds`, checked as there. And
//! functions of the C library, damaged.

use std::path::Path;

use proptest::prelude::*;

#[path = "../../../fuzz/src/structure.rs"]
mod checks;

use super::super::Code;
use super::sweep::{library, open};
use crate as structure;

fn seeds(target: &str) -> Vec<Vec<u8>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/seeds").join(target);
    let files = std::fs::read_dir(folder).unwrap();
    let seeds: Vec<_> = files.map(|file| std::fs::read(file.unwrap().path()).unwrap()).collect();
    assert!(!seeds.is_empty());
    seeds
}

#[test]
fn seeds_of_code_are_survived() {
    seeds("structure").iter().for_each(|seed| checks::code(seed));
}

#[test]
fn seeds_of_modules_are_survived() {
    let file = tempfile::NamedTempFile::new().unwrap();
    for seed in seeds("modules") {
        checks::module(&seed, file.path());
        // Truncated anywhere, as by a copy in progress.
        for length in (0..seed.len()).step_by(seed.len() / 16) {
            checks::module(&seed[..length], file.path());
        }
    }
}

/// Returns the code of functions of the C library, each after four bytes of choices.
fn functions() -> Vec<Vec<u8>> {
    let binary = open(&library("libc.so.6"));
    let ranges = binary.functions().map(|(range, _)| range);
    ranges
        .filter(|range| (64..2048).contains(&(range.end - range.start)))
        .step_by(25)
        .map(|range| {
            let mut code = vec![0; (range.end - range.start) as usize];
            assert!(binary.read(range.start, &mut code));
            [&[0, 1, 8, 40], &code[..]].concat()
        })
        .collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_code_is_survived(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
        checks::code(&bytes);
    }
}

#[test]
fn damaged_functions_are_survived() {
    let functions = functions();
    assert!(functions.len() > 30);
    let strategy = (
        0..functions.len(),
        proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..20),
    );
    let mut runner = proptest::test_runner::TestRunner::new(ProptestConfig::with_cases(300));
    runner
        .run(&strategy, |(which, changes)| {
            let mut bytes = functions[which].clone();
            for (place, value) in changes {
                let at = place.index(bytes.len());
                bytes[at] = value;
            }
            checks::code(&bytes);
            Ok(())
        })
        .unwrap();
}
