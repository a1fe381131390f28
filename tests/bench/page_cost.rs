//! Cost of the page on rank 0 at MPI_Finalize: this process writes the page of a job again, from
//! the job's own files.

use std::fs;
use std::path::Path;

use plimsoll_report::write_page;
use plimsoll_summary::Summary;
use plimsoll_sys::posix_clocks::clock_ns;
use plimsoll_tests::outcome::Outcome;

use crate::finalize::lammps;
use crate::row::Row;
use crate::statistics::least;

const RANKS: u32 = 8;
const MIB: f64 = (1 << 20) as f64;

/// Measures the CPU time and the memory of the page of LAMMPS in 8 ranks.
pub fn lammps_rows(steps: u32, runs: usize) -> Vec<Row> {
    rows(&lammps(RANKS, steps), runs)
}

fn rows(job: &Outcome, runs: usize) -> Vec<Row> {
    let path = job.files_ending(".json").pop().unwrap_or_else(|| panic!("{}", job.transcript()));
    let read = fs::read(&path).map_err(|error| error.to_string());
    let summary =
        read.and_then(|json| Summary::from_json(&json).map_err(|error| error.to_string()));
    let summary = summary.unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let mut memory_mib: f64 = 0.0;
    let times = (0..runs).map(|_| {
        let before_kib = resident_kib("VmRSS");
        // The kernel's peak begins anew.
        fs::write("/proc/self/clear_refs", "5").unwrap_or_else(|error| panic!("{error}"));
        let begin_ns = clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID);
        write(&summary, &path);
        let cpu_ns = clock_ns(libc::CLOCK_PROCESS_CPUTIME_ID) - begin_ns;
        memory_mib = memory_mib.max((resident_kib("VmHWM") - before_kib) * 1024.0 / MIB);
        cpu_ns as f64 * 1e-6
    });
    let cpu_ms = least(times.collect::<Vec<_>>());
    let name = |what: &str| format!("{what} of writing the page in rank 0, {RANKS} ranks");
    vec![
        Row::new(&name("CPU time"), "lammps droplet", cpu_ms, "ms", 0.0).target(50.0),
        Row::new(&name("memory"), "lammps droplet", memory_mib, "MiB", 0.0).target(16.0),
    ]
}

fn write(summary: &Summary, path: &Path) {
    let page = fs::File::create(path.with_extension("html.again"));
    let mut page = page.unwrap_or_else(|error| panic!("{error}"));
    write_page(summary, path.parent(), &mut page).unwrap_or_else(|error| panic!("{error}"));
}

/// Returns a line of this process's status, in KiB.
fn resident_kib(key: &str) -> f64 {
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(key)?.strip_prefix(':'));
    let number = line.and_then(|line| line.split_whitespace().next()?.parse().ok());
    number.unwrap_or_else(|| panic!("no {key} in {status}"))
}
