//! `plimsoll doctor [PROGRAM]`: checks what works on this machine and with a program, with
//! remedies.
//!
//! A measurement checks the machine: a short computation runs under the library, and its summary
//! shows how it was sampled. The checks of a program read its file; the program is not started.

mod check;
mod machine;
mod program;
mod trial;

use std::env;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::ArgMatches;
use plimsoll_summary::printable::line;
use plimsoll_summary::settings::Settings;

use crate::{Failure, run_command};
use check::{Check, State};

pub use trial::{TRIAL, compute};

/// Exit status when a check failed: Plimsoll measures nothing here, or nothing of the program.
const FAILED: u8 = 1;

/// Version of the JSON output.
const SCHEMA: &str = "plimsoll-doctor/1";

/// Prints all checks.
///
/// # Errors
/// If a check failed: the message counts them.
pub fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let (settings, warnings) = Settings::from_env(env::vars_os());
    let mut checks = machine::checks(&settings, &warnings);
    if let Some(program) = matches.get_one::<OsString>("program") {
        checks.extend(match run_command::find(program) {
            Some(path) => program::checks(&path, &settings),
            None => vec![not_found(program)],
        });
    }
    let text = if matches.get_flag("json") { json(&checks) } else { text(&checks) };
    crate::print(text.as_bytes(), FAILED)?;
    let failed = checks.iter().filter(|check| check.state == State::Failed).count();
    match failed {
        0 => Ok(()),
        1 => Err(Failure {
            message: "one check failed; its remedy is above.".into(),
            status: FAILED,
        }),
        _ => Err(Failure {
            message: format!("{failed} checks failed; their remedies are above."),
            status: FAILED,
        }),
    }
}

fn not_found(program: &OsString) -> Check {
    let name = Path::new(program).display().to_string();
    Check::failed(
        "program",
        format!("{name} is not found"),
        "Give the path of an executable file, or a name that PATH finds.",
    )
}

/// Formats each check in at most two lines: the finding and the remedy.
fn text(checks: &[Check]) -> String {
    let width = checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
    let mut text = String::new();
    for check in checks {
        let word = match check.state {
            State::Ok => "ok     ",
            State::Limited => "limited",
            State::Failed => "FAILED ",
        };
        text.push_str(&format!("{word}  {:width$}  {}\n", check.name, line(&check.found)));
        if let Some(remedy) = &check.remedy {
            text.push_str(&format!("{:9}{:width$}  -> {}\n", "", "", line(remedy)));
        }
    }
    text
}

fn json(checks: &[Check]) -> String {
    let value = serde_json::json!({ "schema": SCHEMA, "checks": checks });
    format!("{value:#}\n")
}

/// Returns the path of this command, which starts the library and the trial.
fn own_command() -> Option<PathBuf> {
    run_command::own_place(env::current_exe(), env::args_os().next())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn remedies_follow_their_checks_and_nothing_escapes_to_the_terminal() {
        let checks = [
            Check::ok("cores", "2"),
            Check::failed("program", "\u{1b}[31mred is static", "Link it dynamically."),
        ];
        let text = text(&checks);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(lines.len(), 3, "{text}");
        assert!(lines[0].starts_with("ok") && lines[0].ends_with("cores    2"), "{text}");
        assert!(lines[1].starts_with("FAILED") && !text.contains('\u{1b}'), "{text}");
        assert!(lines[2].trim_start().starts_with("-> Link"), "{text}");
        let json: serde_json::Value = serde_json::from_str(&json(&checks)).unwrap();
        assert_eq!(json["schema"], SCHEMA);
        assert_eq!(json["checks"][0]["state"], "ok");
        assert!(json["checks"][0]["remedy"].is_null());
        assert_eq!(json["checks"][1]["remedy"], "Link it dynamically.");
    }
}
