//! Exports of a real job, opened with the tools that they are made for: each tool reads the times
//! of the summary and of the per-rank file.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::Command;

use plimsoll_tests::artifacts::artifacts;
use plimsoll_tests::mpi::Mpi;
use plimsoll_tests::outcome::Outcome;
use plimsoll_tests::readers::{self, Lanes};
use plimsoll_tests::retry_on_noise::retry_on_noise;
use plimsoll_tests::subject_job::{Job, Watch};
use plimsoll_tests::truth::assert_within;
use serde_json::Value;

const RANKS: usize = 4;
/// Relative tolerance of times.
const TOLERANCE: f64 = 1e-3;
/// Allowed difference of short times: formats count in microseconds, and a function's time is the
/// sum of several rounded ones.
const ROUNDING_S: f64 = 2e-6;
/// Relative difference between a representative iteration and the mean of those it stands for.
const NEAR_THE_MEAN: f64 = 0.05;

/// Runs four ranks that sleep; the last one sleeps three times as long as the others, which wait.
fn job() -> Outcome {
    Job::ranks("imbalance", Mpi::OpenMpi, RANKS as u32)
        .arguments("sleep 30 10 3")
        .watch(Watch::Run)
        .run()
        .succeeded()
}

fn export(job: &Outcome, format: &str) -> PathBuf {
    export_as(job, format, &["--format", format])
}

fn export_as(job: &Outcome, extension: &str, options: &[&str]) -> PathBuf {
    let summary = job.files_ending(".plimsoll.json").remove(0);
    let file = summary.with_extension(extension);
    let exported = Command::new(&artifacts().command)
        .arg("report")
        .args(options)
        .arg("--output")
        .args([&file, &summary])
        .output()
        .expect("the command was built");
    let messages = String::from_utf8_lossy(&exported.stderr);
    assert!(exported.status.success() && messages.is_empty(), "{options:?}: {messages}");
    file
}

const FUNCTIONS: [&str; 4] = ["main", "work_even", "work_uneven", "MPI_Allreduce"];

/// Returns the sum of a function's values in a lane. Formats without source lines have those of MPI
/// calls in the names.
fn of_function(lane: &BTreeMap<String, f64>, function: &str) -> f64 {
    let is_site = |name: &str| name.strip_prefix(function).is_some_and(|it| it.starts_with(" at "));
    let values = lane.iter().filter(|(name, _)| *name == function || is_site(name));
    values.map(|(_, value)| value).sum()
}

/// Asserts that a tool reads a time of the summary, as far as the format of the export allows.
#[track_caller]
fn assert_same_time(what: &str, found_s: f64, truth_s: f64) {
    if (found_s - truth_s).abs() > ROUNDING_S {
        assert_within(what, found_s, truth_s, TOLERANCE);
    }
}

/// Compares the times that a tool reads with the summary: each rank as a whole, and functions by
/// name. Returns the wait time of the first and the last rank.
#[track_caller]
fn assert_same(job: &Outcome, tool: &str, lanes: &Lanes, prefix: &str) -> (f64, f64) {
    let summary = job.summary();
    let per_rank = summary.per_rank().expect("a job of several ranks has the times of each");
    let of = |nodes: &[usize], rank: usize| -> f64 {
        let times = nodes.iter().filter_map(|node| per_rank.of(*node as u64, "inclusive_s"));
        times.map(|times| times[rank]).sum()
    };
    let nodes = summary.at("/tree/nodes").as_array().expect("a list");
    let roots: Vec<usize> = (0..nodes.len()).filter(|at| nodes[*at]["parent"].is_null()).collect();
    for rank in 0..RANKS {
        let lane = &lanes[&format!("{prefix}rank {rank}")];
        assert_same_time(&format!("{tool}, rank {rank}"), lane[""], of(&roots, rank));
        for function in FUNCTIONS {
            let time_s = of(&summary.of_function(function).nodes, rank);
            let what = format!("{tool}, {function} on rank {rank}");
            assert_same_time(&what, of_function(lane, function), time_s);
        }
    }
    // In waiting ranks, the wait time is a frame of its own.
    let wait_s = |rank: usize| lanes[&format!("{prefix}rank {rank}")]["[waiting]"];
    (wait_s(0), wait_s(RANKS - 1))
}

