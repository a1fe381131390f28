//! What a spool says of a process beside its records: facts, as JSON.
//!
//! A process's facts travel in a stream of their own, which ends with its last [`Status`]. What a
//! thread or the process knows only in the end is in every status, so that after a sudden death the
//! last one that was written stands in for it.

use serde::{Deserialize, Serialize};

use crate::history::{Facts, LastWords};
use crate::tables::ModuleInfo;

/// A fact of a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) enum Fact {
    /// Modules that are new in its table, in their order.
    Modules(Vec<ModuleInfo>),
    /// A thread whose records follow.
    Thread(ThreadFact),
    /// How it stands.
    Status(Status),
}

/// A thread, when it is first read.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ThreadFact {
    /// Number of the stream that its records are in.
    pub(crate) stream: u32,
    /// Address id of its start routine.
    pub(crate) routine: u32,
    /// Stamp from which its time counts; without it, its first record's.
    pub(crate) born: Option<u64>,
}

/// How a process stands.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Status {
    /// Stamp of the begin of its run.
    pub(crate) begin: u64,
    /// Stamp of its end, or what the end would be if nothing more came.
    pub(crate) end: u64,
    /// The run is over: nothing more comes.
    pub(crate) whole: bool,
    /// Stream of the communicating thread.
    pub(crate) main: Option<u32>,
    /// Sampling period in stamps.
    pub(crate) period: u64,
    /// Nanoseconds per 2^32 ticks, as the process measured it at its start.
    pub(crate) coarse_rate: u64,
    /// What it knows of itself.
    pub(crate) facts: Facts,
    /// Records lost on the way here, and bytes of records read.
    pub(crate) lost: u64,
    pub(crate) record_bytes: u64,
    /// Its threads.
    pub(crate) threads: Vec<ThreadStatus>,
}

/// How a thread stands.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ThreadStatus {
    /// The stream that its records are in.
    pub(crate) stream: u32,
    /// Stamp at which it ended.
    pub(crate) ended: Option<u64>,
    /// What it knew beside its records.
    pub(crate) last: LastWords,
}
