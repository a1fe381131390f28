//! Outcomes of a suite's tests, and the differences between two runs.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

/// Outcome of each test, by the test's id, and entries for the whole suite.
pub type Outcomes = BTreeMap<String, String>;

/// The outcome of a test that a run does not mention.
const ABSENT: &str = "absent";

/// Entry in place of the tests that are missing: the run hung, or could not be started.
pub const BROKE_OFF: &str = "(the suite)";

/// Entries for the whole suite: the exit status of the run, and the number of processes that are
/// left behind.
pub const STATUS: &str = "(status)";
pub const LEFT_BEHIND: &str = "(left behind)";

/// Returns the tests that differ; `None` if only entries for the whole suite do.
pub fn tests_of<'a>(differences: impl Iterator<Item = &'a Difference>) -> Option<BTreeSet<String>> {
    let tests = differences.map(Difference::test);
    let tests = tests.filter(|test| ![BROKE_OFF, STATUS, LEFT_BEHIND].contains(test));
    let tests: BTreeSet<String> = tests.map(str::to_owned).collect();
    (!tests.is_empty()).then_some(tests)
}

/// All outcomes that runs without the library have had, by test.
#[derive(Default)]
pub struct Seen {
    by_test: BTreeMap<String, BTreeSet<String>>,
    /// Number of runs of all tests, to their end.
    whole_runs: usize,
}

/// An outcome under Plimsoll that no run without it has had.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Difference {
    test: String,
    with: String,
    without: String,
}

impl Seen {
    /// Adds a run without the library, of all tests or only of some. What is missing in a run that
    /// broke off, or was not asked for, does not count as absent.
    pub fn add(&mut self, outcomes: &Outcomes, only: Option<&BTreeSet<String>>) {
        for (test, outcome) in outcomes {
            let seen = self.by_test.entry(test.clone()).or_default();
            if seen.is_empty() && self.whole_runs > 0 {
                seen.insert(ABSENT.to_owned());
            }
            seen.insert(outcome.clone());
        }
        if outcomes.contains_key(BROKE_OFF) {
            return;
        }
        for (test, seen) in &mut self.by_test {
            let is_asked_for = only.is_none_or(|only| only.contains(test));
            if is_asked_for && !outcomes.contains_key(test) {
                seen.insert(ABSENT.to_owned());
            }
        }
        self.whole_runs += usize::from(only.is_none());
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
        without.add(&outcomes(&[("a", "ok"), ("b", "ok"), ("c", "ok")]), None);
        let with = outcomes(&[("a", "ok"), ("b", "failed"), ("d", "ok")]);
        let found = without.differences(&with);
        let tests: Vec<&str> = found.iter().map(|difference| difference.test.as_str()).collect();
        assert_eq!(tests, ["b", "c", "d"]);
        without.add(&outcomes(&[("a", "ok"), ("b", "failed"), ("d", "ok")]), None);
        assert!(without.differences(&with).is_empty());
    }

    #[test]
    fn a_run_that_broke_off_or_left_a_test_out_excuses_no_absent_test() {
        let mut without = Seen::default();
        without.add(&outcomes(&[("a", "ok"), ("b", "ok")]), None);
        without.add(&outcomes(&[("a", "ok"), (BROKE_OFF, "hangs")]), None);
        without.add(&outcomes(&[("a", "ok")]), Some(&BTreeSet::from(["a".into()])));
        let absent = |without: &Seen| {
            let found = without.differences(&outcomes(&[("a", "ok")]));
            found.iter().any(|difference| difference.test == "b")
        };
        assert!(absent(&without));
        without.add(&outcomes(&[("a", "ok")]), Some(&BTreeSet::from(["b".into()])));
        assert!(!absent(&without));
    }

    #[test]
    fn a_test_that_was_absent_once_may_be_absent() {
        let mut without = Seen::default();
        without.add(&outcomes(&[]), None);
        without.add(&outcomes(&[("a", "ok")]), None);
        assert!(without.differences(&outcomes(&[])).is_empty());
    }

    #[test]
    fn the_status_of_a_suite_is_no_test() {
        let mut without = Seen::default();
        without
            .add(&outcomes(&[("a", "ok"), ("b", "ok"), (STATUS, "0"), (LEFT_BEHIND, "0")]), None);
        let differing = |with: &[(&str, &str)]| {
            let entries = [("a", "ok"), ("b", "ok"), (STATUS, "0"), (LEFT_BEHIND, "0")];
            let mut changed = outcomes(&entries);
            changed.extend(outcomes(with));
            tests_of(without.differences(&changed).iter())
        };
        assert_eq!(
            differing(&[("b", "failed"), (STATUS, "1")]),
            Some(BTreeSet::from(["b".into()]))
        );
        assert_eq!(differing(&[(STATUS, "1"), (LEFT_BEHIND, "2")]), None);
        assert_eq!(tests_of(without.differences(&outcomes(&[(BROKE_OFF, "hangs")])).iter()), None);
    }

    #[test]
    fn the_last_line_of_a_test_counts() {
        let read = from_lines("t\tunfinished\nt\tok\nu\tunfinished\n", "0 ");
        assert_eq!(read, outcomes(&[("0 t", "ok"), ("0 u", "unfinished")]));
    }
}
