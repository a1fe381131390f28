//! Processes of a spool: their lifetimes, and the part of their run that counts.

use std::io::{Read, Seek};

use super::Digest;
use super::recorded::Process;

/// Process in a spool.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpooledProcess {
    /// Process number, in the order of attachment.
    pub number: u32,
    /// Process id.
    pub pid: u32,
    /// Set if the process ended while it was collected.
    pub ended: bool,
    /// Set if the process died or ended prematurely while others of its node were collected.
    pub died: bool,
    /// End of the process; if unknown, the time at which it was last read.
    pub last: Moment,
}

/// Moment in the run of a process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Moment {
    /// Time since the begin of the run, in nanoseconds.
    pub at_ns: u64,
    /// Counter value as a stamp; all processes of a spool share one counter.
    pub stamp: u64,
}

impl<R: Read + Seek> Digest<R> {
    /// Returns the processes of the spool.
    pub fn processes(&self) -> Vec<SpooledProcess> {
        self.processes.iter().filter_map(|(number, process)| process.describe(*number)).collect()
    }

    /// Notes that the job did not reach its regular end: the last instances of phases are phases of
    /// their own in all profiles.
    pub fn break_off(&mut self) {
        self.is_broken_off = true;
    }

    /// Limits the run of a process to `stamp`, at which another process of the spool died.
    pub fn end_at(&mut self, number: u32, stamp: u64) {
        if let Some(process) = self.processes.get_mut(&number) {
            process.cut = Some(stamp);
        }
    }

    /// Limits the run of a process to `at_ns` nanoseconds after its begin.
    pub fn end_after(&mut self, number: u32, at_ns: u64) {
        let Some(process) = self.processes.get_mut(&number) else { return };
        if let Some(status) = &process.status {
            let length = status.info.rate.stamps(at_ns);
            process.cut = Some(status.begin.saturating_add(length));
        }
    }
}

impl Process {
    /// Returns the description of the process; `None` if its state is lost.
    fn describe(&self, number: u32) -> Option<SpooledProcess> {
        let (meta, status) = (self.meta.as_ref()?, self.status.as_ref()?);
        let stamp = status.end.or(status.died).unwrap_or(status.read);
        let at_ns = status.info.rate.ns(stamp.saturating_sub(status.begin));
        Some(SpooledProcess {
            number,
            pid: meta.pid,
            ended: status.end.is_some(),
            died: status.died.is_some(),
            last: Moment { at_ns, stamp },
        })
    }
}
