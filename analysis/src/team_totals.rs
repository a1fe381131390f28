//! Teams of threads (OpenMP) over ranks: efficiencies and work outside of regions.

use std::collections::BTreeMap;

use plimsoll_collector::profile::NodeId;
use serde::{Deserialize, Serialize};

use crate::job_totals::JobTotals;
use crate::map_merge::{merge, moved};
use crate::metrics::Accumulator;
use crate::rank::Rank;
use crate::summary::OpenMpEfficiency;
use crate::team_times::{TeamTimes, created_tasks, imbalance_ns};
use crate::thresholds::{MAX_FINE_TASK_NS, MIN_PARALLEL_FRACTION};

/// Teams of some ranks; times in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TeamTotals {
    /// Number of threads of the largest team.
    pub threads: u32,
    /// Wall time of outermost regions; one value for each rank with teams.
    pub elapsed: Accumulator,
    /// Run time that each rank would save if its team did the work outside of regions.
    pub serial_gain: Accumulator,
    /// Work outside of regions by responsible context.
    pub serial: BTreeMap<NodeId, SerialWork>,
    /// Context of the outlined function of each region, by the context of the call that makes the
    /// region.
    pub functions: BTreeMap<NodeId, NodeId>,
    /// Idle time of a thread in each region, over ranks, by the context of the call that makes it.
    pub idle: BTreeMap<NodeId, Accumulator>,
    /// Imbalance of each region without MPI, over ranks, by the context of the call that makes it.
    pub imbalance: BTreeMap<NodeId, Accumulator>,
    /// Creation of tasks in each region, by the context of the call that makes the region.
    pub creations: BTreeMap<NodeId, Creation>,
    /// Explicit tasks of all regions.
    pub tasks: TaskSums,
    region_ns: u128,
    scheduling_ns: u128,
    load_balance_ns: u128,
    serial_ns: u128,
    /// Thread time of the idle threads while one thread works outside of regions.
    serial_idle_ns: u128,
    /// Useful time of the communicating threads of ranks without teams.
    without_teams_ns: u128,
}

/// Work outside of regions that one context is responsible for.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SerialWork {
    /// Time of the communicating thread, over ranks, in nanoseconds.
    pub time: Accumulator,
    /// Run time that each rank would save if its team did this work, summed over ranks, in
    /// nanoseconds.
    pub gain_ns: u128,
}

/// Creation of tasks in a region.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Creation {
    /// Number of tasks.
    pub count: u64,
    /// Time of all threads in calls that create tasks, in nanoseconds.
    pub time_ns: u128,
    /// The call with the most time in a rank, and that time in nanoseconds; `None` without calls.
    pub call: Option<(u64, NodeId)>,
}

/// Returns whether tasks are short on average.
pub fn is_fine(count: u64, work_ns: u64) -> bool {
    work_ns <= MAX_FINE_TASK_NS.saturating_mul(count)
}

/// Explicit tasks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TaskSums {
    /// Number of executions.
    pub count: u64,
    /// Work of all executions, in nanoseconds.
    pub work_ns: u64,
    /// Number of executions of functions with a mean work of at most [`MAX_FINE_TASK_NS`].
    pub fine: u64,
    /// Work of the `fine` executions, in nanoseconds.
    pub fine_work_ns: u64,
}

impl Creation {
    /// Returns the largest possible mean work of a task, in nanoseconds, in a region with `work_ns`
    /// of work.
    fn max_task_ns(&self, work_ns: u64) -> f64 {
        u128::from(work_ns).saturating_sub(self.time_ns) as f64 / self.count.max(1) as f64
    }
}

impl TaskSums {
    /// Returns whether the tasks that are created in a region with `work_ns` of work are short:
    /// their mean, or most of them even if all long tasks of the program are among them.
    pub fn are_fine(&self, creation: &Creation, work_ns: u64) -> bool {
        let long = self.count - self.fine;
        let are_most = self.fine > 0 && long <= creation.count / 2;
        are_most || creation.max_task_ns(work_ns) <= MAX_FINE_TASK_NS as f64
    }

    /// Returns an estimate of the mean work of the short tasks that are created in a region with
    /// `work_ns` of work, in nanoseconds.
    pub fn fine_task_ns(&self, creation: &Creation, work_ns: u64) -> f64 {
        let mean_ns = self.fine_work_ns as f64 / self.fine.max(1) as f64;
        let max_ns = creation.max_task_ns(work_ns);
        if self.fine > 0 { mean_ns.min(max_ns) } else { max_ns }
    }
}

