//! From spools to the summary that the job would have written, or has: by the same reduction.
//!
//! The processes of a digest, which are threads or ranks of an MPI, share the spools of a folder
//! (PPoPP20, 3.1): each takes some, or where there are fewer spools than processes, some ranks of one.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use plimsoll_collector::digest::{Digest, spools};
use serde::{Deserialize, Serialize};

use crate::communicator::{Communicator, CommunicatorError, broadcast, reduce};
use crate::diagnose::{DiagnoseError, diagnose_into};
use crate::input::{JobInfo, RankInput};
use crate::per_rank::Table;
use crate::ranks::RankSet;
use crate::rules::Rules;
use crate::settings::LABELS;
use crate::spooled::{KILLED, SpoolNote};
use crate::summary::Summary;

/// Why there is no summary.
#[derive(Debug)]
pub enum DigestError {
    /// The folder cannot be read.
    Folder(PathBuf, io::Error),
    /// There is no spool in it.
    NoSpool(PathBuf),
    /// No spool in it could be read; why, a sentence each.
    Unreadable(Vec<String>),
    /// The ranks could not be compared.
    Diagnose(DiagnoseError),
}

impl fmt::Display for DigestError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Folder(path, error) => write!(
                formatter,
                "{} cannot be read: {error}. Give the folder *.plimsoll.d that a run has left.",
                path.display()
            ),
            Self::NoSpool(path) => write!(
                formatter,
                "{} holds no spool (*.spool). Give the folder *.plimsoll.d that a run has left; runs \
                 with PLIMSOLL_TRACE=off leave none.",
                path.display()
            ),
            Self::Unreadable(reasons) => {
                write!(formatter, "nothing could be read. {}", reasons.join(" "))
            }
            Self::Diagnose(error) => error.fmt(formatter),
        }
    }
}

impl std::error::Error for DigestError {}

impl From<DiagnoseError> for DigestError {
    fn from(error: DiagnoseError) -> Self {
        Self::Diagnose(error)
    }
}

impl From<CommunicatorError> for DigestError {
    fn from(error: CommunicatorError) -> Self {
        Self::Diagnose(error.into())
    }
}

/// The spools at a path: all in a folder, or the one file.
pub fn find(path: &Path) -> Result<Vec<PathBuf>, DigestError> {
    let found = if path.is_file() { Ok(vec![path.to_owned()]) } else { spools(path) };
    let found = found.map_err(|error| DigestError::Folder(path.into(), error))?;
    if found.is_empty() { Err(DigestError::NoSpool(path.into())) } else { Ok(found) }
}

/// Rules of labels that are to hold in place of the run's.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OtherRules {
    /// Name of their file.
    pub file: String,
    /// The rules.
    pub rules: Rules,
}

/// Digests spools, each process its share of them, all by the same rules. `progress` hears how many
/// frames were read, and how many there are, of this process's. The summary is at process 0, `None`
/// elsewhere; the values of each rank are in process 0's table. Collective.
pub fn digest(
    comm: &dyn Communicator,
    paths: &[PathBuf],
    rules: Option<&OtherRules>,
    progress: &dyn Fn(u64, u64),
    table: Option<&mut dyn Table>,
) -> Result<Option<Summary>, DigestError> {
    let mut job = Job::default();
    let mut inputs = Vec::new();
    let (rank, size) = (comm.rank() as usize, comm.size() as usize);
    let spools = paths.len();
    for (index, path) in paths.iter().enumerate() {
        // Processes rank, rank + spools, ... work on one spool together.
        if rank % spools != index && index % size != rank {
            continue;
        }
        let team = if size > spools { (size - 1 - index) / spools + 1 } else { 1 };
        let member = if size > spools { rank / spools } else { 0 };
        if let Err(reason) = job.take(path, (member, team), &mut inputs, progress) {
            job.unreadable.push(reason);
        }
    }
    inputs.sort_by_key(|input: &RankInput| input.rank);
    let all = reduce(comm, job, Job::combine);
    let info = broadcast(comm, all.map(|all| all.map(Job::conclude)))?;
    match info {
        Ok(mut info) => {
            if let Some(OtherRules { file, rules }) = rules {
                info.rules = rules.clone();
                match rules.is_empty() {
                    true => info.settings.remove(LABELS),
                    false => info.settings.insert(LABELS.to_owned(), file.clone()),
                };
            }
            Ok(diagnose_into(comm, inputs, &info, table)?)
        }
        Err(reasons) => Err(DigestError::Unreadable(reasons)),
    }
}

/// What the spools say of the job.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
struct Job {
    /// The note of the lowest rank's spool.
    first: Option<(u32, JobInfo)>,
    /// In how many ways the parts of the job ended: the most telling.
    ended: Option<String>,
    complete: bool,
    size: u32,
    ranks: RankSet,
    /// The ranks of which samples were kept, where those of others were not.
    kept: Option<RankSet>,
    /// Places that could not be read.
    damages: Vec<String>,
    unreadable: Vec<String>,
}

