//! `plimsoll digest`: makes a summary from spools, in threads of one process or as ranks of an MPI.

use std::ffi::OsString;
use std::fmt::Display;
use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use clap::ArgMatches;
use indicatif::{ProgressBar, ProgressStyle};

use crate::{Failure, say};
use plimsoll_analysis::digest::{DigestError, OtherRules, digest, find};
use plimsoll_analysis::rules::file;
use plimsoll_comm::communicator::Communicator;
use plimsoll_comm::mpi::launcher;
use plimsoll_comm::thread_ranks;
use plimsoll_report::output::{FALLBACK, Side, Target, write_with_side};
use plimsoll_report::{BRIEF_LINES, Files, brief};
use plimsoll_summary::Summary;
use plimsoll_summary::printable::path as shown;
use plimsoll_summary::settings::Formats;

/// Exit status without a summary.
pub const FAILED: u8 = 1;

/// Arguments of the command.
struct Request<'a> {
    /// Folder of the spools.
    folder: &'a Path,
    /// File with rules of labels that replace the run's own.
    labels: Option<&'a Path>,
    /// Number of threads; by default the number of cores.
    threads: Option<u32>,
    /// Target of the reports.
    target: Target,
}

impl<'a> Request<'a> {
    fn of(matches: &'a ArgMatches) -> Self {
        let folder = matches.get_one::<OsString>("folder").map_or(Path::new("."), Path::new);
        let mut target = default_target(folder);
        if let Some(output) = matches.get_one::<OsString>("output") {
            target.directory = output.into();
        }
        Self {
            folder,
            labels: matches.get_one::<OsString>("labels").map(Path::new),
            threads: matches.get_one::<u32>("threads").copied(),
            target,
        }
    }
}

pub fn run(matches: &ArgMatches) -> Result<(), Failure> {
    let request = Request::of(matches);
    match summarise(&request)? {
        Some((summary, side)) => write(summary, &request.target, side),
        None => Ok(()),
    }
}

/// Returns the summary and the times of single ranks in the process that writes them.
#[cfg(feature = "mpi")]
fn summarise(request: &Request<'_>) -> Result<Option<(Summary, Side)>, Failure> {
    use plimsoll_comm::communicator::broadcast;
    use plimsoll_comm::mpi::stand_alone::World;
    if !launcher::is_one_of_many() {
        return in_threads(request);
    }
    let world = World::begin().map_err(failure)?;
    let paths = find(request.folder)?;
    // Only the first process reads the file, but all of them end if it is unreadable.
    let rules = (world.rank() == 0).then(|| other_rules(request.labels));
    let rules = broadcast(&world, Ok(rules)).map_err(failure)?;
    let rules = rules.map_err(failure)?;
    let bar = Bar::new(world.rank() == 0, 1);
    let mut side = Side::new(request.target.clone());
    let progress = |read, all| bar.show(0, read, all);
    let summary = digest(&world, &paths, rules.as_ref(), &progress, Some(&mut side))?;
    Ok(summary.map(|summary| (summary, side)))
}

#[cfg(not(feature = "mpi"))]
fn summarise(request: &Request<'_>) -> Result<Option<(Summary, Side)>, Failure> {
    if !launcher::is_one_of_many() {
        return in_threads(request);
    }
    Err(failure(
        "this `plimsoll` was built without MPI: start `plimsoll digest` without a launcher (it \
         uses all cores), or build it with `cargo build --release --features mpi`.",
    ))
}

/// Reads the rules in a file; returns the reason if it is unreadable.
fn other_rules(labels: Option<&Path>) -> Result<Option<OtherRules>, String> {
    let Some(path) = labels else { return Ok(None) };
    let file = shown(path).to_string();
    match file::read(path) {
        (_, Some(trouble)) if trouble.is_of_all() => Err(format!("--labels {file}: {trouble}")),
        (rules, trouble) => {
            if let Some(trouble) = trouble {
                say(&format!("--labels {file}: {trouble}"));
            }
            Ok(Some(OtherRules { file, rules }))
        }
    }
}

fn in_threads(request: &Request<'_>) -> Result<Option<(Summary, Side)>, Failure> {
    let paths = find(request.folder)?;
    let rules = other_rules(request.labels).map_err(failure)?;
    let threads = request.threads.unwrap_or_else(cores).max(1);
    let bar = Bar::new(true, threads);
    let found = first_found(threads, |comm| {
        let mut side = Side::new(request.target.clone());
        let progress = |read, all| bar.show(comm.rank(), read, all);
        let summary = digest(comm, &paths, rules.as_ref(), &progress, Some(&mut side))?;
        Ok(summary.map(|summary| (summary, side)))
    });
    Ok(found?)
}

