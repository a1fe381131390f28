//! Makes the summary from spools, by the same reduction as in the job.
//!
//! The processes of a digest (threads, or ranks of an MPI job) share the spools of a folder
//! (PPoPP20, 3.1): each process reads some spools, or, if there are fewer spools than processes,
//! some ranks of one spool.

use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

use plimsoll_collector::digest::{Digest, Moment, spools};
use serde::{Deserialize, Serialize};

use crate::communicator::{Communicator, CommunicatorError, broadcast, reduce};
use crate::deaths::{End, LastMoment, Lives};
use crate::diagnose::{DiagnoseError, diagnose_into};
use crate::error::reason;
use crate::input::{FirstDeath, RankInput};
use crate::per_rank::Table;
use crate::printable::path as shown;
use crate::ranks::RankSet;
use crate::rules::Rules;
use crate::settings::LABELS;
use crate::sources::Source;
use crate::spooled::SpoolNote;
use crate::spooled_job::{NoJob, SpooledJob};
use crate::summary::Summary;

/// Reasons why there is no summary.
#[derive(Debug, thiserror::Error)]
pub enum DigestError {
    /// The folder cannot be read.
    #[error("{} cannot be read: {}.{}", shown(.0), reason(.1), remedy(.1))]
    Folder(PathBuf, io::Error),
    /// The folder contains no spool.
    #[error(
        "{} holds no spool (*.spool). Give the folder *.plimsoll.d that a run has left; runs with \
         PLIMSOLL_TRACE=off leave none.",
        shown(.0)
    )]
    NoSpool(PathBuf),
    /// No spool could be read; one sentence with the reason for each.
    #[error("nothing could be read. {}", .0.join(" "))]
    Unreadable(Vec<String>),
    /// The spools must not be merged; the text names them and the alternative.
    #[error("{0}")]
    Mixed(String),
    /// The ranks could not be compared.
    #[error("{0}")]
    Diagnose(DiagnoseError),
}

/// Returns a sentence that tells the user which folder to give instead, or nothing.
fn remedy(error: &io::Error) -> &'static str {
    match error.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => {
            " Give the folder *.plimsoll.d that a run has left."
        }
        _ => "",
    }
}

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

/// Returns the spools at a path: all spools of a folder, or the one file.
pub fn find(path: &Path) -> Result<Vec<PathBuf>, DigestError> {
    let found = if path.is_file() { Ok(vec![path.to_owned()]) } else { spools(path) };
    let found = found.map_err(|error| DigestError::Folder(path.into(), error))?;
    if found.is_empty() { Err(DigestError::NoSpool(path.into())) } else { Ok(found) }
}

/// Labelling rules that replace the rules of the run.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct OtherRules {
    /// Name of the rules' file.
    pub file: String,
    /// The rules.
    pub rules: Rules,
}

/// Digests spools; each process reads its share, and all apply the same rules. Calls `progress`
/// with the number of frames read and the total number of frames of this process. Returns the
/// summary at process 0, `None` elsewhere; per-rank values are written to process 0's table.
/// Collective.
pub fn digest(
    comm: &dyn Communicator,
    paths: &[PathBuf],
    rules: Option<&OtherRules>,
    progress: &dyn Fn(u64, u64),
    table: Option<&mut dyn Table>,
) -> Result<Option<Summary>, DigestError> {
    let replay = Replay { with_instances: false, progress };
    summary_of(comm, paths, rules, &replay, table)
}

/// Digests spools like [`digest`]; the summary also has the representative iterations of loops as
/// they ran. Records are read twice. Collective.
pub fn digest_with_instances(
    comm: &dyn Communicator,
    paths: &[PathBuf],
) -> Result<Option<Summary>, DigestError> {
    summary_of(comm, paths, None, &Replay { with_instances: true, progress: &|_, _| () }, None)
}

/// Choices for reading records.
struct Replay<'a> {
    /// Whether the representative iterations of loops are captured.
    with_instances: bool,
    /// Called with the number of frames read and the total number of frames.
    progress: &'a dyn Fn(u64, u64),
}

