//! From the ranks' profiles to the summary of the job: agree, reduce, conclude, ask which ranks are
//! meant, and write it all down (PPoPP20, 3.1 and 5).

use std::collections::BTreeMap;
use std::fmt;

use plimsoll_collector::profile::ProcessProfile;
use serde::{Deserialize, Serialize};

use crate::agreement::{Agreed, Proposal};
use crate::communicator::{Alone, Communicator, CommunicatorError, broadcast, reduce};
use crate::conclude::{Conclusion, summary};
use crate::order::ordered;
use crate::queries::ask;
use crate::rank::profile_is_sound;
use crate::summary::{Mpi, Summary};
use crate::totals::Totals;

/// One rank, as the collector of its node hands it on.
#[derive(Clone, Debug)]
pub struct RankInput {
    /// Rank in the job; 0 without MPI.
    pub rank: u32,
    /// Name of its node.
    pub host: String,
    /// Numbers of the cores on which it may run.
    pub cores: Vec<u32>,
    /// What was measured.
    pub profile: ProcessProfile,
    /// What measuring cost beyond what the profile counts.
    pub cost: Cost,
    /// What its spool does not hold, as the end of a sentence; `None` if it holds all.
    pub spool_trouble: Option<String>,
}

/// What measuring a rank cost, outside its threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// CPU time of the collector thread; on the rank that hosts it.
    pub collector_cpu_ns: u64,
    /// The part of it in which functions, loops and lines were looked up, and the part of that after the
    /// end of the run.
    #[serde(default)]
    pub structure_cpu_ns: (u64, u64),
    /// Bytes of samples spooled to disk.
    pub spool_bytes: u64,
    /// Memory used, where it is known.
    pub memory_bytes: Option<u64>,
}

/// What is known of the job without its ranks; process 0's counts.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JobInfo {
    /// Path of the executable.
    pub executable: String,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// Job id.
    pub job: Option<String>,
    /// Begin, RFC 3339.
    pub started: String,
    /// The MPI library.
    pub mpi: Mpi,
    /// Whether the run reached its end and all ranks contribute.
    pub complete: bool,
    /// How it ended.
    pub ended: String,
    /// Settings worth telling.
    pub settings: BTreeMap<String, String>,
    /// Sentences about what the measurement could not do.
    pub notes: Vec<String>,
}

/// Why there is no summary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DiagnoseError {
    /// The processes could not exchange their values.
    Exchange(CommunicatorError),
    /// No process had a profile that could be used.
    NoRanks,
}

impl fmt::Display for DiagnoseError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exchange(error) => write!(formatter, "the ranks could not be compared: {error}"),
            Self::NoRanks => write!(formatter, "no rank was measured, so there is nothing to say"),
        }
    }
}

impl std::error::Error for DiagnoseError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Exchange(error) => Some(error),
            Self::NoRanks => None,
        }
    }
}

impl From<CommunicatorError> for DiagnoseError {
    fn from(error: CommunicatorError) -> Self {
        Self::Exchange(error)
    }
}

/// Diagnoses a job whose processes hold the profiles of some ranks each, or of none. The summary is
/// at process 0, `None` elsewhere. Collective.
pub fn diagnose(
    comm: &dyn Communicator,
    mut local: Vec<RankInput>,
    job: &JobInfo,
) -> Result<Option<Summary>, DiagnoseError> {
    let mut unsound = Vec::new();
    local.retain(|input| {
        let sound = profile_is_sound(&input.profile);
        if !sound {
            unsound.push(input.rank);
        }
        sound
    });
    let agreed = agree(comm, &local)?;
    if agreed.ranks == 0 {
        return Err(DiagnoseError::NoRanks);
    }
    let mut totals = Totals::default();
    unsound.into_iter().for_each(|rank| totals.job.leave_out(rank));
    for input in &local {
        totals.add_rank(input, &agreed);
    }
    let totals = reduce(comm, totals, Totals::combine);
    let (conclusion, queries) = match totals {
        Ok(totals) => {
            let conclusion = totals.map(|totals| Conclusion::new(ordered(totals), agreed.matching));
            let queries = conclusion.as_ref().map(Conclusion::queries);
            (conclusion, Ok(queries))
        }
        Err(error) => (None, Err(error)),
    };
    let answers = ask(comm, &local, &agreed, queries)?;
    Ok(conclusion.zip(answers).map(|(conclusion, answers)| summary(&conclusion, &answers, job)))
}

/// Diagnoses the ranks that one process holds, without communicating: a process without MPI, or
/// where the ranks cannot talk.
pub fn diagnose_alone(local: Vec<RankInput>, job: &JobInfo) -> Result<Summary, DiagnoseError> {
    // The only process is process 0.
    diagnose(&Alone, local, job)?.ok_or(DiagnoseError::NoRanks)
}

fn agree(comm: &dyn Communicator, local: &[RankInput]) -> Result<Agreed, CommunicatorError> {
    let proposals = local.iter().map(|input| Proposal::of(&input.profile));
    let ours = proposals.fold(Proposal::default(), Proposal::combine);
    let all = reduce(comm, ours, Proposal::combine);
    broadcast(comm, all.map(|all| all.map(|all| all.conclude())))
}

#[cfg(test)]
mod tests;
