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
use std::cell::Cell;
use std::fmt;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use nix::sys::resource::{UsageWho, getrusage};

use crate::job_lock::lock_exclusively;
use crate::mpi::print_line;

/// Maximum number of runs for one set of assertions.
const MAX_RUNS: usize = 5;

/// Maximum time that one test program spends on repeated runs: `MAX_REPEATED`, and the fraction
/// `MAX_REPEATED_FRACTION` of its run time so far. Otherwise a host that is busy all the time would
/// make the tests several times as long.
const MAX_REPEATED: Duration = Duration::from_secs(30);
const MAX_REPEATED_FRACTION: f64 = 0.25;

/// Begin of the first run of this program's tests.
static BEGIN: OnceLock<Instant> = OnceLock::new();

/// Time that the tests of this program have spent on repeated runs, in milliseconds.
static REPEATED_MS: AtomicU64 = AtomicU64::new(0);

/// Whether there is time left to repeat disturbed runs.
fn may_repeat() -> bool {
    let elapsed = BEGIN.get_or_init(Instant::now).elapsed();
    let most = MAX_REPEATED + elapsed.mul_f64(MAX_REPEATED_FRACTION);
    Duration::from_millis(REPEATED_MS.load(Ordering::Relaxed)) < most
}

/// Maximum number of busy cores at which a run is repeated, and the longest wait for that: on some
/// machines they never become free.
const MAX_BUSY_CORES: f64 = 0.3;
const MAX_WAIT: Duration = Duration::from_secs(5);

/// Minimum number of cores that others use on average during a run for assertions to be skipped,
/// and that the host of a virtual machine takes: ranks that wait for each other add up what it
/// takes from each, so this is a tenth of the run, the usual tolerance.
const MIN_SKIPPED_CORES: f64 = 0.3;
const MIN_SKIPPED_STOLEN_CORES: f64 = 0.1;

/// Minimum number of cores that others use on average during a run that they disturb: the usual
/// tolerance is a tenth.
const MIN_DISTURBANCE_CORES: f64 = 0.1;

/// Minimum number of cores that the host of a virtual machine takes from a run that it disturbs. It
/// usually takes them from one rank: this is a tenth of a loss of a fifth of the run.
const MIN_STOLEN_CORES: f64 = 0.02;

/// Runs `run` until `assertions` hold for its result, at most [`MAX_RUNS`] times: they hold if the
/// run has the cores that it needs. Each repetition waits for free cores. Each failure but the last
/// is reported on stderr in a line that begins with `AGAIN`, so that unreliable tests are noticed,
/// or with `DISTURBED` if others disturbed the run ([`MIN_DISTURBANCE_CORES`],
/// [`MIN_STOLEN_CORES`]). Returns the first result for which all assertions hold.
///
/// If others used [`MIN_SKIPPED_CORES`] in every run, or the host [`MIN_SKIPPED_STOLEN_CORES`], the
/// assertions are skipped with a line that begins with `SKIPPED`, and the last result is returned:
/// further assertions of the caller must hold on a busy machine, too. One such run is enough when
/// repeated runs took too long ([`MAX_REPEATED`], [`MAX_REPEATED_FRACTION`]).
///
/// # Panics
/// At once if `run` panics; if `assertions` panic for the last run, unless they are skipped.
pub fn retry_on_noise<T>(run: impl Fn() -> T, assertions: impl Fn(&T)) -> T {
    BEGIN.get_or_init(Instant::now);
    let runs = Cell::new(0);
    let measured_run = || {
        let meter = DisturbanceMeter::start();
        let found = run();
        if runs.replace(runs.get() + 1) > 0 {
            let took_ms = meter.begin.elapsed().as_millis() as u64;
            REPEATED_MS.fetch_add(took_ms, Ordering::Relaxed);
        }
        (found, meter.disturbance())
    };
    run_until(measured_run, assertions, may_repeat, |failure| match failure {
        Failure::Again { message, disturbance } if disturbance.is_noticeable() => {
            print_of_test("DISTURBED", &disturbance.to_string(), message);
            wait_for_cores();
        }
        Failure::Again { message, .. } => {
            print_of_test("AGAIN", "undisturbed", message);
            wait_for_cores();
        }
        Failure::Skipped { message, cores } => {
            let runs = runs.get();
            let why = format!("others used {cores:.1} cores or more in all runs ({runs})");
            print_of_test("SKIPPED", &why, message);
        }
    })
}

