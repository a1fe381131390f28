//! Values of whole ranks: hosts and cores, useful time, and the cost of the measurement.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_collector::profile::{CollectionCounts, NodeId};
use plimsoll_wire::truncation::Truncation;
use serde::{Deserialize, Serialize};

use crate::input::RankInput;
use crate::label::Label;
use crate::map_merge::merge;
use crate::metrics::Accumulator;
use crate::rank::Rank;
use crate::ranks::RankSet;
use crate::summary::Memory;
use crate::thresholds::{MIN_RUN_DELAY_FRACTION, MIN_SEVERITY};

/// A node of the job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Host {
    /// Ranks on the node.
    pub ranks: RankSet,
    /// Cores that any of its ranks may use.
    pub cores: BTreeSet<u32>,
    /// Time in which the other threads of its ranks want a core, in nanoseconds; without ranks on
    /// which that time is short.
    pub others_ns: u128,
}

impl Host {
    /// Returns the mean number of threads that want a core in a run of `elapsed_ns`: for each rank,
    /// its communicating thread (which works, or spins while it waits), and the other threads.
    pub fn busy_threads(&self, elapsed_ns: u64) -> f64 {
        f64::from(self.ranks.len()) + self.others_ns as f64 / elapsed_ns.max(1) as f64
    }

    /// Returns the number of threads that want a core, divided by the number of cores; `None` if
    /// the cores are unknown.
    pub fn load(&self, elapsed_ns: u64) -> Option<f64> {
        let cores = self.cores.len();
        (cores > 0).then(|| self.busy_threads(elapsed_ns) / cores as f64)
    }
}

/// Totals of the job: sums over ranks, except where noted.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct JobTotals {
    /// Ranks included in the totals.
    pub ranks: RankSet,
    /// Ranks with a profile that was left out, by reason.
    pub left_out: BTreeMap<String, RankSet>,
    /// Nodes of the job, by host name.
    pub hosts: BTreeMap<String, Host>,
    /// Longest run of any rank, without pauses of the measurement, in nanoseconds.
    pub elapsed_ns: u64,
    /// Longest run of any rank with its pauses, in nanoseconds: the end of the time axis.
    pub span_ns: u64,
    /// Longest time bin of any rank, in nanoseconds; 0 if no rank has bins.
    pub bin_ns: u64,
    /// Number of application threads.
    pub threads: u32,
    /// Number of threads that do not communicate and live at one time, summed over ranks.
    pub concurrent_threads: u32,
    /// Number of ranks with more than one application thread.
    pub multithreaded_ranks: u32,
    /// Useful wall time of the communicating threads, in nanoseconds.
    pub useful: Accumulator,
    /// Useful wall time of the communicating threads, net of waiting for a core, in nanoseconds.
    pub useful_on_core: Accumulator,
    /// Time that the communicating threads wait for a core during work, in nanoseconds.
    pub run_delay: Accumulator,
    /// Time that all threads of a rank together wait for locks, in nanoseconds.
    pub locked: Accumulator,
    /// Requested sampling period of the slowest-sampled rank, in nanoseconds.
    pub period_ns: u64,
    /// Longest sampling period that the timers of any rank can keep, in nanoseconds; at least the
    /// requested period. Unit of thresholds and sampling errors.
    pub kept_period_ns: u64,
    /// CPU time that the samples represent, in nanoseconds.
    pub sampled_ns: u128,
    /// Least precise sample clock in use, in the order cpu, timer, wall.
    pub clock: String,
    /// Ranks on which the application took over the sampling signal.
    pub stepped_aside: RankSet,
    /// Ranks without marks on return addresses, by number of the reason.
    pub marks_off: BTreeMap<u32, RankSet>,
    /// Ranks that did not follow something, by its bit of [`plimsoll_wire::sync_id::unfollowed`].
    pub unfollowed: BTreeMap<u32, RankSet>,
    /// Ranks with an incomplete spool, by what the spool lacks.
    pub spool_troubles: BTreeMap<String, RankSet>,
    /// Counters of the measurement.
    pub counts: Counts,
    /// Functions without structure on some rank, with their number of samples: each rank names its
    /// most sampled ones.
    pub late: BTreeMap<String, u64>,
}

