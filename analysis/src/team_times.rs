//! Teams of threads (OpenMP) of one rank: the thread time in its parallel regions and outside of
//! them.
//!
//! Only regions of several threads that the communicating thread makes count: the rank's run time
//! depends on these. While the communicating thread is in MPI outside of regions, its team is idle
//! because of MPI; that time is in no value here.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_calls::{self as calls, CallClass};
use plimsoll_collector::profile::{ContextTree, Frame, NodeId, ProcessProfile, RegionProfile};

use crate::rank::Rank;

/// Thread time of a rank's teams, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TeamTimes {
    /// Number of threads of the largest team.
    pub threads: u32,
    /// Wall time of the outermost regions.
    pub elapsed_ns: u64,
    /// Wall time of the outermost regions times their threads.
    pub region_ns: u64,
    /// TALP's scheduling loss in these regions: thread time in which no thread works.
    pub scheduling_ns: u64,
    /// TALP's load balance loss in these regions: thread time in which some threads work.
    pub load_balance_ns: u64,
    /// Time of the communicating thread in its own work in `main` outside of regions, when its team
    /// is idle.
    pub serial_ns: u64,
    /// This serial time by responsible context, in nanoseconds.
    pub serial: BTreeMap<NodeId, u64>,
}

impl TeamTimes {
    /// Returns the times of a rank; `None` if it has no region with several threads.
    pub fn of(rank: &Rank<'_>) -> Option<Self> {
        let profile = &rank.input.profile;
        let mut times = Self::default();
        for region in outermost(profile) {
            times.threads = times.threads.max(region.threads);
            times.elapsed_ns += region.elapsed_ns;
            let team = u64::from(region.threads.max(1));
            times.region_ns += region.thread_ns.saturating_sub(team * in_mpi_ns(region));
            times.scheduling_ns +=
                region.scheduling_loss_ns().saturating_sub(team * mpi_of_others_ns(region));
            times.load_balance_ns +=
                region.load_balance_loss_ns().saturating_sub(team * uneven_mpi_ns(region));
        }
        if times.threads == 0 {
            return None;
        }
        times.add_serial_work(rank);
        Some(times)
    }

    /// Adds the work outside of regions, in the outermost functions that regions lie in. Its sum is
    /// exact, because regions and calls are measured; by context it is divided like the samples.
    fn add_serial_work(&mut self, rank: &Rank<'_>) {
        let profile = &rank.input.profile;
        let inside = inside_regions(profile);
        let roots = profile.tree.roots();
        let with_regions: BTreeSet<NodeId> =
            outermost(profile).map(|region| roots[region.node as usize]).collect();
        let (mut whole_ns, mut blocked_ns, mut sampled_ns) = (0, 0, 0);
        for (node, value) in rank.phases.iter().flat_map(|phase| &phase.values) {
            if !with_regions.contains(&roots[*node as usize]) {
                continue; // before or after `main`
            }
            whole_ns += value.exclusive_ns;
            if inside[*node as usize] {
                continue;
            }
            match rank.owners.owner_of[*node as usize] {
                Some(owner) if rank.context_classes[*node as usize].is_useful() => {
                    *self.serial.entry(owner).or_default() += value.exclusive_ns;
                    sampled_ns += value.exclusive_ns;
                }
                _ => blocked_ns += value.exclusive_ns,
            }
        }
        let outside = profile.outside_main;
        if let Some(outside) = outside.filter(|it| with_regions.contains(&it.node)) {
            // Nobody can divide the start of a process among threads.
            whole_ns -= outside.with_stack_ns + outside.without_stack_ns;
            let owner = rank.owners.owner_of[outside.node as usize];
            if let Some(main_ns) = owner.and_then(|owner| self.serial.get_mut(&owner)) {
                sampled_ns -= outside.with_stack_ns.min(*main_ns);
                *main_ns = main_ns.saturating_sub(outside.with_stack_ns);
            }
            self.serial.retain(|_, ns| *ns > 0);
        }
        self.serial_ns = whole_ns.saturating_sub(self.elapsed_ns).saturating_sub(blocked_ns);
        for ns in self.serial.values_mut() {
            let scaled =
                u128::from(*ns) * u128::from(self.serial_ns) / u128::from(sampled_ns.max(1));
            *ns = scaled as u64;
        }
    }

    /// Returns the run time that the rank would save if its whole team did the serial work, in
    /// nanoseconds.
    pub fn serial_gain_ns(&self) -> u64 {
        self.serial_ns - self.serial_ns / u64::from(self.threads.max(1))
    }
}