/// Reports on stderr that an attempt of this test failed: what follows from it, why, and the
/// beginning of the message. Messages contain whole losses and reports, which the test shows if it
/// fails in the end.
pub fn print_of_test(consequence: &str, why: &str, message: &str) {
    let test = thread::current().name().unwrap_or_default().to_owned();
    let beginning: String = message.lines().next().unwrap_or_default().chars().take(200).collect();
    print_line(&format!("{consequence}: {test}: {why}: {beginning}"));
}

/// Consequence of a failed run.
enum Failure<'a> {
    /// The run is repeated.
    Again { message: &'a str, disturbance: Disturbance },
    /// There was no undisturbed run; `cores` is the smallest disturbance.
    Skipped { message: &'a str, cores: f64 },
}

/// The cores that others took from a run, on average.
#[derive(Clone, Copy, Debug)]
struct Disturbance {
    /// Used by other programs, by the host of a virtual machine, and by computing tests of this
    /// program.
    cores: f64,
    /// The part of the host.
    stolen_cores: f64,
}

impl Disturbance {
    /// Whether a result may differ by more than the usual tolerance.
    fn is_noticeable(&self) -> bool {
        self.cores >= MIN_DISTURBANCE_CORES || self.stolen_cores >= MIN_STOLEN_CORES
    }

    /// Whether assertions on a result are skipped.
    fn is_large(&self) -> bool {
        self.cores >= MIN_SKIPPED_CORES || self.stolen_cores >= MIN_SKIPPED_STOLEN_CORES
    }
}

impl fmt::Display for Disturbance {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cores, stolen_cores } = self;
        write!(formatter, "others used {cores:.2} cores, {stolen_cores:.2} of them the host")
    }
}