/// Costs and losses of the measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Counts {
    /// Return-address marks: planted, hit, stale; stacks verified, mismatched.
    pub marks: [u64; 5],
    /// Number of samples.
    pub samples: u64,
    /// Number of lost records.
    pub lost: u64,
    /// Number of samples without their outer frames.
    pub truncated: u64,
    /// `truncated` by [`plimsoll_wire::truncation::Truncation`].
    pub truncated_by: [u64; Truncation::COUNT],
    /// Number of stacks without their inner frames.
    pub pruned: u64,
    /// Number of counted MPI calls.
    pub mpi_calls: u64,
    /// Number of record bytes.
    pub record_bytes: u64,
    /// Time in the signal handlers, in nanoseconds.
    pub sampling_cpu_ns: u64,
    /// CPU time of the collectors, in nanoseconds.
    pub collector_cpu_ns: u64,
    /// Part of `collector_cpu_ns` for functions, loops and lines, and the part of that after the
    /// run, in nanoseconds.
    pub structure_cpu_ns: (u64, u64),
    /// Longest time in which a rank had paused the measurement, in nanoseconds.
    pub paused_ns: u64,
    /// Number of functions without structure because they were not looked up by the deadline:
    /// maximum over ranks, since ranks have functions in common.
    pub late_functions: u64,
    /// Number of samples in late functions, over all ranks.
    pub late_samples: u64,
    /// Number of spooled bytes.
    pub spool_bytes: u64,
    /// Number of threads that were not sampled, or not to their end.
    pub unsampled_threads: u64,
    /// Number of unsampled threads about which nothing is known.
    pub unseen_threads: u64,
    /// Maximum memory of any rank, in bytes; `None` if unknown.
    pub memory_bytes: Option<u64>,
    /// Memory of the process that uses most; `None` if unknown.
    pub memory: Option<Memory>,
}

impl JobTotals {
    /// Returns the number of threads that want each core on the most crowded node; at least 1.
    pub fn crowding(&self) -> f64 {
        let loads = self.hosts.values().filter_map(|host| host.load(self.elapsed_ns));
        loads.fold(1.0, f64::max)
    }

    /// Returns whether ranks share cores and lose more than [`MIN_SEVERITY`] of the run time by it.
    pub fn lacks_cores(&self) -> bool {
        let lost_ns = self.run_delay.mean(self.ranks.len());
        self.crowding() > 1.0 && lost_ns > MIN_SEVERITY * self.elapsed_ns as f64
    }

    /// Adds one rank.
    pub fn add_rank(&mut self, rank: &Rank<'_>) {
        let input = rank.input;
        let profile = &input.profile;
        let values = || rank.phases.iter().flat_map(|phase| &phase.values);
        let on_core = rank.useful_of(values().map(|(node, value)| (*node, value.net_ns())));
        let of_work = values().filter(|(node, _)| rank.context_classes[*node as usize].is_work());
        let delay = of_work.map(|(_, value)| value.run_delay_ns).sum();
        let number = RankSet::from_iter([input.rank]);
        let host = Host {
            ranks: number.clone(),
            cores: input.cores.iter().copied().collect(),
            others_ns: others_ns(rank).into(),
        };
        self.combine(Self {
            stepped_aside: if profile.collection.stepped_aside {
                number.clone()
            } else {
                RankSet::default()
            },
            ranks: number,
            left_out: BTreeMap::default(),
            hosts: BTreeMap::from([(input.host.clone(), host)]),
            elapsed_ns: profile.elapsed_ns,
            span_ns: profile.span_ns(),
            bin_ns: profile.times.width_ns,
            threads: profile.threads,
            concurrent_threads: profile.concurrent_threads,
            multithreaded_ranks: rank.is_multithreaded().into(),
            useful: Accumulator::from_iter([rank.useful_ns()]),
            useful_on_core: Accumulator::from_iter([on_core]),
            run_delay: Accumulator::from_iter([delay]),
            locked: Accumulator::from_iter([rank.locked_ns()]),
            period_ns: profile.period_ns,
            kept_period_ns: profile.kept_period_ns,
            sampled_ns: u128::from(profile.effective_period_ns)
                * u128::from(profile.collection.samples),
            clock: profile.clock.clone(),
            marks_off: match profile.collection.marks_off {
                0 => BTreeMap::new(),
                reason => BTreeMap::from([(reason, RankSet::from_iter([input.rank]))]),
            },
            unfollowed: (0..u32::BITS)
                .map(|bit| 1 << bit)
                .filter(|bit| profile.collection.unfollowed & bit != 0)
                .map(|bit| (bit, RankSet::from_iter([input.rank])))
                .collect(),
            spool_troubles: input
                .spool_trouble
                .iter()
                .map(|trouble| (trouble.clone(), RankSet::from_iter([input.rank])))
                .collect(),
            counts: Counts::of_rank(&profile.collection, input),
            late: profile.late.iter().map(|it| (it.name.clone(), it.samples)).collect(),
        });
    }

    /// Records a rank with an unusable profile, and the reason.
    pub fn leave_out(&mut self, rank: u32, reason: &str) {
        let ranks = self.left_out.entry(reason.to_owned()).or_default();
        *ranks = ranks.union(&RankSet::from_iter([rank]));
    }

