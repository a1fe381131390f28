//! OpenMP of a process: its parallel regions by the call path that makes them, as the analysis
//! reads them.
//!
//! Each thread of a team executes one *share* of a region. The work of a thread is the duration of
//! its share without the waits inside it. A thread is idle in the rest of the region: before its
//! share begins, in waits, and after its share has ended.

use serde::{Deserialize, Serialize};

use crate::length_distribution::LengthDistribution;
use crate::profile::NodeId;

/// OpenMP of a process over the whole run. Times are in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenMpProfile {
    /// Name of the runtime, such as `libgomp`; `None` if no region was measured.
    pub runtime: Option<String>,
    /// Parallel regions by node, each pair of `node` and `is_main` once.
    pub regions: Vec<RegionProfile>,
    /// Explicit tasks by function, each function once.
    pub tasks: Vec<TaskProfile>,
    /// Waits for locks by waiting call and holder, each pair once.
    pub lock_waits: Vec<LockWaitProfile>,
    /// Number of region instances that could not be measured.
    pub unmeasured: u64,
}

/// All instances of a parallel region in one calling context.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RegionProfile {
    /// Context of the call that makes the region. The time of this context is the wait of the
    /// primary thread for the end of the others' shares.
    pub node: NodeId,
    /// Context of the outlined function, a sibling of `node`, and the outermost one inside the
    /// region; `None` if no sample fell into the region.
    pub function: Option<NodeId>,
    /// Name of the outlined function; `None` if unknown.
    pub name: Option<String>,
    /// Source file in which the region begins; `None` without debug information.
    pub file: Option<String>,
    /// Source line at which the region begins; `None` without debug information.
    pub line: Option<u32>,
    /// Whether the communicating thread makes the region.
    pub is_main: bool,
    /// Number of enclosing regions.
    pub level: u32,
    /// Number of instances.
    pub instances: u64,
    /// Size of the largest team.
    pub threads: u32,
    /// Sum over instances of the wall time between begin and end on the primary thread.
    pub elapsed_ns: u64,
    /// Sum over instances of wall time times threads.
    pub thread_ns: u64,
    /// Sum over instances and threads of work. Includes MPI calls and waits for something outside
    /// of the process, such as a socket.
    pub work_ns: u64,
    /// Sum over instances of the mean work of a thread.
    pub mean_work_ns: u64,
    /// Sum over instances of the largest work of a thread.
    pub max_work_ns: u64,
    /// Sum over instances of the largest work of a thread times threads.
    pub max_thread_ns: u64,
    /// Sum over all threads of waits for other threads and for tasks, inside of shares.
    pub barrier_ns: u64,
    /// Sum over all threads of waits for critical and ordered sections and for locks, inside of
    /// shares.
    pub lock_ns: u64,
    /// Sum over all threads of time in MPI calls, inside of shares. Part of `work_ns`.
    pub mpi_ns: u64,
    /// Shares by thread number, each number once.
    pub shares: Vec<ShareProfile>,
    /// Wall times of the instances.
    pub lengths: LengthDistribution,
}

/// Maximum number of thread numbers that a region tells apart. The last number also stands for all
/// higher ones.
pub const MAX_SHARES: usize = plimsoll_wire::teams::MAX_SHARES;

/// Shares of the threads with one number in their teams, over all instances of a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareProfile {
    /// Number of the thread in its team, less than [`MAX_SHARES`].
    pub number: u32,
    /// Number of shares.
    pub count: u64,
    /// Work.
    pub work_ns: u64,
    /// Waits for other threads and for tasks.
    pub barrier_ns: u64,
    /// Waits for critical and ordered sections and for locks.
    pub lock_ns: u64,
    /// Time in MPI calls. Part of `work_ns`.
    pub mpi_ns: u64,
}

/// Waits for locks in one calling context, while one call path had the lock.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockWaitProfile {
    /// Context of the waiting call.
    pub node: NodeId,
    /// Whether the communicating thread waits.
    pub is_main: bool,
    /// Context of the call that acquired the lock; `None` if unknown.
    pub holder: Option<NodeId>,
    /// Number of waits, each counted for every holder during the wait.
    pub count: u64,
    /// Sum of the wait times while the holder had the lock.
    pub waited_ns: u64,
}

/// Executions of explicit tasks with one function.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskProfile {
    /// Name of the outlined function; `None` if unknown.
    pub name: Option<String>,
    /// Source file in which the task begins; `None` without debug information.
    pub file: Option<String>,
    /// Source line at which the task begins; `None` without debug information.
    pub line: Option<u32>,
    /// Number of executions.
    pub count: u64,
    /// Wall time of all executions, without the tasks executed inside of them.
    pub work_ns: u64,
    /// Longest execution.
    pub longest_ns: u64,
    /// Wall times of the executions, without the tasks executed inside of them.
    pub lengths: LengthDistribution,
}

impl RegionProfile {
    /// Time by which the region would be shorter if all threads had the same work.
    pub fn imbalance_ns(&self) -> u64 {
        self.max_work_ns.saturating_sub(self.mean_work_ns)
    }

    /// Idle time of all threads.
    pub fn idle_ns(&self) -> u64 {
        self.thread_ns.saturating_sub(self.work_ns)
    }

    /// TALP's scheduling loss: the smallest idle time of a thread times the number of threads.
    pub fn scheduling_loss_ns(&self) -> u64 {
        self.thread_ns.saturating_sub(self.max_thread_ns)
    }

    /// Waits for locks, summed over threads, of threads that would only wait for the end of the
    /// region instead: without any locks, the region lasts as long as the thread with most work.
    pub fn lock_slack_ns(&self) -> u64 {
        let gain_ns = self.elapsed_ns.saturating_sub(self.max_work_ns);
        self.lock_ns.saturating_sub(gain_ns.saturating_mul(u64::from(self.threads)))
    }

    /// TALP's load balance loss: the sum over threads of the idle time beyond the smallest one.
    pub fn load_balance_loss_ns(&self) -> u64 {
        self.max_thread_ns.saturating_sub(self.work_ns)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn losses_of_a_region_add_up_to_its_idle_time() {
        // Two instances of 10 with work 8 and 4, and one of 6 with work 3, 3 and 3.
        let region = RegionProfile {
            instances: 3,
            threads: 3,
            elapsed_ns: 26,
            thread_ns: 2 * 20 + 18,
            work_ns: 2 * 12 + 9,
            mean_work_ns: 2 * 6 + 3,
            max_work_ns: 2 * 8 + 3,
            max_thread_ns: 2 * 16 + 9,
            ..RegionProfile::default()
        };
        assert_eq!(region.imbalance_ns(), 4);
        assert_eq!(region.idle_ns(), 2 * (2 + 6) + 9);
        assert_eq!(region.scheduling_loss_ns(), 2 * 2 * 2 + 3 * 3);
        assert_eq!(region.load_balance_loss_ns(), 2 * 4);
        assert_eq!(region.scheduling_loss_ns() + region.load_balance_loss_ns(), region.idle_ns());
    }

    #[test]
    fn a_thread_that_has_nothing_to_do_after_a_lock_loses_nothing_by_it() {
        let region = |max_work_ns, lock_ns| RegionProfile {
            threads: 4,
            elapsed_ns: 100,
            max_work_ns,
            lock_ns,
            ..RegionProfile::default()
        };
        // One thread works all the time, the others wait for it.
        assert_eq!(region(100, 300).lock_slack_ns(), 300);
        // Each of four threads works for 25 while the others wait.
        assert_eq!(region(25, 300).lock_slack_ns(), 0);
        assert_eq!(region(40, 300).lock_slack_ns(), 60);
    }
}