fn summary_of(
    comm: &dyn Communicator,
    paths: &[PathBuf],
    rules: Option<&OtherRules>,
    replay: &Replay<'_>,
    table: Option<&mut dyn Table>,
) -> Result<Option<Summary>, DigestError> {
    let mut job = SpooledJob::default();
    let mut parts = Vec::new();
    for (index, team) in shares(comm.rank() as usize, comm.size() as usize, paths.len()) {
        match Part::open(index, &paths[index], team) {
            Ok((mut part, said)) => {
                job = job.combine(said);
                if parts.len() >= MAX_OPEN {
                    part.close();
                }
                parts.push(part);
            }
            Err(reason) => job.unreadable.push(reason),
        }
    }
    // The end of each rank's run depends on the first death, which is known only after all
    // lifetimes are reduced.
    let all = reduce(comm, (job.lives.clone(), job.regular.clone()), |mut ours, theirs| {
        ours.0.combine(theirs.0);
        (ours.0, ours.1.or(theirs.1))
    });
    let (lives, regular) = broadcast(comm, all)?;
    let death = lives.first().filter(|_| regular.is_none());
    let mut inputs = Vec::new();
    let mut noted_death = None;
    for part in parts {
        if death.is_some_and(|death| death.spool == part.index) && part.is_ended {
            // The collector has already decided what its note says about the death.
            noted_death = Some(part.note.job.death);
        }
        match part.replay(death, &mut inputs, replay) {
            Ok(said) => job = job.combine(said),
            Err(reason) => job.unreadable.push(reason),
        }
    }
    inputs.sort_by_key(|input: &RankInput| input.rank);
    let all = reduce(comm, (job, noted_death), |(job, noted_death), (other, other_death)| {
        (job.combine(other), noted_death.or(other_death))
    });
    let conclude = |(job, noted_death): (SpooledJob, Option<Option<FirstDeath>>)| {
        let mut info = job.conclude()?;
        info.death = death.and_then(|_| noted_death.flatten().or_else(|| lives.first_death()));
        Ok(info)
    };
    let info = broadcast(comm, all.map(|all| all.map(conclude)))?;
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
        Err(NoJob::Unreadable(reasons)) => Err(DigestError::Unreadable(reasons)),
        Err(NoJob::Mixed(reason)) => Err(DigestError::Mixed(reason)),
    }
}

/// Maximum number of spools that a process keeps open between reading lifetimes and reading
/// records.
const MAX_OPEN: usize = 32;

/// Position of a process among the processes that read one spool together.
#[derive(Clone, Copy)]
struct Team {
    member: usize,
    size: usize,
}

/// Returns the spools that process `rank` of `size` reads, each with the process's position among
/// its readers.
fn shares(rank: usize, size: usize, spools: usize) -> Vec<(usize, Team)> {
    if size <= spools {
        return (rank..spools).step_by(size).map(|at| (at, Team { member: 0, size: 1 })).collect();
    }
    // Processes rank, rank + spools, ... read one spool together.
    let at = rank % spools;
    vec![(at, Team { member: rank / spools, size: (size - 1 - at) / spools + 1 })]
}

/// This process's share of the ranks of one spool.
struct Part<'a> {
    /// Index of the spool in the digest.
    index: usize,
    path: &'a Path,
    team: Team,
    note: SpoolNote,
    /// Whether the collector has ended the run of all its ranks.
    is_ended: bool,
    digest: Option<Digest>,
}

