//! The library's own memory according to the summary.

use plimsoll_tests::mpi::Mpi;
use plimsoll_tests::outcome::Outcome;
use plimsoll_tests::subject_job::{Job, Watch, each_mpi};
use plimsoll_tests::summary::Summary;

const KINDS: [&str; 9] = [
    "segment_bytes",
    "sampling_bytes",
    "context_bytes",
    "cluster_bytes",
    "structure_bytes",
    "debug_info_bytes",
    "spool_bytes",
    "analysis_bytes",
    "unused_bytes",
];

/// Returns the bytes of each kind and the total, after asserting that they add up.
fn kinds(summary: &Summary) -> ([f64; KINDS.len()], f64) {
    let memory = |key: &str| summary.number(&format!("/collection/memory/{key}"));
    let kinds = KINDS.map(memory);
    let total = memory("total_bytes");
    assert_eq!(kinds.iter().sum::<f64>(), total, "{}", summary.at("/collection/memory"));
    let of_each = (total / memory("ranks")).floor();
    assert_eq!(summary.number("/collection/memory_bytes"), of_each);
    (kinds, total)
}

/// Returns a job with many call paths in ranks that end iterations together.
fn job(mpi: Mpi, ranks: u32) -> Job {
    let job = Job::ranks("weighs", mpi, ranks).arguments("burn 20 2");
    job.options("--period 1ms").watch(Watch::Run)
}

/// Returns the peak memory of a rank, in bytes.
fn peak_bytes(outcome: &Outcome) -> f64 {
    let stdout = outcome.stdout();
    let mut words = stdout.split_whitespace().skip_while(|word| *word != "peak_kib");
    let kib: f64 = words.nth(1).and_then(|word| word.parse().ok()).expect("a rank says its peak");
    1024.0 * kib
}

#[test]
fn memory_is_told_by_kind() {
    for mpi in each_mpi() {
        let outcome = job(mpi, 2).run().succeeded();
        let summary = outcome.summary();
        let (kinds, total) = kinds(summary);
        assert_eq!(summary.number("/collection/memory/ranks"), 2.0);
        // The heap may be largest while functions are looked up, which needs little memory if the
        // cache has them, or while ranks are compared.
        const ALWAYS: [&str; 3] = ["segment_bytes", "sampling_bytes", "context_bytes"];
        let found = KINDS.iter().zip(kinds).filter(|(kind, _)| ALWAYS.contains(*kind));
        for (kind, bytes) in found {
            assert!(bytes > 0.0, "{kind}: {}", summary.at("/collection/memory"));
        }
        assert!(total < peak_bytes(&outcome), "{total} of {}", peak_bytes(&outcome));
        assert!(total <= 2.0 * f64::from(64 << 20));
    }
}

/// Also for a process without MPI, which collects itself.
#[test]
fn a_process_without_mpi_tells_its_memory() {
    let job = Job::alone("plain").arguments("burn 10 30").watch(Watch::Run);
    let outcome = job.run().succeeded();
    kinds(outcome.summary());
    assert_eq!(outcome.summary().number("/collection/memory/ranks"), 1.0);
}
