//! What a collector knows of processes and threads beside their records: values of frames of
//! [`plimsoll_spool::Kind::Meta`].

use plimsoll_calls::CallId;
use serde::{Deserialize, Serialize};

use crate::addresses::{Detail, Role};
use crate::facts::{Facts, LastWords};
use crate::profile::Frame;

/// Stream of the values that a collector writes.
pub(crate) const STREAM: u32 = 0;

/// A value that a collector writes.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Meta {
    /// Of a spool: all before is of rounds up to this one, and all of these is there.
    Round(u32),
    /// Of a journal, first.
    Journal {
        /// What follows is of this round.
        round: u32,
        /// Streams of the threads that live, with the number of their next frame in the spool: those
        /// before are what the journal's records go on from.
        next: Vec<(u32, u32)>,
    },
    /// A process was attached.
    Process(ProcessMeta),
    /// Processes have loaded modules.
    Modules(Vec<ModuleMeta>),
    /// Addresses got names.
    Names(Vec<NameMeta>),
    /// Functions of modules were recovered from their code.
    Functions(Vec<FunctionMeta>),
    /// Wrapped calls that occur, as addresses have them, with their names: another build may number
    /// them differently.
    Calls(Vec<(CallId, String)>),
    /// A thread was seen for the first time.
    Thread(ThreadMeta),
    /// A thread has ended, or its process has.
    ThreadEnd(ThreadEnd),
    /// What had happened in processes when this was written.
    Statuses(Vec<Status>),
    /// What those say for whom processes are collected; the last one counts.
    Note(serde_json::Value),
}

/// A process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ProcessMeta {
    /// Its number, and the stream of its addresses.
    pub(crate) process: u32,
    /// Process id.
    pub(crate) pid: u32,
    /// Start of the process in clock ticks since boot.
    pub(crate) start_time: u64,
    /// Bound on the memory for its history.
    pub(crate) memory_bytes: u64,
}

/// A loaded module, as in [`plimsoll_wire::segment::ModuleEntry`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ModuleMeta {
    /// Its process.
    pub(crate) process: u32,
    /// Its place in the table of modules.
    pub(crate) index: u32,
    /// Load bias: runtime address minus address in the file.
    pub(crate) bias: u64,
    /// GNU build-id.
    pub(crate) build_id: Vec<u8>,
    /// Path as the loader knows it; what of it is not UTF-8 is replaced.
    pub(crate) path: String,
}

/// The name of an address: its module's file may be another one, or none, where the spool is read.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct NameMeta {
    /// Its process.
    pub(crate) process: u32,
    /// Its id.
    pub(crate) id: u32,
    /// The address in its module's file.
    pub(crate) offset: u64,
    /// Where it stands in stacks.
    pub(crate) role: Role,
    /// How much of it was looked up; it may be told again when that is more.
    pub(crate) detail: Detail,
    /// What it stands for.
    pub(crate) frame: Frame,
    /// Loops and inlined calls between that and the address, outermost first.
    pub(crate) steps: Vec<Frame>,
}

/// A function: its code may not be there where the spool is read. Processes that have its module in common
/// have it from one of them.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FunctionMeta {
    /// The process that came through it first.
    pub(crate) process: u32,
    /// The number of its module there, as addresses have it.
    pub(crate) module: u32,
    /// Its name, if it has a symbol.
    pub(crate) name: Option<String>,
    /// A [`plimsoll_binary::Recovered`], by postcard: numbers of a known layout, which JSON would make
    /// several times as long.
    pub(crate) code: Vec<u8>,
}

/// A thread.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ThreadMeta {
    /// Its process.
    pub(crate) process: u32,
    /// Stream of its records.
    pub(crate) records: u32,
    /// Address id of its start routine; 0 if that is not known.
    pub(crate) routine: u32,
    /// Since when its time counts, if that is not its first record.
    pub(crate) born: Option<u64>,
}

/// The end of a thread.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ThreadEnd {
    /// Stream of its records.
    pub(crate) records: u32,
    /// Stamp of its end, or its process's.
    pub(crate) end: u64,
    /// What no record of it tells.
    pub(crate) last: LastWords,
}

/// The state of a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Status {
    /// The process.
    pub(crate) process: u32,
    /// Stamp at which the observed run begins.
    pub(crate) begin: u64,
    /// Stamp at which it ends, if it has.
    pub(crate) end: Option<u64>,
    /// Stamp of its death, if it died or ended before the others did. Spools of earlier builds do not
    /// tell it.
    #[serde(default)]
    pub(crate) died: Option<u64>,
    /// Stamp up to which its rings were read.
    pub(crate) read: u64,
    /// Stream of the communicating thread.
    pub(crate) main: Option<u32>,
    /// Sampling period in stamps: what a tick comes after.
    pub(crate) period_stamps: u64,
    /// The one that its timers could keep. Spools of earlier builds do not tell it.
    #[serde(default)]
    pub(crate) kept_period_stamps: u64,
    /// Length of a stamp as the process measured it: nanoseconds per 2^32 ticks.
    pub(crate) ns_per_ticks_q32: u64,
    /// What it knows of itself.
    pub(crate) facts: Facts,
    /// Its course is followed.
    pub(crate) follows: bool,
    /// Threads that lived in the run.
    pub(crate) threads: u32,
    /// Times that records could not be read.
    pub(crate) unread: u64,
    /// Bytes of records read.
    pub(crate) record_bytes: u64,
    /// Of the threads that live, by the stream of their records.
    pub(crate) living: Vec<(u32, LastWords)>,
}
