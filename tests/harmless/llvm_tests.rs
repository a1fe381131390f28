//! LLVM's own tests of its OpenMP runtime, in the version of the distribution's clang, under
//! LLVM's runtime and under GCC's.
//!
//! A test is a source file with RUN lines: shell commands with substitutions, which LLVM's `lit`
//! defines in `lit.cfg` beside the tests. Each test becomes one script here, which compiles the
//! program and runs it, under Plimsoll if asked for, in all ways that its RUN lines name.

use std::collections::BTreeSet;
use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::Duration;

use plimsoll_tests::artifacts::{artifacts, target_dir};
use plimsoll_tests::mpi::find_command;
use plimsoll_tests::openmp_runtime::OpenMpRuntime;
use plimsoll_tests::process;
use plimsoll_tests::scratch::Scratch;
use plimsoll_tests::side_by_side::side_by_side;
use serde_json::Value;

use crate::distribution_sources::folder_of_package;
use crate::outcomes::Outcomes;
use crate::suites::Mode;

/// Tests left out, by the beginning of their paths: those of `ompt/loadtool` show the runtime's
/// search for a tool, which finds Plimsoll. The other one fails if a thread is preempted between
/// its last new task and the first task that it executes, which takes ten times as long when the
/// thread is measured for the first time (70 us).
const LEFT_OUT: &[&str] = &["ompt/loadtool/", "tasking/omp_fill_taskqueue.c"];

/// Tests that bring a tool of their own, to which Plimsoll leaves the runtime.
const WITH_TOOL: &str = "ompt/";

/// Exit status of a script if the program does not compile.
const DOES_NOT_COMPILE: i32 = 125;

/// Maximum duration of a test that is selected, without Plimsoll.
const SELECTED_LIMIT: Duration = Duration::from_secs(30);

/// Number of tests that are selected side by side: all runs wait for the selection.
const SELECTED_AT_ONCE: usize = 3;

/// Maximum duration of a selected test. Other runs share the cores, and a test that waits actively
/// takes ten times as long there.
const LIMIT: Duration = Duration::from_secs(300);

/// Minimum fraction of tests without a tool of their own that have parallel regions in a summary.
/// The others make no region, end by a signal, or do not run long enough to be sampled.
const MIN_MEASURED_FRACTION: f64 = 0.5;

/// The tests under one runtime.
pub struct LlvmTests {
    runtime: OpenMpRuntime,
    /// Tests that succeed without Plimsoll, by their path below the folder of tests.
    selected: OnceLock<BTreeSet<String>>,
    /// Lines of the table below the suite: tests left out, programs measured.
    notes: Mutex<Vec<String>>,
}

impl LlvmTests {
    /// Returns the tests under `runtime`, [`OpenMpRuntime::Gomp`] or [`OpenMpRuntime::Llvm`].
    pub const fn new(runtime: OpenMpRuntime) -> Self {
        Self { runtime, selected: OnceLock::new(), notes: Mutex::new(Vec::new()) }
    }

    /// Returns why the tests cannot run here; `None` if they can.
    pub fn why_unavailable(&self) -> Option<String> {
        let reason = || tests_folder().is_none().then(|| "LLVM's sources cannot be had".to_owned());
        // The sources are those of clang's version.
        OpenMpRuntime::Llvm.why_unavailable().or_else(reason)
    }

