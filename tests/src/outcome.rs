//! Outcome of a job: how it ended, its output, and the files it left.

use std::cell::OnceCell;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitStatus;

use crate::digests::{By, differences, digest, folder_of};
use crate::mpi::Mpi;
use crate::process::Finished;
use crate::scratch::Scratch;
use crate::summary::Summary;
use crate::truth::Truth;

/// Prefix of each of Plimsoll's lines on stderr.
pub const PREFIX: &str = "plimsoll: ";

/// Files of the job itself, not of Plimsoll.
const OWN_FILES: &[&str] = &["stdout", "stderr", "truth.json"];

/// Outcome of a job.
#[derive(Debug)]
pub struct Outcome {
    command: String,
    finished: Finished,
    scratch: Scratch,
    summaries: OnceCell<Vec<Summary>>,
}

impl Outcome {
    pub(crate) const fn new(command: String, finished: Finished, scratch: Scratch) -> Self {
        Self { command, finished, scratch, summaries: OnceCell::new() }
    }

    /// Returns the exit status of the launcher, or of the subject if it ran without one.
    pub const fn status(&self) -> ExitStatus {
        self.finished.status
    }

    /// Asserts that the job has the status and the stdout of another run of it, mostly one without
    /// Plimsoll.
    ///
    /// # Panics
    /// If the two differ.
    #[track_caller]
    pub fn assert_same_as(&self, plain: &Self) {
        assert_eq!(plain.status(), self.status(), "{}", self.transcript());
        assert_eq!(plain.stdout(), self.stdout(), "{}", self.transcript());
    }

    /// Compares the status of a job with failing ranks to that of the same job without Plimsoll.
    ///
    /// MPICH's launcher ends the remaining ranks when one fails, and combines all statuses into
    /// one, depending on the order of their ends: of 380 jobs without Plimsoll in which ranks end
    /// by SIGTERM, one had status 1, all others 15. For MPICH, both jobs only have to fail.
    ///
    /// # Panics
    /// If the two differ.
    #[track_caller]
    pub fn assert_fails_as(&self, plain: &Self, mpi: Mpi) {
        if mpi == Mpi::Mpich {
            let failed = !plain.status().success() && !self.status().success();
            assert!(failed, "without Plimsoll: {}; {}", plain.status(), self.transcript());
        } else {
            assert_eq!(plain.status(), self.status(), "{}", self.transcript());
        }
    }

    /// Returns the duration in seconds, from the time at which the job has its lock.
    pub fn took_s(&self) -> f64 {
        self.finished.took.as_secs_f64()
    }

    /// Returns the job's stdout.
    pub fn stdout(&self) -> &str {
        &self.finished.stdout
    }

    /// Returns the stderr of the job and of Plimsoll.
    pub fn stderr(&self) -> &str {
        &self.finished.stderr
    }

    /// Returns Plimsoll's own lines on stderr, without their prefix.
    pub fn plimsoll_lines(&self) -> Vec<&str> {
        self.finished.stderr.lines().filter_map(|line| line.strip_prefix(PREFIX)).collect()
    }

    /// Returns Plimsoll's messages on stderr, one entry per message: a line that begins with a
    /// blank continues the one before.
    pub fn plimsoll_messages(&self) -> Vec<String> {
        let mut messages: Vec<String> = Vec::new();
        for line in self.plimsoll_lines() {
            match messages.last_mut() {
                Some(message) if line.starts_with(' ') => {
                    message.push(' ');
                    message.push_str(line.trim_start());
                }
                _ => messages.push(line.to_owned()),
            }
        }
        messages
    }

    /// Returns all other lines on stderr.
    pub fn other_lines(&self) -> Vec<&str> {
        self.finished.stderr.lines().filter(|line| !line.starts_with(PREFIX)).collect()
    }

    /// Returns the processes that outlived the job.
    pub fn left_behind(&self) -> &[String] {
        &self.finished.left_behind
    }

    /// Returns the job's working directory.
    pub fn directory(&self) -> &Path {
        self.scratch.path()
    }

    /// Returns the directory, for another job in it.
    pub fn into_scratch(self) -> Scratch {
        self.scratch
    }

