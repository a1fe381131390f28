//! Folders of spools that running jobs write.

use std::env;
use std::ffi::OsStr;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use plimsoll_report::output::shared_directory;
use plimsoll_summary::error::{Error, reason};
use plimsoll_summary::printable::path as shown;

use crate::Failure;
use crate::digest_command::{FOLDER, failure, is_spool_folder, with_name};

/// Suffixes of reports after the name of their run's folder.
const REPORTS: [&str; 3] = [".plimsoll.json", ".plimsoll.txt", ".plimsoll.html"];
/// Maximum age of the last write to the folder of a running job, unless the job is stopped on this
/// machine.
const MAX_SILENCE: Duration = Duration::from_secs(60);

/// State of a run, as its files show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RunState {
    /// The run goes on.
    Running,
    /// The run has ended and written this report of all its ranks.
    Reported(PathBuf),
    /// The run has ended without a report of all its ranks: there are reports of parts of it, or
    /// nothing was written to its spools for a long time.
    Unreported,
}

/// Folder of the spools of a job.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JobFolder {
    /// Path of the folder.
    pub path: PathBuf,
}

impl JobFolder {
    /// Returns the folder of the job that `target` names: a folder of spools, a directory in which
    /// one job writes, or a job id; by default the job that writes to the directory of
    /// PLIMSOLL_OUTPUT.
    ///
    /// # Errors
    /// If there is no such job, or more than one.
    pub fn find(target: Option<&OsStr>) -> Result<Self, Failure> {
        let output = env::var_os("PLIMSOLL_OUTPUT").unwrap_or_else(|| ".".into());
        let output = shared_directory(&output);
        match target {
            None => only_running(&output, folders(&output, None)?),
            Some(target) if Path::new(target).is_dir() => {
                let directory = Path::new(target);
                if is_folder(directory) {
                    return Ok(Self { path: with_name(directory) });
                }
                only_running(directory, folders(directory, None)?)
            }
            Some(job) => {
                let job = job.to_string_lossy();
                only_running(&output, folders(&output, Some(&job))?)
            }
        }
    }

    /// Returns the state of the run.
    pub fn state(&self) -> RunState {
        if let Some(report) = self.report() {
            RunState::Reported(report)
        } else if self.has_report_of_part() || self.silence() >= MAX_SILENCE && !self.has_writer() {
            RunState::Unreported
        } else {
            RunState::Running
        }
    }

    /// Returns the name of the run's files, without suffix.
    fn stem(&self) -> Option<&str> {
        self.path.file_name()?.to_str()?.strip_suffix(FOLDER)
    }

    /// Returns the report of all ranks that the run has written at its end.
    fn report(&self) -> Option<PathBuf> {
        let stem = self.stem()?;
        let report = |end| self.path.with_file_name(format!("{stem}{end}"));
        REPORTS.into_iter().map(report).find(|path| path.exists())
    }

    /// Returns whether a node has written a report of its own ranks: where ranks could not be
    /// gathered at the end, each node writes one, named after a rank.
    fn has_report_of_part(&self) -> bool {
        let Some(stem) = self.stem() else { return false };
        let begin = format!("{stem}_rank");
        let is_of_part = |name: &str| {
            let part = REPORTS.into_iter().find_map(|end| name.strip_suffix(end));
            let part = part.filter(|part| part.starts_with(&begin));
            // A rank with a folder of its own has reported on that folder.
            part.is_some_and(|part| !self.path.with_file_name(format!("{part}{FOLDER}")).exists())
        };
        let beside = self.path.parent().into_iter().filter_map(|parent| parent.read_dir().ok());
        let mut names = beside.flatten().flatten().map(|entry| entry.file_name());
        names.any(|name| name.to_str().is_some_and(is_of_part))
    }

    /// Returns whether a process of this user on this machine has a spool open for writing: one
    /// that is stopped (SIGSTOP, a suspended job) writes nothing.
    fn has_writer(&self) -> bool {
        let Ok(folder) = self.path.canonicalize() else { return false };
        let entries = |path: PathBuf| fs::read_dir(path).into_iter().flatten().flatten();
        let is_written = |descriptor: fs::DirEntry| {
            let file = fs::read_link(descriptor.path()).unwrap_or_default();
            file.parent() == Some(&folder) && is_for_writing(&descriptor.path())
        };
        entries("/proc".into()).any(|process| entries(process.path().join("fd")).any(is_written))
    }

