//! Metadata of processes and threads outside their record streams: values of frames of
//! [`plimsoll_spool::Kind::Meta`].

use plimsoll_calls::CallId;
use serde::{Deserialize, Serialize};

use crate::address_table::{Detail, Role};
use crate::process_info::{FinalThreadState, ProcessInfo};
use crate::profile::{Aggregation, Frame};

/// Stream of the values that a collector writes.
pub(crate) const STREAM: u32 = 0;

/// A value that a collector writes.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Meta {
    /// Round marker in a spool: everything before is from rounds up to this one, and these rounds
    /// are complete.
    Round(u32),
    /// First value of a journal.
    Journal {
        /// Round of all values that follow.
        round: u32,
        /// Streams of the live threads, with the number of their next frame in the spool: the
        /// journal's records continue the frames before it.
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
    ThreadEnd(Box<ThreadEnd>),
    /// States of processes when this value was written.
    Statuses(Vec<Status>),
    /// Note of the collector's user; the last note replaces earlier ones.
    Note(serde_json::Value),
}

impl Meta {
    /// Returns the number of items of a table, and 1 for other values.
    pub(crate) fn items(&self) -> usize {
        match self {
            Self::Modules(items) => items.len(),
            Self::Names(items) => items.len(),
            Self::Functions(items) => items.len(),
            Self::Calls(items) => items.len(),
            _ => 1,
        }
    }

    /// Splits a table into its second and its first half. Returns any other value as it is.
    pub(crate) fn halves(self) -> Vec<Self> {
        fn halves<T>(mut items: Vec<T>, table: fn(Vec<T>) -> Meta) -> Vec<Meta> {
            let second = items.split_off(items.len() / 2);
            vec![table(second), table(items)]
        }
        match self {
            Self::Modules(items) => halves(items, Self::Modules),
            Self::Names(items) => halves(items, Self::Names),
            Self::Functions(items) => halves(items, Self::Functions),
            Self::Calls(items) => halves(items, Self::Calls),
            other => vec![other],
        }
    }
}

/// A process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ProcessMeta {
    /// Number of the process in the spool, and of the stream of its addresses.
    pub(crate) process: u32,
    /// Process id.
    pub(crate) pid: u32,
    /// Start of the process in clock ticks since boot.
    pub(crate) start_time: u64,
    /// Maximum memory for its history, in bytes.
    pub(crate) memory_bytes: u64,
    /// Aggregation of its threads. Missing in spools of earlier builds.
    #[serde(default)]
    pub(crate) aggregation: Aggregation,
}

/// A loaded module, as in [`plimsoll_wire::segment::ModuleEntry`].
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ModuleMeta {
    /// Process of the table.
    pub(crate) process: u32,
    /// Index in the process's module table.
    pub(crate) index: u32,
    /// Load bias: runtime address minus address in the file.
    pub(crate) bias: u64,
    /// GNU build-id.
    pub(crate) build_id: Vec<u8>,
    /// Path as the loader knows it; bytes that are not UTF-8 are replaced.
    pub(crate) path: String,
}

/// The name of an address. Recorded because the module's file may differ or be missing where the
/// spool is read.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct NameMeta {
    /// Process of the address.
    pub(crate) process: u32,
    /// Id of the address in that process.
    pub(crate) id: u32,
    /// The address in its module's file.
    pub(crate) offset: u64,
    /// Role of the address in stacks.
    pub(crate) role: Role,
    /// Detail that was looked up. The address may be recorded again with more detail.
    pub(crate) detail: Detail,
    /// Frame of the address.
    pub(crate) frame: Frame,
    /// Loops and inlined calls between `frame` and the address, outermost first.
    pub(crate) steps: Vec<Frame>,
    /// Source file and line of a function, for the address at which it begins.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) begin: Option<(String, u32)>,
    /// Source file and line of the call that returns to the address. Missing in spools of earlier
    /// builds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub(crate) call_line: Option<(String, u32)>,
}

/// A function. Recorded because its code may be missing where the spool is read, and once for all
/// processes with the same module.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct FunctionMeta {
    /// First process with the function in its stacks.
    pub(crate) process: u32,
    /// Number of its module in that process, as in the addresses.
    pub(crate) module: u32,
    /// Name of the function; `None` without a symbol.
    pub(crate) name: Option<String>,
    /// A [`plimsoll_binary::Recovered`] in postcard encoding: JSON would take several times the
    /// space for its numbers.
    pub(crate) code: Vec<u8>,
}

/// A thread.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ThreadMeta {
    /// Process of the thread.
    pub(crate) process: u32,
    /// Stream of its records.
    pub(crate) records: u32,
    /// Address id of its start routine; 0 if unknown.
    pub(crate) routine: u32,
    /// Name of the call path that created it; 0 if unknown. Missing in spools of earlier builds.
    #[serde(default)]
    pub(crate) origin: u64,
    /// Stamp from which its time counts; `None` for its first record.
    pub(crate) born: Option<u64>,
}

/// The end of a thread.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct ThreadEnd {
    /// Stream of its records.
    pub(crate) records: u32,
    /// Stamp of the end of the thread or of its process.
    pub(crate) end: u64,
    /// Counters that are not part of its stream.
    pub(crate) last: FinalThreadState,
}

/// The state of a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Status {
    /// The process.
    pub(crate) process: u32,
    /// Stamp at which the observed run begins.
    pub(crate) begin: u64,
    /// Stamp at which the run ended; `None` while it lasts.
    pub(crate) end: Option<u64>,
    /// Stamp of its death, if it died or ended before the others did. Missing in spools of earlier
    /// builds.
    #[serde(default)]
    pub(crate) died: Option<u64>,
    /// Stamp up to which its rings were drained.
    pub(crate) read: u64,
    /// Stream of the communicating thread.
    pub(crate) main: Option<u32>,
    /// Sampling period in stamps: the interval between ticks.
    pub(crate) period_stamps: u64,
    /// Sampling period in stamps that its timers could keep. Missing in spools of earlier builds.
    #[serde(default)]
    pub(crate) kept_period_stamps: u64,
    /// Length of a stamp as the process measured it: nanoseconds per 2^32 ticks.
    pub(crate) ns_per_ticks_q32: u64,
    /// Settings and state that the process reports in its segment.
    #[serde(rename = "facts")]
    pub(crate) info: ProcessInfo,
    /// Set if its temporal context tree is built.
    pub(crate) follows: bool,
    /// Number of threads that lived in the run.
    pub(crate) threads: u32,
    /// Number of times that records could not be decoded.
    pub(crate) unread: u64,
    /// Number of bytes of records read.
    pub(crate) record_bytes: u64,
    /// Counters of the live threads, with the stream of their records.
    pub(crate) living: Vec<(u32, FinalThreadState)>,
}
