//! Jobs killed at random times, and what a digest still tells of them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use plimsoll_tests::digests::{By, digest};
use plimsoll_tests::job::{Job, Watch, each_mpi};
use plimsoll_tests::mpi::Mpi;
use plimsoll_tests::side_by_side::side_by_side;

use crate::LOST_S;

/// Times at which ranks are killed, in milliseconds after MPI_Init.
const FIRST_MS: u64 = 300;
const LAST_MS: u64 = 4000;

/// From which run time on, in seconds, there are iterations enough for an efficiency, and by how much
/// that may be off.
const LONG_S: f64 = 1.5;
const TOLERANCE: f64 = 0.08;

/// Times that a job is killed before what is wrong with it counts.
const ATTEMPTS: usize = 3;

/// A job to be killed.
struct Kill {
    mpi: Mpi,
    who: String,
    ms: u64,
}

/// Kills one rank, the leader or all ranks of `kills` jobs, `at_once` at a time. Prints the longest
/// time that was lost, and returns the number of jobs that lost too much.
pub fn table(kills: usize, at_once: usize) -> usize {
    let mut random = Random::new();
    let mpis: Vec<Mpi> = each_mpi().collect();
    let (mut red, mut lost) = (0, Vec::new());
    let jobs: Vec<Kill> = (0..kills)
        .map(|at| {
            let mpi = mpis[at % mpis.len()];
            let last = (mpi.ranks() - 1).to_string();
            let who = [last, "0".to_owned(), "all".to_owned()][at / mpis.len() % 3].clone();
            Kill { mpi, who, ms: FIRST_MS + random.below(LAST_MS - FIRST_MS) }
        })
        .collect();
    let work = |job: &Kill| {
        // On a busy machine a rank waits for a core, and the efficiency is another one.
        let mut killed = kill(job);
        for _ in 1..ATTEMPTS {
            killed = killed.or_else(|_| kill(job));
        }
        killed.map_err(|reason| {
            format!("{} killed rank {} after {} ms: {reason}", job.mpi.abi(), job.who, job.ms)
        })
    };
    side_by_side(&jobs, at_once, work, |killed| match killed {
        Ok(lost_s) => lost.push(lost_s),
        Err(reason) => {
            red += 1;
            println!("{reason}");
        }
    });
    let most = lost.iter().copied().fold(0.0, f64::max);
    println!("{kills} kills: {red} red; at most {most:.2} s lost, {LOST_S} s allowed");
    red
}

/// Kills one job. Returns the time between the end of its digest and the kill, in seconds.
fn kill(Kill { mpi, who, ms }: &Kill) -> Result<f64, String> {
    let (mpi, ms) = (*mpi, *ms);
    let arguments = format!("kill computing {who} {ms}");
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
    let Some((summary, _outcome)) = ran else {
        let is_short = ms as f64 * 1e-3 <= LOST_S;
        return if is_short { Ok(ms as f64 * 1e-3) } else { Err("no spool".to_owned()) };
    };
    let elapsed_s = summary.number("/run/elapsed_s");
    let lost_s = (ms as f64 * 1e-3 - elapsed_s).max(0.0);
    if lost_s > LOST_S {
        return Err(format!("{lost_s:.2} s are lost"));
    }
    let efficiency = summary.number("/efficiency/parallel");
    let ranks = f64::from(mpi.ranks());
    // One rank works for 15 ms while the others work for 10 ms and wait.
    let expected = (10.0 * (ranks - 1.0) + 15.0) / (15.0 * ranks);
    if elapsed_s > LONG_S && (efficiency - expected).abs() > TOLERANCE {
        return Err(format!("parallel efficiency {efficiency:.2}, not {expected:.2}"));
    }
    Ok(lost_s)
}

/// The folder of the job's spools.
fn folder(spools: &[PathBuf]) -> Option<PathBuf> {
    Some(spools.first()?.parent()?.to_owned())
}

/// Numbers that differ from run to run (xorshift64, Marsaglia 2003).
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
