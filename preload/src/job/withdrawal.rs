//! A process that withdraws from its job while it runs, since it forbids itself what measuring needs.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use plimsoll_analysis::communicator::Communicator;
use plimsoll_analysis::mpi::MpiCommunicator;
use plimsoll_analysis::mpi::joint::jointly;

use super::finalize::Leaving;
use super::{Job, get};
use crate::{ending, loading, threads};

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

impl Job {
    /// MPI_Finalize of a process that has withdrawn. The others wait for it: it comes to where they meet,
    /// and says that it has nothing. Makes no system calls but those that MPI makes.
    pub(super) fn finalize_withdrawn(&self) {
        let Some(Leaving { together: Some(together), .. }) = self.leave() else { return };
        MpiCommunicator::wait_busily();
        let met = together.world.barrier().and_then(|()| together.node.barrier());
        if met.is_ok() && together.holds && together.holders.size() > 1 {
            let nothing = || Err::<(), String>(String::from("it has set a seccomp filter"));
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