impl TeamTotals {
    /// Adds one rank. `places` are the contexts of its communicating thread and of its other
    /// threads in the totals, by node of the rank's tree.
    pub fn add_rank(&mut self, rank: &Rank<'_>, places: [&[Option<NodeId>]; 2]) {
        let [main, others] = places;
        let place = |node: NodeId| main.get(node as usize).copied().flatten();
        for task in &rank.input.profile.openmp.tasks {
            self.tasks.count += task.count;
            self.tasks.work_ns += task.work_ns;
            if is_fine(task.count, task.work_ns) {
                self.tasks.fine += task.count;
                self.tasks.fine_work_ns += task.work_ns;
            }
        }
        for created in created_tasks(rank) {
            let Some(region) = place(created.region) else { continue };
            let called = place(created.call).or_else(|| others[created.call as usize]);
            let creation = self.creations.entry(region).or_default();
            creation.count += created.count;
            creation.time_ns += u128::from(created.time_ns);
            creation.call = creation.call.max(called.map(|call| (created.time_ns, call)));
        }
        for region in rank.input.profile.openmp.regions.iter().filter(|region| region.is_main) {
            let Some(node) = place(region.node) else { continue };
            let idle_ns = region.idle_ns() / u64::from(region.threads.max(1));
            self.idle.entry(node).or_default().accumulate(idle_ns);
            self.imbalance.entry(node).or_default().accumulate(imbalance_ns(region));
            if let Some(function) = region.function.and_then(place) {
                self.functions.insert(node, function);
            }
        }
        let Some(times) = TeamTimes::of(rank) else {
            self.without_teams_ns += u128::from(rank.useful_ns());
            return;
        };
        let gain_ns = times.serial_gain_ns();
        self.threads = self.threads.max(times.threads);
        self.elapsed.accumulate(times.elapsed_ns);
        self.serial_gain.accumulate(gain_ns);
        self.region_ns += u128::from(times.region_ns);
        self.scheduling_ns += u128::from(times.scheduling_ns);
        self.load_balance_ns += u128::from(times.load_balance_ns);
        self.serial_ns += u128::from(times.serial_ns);
        self.serial_idle_ns += u128::from(times.serial_ns) * u128::from(times.threads - 1);
        for (node, ns) in &times.serial {
            let Some(place) = place(*node) else { continue };
            let serial = self.serial.entry(place).or_default();
            serial.time.accumulate(*ns);
            serial.gain_ns +=
                u128::from(*ns) * u128::from(gain_ns) / u128::from(times.serial_ns.max(1));
        }
    }

    /// Adds other ranks; `places` are their contexts here.
    pub fn combine(&mut self, other: Self, places: &[NodeId]) {
        let place = |node: NodeId| places[node as usize];
        self.threads = self.threads.max(other.threads);
        self.elapsed.combine(&other.elapsed);
        self.serial_gain.combine(&other.serial_gain);
        self.region_ns += other.region_ns;
        self.scheduling_ns += other.scheduling_ns;
        self.load_balance_ns += other.load_balance_ns;
        self.serial_ns += other.serial_ns;
        self.serial_idle_ns += other.serial_idle_ns;
        self.without_teams_ns += other.without_teams_ns;
        merge(&mut self.serial, moved(other.serial, places), |ours, theirs| {
            ours.time.combine(&theirs.time);
            ours.gain_ns += theirs.gain_ns;
        });
        merge(&mut self.creations, moved(other.creations, places), |ours, theirs| {
            ours.count += theirs.count;
            ours.time_ns += theirs.time_ns;
            ours.call = ours.call.max(theirs.call.map(|(ns, call)| (ns, place(call))));
        });
        self.tasks.count += other.tasks.count;
        self.tasks.fine += other.tasks.fine;
        self.tasks.work_ns += other.tasks.work_ns;
        self.tasks.fine_work_ns += other.tasks.fine_work_ns;
        let add = |ours: &mut Accumulator, theirs| ours.combine(&theirs);
        merge(&mut self.idle, moved(other.idle, places), add);
        merge(&mut self.imbalance, moved(other.imbalance, places), add);
        for (node, function) in other.functions {
            self.functions.insert(place(node), place(function));
        }
    }

    /// Returns whether the ranks use their teams for long enough that idle threads are a loss.
    pub fn are_used(&self, job: &JobTotals) -> bool {
        self.elapsed.mean(job.ranks.len()) >= MIN_PARALLEL_FRACTION * job.elapsed_ns as f64
    }

    /// Returns the efficiency of the ranks' threads; `None` without teams. With the thread time T
    /// in regions, in work outside of regions and in work of ranks without teams (one thread each),
    /// TALP's losses for load balance (B), scheduling (C) and serialisation (S), and the rest
    /// U = T - B - C - S: parallel = U / T, load balance = (T - B) / T, scheduling = (U + S) /
    /// (T - B), serialisation = U / (U + S). The product of the last three is the first.
    pub fn efficiency(&self) -> Option<OpenMpEfficiency> {
        let of_teams = self.region_ns + self.serial_ns + self.serial_idle_ns;
        if of_teams == 0 {
            return None;
        }
        let whole = (of_teams + self.without_teams_ns) as f64;
        let balanced = whole - self.load_balance_ns as f64;
        let scheduled = balanced - self.scheduling_ns as f64;
        let useful = scheduled - self.serial_idle_ns as f64;
        let of =
            |part: f64, whole: f64| if whole > 0.0 { (part / whole).clamp(0.0, 1.0) } else { 1.0 };
        Some(OpenMpEfficiency {
            parallel: of(useful, whole),
            load_balance: of(balanced, whole),
            scheduling: of(scheduled, balanced),
            serialisation: of(useful, scheduled),
        })
    }
}