    /// Returns how long ago the folder's files were written to.
    pub fn silence(&self) -> Duration {
        let written = |file: fs::DirEntry| file.metadata().ok()?.modified().ok();
        let files = fs::read_dir(&self.path).into_iter().flatten().flatten();
        let last = files.filter_map(written).max();
        // The clock of a file server may be ahead.
        last.and_then(|last| SystemTime::now().duration_since(last).ok()).unwrap_or_default()
    }

    fn is_running(&self) -> bool {
        self.state() == RunState::Running
    }
}

/// Returns whether a descriptor, `/proc/PID/fd/NUMBER`, is open for writing (proc_pid_fdinfo(5)).
fn is_for_writing(descriptor: &Path) -> bool {
    let info = || {
        let process = descriptor.parent()?.parent()?;
        fs::read_to_string(process.join("fdinfo").join(descriptor.file_name()?)).ok()
    };
    let info = info().unwrap_or_default();
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| i32::from_str_radix(flags.trim(), 8).ok());
    flags.is_some_and(|flags| flags & libc::O_ACCMODE != libc::O_RDONLY)
}

/// Returns whether a name of reports is that of a job: it contains the words of the job's id. In
/// names by default the number of ranks and the time follow the id.
fn is_of_job(name: &str, job: &str) -> bool {
    let [name, job] = [name, job].map(words);
    match name.iter().rposition(|word| is_number_of_ranks(word)) {
        _ if job.is_empty() => false,
        Some(end) => name[..end].ends_with(&job),
        None => name.windows(job.len()).any(|part| part == job),
    }
}

/// Splits a name at all characters that may be replaced in names of reports or separate their
/// parts.
fn words(name: &str) -> Vec<&str> {
    let is_between = |char: char| !char.is_ascii_alphanumeric();
    name.split(is_between).filter(|word| !word.is_empty()).collect()
}

fn is_number_of_ranks(word: &str) -> bool {
    word.strip_suffix('p').is_some_and(|number| number.parse::<u32>().is_ok())
}

/// Returns whether a directory itself holds spools.
fn is_folder(directory: &Path) -> bool {
    is_spool_folder(directory) || plimsoll_analysis::digest::find(directory).is_ok()
}

