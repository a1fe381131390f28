//! Repeated runs of a job until nothing disturbs its measurements.
//!
//! A rank that has no core for a moment, since other programs of the machine or its host use it,
//! takes longer than it reports, and others wait for it. Measurements then do not match the
//! subject's truth. Properties that must hold on a busy machine, too, such as a job's end and its
//! output, are asserted where jobs are run, and fail at once.
//!
//! Where other programs use the cores during all runs, no measurement is possible: the assertions
//! are then skipped, with the disturbance that was measured.

use std::any::Any;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};

use crate::job_lock::lock_exclusively;
use crate::mpi::print_line;

/// Maximum number of runs for one set of assertions.
const MAX_RUNS: usize = 5;

/// Maximum number of busy cores at which a run is repeated, and the longest wait for that: on some
/// machines they never become free.
const MAX_BUSY_CORES: f64 = 0.3;
const MAX_WAIT: Duration = Duration::from_secs(5);

/// Minimum number of cores that other programs use on average during a run that they disturb.
const MIN_DISTURBANCE_CORES: f64 = 0.3;

/// Runs `run` until `assertions` hold for its result, at most [`MAX_RUNS`] times: they hold if the
/// run has the cores that it needs. Each repetition waits for free cores. Each failure but the last
/// is reported on stderr in a line that begins with `AGAIN`, so that unreliable tests are noticed,
/// or with `DISTURBED` if other programs disturbed the run ([`MIN_DISTURBANCE_CORES`]). Returns the
/// first result for which all assertions hold.
///
/// If other programs disturbed every run, the assertions are skipped with a line that begins with
/// `SKIPPED`, and the last result is returned: further assertions of the caller must hold on a busy
/// machine, too.
///
/// # Panics
/// At once if `run` panics; if `assertions` panic for the last run, unless they are skipped.
pub fn retry_on_noise<T>(run: impl Fn() -> T, assertions: impl Fn(&T)) -> T {
    let measured_run = || {
        let meter = DisturbanceMeter::start();
        let found = run();
        (found, meter.cores())
    };
    run_until(measured_run, assertions, |failure| {
        let test = thread::current().name().unwrap_or_default().to_owned();
        // Messages contain whole losses and reports: the test shows those if it fails in the end.
        let beginning = |message: &str| -> String {
            message.lines().next().unwrap_or_default().chars().take(200).collect()
        };
        match failure {
            Failure::Again { message, cores } => {
                let message = beginning(message);
                print_line(&match cores < MIN_DISTURBANCE_CORES {
                    true => format!("AGAIN: {test}: {message}"),
                    false => format!(
                        "DISTURBED: {test}: other programs used {cores:.1} cores: {message}"
                    ),
                });
                wait_for_cores();
            }
            Failure::Skipped { message, cores } => print_line(&format!(
                "SKIPPED: {test}: other programs used {cores:.1} cores or more in each of \
                 {MAX_RUNS} runs: {}",
                beginning(message)
            )),
        }
    })
}