impl<'a> Part<'a> {
    /// Opens a spool and returns what its note says about the job.
    fn open(index: usize, path: &'a Path, team: Team) -> Result<(Self, SpooledJob), String> {
        let digest = Digest::open(path).map_err(|error| named(path, &error))?;
        let note = digest.note().cloned();
        let note = note.ok_or_else(|| named(path, &"it says nothing of its job"))?;
        let note: SpoolNote = serde_json::from_value(note).map_err(|error| named(path, &error))?;
        let processes = digest.processes();
        if processes.is_empty() {
            return Err(named(path, &"the state of its processes is lost"));
        }
        let is_ended = processes.iter().all(|process| process.ended);
        let mut lives = Lives::default();
        for process in &processes {
            let Some(rank) = note.rank(process.pid) else { continue };
            let end = match (process.died, process.ended) {
                (true, _) => End::Death,
                (false, true) => End::Run,
                (false, false) => End::Unknown,
            };
            let Moment { at_ns, stamp } = process.last;
            lives.add(LastMoment { at_ns, rank, spool: index, stamp }, end);
        }
        let ranks: RankSet = processes.iter().filter_map(|it| note.rank(it.pid)).collect();
        let first = note.ranks.iter().map(|rank| rank.rank).min();
        let complete = note.job.complete;
        let is_damaged = !digest.damages().is_empty() || !digest.is_orderly() || !is_ended;
        let source = Source {
            file: path.display().to_string(),
            run: note.run.clone(),
            executable: note.job.executable.clone(),
            size: note.size,
            ranks: ranks.clone(),
        };
        let said = SpooledJob {
            first: Some((first.unwrap_or(u32::MAX), note.job.clone())),
            ended: Some(note.job.ended.clone()),
            regular: complete.then(|| note.job.ended.clone()),
            complete: complete && is_ended,
            size: note.size,
            kept: note.kept.clone(),
            lives,
            damaged: if is_damaged { ranks } else { RankSet::default() },
            sources: vec![source],
            ..SpooledJob::default()
        };
        Ok((Self { index, path, team, note, is_ended, digest: Some(digest) }, said))
    }

    /// Closes the spool until its records are read.
    fn close(&mut self) {
        self.digest = None;
    }

    /// Replays this process's ranks up to the first death; returns the parts that could not be
    /// read.
    fn replay(
        self,
        death: Option<LastMoment>,
        inputs: &mut Vec<RankInput>,
        replay: &Replay<'_>,
    ) -> Result<SpooledJob, String> {
        let Self { index, path, team, note, .. } = self;
        let named = |error: &dyn fmt::Display| named(path, error);
        let mut digest = match self.digest {
            Some(digest) => digest,
            None => Digest::open(path).map_err(|error| named(&error))?,
        };
        if note.job.is_broken_off() {
            digest.break_off();
        }
        let first = note.ranks.iter().map(|rank| rank.rank).min();
        let frames = digest.frames();
        let (mut read, mut ranks) = (0, RankSet::default());
        for process in digest.processes().iter().skip(team.member).step_by(team.size) {
            match death {
                Some(death) if death.spool != index => {
                    digest.end_after(process.number, death.at_ns);
                }
                // Processes that ended together with the death, as observed by their collector,
                // ended regularly.
                Some(death) if !process.ended => digest.end_at(process.number, death.stamp),
                _ => {}
            }
            let progress = |_| {
                read += 1;
                (replay.progress)(read, frames / team.size as u64);
            };
            let profile = match replay.with_instances {
                true => digest.profile_with_instances(process.number, progress),
                false => digest.profile(process.number, progress),
            };
            let Some(profile) = profile.map_err(|error| named(&error))? else { continue };
            let Some(mut input) = note.input(process.pid, profile) else { continue };
            if first == Some(input.rank) {
                input.cost.spool_bytes = digest.bytes();
            }
            ranks = ranks.union(&RankSet::from_iter([input.rank]));
            inputs.push(input);
        }
        // Data beside the records is read by every process of the team.
        let mut damages: Vec<String> =
            digest.damages().iter().map(|damage| named(damage)).collect();
        if note.job.complete && !digest.is_orderly() {
            damages.push(named(&"its end is missing, and what came last may be lost"));
        }
        let of_spool = || note.ranks.iter().map(|rank| rank.rank).collect();
        Ok(SpooledJob {
            first: Some((first.unwrap_or(u32::MAX), note.job.clone())),
            complete: note.job.complete,
            damaged: if damages.is_empty() { RankSet::default() } else { of_spool() },
            ranks,
            damages,
            ..SpooledJob::default()
        })
    }
}

/// Returns a sentence about a spool.
fn named(path: &Path, what: &dyn fmt::Display) -> String {
    format!("{}: {what}.", shown(path))
}
