//! Runs with a known truth, for tests: builds the profiles of ranks from a description of their
//! behaviour.

use std::collections::{BTreeMap, HashMap};

use plimsoll_collector::profile::{
    CollectionCounts, CounterProfile, InstanceRow, InstanceRows, LONG_CALL_NS, LocationKind,
    NodeId, NodeValue, OpenMpProfile, PhaseProfile, ProcessProfile, Subgroup, SyncReturns,
    TemporalTreeKey, TemporalTreeProfile, ThreadLocation, ThreadProfile, TimeSeries, WorkerMembers,
    WorkerProfile, instance_level,
};
use plimsoll_trees::{self as clusters, ControlFlow, Key, Lca, Limits, Moment, TreeBuilder};

use crate::diagnose::diagnose;
use crate::input::{Cost, JobInfo, RankClock, RankInput};
use crate::rules::Rules;
use crate::summary::{Mpi, MpiAbi, Summary};
use crate::thread_ranks::run;

mod subject_contexts;

pub use subject_contexts::Contexts;

/// A millisecond, in nanoseconds.
pub const MS: u64 = 1_000_000;

/// Activity of one rank in one context before a synchronisation: wall time, and the part of it
/// spent waiting for a core.
#[derive(Clone, Copy)]
pub struct Doing {
    pub path: &'static str,
    pub wall_ns: u64,
    pub run_delay_ns: u64,
    /// Number of calls and total bytes, if the context is a call.
    pub calls: u64,
    pub bytes: u64,
}

/// Builds an activity that does not wait for a core.
pub fn doing(path: &'static str, wall_ns: u64) -> Doing {
    Doing { path, wall_ns, run_delay_ns: 0, calls: 1, bytes: 0 }
}

/// Builds an activity of `calls` calls that move `bytes` bytes in total.
pub fn calling(path: &'static str, wall_ns: u64, calls: u64, bytes: u64) -> Doing {
    Doing { calls, bytes, ..doing(path, wall_ns) }
}

fn busy_ns(part: &[Doing]) -> u64 {
    part.iter().map(|doing| doing.wall_ns).sum()
}

/// Control flow about which nothing is known.
struct Unordered;

impl ControlFlow for Unordered {
    fn precedes(&self, _: Key, _: Key, _: Key) -> Option<bool> {
        None
    }
}

/// Clock of a rank, and the delay of its readings.
#[derive(Clone)]
pub struct Clock {
    pub known: RankClock,
    pub ahead_ns: i64,
    pub drift_ppm: f64,
    /// Nanoseconds from the last rank's entry into a synchronisation to this rank's return, by
    /// index of the synchronisation.
    pub late_ns: fn(u64) -> u64,
}

impl Clock {
    /// Returns the reading of the clock `since_ns` nanoseconds after the begin of the run.
    fn reads(&self, since_ns: u64) -> u64 {
        let drifted_ns = since_ns as f64 * self.drift_ppm / 1e6;
        BEGIN_NS.wrapping_add_signed(self.ahead_ns + drifted_ns.round() as i64) + since_ns
    }
}

/// Number of instances that stay apart from their phases at the end of a run that was broken off.
const APART: u64 = 3;

/// Number of bins of a rank's time.
const BINS: u64 = 200;

/// Begin of the run, on a clock that is not ahead, in nanoseconds.
pub const BEGIN_NS: u64 = 1 << 50;

/// Activities of each rank, and the synchronisation after them.
struct Step {
    /// Subgroup of each rank; `None` if the synchronisation is one of all ranks.
    among: Option<Vec<Subgroup>>,
    syncs: Vec<&'static str>,
    parts: Vec<Vec<Doing>>,
    /// Duration on each rank, with the wait time in the synchronisation, in nanoseconds.
    durations_ns: Vec<u64>,
}

/// Returns the perf events of a rank.
pub type CountersOfRank = dyn Fn(u32, &mut Contexts) -> CounterProfile + Sync;

