//! Trial: a short computation under the library, started as a user would.

use std::env;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use plimsoll_summary::Summary;
use plimsoll_summary::settings::{LIBRARY, PREFIX};

use super::check::Check;

/// The hidden subcommand that computes.
pub const TRIAL: &str = "trial";

/// Duration of the computation: 25 samples even at the coarsest common kernel tick (100 per
/// second).
const TRIAL_TIME: Duration = Duration::from_millis(300);
/// Sampling period of the trial.
const TRIAL_PERIOD: &str = "1ms";
/// Minimum number of samples of a successful trial.
const MIN_SAMPLES: u64 = 10;

/// Computes for [`TRIAL_TIME`] of wall time.
pub fn compute() {
    let begin = Instant::now();
    let mut value = 1u64;
    while begin.elapsed() < TRIAL_TIME {
        for _ in 0..10_000 {
            value = std::hint::black_box(value.wrapping_mul(6_364_136_223_846_793_005));
        }
    }
}

/// Runs the computation under `plimsoll run` and judges its summary.
pub fn checks(command: &Path) -> Vec<Check> {
    match summary(command) {
        Ok(summary) => judge(&summary),
        Err(found) => vec![Check::failed(
            "measurement",
            found,
            "Run `plimsoll run --verbose 2 -- PROGRAM` and see what it says.",
        )],
    }
}

/// Runs the trial in the first directory on a file system that permits programs.
fn summary(command: &Path) -> Result<Summary, String> {
    let mut message = String::new();
    for place in [env::temp_dir(), PathBuf::from(".")] {
        match summary_in(&place, command) {
            Ok(summary) => return Ok(summary),
            Err(error) => message = error,
        }
    }
    Err(message)
}

/// Runs the trial with its program and its report in a temporary directory.
fn summary_in(place: &Path, command: &Path) -> Result<Summary, String> {
    let directory = tempfile::Builder::new()
        .prefix("plimsoll-doctor-")
        .tempdir_in(place)
        .map_err(|error| format!("no directory can be made in {}: {error}", place.display()))?;
    // The library would take a program with the command's own name for a launcher.
    let program = directory.path().join("computation");
    fs::hard_link(command, &program)
        .or_else(|_| fs::copy(command, &program).map(drop))
        .map_err(|error| format!("the trial's program cannot be copied: {error}"))?;
    let output = command_without_settings(command)
        .args(["run", "--period", TRIAL_PERIOD, "--formats", "json", "--trace", "off", "--output"])
        .arg(directory.path())
        .arg("--")
        .args([program.as_os_str(), TRIAL.as_ref()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .output()
        .map_err(|error| format!("a trial cannot be started: {error}"))?;
    let said = String::from_utf8_lossy(&output.stderr);
    let said = said.lines().next_back().unwrap_or("it says nothing");
    let report = fs::read_dir(directory.path())
        .map_err(|error| error.to_string())?
        .filter_map(Result::ok)
        .map(|file| file.path())
        .find(|path| path.extension().is_some_and(|extension| extension == "json"))
        .ok_or_else(|| format!("a trial under the library left no report: {said}"))?;
    let text = fs::read(report).map_err(|error| error.to_string())?;
    Summary::from_json(&text).map_err(|error| format!("the trial's report is unreadable: {error}"))
}

/// Returns the command without the user's settings, which have checks of their own.
fn command_without_settings(command: &Path) -> Command {
    let mut trial = Command::new(command);
    for (name, _) in env::vars_os() {
        let is_setting =
            name.to_str().is_some_and(|name| name.starts_with(PREFIX) && name != LIBRARY);
        if is_setting {
            trial.env_remove(name);
        }
    }
    trial
}

fn judge(summary: &Summary) -> Vec<Check> {
    let collection = &summary.collection;
    let samples = collection.samples;
    let measurement = if samples >= MIN_SAMPLES {
        Check::ok(
            "measurement",
            format!("a computation of 0.3 s under the library: {samples} samples"),
        )
    } else {
        Check::failed(
            "measurement",
            format!("a computation of 0.3 s under the library left {samples} samples"),
            "Look at the notes of a report, and at `plimsoll run --verbose 2`.",
        )
    };
    vec![measurement, clock(summary), marks(summary)]
}

fn clock(summary: &Summary) -> Check {
    use plimsoll_summary::Clock;
    let kept = match summary.run.period_us.effective {
        Some(kept_us) => {
            format!("{:.1} ms between samples where 1 ms was asked for", kept_us / 1e3)
        }
        None => "no samples".to_owned(),
    };
    match summary.run.clock {
        Clock::Cpu => Check::ok("sampling clock", format!("perf events: {kept}")),
        Clock::Timer => Check::limited(
            "sampling clock",
            format!("timers of CPU time, because perf events are refused{}: {kept}", paranoid()),
            "For periods below the kernel's tick (often 4 ms): sysctl \
             kernel.perf_event_paranoid=2, and in containers allow perf_event_open in the seccomp \
             profile.",
        ),
        Clock::Wall => Check::limited(
            "sampling clock",
            format!("wall-clock timers: {kept}"),
            "Unset PLIMSOLL_CLOCK and PLIMSOLL_REGIONS.",
        ),
    }
}

fn paranoid() -> String {
    fs::read_to_string("/proc/sys/kernel/perf_event_paranoid")
        .map(|level| format!(" (kernel.perf_event_paranoid is {})", level.trim()))
        .unwrap_or_default()
}

fn marks(summary: &Summary) -> Check {
    let marks = &summary.collection.marks;
    match &marks.off_reason {
        None => Check::ok("stack marks", format!("{} placed, {} hit", marks.planted, marks.hit)),
        Some(reason) => Check::limited(
            "stack marks",
            format!("off: {reason}"),
            "Without marks, successive calls look like one long call.",
        ),
    }
}
