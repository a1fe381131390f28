//! Input of a diagnosis: ranks as their collectors hand them on, and facts about the job that do
//! not come from its ranks.

use std::collections::BTreeMap;

use plimsoll_collector::profile::ProcessProfile;
use serde::{Deserialize, Serialize};

use crate::rules::Rules;
use crate::summary::{Memory, Mpi, Population};

/// One rank, as the collector of its node hands it on.
#[derive(Clone, Debug)]
pub struct RankInput {
    /// Rank in the job; 0 without MPI.
    pub rank: u32,
    /// Name of the rank's node.
    pub host: String,
    /// Numbers of the cores on which the rank may run.
    pub cores: Vec<u32>,
    /// Clock of the rank's node.
    pub clock: RankClock,
    /// Measured profile.
    pub profile: ProcessProfile,
    /// Cost of measuring beyond the counts in the profile.
    pub cost: Cost,
    /// Description of what the rank's spool lacks, as the end of a sentence; `None` if the spool is
    /// complete.
    pub spool_trouble: Option<String>,
}

/// Cost of measuring a rank, outside of its threads.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Cost {
    /// CPU time of the collector thread, in nanoseconds; 0 except on the rank that hosts it.
    pub collector_cpu_ns: u64,
    /// Part of `collector_cpu_ns` in which functions, loops and lines were looked up, and the part
    /// of that after the end of the run, in nanoseconds.
    #[serde(default)]
    pub structure_cpu_ns: (u64, u64),
    /// Number of sample bytes spooled to disk.
    pub spool_bytes: u64,
    /// Memory used for the rank, in bytes; `None` if unknown.
    pub memory_bytes: Option<u64>,
    /// Memory of the collecting process by use; `None` except on the rank that hosts the collector.
    #[serde(default)]
    pub memory: Option<Memory>,
}

/// Facts about the job that do not come from its ranks. Those of process 0 count.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct JobInfo {
    /// Path of the executable.
    pub executable: String,
    /// Arguments of the executable.
    pub arguments: Vec<String>,
    /// Job id; `None` if unknown.
    pub job: Option<String>,
    /// Begin of the run, as RFC 3339.
    pub started: String,
    /// MPI library.
    pub mpi: Mpi,
    /// Ranks in MPI_COMM_WORLD, measured or not; `None` without MPI and in earlier spools.
    #[serde(default)]
    pub world_ranks: Option<u32>,
    /// Whether the run reached its end and all ranks contribute.
    pub complete: bool,
    /// Reason why the run is incomplete, as the end of a sentence; `None` if `ended` gives it or
    /// the run is complete.
    #[serde(default)]
    pub incomplete: Option<String>,
    /// Way in which the run ended.
    pub ended: String,
    /// First rank that ended early while others went on; the run is analysed up to that time.
    #[serde(default)]
    pub death: Option<FirstDeath>,
    /// Settings that the summary lists.
    pub settings: BTreeMap<String, String>,
    /// The user's label rules.
    #[serde(default)]
    pub rules: Rules,
    /// Ranks that were chosen at random to keep their samples, if these are the only ranks; `None`
    /// while the spool holds all ranks.
    #[serde(default)]
    pub population: Option<Population>,
    /// Sentences about the limits of this measurement.
    pub notes: Vec<String>,
}

/// Value of [`JobInfo::ended`] of a run that ended in MPI_Finalize.
pub const FINALIZED: &str = "finalize";

impl JobInfo {
    /// Returns whether ranks were cut off before their regular end. Ranks that are not compared,
    /// since others are missing, may have reached it.
    pub fn is_broken_off(&self) -> bool {
        !self.complete && self.ended != FINALIZED
    }
}

/// Minimum time (ns) by which other ranks must outlive the first that died for the summary to
/// mention the death.
pub const MIN_OUTLIVED_NS: u64 = 100_000_000;

/// A rank that ended early, while others went on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirstDeath {
    /// Rank that ended.
    pub rank: u32,
    /// Time of its end since the begin of its run, in nanoseconds.
    pub at_ns: u64,
}

/// Facts about a rank's clock besides its readings.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankClock {
    /// Identity of the clock: ranks of one host with the same text read the same clock. Empty if
    /// unknown.
    pub id: String,
    /// Clock offsets measured by messages at the begin and, if reached, at the end of the run.
    pub exchanges: Vec<Exchange>,
}

/// Offset of this process's clock from that of process 0 at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Exchange {
    /// Time on process 0's clock, in nanoseconds.
    pub at_ns: i64,
    /// Time by which this process's clock was ahead, in nanoseconds.
    pub ahead_ns: i64,
    /// Maximum error of `ahead_ns`, in nanoseconds: half the travel time of the messages used.
    pub error_ns: u64,
}
