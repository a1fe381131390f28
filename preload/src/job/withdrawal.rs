//! Withdrawal of a process from its job during the run: the process forbids itself system calls
//! that measuring needs, or has no memory left.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use plimsoll_agent::observed_process;
use plimsoll_comm::communicator::Communicator;
use plimsoll_comm::mpi::MpiCommunicator;
use plimsoll_comm::mpi::joint::jointly;

use super::finalize::Leaving;
use super::{Job, get};
use crate::{heap, loading, log, own_threads, termination};

/// Job from which this process has withdrawn; null otherwise.
static WITHDRAWN: AtomicPtr<Job> = AtomicPtr::new(null_mut());

/// Returns the job from which this process has withdrawn; `None` otherwise.
pub(super) fn withdrawn() -> Option<&'static Job> {
    // SAFETY: set from a leaked box, never freed.
    unsafe { WITHDRAWN.load(Ordering::Acquire).as_ref() }
}

/// Ends Plimsoll's threads in this process, after its report is written. The collective steps that
/// the other ranks expect in MPI_Finalize remain to be done.
pub fn withdraw() {
    let Some(job) = get() else { return };
    job.stop_collector();
    termination::finished();
    loading::wake();
    let helper = job.state.lock().helper.take();
    if let Some(helper) = helper {
        own_threads::join(helper);
    }
    WITHDRAWN.store(std::ptr::from_ref(job).cast_mut(), Ordering::Release);
}

/// Resets the state in a forked child, since the job belongs to the parent.
pub(super) fn forget_in_child() {
    WITHDRAWN.store(null_mut(), Ordering::Relaxed);
}

/// Message printed once when memory has run out. Printing it allocates nothing.
const EXHAUSTED: &str = "plimsoll: the program has little or no address space left (`ulimit -v`, \
    or its memory is used up): nothing more is measured, and this process writes no report. \
    `plimsoll digest` makes one of what is on disk by now.\n";

/// Prints once that memory has run out, and stops measuring this process.
pub(super) fn tell_exhausted() {
    static REPORTED: AtomicBool = AtomicBool::new(false);
    if REPORTED.swap(true, Ordering::Relaxed) {
        return;
    }
    log::block(EXHAUSTED);
    if let Some(observed) = observed_process::current() {
        observed.break_off();
    }
}

/// Handles the end of a thread of Plimsoll that ends because memory has run out. Allocates nothing
/// and takes no lock.
pub fn abandon() {
    if let Some(job) = get() {
        job.collector.abandon();
    }
    termination::finished();
    tell_exhausted();
}

impl Job {
    /// Withdraws from the job if too little memory is left to evaluate anything. Returns whether it
    /// did.
    pub(super) fn withdraws_for_memory(&self) -> bool {
        let holds = self.state.lock().holds();
        if !(heap::is_exhausted() || holds && !heap::has_room()) {
            return false;
        }
        tell_exhausted();
        withdraw();
        true
    }

    /// MPI_Finalize of a process that has withdrawn. The other ranks wait for this one, so it takes
    /// part in their collectives and contributes nothing. Makes no system calls except those that
    /// MPI makes.
    pub(super) fn finalize_withdrawn(&self) {
        let Some(Leaving { together: Some(together), .. }) = self.leave() else { return };
        if !heap::is_exhausted() {
            MpiCommunicator::wait_busily();
        }
        let met = together.world.barrier().and_then(|()| together.node.barrier());
        if met.is_ok() && together.holds && together.holders.size() > 1 {
            let reason = match termination::forbidden() {
                Some(forbidden) if !heap::is_exhausted() => format!("it restricts its {forbidden}"),
                _ => String::from("its memory is used up"),
            };
            let nothing = || Err::<(), String>(reason.clone());
            // Once for the exchange of clocks, once for the reduction of profiles.
            for _ in 0..2 {
                let _ = jointly(&together.holders, &[], nothing);
            }
        }
        for communicator in [together.holders, together.node, together.world] {
            communicator.free();
        }
    }
}
