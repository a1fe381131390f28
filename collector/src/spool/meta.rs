//! What a collector knows of processes and threads beside their records: values of frames of
//! [`super::Kind::Meta`]. A writer takes any other value, too.

use serde::{Deserialize, Serialize};

/// A value that a collector writes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Meta {
    /// A process was attached.
    Process(ProcessMeta),
    /// A process has loaded a module.
    Module(ModuleMeta),
    /// A thread was seen for the first time.
    Thread(ThreadMeta),
    /// What had happened in a process when this was written.
    Status(StatusMeta),
}

/// A process, as in [`plimsoll_agent::segment::Process`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessMeta {
    /// Stream of its addresses.
    pub addresses: u32,
    /// Process id.
    pub pid: u32,
    /// Start of the process in clock ticks since boot.
    pub start_time: u64,
    /// Sampling period in nanoseconds.
    pub period_ns: u64,
    /// Sampling period in stamps: what a tick comes after.
    pub period_stamps: u64,
    /// What drives the samples: "cpu", "timer" or "wall".
    pub clock: String,
    /// Time stamp counter at the anchor.
    pub anchor_ticks: u64,
    /// CLOCK_MONOTONIC at the anchor, in nanoseconds.
    pub anchor_ns: u64,
    /// CLOCK_REALTIME at the anchor, in nanoseconds.
    pub anchor_realtime_ns: u64,
    /// Nanoseconds per 2^32 ticks.
    pub ns_per_ticks_q32: u64,
}

/// A loaded module, as in [`plimsoll_agent::segment::ModuleEntry`].
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ModuleMeta {
    /// Its number, as addresses have it: never 0.
    pub number: u32,
    /// Load bias: runtime address minus address in the file.
    pub bias: u64,
    /// GNU build-id, in hexadecimal digits.
    pub build_id: String,
    /// Path as the loader knows it; what of it is not UTF-8 is replaced.
    pub path: String,
}

/// A thread.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadMeta {
    /// Stream of its records.
    pub records: u32,
    /// Kernel thread id.
    pub tid: u32,
    /// Address id of its start routine; 0 for the initial thread.
    pub start_routine: u32,
    /// It is the thread that communicates.
    pub main: bool,
}

/// The state of a process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusMeta {
    /// Stamp at which the observed run begins.
    pub begin_stamp: u64,
    /// Stamp at which it ends; 0 until then.
    pub end_stamp: u64,
    /// Stamp up to which its rings were read.
    pub read_stamp: u64,
    /// Samples taken.
    pub samples: u64,
    /// Records lost because a ring was full or could not be read.
    pub lost: u64,
    /// Samples that were merged into others, because the spool was halved.
    pub merged_samples: u64,
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files outlive the code that wrote them.
    #[test]
    fn the_json_form_is_this() {
        let thread = ThreadMeta { records: 3, tid: 4, start_routine: 5, main: true };
        let json = r#"{"thread":{"records":3,"tid":4,"start_routine":5,"main":true}}"#;
        assert_eq!(serde_json::to_string(&Meta::Thread(thread.clone())).unwrap(), json);
        assert_eq!(serde_json::from_str::<Meta>(json).unwrap(), Meta::Thread(thread));
    }
}