    /// Returns what was left out and what was measured so far.
    pub fn notes(&self) -> Vec<String> {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    fn note(&self, note: String) {
        self.notes.lock().unwrap_or_else(PoisonError::into_inner).push(note);
    }

    /// Runs the tests named in `only`, by default all. The first run, without Plimsoll, selects
    /// those that succeed.
    ///
    /// # Panics
    /// If Plimsoll measures parallel regions in few of the programs: then equal outcomes mean
    /// little.
    pub fn run(&self, mode: Option<Mode>, only: Option<&BTreeSet<String>>) -> Outcomes {
        let folder = tests_folder().expect("it was asked for before");
        let Some(selected) = self.selected.get() else {
            let found = self.select(&folder);
            let outcomes = found.iter().map(|test| (test.clone(), "succeeds".to_owned())).collect();
            self.selected.get_or_init(|| found);
            return outcomes;
        };
        let mut outcomes = Outcomes::new();
        let (mut countable, mut measured) = (0, 0);
        for test in only.unwrap_or(selected) {
            let trial = self.run_test(&folder, test, mode, LIMIT);
            if !test.starts_with(WITH_TOOL) {
                countable += 1;
                measured += usize::from(trial.is_measured);
            }
            outcomes.insert(test.clone(), trial.outcome);
        }
        if let Some(mode) = mode {
            self.note(format!("regions measured in {measured} of {countable} programs at {mode}"));
            let is_enough = measured as f64 >= MIN_MEASURED_FRACTION * countable as f64;
            assert!(is_enough, "regions measured in only {measured} of {countable} programs");
        }
        outcomes
    }

    fn select(&self, folder: &Path) -> BTreeSet<String> {
        let mut selected = BTreeSet::new();
        let (mut not_compiling, mut failing, mut long) = (0, 0, 0);
        let is_left_out = |test: &String| LEFT_OUT.iter().any(|path| test.starts_with(path));
        let (left_out, tests): (Vec<_>, Vec<_>) =
            test_files(folder).into_iter().partition(is_left_out);
        let run = |test: &String| {
            (test.clone(), self.run_test(folder, test, None, SELECTED_LIMIT).outcome)
        };
        side_by_side(&tests, SELECTED_AT_ONCE, run, |(test, outcome)| match outcome.as_str() {
            "succeeds" => {
                selected.insert(test);
            }
            "does not compile" => not_compiling += 1,
            "hangs" => long += 1,
            _ => failing += 1,
        });
        self.note(format!(
            "left out: {not_compiling} that do not compile, {failing} that fail and {long} that \
             take more than {} s without Plimsoll, {} by name",
            SELECTED_LIMIT.as_secs(),
            left_out.len()
        ));
        selected
    }

    fn run_test(&self, folder: &Path, test: &str, mode: Option<Mode>, limit: Duration) -> Trial {
        let scratch = Scratch::new("llvm");
        let program = scratch.path().join("program");
        let reports = scratch.path().join("reports");
        let mut launch = quoted(&program);
        if let Some(mode) = mode {
            let (command, output) = (quoted(&artifacts().command), quoted(&reports));
            let options = mode.options().join(" ");
            launch = format!("{command} run --output {output} {options} --verbose 0 -- {launch}");
        }
        let source = folder.join(test);
        let text = fs::read(&source).unwrap_or_default();
        let text = String::from_utf8_lossy(&text);
        let substitutions = self.substitutions(folder, &source, &program, &launch);
        let mut script = self.prologue(&program);
        for line in run_lines(&text) {
            let _ = writeln!(script, "{} || exit", substituted(&line, &substitutions));
        }
        let mut command = Command::new("bash");
        command.arg("-c").arg(script);
        let outcome = match process::try_run(&mut command, scratch.path(), limit) {
            Err(_) => "hangs".to_owned(),
            Ok(finished) if !finished.left_behind.is_empty() => "leaves processes".to_owned(),
            Ok(finished) => match finished.status.code() {
                Some(0) => "succeeds".to_owned(),
                Some(DOES_NOT_COMPILE) => "does not compile".to_owned(),
                _ => finished.status.to_string(),
            },
        };
        Trial { outcome, is_measured: has_regions(&reports, self.runtime) }
    }

    /// Returns the beginning of a script: the function that compiles a program once, and afterwards
    /// links to it.
    fn prologue(&self, program: &Path) -> String {
        let built = target_dir().join("harmless").join("llvm");
        format!(
            "set -o pipefail\n\
             compile() {{\n\
             local built={}/$(printf '%s\\n' \"$@\" | sha256sum | cut -c 1-40)\n\
             if [ ! -e \"$built\" ]; then\n\
             mkdir -p \"${{built%/*}}\" && \"$@\" -o \"$built.part\" && mv \"$built.part\" \
             \"$built\" || exit {DOES_NOT_COMPILE}\n\
             fi\n\
             ln -f \"$built\" {}\n\
             }}\n",
            quoted(&built),
            quoted(program)
        )
    }

    /// Returns the substitutions of `lit.cfg`, in its order.
    fn substitutions(
        &self,
        folder: &Path,
        source: &Path,
        program: &Path,
        launch: &str,
    ) -> Vec<(&'static str, String)> {
        let (c, cxx) = match self.runtime {
            OpenMpRuntime::Gomp => ("gcc", "g++"),
            OpenMpRuntime::Llvm | OpenMpRuntime::Intel => ("clang", "clang++"),
        };
        let flags = format!("-I {} -I {} -pthread", quoted(folder), quoted(&folder.join("ompt")));
        let compile = |compiler: &str, options: &str| {
            format!("compile {compiler} -fopenmp {flags} {options} %s -lm -latomic")
        };
        vec![
            ("%libomp-compile-and-run", "%libomp-compile && %libomp-run".to_owned()),
            ("%libomp-c99-compile-and-run", "%libomp-c99-compile && %libomp-run".to_owned()),
            ("%libomp-cxx-compile-and-run", "%libomp-cxx-compile && %libomp-run".to_owned()),
            ("%libomp-cxx-compile-c", compile(cxx, "-std=c++14 -x c++")),
            ("%libomp-cxx-compile", compile(cxx, "-std=c++14")),
            ("%libomp-compile", compile(c, "")),
            ("%libomp-c99-compile", compile(c, "-std=c99")),
            ("%libomp-run", launch.to_owned()),
            ("%clangXX", cxx.to_owned()),
            ("%clang", c.to_owned()),
            ("%openmp_flags", "-fopenmp".to_owned()),
            ("%flags-use-compiler-omp-h", flags.clone()),
            ("%flags", flags.clone()),
            ("%python", "python3".to_owned()),
            ("%sort-threads", "sort -n -s".to_owned()),
            ("FileCheck", file_check()),
            ("%s", quoted(source)),
            ("%S", quoted(source.parent().unwrap_or(folder))),
            ("%t", quoted(program)),
        ]
    }
}

/// One run of a test.
struct Trial {
    outcome: String,
    /// Whether a summary has parallel regions of the runtime.
    is_measured: bool,
}

/// Returns the folder of tests in the sources of the installed clang's version.
fn tests_folder() -> Option<PathBuf> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let find = || {
        let output = Command::new("clang").arg("-dumpversion").output().ok()?;
        let version = String::from_utf8(output.stdout).ok()?;
        let major = version.trim().split('.').next()?;
        // Tests include headers of the runtime.
        let runtime = folder_of_package(&format!("llvm-toolchain-{major}"), "openmp/runtime")?;
        Some(runtime.join("test"))
    };
    FOLDER.get_or_init(find).clone()
}