/// A run: a sequence of steps, each ended by a synchronisation of all ranks or of subgroups.
pub struct Subject {
    pub ranks: u32,
    steps: Vec<Step>,
    /// End of the last step on each rank, in nanoseconds since the begin of the run.
    ends_ns: Vec<u64>,
    rows_from_level: Vec<u32>,
    pub cores: Vec<u32>,
    /// Name of the node of each rank.
    pub host: fn(u32) -> &'static str,
    pub clocks: Vec<Clock>,
    pub others: Vec<Doing>,
    /// Activities of each of a rank's other threads, in order.
    pub workers: fn(u32) -> Vec<Vec<Doing>>,
    pub threads: u32,
    /// Number of other threads that live at one time; `None`: all.
    pub concurrent_threads: Option<u32>,
    /// Aggregated threads of each rank.
    pub thread_locations: fn(u32, &mut Contexts) -> ThreadProfile,
    /// perf events of each rank.
    pub counters: Box<CountersOfRank>,
    /// Parallel regions of each rank.
    pub openmp: fn(u32, &mut Contexts) -> OpenMpProfile,
    /// Number of synchronisations of all ranks that each rank returned from, if the run was broken
    /// off.
    pub seen: Option<fn(u32) -> u64>,
}

impl Subject {
    pub fn new(ranks: u32) -> Self {
        Self {
            ranks,
            steps: Vec::new(),
            ends_ns: vec![0; ranks as usize],
            rows_from_level: vec![0; ranks as usize],
            cores: (0..ranks).collect(),
            host: |_| "sloop",
            clocks: vec![one_clock(); ranks as usize],
            others: Vec::new(),
            workers: |_| Vec::new(),
            threads: 1,
            concurrent_threads: None,
            thread_locations: |_, _| ThreadProfile::default(),
            counters: Box::new(|_, _| CounterProfile::default()),
            openmp: |_, _| OpenMpProfile::default(),
            seen: None,
        }
    }

    /// Adds a step: each rank performs its part and then calls the synchronisation at `sync`.
    pub fn step(&mut self, sync: &'static str, part: impl Fn(u32) -> Vec<Doing>) -> &mut Self {
        self.step_of_sites(|_| sync, part)
    }

    /// Adds a step in which the ranks call the synchronisation at different places.
    pub fn step_of_sites(
        &mut self,
        sync: impl Fn(u32) -> &'static str,
        part: impl Fn(u32) -> Vec<Doing>,
    ) -> &mut Self {
        self.add(None, sync, part)
    }

    /// Adds a step in which only ranks with equal `name` synchronise with each other.
    pub fn step_of_parts(
        &mut self,
        name: impl Fn(u32) -> u32,
        sync: &'static str,
        part: impl Fn(u32) -> Vec<Doing>,
    ) -> &mut Self {
        let names: Vec<u32> = (0..self.ranks).map(name).collect();
        let ranks = |name: u32| names.iter().filter(|other| **other == name).count() as u32;
        let among =
            names.iter().map(|name| Subgroup { name: *name, ranks: ranks(*name) }).collect();
        self.add(Some(among), |_| sync, part)
    }

    fn add(
        &mut self,
        among: Option<Vec<Subgroup>>,
        sync: impl Fn(u32) -> &'static str,
        part: impl Fn(u32) -> Vec<Doing>,
    ) -> &mut Self {
        let syncs = (0..self.ranks).map(sync).collect();
        let parts: Vec<Vec<Doing>> = (0..self.ranks).map(part).collect();
        let name = |rank: usize| among.as_ref().map(|among| among[rank].name);
        // The last rank that enters a synchronisation ends it.
        let mut leave_ns: HashMap<Option<u32>, u64> = HashMap::new();
        for (rank, (begin_ns, part)) in self.ends_ns.iter().zip(&parts).enumerate() {
            let end_ns = leave_ns.entry(name(rank)).or_default();
            *end_ns = (*end_ns).max(begin_ns + busy_ns(part));
        }
        let ends = (0..parts.len()).map(|rank| leave_ns[&name(rank)]);
        let begins = std::mem::replace(&mut self.ends_ns, ends.collect());
        let durations_ns =
            self.ends_ns.iter().zip(begins).map(|(end, begin)| end - begin).collect();
        self.steps.push(Step { among, syncs, parts, durations_ns });
        self
    }

    /// Lets rank `rank` keep only instances of at least this level.
    pub fn level(&mut self, rank: u32, level: u32) -> &mut Self {
        self.rows_from_level[rank as usize] = level;
        self
    }

