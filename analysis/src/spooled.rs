//! What goes into a spool beside what its collector knows: which job it is of, and which ranks.

use serde::{Deserialize, Serialize};

use plimsoll_collector::profile::ProcessProfile;

use crate::input::{Cost, JobInfo, RankClock, RankInput};

/// How a run ended whose spool does not say: nothing but a SIGKILL, or a machine that stops, leaves
/// none of its processes a moment.
pub const KILLED: &str = "killed";

/// The note of one collector, as it is in its spool.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SpoolNote {
    /// What is known of the job; while it runs, it has ended in no way but [`KILLED`].
    pub job: JobInfo,
    /// Ranks whose spools are in one folder.
    pub size: u32,
    /// Node on which the collector runs.
    pub host: String,
    /// The ranks that it collects.
    pub ranks: Vec<RankNote>,
}

/// One rank in a spool.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RankNote {
    /// Its process.
    pub pid: u32,
    /// Rank in the job; 0 without MPI.
    pub rank: u32,
    /// Cores on which it may run.
    pub cores: Vec<u32>,
    /// Its node's clock; spools of earlier builds do not tell it.
    #[serde(default)]
    pub clock: RankClock,
    /// What measuring it cost.
    pub cost: Cost,
}

impl SpoolNote {
    /// The rank whose process has this id, as its collector hands it on.
    pub fn input(&self, pid: u32, profile: ProcessProfile) -> Option<RankInput> {
        let note = self.ranks.iter().find(|rank| rank.pid == pid)?;
        Some(RankInput {
            rank: note.rank,
            host: self.host.clone(),
            cores: note.cores.clone(),
            clock: note.clock.clone(),
            profile,
            cost: note.cost,
            spool_trouble: None,
        })
    }
}
