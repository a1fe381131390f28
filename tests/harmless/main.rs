//! Runs programs and test suites of other projects with and without Plimsoll, and compares the
//! outcome of every test: a program behaves the same with and without Plimsoll.
//!
//! usage: plimsoll-harmless [--short] [--list] [SUITE...]
//!
//! Each suite runs once without the library and once in each [`Mode`]. An outcome that differs is a
//! difference unless a further run without the library, one of [`MAX_REPEATS`], has it too. Exits
//! with 1 if there are differences.

mod distribution_sources;
mod llvm_tests;
mod outcomes;
mod suites;

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Instant;

use outcomes::{BROKE_OFF, Difference, Outcomes, Seen};
use plimsoll_tests::artifacts::artifacts;
use plimsoll_tests::job_lock::lock_shared;
use suites::{Mode, Suite, suites};

/// Maximum number of further runs without the library that may show the outcome.
const MAX_REPEATS: usize = 4;

struct Arguments {
    /// Runs one mode, and only the suites that take seconds.
    short: bool,
    list: bool,
    suites: Vec<String>,
}

fn arguments() -> Result<Arguments, String> {
    let mut found = Arguments { short: false, list: false, suites: Vec::new() };
    for word in std::env::args().skip(1) {
        match word.as_str() {
            "--short" => found.short = true,
            "--list" => found.list = true,
            option if option.starts_with('-') => return Err(format!("no option {option}")),
            suite => found.suites.push(suite.to_owned()),
        }
    }
    Ok(found)
}

/// Runs a suite; a run that hangs or cannot be started has an outcome of its own. Does not run
/// beside jobs that are measured.
fn run(suite: &Suite, mode: Option<Mode>, only: Option<&BTreeSet<String>>) -> Outcomes {
    let _job_lock = lock_shared();
    let ran = catch_unwind(AssertUnwindSafe(|| suite.run(mode, only)));
    ran.unwrap_or_else(|panic| {
        let message = panic.downcast_ref::<String>().map(String::as_str);
        let line = message.and_then(|text| text.lines().next()).unwrap_or("unknown");
        Outcomes::from([(BROKE_OFF.to_owned(), format!("broke off: {line}"))])
    })
}

/// Runs a suite in all modes and prints its row. Returns the number of differences.
fn compare(suite: &Suite, modes: &[Mode]) -> usize {
    let begin = Instant::now();
    let mut without = Seen::default();
    let first = run(suite, None, None);
    let tests = first.len();
    without.add(&first);
    let mut differences = Vec::new();
    for mode in modes {
        let with = run(suite, Some(*mode), None);
        let found = without.differences(&with);
        differences.extend(found.into_iter().map(|difference| (*mode, difference)));
    }
    // Occasional differences without the library are the suite's own.
    let total = differences.len();
    for _ in 0..MAX_REPEATS {
        if differences.is_empty() {
            break;
        }
        let only = differences.iter().map(|(_, difference)| difference.test().to_owned()).collect();
        without.add(&run(suite, None, Some(&only)));
        differences.retain(|(_, difference)| !without.has(difference));
    }
    let unstable = total - differences.len();
    let seconds = begin.elapsed().as_secs();
    println!("{:<28} {tests:>6} {:>12} {unstable:>9} {seconds:>6}", suite.name, differences.len());
    suite.notes().iter().for_each(|note| println!("    {note}"));
    let mut by_test: BTreeMap<&Difference, Vec<Mode>> = BTreeMap::new();
    for (mode, difference) in &differences {
        by_test.entry(difference).or_default().push(*mode);
    }
    for (difference, modes) in by_test {
        let modes: Vec<String> = modes.iter().map(ToString::to_string).collect();
        println!("    {difference}; at {}", modes.join(", "));
    }
    differences.len()
}

fn main() -> ExitCode {
    let arguments = match arguments() {
        Ok(arguments) => arguments,
        Err(message) => {
            eprintln!("plimsoll-harmless: {message}");
            return ExitCode::from(2);
        }
    };
    let all = suites();
    if let Some(unknown) =
        arguments.suites.iter().find(|name| !all.iter().any(|suite| suite.name == name.as_str()))
    {
        eprintln!("plimsoll-harmless: there is no suite {unknown}; --list names all");
        return ExitCode::from(2);
    }
    let chosen = all.iter().filter(|suite| match arguments.suites.as_slice() {
        [] => suite.is_short || !arguments.short,
        names => names.contains(&suite.name),
    });
    if arguments.list {
        chosen.for_each(|suite| println!("{}", suite.name));
        return ExitCode::SUCCESS;
    }
    artifacts();
    // A suite that hangs is reported as an outcome.
    std::panic::set_hook(Box::new(|_| {}));
    let modes = if arguments.short { &Mode::ALL[1..2] } else { &Mode::ALL[..] };
    println!("{:<28} {:>6} {:>12} {:>9} {:>6}", "suite", "tests", "differences", "unstable", "s");
    let (mut differences, mut skipped) = (0, 0);
    for suite in chosen {
        // Compilers do not run beside measured jobs either.
        let unavailable = {
            let _job_lock = lock_shared();
            suite.why_unavailable()
        };
        match unavailable {
            Some(reason) => {
                println!("{:<28} SKIPPED: {reason}", suite.name);
                skipped += 1;
            }
            None => differences += compare(suite, modes),
        }
    }
    println!("{differences} differences, {skipped} suites skipped");
    if differences == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
