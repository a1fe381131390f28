//! First death among the processes of a node; it ends the run for all of them.
//!
//! After a death, the other processes wait for a process that never comes. This wait time is no
//! loss of the program, so it is not counted. All processes of a node read the same counter, so
//! their stamps are comparable.

use std::collections::BTreeMap;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use plimsoll_wire::clock_anchor::stamp_now;

use crate::collected_process::{Process, is_alive};
use crate::collector::ProcessKey;

/// Interval between checks whether all processes are alive. Shorter than the usual interval between
/// drains: the records of survivors are not charged before a death is noticed.
const LIVENESS_INTERVAL: Duration = Duration::from_millis(20);

/// Process of a node that died or ended prematurely, before the other processes did.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Death {
    /// Key of the process.
    pub key: ProcessKey,
    /// Time from the begin of its run to its death, in nanoseconds.
    pub at_ns: u64,
    /// Longest time that another process of the node lived on, in nanoseconds.
    pub outlived_ns: u64,
}

/// Schedule of checks whether all processes are alive.
#[derive(Default)]
pub(crate) struct LivenessChecks {
    last: Option<Instant>,
}

impl LivenessChecks {
    pub(crate) fn is_due(&mut self, now: Instant) -> bool {
        let is_due = self.last.is_none_or(|last| now.duration_since(last) >= LIVENESS_INTERVAL);
        if is_due {
            self.last = Some(now);
        }
        is_due
    }
}

/// Checks whether all processes are alive. The first death ends the run of all processes and is
/// returned; `None` if there was none.
pub(crate) fn end_at_first(processes: &mut BTreeMap<ProcessKey, Process>) -> Option<Death> {
    if processes.len() < 2 {
        return None;
    }
    processes.values_mut().for_each(Process::check_liveness);
    let deaths = processes.iter().filter_map(|(key, process)| Some((process.died?, *key)));
    let (stamp, key) = deaths.min()?;
    let mut outlived = 0;
    for process in processes.values_mut() {
        outlived = outlived.max(process.last_known().saturating_sub(stamp));
        process.end_at(stamp);
    }
    let process = &processes[&key];
    let at_ns = process.ns(stamp.saturating_sub(process.history.begin()));
    Some(Death { key, at_ns, outlived_ns: process.ns(outlived) })
}

impl Process {
    /// Records the death of the process, if it has died or announced a premature end.
    fn check_liveness(&mut self) {
        let now = stamp_now();
        let end = self.segment.process().end_stamp.load(Ordering::Acquire);
        if self.died.is_some() {
        } else if self.ending().is_some() {
            self.died = Some(if end == 0 { now } else { end });
        } else if end != 0 || has_memory(self.pid) || is_alive(self.pid, self.start_time) {
            self.seen_alive = now;
        } else {
            self.died = Some(self.last_sign().max(self.seen_alive));
        }
    }

    /// Ends the run at a stamp, also for this process. Time charged before the death was known
    /// stays in the run.
    fn end_at(&mut self, stamp: u64) {
        let end = stamp.max(self.booked()).min(self.cut.unwrap_or(u64::MAX));
        self.cut = Some(end);
    }

    /// Returns the last stamp at which the process is known to have been alive.
    fn last_known(&self) -> u64 {
        match self.segment.process().end_stamp.load(Ordering::Acquire) {
            0 => self.died.unwrap_or(self.seen_alive),
            end => end,
        }
    }
}

/// Returns whether a process has memory: a zombie has none. A process that may not be inspected is
/// taken for alive. Opens no descriptor, which the application could notice.
fn has_memory(pid: u32) -> bool {
    let mut byte = 0u8;
    let local = libc::iovec { iov_base: (&raw mut byte).cast(), iov_len: 1 };
    // Address 0 holds no byte: only the kind of error matters.
    let remote = libc::iovec { iov_base: std::ptr::null_mut(), iov_len: 1 };
    // SAFETY: both vectors are valid for the call, and the local one refers to a byte of ours.
    let read = unsafe { libc::process_vm_readv(pid as libc::pid_t, &local, 1, &remote, 1, 0) };
    read >= 0 || std::io::Error::last_os_error().raw_os_error() != Some(libc::ESRCH)
}