    /// Returns the profile of rank `rank`.
    pub fn profile(&self, rank: u32) -> ProcessProfile {
        let mut contexts = Contexts::default();
        contexts.node("main");
        let mut phases: Vec<PhaseProfile> = Vec::new();
        let mut values: Vec<BTreeMap<NodeId, NodeValue>> = Vec::new();
        let mut known: HashMap<(Option<NodeId>, NodeId, Option<u64>), usize> = HashMap::new();
        let seen = self.seen.map(|seen| seen(rank));
        let mut rows = Vec::new();
        let clock = &self.clocks[rank as usize];
        let mut sync_returns = SyncReturns { begin_ns: clock.reads(0), ends: Vec::new() };
        let (mut now, mut begin, mut index, mut after) = (0, 0, 0, None);
        let level = self.rows_from_level[rank as usize];
        let mut instance: BTreeMap<NodeId, NodeValue> = BTreeMap::new();
        let mut subgroup_intervals: Vec<InstanceRow> = Vec::new();
        let mut of_parts: HashMap<Subgroup, u64> = HashMap::new();
        let elapsed_ns = self.ends_ns.iter().copied().max().unwrap_or(0);
        let mut times = TimeSeries { width_ns: elapsed_ns.div_ceil(BINS).max(1), bins: Vec::new() };
        for Step { among, syncs, parts, durations_ns } in &self.steps {
            let sync = syncs[rank as usize];
            let duration_ns = durations_ns[rank as usize];
            let part = &parts[rank as usize];
            let mut interval: BTreeMap<NodeId, u64> = BTreeMap::new();
            let wait = doing(sync, duration_ns - busy_ns(part));
            let mut at = now;
            for doing in part.iter().chain([&wait]) {
                let node = contexts.node(doing.path);
                times.add(node, at, at + doing.wall_ns);
                at += doing.wall_ns;
                let frame = contexts.tree.nodes[node as usize].frame;
                let is_call = contexts.tree.frames[frame as usize].call.is_some();
                let calls = if is_call { doing.calls } else { 0 };
                let is_long = calls > 0 && doing.wall_ns / calls >= LONG_CALL_NS;
                instance.entry(node).or_default().add(&NodeValue {
                    exclusive_ns: doing.wall_ns,
                    run_delay_ns: doing.run_delay_ns,
                    calls,
                    bytes: if is_call { doing.bytes } else { 0 },
                    long_ns: if is_long { doing.wall_ns } else { 0 },
                    samples: 1,
                    poll_gap_ns: 0,
                });
                *interval.entry(node).or_default() += doing.wall_ns - doing.run_delay_ns;
            }
            now += duration_ns;
            let ends_in = contexts.node(sync);
            let row = |subgroup, index, duration_ns, values: BTreeMap<NodeId, u64>| InstanceRow {
                subgroup,
                index,
                ends_in: Some(ends_in),
                phase: u32::MAX,
                duration_ns,
                values: values.into_iter().collect(),
            };
            if let Some(among) = among {
                let part = among[rank as usize];
                let count = of_parts.entry(part).or_default();
                subgroup_intervals.push(row(Some(part), *count, duration_ns, interval));
                *count += 1;
                continue;
            }
            if seen.is_some_and(|seen| index >= seen) {
                continue;
            }
            let apart = seen.filter(|seen| index + APART >= *seen).map(|_| index);
            let phase = *known.entry((after, ends_in, apart)).or_insert_with(|| {
                values.push(BTreeMap::new());
                phases.push(PhaseProfile {
                    begins_after: after,
                    ends_in: Some(ends_in),
                    first_index: index,
                    first_begin_ns: begin,
                    ..PhaseProfile::default()
                });
                phases.len() - 1
            });
            phases[phase].instances += 1;
            phases[phase].last_index = index;
            phases[phase].duration_ns += now - begin;
            let running = subgroup_intervals.iter_mut().rev().take_while(|it| it.phase == u32::MAX);
            if running.map(|interval| interval.phase = phase as u32).count() > 0 {
                let last = row(None, index, duration_ns, interval);
                subgroup_intervals.push(InstanceRow { phase: phase as u32, ..last });
            }
            if instance_level(index) >= level {
                let net = instance.iter().map(|(node, value)| (*node, value.net_ns())).collect();
                rows.push(InstanceRow {
                    phase: phase as u32,
                    ..row(None, index, now - begin, net)
                });
            }
            for (node, value) in std::mem::take(&mut instance) {
                values[phase].entry(node).or_default().add(&value);
            }
            sync_returns.ends.push((index, clock.reads(now + (clock.late_ns)(index))));
            (after, begin, index) = (Some(ends_in), now, index + 1);
        }
        if seen.is_some() && !instance.is_empty() {
            let running = subgroup_intervals.iter_mut().filter(|it| it.phase == u32::MAX);
            running.for_each(|interval| interval.phase = phases.len() as u32);
            let net = instance.iter().map(|(node, value)| (*node, value.net_ns())).collect();
            rows.push(InstanceRow {
                subgroup: None,
                index,
                ends_in: None,
                phase: phases.len() as u32,
                duration_ns: now - begin,
                values: net,
            });
            values.push(instance);
            phases.push(PhaseProfile {
                begins_after: after,
                ends_in: None,
                first_index: index,
                last_index: index,
                instances: 1,
                first_begin_ns: begin,
                duration_ns: now - begin,
                values: Vec::new(),
            });
        }
        for (phase, values) in phases.iter_mut().zip(values) {
            phase.values = values.into_iter().collect();
        }
        let others = self.others.iter().map(|doing| {
            let value = NodeValue { exclusive_ns: doing.wall_ns, samples: 1, ..Default::default() };
            (contexts.node(doing.path), value)
        });
        let other_threads = others.collect();
        let thread_locations = (self.thread_locations)(rank, &mut contexts);
        let openmp = (self.openmp)(rank, &mut contexts);
        let temporal_tree = self.temporal_tree(rank, &mut contexts);
        let workers = self.workers(rank, &mut contexts);
        let counters = (self.counters)(rank, &mut contexts);
        ProcessProfile {
            tree: contexts.tree,
            phases,
            rows: InstanceRows { level, rows },
            subgroup_intervals: InstanceRows { level: 0, rows: subgroup_intervals },
            sync_returns: Some(sync_returns),
            times,
            other_threads,
            thread_locations,
            counters,
            openmp,
            temporal_tree: Some(temporal_tree),
            workers,
            threads: self.threads,
            concurrent_threads: self.concurrent_threads.unwrap_or(self.threads - 1),
            syncs: index,
            elapsed_ns: now,
            period_ns: 4 * MS,
            kept_period_ns: 4 * MS,
            effective_period_ns: 4 * MS,
            clock: "cpu".to_owned(),
            collection: CollectionCounts { samples: now / (4 * MS), ..Default::default() },
            ..ProcessProfile::default()
        }
    }

