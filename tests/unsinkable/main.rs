//! Ends jobs in every way, at every place, and shows how much of the measurement survives.
//!
//! usage: plimsoll-unsinkable [--short] [--kills NUMBER] [--at-once NUMBER] [endings] [kills]
//!
//! Prints two tables, or the selected one. The first has a row for each way to end at each place. A
//! row is green if the status is the same as without Plimsoll, the end comes at most [`LATER_S`]
//! later, a report or a digest shows the run, and nothing is left behind. The second table counts
//! jobs with ranks killed at random times: a digest covers them up to [`LOST_S`] before the kill.
//! Exits with 1 if a row is red.

mod endings;
mod kills;

use std::process::ExitCode;

use plimsoll_tests::artifacts::artifacts;

/// Maximum delay of an end compared with a run without Plimsoll, in seconds.
const LATER_S: f64 = 1.0;

/// Maximum time before a kill that a digest may miss, in seconds.
const LOST_S: f64 = 1.0;

struct Arguments {
    short: bool,
    kills: usize,
    /// Number of jobs at a time: their ranks sleep more than they compute.
    at_once: usize,
    endings: bool,
}

fn arguments() -> Result<Arguments, String> {
    let (mut short, mut kills, mut at_once) = (false, None, 1);
    let (mut only_endings, mut only_kills) = (false, false);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        let mut number = || {
            let number = words.next().and_then(|number| number.parse().ok());
            number.ok_or(format!("{word} needs a number"))
        };
        match word.as_str() {
            "--short" => short = true,
            "--kills" => kills = Some(number()?),
            "--at-once" => at_once = number()?,
            "endings" => only_endings = true,
            "kills" => only_kills = true,
            other => return Err(format!("nothing is known of {other}")),
        }
    }
    let all = only_endings == only_kills;
    let kills = match kills {
        _ if !all && only_endings => 0,
        Some(kills) => kills,
        None if short => 4,
        None => 1000,
    };
    Ok(Arguments { short, kills, at_once, endings: all || only_endings })
}

fn main() -> ExitCode {
    let arguments = match arguments() {
        Ok(arguments) => arguments,
        Err(message) => {
            eprintln!("plimsoll-unsinkable: {message}");
            return ExitCode::from(2);
        }
    };
    artifacts();
    // A job that hangs is a row of its own.
    std::panic::set_hook(Box::new(|_| {}));
    let mut red = 0;
    if arguments.endings {
        red += endings::table(arguments.short, arguments.at_once);
    }
    if arguments.kills > 0 {
        red += kills::table(arguments.kills, arguments.at_once);
    }
    println!("{red} red");
    if red == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
