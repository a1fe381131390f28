//! `plimsoll digest`, run on the files of a job, and compared with the job's own summary.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use serde_json::Value;

use crate::artifacts::{artifacts, command_with_mpi};
use crate::background::in_background;
use crate::mpi::Mpi;
use crate::per_rank_check::PerRank;
use crate::scratch::Scratch;
use crate::summary::Summary;

/// Readers of the spools.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By {
    /// This number of threads of one process.
    Threads(u32),
    /// This number of ranks of an MPI.
    Ranks(Mpi, u32),
}

/// Returns the summary of a digest of a folder.
///
/// # Panics
/// If it fails, or writes not one summary.
#[track_caller]
pub fn digest(folder: &Path, by: By) -> Summary {
    digest_with(folder, by, &[])
}

/// Returns the summary of a digest with further options.
///
/// # Panics
/// If it fails, or writes not one summary.
#[track_caller]
pub fn digest_with(folder: &Path, by: By, options: &[&OsStr]) -> Summary {
    let scratch = Scratch::new("digest");
    let mut command = match by {
        By::Threads(threads) => {
            let mut command = Command::new(&artifacts().command);
            command.args(["digest", "--threads", &threads.to_string()]);
            command
        }
        By::Ranks(mpi, ranks) => {
            let mut command = Command::new(mpi.launcher());
            command
                .envs(mpi.variables())
                .args(mpi.launcher_arguments())
                .args(["-n", &ranks.to_string()]);
            command.arg(command_with_mpi(mpi)).arg("digest");
            command
        }
    };
    command.arg(folder).args(options).arg("--output").arg(scratch.path());
    let ended =
        in_background(&mut command).output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let said = String::from_utf8_lossy(&ended.stderr);
    assert!(ended.status.success(), "{command:?}: {}\n{said}", ended.status);
    assert!(ended.stdout.is_empty(), "{command:?} prints on stdout");
    let mut summaries = files_ending(scratch.path(), ".json");
    assert_eq!(summaries.len(), 1, "{command:?}: {said}");
    Summary::read(&summaries.remove(0))
}

/// Returns the folder of the spools that belong to a report, if there is one.
pub fn folder_of(report: &Path) -> Option<PathBuf> {
    let name = report.to_str()?.strip_suffix(".json")?;
    Some(PathBuf::from(format!("{name}.d"))).filter(|folder| folder.is_dir())
}

/// Returns the differences between a digest and the job's own summary.
pub fn differences(job: &Summary, digest: &Summary) -> Vec<String> {
    let mut found = Vec::new();
    if job.at("/collection/late_functions") != 0 {
        return found; // the digest has no deadline, so it knows more
    }
    compare(job.value(), digest.value(), "", &mut found);
    let [ours, theirs] = [job, digest].map(|it| it.per_rank().map(PerRank::bytes));
    // A job that is aborted has no time for more than a report.
    let left_out = ours.is_none() && job.at("/run/complete") == false;
    if ours != theirs && !left_out {
        let lengths = [ours, theirs].map(|bytes| bytes.map(<[u8]>::len));
        found.push(format!("/per_rank: files of {lengths:?} bytes"));
    }
    found
}

/// Values of the job alone: what only the job knows, the memory of its own reduction, and the names
/// of files, as only their contents count.
const ITS_OWN: [&str; 5] = [
    "/collection/finalize_s",
    "/collection/memory_bytes",
    "/collection/memory",
    "/per_rank/file",
    "/timeline/file",
];

fn compare(job: &Value, digest: &Value, at: &str, found: &mut Vec<String>) {
    if ITS_OWN.contains(&at) {
        return;
    }
    match (job, digest) {
        (Value::Object(ours), Value::Object(theirs)) => {
            let absent = Value::Null;
            let keys = ours.keys().chain(theirs.keys().filter(|key| !ours.contains_key(*key)));
            for key in keys {
                let (one, other) = (ours.get(key), theirs.get(key));
                let path = format!("{at}/{key}");
                compare(one.unwrap_or(&absent), other.unwrap_or(&absent), &path, found);
            }
        }
        (Value::Array(ours), Value::Array(theirs)) if ours.len() == theirs.len() => {
            for (index, (one, other)) in ours.iter().zip(theirs).enumerate() {
                compare(one, other, &format!("{at}/{index}"), found);
            }
        }
        _ if job != digest => found.push(format!("{at}: {job} {digest}")),
        _ => {}
    }
}

fn files_ending(folder: &Path, ending: &str) -> Vec<PathBuf> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    paths.filter(|path| path.as_os_str().to_string_lossy().ends_with(ending)).collect()
}

/// Returns the names of the spools and journals in a folder.
pub fn spools(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let names = entries.map(|entry| entry.file_name());
    let mut names: Vec<_> =
        names.map(|name| AsRef::<OsStr>::as_ref(&name).to_string_lossy().into_owned()).collect();
    names.sort();
    names
}
