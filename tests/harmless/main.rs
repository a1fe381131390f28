//! Runs programs and test suites of other projects with and without Plimsoll, and compares the
//! outcome of every test: a program behaves the same with and without Plimsoll.
//!
//! usage: plimsoll-harmless [--short] [--list] [SUITE...]
//!
//! Each suite runs once without the library and once in each [`Mode`]. An outcome that differs is a
//! difference unless a further run without the library has it too. Tests mostly wait, so suites run
//! side by side ([`RUNS_PER_CORE`]). Prints a row for each suite when it is done. Exits with 1 if
//! there are differences.

mod distribution_sources;
mod llvm_tests;
mod outcomes;
mod step_queue;
mod suite_comparison;
mod suites;

use std::num::NonZero;
use std::process::ExitCode;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use plimsoll_tests::artifacts::artifacts;
use plimsoll_tests::job_lock::lock_shared;
use step_queue::run_steps;
use suite_comparison::{Comparison, heading};
use suites::{Mode, suites};

/// Number of runs side by side for each core, of suites that do not need all cores.
const RUNS_PER_CORE: usize = 3;

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
    println!("{}", heading(modes));
    let (differences, mut skipped) = (AtomicUsize::new(0), 0);
    let mut comparisons = Vec::new();
    for suite in chosen {
        // Compilers do not run beside measured jobs either.
        let unavailable = {
            let _job_lock = lock_shared();
            suite.why_unavailable()
        };
        match unavailable {
            Some(reason) => {
                println!("{}  SKIPPED: {reason}", suite.name);
                skipped += 1;
            }
            None => comparisons.push(Comparison::new(suite, modes)),
        }
    }
    let conclude = |row: &str, found: usize| {
        println!("{row}");
        differences.fetch_add(found, Ordering::Relaxed);
    };
    let cores = thread::available_parallelism().map_or(1, NonZero::get);
    // The last suites take longest: were they begun last, one of them would go on alone. Those that
    // need all cores come first, since they would wait for the end of all others.
    comparisons.reverse();
    comparisons.sort_by_key(|comparison| !comparison.runs_alone());
    let steps = comparisons.iter().map(|comparison| comparison.first_step(&conclude));
    run_steps(RUNS_PER_CORE * cores, steps.collect());
    let differences = differences.into_inner();
    println!("{differences} differences, {skipped} suites skipped");
    if differences == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
