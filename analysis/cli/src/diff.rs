//! `plimsoll diff`: compares the summaries of several runs.

use std::ffi::OsString;
use std::fs;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use clap::{Arg, ArgMatches, Command, value_parser};
use plimsoll_compare::{
    Comparison, Expect, Experiment, Options, compare, text, to_json, write_page,
};
use plimsoll_summary::error::Error;
use plimsoll_summary::printable::path as shown;
use plimsoll_sys::own_files::open_regular;

use crate::{Failure, USAGE};

/// Exit status of a comparison above the limit of `--fail-above`.
const ABOVE: u8 = 1;
/// Suffix of the names of summaries.
const SUFFIX: &str = ".plimsoll.json";
/// Maximum size of a summary, in bytes: far above what a job writes.
const MAX_BYTES: u64 = 4 << 30;

/// Returns the definition of the subcommand.
pub fn command() -> Command {
    Command::new("diff")
        .about("Compare runs: where scaling is lost, what a change cost")
        .long_about(
            "Compares runs by their summaries: at different numbers of ranks, where scaling is \
             lost and how it\ngoes on; at one number of ranks, what a new version of the program \
             costs. Runs of the same\nexecutable, arguments and ranks are repetitions.",
        )
        .after_help(
            "Exit status: 0; with --fail-above also 1, where the value is above the limit; 2 for \
             errors.\nExample: plimsoll diff --fail-above 3% before/ after/",
        )
        .arg(
            Arg::new("runs")
                .help(
                    "Summaries, or folders with *.plimsoll.json files; the first is the \
                reference",
                )
                .value_name("FILE|FOLDER")
                .value_parser(value_parser!(OsString))
                .num_args(1..)
                .required(true),
        )
        .arg(
            Arg::new("expect")
                .long("expect")
                .value_name("strong|weak|same|work=N")
                .help("What is expected of the later runs [default: by ranks and arguments]")
                .value_parser(|text: &str| text.parse::<Expect>()),
        )
        .arg(
            Arg::new("fail-above")
                .long("fail-above")
                .value_name("PERCENT")
                .help("Exit status 1 if the run is slower, or its excess work more, than this")
                .value_parser(percent),
        )
        .arg(
            Arg::new("format")
                .long("format")
                .value_name("FORMAT")
                .help("How to print it; html is a page for a browser, in one file")
                .value_parser(["text", "json", "html"])
                .default_value("text"),
        )
}

fn percent(text: &str) -> Result<f64, String> {
    // Without its sign, 0.03 could mean 3 % as well.
    let number = text.strip_suffix('%').and_then(|number| number.trim().parse::<f64>().ok());
    match number {
        Some(percent) if percent.is_finite() && percent >= 0.0 => Ok(percent / 100.0),
        _ => Err("expected a percentage with its sign, such as 3%".into()),
    }
}

/// Compares and prints.
pub fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let options = Options {
        expect: matches.get_one::<Expect>("expect").cloned(),
        fail_above: matches.get_one::<f64>("fail-above").copied(),
    };
    let arguments: Vec<&OsString> = matches.get_many("runs").into_iter().flatten().collect();
    let experiments = experiments(&arguments)?;
    let comparison = compare(&experiments, &options).map_err(|error| failure(&error))?;
    let format = matches.get_one::<String>("format").map_or("text", String::as_str);
    print(&comparison, format)?;
    if comparison.verdict.failed {
        let message = format!("above the limit: {}", comparison.verdict.headline);
        return Err(Failure { message, status: ABOVE });
    }
    Ok(())
}

/// Reads the summaries one by one, each only for the values that a comparison needs.
fn experiments(arguments: &[&OsString]) -> Result<Vec<Experiment>, Failure> {
    let mut experiments = Vec::new();
    for (index, argument) in arguments.iter().enumerate() {
        for file in files(Path::new(argument))? {
            let json = read(&file)
                .map_err(|source| failure(&Error::Read { path: file.clone(), source }))?;
            let experiment = Experiment::from_json(&file.to_string_lossy(), index, &json)
                .map_err(|error| failure(&format!("{}: {error}", shown(&file))))?;
            experiments.push(experiment);
        }
    }
    Ok(experiments)
}

/// Returns the file, or the summaries in the folder in the order of their names.
fn files(argument: &Path) -> Result<Vec<PathBuf>, Failure> {
    if !argument.is_dir() {
        return Ok(vec![argument.into()]);
    }
    let failed = |source| failure(&Error::Read { path: argument.into(), source });
    let mut found = Vec::new();
    for entry in fs::read_dir(argument).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        if entry.file_name().to_string_lossy().ends_with(SUFFIX) {
            found.push(entry.path());
        }
    }
    if found.is_empty() {
        return Err(failure(&format!("{} holds no *{SUFFIX} files.", shown(argument))));
    }
    found.sort();
    Ok(found)
}

fn read(file: &Path) -> io::Result<Vec<u8>> {
    let file = open_regular(file)?;
    // One allocation: growing a buffer would copy its content.
    let bytes = file.metadata()?.len().min(MAX_BYTES);
    let mut json = Vec::with_capacity(bytes as usize + 1);
    file.take(MAX_BYTES).read_to_end(&mut json)?;
    Ok(json)
}

fn print(comparison: &Comparison, format: &str) -> Result<(), Failure> {
    let output = match format {
        "json" => to_json(comparison).map_err(|error| failure(&error))?.into_bytes(),
        "html" => {
            let mut page = Vec::new();
            write_page(comparison, &mut page).map_err(|error| failure(&error))?;
            page
        }
        _ => text(comparison).into_bytes(),
    };
    crate::print(&output, USAGE).map(drop)
}

fn failure(error: &dyn std::fmt::Display) -> Failure {
    Failure { message: error.to_string(), status: USAGE }
}