    /// Returns the command, status, output and files, for the message of a failed assertion.
    pub fn transcript(&self) -> String {
        format!(
            "{}\n{}\nstdout:\n{}\nstderr:\n{}\nfiles: {:?}",
            self.command,
            self.finished.status,
            self.finished.stdout,
            self.finished.stderr,
            self.files()
        )
    }

    /// Asserts that the job ended with status 0 and that its summaries are sound
    /// ([`Outcome::summaries`]).
    ///
    /// # Panics
    /// If that does not hold, with [`Outcome::transcript`].
    #[must_use]
    #[track_caller]
    pub fn succeeded(self) -> Self {
        assert!(self.finished.status.success(), "the job failed: {}", self.transcript());
        self.summaries();
        self
    }

    /// Returns the truth that the subject wrote about itself.
    ///
    /// # Panics
    /// If the subject wrote none.
    #[track_caller]
    pub fn truth(&self) -> Truth {
        let path = self.directory().join("truth.json");
        let text = fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("no truth ({error}): {}", self.transcript()));
        let value = serde_json::from_str(&text)
            .unwrap_or_else(|error| panic!("the truth is no JSON ({error}): {text}"));
        Truth::new(value)
    }

    /// Returns all files in the job's directory and its subfolders, except the job's own.
    pub fn files(&self) -> Vec<PathBuf> {
        let mut found = Vec::new();
        let mut folders = vec![self.directory().to_owned()];
        while let Some(folder) = folders.pop() {
            for entry in fs::read_dir(&folder).into_iter().flatten().flatten() {
                let path = entry.path();
                if path.is_dir() {
                    folders.push(path);
                } else if folder != self.directory() || !is_own(&path) {
                    found.push(path);
                }
            }
        }
        found.sort();
        found
    }

    /// Returns the files with names that end in `ending`.
    pub fn files_ending(&self, ending: &str) -> Vec<PathBuf> {
        let ends = |path: &PathBuf| path.to_string_lossy().ends_with(ending);
        self.files().into_iter().filter(ends).collect()
    }

    /// Returns all summaries, each checked once ([`Summary::read`]) and compared with a digest of
    /// its spool.
    ///
    /// # Panics
    /// If one of them breaks a promise of the interface.
    #[track_caller]
    pub fn summaries(&self) -> &[Summary] {
        self.summaries.get_or_init(|| {
            self.files_ending(".plimsoll.json").iter().map(|path| self.checked(path)).collect()
        })
    }

    fn checked(&self, path: &Path) -> Summary {
        let summary = Summary::read(path);
        let keeps_all = summary.text("/run/settings/PLIMSOLL_TRACE") == "all";
        if let Some(folder) = folder_of(path).filter(|_| keeps_all) {
            // The digest of the spool must agree for every job.
            let differences = differences(&summary, &digest(&folder, By::Threads(3)));
            let shown = differences.join("\n");
            assert!(differences.is_empty(), "its digest differs: {}\n{shown}", self.transcript());
        }
        summary
    }

    /// Returns the summary of a job that wrote one.
    ///
    /// # Panics
    /// If the job wrote none, or several, or one that breaks a promise of the interface.
    #[track_caller]
    pub fn summary(&self) -> &Summary {
        let [summary] = self.summaries() else { panic!("not one summary: {}", self.transcript()) };
        summary
    }

    /// Returns the text report of a job that wrote one.
    ///
    /// # Panics
    /// If the job wrote none, or several.
    #[track_caller]
    pub fn text(&self) -> String {
        let files = self.files_ending(".plimsoll.txt");
        assert_eq!(files.len(), 1, "not one text report: {}", self.transcript());
        fs::read_to_string(&files[0]).expect("a report is text in UTF-8")
    }

    /// Returns whether the text report contains `words`, across line breaks.
    ///
    /// # Panics
    /// If the job wrote no text report, or several.
    #[track_caller]
    pub fn report_contains(&self, words: &str) -> bool {
        self.text().split_whitespace().collect::<Vec<_>>().join(" ").contains(words)
    }
}

fn is_own(path: &Path) -> bool {
    path.file_name().is_some_and(|name| OWN_FILES.iter().any(|own| name == *own))
}
