//! Benchmark of Plimsoll's own costs, each beside a baseline: the same run without Plimsoll, or
//! with something in its place that does nothing. Nothing is asserted: times on a shared machine
//! prove little, so a person reads them.
//!
//! usage: plimsoll-bench [--quick] [--json FILE] [PART...]
//!
//! Each part runs in a process of its own, since a process can be observed only once.

mod calls;
mod finalize;
mod generated;
mod handler;
mod jobs;
mod large_runs;
mod life;
mod node_threads;
mod page_cost;
mod ranks;
mod reduction;
mod rings;
mod row;
mod sampling;
mod spools;
mod statistics;
mod structure;
mod thread_profiles;
mod watched;
mod what_if;

use std::path::PathBuf;
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use plimsoll_agent::marks::Marks;
use plimsoll_tests::artifacts::{artifacts, target_dir};
use row::Row;
use serde_json::Value;

/// The parts in the order of the table.
const PARTS: &[&str] = &[
    "handler-marked",
    "handler-unmarked",
    "handler-events",
    "handler-hardware",
    "sampling-4ms",
    "sampling-1ms",
    "calls",
    "bytes",
    "collector-1",
    "collector-16",
    "collector-64",
    "node-1",
    "node-64",
    "spooled-1",
    "spooled-16",
    "spooled-64",
    "spool",
    "digest",
    "finalize-2",
    "finalize-4",
    "finalize-8",
    "finalize-16",
    "finalize-lammps",
    "page-lammps",
    "reduction",
    "reduction-lammps",
    "memory",
    "structure",
    "loops",
    "start",
    "threads",
    "switches",
    "thread-profiles",
    "compare",
    "whatif",
];

/// Measures the rows of a part; `quick` measures just enough to show that the part works.
fn measure(part: &str, quick: bool) -> Vec<Row> {
    let choose = |quickly: usize, thoroughly: usize| if quick { quickly } else { thoroughly };
    match part {
        "handler-marked" => handler::rows(choose(50, 20_000), Marks::On),
        "handler-unmarked" => handler::rows(choose(50, 20_000), Marks::Off),
        // Types and numbers of the events: linux/perf_event.h.
        "handler-events" => {
            let events = handler::events(1, [("page-faults", 2), ("context-switches", 3)]);
            handler::counting_rows(choose(50, 20_000), events)
        }
        "handler-hardware" => {
            let events = handler::events(0, [("cycles", 0), ("instructions", 1)]);
            handler::counting_rows(choose(50, 20_000), events)
        }
        "sampling-4ms" => sampling::rows(4_000_000, choose(1, 60)),
        "sampling-1ms" => sampling::rows(1_000_000, choose(1, 60)),
        "calls" => calls::rows(choose(1, 5), choose(100, 20_000) as u32),
        "bytes" => jobs::ring_rows(choose(2, 50) as u32),
        "spool" => spools::size_rows(choose(2, 600) as u32, choose(10, 1000) as u32),
        "digest" => spools::digest_rows(choose(2, 300) as u32, choose(1, 50) as u32),
        "finalize-lammps" => finalize::lammps_rows(choose(20, 500) as u32),
        "page-lammps" => page_cost::lammps_rows(choose(20, 120) as u32, choose(2, 20)),
        "reduction" => reduction::generated_rows(choose(3, 12) as u32, choose(6, 20) as u32),
        "reduction-lammps" => reduction::lammps_rows(
            choose(20, 500) as u32,
            choose(3, 11) as u32,
            choose(6, 20) as u32,
        ),
        "memory" => jobs::memory_rows(choose(1, 100) as u32, choose(1, 2)),
        "structure" => structure::lammps_rows(choose(5, 500) as u32),
        "loops" => structure::memory_rows(choose(5, 1500) as u32),
        "start" => life::rows(choose(2, 40)),
        "compare" => large_runs::rows(choose(1000, 100_000) as u32),
        "whatif" => what_if::rows(choose(1, 3), quick),
        "thread-profiles" => thread_profiles::rows(
            choose(4, 128) as u32,
            if quick { &[4, 16] } else { &[4, 16, 64, 256, 1024] },
        ),
        "threads" => life::thread_rows(choose(20, 5000) as u32, choose(1, 10)),
        "switches" => life::switch_rows(choose(2000, 4_000_000) as u32, choose(1, 3)),
        _ => {
            let Some((kind, Ok(number))) =
                part.split_once('-').map(|(kind, number)| (kind, number.parse::<u32>()))
            else {
                panic!("there is no part {part}; there are {}", PARTS.join(" "));
            };
            let duration = Duration::from_millis(choose(200, 3000) as u64);
            match kind {
                "collector" => rings::rows(number as usize, duration, false),
                "node" => {
                    let duration = Duration::from_secs(choose(1, 10) as u64);
                    node_threads::rows(choose(2, 128), number as usize, duration)
                }
                "spooled" => rings::rows(number as usize, duration, true),
                "finalize" => jobs::finalize_rows(number, choose(1, 3)),
                _ => panic!("there is no part {part}; there are {}", PARTS.join(" ")),
            }
        }
    }
}

