//! Definition of the command line. The options of `run` come from the settings table.

use std::ffi::{OsStr, OsString};

use clap::builder::{OsStringValueParser, TypedValueParser};
use clap::{Arg, ArgAction, Command, value_parser};

use crate::doctor::TRIAL;
use plimsoll_export::Format;
use plimsoll_summary::printable::excerpt;
use plimsoll_summary::settings::{State, TABLE, Variable, Warning, check};

/// Id of the program and its arguments.
pub const PROGRAM: &str = "program";

/// Returns the definition of the whole command line.
pub fn command() -> Command {
    Command::new("plimsoll")
        .version(env!("CARGO_PKG_VERSION"))
        .about("Shows why an MPI program does not scale")
        .subcommand_required(true)
        .arg_required_else_help(true)
        .subcommand(run())
        .subcommand(report())
        .subcommand(digest())
        .subcommand(super::diff::command())
        .subcommand(super::top::command())
        .subcommand(doctor())
        .subcommand(Command::new(TRIAL).hide(true))
}

fn run() -> Command {
    let program = Arg::new(PROGRAM)
        .help("The program and its arguments")
        .value_name("PROGRAM")
        .value_parser(value_parser!(OsString))
        .num_args(1..)
        .required(true)
        .trailing_var_arg(true);
    let command = Command::new("run")
        .about("Run a program, or one rank of a job, under Plimsoll")
        .override_usage("plimsoll run [OPTIONS] -- PROGRAM [ARGUMENTS]...")
        .after_help(
            "Each option sets the environment variable PLIMSOLL_<OPTION>, which may also be set \
             by hand.\nExample: mpiexec -n 16 plimsoll run --period 1ms --output results -- ./app \
             input",
        )
        .arg(program);
    let public = TABLE.iter().filter(|variable| variable.state != State::Internal);
    public.fold(command, |command, variable| command.arg(option(variable)))
}

fn option(variable: &'static Variable) -> Arg {
    let mut help = variable.meaning.to_owned();
    if !variable.default.is_empty() {
        help.push_str(&format!(" [default: {}]", variable.default));
    }
    Arg::new(variable.name)
        .long(variable.option())
        .value_name(variable.placeholder)
        .help(wrapped(&help, OPTION_COLUMNS))
        .action(ArgAction::Set)
        .value_parser(OsStringValueParser::new().try_map(move |value| readable(variable, value)))
}

/// Columns of a line.
const COLUMNS: usize = 100;
/// Columns beside the names of options.
const OPTION_COLUMNS: usize = 72;

/// Wraps a help text.
fn wrapped(help: &str, columns: usize) -> String {
    let (mut text, mut column) = (String::new(), 0);
    for word in help.split(' ') {
        if column > 0 && column + 1 + word.len() > columns {
            text.push('\n');
            column = 0;
        } else if column > 0 {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += word.len();
    }
    text
}

/// Checks a value of an option: wrong values are errors at once. Replaced values are reported
/// when the job starts, as for a variable set by hand.
fn readable(variable: &'static Variable, value: OsString) -> Result<OsString, String> {
    match check(variable, OsStr::new(&value)) {
        Some(Warning::Unreadable { .. }) => Err(format!("expected {}", variable.expected)),
        Some(Warning::Wrong { reason, .. }) => {
            Err(format!("{}; expected {}", excerpt(&reason), variable.expected))
        }
        Some(Warning::Unknown { .. } | Warning::Replaced { .. } | Warning::Interrupts) | None => {
            Ok(value)
        }
    }
}

fn report() -> Command {
    Command::new("report")
        .about("Print a summary from its JSON file, or export it for another tool's viewer")
        .after_help(
            "Exports read the side files beside the summary, where they are: the times of single \
             ranks, the\ntimeline. Viewers: speedscope https://www.speedscope.app, firefox \
             https://profiler.firefox.com,\nperfetto https://ui.perfetto.dev, pprof `go tool pprof \
             -http : FILE`, hatchet\n`hatchet.GraphFrame.from_json(open(FILE).read())`, collapsed \
             flamegraph.pl and inferno.",
        )
        .arg(
            Arg::new("file")
                .help("The *.plimsoll.json file; - is standard input")
                .value_name("FILE")
                .value_parser(value_parser!(OsString))
                .required(true),
        )
        .arg(
            Arg::new("format")
                .long("format")
                .value_name("FORMAT")
                .help(wrapped(
                    &format!("How to print it: {} [default: text]", formats().join(", ")),
                    OPTION_COLUMNS,
                ))
                .value_parser(formats())
                .hide_possible_values(true)
                .default_value("text")
                .hide_default_value(true),
        )
        .arg(
            Arg::new("output")
                .long("output")
                .value_name("FILE")
                .help(wrapped(
                    "Where it goes; a file that is there is replaced [default: standard output]",
                    OPTION_COLUMNS,
                ))
                .value_parser(value_parser!(OsString)),
        )
        .arg(Arg::new("ranks").long("ranks").value_name("RANKS").help(wrapped(
            "Ranks that an export shows: a list such as 0-3,8, or all [default: all ranks up to \
             64, of more the representatives of clusters]",
            OPTION_COLUMNS,
        )))
        .arg(
            Arg::new("iterations")
                .long("iterations")
                .value_name("WHICH")
                .value_parser(["representative"])
                .hide_possible_values(true)
                .help(wrapped(
                    "Export (perfetto, firefox) only the representative iterations of loops, one \
                     for each cluster of similar iterations [possible values: representative]",
                    OPTION_COLUMNS,
                )),
        )
        .arg(
            Arg::new("tree")
                .long("tree")
                .help("Print the calling-context tree: hot paths, down to 0.5 % of the time")
                .action(ArgAction::SetTrue),
        )
}

/// Returns the formats of `report`.
fn formats() -> Vec<&'static str> {
    ["text", "json", "html"].into_iter().chain(Format::ALL.map(Format::name)).collect()
}