    /// Returns the temporal context tree of rank `rank`.
    fn temporal_tree(&self, rank: u32, contexts: &mut Contexts) -> TemporalTreeProfile {
        let mut keys = vec![OF_THREAD];
        let steps = self.steps.iter().flat_map(|Step { syncs, parts, durations_ns, .. }| {
            let part = &parts[rank as usize];
            let duration_ns = durations_ns[rank as usize];
            let wait = doing(syncs[rank as usize], duration_ns - busy_ns(part));
            part.iter().copied().chain([wait])
        });
        TemporalTreeProfile { tree: temporal_tree(steps, &mut keys, contexts), keys }
    }

    /// Returns the clusters of the other threads of rank `rank`.
    fn workers(&self, rank: u32, contexts: &mut Contexts) -> WorkerProfile {
        let mut keys = vec![OF_THREAD];
        let is_short = |it: &Doing| it.calls > 1 && it.wall_ns / it.calls < LONG_CALL_NS;
        let threads = (self.workers)(rank).into_iter().zip(1..).map(|(thread, number)| {
            // As in a recorded run, the tree has short calls in their callers.
            let in_caller = |it: &Doing| match it.path.rsplit_once('/') {
                Some((caller, _)) if is_short(it) => Doing { path: caller, ..*it },
                _ => *it,
            };
            let short_calls = thread.iter().filter(|it| is_short(it));
            let short_calls = short_calls.map(|it| (contexts.node(it.path), it.wall_ns)).collect();
            clusters::Cluster {
                members: WorkerMembers { numbers: clusters::Members::one(number), short_calls },
                tree: temporal_tree(thread.iter().map(in_caller), &mut keys, contexts),
                instances: clusters::InstanceSample::default(),
            }
        });
        WorkerProfile { clusters: threads.collect(), keys }
    }

