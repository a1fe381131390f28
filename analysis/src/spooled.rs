//! What goes into a spool beside what its collector knows: which job it is of, and which ranks; and of which
//! ranks it stays when the run has its report.

use std::path::Path;

use plimsoll_collector::profile::ProcessProfile;
use plimsoll_collector::{Kept, keep};
use plimsoll_spool::SpoolError;
use serde::{Deserialize, Serialize};

use crate::input::{Cost, JobInfo, RankClock, RankInput};
use crate::ranks::RankSet;
pub use crate::summary::KILLED;
use crate::summary::Summary;

/// Most ranks that are kept because one loss is due to them.
const MOST_SLOW_RANKS: usize = 16;

/// The note of one collector, as it is in its spool.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SpoolNote {
    /// What is known of the job; while it runs, it has ended in no way but [`KILLED`].
    pub job: JobInfo,
    /// Identity of the run: equal in all spools of one run, and in no other run's. Spools of earlier builds
    /// have none.
    #[serde(default)]
    pub run: Option<String>,
    /// Ranks whose spools are in one folder.
    pub size: u32,
    /// Node on which the collector runs.
    pub host: String,
    /// The ranks that it collects.
    pub ranks: Vec<RankNote>,
    /// The ranks of the job whose samples were kept, where those of others were not.
    #[serde(default)]
    pub kept: Option<RankSet>,
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
    /// The rank whose process has this id.
    pub fn rank(&self, pid: u32) -> Option<u32> {
        self.ranks.iter().find(|rank| rank.pid == pid).map(|rank| rank.rank)
    }

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

/// The ranks that tell what there is to see of a run: of each cluster the one that is nearest to its mean, of
/// each loss those to which it is due, 16 at most, and the first of those that wait for them.
pub fn telling(summary: &Summary) -> RankSet {
    let of_clusters = summary.clusters.iter().map(|cluster| cluster.representative);
    let listed = |ranks: &str, most: usize| {
        // Lists of ours can be read.
        let ranks: RankSet = ranks.parse().unwrap_or_default();
        ranks.iter().take(most).collect::<Vec<u32>>()
    };
    let of_losses = summary.losses.iter().flat_map(|loss| {
        let waiting = listed(&loss.waiting_ranks, 1);
        listed(&loss.slow_ranks, MOST_SLOW_RANKS).into_iter().chain(waiting)
    });
    of_clusters.chain(of_losses).collect()
}

/// Leaves only some ranks of the job in a spool that was ended in order, or nothing of it where it has none of
/// them. `path` is without the end of its name. After an error the spool is as it was.
pub fn keep_ranks(path: &Path, kept: &RankSet) -> Result<(), SpoolError> {
    keep(path, |note| {
        let mut note: SpoolNote = serde_json::from_value(note)?;
        note.ranks.retain(|rank| kept.contains(rank.rank));
        note.kept = Some(kept.clone());
        let pids = note.ranks.iter().map(|rank| rank.pid).collect();
        Ok(Kept { pids, note: serde_json::to_value(&note)? })
    })
}
