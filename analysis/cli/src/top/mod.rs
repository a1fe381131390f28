//! `plimsoll top`: diagnosis of a running job from its spools.
//!
//! The job is not involved: each collector writes its ranks' samples to disk at least once a
//! second, and a digest of unfinished spools is the summary of the run so far.

mod jobs;

use std::ffi::OsString;
use std::thread;
use std::time::{Duration, Instant};

use clap::{Arg, ArgAction, ArgMatches, Command, value_parser};
use console::Term;
use plimsoll_analysis::digest::{DigestError, digest, find};
use plimsoll_report::text;
use plimsoll_summary::error::Error;
use plimsoll_summary::phrase::{TIED, percent, seconds};
use plimsoll_summary::printable::path as shown;
use plimsoll_summary::settings::quantity::parse_duration_ns;
use plimsoll_summary::{Efficiency, RUNNING, Summary, Window};

use crate::Failure;
use crate::digest_command::{FAILED, cores, failure, first_found};
use jobs::{JobFolder, RunState};

/// Maximum fraction of the time for digests: other programs use the machine, too.
const MAX_CPU_FRACTION: f64 = 0.1;
/// Length in seconds of the recent time with an efficiency of its own.
const RECENT_S: f64 = 10.0;
/// Number of attempts to read spools that are being written.
const ATTEMPTS: u32 = 4;
const RETRY_AFTER: Duration = Duration::from_millis(200);

/// Returns the definition of the subcommand.
pub fn command() -> Command {
    Command::new("top")
        .about("Watch a running job: its losses so far")
        .long_about(
            "Shows the report of a running job, made from the samples that it has written so far, \
             until the\njob ends. The job is not disturbed. A job that has died without a \
             report is shown once.",
        )
        .arg(
            Arg::new("job")
                .help(
                    "A job id, a folder *.plimsoll.d, or the directory that holds it [default: the \
                     job\nthat writes to PLIMSOLL_OUTPUT, or to the current directory]",
                )
                .value_name("JOB|DIRECTORY")
                .value_parser(value_parser!(OsString)),
        )
        .arg(
            Arg::new("once")
                .long("once")
                .help("Show it once instead of until the job ends")
                .action(ArgAction::SetTrue),
        )
        .arg(
            Arg::new("json")
                .long("json")
                .help("Print the summary as JSON, one line each time; run.ended is \"running\"")
                .action(ArgAction::SetTrue),
        )
        .arg(
            Arg::new("every")
                .long("every")
                .value_name("TIME")
                .help("Time between two views; longer where reading takes more than a tenth of it")
                .value_parser(interval)
                .default_value("2s"),
        )
}

fn interval(text: &str) -> Result<Duration, String> {
    match parse_duration_ns(text) {
        Some(ns) if ns >= 100_000_000 => Ok(Duration::from_nanos(ns)),
        _ => Err("expected a time of at least 100ms, such as 2s".into()),
    }
}

/// Shows a job, once or until it ends.
pub fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let job = JobFolder::find(matches.get_one::<OsString>("job").map(OsString::as_os_str))?;
    let every = matches.get_one::<Duration>("every").copied().unwrap_or_default();
    let (is_once, is_json) = (matches.get_flag("once"), matches.get_flag("json"));
    let terminal = Term::stdout();
    let mut was_running = false;
    loop {
        let begin = Instant::now();
        let state = job.state();
        if let RunState::Reported(report) = &state {
            let message = format!("the run has ended; its report: {}", shown(report));
            return ended(&message, was_running);
        }
        let is_running = state == RunState::Running;
        let mut summary = summary_so_far(&job)?;
        if is_running {
            RUNNING.clone_into(&mut summary.run.ended);
            summary.run.incomplete = None;
        }
        let view = if is_json { json_line(&summary)? } else { view(&job, &summary) };
        let is_read = show(&view, &terminal, is_json || is_once)?;
        if !is_running {
            let folder = shown(&job.path);
            let message = format!(
                "the run has ended without a report of all its ranks; `plimsoll digest {folder}` \
                 makes it."
            );
            return ended(&message, was_running);
        }
        if is_once || !is_read {
            return Ok(());
        }
        was_running = true;
        thread::sleep(every.max(begin.elapsed().div_f64(MAX_CPU_FRACTION)));
    }
}

/// Says that the run has ended: an error if `top` has not seen it running.
fn ended(message: &str, was_running: bool) -> Result<(), Failure> {
    if !was_running {
        return Err(failure(message));
    }
    crate::say(message);
    Ok(())
}

