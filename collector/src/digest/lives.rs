//! The processes of a spool: how long each of them lived, and how long its run counts.

use std::io::{Read, Seek};

use super::Digest;
use super::recorded::Process;

/// A process in a spool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpooledProcess {
    /// Its number, in the order in which processes were attached.
    pub number: u32,
    /// Process id.
    pub pid: u32,
    /// It came to its end while it was collected.
    pub ended: bool,
    /// It died, or ended before its time, while others of its node were collected.
    pub died: bool,
    /// Its end; if that is not known, when it was last read.
    pub last: Moment,
}

/// A moment in the run of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    /// Time since the begin of the run, in nanoseconds.
    pub at_ns: u64,
    /// The counter, which is the same one for all processes of a spool.
    pub stamp: u64,
}

impl<R: Read + Seek> Digest<R> {
    /// Its processes.
    pub fn processes(&self) -> Vec<SpooledProcess> {
        self.processes.iter().filter_map(|(number, process)| process.describe(*number)).collect()
    }

    /// The run of a process ends at this moment of another process of the spool, which died, at the
    /// latest.
    pub fn end_at(&mut self, number: u32, stamp: u64) {
        if let Some(process) = self.processes.get_mut(&number) {
            process.cut = Some(stamp);
        }
    }

    /// The run of a process ends so many nanoseconds after its begin at the latest.
    pub fn end_after(&mut self, number: u32, at_ns: u64) {
        let Some(process) = self.processes.get_mut(&number) else { return };
        if let Some(status) = &process.status {
            let length = status.facts.rate.stamps(at_ns);
            process.cut = Some(status.begin.saturating_add(length));
        }
    }
}

impl Process {
    /// `None` if the state of the process is lost.
    fn describe(&self, number: u32) -> Option<SpooledProcess> {
        let (meta, status) = (self.meta.as_ref()?, self.status.as_ref()?);
        let stamp = status.end.or(status.died).unwrap_or(status.read);
        let at_ns = status.facts.rate.ns(stamp.saturating_sub(status.begin));
        Some(SpooledProcess {
            number,
            pid: meta.pid,
            ended: status.end.is_some(),
            died: status.died.is_some(),
            last: Moment { at_ns, stamp },
        })
    }
}
