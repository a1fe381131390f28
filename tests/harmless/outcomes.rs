//! Outcomes of a suite's tests, and the differences between two runs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Outcome of each test, by the test's id. One entry, `(status)`, is the exit status of the run.
pub type Outcomes = BTreeMap<String, String>;

/// The outcome of a test that a run does not mention.
const ABSENT: &str = "absent";

/// Entry in place of all tests: the run hung, or could not be started.
pub const BROKE_OFF: &str = "(the suite)";

/// All outcomes that runs without the library have had, by test.
#[derive(Default)]
pub struct Seen {
    by_test: BTreeMap<String, BTreeSet<String>>,
    runs: usize,
}

/// An outcome under Plimsoll that no run without it has had.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Difference {
    test: String,
    with: String,
    without: String,
}

impl Seen {
    /// Adds a run without the library.
    pub fn add(&mut self, outcomes: &Outcomes) {
        for (test, outcome) in outcomes {
            let seen = self.by_test.entry(test.clone()).or_default();
            if seen.is_empty() && self.runs > 0 {
                seen.insert(ABSENT.to_owned());
            }
            seen.insert(outcome.clone());
        }
        for (test, seen) in &mut self.by_test {
            if !outcomes.contains_key(test) {
                seen.insert(ABSENT.to_owned());
            }
        }
        self.runs += 1;
    }

    /// Returns the outcomes of `with` that no run without the library has had.
    pub fn differences(&self, with: &Outcomes) -> Vec<Difference> {
        let all: BTreeSet<&String> = self.by_test.keys().chain(with.keys()).collect();
        // A run that broke off says nothing about single tests.
        let tests = if with.contains_key(BROKE_OFF) { with.keys().collect() } else { all };
        let difference = |test: &String| {
            let with = with.get(test).map_or(ABSENT, String::as_str);
            let without = self.by_test.get(test).and_then(|seen| seen.first());
            Difference {
                test: test.clone(),
                with: with.to_owned(),
                without: without.map_or(ABSENT, String::as_str).to_owned(),
            }
        };
        tests.into_iter().map(difference).filter(|difference| !self.has(difference)).collect()
    }

    /// Returns whether a run without the library has had this outcome.
    pub fn has(&self, difference: &Difference) -> bool {
        match self.by_test.get(&difference.test) {
            Some(seen) => seen.contains(&difference.with),
            None => difference.with == ABSENT,
        }
    }
}

impl Difference {
    /// Returns the id of the test.
    pub fn test(&self) -> &str {
        &self.test
    }
}

impl fmt::Display for Difference {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { test, with, without } = self;
        write!(formatter, "{test}: {with} with Plimsoll, {without} without")
    }
}

/// Parses the lines "id<TAB>outcome" of `run_unittests.py`; the last line of a test counts.
pub fn from_lines(text: &str, prefix: &str) -> Outcomes {
    let entries = text.lines().filter_map(|line| line.split_once('\t'));
    entries.map(|(test, outcome)| (format!("{prefix}{test}"), outcome.to_owned())).collect()
}

/// Parses the lines "name: value" that the programs of this folder print, one per test.
pub fn from_output(text: &str) -> Outcomes {
    let mut outcomes = Outcomes::new();
    for line in text.lines() {
        let (test, outcome) = line.split_once(": ").unwrap_or((line, ""));
        outcomes.insert(test.to_owned(), outcome.to_owned());
    }
    outcomes
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcomes(pairs: &[(&str, &str)]) -> Outcomes {
        pairs.iter().map(|(test, outcome)| ((*test).to_owned(), (*outcome).to_owned())).collect()
    }

    #[test]
    fn only_outcomes_never_seen_without_the_library_differ() {
        let mut without = Seen::default();
        without.add(&outcomes(&[("a", "ok"), ("b", "ok"), ("c", "ok")]));
        let with = outcomes(&[("a", "ok"), ("b", "failed"), ("d", "ok")]);
        let found = without.differences(&with);
        let tests: Vec<&str> = found.iter().map(|difference| difference.test.as_str()).collect();
        assert_eq!(tests, ["b", "c", "d"]);
        without.add(&outcomes(&[("a", "ok"), ("b", "failed"), ("d", "ok")]));
        assert!(without.differences(&with).is_empty());
    }

    #[test]
    fn a_test_that_was_absent_once_may_be_absent() {
        let mut without = Seen::default();
        without.add(&outcomes(&[]));
        without.add(&outcomes(&[("a", "ok")]));
        assert!(without.differences(&outcomes(&[])).is_empty());
    }

    #[test]
    fn the_last_line_of_a_test_counts() {
        let read = from_lines("t\tunfinished\nt\tok\nu\tunfinished\n", "0 ");
        assert_eq!(read, outcomes(&[("0 t", "ok"), ("0 u", "unfinished")]));
    }
}
