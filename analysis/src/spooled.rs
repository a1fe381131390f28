//! Note in a spool, with the job and the ranks that its collector serves; and the choice of the
//! ranks that stay in the spool once the report is written.

use std::path::Path;

use plimsoll_collector::profile::ProcessProfile;
use plimsoll_collector::{SpoolSelection, keep};
use plimsoll_spool::SpoolError;
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serialize};

use crate::input::{Cost, JobInfo, RankClock, RankInput};
use crate::population::sampled_ranks;
use crate::ranks::RankSet;
use crate::settings::Trace;
pub use crate::summary::KILLED;
use crate::summary::{Loop, Population, Summary};

/// Maximum number of slow ranks kept for one loss.
const MAX_SLOW_RANKS: usize = 16;

/// Note of one collector, stored in its spool.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SpoolNote {
    /// Description of the job. While the job runs, its end is given as [`KILLED`].
    pub job: JobInfo,
    /// Identity of the run: equal in all spools of one run, different in all other runs. `None` in
    /// spools of earlier builds.
    #[serde(default)]
    pub run: Option<String>,
    /// Number of ranks with spools in one folder.
    #[serde(deserialize_with = "job_size")]
    pub size: u32,
    /// Node on which the collector runs.
    pub host: String,
    /// Ranks that the collector serves.
    pub ranks: Vec<RankNote>,
    /// Ranks of the job with kept samples; `None` if the samples of all ranks were kept.
    #[serde(default)]
    pub kept: Option<RankSet>,
}

/// Maximum number of ranks of a job: a damaged or foreign note may say any.
const MAX_RANKS: u32 = 1 << 24;

fn job_size<'de, D: Deserializer<'de>>(note: D) -> Result<u32, D::Error> {
    let size = u32::deserialize(note)?;
    match size <= MAX_RANKS {
        true => Ok(size),
        false => Err(D::Error::custom(format!("no job has {size} ranks"))),
    }
}

/// One rank in a spool.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct RankNote {
    /// Process id.
    pub pid: u32,
    /// Rank in the job; 0 without MPI.
    pub rank: u32,
    /// Cores on which the rank may run.
    pub cores: Vec<u32>,
    /// Clock of the rank's node; unknown in spools of earlier builds.
    #[serde(default)]
    pub clock: RankClock,
    /// Cost of measuring the rank.
    pub cost: Cost,
}

impl SpoolNote {
    /// Returns the rank of the process with this id.
    pub fn rank(&self, pid: u32) -> Option<u32> {
        self.ranks.iter().find(|rank| rank.pid == pid).map(|rank| rank.rank)
    }

    /// Builds the input for the rank of the process with this id, as its collector does.
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

/// Ranks that keep their samples once the report is written.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Kept {
    /// The ranks.
    pub ranks: RankSet,
    /// Population that the ranks are a random sample of; `None` if they were not chosen at random.
    pub population: Option<Population>,
}

impl Kept {
    /// Returns the ranks of a run with a report that keep their samples; `None` if all do.
    pub fn of(trace: Trace, summary: &Summary) -> Option<Self> {
        let kept = match trace {
            Trace::Clusters => Self { ranks: representative_ranks(summary), population: None },
            Trace::Sample(_) => {
                let population = summary.population.clone()?;
                Self { ranks: sampled_ranks(&population), population: Some(population) }
            }
            Trace::Off | Trace::All => return None,
        };
        (kept.ranks.len() < summary.run.ranks).then_some(kept)
    }
}

/// Returns the ranks that represent the run: the representative of each cluster, up to 16 slow
/// ranks of each loss, the first of the ranks that wait for them, and the rank of each loop with
/// described iterations.
pub fn representative_ranks(summary: &Summary) -> RankSet {
    let of_clusters = summary.clusters.iter().map(|cluster| cluster.representative);
    let listed = |ranks: &str, most: usize| {
        // Rank lists in a summary of our own always parse.
        let ranks: RankSet = ranks.parse().unwrap_or_default();
        ranks.iter().take(most).collect::<Vec<u32>>()
    };
    let of_losses = summary.losses.iter().flat_map(|loss| {
        let waiting = listed(&loss.waiting_ranks, 1);
        listed(&loss.slow_ranks, MAX_SLOW_RANKS).into_iter().chain(waiting)
    });
    let is_described = |it: &&Loop| it.clusters.iter().any(|cluster| !cluster.slices.is_empty());
    let of_loops = summary.loops.iter().filter(is_described).filter_map(|it| it.rank);
    of_clusters.chain(of_losses).chain(of_loops).collect()
}

/// Reduces a completed spool to the ranks that keep their samples, and removes it if it has none of
/// them. `path`
/// lacks the file name extension. After an error the spool is unchanged.
pub fn keep_ranks(path: &Path, Kept { ranks, population }: &Kept) -> Result<(), SpoolError> {
    keep(path, |note| {
        let mut note: SpoolNote = serde_json::from_value(note)?;
        note.ranks.retain(|rank| ranks.contains(rank.rank));
        note.kept = Some(ranks.clone());
        note.job.population.clone_from(population);
        let pids = note.ranks.iter().map(|rank| rank.pid).collect();
        Ok(SpoolSelection { pids, note: serde_json::to_value(&note)? })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic_run::job;

    #[test]
    fn the_number_of_ranks_in_a_note_is_bounded() {
        let read = |size| {
            let (host, ranks) = ("ketch".to_owned(), Vec::new());
            let note = SpoolNote { job: job(), run: None, size, host, ranks, kept: None };
            serde_json::from_value::<SpoolNote>(serde_json::to_value(note).unwrap())
        };
        assert_eq!(read(1 << 20).unwrap().size, 1 << 20);
        let error = read(u32::MAX).unwrap_err().to_string();
        assert!(error.contains("no job has 4294967295 ranks"), "{error}");
    }
}
