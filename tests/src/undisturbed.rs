//! Repeated runs of a job until nothing disturbs its measurements.
//!
//! A rank that has no core for a moment, since other programs of the machine or its host use it,
//! takes longer than it reports, and others wait for it. Measurements then do not match the
//! subject's truth. Properties that must hold on a busy machine, too, such as a job's end and its
//! output, are asserted where jobs are run, and fail at once.

use std::any::Any;
use std::fs;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::thread;
use std::time::{Duration, Instant};

use crate::mpi::tell;
use crate::turn::wait_for_turn;

/// Maximum number of runs for one set of assertions.
const MOST_RUNS: usize = 5;

/// Maximum number of busy cores at which a run is repeated, and the longest wait for that: on some
/// machines they never become free.
const FEW_CORES: f64 = 0.3;
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// Runs `run` until `assertions` hold for its result, a few times at most: they hold if the run has
/// the cores that it needs. Each repetition waits for free cores. Each failure but the last is
/// reported on stderr in a line that begins with `AGAIN`, so that a test that only succeeds now and
/// then is not taken for sound. Returns the first result for which all assertions hold.
///
/// # Panics
/// At once if `run` panics; if `assertions` panic for the last run.
pub fn undisturbed<T>(run: impl Fn() -> T, assertions: impl Fn(&T)) -> T {
    run_until(run, assertions, |message| {
        let test = thread::current().name().unwrap_or_default().to_owned();
        // Messages contain whole losses and reports: the test shows those if it fails in the end.
        let beginning: String =
            message.lines().next().unwrap_or_default().chars().take(200).collect();
        tell(&format!("AGAIN: {test}: {beginning}"));
        wait_for_cores();
    })
}

fn run_until<T>(run: impl Fn() -> T, assertions: impl Fn(&T), tell_of: impl Fn(&str)) -> T {
    for _ in 1..MOST_RUNS {
        let found = run();
        match catch_unwind(AssertUnwindSafe(|| assertions(&found))) {
            Ok(()) => return found,
            Err(panic) => tell_of(message_of(&*panic)),
        }
    }
    let found = run();
    assertions(&found);
    found
}

/// Waits until hardly a core is in use. Takes a turn for that: other tests' jobs use the cores,
/// too.
fn wait_for_cores() {
    let _turn = wait_for_turn();
    let window = Duration::from_millis(300);
    let begin = Instant::now();
    while begin.elapsed() < LONGEST_WAIT {
        let before_s = busy_s();
        thread::sleep(window);
        if busy_s() - before_s < FEW_CORES * window.as_secs_f64() {
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

    use super::*;

    /// Repeats a run until run number `enough`. Returns the outcome, and the number of failures
    /// reported.
    fn count_up(enough: usize) -> (Result<usize, String>, usize) {
        let runs = Cell::new(0);
        let run = || {
            runs.set(runs.get() + 1);
            runs.get()
        };
        let told = RefCell::new(Vec::new());
        let attempt = || {
            let is_enough = |run: &usize| assert!(*run >= enough, "run {run} is too early");
            run_until(run, is_enough, |message| told.borrow_mut().push(message.to_owned()))
        };
        let came = catch_unwind(AssertUnwindSafe(attempt));
        let told = told.into_inner();
        for (index, message) in told.iter().enumerate() {
            assert_eq!(*message, format!("run {} is too early", index + 1));
        }
        (came.map_err(|panic| message_of(&*panic).to_owned()), told.len())
    }

    #[test]
    fn what_holds_is_run_once() {
        assert_eq!(count_up(1), (Ok(1), 0));
    }

    #[test]
    fn what_holds_later_is_run_until_then() {
        assert_eq!(count_up(3), (Ok(3), 2));
        assert_eq!(count_up(MOST_RUNS), (Ok(MOST_RUNS), MOST_RUNS - 1));
    }

    #[test]
    fn what_never_holds_fails_as_in_its_last_run() {
        let message = format!("run {MOST_RUNS} is too early");
        assert_eq!(count_up(MOST_RUNS + 1), (Err(message), MOST_RUNS - 1));
    }

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
        let panic = catch_unwind(AssertUnwindSafe(|| undisturbed(crash, |()| {}))).unwrap_err();
        assert_eq!((message_of(&*panic), runs.get()), ("it crashed", 1));
    }
}