/// Returns the time in which a thread of a region is in MPI, so that its team is idle because of
/// MPI. Calls of several threads may be at the same time: it is at most the time that the longest
/// work of a thread outside of MPI leaves.
fn in_mpi_ns(region: &RegionProfile) -> u64 {
    let own_ns = region.shares.iter().map(|share| share.work_ns.saturating_sub(share.mpi_ns));
    let left_ns = region.elapsed_ns.saturating_sub(own_ns.max().unwrap_or(0));
    region.mpi_ns.min(left_ns).max(longest_in_mpi_ns(region))
}

/// Returns the time in MPI of the thread of a region that is longest in MPI.
fn longest_in_mpi_ns(region: &RegionProfile) -> u64 {
    region.shares.iter().map(|share| share.mpi_ns).max().unwrap_or(0)
}

/// Returns the time in which other threads of a region are in MPI than the one that is longest in
/// MPI, as in `single` constructs: even the thread with most work then waits because of MPI.
fn mpi_of_others_ns(region: &RegionProfile) -> u64 {
    in_mpi_ns(region) - longest_in_mpi_ns(region)
}

/// Returns the part of the imbalance of a region that its threads' MPI calls bring about.
fn uneven_mpi_ns(region: &RegionProfile) -> u64 {
    longest_in_mpi_ns(region).saturating_sub(region.mpi_ns / u64::from(region.threads.max(1)))
}

/// Returns for each context the fraction of its time in which the communicating thread waits for
/// threads of its team that work: 0 outside of waits for the team. In the rest of such a wait, one
/// of these threads is in MPI, which is as useful as the thread's own MPI calls. Where in a region
/// that is, is unknown: all its waits have the same fraction.
pub fn waits_for_work(profile: &ProcessProfile) -> Vec<f64> {
    // Time that a region's MPI calls are awaited, and all waits, by the call that makes the region.
    let mut regions: BTreeMap<NodeId, [u64; 2]> = BTreeMap::new();
    let mut begins: BTreeMap<NodeId, NodeId> = BTreeMap::new();
    for region in outermost(profile) {
        regions.entry(region.node).or_default()[0] += awaited_mpi_ns(region);
        begins.insert(region.node, region.node);
        begins.extend(region.function.map(|function| (function, region.node)));
    }
    let mut region_of: Vec<Option<NodeId>> = Vec::with_capacity(profile.tree.nodes.len());
    for (node, id) in profile.tree.nodes.iter().zip(0..) {
        let around = || region_of[node.parent? as usize];
        region_of.push(begins.get(&id).copied().or_else(around));
    }
    let is_wait = team_waits(&profile.tree);
    for (node, value) in profile.phases.iter().flat_map(|phase| &phase.values) {
        let region = region_of[*node as usize].filter(|_| is_wait[*node as usize]);
        if let Some(times) = region.and_then(|region| regions.get_mut(&region)) {
            times[1] += value.exclusive_ns;
        }
    }
    let for_work = |region: Option<NodeId>| match region.map(|region| regions[&region]) {
        Some([awaited_ns, waited_ns]) if awaited_ns > 0 => {
            1.0 - (awaited_ns as f64 / waited_ns.max(1) as f64).min(1.0)
        }
        _ => 1.0,
    };
    let fraction = |(region, is_wait)| if is_wait { for_work(region) } else { 0.0 };
    region_of.into_iter().zip(is_wait).map(fraction).collect()
}

/// Returns the time in which the communicating thread waits in a region for other threads that are
/// in MPI.
fn awaited_mpi_ns(region: &RegionProfile) -> u64 {
    let Some(own) = region.shares.iter().find(|share| share.number == 0) else { return 0 };
    let idle_ns = region.elapsed_ns.saturating_sub(own.work_ns).saturating_sub(own.lock_ns);
    in_mpi_ns(region).saturating_sub(own.mpi_ns).min(idle_ns)
}

/// Returns the time by which a region would be shorter if all threads had the same work in each
/// part between barriers, net of MPI calls inside of the region: waiting there is a loss between
/// ranks.
pub fn imbalance_ns(region: &RegionProfile) -> u64 {
    (region.imbalance_ns() + stalled_ns(region)).saturating_sub(uneven_mpi_ns(region))
}

/// Returns the time by which a region would be shorter if all threads had the same work in total,
/// net of MPI calls inside of the region.
pub fn uneven_ns(region: &RegionProfile) -> u64 {
    region.imbalance_ns().saturating_sub(uneven_mpi_ns(region))
}

