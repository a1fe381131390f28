//! Size of a spool on disk, and the speed of its digest.

use std::path::Path;
use std::time::Instant;

use plimsoll_collector::digest::Digest;
use plimsoll_tests::artifacts::workspace_dir;
use plimsoll_tests::mpi::Mpi;
use plimsoll_tests::outcome::Outcome;
use plimsoll_tests::subject::Form;
use plimsoll_tests::subject_job::{Job, Watch};

use crate::row::Row;

/// Measures the bytes on disk per sample, for a program without wrapped calls and for LAMMPS in 8
/// ranks, everything in a spool included; the baseline is the bytes in the rings.
pub fn size_rows(iterations: u32, steps: u32) -> Vec<Row> {
    let plain = |period: &str| {
        let arguments = format!("burn {iterations} 10");
        let job = Job::alone("plain").arguments(&arguments).options(&format!("--period {period}"));
        size_row(&format!("spool, whole job, {period}"), "plain", &job.watch(Watch::Run).run())
    };
    let mut rows = vec![plain("4ms"), plain("1ms")];
    if Mpi::OpenMpi.available() {
        let input = workspace_dir().join("tests/lammps/droplet.in");
        let job = Job::ranks("lmp", Mpi::OpenMpi, 8)
            .form(Form::Installed)
            .arguments(&format!("-in {} -log none -var steps {steps}", input.display()))
            .variable("OMP_NUM_THREADS", "1")
            .watch(Watch::Run)
            .run();
        rows.push(size_row("spool, whole job, 4ms", "lammps droplet", &job));
    }
    rows
}

fn size_row(name: &str, subject: &str, job: &Outcome) -> Row {
    let summary = job.summary();
    let each = |key: &str| {
        let samples = summary.number("/collection/samples").max(1.0);
        summary.number(&format!("/collection/{key}")) / samples
    };
    let name = format!("bytes per sample in the {name}");
    Row::new(&name, subject, each("spool_bytes"), "bytes", each("record_bytes")).target(2.0)
}

/// Measures the time that one core needs to make a profile of samples, names included, without
/// opening the spool.
pub fn digest_rows(iterations: u32, times: u32) -> Vec<Row> {
    let job = Job::alone("plain").arguments(&format!("burn {iterations} 10"));
    let job = job.options("--period 100us").watch(Watch::Run).run().succeeded();
    let samples = job.summary().number("/collection/samples");
    let spool = job.files_ending(".spool").remove(0);
    let mut digest = open(&spool);
    let begin = Instant::now();
    for _ in 0..times {
        let profile = digest.profile(0, |_| {}).expect("it is ours").expect("it has a process");
        assert_eq!(profile.collection.samples as f64, samples);
    }
    let each_ns = begin.elapsed().as_secs_f64() * 1e9 / samples / f64::from(times);
    let opened = Instant::now();
    drop(open(&spool));
    let opening_ms = opened.elapsed().as_secs_f64() * 1e3;
    vec![
        Row::new("digest on one core, per sample", "plain", each_ns, "ns", 0.0).target(200.0),
        Row::new("opening a spool", "plain", opening_ms, "ms", 0.0),
    ]
}

fn open(spool: &Path) -> Digest {
    Digest::open(spool).unwrap_or_else(|error| panic!("{}: {error}", spool.display()))
}
