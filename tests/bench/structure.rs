//! Costs of loops, inlined calls and lines: for a real program, with an empty cache and with the
//! cache of an earlier job; and the memory for the loops of a long run.

use std::fs;
use std::time::Duration;

use plimsoll_tests::artifacts::workspace_dir;
use plimsoll_tests::mpi::Mpi;
use plimsoll_tests::scratch::Scratch;
use plimsoll_tests::subject::Form;
use plimsoll_tests::subject_job::{Job, Watch};
use plimsoll_tests::summary::Summary;

use crate::row::Row;

const LIMIT: Duration = Duration::from_secs(1800);
const LONGER: u32 = 12;
const LAMMPS: &str = "LAMMPS, droplet, 2 ranks";

/// Measures the CPU time for structure, the part of it left for the end, memory, and the
/// collector's total CPU time per sample. The baseline of the first is the next job, which uses the
/// cache of this one.
pub fn lammps_rows(steps: u32) -> Vec<Row> {
    let scratch = Scratch::new("structure");
    let cache = scratch.path().join("cache");
    fs::create_dir_all(&cache).expect("the folder is ours");
    // The last job is long, so that one-time costs are a small fraction.
    let [cold, warm, long] = [steps, steps, LONGER * steps].map(|steps| {
        let input = workspace_dir().join("tests/lammps/droplet.in");
        let arguments = format!("-in {} -log none -var steps {steps}", input.display());
        Job::ranks("lmp", Mpi::OpenMpi, 2)
            .form(Form::Installed)
            .arguments(&format!("{arguments} -var across 1"))
            .variable("OMP_NUM_THREADS", "1")
            .variable("XDG_CACHE_HOME", &cache)
            .watch(Watch::Run)
            .limit(LIMIT)
            .run()
            .succeeded()
            .summary()
            .clone()
    });
    let of = |summary: &Summary, key: &str| summary.number(&format!("/collection/{key}"));
    let cpu_s = |summary: &Summary| of(summary, "structure_cpu_s");
    let late = |summary: &Summary| {
        100.0 * of(summary, "late_structure_cpu_s") / cpu_s(summary).max(f64::MIN_POSITIVE)
    };
    let mib = |summary: &Summary| of(summary, "memory_bytes") / f64::from(1 << 20);
    let each_us =
        |summary: &Summary| 1e6 * of(summary, "collector_cpu_s") / of(summary, "samples").max(1.0);
    let row = |name: &str, value, unit, baseline| Row::new(name, LAMMPS, value, unit, baseline);
    vec![
        row("structure: CPU time, without and with a cache", cpu_s(&cold), "s", cpu_s(&warm)),
        row(
            "MPI_Finalize, without and with a cache",
            of(&cold, "finalize_s"),
            "s",
            of(&warm, "finalize_s"),
        )
        .target(0.4),
        row(
            "structure: part after the run, without and with a cache",
            late(&cold),
            "%",
            late(&warm),
        )
        .target(5.0),
        row(
            "collector CPU per sample, without and with a cache",
            each_us(&cold),
            "us",
            each_us(&warm),
        )
        .target(2.0),
        row(
            "collector CPU per sample in a run 12 times as long",
            each_us(&long),
            "us",
            each_us(&warm),
        )
        .target(2.0),
        row(
            "memory of names and structure, without and with a cache",
            mib(&cold),
            "MiB",
            mib(&warm),
        ),
    ]
}

/// Measures the memory after ten times the number of iterations of one loop.
pub fn memory_rows(iterations: u32) -> Vec<Row> {
    let run = |iterations: u32| {
        let job = Job::ranks("imbalance", Mpi::OpenMpi, 2).watch(Watch::Run);
        let job = job.arguments(&format!("sleep {iterations} 10 3")).limit(LIMIT);
        job.run().succeeded().summary().number("/collection/memory_bytes") / 1024.0
    };
    let short = run(iterations);
    let long = run(10 * iterations);
    let name = format!("memory after {} iterations, and after {iterations}", 10 * iterations);
    vec![Row::new(&name, "imbalance", long, "KiB", short).target(1.05 * short)]
}