/// Returns the time in which even the thread with most work waits in barriers or for tasks: the
/// threads are uneven between barriers, beyond their difference in total. Waits for locks are a
/// loss of their own, and waits for other threads in MPI one between ranks.
pub fn stalled_ns(region: &RegionProfile) -> u64 {
    let idle_ns = region.elapsed_ns.saturating_sub(region.max_work_ns);
    let locked_ns = region.lock_ns / u64::from(region.threads.max(1));
    let stalled_ns = idle_ns.saturating_sub(locked_ns).min(region.barrier_ns);
    stalled_ns.saturating_sub(mpi_of_others_ns(region))
}

/// Returns the regions of several threads that the communicating thread makes outside of such
/// regions. A region of one thread, such as one with a false `if` clause, is serial.
fn outermost(profile: &ProcessProfile) -> impl Iterator<Item = &RegionProfile> {
    let by_main = || profile.openmp.regions.iter().filter(|region| region.is_main);
    let serial_around = move |region: &RegionProfile| {
        let serial = by_main().filter(|it| it.threads < 2).filter_map(|it| it.function);
        serial
            .filter(|function| profile.tree.outwards(region.node).any(|at| at == *function))
            .count() as u32
    };
    by_main().filter(move |region| {
        region.threads > 1 && (region.level == 0 || region.level == serial_around(region))
    })
}

/// Returns for each context whether the time of the communicating thread there lies in a parallel
/// region: in the region's function, or in the call in which the thread waits for its end.
fn inside_regions(profile: &ProcessProfile) -> Vec<bool> {
    let tree = &profile.tree;
    let mut inside = vec![false; tree.nodes.len()];
    for region in outermost(profile) {
        for node in [Some(region.node), region.function].into_iter().flatten() {
            inside[node as usize] = true;
        }
    }
    for (id, node) in tree.nodes.iter().enumerate() {
        let around = node.parent.is_some_and(|parent| inside[parent as usize]);
        inside[id] |= around || is_team_call(&tree.frames[node.frame as usize]);
    }
    inside
}

/// Returns whether a frame is a call of OpenMP in which a thread waits for its team.
pub fn is_team_call(frame: &Frame) -> bool {
    let class = frame.call.and_then(calls::class);
    class.is_some_and(|class| {
        matches!(class, CallClass::Region | CallClass::TeamWait | CallClass::TeamLock)
    })
}

/// Returns for each context of a tree whether it is, or lies below, a call in which a thread waits
/// for its team.
pub fn team_waits(tree: &ContextTree) -> Vec<bool> {
    at_or_below(tree, is_team_call)
}

/// Returns for each context of a tree whether its frame, or one around it, is a chosen one.
pub fn at_or_below(tree: &ContextTree, is_chosen: impl Fn(&Frame) -> bool) -> Vec<bool> {
    let mut chosen: Vec<bool> = Vec::with_capacity(tree.nodes.len());
    for node in &tree.nodes {
        let around = node.parent.is_some_and(|parent| chosen[parent as usize]);
        chosen.push(around || is_chosen(&tree.frames[node.frame as usize]));
    }
    chosen
}

/// Calls of all threads of a rank, in one context, that create tasks in a region of the
/// communicating thread.
pub struct CreatedTasks {
    /// Context of the call that makes the region.
    pub region: NodeId,
    /// Context of the call that creates tasks.
    pub call: NodeId,
    /// Number of these calls, one for each task.
    pub count: u64,
    /// Time in these calls, in nanoseconds.
    pub time_ns: u64,
}

/// Returns the calls that create tasks in regions, by context.
pub fn created_tasks(rank: &Rank<'_>) -> Vec<CreatedTasks> {
    let profile = &rank.input.profile;
    let tree = &profile.tree;
    let creates = |node: NodeId| {
        let frame = &tree.frames[tree.nodes[node as usize].frame as usize];
        frame.call.and_then(calls::class) == Some(CallClass::TaskCreation)
    };
    let region_of = |node: NodeId| {
        tree.outwards(node)
            .find_map(|node| outermost(profile).find(|region| region.function == Some(node)))
    };
    let main = rank.phases.iter().flat_map(|phase| &phase.values);
    let mut calls: BTreeMap<NodeId, (u64, u64)> = BTreeMap::new();
    for (node, value) in main.chain(&profile.other_threads).filter(|(node, _)| creates(*node)) {
        let (count, time_ns) = calls.entry(*node).or_default();
        *count += value.calls;
        *time_ns += value.exclusive_ns;
    }
    let in_region = |(call, (count, time_ns))| {
        Some(CreatedTasks { region: region_of(call)?.node, call, count, time_ns })
    };
    calls.into_iter().filter_map(in_region).collect()
}
