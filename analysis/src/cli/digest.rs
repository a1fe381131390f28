//! `plimsoll digest`: spools to a summary, in threads of one process or as ranks of an MPI.

use std::ffi::OsString;
use std::io::IsTerminal;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use clap::ArgMatches;
use indicatif::{ProgressBar, ProgressStyle};

use super::Failure;
use crate::communicator::Communicator;
use crate::digest::{DigestError, digest, find};
use crate::mpi::launch;
use crate::output::{Report, Target, write_reports};
use crate::report::{BRIEF_LINES, brief, text};
use crate::summary::Summary;
use crate::threads;

/// Exit status where there is no summary.
const FAILED: u8 = 1;

pub fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let folder = matches.get_one::<OsString>("folder").map_or(Path::new("."), Path::new);
    let output = matches.get_one::<OsString>("output").map(PathBuf::from);
    let place = output.unwrap_or_else(|| folder.parent().unwrap_or(folder).to_owned());
    let target = Target { directory: place, stem: stem(folder) };
    let threads = matches.get_one::<u32>("threads").copied();
    match summarise(folder, threads)? {
        Some(summary) => write(&summary, &target),
        None => Ok(()),
    }
}

/// The summary, in the process that is to write it.
#[cfg(feature = "mpi")]
fn summarise(folder: &Path, threads: Option<u32>) -> Result<Option<Summary>, Failure> {
    use crate::mpi::stand_alone::World;
    if !launch::is_one_of_many() {
        return in_threads(folder, threads);
    }
    let world = World::begin().map_err(|message| Failure { message, status: FAILED })?;
    let paths = find(folder)?;
    let bar = Bar::new(world.rank() == 0, 1);
    Ok(digest(&world, &paths, &|read, all| bar.show(0, read, all))?)
}

#[cfg(not(feature = "mpi"))]
fn summarise(folder: &Path, threads: Option<u32>) -> Result<Option<Summary>, Failure> {
    if !launch::is_one_of_many() {
        return in_threads(folder, threads);
    }
    Err(Failure {
        message: "this `plimsoll` was built without MPI: start `plimsoll digest` without a \
                  launcher (it uses all cores), or build it with `cargo build --release \
                  --features mpi`."
            .to_owned(),
        status: FAILED,
    })
}

fn in_threads(folder: &Path, threads: Option<u32>) -> Result<Option<Summary>, Failure> {
    let paths = find(folder)?;
    let cores = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32);
    let threads = threads.unwrap_or(cores).max(1);
    let bar = Bar::new(true, threads);
    let outcomes = threads::run(threads, |comm: &dyn Communicator| {
        digest(comm, &paths, &|read, all| bar.show(comm.rank(), read, all))
    });
    for outcome in outcomes {
        if let Some(summary) = outcome? {
            return Ok(Some(summary));
        }
    }
    Ok(None)
}

fn write(summary: &Summary, target: &Target) -> Result<(), Failure> {
    let json = summary.to_json().map_err(|error| failure(&error))?;
    let text = text(summary);
    let reports = [
        Report { extension: "txt", content: text.as_bytes() },
        Report { extension: "json", content: &json },
    ];
    let written = write_reports(target, &reports).map_err(|error| failure(&error))?;
    if let Some(error) = &written.fallback {
        eprintln!("plimsoll: {error} The report goes to another place.");
    }
    eprint!("{}", brief(summary, written.files.first().map(PathBuf::as_path), BRIEF_LINES));
    Ok(())
}

/// `x_digest` for the folder `x.plimsoll.d`, so that nobody takes it for the run's own report.
fn stem(folder: &Path) -> OsString {
    let absolute = std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned());
    let name = absolute.file_name().unwrap_or_default().to_string_lossy().into_owned();
    let name = name.strip_suffix(".spool").unwrap_or(&name);
    let name = name.strip_suffix(".d").unwrap_or(name);
    let name = name.strip_suffix(".plimsoll").unwrap_or(name);
    format!("{name}_digest").into()
}

fn failure(error: &dyn std::fmt::Display) -> Failure {
    Failure { message: error.to_string(), status: FAILED }
}

impl From<DigestError> for Failure {
    fn from(error: DigestError) -> Self {
        failure(&error)
    }
}

/// How far all threads have come, on a terminal.
struct Bar {
    bar: ProgressBar,
    read: Vec<AtomicU64>,
    all: Vec<AtomicU64>,
}

impl Bar {
    fn new(shown: bool, threads: u32) -> Self {
        let bar = if shown && std::io::stderr().is_terminal() {
            let style = ProgressStyle::with_template("plimsoll: reading {bar:40} {percent} %");
            ProgressBar::new(1).with_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()))
        } else {
            ProgressBar::hidden()
        };
        let each = || (0..threads).map(|_| AtomicU64::new(0)).collect();
        Self { bar, read: each(), all: each() }
    }

    fn show(&self, thread: u32, read: u64, all: u64) {
        let thread = thread as usize;
        self.read[thread].store(read, Ordering::Relaxed);
        self.all[thread].store(all, Ordering::Relaxed);
        let sum = |each: &[AtomicU64]| each.iter().map(|one| one.load(Ordering::Relaxed)).sum();
        self.bar.set_length(sum(&self.all));
        self.bar.set_position(sum(&self.read));
    }
}

impl Drop for Bar {
    fn drop(&mut self) {
        self.bar.finish_and_clear();
    }
}