/// Returns the folders of spools in a directory, of one job if its id is given.
fn folders(directory: &Path, job: Option<&str>) -> Result<Vec<JobFolder>, Failure> {
    let entries = fs::read_dir(directory).map_err(|source| match (source.kind(), job) {
        (io::ErrorKind::NotFound, Some(job)) => failure(format!(
            "{} is neither a directory nor a job: {} cannot be read: {}.",
            shown(Path::new(job)),
            shown(directory),
            reason(&source)
        )),
        _ => failure(Error::Read { path: directory.into(), source }),
    })?;
    let mut found: Vec<JobFolder> = Vec::new();
    for path in entries.flatten().map(|entry| entry.path()) {
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let Some(name) = name.strip_suffix(FOLDER) else { continue };
        if job.is_none_or(|job| is_of_job(name, job)) {
            found.push(JobFolder { path });
        }
    }
    if let (true, Some(job)) = (found.is_empty(), job) {
        return Err(failure(format!(
            "{} is neither a directory nor the id of a job that writes to `{}`.",
            shown(Path::new(job)),
            shown(directory)
        )));
    }
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

/// Returns the folder of the running job.
///
/// # Errors
/// If none of the jobs runs, or several.
fn only_running(directory: &Path, folders: Vec<JobFolder>) -> Result<JobFolder, Failure> {
    let (mut running, ended): (Vec<_>, Vec<_>) =
        folders.into_iter().partition(JobFolder::is_running);
    match (running.pop(), running.len()) {
        (Some(only), 0) => Ok(only),
        (Some(last), _) => {
            running.push(last);
            let names: Vec<String> =
                running.iter().map(|folder| shown(&folder.path).to_string()).collect();
            Err(failure(format!(
                "{} jobs run here: give the folder of one, {}.",
                names.len(),
                names.join(", ")
            )))
        }
        (None, _) => {
            let last = ended.last().map_or_else(String::new, |folder| {
                format!(" To see what an ended run left, give its folder {}.", shown(&folder.path))
            });
            Err(failure(format!(
                "no running job writes to {}: give its output directory. Jobs with \
                 PLIMSOLL_TRACE=off cannot be watched.{last}",
                shown(directory)
            )))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Makes a folder of spools, with a report if the run has ended.
    fn folder(directory: &Path, name: &str, has_ended: bool) -> PathBuf {
        let path = directory.join(format!("{name}.plimsoll.d"));
        fs::create_dir(&path).unwrap();
        fs::write(path.join("rank0.spool"), "").unwrap();
        if has_ended {
            fs::write(directory.join(format!("{name}.plimsoll.json")), "{}").unwrap();
        }
        path
    }

    fn found(target: &Path) -> Result<PathBuf, String> {
        JobFolder::find(Some(target.as_os_str())).map(|job| job.path).map_err(|it| it.message)
    }

    #[test]
    fn the_running_job_is_found_among_ended_ones() {
        let directory = tempfile::tempdir().unwrap();
        let ended = folder(directory.path(), "app_17_4p_20260101T000000", true);
        let message = found(directory.path()).unwrap_err();
        assert!(message.contains("no running job") && message.contains("app_17"), "{message}");
        assert_eq!(found(&ended), Ok(ended.clone()));
        let running = folder(directory.path(), "app_18_4p_20260101T000000", false);
        assert_eq!(found(directory.path()), Ok(running.clone()));
        assert_eq!(JobFolder { path: running }.state(), RunState::Running);
        let report = directory.path().join("app_17_4p_20260101T000000.plimsoll.json");
        assert_eq!(JobFolder { path: ended }.state(), RunState::Reported(report));
    }

    #[test]
    fn a_run_with_a_report_of_a_part_or_with_silent_spools_has_ended() {
        let directory = tempfile::tempdir().unwrap();
        let job = JobFolder { path: folder(directory.path(), "app_17_4p_x", false) };
        // A rank that the job does not reach has its own folder and its own end.
        let apart = folder(directory.path(), "app_17_4p_x_rank3", true);
        assert_eq!(job.state(), RunState::Running);
        fs::remove_dir_all(apart).unwrap();
        assert_eq!(job.state(), RunState::Unreported);
        let silent = JobFolder { path: folder(directory.path(), "app_18_4p_x", false) };
        assert_eq!(silent.state(), RunState::Running);
        let spool = fs::File::open(silent.path.join("rank0.spool")).unwrap();
        spool.set_modified(SystemTime::now() - 2 * MAX_SILENCE).unwrap();
        assert_eq!(silent.state(), RunState::Unreported);
        // The collector of a stopped job keeps its spool open.
        let collector = fs::File::options().append(true).open(silent.path.join("rank0.spool"));
        assert!(collector.is_ok());
        assert_eq!(silent.state(), RunState::Running);
        drop(collector);
        assert_eq!(silent.state(), RunState::Unreported);
    }

    #[test]
    fn a_job_is_found_by_the_words_of_its_id() {
        for (name, job, expected) in [
            ("app_12_3_.server_4p_20260101T000000", "12[3].server", true),
            ("app_4_17_4p_20260101T000000-2", "17", true),
            ("app_4_17_4p_20260101T000000", "4", false),
            ("app-4711", "4711", true),
            ("app-4711", "471", false),
            ("app-4711", "[]", false),
        ] {
            assert_eq!(is_of_job(name, job), expected, "{job} in {name}");
        }
    }

    #[test]
    fn a_job_id_selects_one_of_two_running_jobs() {
        let directory = tempfile::tempdir().unwrap();
        for job in ["18", "19"] {
            folder(directory.path(), &format!("app_{job}_4p_20260101T000000"), false);
        }
        let message = found(directory.path()).unwrap_err();
        assert!(message.starts_with("2 jobs run here"), "{message}");
        let of_job = folders(directory.path(), Some("19")).unwrap();
        assert_eq!(of_job.len(), 1);
        assert!(of_job[0].path.ends_with("app_19_4p_20260101T000000.plimsoll.d"));
        let message = folders(directory.path(), Some("1")).unwrap_err().message;
        assert!(message.contains("neither a directory nor the id"), "{message}");
        let message = folders(Path::new("."), Some("1")).unwrap_err().message;
        assert!(message.ends_with("a job that writes to `.`."), "{message}");
    }
}
