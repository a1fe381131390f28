//! Readers of exports, with the tools that the formats are made for: speedscope's importers,
//! hatchet, Perfetto's protobuf schema, `go tool pprof`.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::artifacts::workspace_dir;
use crate::wheels::{environment, unavailable};

/// Seconds by lane and frame, as a tool reads them. The frame with an empty name is the whole lane.
pub type Lanes = BTreeMap<String, BTreeMap<String, f64>>;

/// Opens a file with speedscope's importers: its own format, collapsed stacks, pprof.
///
/// # Panics
/// If speedscope is not installed or refuses the file.
pub fn speedscope(file: &Path) -> Lanes {
    let mut node = Command::new("node");
    node.arg(script("speedscope.cjs")).arg(installed("speedscope")).arg(file);
    lanes(node)
}

/// Opens a file with hatchet's GraphFrame.
///
/// # Panics
/// If hatchet is not installed or refuses the file.
pub fn hatchet(file: &Path) -> Lanes {
    python("hatchet_totals.py", file)
}

/// Opens a file with the protobuf descriptors of Perfetto. Lanes begin with `totals: ` or
/// `timeline: `.
///
/// # Panics
/// If the descriptors are not installed, or the file has fields unknown to them.
pub fn perfetto(file: &Path) -> Lanes {
    python("perfetto_totals.py", file)
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

fn python(name: &str, file: &Path) -> Lanes {
    let mut python = Command::new(installed("readers").join("bin/python"));
    python.arg(script(name)).arg(file);
    lanes(python)
}

fn script(name: &str) -> PathBuf {
    workspace_dir().join("tests/readers").join(name)
}

fn installed(name: &str) -> PathBuf {
    if let Some(reason) = unavailable(name) {
        panic!("{reason}");
    }
    environment(name)
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

fn output(mut command: Command) -> String {
    let ended = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let messages = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{command:?} fails:\n{messages}");
    String::from_utf8_lossy(&ended.stdout).into_owned()
}
