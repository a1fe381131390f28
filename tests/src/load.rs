//! What else used the machine's cores while a job ran: other programs, and the host of a virtual
//! machine.

use std::fs;
use std::mem::MaybeUninit;
use std::time::Instant;

use crate::job::Job;
use crate::outcome::Outcome;

/// The machine's cores and our use of them at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    at: Instant,
    cores: Option<Cores>,
    ours_s: f64,
}

/// What the system says of its cores.
#[derive(Clone, Copy, Debug)]
struct Cores {
    number: usize,
    /// Time that they together were idle or waiting for a disk, in seconds.
    idle_s: f64,
}

/// Most times that a job is run because a rank had no core when it needed one.
const MOST_RUNS: usize = 6;

/// Runs a job of which something is to come out that takes a core for whoever is let go; again, if it does
/// not: its ranks that wait use the cores, and so do other jobs. Returns the first run in which it did, else
/// the last.
pub fn undisturbed(job: &Job, comes_out: impl Fn(&Outcome) -> bool) -> Outcome {
    let mut runs = (1..MOST_RUNS).map(|_| job.run().succeeded());
    let first_to_come_out = runs.find(|outcome| comes_out(outcome));
    first_to_come_out.unwrap_or_else(|| job.run().succeeded())
}

impl Moment {
    /// Now. Processes that were started from here count as ours when they have ended.
    pub fn now() -> Self {
        Self { at: Instant::now(), cores: Cores::now(), ours_s: ours_s() }
    }

    /// How many cores others have kept busy since, on average; 0 where the system does not say.
    pub fn others_since(self) -> f64 {
        let now = Self::now();
        let (Some(before), Some(after)) = (self.cores, now.cores) else { return 0.0 };
        let elapsed_s = (now.at - self.at).as_secs_f64();
        let busy = after.number as f64 - (after.idle_s - before.idle_s) / elapsed_s;
        busy - (now.ours_s - self.ours_s) / elapsed_s
    }
}

impl Cores {
    /// From /proc/stat (proc(5)).
    fn now() -> Option<Self> {
        let stat = fs::read_to_string("/proc/stat").ok()?;
        let number = stat.lines().filter(|line| line.starts_with("cpu")).count().checked_sub(1)?;
        let mut fields = stat.lines().next()?.split_ascii_whitespace();
        let idle: f64 = fields.nth(4)?.parse().ok()?;
        let disk: f64 = fields.next()?.parse().ok()?;
        // SAFETY: sysconf has no preconditions.
        let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64;
        Some(Self { number, idle_s: (idle + disk) / ticks })
    }
}

/// CPU time of this process and of those of its descendants that have ended and been waited for.
fn ours_s() -> f64 {
    [libc::RUSAGE_SELF, libc::RUSAGE_CHILDREN]
        .map(|whose| {
            let mut usage = MaybeUninit::<libc::rusage>::zeroed();
            // SAFETY: the call fills the structure in; all zeros would be one as well.
            let usage = unsafe {
                libc::getrusage(whose, usage.as_mut_ptr());
                usage.assume_init()
            };
            [usage.ru_utime, usage.ru_stime]
                .map(|time| time.tv_sec as f64 + 1e-6 * time.tv_usec as f64)
                .iter()
                .sum::<f64>()
        })
        .iter()
        .sum()
}
