//! Ends jobs in every way, at every place, and shows how much of the measurement survives.
//!
//! usage: plimsoll-unsinkable [--short] [--kills NUMBER]
//!
//! Two tables. The first has a row for each way to end at each place: the status is as without
//! Plimsoll, the end comes at most [`LATER_S`] later, a report or a digest tells of the run, and
//! nothing is left behind. The second counts jobs of which ranks were killed at random times: a
//! digest tells of them up to [`LOST_S`] before. Exits with 1 if a row is red.

mod endings;
mod kills;

use std::process::ExitCode;

use plimsoll_tests::artifacts::artifacts;

/// Longest time by which an end may come later than without Plimsoll, in seconds.
const LATER_S: f64 = 1.0;

/// Longest time before a kill that a digest may miss, in seconds.
const LOST_S: f64 = 1.0;

struct Arguments {
    short: bool,
    kills: usize,
}

fn arguments() -> Result<Arguments, String> {
    let (mut short, mut kills) = (false, None);
    let mut words = std::env::args().skip(1);
    while let Some(word) = words.next() {
        match word.as_str() {
            "--short" => short = true,
            "--kills" => {
                let number = words.next().and_then(|number| number.parse().ok());
                kills = Some(number.ok_or("--kills needs a number")?);
            }
            other => return Err(format!("no option {other}")),
        }
    }
    Ok(Arguments { short, kills: kills.unwrap_or(if short { 4 } else { 1000 }) })
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
    let red = endings::table(arguments.short) + kills::table(arguments.kills);
    println!("{red} red");
    if red == 0 { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
