//! Exports of a real job, opened with the tools that they are made for: each tool reads the times
//! of the summary and of the per-rank file.

use std::path::{Path, PathBuf};
use std::process::Command;

use plimsoll_tests::artifacts::artifacts;
use plimsoll_tests::mpi::Mpi;
use plimsoll_tests::outcome::Outcome;
use plimsoll_tests::per_rank_check::Quantity;
use plimsoll_tests::readers::{self, Lanes};
use plimsoll_tests::subject_job::{Job, Watch};
use plimsoll_tests::truth::assert_within;

const RANKS: usize = 4;
/// Relative tolerance: a thousandth, as the formats round.
const TOLERANCE: f64 = 1e-3;

/// Runs four ranks that sleep; the last one sleeps three times as long as the others, which wait.
fn job() -> Outcome {
    Job::ranks("imbalance", Mpi::OpenMpi, RANKS as u32)
        .arguments("sleep 30 10 3")
        .watch(Watch::Run)
        .shares_cores()
        .run()
        .succeeded()
}

fn export(job: &Outcome, format: &str) -> PathBuf {
    let summary = job.files_ending(".plimsoll.json").remove(0);
    let file = summary.with_extension(format);
    let exported = Command::new(&artifacts().command)
        .args(["report", "--format", format, "--output"])
        .args([&file, &summary])
        .output()
        .expect("the command was built");
    let messages = String::from_utf8_lossy(&exported.stderr);
    assert!(exported.status.success() && messages.is_empty(), "{format}: {messages}");
    file
}

/// Compares the times that a tool reads with the summary: each rank as a whole, and functions by
/// name.
#[track_caller]
fn assert_same(job: &Outcome, tool: &str, lanes: &Lanes, prefix: &str) {
    let summary = job.summary();
    let per_rank = summary.per_rank().expect("a job of several ranks has the times of each");
    let of = |nodes: &[usize], rank: usize| -> f64 {
        let times = nodes.iter().filter_map(|node| per_rank.of(*node as u64, Quantity::Inclusive));
        times.map(|times| times[rank]).sum()
    };
    let nodes = summary.at("/tree/nodes").as_array().expect("a list");
    let roots: Vec<usize> = (0..nodes.len()).filter(|at| nodes[*at]["parent"].is_null()).collect();
    for rank in 0..RANKS {
        let lane = &lanes[&format!("{prefix}rank {rank}")];
        assert_within(&format!("{tool}, rank {rank}"), lane[""], of(&roots, rank), TOLERANCE);
        for function in ["main", "work_even", "work_uneven", "MPI_Allreduce"] {
            let time_s = of(&summary.of_function(function).nodes, rank);
            let what = format!("{tool}, {function} on rank {rank}");
            assert_within(&what, lane[function], time_s, TOLERANCE);
        }
    }
    // In waiting ranks, the wait time is a frame of its own.
    let wait_s = |rank: usize| lanes[&format!("{prefix}rank {rank}")]["[waiting]"];
    assert!(wait_s(0) > 0.4 && wait_s(0) > 3.0 * wait_s(3), "{tool}: {} {}", wait_s(0), wait_s(3));
}

#[test]
fn every_tool_reads_what_the_summary_says() {
    let job = job();
    let names: Vec<String> = (0..RANKS).map(|rank| format!("rank {rank}")).collect();
    let open = |format: &str, tool: fn(&Path) -> Lanes| tool(&export(&job, format));
    let speedscope = open("speedscope", readers::speedscope);
    assert_same(&job, "speedscope", &speedscope, "");
    assert_eq!(speedscope.len(), RANKS);
    assert_same(&job, "hatchet", &open("hatchet", readers::hatchet), "");
    assert_same(&job, "Perfetto", &open("perfetto", readers::perfetto), "totals: ");
    let file = export(&job, "pprof");
    let pprof = readers::pprof(&file, names.iter().map(String::as_str));
    assert_same(&job, "pprof", &pprof, "");
    // speedscope also reads pprof's format and collapsed stacks, all ranks as one.
    let whole_s: f64 = pprof.values().map(|lane| lane[""]).sum();
    for lanes in [readers::speedscope(&file), open("collapsed", readers::speedscope)] {
        let (_, lane) = lanes.first_key_value().expect("a profile");
        assert_within("speedscope, all ranks", lane[""], whole_s, TOLERANCE);
        let uneven_s: f64 = pprof.values().map(|lane| lane["work_uneven"]).sum();
        assert_within("speedscope, work_uneven", lane["work_uneven"], uneven_s, TOLERANCE);
    }
}
