//! `plimsoll report`: a summary file, printed.

use std::ffi::OsString;
use std::io::{self, BufWriter, Read, Write};
use std::path::Path;

use clap::ArgMatches;
use nix::sys::signal::{SigHandler, Signal, signal};
use plimsoll_sys::own_files::open_regular;

use crate::Failure;
use plimsoll_report as report;
use plimsoll_summary::Summary;
use plimsoll_summary::error::Error;
use plimsoll_summary::printable::path as shown;

/// Exit status of a file that cannot be read or printed.
const FAILED: u8 = 1;

pub fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let file = matches.get_one::<OsString>("file").map_or(Path::new("-"), Path::new);
    let json = read(file).map_err(|source| failure(&Error::Read { path: file.into(), source }))?;
    let summary = Summary::from_json(&json).map_err(|error| Failure {
        message: format!("{}: {error}", shown(file)),
        status: FAILED,
    })?;
    let json_wanted = matches.get_one::<String>("format").is_some_and(|format| format == "json");
    // A reader that goes away is to be an error of the write, not the death of this process.
    // SAFETY: ignoring a signal installs no handler.
    let _ = unsafe { signal(Signal::SIGPIPE, SigHandler::SigIgn) };
    let mut stdout = BufWriter::new(io::stdout().lock());
    let written = match (json_wanted, matches.get_flag("tree")) {
        (true, _) => summary.write_json(&mut stdout),
        (false, true) => stdout.write_all(report::tree(&summary).as_bytes()),
        (false, false) => stdout.write_all(report::text(&summary).as_bytes()),
    };
    match written.and_then(|()| stdout.flush()) {
        // Whoever reads only the first lines (`| head`) has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(source) => Err(failure(&Error::Write { path: "standard output".into(), source })),
        Ok(()) => Ok(()),
    }
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

fn failure(error: &Error) -> Failure {
    Failure { message: error.to_string(), status: FAILED }
}
