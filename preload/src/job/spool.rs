//! The spool of this process: its folder, the ranks it holds, and the job's note in it.

use std::io;
use std::path::{Path, PathBuf};

use plimsoll_analysis::input::{Cost, JobInfo};
use plimsoll_analysis::rules::Rules;
use plimsoll_analysis::spooled::{KILLED, Kept, RankNote, SpoolNote, keep_ranks};
use plimsoll_comm::communicator::{Communicator, CommunicatorError, broadcast};
use plimsoll_comm::mpi::node::NodeRank;
use plimsoll_comm::mpi::{MpiCommunicator, launcher};
use plimsoll_report::output::{NameFields, Target, claim_folder};
use plimsoll_spool::SpoolError;
use plimsoll_summary::error::Error;
use plimsoll_summary::printable::path as shown;
use plimsoll_summary::settings::Trace;
use plimsoll_sys::own_files::create_own_folder;
use serde::{Deserialize, Serialize};

use super::{Job, Phase, State, Taken, get};
use crate::{log, own_threads};

/// Name and folder of all files of a job, claimed once.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Claimed {
    /// Name and directory of the reports.
    pub target: Target,
    /// Part of the job that the name contains, such as `rank3`; `None` for the whole job.
    pub part: Option<String>,
    /// Folder of the spools.
    pub folder: PathBuf,
    /// Identity of the run ([`SpoolNote::run`]).
    pub run: String,
}

/// Values that rank 0 broadcasts to all ranks when the job's communicator is set up.
#[derive(Serialize, Deserialize)]
struct RootBroadcast {
    claimed: Option<Claimed>,
    rules: Rules,
}

impl State {
    /// Returns a copy of the ranks and clock exchanges collected so far; the state keeps its own.
    fn snapshot(&self) -> Taken {
        // Each rank that reports by itself has a spool folder of its own.
        let together = self.mpi.as_ref().filter(|side| side.apart.is_none());
        Taken {
            ranks: self.ranks.clone(),
            exchanges: self.exchanges.clone(),
            spool_size: together.map_or(1, |side| side.size),
        }
    }

    /// Moves the collected ranks out of the state for the one thread that evaluates them; `None` if
    /// another thread has begun the evaluation.
    pub(super) fn take(&mut self) -> Option<Taken> {
        if self.phase != Phase::Collecting {
            return None;
        }
        self.phase = Phase::Concluding;
        let taken = self.snapshot();
        self.ranks.clear();
        Some(taken)
    }
}

impl Job {
    /// Returns the directory and name of the reports of a job with this number of ranks, or of a
    /// part of the job.
    pub fn target(&self, ranks: u32, part: Option<&str>) -> Target {
        let (target, named) = match self.claimed.lock().clone() {
            Some(claimed) => (claimed.target, claimed.part),
            None => (self.unclaimed(ranks), None),
        };
        of_part(target, part.filter(|part| named.as_deref() != Some(part)))
    }

    /// Returns the folder of the job's spools; `None` while no folder is claimed.
    pub fn spool_folder(&self) -> Option<PathBuf> {
        self.claimed.lock().as_ref().map(|claimed| claimed.folder.clone())
    }

    fn unclaimed(&self, ranks: u32) -> Target {
        let facts = NameFields {
            directory: &self.directory,
            executable: Path::new(&self.executable),
            job: &self.id,
            host: &self.host,
            pid: std::process::id(),
            ranks,
            time: self.started,
        };
        Target::new(&self.settings.output, &facts)
    }

    /// Returns the identity of a run in which this process is the first rank.
    fn run(&self) -> String {
        format!("{} {} {}", self.host, std::process::id(), self.started.rfc3339())
    }

    /// Claims a name for the files of the job, or of a part of it, by creating the folder of the
    /// spools.
    fn claim(&self, ranks: u32, part: Option<String>) -> Result<Claimed, Error> {
        let (target, folder) = claim_folder(&of_part(self.unclaimed(ranks), part.as_deref()))?;
        Ok(Claimed { target, part, folder, run: self.run() })
    }

    /// Begins a spool of this process alone, before the process knows whether it is a rank of a
    /// job. The collector creates the folder only once the process has run for a while.
    pub(super) fn spool_alone(&'static self) {
        // The processes that a launcher started share a name only from MPI_Init on.
        if self.settings.trace == Trace::Off || !launcher::is_alone() {
            return;
        }
        let place = move || {
            let job = get().ok_or(io::ErrorKind::NotFound)?;
            let claimed = job.claim(1, None).map_err(|error| complain(&error))?;
            let path = claimed.folder.join("rank0");
            *job.claimed.lock() = Some(claimed);
            Ok(path)
        };
        self.begin_spool(Box::new(place), 1);
    }

    /// Begins the spool of a rank that writes a report of its own, apart from the other ranks.
    pub(super) fn spool_apart(&self, rank: u32, size: u32) {
        self.forget_spool();
        if self.settings.trace == Trace::Off {
            return;
        }
        match self.claim(size, (size > 1).then(|| format!("rank{rank}"))) {
            Ok(claimed) => self.spool_in(claimed, rank, 1),
            Err(error) => drop(complain(&error)),
        }
    }