fn doctor() -> Command {
    Command::new("doctor")
        .about("Check what works on this machine, and with a program")
        .long_about(wrapped(
            "Checks what works on this machine: a short computation is measured under the \
             library, and limits, settings and directories are looked at. With PROGRAM it also \
             checks what can be measured of that program, which is not started. Each line that is \
             not ok has a remedy. The exit status is 0 if nothing failed, else 1.",
            COLUMNS,
        ))
        .arg(
            Arg::new("program")
                .help("A program, by its path or its name in PATH")
                .value_name("PROGRAM")
                .value_parser(value_parser!(OsString)),
        )
        .arg(
            Arg::new("json")
                .long("json")
                .help("Print the checks as JSON: schema plimsoll-doctor/1")
                .action(ArgAction::SetTrue),
        )
}

fn digest() -> Command {
    Command::new("digest")
        .about("Make the summary again from the samples that a run has left")
        .long_about(wrapped(
            "Makes a summary from the samples that a run has left on disk: after a crash, a kill, \
             or to join what several nodes have written. It is the summary that the run would have \
             written.",
            COLUMNS,
        ))
        .after_help(
            "Built with `--features mpi` it also runs in parallel: mpiexec -n 16 plimsoll digest \
             FOLDER",
        )
        .arg(
            Arg::new("folder")
                .help("The folder *.plimsoll.d, or one *.spool file of it")
                .value_name("FOLDER")
                .value_parser(value_parser!(OsString))
                .required(true),
        )
        .arg(
            Arg::new("output")
                .long("output")
                .value_name("DIRECTORY")
                .help("Where the reports go, *_digest.plimsoll.* [default: beside the folder]")
                .value_parser(value_parser!(OsString)),
        )
        .arg(
            Arg::new("labels")
                .long("labels")
                .value_name("FILE")
                .help("File with rules of labels, in place of those that the run had")
                .value_parser(value_parser!(OsString)),
        )
        .arg(
            Arg::new("threads")
                .long("threads")
                .value_name("NUMBER")
                .help("Threads that read [default: one for each core]")
                .value_parser(value_parser!(u32).range(1..=4096)),
        )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        command().debug_assert();
    }

    #[test]
    fn every_public_setting_is_an_option() {
        let help = run().render_help().to_string();
        for variable in &TABLE {
            let option = format!("--{} ", variable.option());
            let line = help.lines().position(|line| line.trim_start().starts_with(&option));
            assert_eq!(line.is_some(), variable.state != State::Internal, "{}", variable.name);
        }
        assert!(help.lines().all(|line| line.len() <= 100), "{help}");
    }

    #[test]
    fn no_help_is_wider_than_a_terminal() {
        for command in command().get_subcommands() {
            let help = error(&["plimsoll", command.get_name(), "--help"]);
            let wide = help.lines().find(|line| line.chars().count() > COLUMNS);
            assert_eq!(wide, None, "{}", command.get_name());
        }
    }

    fn error(arguments: &[&str]) -> String {
        command().try_get_matches_from(arguments).unwrap_err().to_string()
    }

    #[test]
    fn wrong_values_say_what_is_expected() {
        let message = error(&["plimsoll", "run", "--period", "4", "--", "true"]);
        assert!(message.contains("such as 4ms"), "{message}");
        for (option, value, reason) in [
            ("--counters", "cycels", "`cycels` is not the name of an event"),
            ("--metrics", "ipc = instructions /", "definitions such as"),
            ("--trace", "sample:error=90%", "from 0.1% to 50%"),
        ] {
            let message = error(&["plimsoll", "run", option, value, "--", "true"]);
            assert!(message.contains(reason), "{message}");
        }
        let message = error(&["plimsoll", "run", "--perod", "4ms", "--", "true"]);
        assert!(message.contains("--period"), "{message}");
    }

    #[test]
    fn arguments_after_the_program_are_its_own() {
        for arguments in [
            vec!["plimsoll", "run", "--period", "1ms", "--", "app", "--period", "x"],
            vec!["plimsoll", "run", "--period", "1ms", "app", "--period", "x"],
        ] {
            let matches = command().try_get_matches_from(arguments).unwrap();
            let run = matches.subcommand_matches("run").unwrap();
            let program: Vec<&OsString> = run.get_many(PROGRAM).unwrap().collect();
            assert_eq!(program, ["app", "--period", "x"]);
        }
    }
}