fn json_line(summary: &Summary) -> Result<String, Failure> {
    let json = summary.to_json().map_err(failure)?;
    Ok(format!("{}\n", String::from_utf8_lossy(&json).trim_end()))
}

/// Returns the summary of the spools so far.
fn summary_so_far(job: &JobFolder) -> Result<Summary, Failure> {
    for _ in 1..ATTEMPTS {
        // A collector that has just started may not have written its job's description yet.
        match read(job) {
            Ok(summary) => return Ok(summary),
            Err(_) => thread::sleep(RETRY_AFTER),
        }
    }
    read(job).map_err(failure)
}

fn read(job: &JobFolder) -> Result<Summary, DigestError> {
    let paths = find(&job.path)?;
    let found = first_found(cores(), |comm| digest(comm, &paths, None, &|_, _| (), None))?;
    found.ok_or_else(|| DigestError::NoSpool(job.path.clone()))
}

/// Returns the text report below a line with its age.
fn view(job: &JobFolder, summary: &Summary) -> String {
    format!("{}\n\n{}", head(job.silence(), &summary.efficiency), text(summary))
}

/// Returns the first line: how old the samples are, and the efficiency of the last seconds. OpenMP
/// is a factor of the whole run's parallel efficiency only: it is not known over time.
fn head(silence: Duration, efficiency: &Efficiency) -> String {
    let mut head = format!("Samples until {} ago.", seconds(silence.as_secs_f64()));
    if let Some(recent) = recent_efficiency(&efficiency.windows) {
        let without = if efficiency.openmp.is_some() { ", without OpenMP" } else { "" };
        head.push_str(&format!(
            " Parallel efficiency in the last {RECENT_S:.0} s{without}: {}.",
            percent(recent)
        ));
    }
    head.replace(TIED, " ")
}

/// Returns the mean parallel efficiency of the last seconds; `None` for shorter runs.
fn recent_efficiency(windows: &[Window]) -> Option<f64> {
    let begin_s = windows.last()?.end_s - RECENT_S;
    if begin_s < RECENT_S {
        return None;
    }
    let recent = windows.iter().filter(|window| window.end_s > begin_s);
    let values: Vec<f64> = recent.filter_map(|window| window.parallel).collect();
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

/// Prints a view, on a terminal in place of the previous one. Returns false if the reader has
/// closed the pipe.
fn show(view: &str, terminal: &Term, is_appended: bool) -> Result<bool, Failure> {
    if is_appended || !terminal.is_term() {
        return crate::print(view.as_bytes(), FAILED);
    }
    let (rows, _) = terminal.size();
    let lines: Vec<&str> = view.lines().take(usize::from(rows).saturating_sub(1)).collect();
    let drawn = terminal.clear_screen().and_then(|()| terminal.write_line(&lines.join("\n")));
    drawn.map_err(|source| failure(Error::Write { path: "the terminal".into(), source }))?;
    Ok(true)
}

#[cfg(test)]
mod tests {
    use plimsoll_summary::OpenMpEfficiency;

    use super::*;

    #[test]
    fn the_recent_efficiency_says_that_it_lacks_openmp() {
        let window = |(at, parallel): (u32, f64)| Window {
            begin_s: 5.0 * f64::from(at),
            end_s: 5.0 * f64::from(at + 1),
            parallel: Some(parallel),
            ..Window::default()
        };
        let windows: Vec<Window> = (0..).zip([0.1, 0.1, 0.8, 0.9]).map(window).collect();
        let head = |openmp: Option<OpenMpEfficiency>, windows: &[Window]| {
            let efficiency = Efficiency { openmp, windows: windows.to_vec(), ..Default::default() };
            super::head(Duration::from_secs(2), &efficiency)
        };
        let age = "Samples until 2.00 s ago.";
        assert_eq!(head(None, &windows[..3]), age);
        let recent = format!("{age} Parallel efficiency in the last 10 s");
        assert_eq!(head(None, &windows), format!("{recent}: 85 %."));
        let teams = Some(OpenMpEfficiency::default());
        assert_eq!(head(teams, &windows), format!("{recent}, without OpenMP: 85 %."));
    }

    #[test]
    fn intervals_are_at_least_a_tenth_of_a_second() {
        assert_eq!(interval("1.5s"), Ok(Duration::from_millis(1500)));
        for wrong in ["99ms", "2", "soon", ""] {
            assert!(interval(wrong).unwrap_err().contains("such as 2s"), "{wrong}");
        }
    }
}