struct Arguments {
    quick: bool,
    /// Part to measure in this process; `None` in the parent.
    measure: Option<String>,
    /// Number of threads of this process, which another one observes.
    observe: Option<usize>,
    json: PathBuf,
    parts: Vec<String>,
}

fn arguments() -> Result<Arguments, String> {
    let json = target_dir().join("bench").join("table.json");
    let mut found =
        Arguments { quick: false, measure: None, observe: None, json, parts: Vec::new() };
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut value = |what: &str| words.next().ok_or(format!("{what} needs a value"));
        match word.as_str() {
            "--quick" => found.quick = true,
            "--json" => found.json = value("--json")?.into(),
            "--measure" => found.measure = Some(value("--measure")?),
            "--observe" => found.observe = value("--observe")?.parse().ok(),
            option if option.starts_with('-') => return Err(format!("no option {option}")),
            part => found.parts.push(part.to_owned()),
        }
    }
    if found.parts.is_empty() {
        found.parts = PARTS.iter().map(ToString::to_string).collect();
    }
    Ok(found)
}

/// Measures a part in a process of its own.
fn in_child(part: &str, quick: bool) -> Result<Vec<Row>, String> {
    let me = std::env::current_exe().map_err(|error| error.to_string())?;
    let mut command = Command::new(me);
    command.args(["--measure", part]).stderr(Stdio::inherit());
    if quick {
        command.arg("--quick");
    }
    let output = command.output().map_err(|error| error.to_string())?;
    if !output.status.success() {
        return Err(format!("measuring {part} ended with {}", output.status));
    }
    let rows: Value = serde_json::from_slice(&output.stdout).map_err(|error| error.to_string())?;
    let rows = rows.as_array().into_iter().flatten().filter_map(Row::from_json);
    Ok(rows.collect())
}

fn run() -> Result<(), String> {
    let arguments = arguments()?;
    let as_json = |rows: &[Row]| Value::from_iter(rows.iter().map(Row::to_json));
    if let Some(threads) = arguments.observe {
        node_threads::observe(threads);
        return Ok(());
    }
    if let Some(part) = &arguments.measure {
        println!("{}", as_json(&measure(part, arguments.quick)));
        return Ok(());
    }
    artifacts();
    let mut rows = Vec::new();
    for part in &arguments.parts {
        eprintln!("measuring {part}");
        rows.extend(in_child(part, arguments.quick)?);
    }
    if let Some(folder) = arguments.json.parent() {
        std::fs::create_dir_all(folder).map_err(|error| error.to_string())?;
    }
    let text = format!("{:#}\n", as_json(&rows));
    std::fs::write(&arguments.json, text)
        .map_err(|error| format!("{}: {error}", arguments.json.display()))?;
    print!("{}", row::table(&rows));
    println!("also in {}", arguments.json.display());
    Ok(())
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("plimsoll-bench: {message}");
            ExitCode::FAILURE
        }
    }
}
