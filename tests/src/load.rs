//! What else used the machine's cores while a job ran: other programs, and the host of a virtual
//! machine.

use std::fs;
use std::mem::MaybeUninit;
use std::time::Instant;

/// The machine's cores and our use of them at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Moment {
    at: Instant,
    idle_s: f64,
    ours_s: f64,
}

impl Moment {
    /// Now. Processes that were started from here count as ours when they have ended.
    ///
    /// # Panics
    /// If the system does not say.
    pub fn now() -> Self {
        Self { at: Instant::now(), idle_s: idle_s(), ours_s: ours_s() }
    }

    /// How many cores others have kept busy since, on average.
    pub fn others_since(self) -> f64 {
        let now = Self::now();
        let cores = fs::read_to_string("/proc/stat").map_or(0, |stat| {
            stat.lines().filter(|line| line.starts_with("cpu")).count().saturating_sub(1)
        });
        let elapsed_s = (now.at - self.at).as_secs_f64();
        let busy = cores as f64 - (now.idle_s - self.idle_s) / elapsed_s;
        busy - (now.ours_s - self.ours_s) / elapsed_s
    }
}

/// Time that the cores together were idle or waiting for a disk (proc(5)).
fn idle_s() -> f64 {
    let stat = fs::read_to_string("/proc/stat").expect("the system has a /proc");
    let mut fields = stat.lines().next().unwrap_or_default().split_ascii_whitespace();
    let [idle, disk] = [4, 0].map(|skipped| {
        fields.nth(skipped).and_then(|field| field.parse::<f64>().ok()).expect("as in proc(5)")
    });
    // SAFETY: sysconf has no preconditions.
    (idle + disk) / unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64
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