/// Consequence of a failed run.
enum Failure<'a> {
    /// The run is repeated; other programs used `cores` during it.
    Again { message: &'a str, cores: f64 },
    /// There was no undisturbed run; `cores` is the smallest disturbance.
    Skipped { message: &'a str, cores: f64 },
}

/// Repeats `run`, which returns its result and the number of cores that other programs used.
fn run_until<T>(
    run: impl Fn() -> (T, f64),
    assertions: impl Fn(&T),
    tell_of: impl Fn(Failure<'_>),
) -> T {
    let mut least_cores = f64::INFINITY;
    for left in (0..MAX_RUNS).rev() {
        let (found, cores) = run();
        least_cores = least_cores.min(cores);
        match catch_unwind(AssertUnwindSafe(|| assertions(&found))) {
            Ok(()) => return found,
            Err(panic) if left > 0 => {
                tell_of(Failure::Again { message: message_of(&*panic), cores });
            }
            Err(panic) if least_cores >= MIN_DISTURBANCE_CORES => {
                tell_of(Failure::Skipped { message: message_of(&*panic), cores: least_cores });
                return found;
            }
            Err(panic) => resume_unwind(panic),
        }
    }
    unreachable!("the last run returns or panics")
}

/// Measures the cores that other programs use.
struct DisturbanceMeter {
    begin: Instant,
    busy_s: f64,
    own_s: f64,
}

impl DisturbanceMeter {
    fn start() -> Self {
        Self { begin: Instant::now(), busy_s: busy_s(), own_s: own_s() }
    }

    /// Returns the mean number of cores that others have used since the start: other programs, the
    /// host of a virtual machine, and computing tests of this program. This thread and the ended
    /// processes of this program do not count.
    fn cores(&self) -> f64 {
        let others_s = (busy_s() - self.busy_s) - (own_s() - self.own_s);
        (others_s / self.begin.elapsed().as_secs_f64()).max(0.0)
    }
}

/// Returns the CPU time of this thread and of all processes that this program has waited for, with
/// those that they have waited for, in seconds (getrusage(2)).
fn own_s() -> f64 {
    let used = |who| {
        let usage = getrusage(who).expect("the kernel tells a program what it used");
        [usage.user_time(), usage.system_time()]
            .map(|time| time.tv_sec() as f64 + time.tv_usec() as f64 * 1e-6)
            .iter()
            .sum::<f64>()
    };
    used(UsageWho::RUSAGE_THREAD) + used(UsageWho::RUSAGE_CHILDREN)
}

/// Waits until hardly a core is in use. Locks out other jobs meanwhile: other tests' jobs use the
/// cores, too.
fn wait_for_cores() {
    let _job_lock = lock_exclusively();
    let window = Duration::from_millis(300);
    let begin = Instant::now();
    while begin.elapsed() < MAX_WAIT {
        let before_s = busy_s();
        thread::sleep(window);
        if busy_s() - before_s < MAX_BUSY_CORES * window.as_secs_f64() {
            break;
        }
    }
}

/// Returns the CPU time of all processes together, in seconds; 0 if the system does not report it
/// (proc(5)).
fn busy_s() -> f64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let fields = stat.lines().next().unwrap_or_default().split_ascii_whitespace().skip(1);
    let times: Vec<f64> = fields.filter_map(|field| field.parse().ok()).collect();
    // SAFETY: sysconf has no preconditions.
    let ticks = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64;
    // All fields but the fourth and the fifth, which are idle time; guest time is contained in the
    // others.
    times.iter().take(3).chain(times.iter().take(8).skip(5)).sum::<f64>() / ticks
}

/// Returns the message of a panic.
pub fn message_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::process::Command;

    use super::*;

    /// Repeats a run until run number `enough`, beside programs that use this many cores. Returns
    /// the outcome, the number of repetitions, and whether the assertions were skipped.
    fn count_up(enough: usize, cores: &[f64; MAX_RUNS]) -> (Result<usize, String>, usize, bool) {
        let runs = Cell::new(0);
        let run = || {
            runs.set(runs.get() + 1);
            (runs.get(), cores[runs.get() - 1])
        };
        let repeated = RefCell::new(Vec::new());
        let is_skipped = Cell::new(false);
        let attempt = || {
            let is_enough = |run: &usize| assert!(*run >= enough, "run {run} is too early");
            run_until(run, is_enough, |failure| match failure {
                Failure::Again { message, .. } => repeated.borrow_mut().push(message.to_owned()),
                Failure::Skipped { .. } => is_skipped.set(true),
            })
        };
        let came = catch_unwind(AssertUnwindSafe(attempt));
        let repeated = repeated.into_inner();
        for (index, message) in repeated.iter().enumerate() {
            assert_eq!(*message, format!("run {} is too early", index + 1));
        }
        let came = came.map_err(|panic| message_of(&*panic).to_owned());
        (came, repeated.len(), is_skipped.get())
    }

    const FREE: [f64; MAX_RUNS] = [0.0; MAX_RUNS];
    const BUSY: [f64; MAX_RUNS] = [1.0; MAX_RUNS];

    #[test]
    fn a_run_that_holds_is_not_repeated() {
        assert_eq!(count_up(1, &FREE), (Ok(1), 0, false));
        assert_eq!(count_up(1, &BUSY), (Ok(1), 0, false));
    }

    #[test]
    fn a_run_is_repeated_until_it_holds() {
        assert_eq!(count_up(3, &FREE), (Ok(3), 2, false));
        assert_eq!(count_up(MAX_RUNS, &BUSY), (Ok(MAX_RUNS), MAX_RUNS - 1, false));
    }

    #[test]
    fn a_test_that_never_holds_fails_as_in_its_last_run() {
        let message = format!("run {MAX_RUNS} is too early");
        let failed = (Err(message), MAX_RUNS - 1, false);
        assert_eq!(count_up(MAX_RUNS + 1, &FREE), failed);
        // One undisturbed run is enough to tell.
        let mut cores = BUSY;
        cores[1] = 0.1;
        assert_eq!(count_up(MAX_RUNS + 1, &cores), failed);
    }

    #[test]
    fn disturbed_runs_that_never_hold_are_skipped() {
        let skipped = (Ok(MAX_RUNS), MAX_RUNS - 1, true);
        assert_eq!(count_up(MAX_RUNS + 1, &BUSY), skipped);
    }

    #[test]
    fn other_programs_disturb_and_own_children_do_not() {
        let cores = |is_waited_for: bool| {
            let meter = DisturbanceMeter::start();
            let mut child = Command::new("sh").args(["-c", BUSY_LOOP]).spawn().expect("sh starts");
            if is_waited_for {
                child.wait().expect("sh ends");
                return meter.cores();
            }
            thread::sleep(Duration::from_millis(300));
            let cores = meter.cores();
            child.kill().and_then(|()| child.wait()).expect("sh ends");
            cores
        };
        // What else the machine does counts in both, and may change in between.
        let mut pairs = Vec::new();
        let is_told = (0..MAX_RUNS).any(|_| {
            let (own, others) = (cores(true), cores(false));
            pairs.push((own, others));
            others > own + 0.2
        });
        assert!(is_told, "cores beside a child, and beside another program: {pairs:?}");
    }

    const BUSY_LOOP: &str = "i=0; while [ $i -lt 300000 ]; do i=$((i + 1)); done";

    #[test]
    fn work_uses_cores() {
        let (before_s, begin) = (busy_s(), Instant::now());
        while begin.elapsed() < Duration::from_millis(200) {}
        let used_s = busy_s() - before_s;
        let cores = thread::available_parallelism().unwrap().get() as f64;
        assert!(
            used_s >= 0.03 && used_s <= cores * begin.elapsed().as_secs_f64() + 0.1,
            "{used_s} s"
        );
    }

    #[test]
    fn a_run_that_fails_is_not_repeated() {
        let runs = Cell::new(0);
        let crash = || {
            runs.set(runs.get() + 1);
            panic!("it crashed");
        };
        let panic = catch_unwind(AssertUnwindSafe(|| retry_on_noise(crash, |()| {}))).unwrap_err();
        assert_eq!((message_of(&*panic), runs.get()), ("it crashed", 1));
    }
}