/// Compares what a tool with a time axis reads with the timeline's cells, the calls and the phases.
/// Returns the wait times of [`assert_same`].
#[track_caller]
fn assert_same_course(job: &Outcome, tool: &str, lanes: &Lanes) -> (f64, f64) {
    let waits_s = assert_same(job, tool, lanes, "totals: ");
    let summary = job.summary();
    let file = job.files_ending(".plimsoll.timeline").remove(0);
    let timeline: Value = serde_json::from_slice(&fs::read(file).expect("a file")).expect("JSON");
    let columns = timeline["columns"].as_u64().expect("a number") as usize;
    let time = |key: &str| timeline[key].as_f64().expect("a time");
    let (first_s, width_s) = (time("begin_s"), (time("end_s") - time("begin_s")) / columns as f64);
    let begin_s = |column: usize| (first_s + column as f64 * width_s).max(0.0);
    let is_below = |node, of: &[usize]| summary.outwards(node).any(|at| of.contains(&at));
    let cells = timeline["cells"].as_array().expect("a list");
    for (rank, row) in cells.chunks_exact(columns).enumerate() {
        for function in FUNCTIONS {
            let of = summary.of_function(function).nodes;
            let is_in = |cell: &Value| {
                let node = cell.as_u64().and_then(|at| timeline["nodes"][at as usize].as_u64());
                node.is_some_and(|node| is_below(node as usize, &of))
            };
            let columns = (0..columns).filter(|column| is_in(&row[*column]));
            let truth_s: f64 = columns.map(|column| begin_s(column + 1) - begin_s(column)).sum();
            let found_s = of_function(&lanes[&format!("timeline: rank {rank}")], function);
            let what = format!("{tool}, {function} in the timeline of rank {rank}");
            assert_same_time(&what, found_s, truth_s);
        }
        let calls = &lanes[&format!("calls, totals: rank {rank}")];
        let truth = summary.of_function("MPI_Allreduce").calls;
        assert_eq!(of_function(calls, "MPI_Allreduce"), truth, "{tool}, calls");
    }
    for phase in summary.at("/phases").as_array().expect("a list") {
        if phase["instances"] == 1 {
            let found_s = lanes["phases"][&format!("phase {}", phase["id"])];
            let truth_s = phase["duration_s"].as_f64().expect("a time");
            assert_same_time(&format!("{tool}, {phase}"), found_s, truth_s);
        }
    }
    waits_s
}

/// Returns the durations of the representative iterations that a tool reads, each with the mean
/// duration of the iterations that it stands for.
#[track_caller]
fn iterations(job: &Outcome, tool: &str, lanes: &Lanes) -> Vec<(f64, f64)> {
    let clusters = job.summary().loop_of("main")["clusters"].as_array().expect("a list").clone();
    let mut truths: Vec<f64> =
        clusters.iter().map(|cluster| cluster["mean_s"].as_f64().expect("a time")).collect();
    let of_main = lanes.iter().filter(|(name, _)| {
        name.contains("representative iterations of the loop") && !name.starts_with("calls")
    });
    let mut found: Vec<f64> = of_main.map(|(_, lane)| lane[""]).collect();
    truths.sort_by(f64::total_cmp);
    found.sort_by(f64::total_cmp);
    assert_eq!(found.len(), truths.len(), "{tool}: {:?}", lanes.keys());
    found.into_iter().zip(truths).collect()
}