    /// Claims a name for the job on rank 0 and broadcasts it with the user's label rules, so that
    /// each spool and each report of a part of the job contains the rules. Collective over the
    /// job's ranks.
    pub(super) fn claim_together(
        &self,
        world: &MpiCommunicator,
    ) -> Result<Option<Claimed>, CommunicatorError> {
        self.forget_spool();
        let first = world.rank() == 0;
        let claim = || match self.settings.trace {
            Trace::Off => {
                log::warn(
                    "PLIMSOLL_TRACE=off: if this job is killed (kill -9), nothing is left of it.",
                );
                None
            }
            Trace::Clusters | Trace::Sample(_) | Trace::All => {
                self.claim(world.size(), None).map_err(|error| complain(&error)).ok()
            }
        };
        let root_values =
            first.then(|| RootBroadcast { claimed: claim(), rules: self.own_rules() });
        let RootBroadcast { claimed, rules } = broadcast(world, Ok(root_values))?;
        self.take_rules(rules);
        Ok(claimed)
    }

    /// Begins a spool of `ranks` ranks; `rank` is the first of them and names the file.
    pub(super) fn spool_in(&self, claimed: Claimed, rank: u32, ranks: usize) {
        let folder = claimed.folder.clone();
        *self.claimed.lock() = Some(claimed);
        let place = move || {
            // Nodes without a shared directory each create a folder of their own.
            folder
                .parent()
                .map_or(Ok(()), std::fs::create_dir_all)
                .and_then(|()| create_own_folder(&folder))
                .map_err(|source| complain(&Error::Write { path: folder.clone(), source }))?;
            Ok(folder.join(format!("rank{rank}")))
        };
        self.begin_spool(Box::new(place), ranks);
    }

    fn begin_spool(&self, place: plimsoll_collector::PlaceSpool, ranks: usize) {
        let limit_bytes = self.settings.memory_bytes.saturating_mul(ranks as u64);
        if let Err(error) = self.collector.spool(place, limit_bytes) {
            log::warn(&format!("no samples are kept on disk: {error}."));
        }
    }

    /// Discards what was spooled before the process knew its rank and job.
    fn forget_spool(&self) {
        self.collector.discard_spool();
        *self.claimed.lock() = None;
    }

    /// Reduces a finished spool to the ranks that process 0 names in `kept`; keeps all ranks if
    /// process 0 names none. Collective over the holders of profiles.
    pub(super) fn thin_spool(
        &self,
        holders: &dyn Communicator,
        kept: Option<Kept>,
        spool: Option<PathBuf>,
    ) {
        let kept: Kept = match broadcast(holders, Ok(Some(kept))) {
            Ok(Some(kept)) => kept,
            Ok(None) => return,
            Err(error) => return log::debug(|| format!("all ranks stay in the spool: {error}")),
        };
        let Some(spool) = spool else { return };
        // The stack of the application's thread may be nearly used up.
        match own_threads::on_own_stack(|| keep_ranks(&spool, &kept)) {
            Some(Ok(())) | None => {}
            // The application or its user has removed the spool.
            Some(Err(SpoolError::Io(error))) if error.kind() == io::ErrorKind::NotFound => {}
            Some(Err(error)) => {
                log::warn(&format!("{} keeps the samples of all ranks: {error}.", shown(&spool)))
            }
        }
        self.forget_empty_folder();
    }

    /// Removes the folder of the spools if it is empty.
    pub(super) fn forget_empty_folder(&self) {
        if let Some(folder) = self.spool_folder() {
            // remove_dir fails on a folder with files in it, and the folder stays.
            let _ = std::fs::remove_dir(folder);
        }
    }

    /// Writes the note of a running job into the spool: its end is [`KILLED`] until the end of the
    /// run replaces the note.
    pub(super) fn note_spool(&self, state: &State) {
        let info = self.info(state, KILLED, false);
        let cost = |_: &NodeRank| Cost::default();
        self.note(&info, &state.snapshot(), cost);
    }

    /// Writes the note of the job into the spool, with the given job description and the cost of
    /// each rank.
    pub(super) fn note(&self, info: &JobInfo, taken: &Taken, cost: impl Fn(&NodeRank) -> Cost) {
        let ranks = taken.ranks.iter().map(|(_, rank)| RankNote {
            pid: rank.pid,
            rank: rank.rank,
            cores: rank.cores.clone(),
            clock: Self::clock_of(&taken.exchanges, rank),
            cost: cost(rank),
        });
        let run = self.claimed.lock().as_ref().map(|claimed| claimed.run.clone());
        let note = SpoolNote {
            job: info.clone(),
            run: Some(run.unwrap_or_else(|| self.run())),
            size: taken.spool_size,
            host: self.host.clone(),
            ranks: ranks.collect(),
            kept: None,
        };
        match serde_json::to_value(&note) {
            Ok(note) => self.collector.note(note),
            Err(error) => log::debug(|| format!("no note in the spool: {error}")),
        }
    }
}

/// Appends the name of a part of the job to the report's name.
fn of_part(mut target: Target, part: Option<&str>) -> Target {
    if let Some(part) = part {
        target.stem.push("_");
        target.stem.push(part);
    }
    target
}

/// Warns that no samples are kept on disk and why, and converts the error for the collector.
fn complain(error: &Error) -> io::Error {
    let remedy = error.remedy();
    log::warn(&format!("no samples are kept on disk: {error} {remedy} Or set PLIMSOLL_TRACE=off."));
    io::Error::other(error.to_string())
}