    /// Returns the input for rank `rank`, as its collector hands it on.
    pub fn input(&self, rank: u32) -> RankInput {
        RankInput {
            rank,
            host: (self.host)(rank).to_owned(),
            cores: self.cores.clone(),
            clock: self.clocks[rank as usize].known.clone(),
            profile: self.profile(rank),
            cost: Cost::default(),
            spool_trouble: None,
        }
    }

    /// Returns the inputs of all ranks.
    pub fn inputs(&self) -> Vec<RankInput> {
        (0..self.ranks).map(|rank| self.input(rank)).collect()
    }
}

/// Key of a thread itself.
const OF_THREAD: TemporalTreeKey = TemporalTreeKey { node: None, site: 0, position: None };

/// Returns the temporal context tree of a thread with these activities.
fn temporal_tree(
    doings: impl Iterator<Item = Doing>,
    keys: &mut Vec<TemporalTreeKey>,
    contexts: &mut Contexts,
) -> clusters::Node {
    let limits = Limits { period: 4 * MS, nodes: 1 << 16, iteration_nodes: 1 << 8 };
    let mut temporal_tree = TreeBuilder::new(Key(0), 0, limits);
    let mut now = 0;
    for doing in doings {
        let mut path = Vec::new();
        let innermost = contexts.node(doing.path);
        for node in contexts.tree.outwards(innermost) {
            let key = TemporalTreeKey { node: Some(node), site: 0, position: None };
            let known = keys.iter().position(|known| *known == key);
            path.push(Key(known.unwrap_or(keys.len()) as u32));
            keys.extend(known.is_none().then_some(key));
        }
        path.reverse();
        let main = usize::from(temporal_tree.depth() > 0);
        let frames: Vec<_> = path[main..].iter().map(|key| clusters::Frame::call(*key)).collect();
        temporal_tree.change(Lca::exactly(main), &frames, Moment::exact(now), &Unordered);
        now += doing.wall_ns;
    }
    temporal_tree.finish(now, &Unordered).0
}

/// Returns the default clock, which all ranks read.
fn one_clock() -> Clock {
    let known = RankClock { id: "one".to_owned(), exchanges: Vec::new() };
    Clock { known, ahead_ns: 0, drift_ppm: 0.0, late_ns: |_| 0 }
}

/// Returns facts about a job for tests that only depend on its ranks.
pub fn job() -> JobInfo {
    JobInfo {
        executable: "app".to_owned(),
        arguments: Vec::new(),
        job: None,
        started: "2026-01-01T00:00:00+00:00".to_owned(),
        mpi: Mpi { library: None, abi: MpiAbi::OpenMpi },
        world_ranks: None,
        complete: true,
        incomplete: None,
        ended: "finalize".to_owned(),
        death: None,
        settings: BTreeMap::new(),
        rules: Rules::default(),
        population: None,
        notes: Vec::new(),
    }
}

/// Returns the summary of a job that several processes diagnose together. The ranks are dealt out
/// to the processes in turn, rank 0 to the second process.
pub fn diagnose_on(processes: u32, inputs: &[RankInput], job: &JobInfo) -> Summary {
    let summaries = run(processes, |comm| {
        let ours = |input: &&RankInput| (input.rank + 1) % processes == comm.rank();
        diagnose(comm, inputs.iter().filter(ours).cloned().collect(), job).unwrap()
    });
    summaries.into_iter().next().flatten().unwrap()
}

/// A location of threads with these times by path, in milliseconds.
pub fn location(
    kind: LocationKind,
    number: Option<u32>,
    threads: u64,
    times_ms: &[(&str, u64)],
    contexts: &mut Contexts,
) -> ThreadLocation {
    let mut values: Vec<(NodeId, NodeValue)> = times_ms
        .iter()
        .map(|(path, ms)| {
            (contexts.node(path), NodeValue { exclusive_ns: ms * MS, ..Default::default() })
        })
        .collect();
    values.sort_by_key(|(node, _)| *node);
    ThreadLocation { kind, number, threads, work_ns: 0, values, times: Default::default() }
}
