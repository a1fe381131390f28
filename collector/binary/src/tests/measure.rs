//! Costs of structure recovery, printed for a reader: run by hand, optimised.
//! `BINARIES=/path/a.so:/path/b cargo test --release -p plimsoll-binary cost_of_positions --
//! --ignored --nocapture`

use std::path::PathBuf;
use std::time::Instant;

use super::super::{Address, Options, SYSTEM_DEBUG_FOLDER, Structures};
use crate::symbols::{Source, Table};

/// Returns the memory of this process, in KiB.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/status").unwrap();
    let line = text.lines().find(|line| line.starts_with("VmRSS:")).unwrap();
    line.split_whitespace().nth(1).unwrap().parse().unwrap()
}

#[test]
#[ignore = "what it measures is for reading: BINARIES=/path/a.so:/path/b"]
fn cost_of_positions() {
    let list = std::env::var("BINARIES").unwrap_or_default();
    for path in list.split(':').filter(|path| !path.is_empty()).map(PathBuf::from) {
        let table = Table::read(&Source::open(&path).unwrap(), &[]).unwrap();
        let starts: Vec<u64> = table.functions().map(|it| it.range().start).collect();
        drop(table);
        let every = (starts.len() / 1000).max(1);
        let before = resident();
        let debug_folders = vec![PathBuf::from(SYSTEM_DEBUG_FOLDER)];
        let mut structures = Structures::new(Options { debug_folders, cache: None });
        let module = structures.module(path.clone(), Vec::new());
        let start = Instant::now();
        structures.place(module, Address::Leaf(starts[0]));
        let first = start.elapsed();
        let start = Instant::now();
        let mut slowest = first - first;
        let mut count = 0;
        for address in starts.iter().step_by(every) {
            let one = Instant::now();
            structures.place(module, Address::Return(*address + 2));
            slowest = slowest.max(one.elapsed());
            count += 1;
        }
        let each = start.elapsed() / count;
        let start = Instant::now();
        for address in starts.iter().step_by(every) {
            structures.place(module, Address::Return(*address + 2));
        }
        let again = start.elapsed() / count;
        let most = resident() - before;
        structures.release();
        // SAFETY: malloc_trim has no preconditions.
        unsafe { libc::malloc_trim(0) };
        println!(
            "{}: first {first:?}, {count} functions {each:?} each, slowest {slowest:?}, again \
             {again:?}; {most} KiB more, {} after release, {} of them known",
            path.display(),
            resident().saturating_sub(before),
            structures.bytes() / 1024
        );
    }
}
