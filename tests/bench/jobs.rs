//! Costs of a whole job: the wait in MPI_Finalize, memory in each rank, bytes in the rings.

use plimsoll_tests::mpi::Mpi;
use plimsoll_tests::outcome::Outcome;
use plimsoll_tests::subject_job::{Job, Watch};

use crate::row::Row;
use crate::statistics::{least, median};

/// Measures the time from the entry of MPI_Finalize to the summary on disk; the baseline is
/// MPI_Finalize without Plimsoll.
pub fn finalize_rows(ranks: u32, runs: usize) -> Vec<Row> {
    let job = |watch| run(ranks, "sleep 10 5", "", watch);
    let (mut bare, mut watched) = (Vec::new(), Vec::new());
    for _ in 0..runs {
        bare.push(longest(&printed(&job(Watch::Off), "finalize_s")));
        watched.push(job(Watch::Run).summary().number("/collection/finalize_s"));
    }
    let name = format!("MPI_Finalize to the summary on disk, {ranks} ranks");
    vec![Row::new(&name, "weighs sleep", least(watched), "s", least(bare)).target(0.5)]
}

/// Measures the resident memory that a rank has in addition: before MPI_Finalize, and at most.
pub fn memory_rows(iterations: u32, runs: usize) -> Vec<Row> {
    const RANKS: u32 = 4;
    let arguments = format!("burn {iterations} 2");
    let mut rows = Vec::new();
    let pairs: Vec<(Outcome, Outcome)> = (0..runs)
        .map(|_| {
            let job = |watch| run(RANKS, &arguments, "--period 1ms", watch);
            (job(Watch::Off), job(Watch::Run))
        })
        .collect();
    // Ranks without a collector, and the leader, which runs the node's collector.
    let which = [(1..RANKS as usize, "a rank"), (0..1, "the collecting rank")];
    let whens = [
        ("resident_kib", "before MPI_Finalize", [8.0, 10.0]),
        ("peak_kib", "at the peak", [8.0, 16.0]),
    ];
    for (key, when, targets) in whens {
        let mib = |outcome: &Outcome| -> Vec<f64> {
            printed(outcome, key).into_iter().map(|kib| kib / 1024.0).collect()
        };
        for ((which, who), target) in which.clone().into_iter().zip(targets) {
            let of = |outcome: &Outcome| median(&mut mib(outcome)[which.clone()].to_vec());
            let bare = least(pairs.iter().map(|(bare, _)| of(bare)));
            let watched = least(pairs.iter().map(|(_, watched)| of(watched)));
            let name = format!("resident memory added to {who}, {when}");
            rows.push(Row::new(&name, "weighs burn", watched - bare, "MiB", bare).target(target));
        }
    }
    rows
}

/// Measures the bytes in the rings per sample, for a program without wrapped calls.
pub fn ring_rows(iterations: u32) -> Vec<Row> {
    let arguments = format!("burn {iterations} 10");
    let job = Job::alone("plain").arguments(&arguments).watch(Watch::Run).options("--period 1ms");
    let job = job.run().succeeded();
    let of = |key: &str| job.summary().number(&format!("/collection/{key}"));
    let bytes = of("record_bytes") / of("samples").max(1.0);
    vec![
        Row::new("bytes per sample in the ring, whole job", "plain", bytes, "bytes", 0.0)
            .target(4.0),
    ]
}

fn run(ranks: u32, arguments: &str, options: &str, watch: Watch) -> Outcome {
    let job = Job::ranks("weighs", Mpi::OpenMpi, ranks).arguments(arguments);
    job.options(options).watch(watch).run().succeeded()
}

/// Returns the values that the ranks printed under a key, by rank.
fn printed(outcome: &Outcome, key: &str) -> Vec<f64> {
    let mut found: Vec<(u32, f64)> = outcome
        .stdout()
        .lines()
        .filter_map(|line| {
            let words: Vec<&str> = line.split_whitespace().collect();
            let at = words.iter().position(|word| *word == key)?;
            Some((words.get(1)?.parse().ok()?, words.get(at + 1)?.parse().ok()?))
        })
        .collect();
    found.sort_by_key(|(rank, _)| *rank);
    found.into_iter().map(|(_, value)| value).collect()
}

fn longest(values: &[f64]) -> f64 {
    values.iter().copied().fold(0.0, f64::max)
}