/// Repeats `run`, which returns its result and what others took from it. A disturbed run is
/// repeated as long as `may_repeat`.
fn run_until<T>(
    run: impl Fn() -> (T, Disturbance),
    assertions: impl Fn(&T),
    may_repeat: impl Fn() -> bool,
    tell_of: impl Fn(Failure<'_>),
) -> T {
    let mut least_cores = f64::INFINITY;
    let mut is_disturbed = true;
    for left in (0..MAX_RUNS).rev() {
        let (found, disturbance) = run();
        least_cores = least_cores.min(disturbance.cores);
        is_disturbed &= disturbance.is_large();
        match catch_unwind(AssertUnwindSafe(|| assertions(&found))) {
            Ok(()) => return found,
            Err(panic) if is_disturbed && (left == 0 || !may_repeat()) => {
                tell_of(Failure::Skipped { message: message_of(&*panic), cores: least_cores });
                return found;
            }
            Err(panic) if left > 0 => {
                tell_of(Failure::Again { message: message_of(&*panic), disturbance });
            }
            Err(panic) => resume_unwind(panic),
        }
    }
    unreachable!("the last run returns or panics")
}

/// Measures what others take from a run.
struct DisturbanceMeter {
    begin: Instant,
    machine: MachineTimes,
    own_s: f64,
}

impl DisturbanceMeter {
    fn start() -> Self {
        Self { begin: Instant::now(), machine: MachineTimes::read(), own_s: own_s() }
    }

    /// Returns what others have taken since the start. This thread and the ended processes of this
    /// program do not count.
    fn disturbance(&self) -> Disturbance {
        let (begin, end) = (self.machine, MachineTimes::read());
        let elapsed_s = self.begin.elapsed().as_secs_f64();
        let others_s = (end.busy_s - begin.busy_s) - (own_s() - self.own_s);
        Disturbance {
            cores: (others_s / elapsed_s).max(0.0),
            stolen_cores: (end.stolen_s - begin.stolen_s) / elapsed_s,
        }
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
        let before_s = MachineTimes::read().busy_s;
        thread::sleep(window);
        if MachineTimes::read().busy_s - before_s < MAX_BUSY_CORES * window.as_secs_f64() {
            break;
        }
    }
}

/// Times of all cores together since the machine was started, in seconds; 0 if the system does not
/// report them.
#[derive(Clone, Copy)]
struct MachineTimes {
    /// All but idle time.
    busy_s: f64,
    /// The part that the host of a virtual machine used for others.
    stolen_s: f64,
}

impl MachineTimes {
    /// Reads /proc/stat, proc(5).
    fn read() -> Self {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        let fields = stat.lines().next().unwrap_or_default().split_ascii_whitespace().skip(1);
        let ticks: Vec<f64> = fields.filter_map(|field| field.parse().ok()).collect();
        let [user, nice, system, _idle, _io_wait, interrupts, soft_interrupts, stolen, ..] =
            ticks[..]
        else {
            return Self { busy_s: 0.0, stolen_s: 0.0 };
        };
        // SAFETY: sysconf has no preconditions.
        let ticks_per_s = unsafe { libc::sysconf(libc::_SC_CLK_TCK) } as f64;
        // Guest time, which follows, is contained in user time.
        let busy = user + nice + system + interrupts + soft_interrupts + stolen;
        Self { busy_s: busy / ticks_per_s, stolen_s: stolen / ticks_per_s }
    }
}

/// Returns the message of a panic.
pub fn message_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::process::Command;

    use super::*;

    /// Repeats a run until run number `enough`, beside programs that use this many cores. Returns
    /// the outcome, the number of repetitions, and whether the assertions were skipped.
    fn count_up(enough: usize, cores: &[f64; MAX_RUNS]) -> (Result<usize, String>, usize, bool) {
        count_up_within(enough, cores, true)
    }

    /// The same; disturbed runs are repeated only if `may_repeat`.
    fn count_up_within(
        enough: usize,
        cores: &[f64; MAX_RUNS],
        may_repeat: bool,
    ) -> (Result<usize, String>, usize, bool) {
        let runs = Cell::new(0);
        let run = || {
            runs.set(runs.get() + 1);
            (runs.get(), Disturbance { cores: cores[runs.get() - 1], stolen_cores: 0.0 })
        };
        let repeated = RefCell::new(Vec::new());
        let is_skipped = Cell::new(false);
        let attempt = || {
            let is_enough = |run: &usize| assert!(*run >= enough, "run {run} is too early");
            run_until(
                run,
                is_enough,
                || may_repeat,
                |failure| match failure {
                    Failure::Again { message, .. } => {
                        repeated.borrow_mut().push(message.to_owned())
                    }
                    Failure::Skipped { .. } => is_skipped.set(true),
                },
            )
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
    fn disturbed_runs_are_not_repeated_when_that_took_long() {
        assert_eq!(count_up_within(2, &BUSY, false), (Ok(1), 0, true));
        // A run that nothing disturbed has to hold.
        assert_eq!(count_up_within(2, &FREE, false), (Ok(2), 1, false));
    }

    #[test]
    fn little_that_the_host_takes_is_noticeable() {
        let is_noticeable =
            |cores: f64, stolen_cores: f64| Disturbance { cores, stolen_cores }.is_noticeable();
        assert!(!is_noticeable(0.05, 0.01));
        assert!(is_noticeable(0.05, 0.03));
        assert!(is_noticeable(0.2, 0.0));
        let is_large =
            |cores: f64, stolen_cores: f64| Disturbance { cores, stolen_cores }.is_large();
        assert!(!is_large(0.2, 0.09));
        assert!(is_large(0.2, 0.11));
        assert!(is_large(0.4, 0.0));
    }

    #[test]
    fn other_programs_disturb_and_own_children_do_not() {
        let cores = |is_waited_for: bool| {
            let meter = DisturbanceMeter::start();
            let mut child = Command::new("sh").args(["-c", BUSY_LOOP]).spawn().expect("sh starts");
            if is_waited_for {
                child.wait().expect("sh ends");
                return meter.disturbance().cores;
            }
            thread::sleep(Duration::from_millis(300));
            let cores = meter.disturbance().cores;
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
        let (before_s, begin) = (MachineTimes::read().busy_s, Instant::now());
        while begin.elapsed() < Duration::from_millis(200) {}
        let used_s = MachineTimes::read().busy_s - before_s;
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
