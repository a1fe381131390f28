//! What a diagnosis is made from: what the collectors hand on of ranks, and what is known of the job without
//! them.

use std::collections::BTreeMap;

use plimsoll_collector::profile::ProcessProfile;
use serde::{Deserialize, Serialize};

use crate::rules::Rules;
use crate::summary::{Memory, Mpi};

/// One rank, as the collector of its node hands it on.
#[derive(Clone, Debug)]
pub struct RankInput {
    /// Rank in the job; 0 without MPI.
    pub rank: u32,
    /// Name of its node.
    pub host: String,
    /// Numbers of the cores on which it may run.
    pub cores: Vec<u32>,
    /// Its node's clock.
    pub clock: RankClock,
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
    /// Memory used for the rank, where it is known.
    pub memory_bytes: Option<u64>,
    /// Where the memory of the process that collects it went; on the rank that hosts it.
    #[serde(default)]
    pub memory: Option<Memory>,
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
    /// Why it is not complete, as the end of a sentence, where how it ended does not tell.
    #[serde(default)]
    pub incomplete: Option<String>,
    /// How it ended.
    pub ended: String,
    /// The first rank that ended before its time, if others went on: the run is counted up to then.
    #[serde(default)]
    pub death: Option<FirstDeath>,
    /// Settings worth telling.
    pub settings: BTreeMap<String, String>,
    /// The user's rules of labels.
    #[serde(default)]
    pub rules: Rules,
    /// Sentences about what the measurement could not do.
    pub notes: Vec<String>,
}

/// How long other ranks must have outlived the first that died for the summary to say so.
pub const MIN_OUTLIVED_NS: u64 = 100_000_000;

/// A rank that ended before its time, while others went on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct FirstDeath {
    /// The rank.
    pub rank: u32,
    /// Since the begin of its run, in nanoseconds.
    pub at_ns: u64,
}

/// What is known of a rank's clock beside what it showed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RankClock {
    /// Ranks of one host with the same text read the same clock; nothing is known if it is empty.
    pub id: String,
    /// What messages told of it: at the begin of the run and at its end, as far as it came.
    pub exchanges: Vec<Exchange>,
}

/// How the clock of this process stood to that of process 0 at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Exchange {
    /// The moment, on process 0's clock, in nanoseconds.
    pub at_ns: i64,
    /// By how much this process's clock was ahead, in nanoseconds.
    pub ahead_ns: i64,
    /// By how much that may be wrong: half the ways of the messages that tell it.
    pub error_ns: u64,
}
