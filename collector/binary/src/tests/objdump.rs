//! Blocks compared with objdump(1): they begin and end at its instructions, and have its jumps.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::process::Command;

use super::super::Function;
use super::compiled::run;
use super::sweep::{library, open};

/// Returns the addresses of instructions, with the targets of direct jumps.
fn disassemble(path: &Path) -> BTreeMap<u64, Option<u64>> {
    let mut command = Command::new("objdump");
    let text = run(command.args(["-d", "--no-show-raw-insn", "-j", ".text"]).arg(path));
    let mut found = BTreeMap::new();
    for line in text.lines() {
        let Some((address, instruction)) = line.split_once(":\t") else { continue };
        let Ok(address) = u64::from_str_radix(address.trim(), 16) else { continue };
        let mut words = instruction.split_whitespace().skip_while(|word| PREFIXES.contains(word));
        let jumps = words.next().is_some_and(|mnemonic| mnemonic.starts_with('j'));
        let target = words.next().and_then(|target| u64::from_str_radix(target, 16).ok());
        found.insert(address, target.filter(|_| jumps));
    }
    found
}

const PREFIXES: [&str; 5] = ["bnd", "notrack", "rex.W", "cs", "ds"];

/// Counts of a comparison.
#[derive(Debug, Default)]
struct Counts {
    functions: usize,
    blocks: usize,
    jumps: usize,
    boundaries_differ: usize,
    targets_differ: usize,
}

fn compare(path: &Path) -> Counts {
    let instructions = disassemble(path);
    let binary = open(path);
    let mut counts = Counts::default();
    for (range, symbol) in binary.functions() {
        let end = instructions.range(..range.start).next_back().is_some();
        if !instructions.contains_key(&range.start) || !end {
            continue; // of another section
        }
        let function = Function::recover(&binary, None, range.start, &range);
        let graph = function.graph().unwrap();
        counts.functions += 1;
        let mut starts = BTreeSet::new();
        let mut lasts = BTreeSet::new();
        let mut covered = Vec::new();
        for (index, block) in graph.blocks().iter().enumerate() {
            starts.insert(block.start);
            lasts.insert(block.last);
            if !graph.is_reached(index as u32) {
                continue;
            }
            covered.push(block.start..block.end);
            counts.blocks += 1;
            let next = instructions.range(block.last + 1..).next().map(|(next, _)| *next);
            let agrees = instructions.contains_key(&block.start)
                && instructions.contains_key(&block.last)
                && next.is_none_or(|next| next == block.end);
            if !agrees {
                counts.boundaries_differ += 1;
                println!("{symbol}: block {:#x} to {:#x}", block.start, block.end);
            }
        }
        for block in covered {
            for (jump, target) in instructions.range(block) {
                let Some(target) = target else { continue };
                counts.jumps += 1;
                let target_fits = !range.contains(target) || starts.contains(target);
                if !lasts.contains(jump) || !target_fits {
                    counts.targets_differ += 1;
                    println!("{symbol}: jump at {jump:#x} to {target:#x}");
                }
            }
        }
    }
    counts
}

#[test]
fn blocks_begin_and_end_with_the_instructions_that_objdump_finds() {
    for name in ["libc.so.6", "libmpi.so.40"] {
        let counts = compare(&library(name));
        println!("{name} {counts:?}");
        assert!(counts.functions > 500, "{counts:?}");
        // The C library jumps past a lock prefix: one instruction within another.
        assert!(counts.boundaries_differ * 1000 <= counts.blocks, "{counts:?}");
        assert!(counts.targets_differ * 1000 <= counts.jumps, "{counts:?}");
    }
}