/// Times that tools read and that depend on the machine's cores: pairs of seconds, with the tool.
#[derive(Default)]
struct Measured {
    /// Wait time of the first and the last rank.
    waits: Vec<(&'static str, (f64, f64))>,
    /// Duration of a representative iteration, and the mean of those it stands for.
    iterations: Vec<(&'static str, (f64, f64))>,
}

#[test]
#[ignore = "long: scripts/test --all"]
fn every_tool_reads_what_the_summary_says() {
    retry_on_noise(opened_with_every_tool, |Measured { waits, iterations }| {
        for (tool, (first_s, last_s)) in waits {
            assert!(*first_s > 0.4 && *first_s > 3.0 * last_s, "{tool}: {first_s} {last_s}");
        }
        for (tool, (found_s, truth_s)) in iterations {
            assert_within(&format!("{tool}, an iteration"), *found_s, *truth_s, NEAR_THE_MEAN);
        }
    });
}

/// Runs a job and compares what each tool reads in its exports with its summary.
fn opened_with_every_tool() -> Measured {
    let (job, mut measured) = (job(), Measured::default());
    let names: Vec<String> = (0..RANKS).map(|rank| format!("rank {rank}")).collect();
    let open = |format: &str, tool: readers::Tool| tool(&export(&job, format));
    if let Some(lanes) = open("speedscope", readers::speedscope) {
        measured.waits.push(("speedscope", assert_same(&job, "speedscope", &lanes, "")));
        assert_eq!(lanes.len(), RANKS);
    }
    if let Some(lanes) = open("hatchet", readers::hatchet) {
        measured.waits.push(("hatchet", assert_same(&job, "hatchet", &lanes, "")));
    }
    if let Some(text) = readers::numpy(&job.files_ending(".plimsoll.json")[0]) {
        let cause = job.summary().number("/losses/0/causes/0/node") as u64;
        let per_rank = job.summary().per_rank().expect("it has the times of single ranks");
        let (times_s, lines) = (per_rank.of(cause, "inclusive_s"), text.split(['[', ']']));
        let lines: Vec<Vec<f64>> =
            lines.map(|line| line.split_whitespace().flat_map(str::parse).collect()).collect();
        assert_eq!(lines[1], [0.0, 1.0, 2.0, 3.0], "{text}");
        for (found_s, truth_s) in lines[3].iter().zip(times_s.expect("all are in it")) {
            assert_within("numpy", *found_s, truth_s, 1e-6);
        }
    }
    let viewers: [(&'static str, readers::Tool); 2] =
        [("perfetto", readers::perfetto), ("firefox", readers::firefox)];
    for (format, tool) in viewers {
        if let Some(lanes) = open(format, tool) {
            measured.waits.push((format, assert_same_course(&job, format, &lanes)));
        }
        let options = ["--format", format, "--iterations", "representative"];
        let file = export_as(&job, &format!("{format}.iterations"), &options);
        if let Some(lanes) = tool(&file) {
            let pairs = iterations(&job, format, &lanes);
            measured.iterations.extend(pairs.into_iter().map(|pair| (format, pair)));
        }
    }
    let file = export(&job, "pprof");
    let pprof = readers::pprof(&file, names.iter().map(String::as_str));
    measured.waits.push(("pprof", assert_same(&job, "pprof", &pprof, "")));
    // speedscope also reads pprof's format and collapsed stacks, all ranks as one.
    let whole_s: f64 = pprof.values().map(|lane| lane[""]).sum();
    let collapsed = export(&job, "collapsed");
    for lanes in [&file, &collapsed].into_iter().filter_map(|file| readers::speedscope(file)) {
        let (_, lane) = lanes.first_key_value().expect("a profile");
        assert_same_time("speedscope, all ranks", lane[""], whole_s);
        let uneven_s: f64 = pprof.values().map(|lane| lane["work_uneven"]).sum();
        assert_same_time("speedscope, work_uneven", lane["work_uneven"], uneven_s);
    }
    measured
}