/// Returns the number of cores of this process.
pub fn cores() -> u32 {
    std::thread::available_parallelism().map_or(1, |cores| cores.get() as u32)
}

/// Digests in threads that share the work as ranks; returns the first result of a thread.
pub fn first_found<T: Send>(
    threads: u32,
    digest: impl Fn(&dyn Communicator) -> Result<Option<T>, DigestError> + Sync,
) -> Result<Option<T>, DigestError> {
    for outcome in thread_ranks::run(threads, digest) {
        if let Some(found) = outcome? {
            return Ok(Some(found));
        }
    }
    Ok(None)
}

fn write(mut summary: Summary, target: &Target, side: Side) -> Result<(), Failure> {
    let written =
        write_with_side(target, Some(side), &mut Files::of(&mut summary, &Formats::default()));
    let written = written.map_err(failure)?;
    if let Some(error) = &written.fallback {
        say(&format!("{error} The report goes to {FALLBACK} instead."));
    }
    let report = written.files.first().map(PathBuf::as_path);
    // A closed stderr is ignored, as for all messages.
    let _ = io::stderr().write_all(brief(&summary, report, BRIEF_LINES).as_bytes());
    Ok(())
}

/// Returns where reports go by default, beside the folder: `x_digest` for the folder
/// `x.plimsoll.d`, `x_rank0_digest` for its file `rank0.spool`. The names differ from those of the
/// run's own reports.
fn default_target(path: &Path) -> Target {
    let path = with_name(path);
    let of_file = path.parent().filter(|folder| is_spool_folder(folder) && path.is_file());
    let stem = match of_file {
        Some(folder) => format!("{}_{}_digest", stem(folder), stem(&path)),
        None => format!("{}_digest", stem(&path)),
    };
    let folder = of_file.unwrap_or(&path);
    Target { directory: folder.parent().unwrap_or(folder).into(), stem: stem.into() }
}

/// Returns the absolute path, with its last name also where it ends in `.` or `..`.
pub fn with_name(path: &Path) -> PathBuf {
    match std::path::absolute(path) {
        Ok(absolute) if absolute.file_name().is_some() => absolute,
        _ => path.canonicalize().unwrap_or_else(|_| path.into()),
    }
}

/// Suffix of the names of spool folders.
pub const FOLDER: &str = ".plimsoll.d";

/// Returns whether a path has the name of a spool folder.
pub fn is_spool_folder(path: &Path) -> bool {
    path.file_name().is_some_and(|name| name.to_string_lossy().ends_with(FOLDER))
}

/// Returns the name of a spool or of a folder of spools, without its suffix.
fn stem(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let suffixes = [".spool", FOLDER, ".d", ".plimsoll"];
    let stem = suffixes.iter().find_map(|suffix| name.strip_suffix(suffix));
    stem.unwrap_or(&name).to_owned()
}

/// Returns a failure for this reason, without a summary.
pub fn failure(reason: impl Display) -> Failure {
    Failure { message: reason.to_string(), status: FAILED }
}

impl From<DigestError> for Failure {
    fn from(error: DigestError) -> Self {
        failure(error)
    }
}

/// Progress bar on a terminal: the progress of all threads together.
struct Bar {
    bar: ProgressBar,
    read: Vec<AtomicU64>,
    all: Vec<AtomicU64>,
}

impl Bar {
    fn new(shown: bool, threads: u32) -> Self {
        let bar = if shown && io::stderr().is_terminal() {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reports_lie_beside_the_folder_however_it_is_named() {
        let root = tempfile::tempdir().unwrap();
        let root = root.path().canonicalize().unwrap();
        let folder = root.join("x.plimsoll.d");
        std::fs::create_dir_all(folder.join("within")).unwrap();
        let [spool, alone] = [folder.join("rank0.spool"), root.join("rank1.spool")];
        for file in [&spool, &alone] {
            std::fs::write(file, "").unwrap();
        }
        for (path, stem) in [
            (folder.clone(), "x_digest"),
            (folder.join("."), "x_digest"),
            (folder.join("within/.."), "x_digest"),
            (spool, "x_rank0_digest"),
            (alone, "rank1_digest"),
        ] {
            let expected = Target { directory: root.clone(), stem: stem.into() };
            assert_eq!(default_target(&path), expected, "{path:?}");
        }
        let here = std::env::current_dir().unwrap();
        assert_eq!(default_target(Path::new(".")).directory, here.parent().unwrap());
        assert_eq!(default_target(Path::new("x.plimsoll.d")).directory, here);
    }
}
