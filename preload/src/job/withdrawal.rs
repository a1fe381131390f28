//! A process that withdraws from its job while it runs, since it forbids itself what measuring needs, or has no
//! memory left for it.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};

use plimsoll_agent::process;
use plimsoll_comm::communicator::Communicator;
use plimsoll_comm::mpi::MpiCommunicator;
use plimsoll_comm::mpi::joint::jointly;

use super::finalize::Leaving;
use super::{Job, get};
use crate::{ending, heap, loading, say, threads};

/// The job of a process that has withdrawn from it.
static WITHDRAWN: AtomicPtr<Job> = AtomicPtr::new(null_mut());

/// That job, if this is such a process.
pub(super) fn withdrawn() -> Option<&'static Job> {
    // SAFETY: set from a leaked box, never freed.
    unsafe { WITHDRAWN.load(Ordering::Acquire).as_ref() }
}

/// Ends our threads in this process, after its report. What it owes the other ranks in MPI_Finalize
/// remains.
pub fn withdraw() {
    let Some(job) = get() else { return };
    job.stop_collector();
    ending::finished();
    loading::wake();
    let house = job.state.lock().keeping_house.take();
    if let Some(house) = house {
        threads::join(house);
    }
    WITHDRAWN.store(std::ptr::from_ref(job).cast_mut(), Ordering::Release);
}

/// In a forked child: the job is the parent's.
pub(super) fn forget_in_child() {
    WITHDRAWN.store(null_mut(), Ordering::Relaxed);
}

/// What is said once where memory has run out. Said without any.
const EXHAUSTED: &str = "plimsoll: the program has little or no address space left (`ulimit -v`, or its memory is used up): \
    nothing more is measured, and this process writes no report. `plimsoll digest` makes one of what is on disk \
    by now.\n";

/// Says that memory has run out, once, and measures this process no more.
pub(super) fn tell_exhausted() {
    static TOLD: AtomicBool = AtomicBool::new(false);
    if TOLD.swap(true, Ordering::Relaxed) {
        return;
    }
    say::block(EXHAUSTED);
    if let Some(observed) = process::current() {
        observed.break_off();
    }
}

/// A thread of ours ends where it is, since memory has run out. Allocates nothing, and takes no lock.
pub fn abandon() {
    if let Some(job) = get() {
        job.collector.abandon();
    }
    ending::finished();
    tell_exhausted();
}

impl Job {
    /// Whether there is too little memory to evaluate anything. Then this process withdraws.
    pub(super) fn withdraws_for_memory(&self) -> bool {
        let holds = self.state.lock().holds();
        if !(heap::is_exhausted() || holds && !heap::has_room()) {
            return false;
        }
        tell_exhausted();
        withdraw();
        true
    }

    /// MPI_Finalize of a process that has withdrawn. The others wait for it: it comes to where they meet,
    /// and says that it has nothing. Makes no system calls but those that MPI makes.
    pub(super) fn finalize_withdrawn(&self) {
        let Some(Leaving { together: Some(together), .. }) = self.leave() else { return };
        if !heap::is_exhausted() {
            MpiCommunicator::wait_busily();
        }
        let met = together.world.barrier().and_then(|()| together.node.barrier());
        if met.is_ok() && together.holds && together.holders.size() > 1 {
            let reason = if heap::is_exhausted() {
                "its memory is used up"
            } else {
                "it has set a seccomp filter"
            };
            let nothing = || Err::<(), String>(reason.to_owned());
            // Where they compare their clocks, and where they bring their profiles together.
            for _ in 0..2 {
                let _ = jointly(&together.holders, &[], nothing);
            }
        }
        for communicator in [together.holders, together.node, together.world] {
            communicator.free();
        }
    }
}