/// Returns the paths of all tests, below `folder`.
fn test_files(folder: &Path) -> Vec<String> {
    let mut found = Vec::new();
    let mut folders = vec![folder.to_owned()];
    while let Some(current) = folders.pop() {
        for entry in fs::read_dir(current).into_iter().flatten().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|ending| ending == "c" || ending == "cpp") {
                let below = path.strip_prefix(folder).unwrap_or(&path);
                found.push(below.display().to_string());
            }
        }
    }
    found.sort();
    found
}

/// Returns the command of LLVM's FileCheck, which the distribution installs with its version in the
/// name.
fn file_check() -> String {
    let versions = (14..30).rev().map(|version| format!("FileCheck-{version}"));
    let mut names = std::iter::once("FileCheck".to_owned()).chain(versions);
    names.find(|name| find_command(name).is_some()).unwrap_or_else(|| "FileCheck".to_owned())
}

/// Returns the commands of the RUN lines; a line that ends with a backslash continues in the next
/// one.
fn run_lines(source: &str) -> Vec<String> {
    let mut commands = Vec::new();
    let mut command = String::new();
    for (_, part) in source.lines().filter_map(|line| line.split_once("RUN:")) {
        command.push_str(part.trim().trim_end_matches('\\'));
        if part.trim_end().ends_with('\\') {
            command.push(' ');
        } else {
            commands.push(std::mem::take(&mut command));
        }
    }
    commands
}

/// Applies the substitutions one after the other, as `lit` does.
fn substituted(command: &str, substitutions: &[(&str, String)]) -> String {
    let apply = |command: String, (name, value): &(&str, String)| command.replace(name, value);
    substitutions.iter().fold(command.to_owned(), apply)
}

fn quoted(path: &Path) -> String {
    format!("'{}'", path.display())
}

/// Returns whether a JSON summary in `reports` has parallel regions of the runtime.
fn has_regions(reports: &Path, runtime: OpenMpRuntime) -> bool {
    let entries = fs::read_dir(reports).into_iter().flatten().flatten();
    let mut files = entries
        .map(|entry| entry.path())
        .filter(|path| path.extension().is_some_and(|e| e == "json"));
    files.any(|file| {
        let text = fs::read(file).unwrap_or_default();
        let summary: Value = serde_json::from_slice(&text).unwrap_or_default();
        let openmp = &summary["openmp"];
        let regions = openmp["regions"].as_array().map_or(0, Vec::len);
        openmp["runtime"] == runtime.name() && regions > 0
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn run_lines_are_joined_at_backslashes() {
        let source = "// RUN: %libomp-compile && env A=1 \\\n// RUN:   %libomp-run 2\n\
                      int main() { return 0; }\n// RUN: %libomp-run";
        let lines = run_lines(source);
        assert_eq!(lines, ["%libomp-compile && env A=1  %libomp-run 2", "%libomp-run"]);
    }

    #[test]
    fn substitutions_apply_in_turn() {
        let tests = LlvmTests::new(OpenMpRuntime::Gomp);
        let path = Path::new;
        let substitutions =
            tests.substitutions(path("/tests"), path("/tests/a.c"), path("/p"), "run '/p'");
        let found = substituted("%libomp-compile-and-run 7 | %sort-threads", &substitutions);
        assert_eq!(
            found,
            "compile gcc -fopenmp -I '/tests' -I '/tests/ompt' -pthread  '/tests/a.c' -lm -latomic \
             && run '/p' 7 | sort -n -s"
        );
    }
}