    /// Adds the totals of other ranks.
    pub fn combine(&mut self, other: Self) {
        self.ranks = self.ranks.union(&other.ranks);
        let unite = |ours: &mut RankSet, theirs: RankSet| *ours = ours.union(&theirs);
        merge(&mut self.left_out, other.left_out, unite);
        merge(&mut self.marks_off, other.marks_off, unite);
        merge(&mut self.unfollowed, other.unfollowed, unite);
        merge(&mut self.spool_troubles, other.spool_troubles, unite);
        merge(&mut self.hosts, other.hosts, |ours, theirs| {
            ours.ranks = ours.ranks.union(&theirs.ranks);
            ours.cores.extend(theirs.cores);
            ours.others_ns += theirs.others_ns;
        });
        self.elapsed_ns = self.elapsed_ns.max(other.elapsed_ns);
        self.span_ns = self.span_ns.max(other.span_ns);
        self.bin_ns = self.bin_ns.max(other.bin_ns);
        self.threads += other.threads;
        self.concurrent_threads += other.concurrent_threads;
        self.multithreaded_ranks += other.multithreaded_ranks;
        self.useful.combine(&other.useful);
        self.useful_on_core.combine(&other.useful_on_core);
        self.run_delay.combine(&other.run_delay);
        self.locked.combine(&other.locked);
        self.period_ns = self.period_ns.max(other.period_ns);
        self.kept_period_ns = self.kept_period_ns.max(other.kept_period_ns);
        self.sampled_ns += other.sampled_ns;
        // The alphabetical order of the clock names is their order of quality.
        self.clock = std::mem::take(&mut self.clock).max(other.clock);
        self.stepped_aside = self.stepped_aside.union(&other.stepped_aside);
        self.counts.combine(&other.counts);
        merge(&mut self.late, other.late, |ours, samples| *ours += samples);
    }
}

/// Returns the time in which the threads of a rank that do not communicate want a core, in
/// nanoseconds: their work without waits, which leave the core or yield it. 0 if that time is too
/// short to delay the rank by more than counts on a node with cores enough.
fn others_ns(rank: &Rank<'_>) -> u64 {
    let profile = &rank.input.profile;
    let waits = |node: NodeId| rank.context_classes[node as usize].label.is_a(Label::Wait);
    let wants_core = |node: NodeId| rank.needs_core(node) && !waits(node);
    let others = profile.other_threads.iter().filter(|(node, _)| wants_core(*node));
    let worked_ns: u64 = others.map(|(_, value)| value.exclusive_ns).sum();
    let most_ns = profile.elapsed_ns.saturating_mul(profile.threads.saturating_sub(1).into());
    let least_ns = MIN_RUN_DELAY_FRACTION * profile.elapsed_ns as f64;
    if worked_ns as f64 >= least_ns { worked_ns.min(most_ns) } else { 0 }
}

impl Counts {
    fn of_rank(counts: &CollectionCounts, input: &RankInput) -> Self {
        Self {
            samples: counts.samples,
            marks: [
                counts.marks_planted,
                counts.marks_hit,
                counts.marks_stale,
                counts.marks_verified,
                counts.marks_mismatched,
            ],
            lost: counts.lost,
            truncated: counts.truncated,
            truncated_by: counts.truncated_by,
            pruned: counts.pruned,
            mpi_calls: counts.mpi_calls,
            record_bytes: counts.record_bytes,
            sampling_cpu_ns: counts.sampling_cpu_ns,
            collector_cpu_ns: input.cost.collector_cpu_ns,
            structure_cpu_ns: input.cost.structure_cpu_ns,
            paused_ns: counts.paused_ns,
            late_functions: counts.late_functions,
            late_samples: counts.late_samples,
            spool_bytes: input.cost.spool_bytes,
            unsampled_threads: counts.unsampled_threads,
            unseen_threads: counts.unseen_threads,
            memory_bytes: input.cost.memory_bytes,
            memory: input.cost.memory,
        }
    }

    fn combine(&mut self, other: &Self) {
        self.samples += other.samples;
        for (ours, theirs) in self.marks.iter_mut().zip(other.marks) {
            *ours += theirs;
        }
        self.lost += other.lost;
        self.truncated += other.truncated;
        for (ours, theirs) in self.truncated_by.iter_mut().zip(other.truncated_by) {
            *ours += theirs;
        }
        self.pruned += other.pruned;
        self.mpi_calls += other.mpi_calls;
        self.record_bytes += other.record_bytes;
        self.sampling_cpu_ns += other.sampling_cpu_ns;
        self.collector_cpu_ns += other.collector_cpu_ns;
        self.structure_cpu_ns.0 += other.structure_cpu_ns.0;
        self.structure_cpu_ns.1 += other.structure_cpu_ns.1;
        self.paused_ns = self.paused_ns.max(other.paused_ns);
        self.late_functions = self.late_functions.max(other.late_functions);
        self.late_samples += other.late_samples;
        self.spool_bytes += other.spool_bytes;
        self.unsampled_threads += other.unsampled_threads;
        self.unseen_threads += other.unseen_threads;
        self.memory_bytes = self.memory_bytes.max(other.memory_bytes);
        self.memory = self.memory.max(other.memory);
    }
}
