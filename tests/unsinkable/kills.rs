//! Kills: jobs killed at random times, and the results of their digests.

use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use plimsoll_tests::digests::{By, digest};
use plimsoll_tests::mpi::Mpi;
use plimsoll_tests::side_by_side::side_by_side;
use plimsoll_tests::subject_job::{Job, Watch, each_mpi};

use crate::LOST_S;

/// Range of the kill times, in milliseconds after MPI_Init.
const FIRST_MS: u64 = 300;
const LAST_MS: u64 = 4000;

/// Minimum run time in seconds for a comparison of efficiencies.
const MIN_COMPARED_S: f64 = 0.5;

/// Maximum difference between a digest's efficiency and the ranks' own measurement.
const TOLERANCE: f64 = 0.02;

/// Suffix of the files with the times of the ranks' work.
const WORK: &str = ".work";

/// A job to be killed.
struct Kill {
    mpi: Mpi,
    who: String,
    ms: u64,
}

/// Completeness of the digest of a killed job.
struct Recovery {
    /// Time between the digest's end and the kill, in seconds.
    lost_s: f64,
    /// Difference between the digest's efficiency and the ranks' own measurement; 0 for runs too
    /// short for a comparison.
    off: f64,
}

/// Kills one rank, the leader or all ranks of `kills` jobs, `at_once` at a time. Prints the longest
/// lost time and the largest error, and returns the number of jobs that lost too much.
pub fn table(kills: usize, at_once: usize) -> usize {
    let mut random = Random::new();
    let mpis: Vec<Mpi> = each_mpi().collect();
    let (mut red, mut most_s, mut most_off) = (0, 0.0_f64, 0.0_f64);
    let jobs: Vec<Kill> = (0..kills)
        .map(|at| {
            let mpi = mpis[at % mpis.len()];
            let last = (mpi.ranks() - 1).to_string();
            let who = [last, "0".to_owned(), "all".to_owned()][at / mpis.len() % 3].clone();
            Kill { mpi, who, ms: FIRST_MS + random.below(LAST_MS - FIRST_MS) }
        })
        .collect();
    let work = |job: &Kill| {
        kill(job).map_err(|reason| {
            format!("{} killed rank {} after {} ms: {reason}", job.mpi.abi(), job.who, job.ms)
        })
    };
    side_by_side(&jobs, at_once, work, |killed| match killed {
        Ok(Recovery { lost_s, off }) => {
            (most_s, most_off) = (most_s.max(lost_s), most_off.max(off));
        }
        Err(reason) => {
            red += 1;
            println!("{reason}");
        }
    });
    println!(
        "{kills} kills: {red} red; at most {most_s:.2} s lost, {LOST_S} s allowed; efficiency at \
         most {most_off:.3} off, {TOLERANCE} allowed"
    );
    red
}

/// Kills one job.
fn kill(Kill { mpi, who, ms }: &Kill) -> Result<Recovery, String> {
    let (mpi, ms) = (*mpi, *ms);
    let arguments = format!("kill computing {who} {ms} {WORK}");
    let job = Job::ranks("sinks", mpi, mpi.ranks()).arguments(&arguments).watch(Watch::Run);
    let job = job.shares_cores();
    let run = || {
        let outcome = job.run();
        let folder = folder(&outcome.files_ending(".spool"))?;
        Some((digest(&folder, By::Threads(2)), outcome))
    };
    let ran = catch_unwind(AssertUnwindSafe(run)).map_err(|panic| {
        let message = panic.downcast_ref::<String>().cloned().unwrap_or_default();
        message.lines().next().unwrap_or("unknown").to_owned()
    })?;
    let Some((summary, outcome)) = ran else {
        let lost_s = ms as f64 * 1e-3;
        let is_short = lost_s <= LOST_S;
        return if is_short {
            Ok(Recovery { lost_s, off: 0.0 })
        } else {
            Err("no spool".to_owned())
        };
    };
    let elapsed_s = summary.number("/run/elapsed_s");
    let lost_s = (ms as f64 * 1e-3 - elapsed_s).max(0.0);
    if lost_s > LOST_S {
        return Err(format!("{lost_s:.2} s are lost"));
    }
    let efficiency = summary.number("/efficiency/parallel");
    if elapsed_s < MIN_COMPARED_S {
        return Ok(Recovery { lost_s, off: 0.0 });
    }
    let measured = measured_efficiency(&outcome.files_ending(WORK), elapsed_s);
    let off = (efficiency - measured).abs();
    // NaN if nothing was measured.
    if off.is_nan() || off > TOLERANCE {
        return Err(format!("parallel efficiency {efficiency:.3}, not {measured:.3}"));
    }
    Ok(Recovery { lost_s, off })
}

/// Returns the mean fraction of work in the ranks' time up to `end_s`, from the files of `sinks.c`:
/// begin and end of each stretch of work.
fn measured_efficiency(files: &[PathBuf], end_s: f64) -> f64 {
    let work_s = |file: &PathBuf| -> f64 {
        let bytes = fs::read(file).unwrap_or_default();
        let stretches = bytes.chunks_exact(16).map(|stretch| {
            let number = |at| stretch[at..at + 8].try_into().map_or(0.0, f64::from_ne_bytes);
            (number(0), number(8))
        });
        let begun = stretches.take_while(|(begin_s, _)| *begin_s > 0.0 && *begin_s < end_s);
        // The last stretch may not have ended.
        let ended = begun.map(|(begin_s, ceased_s)| match ceased_s > 0.0 {
            true => ceased_s.min(end_s) - begin_s,
            false => end_s - begin_s,
        });
        ended.sum()
    };
    files.iter().map(work_s).sum::<f64>() / (files.len() as f64 * end_s)
}

/// Returns the folder of the job's spools.
fn folder(spools: &[PathBuf]) -> Option<PathBuf> {
    Some(spools.first()?.parent()?.to_owned())
}

/// Random numbers that differ between runs (xorshift64, Marsaglia 2003).
struct Random(u64);

impl Random {
    fn new() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Self(now.as_nanos() as u64 | 1)
    }

    fn below(&mut self, end: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % end
    }
}
