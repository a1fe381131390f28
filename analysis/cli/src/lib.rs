//! The `plimsoll` command.

mod diff;
mod digest_command;
mod doctor;
mod elf;
mod export;
mod options;
mod preload_library;
mod report_command;
mod run_command;
mod top;

use std::ffi::OsString;
use std::io::{self, Write};

use clap::ArgMatches;
use nix::sys::signal::{SigHandler, Signal, signal};
use plimsoll_summary::error::Error;
use plimsoll_summary::printable::{excerpt, line};

/// Exit status of wrong usage.
pub const USAGE: u8 = 2;
/// Exit status if help cannot be written.
const NO_HELP: u8 = 1;

/// Failure of the command: message and exit status.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Failure {
    /// A sentence with a remedy.
    pub message: String,
    /// Exit status.
    pub status: u8,
}

/// Runs the command with these arguments, the program's own name first. Returns the exit status;
/// `plimsoll run` returns only on failure.
pub fn main(arguments: impl IntoIterator<Item = OsString>) -> u8 {
    let arguments: Vec<OsString> = arguments.into_iter().collect();
    let outcome = match options::command().try_get_matches_from(&arguments) {
        Ok(matches) => execute(&matches),
        Err(error) if error.use_stderr() => {
            let _ = io::stderr().write_all(usage(&error, &arguments).as_bytes());
            return u8::try_from(error.exit_code()).unwrap_or(USAGE);
        }
        Err(help) => print(help.render().to_string().as_bytes(), NO_HELP).map(drop),
    };
    match outcome {
        Ok(()) => 0,
        Err(failure) => {
            say(&failure.message);
            failure.status
        }
    }
}

fn execute(matches: &ArgMatches) -> Result<(), Failure> {
    match matches.subcommand() {
        Some(("run", run)) => run_command::run(run),
        Some(("diff", diff)) => diff::run(diff),
        Some(("digest", digest)) => digest_command::run(digest),
        Some(("report", report)) => report_command::run(report),
        Some(("doctor", doctor)) => doctor::run(doctor),
        Some((doctor::TRIAL, _)) => {
            doctor::compute();
            Ok(())
        }
        Some(("top", top)) => top::run(top),
        _ => Ok(()),
    }
}

/// Returns the error in the arguments; the parser quotes them unchanged.
fn usage(error: &clap::Error, arguments: &[OsString]) -> String {
    let mut text = error.render().to_string();
    for argument in arguments {
        let argument = argument.to_string_lossy();
        let (name, value) = argument.split_once('=').unwrap_or((&argument, ""));
        for part in [&*argument, value, name] {
            let shown = excerpt(part).to_string();
            if shown != part {
                text = text.replace(part, &shown);
            }
        }
    }
    // The remaining lines are the parser's own.
    text.lines().map(|part| format!("{}\n", line(part))).collect()
}

/// Lets a reader that closes the pipe cause a write error instead of ending this process.
fn expect_closed_pipes() {
    // SAFETY: ignoring a signal installs no handler.
    let _ = unsafe { signal(Signal::SIGPIPE, SigHandler::SigIgn) };
}

/// Writes to standard output. Returns whether a reader is left: one that closes the pipe early
/// (`| head`) is no error.
///
/// # Errors
/// Any other error of the output, with this exit status.
fn print(output: &[u8], status: u8) -> Result<bool, Failure> {
    expect_closed_pipes();
    let mut stdout = io::stdout().lock();
    match stdout.write_all(output).and_then(|()| stdout.flush()) {
        Ok(()) => Ok(true),
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(false),
        Err(source) => {
            let error = Error::Write { path: "standard output".into(), source };
            Err(Failure { message: error.to_string(), status })
        }
    }
}

/// Writes one line to stderr, with the names in it escaped. A closed stderr is ignored.
fn say(message: &str) {
    let _ = writeln!(io::stderr(), "plimsoll: {}", line(message));
}
