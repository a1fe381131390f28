//! `plimsoll report`: prints or exports a summary file.

use std::ffi::OsString;
use std::fs::{self, File};
use std::io::{self, BufWriter, IsTerminal, Read, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use clap::ArgMatches;
use plimsoll_sys::own_files::open_regular;

use crate::export::{export, export_iterations, lane_choice};
use crate::{Failure, USAGE};
use plimsoll_export::{ExportError, Format, LaneChoice};
use plimsoll_report as report;
use plimsoll_summary::Summary;
use plimsoll_summary::error::Error;
use plimsoll_summary::printable::path as shown;

/// Exit status for a file that cannot be read or printed.
const FAILED: u8 = 1;

/// View to print.
enum View {
    Text,
    Tree,
    Json,
    Page,
    Export(Format, LaneChoice),
    Iterations(Format),
}

pub fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let file = matches.get_one::<OsString>("file").map_or(Path::new("-"), Path::new);
    let view = view(matches)?;
    let output = matches.get_one::<OsString>("output").map(Path::new);
    if output.is_none() && view.is_binary() && io::stdout().is_terminal() {
        let message = "This format is binary: name a file with --output, or redirect the output.";
        return Err(wrong_usage(message.into()));
    }
    let json = read(file).map_err(|source| unreadable(file, source))?;
    let summary = Summary::from_json(&json).map_err(|error| failed_at(file, &error))?;
    if let Some(path) = output.filter(|path| is_same_file(file, path)) {
        let path = shown(path);
        return Err(wrong_usage(format!("{path} is the summary itself: name another file.")));
    }
    crate::expect_closed_pipes();
    let (written, place) = match output {
        Some(path) => (write_file(&view, &summary, file, path), path),
        None => {
            let mut stdout = BufWriter::new(io::stdout().lock());
            let written = view.write(&summary, file, &mut stdout);
            (written.and_then(|()| Ok(stdout.flush()?)), Path::new("standard output"))
        }
    };
    match written {
        Ok(()) => Ok(()),
        // A reader of the first lines (`| head`) closes the pipe early.
        Err(ExportError::Write(error)) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(ExportError::Write(source)) => {
            Err(failure(&Error::Write { path: place.into(), source }))
        }
        Err(error) => Err(failed_at(file, &error)),
    }
}

fn view(matches: &ArgMatches) -> Result<View, Failure> {
    let format = matches.get_one::<String>("format").map_or("text", String::as_str);
    let ranks = matches.get_one::<String>("ranks").map(String::as_str);
    if matches.contains_id("iterations") {
        return match Format::from_name(format) {
            Some(format @ (Format::Firefox | Format::Perfetto)) if ranks.is_none() => {
                Ok(View::Iterations(format))
            }
            Some(Format::Firefox | Format::Perfetto) => Err(wrong_usage(
                "--iterations shows the rank with the longest executions of each loop: leave out \
                 --ranks."
                    .into(),
            )),
            _ => Err(wrong_usage(
                "--iterations is for formats with a time axis: --format perfetto or firefox."
                    .into(),
            )),
        };
    }
    if let Some(format) = Format::from_name(format) {
        return Ok(View::Export(format, lane_choice(ranks).map_err(wrong_usage)?));
    }
    if ranks.is_some() {
        let exports = Format::ALL.map(Format::name).join(", ");
        return Err(wrong_usage(format!("--ranks is for exports: --format {exports}.")));
    }
    Ok(match (format, matches.get_flag("tree")) {
        ("json", _) => View::Json,
        ("html", _) => View::Page,
        (_, true) => View::Tree,
        (_, false) => View::Text,
    })
}

impl View {
    fn is_binary(&self) -> bool {
        matches!(self, Self::Export(format, _) | Self::Iterations(format) if format.is_binary())
    }

    fn write(&self, summary: &Summary, file: &Path, to: &mut dyn Write) -> Result<(), ExportError> {
        match self {
            Self::Json => Ok(summary.write_json(to)?),
            Self::Page => Ok(report::write_page(summary, directory_of(file), to)?),
            Self::Tree => Ok(to.write_all(report::tree(summary).as_bytes())?),
            Self::Text => Ok(to.write_all(report::text(summary).as_bytes())?),
            Self::Iterations(format) => export_iterations(*format, summary, file, to),
            Self::Export(format, choice) => export(*format, summary, file, choice, to),
        }
    }
}

/// Writes a whole file or none: under a temporary name in the same directory, then renamed. Devices
/// and pipes are written directly.
fn write_file(
    view: &View,
    summary: &Summary,
    file: &Path,
    output: &Path,
) -> Result<(), ExportError> {
    if fs::metadata(output).is_ok_and(|found| !found.is_file()) {
        let mut to = BufWriter::new(File::options().write(true).open(output)?);
        view.write(summary, file, &mut to)?;
        return Ok(to.flush()?);
    }
    let mut name = output.file_name().unwrap_or_default().to_owned();
    name.push(format!(".{}.part", std::process::id()));
    let part = output.with_file_name(name);
    let write = |part: &Path| {
        let mut to = BufWriter::new(File::create_new(part)?);
        view.write(summary, file, &mut to)?;
        Ok(to.flush()?)
    };
    let written = write(&part).and_then(|()| Ok(fs::rename(&part, output)?));
    if written.is_err() {
        let _ = fs::remove_file(&part);
    }
    written
}

fn read(file: &Path) -> io::Result<Vec<u8>> {
    if file == Path::new("-") {
        let mut json = Vec::new();
        io::stdin().lock().read_to_end(&mut json)?;
        return Ok(json);
    }
    let mut json = Vec::new();
    open_regular(file)?.read_to_end(&mut json)?;
    Ok(json)
}

/// Returns whether both paths lead to one file.
fn is_same_file(one: &Path, other: &Path) -> bool {
    let id = |path| fs::metadata(path).ok().map(|it| (it.dev(), it.ino()));
    id(one).is_some_and(|one| id(other) == Some(one))
}

fn unreadable(file: &Path, source: io::Error) -> Failure {
    let is_stream = fs::metadata(file).is_ok_and(|it| !it.is_file() && !it.is_dir());
    let mut failure = failure(&Error::Read { path: file.into(), source });
    if is_stream {
        failure.message.push_str(" The name `-` reads standard input.");
    }
    failure
}

fn failed_at(file: &Path, error: &dyn std::error::Error) -> Failure {
    Failure { message: format!("{}: {error}", shown(file)), status: FAILED }
}

/// Returns the directory of a file; `None` for standard input.
fn directory_of(file: &Path) -> Option<&Path> {
    match file.parent() {
        _ if file == Path::new("-") => None,
        Some(directory) if directory != Path::new("") => Some(directory),
        _ => Some(Path::new(".")),
    }
}

fn failure(error: &Error) -> Failure {
    Failure { message: error.to_string(), status: FAILED }
}

fn wrong_usage(message: String) -> Failure {
    Failure { message, status: USAGE }
}