impl Job {
    /// Takes this process's share of the ranks in one spool.
    fn take(
        &mut self,
        path: &Path,
        (member, team): (usize, usize),
        inputs: &mut Vec<RankInput>,
        progress: &dyn Fn(u64, u64),
    ) -> Result<(), String> {
        let named = |error: &dyn fmt::Display| format!("{}: {error}.", path.display());
        let mut digest = Digest::open(path).map_err(|error| named(&error))?;
        let note = digest.note().cloned().ok_or_else(|| named(&"it says nothing of its job"))?;
        let note: SpoolNote = serde_json::from_value(note).map_err(|error| named(&error))?;
        let processes = digest.processes();
        if processes.is_empty() {
            return Err(named(&"the state of its processes is lost"));
        }
        let first = note.ranks.iter().map(|rank| rank.rank).min();
        let ended = processes.iter().all(|process| process.ended);
        let mut part = Self {
            first: Some((first.unwrap_or(u32::MAX), note.job.clone())),
            ended: Some(note.job.ended.clone()),
            complete: note.job.complete && ended,
            size: note.size,
            kept: note.kept.clone(),
            ..Self::default()
        };
        let frames = digest.frames();
        let mut read = 0;
        for process in processes.iter().skip(member).step_by(team) {
            let profile = digest.profile(process.number, |_| {
                read += 1;
                progress(read, frames / team as u64);
            });
            let Some(profile) = profile.map_err(|error| named(&error))? else { continue };
            let Some(mut input) = note.input(process.pid, profile) else { continue };
            if first == Some(input.rank) {
                input.cost.spool_bytes = digest.bytes();
            }
            part.ranks = part.ranks.union(&RankSet::from_iter([input.rank]));
            inputs.push(input);
        }
        // What is beside the records is read by each of the team.
        part.damages = digest.damages().iter().map(|damage| named(damage)).collect();
        *self = std::mem::take(self).combine(part);
        Ok(())
    }

    fn combine(mut self, other: Self) -> Self {
        if self.first.is_none() && self.unreadable.is_empty() {
            return other;
        }
        if other.first.is_none() && other.unreadable.is_empty() {
            return self;
        }
        let rank = |job: &Self| job.first.as_ref().map_or(u32::MAX, |(rank, _)| *rank);
        if rank(&other) < rank(&self) {
            self.first = other.first;
        }
        self.ended = self.ended.into_iter().chain(other.ended).max_by_key(|ended| severity(ended));
        self.complete &= other.complete;
        self.size = self.size.max(other.size);
        self.ranks = self.ranks.union(&other.ranks);
        self.kept = self.kept.or(other.kept);
        self.damages.extend(other.damages);
        self.damages.sort();
        self.damages.dedup();
        self.unreadable.extend(other.unreadable);
        self
    }

    /// What the summary says of the job; why it cannot say anything, if it cannot.
    fn conclude(self) -> Result<JobInfo, Vec<String>> {
        let Some((_, mut info)) = self.first else { return Err(self.unreadable) };
        info.complete = self.complete && self.unreadable.is_empty();
        info.ended = self.ended.unwrap_or_else(|| KILLED.to_owned());
        if !info.complete && self.ranks.len() < self.size {
            let found = &self.ranks;
            info.notes.push(format!("Of {} ranks, these have left a spool: {found}.", self.size));
        }
        if let Some(kept) = &self.kept {
            // A spool may be missing, or have stayed as it was.
            let of = match &self.ranks {
                found if found == kept => "them alone".to_owned(),
                found => format!("those that are found, {found}"),
            };
            info.notes.push(format!(
                "Of {} ranks, the samples of {kept} were kept: this is of {of} \
                 (PLIMSOLL_TRACE=clusters). The report of the run itself is of all.",
                self.size
            ));
        }
        for damage in self.unreadable {
            info.notes.push(format!("A spool could not be read: {damage}"));
        }
        let damages = self.damages.len();
        for damage in self.damages.into_iter().take(MOST_DAMAGES) {
            info.notes.push(format!("A spool is damaged: {damage}"));
        }
        if damages > MOST_DAMAGES {
            info.notes.push(format!("There are {} more damages.", damages - MOST_DAMAGES));
        }
        Ok(info)
    }
}

/// Damages that a summary tells one by one.
const MOST_DAMAGES: usize = 5;

/// How much an end says of what happened, where parts of a job ended differently: what kills one
/// process makes launchers end the others by SIGTERM.
fn severity(ended: &str) -> u32 {
    match ended {
        "finalize" => 0,
        "exit" => 1,
        "signal 15" => 2,
        KILLED => 3,
        "abort" => 4,
        _ => 5,
    }
}
