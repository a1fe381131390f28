//! Comparison of a suite without Plimsoll and in each mode: the runs as steps, and the row of the
//! table.

use std::collections::{BTreeMap, BTreeSet};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use plimsoll_tests::job_lock::lock_shared;

use crate::outcomes::{BROKE_OFF, Difference, Outcomes, Seen, tests_of};
use crate::step_queue::Step;
use crate::suites::{Mode, Suite};

/// Maximum number of further runs without the library that may show the outcome: first of the tests
/// that differ, then of the whole suite, since a test may fail because of the tests before it.
const MAX_REPEATS: usize = 4;
const REPEATS_OF_TESTS: usize = 2;

/// A suite and its runs so far.
pub struct Comparison<'a> {
    suite: &'a Suite,
    modes: &'a [Mode],
    runs: Mutex<Runs>,
}

#[derive(Default)]
struct Runs {
    without: Seen,
    tests: usize,
    differences: Vec<(Mode, Difference)>,
    /// Number of differences before repeats.
    candidates: usize,
    /// Duration of the run without the library.
    plain: Duration,
    in_modes: BTreeMap<Mode, Duration>,
    /// Durations of all repeats together.
    repeated: Duration,
    repeats: usize,
}

impl Runs {
    /// Returns the differences in all modes.
    fn found(&self) -> impl Iterator<Item = &Difference> {
        self.differences.iter().map(|(_, difference)| difference)
    }
}

/// Runs a suite; a run that hangs or cannot be started has an outcome of its own. Does not run
/// beside jobs that are measured. Returns the duration, too.
fn run(suite: &Suite, mode: Option<Mode>, only: Option<&BTreeSet<String>>) -> (Outcomes, Duration) {
    let _job_lock = lock_shared();
    let begin = Instant::now();
    let ran = catch_unwind(AssertUnwindSafe(|| suite.run(mode, only)));
    let outcomes = ran.unwrap_or_else(|panic| {
        let message = panic.downcast_ref::<String>().map(String::as_str);
        let line = message.and_then(|text| text.lines().next()).unwrap_or("unknown");
        Outcomes::from([(BROKE_OFF.to_owned(), format!("broke off: {line}"))])
    });
    (outcomes, begin.elapsed())
}

/// Returns the headings of the table's columns behind the suites: numbers of tests, then durations
/// in seconds.
fn columns(modes: &[Mode]) -> impl Iterator<Item = String> {
    let counts = ["tests", "differences", "unstable", "without"].map(str::to_owned).into_iter();
    counts.chain(modes.iter().map(ToString::to_string)).chain([String::from("repeats")])
}

fn line(modes: &[Mode], name: &str, cells: impl Iterator<Item = String>) -> String {
    let widths = columns(modes).map(|column| column.len() + 2);
    let right = |line: String, (cell, width)| line + &format!("{cell:>width$}");
    cells.zip(widths).fold(format!("{name:<39}"), right)
}

/// Returns the heading of the table.
pub fn heading(modes: &[Mode]) -> String {
    line(modes, "suite; durations in s", columns(modes))
}

impl<'a> Comparison<'a> {
    /// Makes a comparison without runs.
    pub fn new(suite: &'a Suite, modes: &'a [Mode]) -> Self {
        Self { suite, modes, runs: Mutex::default() }
    }

    /// Returns whether the runs need all cores.
    pub const fn runs_alone(&self) -> bool {
        self.suite.runs_alone()
    }

    fn runs(&self) -> MutexGuard<'_, Runs> {
        self.runs.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the first step of the comparison. The last one calls `conclude` with the rows of the
    /// table and the number of differences.
    pub fn first_step<'s>(&'s self, conclude: &'s (impl Fn(&str, usize) + Sync)) -> Step<'s> {
        self.step(move || {
            let (outcomes, took) = run(self.suite, None, None);
            let mut runs = self.runs();
            runs.tests = outcomes.len();
            runs.plain = took;
            runs.without.add(&outcomes, None);
            self.modes.iter().map(|mode| self.mode_step(*mode, conclude)).collect()
        })
    }

    fn step<'s>(&self, work: impl FnOnce() -> Vec<Step<'s>> + Send + 's) -> Step<'s> {
        Step::new(if self.runs_alone() { usize::MAX } else { 1 }, work)
    }

    fn mode_step<'s>(
        &'s self,
        mode: Mode,
        conclude: &'s (impl Fn(&str, usize) + Sync),
    ) -> Step<'s> {
        self.step(move || {
            let (outcomes, took) = run(self.suite, Some(mode), None);
            let mut runs = self.runs();
            let found = runs.without.differences(&outcomes);
            runs.candidates += found.len();
            runs.differences.extend(found.into_iter().map(|difference| (mode, difference)));
            runs.in_modes.insert(mode, took);
            let is_last = runs.in_modes.len() == self.modes.len();
            drop(runs);
            if is_last { self.repeat_or_conclude(conclude) } else { Vec::new() }
        })
    }

    /// Occasional differences without the library are the suite's own: returns a step that repeats
    /// the run without the library, if there are differences.
    fn repeat_or_conclude<'s>(
        &'s self,
        conclude: &'s (impl Fn(&str, usize) + Sync),
    ) -> Vec<Step<'s>> {
        let runs = self.runs();
        if runs.differences.is_empty() || runs.repeats == MAX_REPEATS {
            conclude(&self.row(&runs), runs.differences.len());
            return Vec::new();
        }
        let is_of_tests = runs.repeats < REPEATS_OF_TESTS || self.suite.has_separate_tests();
        drop(runs);
        let repeat = self.step(move || {
            let only = if is_of_tests { tests_of(self.runs().found()) } else { None };
            let (outcomes, took) = run(self.suite, None, only.as_ref());
            let mut runs = self.runs();
            let Runs { without, differences, repeated, repeats, .. } = &mut *runs;
            without.add(&outcomes, only.as_ref());
            differences.retain(|(_, difference)| !without.has(difference));
            *repeated += took;
            *repeats += 1;
            drop(runs);
            self.repeat_or_conclude(conclude)
        });
        vec![repeat]
    }

    /// Returns the row of the table, and lines about the runs and their differences.
    fn row(&self, runs: &Runs) -> String {
        let counts = [runs.tests, runs.differences.len(), runs.candidates - runs.differences.len()];
        let durations = [&runs.plain].into_iter().chain(runs.in_modes.values());
        let durations = durations.chain([&runs.repeated]);
        let seconds = durations.map(|duration| format!("{:.0}", duration.as_secs_f64()));
        let cells = counts.iter().map(ToString::to_string).chain(seconds);
        let mut text = line(self.modes, &self.suite.name, cells);
        for note in self.suite.notes() {
            text.push_str(&format!("\n    {note}"));
        }
        let mut by_test: BTreeMap<&Difference, Vec<String>> = BTreeMap::new();
        for (mode, difference) in &runs.differences {
            by_test.entry(difference).or_default().push(mode.to_string());
        }
        for (difference, modes) in by_test {
            text.push_str(&format!("\n    {difference}; at {}", modes.join(", ")));
        }
        text
    }
}
