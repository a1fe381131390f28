//! Aggregation of a process's threads in the user's terms (ESPT15, 4).
//!
//! Two rules differ from the paper, because values come from samples. A thread's calls of a wrapped
//! function are counted, so their presence is compared as in the paper; a function that samples
//! find is missing in another thread only if the samples would hardly have missed it
//! ([`MIN_VISIT_SAMPLES`]). And the communicating thread takes the place of the initial thread.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use plimsoll_calls::{self as calls, CallClass};

use super::{FinishedRun, Partition, Values, in_ns};
use crate::clock_rate::Rate;
use crate::context_values::Value;
use crate::contexts::Contexts;
use crate::profile::{
    Aggregation, ContextTree, FrameKind, LocationKind, NodeId, NodeValue, PhaseProfile,
    SiblingThreads, ThreadLocation, ThreadProfile, ThreadStatistics, TimeSeries,
};

/// Number of samples of one thread in a function from which on another thread without any sample
/// there has not visited the function: a thread with the same expected number misses it with a
/// probability of exp(-8), one in 3000.
const MIN_VISIT_SAMPLES: u64 = 8;

/// Maximum number of places of creation with sibling threads.
const MAX_SIBLING_GROUPS: usize = 64;

/// Values of all threads but the communicating one.
#[derive(Default)]
pub(super) struct ResolvedThreads {
    /// Sum over all threads.
    pub(super) sum: Vec<(NodeId, NodeValue)>,
    single: Vec<SingleThread>,
    /// Sum over all threads that have no values of their own.
    merged: Vec<(NodeId, NodeValue)>,
    merged_threads: u64,
}

/// Values of one thread.
struct SingleThread {
    number: u32,
    /// Context of the start routine; `None` if the thread has no siblings to be compared with.
    start: Option<NodeId>,
    values: Vec<(NodeId, NodeValue)>,
    times: TimeSeries,
}

/// Threads with the same start routine.
#[derive(Default)]
struct Routine {
    merged: Values,
    single: Vec<(u32, Option<NodeId>, Values, TimeSeries)>,
}

impl FinishedRun<'_> {
    /// Returns the values of the other threads by context. Threads with the same start routine
    /// share out their unsampled time together: they do the same work.
    pub(super) fn other_threads(&self, contexts: &mut Contexts<'_>) -> ResolvedThreads {
        let mut routines: BTreeMap<u32, Routine> = BTreeMap::new();
        for (routine, account) in self.thread_accounts.merged() {
            let merged = &mut routines.entry(routine).or_default().merged;
            merged.add(account, contexts, |contexts, raw| contexts.start_routine(routine, raw));
        }
        for (number, thread) in self.thread_accounts.separate() {
            let routine = thread.routine;
            let mut values = Values::default();
            let outside = |contexts: &mut Contexts<'_>, raw| contexts.start_routine(routine, raw);
            values.add(&thread.account, contexts, outside);
            // Of threads that are merged, neither the number nor the slowest is known.
            let is_apart = !self.thread_accounts.merged().contains_key(&routine);
            let first = thread.account.values().nodes().min().filter(|_| is_apart);
            let start = first.map(|raw| contexts.start_routine(routine, raw));
            let times = thread.times.as_ref().map_or_else(TimeSeries::default, |times| {
                self.times(times, |raw| {
                    contexts.node(raw).unwrap_or_else(|| contexts.start_routine(routine, raw))
                })
            });
            routines.entry(routine).or_default().single.push((number, start, values, times));
        }
        let order = contexts.order();
        let (mut sum, mut merged, mut single) = (Values::default(), Values::default(), Vec::new());
        for Routine { merged: mut of_merged, single: of_single } in routines.into_values() {
            let mut all = of_merged.clone();
            of_single.iter().for_each(|(_, _, values, _)| all.merge(values));
            let shares = all.shares(contexts, &order);
            all.apportion(&shares);
            sum.merge(&all);
            of_merged.apportion(&shares);
            merged.merge(&of_merged);
            for (number, start, mut values, times) in of_single {
                values.apportion(&shares);
                let values = by_node(self.rate, &values);
                single.push(SingleThread { number, start, values, times });
            }
        }
        single.retain(|thread| !thread.values.is_empty());
        single.sort_by_key(|thread| thread.number);
        let mut partition = Partition { rate: self.rate, stamps: 0 };
        ResolvedThreads {
            sum: sum.nanoseconds(&mut partition, &order),
            single,
            merged: by_node(self.rate, &merged),
            merged_threads: self.thread_accounts.merged_threads(),
        }
    }
}

/// Aggregates threads with these numbers and values: for profiles that no collector makes. `phases`
/// are those of the communicating thread.
pub fn aggregate_threads(
    aggregation: Aggregation,
    tree: &ContextTree,
    phases: &[PhaseProfile],
    threads: Vec<(u32, Vec<(NodeId, NodeValue)>)>,
) -> ThreadProfile {
    let times = TimeSeries::default;
    let single = threads.into_iter().map(|(number, values)| SingleThread {
        number,
        start: None,
        values,
        times: times(),
    });
    ResolvedThreads { single: single.collect(), ..ResolvedThreads::default() }.aggregate(
        aggregation,
        tree,
        phases,
    )
}

impl ResolvedThreads {
    /// Returns the aggregated threads. `phases` are those of the communicating thread.
    pub(super) fn aggregate(
        &self,
        aggregation: Aggregation,
        tree: &ContextTree,
        phases: &[PhaseProfile],
    ) -> ThreadProfile {
        let siblings = self.siblings(tree);
        let profile = ThreadProfile { aggregation, siblings, ..ThreadProfile::default() };
        match aggregation {
            Aggregation::Sum => profile,
            Aggregation::Set => ThreadProfile {
                statistics: self.statistics(phases),
                uncounted_threads: self.merged_threads,
                ..profile
            },
            Aggregation::Key => ThreadProfile { locations: self.key_threads(tree), ..profile },
            Aggregation::Calltree => ThreadProfile { locations: self.classes(tree), ..profile },
            Aggregation::All => {
                let idle = idle_contexts(tree);
                let one = |thread: &SingleThread| thread.location(LocationKind::Thread, &idle);
                let mut locations: Vec<ThreadLocation> = self.single.iter().map(one).collect();
                locations.extend(self.rest_of_merged(&idle));
                ThreadProfile { locations, ..profile }
            }
        }
    }

    /// Returns the threads by their place of creation. Threads that begin with the same function of
    /// the program, reached by the same path of functions ([`ContextTree::program_path`]), are
    /// siblings.
    fn siblings(&self, tree: &ContextTree) -> Vec<SiblingThreads> {
        let idle = idle_contexts(tree);
        let mut groups: BTreeMap<Vec<u32>, Vec<&SingleThread>> = BTreeMap::new();
        let mut routines: BTreeMap<Vec<u32>, NodeId> = BTreeMap::new();
        for thread in &self.single {
            let is_of_program = |start: &NodeId| !tree.frame_of(*start).is_of_thread_runtime();
            let Some(start) = thread.start.filter(is_of_program) else { continue };
            let routine = thread.routine(tree, start);
            let path = tree.program_path(routine);
            let first = routines.entry(path.clone()).or_insert(routine);
            *first = routine.min(*first);
            groups.entry(path).or_default().push(thread);
        }
        let mut siblings: Vec<(u64, SiblingThreads)> = Vec::new();
        for (path, threads) in groups {
            let work_ns = |thread: &SingleThread| work_ns(&thread.values, &idle);
            let slowest = threads.iter().max_by_key(|it| (work_ns(it), Reverse(it.number)));
            let Some(slowest) = slowest else { continue };
            let mut sum: BTreeMap<NodeId, NodeValue> = BTreeMap::new();
            threads.iter().for_each(|thread| add(&mut sum, &thread.values));
            let group = SiblingThreads {
                routine: routines[&path],
                threads: threads.len() as u64,
                slowest: exclusive(slowest.values.iter().copied()),
                sum: exclusive(sum.into_iter()),
            };
            siblings.push((work_ns(slowest), group));
        }
        siblings.sort_by_key(|(work_ns, group)| (Reverse(*work_ns), group.routine));
        siblings.truncate(MAX_SIBLING_GROUPS);
        siblings.into_iter().map(|(_, group)| group).collect()
    }

    /// SET (ESPT15, 4.2).
    fn statistics(&self, phases: &[PhaseProfile]) -> Vec<(NodeId, ThreadStatistics)> {
        let mut main: BTreeMap<NodeId, NodeValue> = BTreeMap::new();
        for (node, value) in phases.iter().flat_map(|phase| &phase.values) {
            main.entry(*node).or_default().add(value);
        }
        let mut statistics: BTreeMap<NodeId, ThreadStatistics> = BTreeMap::new();
        let others = self.single.iter().flat_map(|thread| &thread.values);
        for (node, value) in main.iter().chain(others.map(|(node, value)| (node, value))) {
            statistics.entry(*node).or_default().add(value);
        }
        statistics.into_iter().collect()
    }

    /// KEY (ESPT15, 4.3).
    fn key_threads(&self, tree: &ContextTree) -> Vec<ThreadLocation> {
        let idle = idle_contexts(tree);
        let work_ns = |index: &usize| work_ns(&self.single[*index].values, &idle);
        let all = 0..self.single.len();
        let Some(slowest) = all.clone().max_by_key(|index| (work_ns(index), Reverse(*index)))
        else {
            return self.rest(&[], &idle).into_iter().collect();
        };
        let fastest = all.filter(|index| *index != slowest).min_by_key(work_ns);
        let one = |kind, index: usize| self.single[index].location(kind, &idle);
        let mut locations = vec![one(LocationKind::Slowest, slowest)];
        locations.extend(fastest.map(|fastest| one(LocationKind::Fastest, fastest)));
        let kept: Vec<usize> = [slowest].into_iter().chain(fastest).collect();
        locations.extend(self.rest(&kept, &idle));
        locations
    }

    /// CALLTREE (ESPT15, 4.4).
    fn classes(&self, tree: &ContextTree) -> Vec<ThreadLocation> {
        let idle = idle_contexts(tree);
        let mut classes: Vec<Class> = Vec::new();
        for thread in &self.single {
            let visits = Visits::of(&thread.values, tree);
            match classes.iter_mut().find(|class| class.matches(&visits)) {
                Some(class) => class.add(thread, &visits),
                None => classes.push(Class::new(thread, visits)),
            }
        }
        let mut locations: Vec<ThreadLocation> =
            classes.into_iter().map(|class| class.location(&idle)).collect();
        locations.extend(self.rest_of_merged(&idle));
        locations
    }

    /// Returns the sum over the merged threads and the single threads that are not in `kept`;
    /// `None` if there are none.
    fn rest(&self, kept: &[usize], idle: &[bool]) -> Option<ThreadLocation> {
        let others = (0..self.single.len()).filter(|index| !kept.contains(index));
        let mut rest = self.rest_of_merged(idle).unwrap_or(ThreadLocation {
            kind: LocationKind::Rest,
            number: None,
            threads: 0,
            work_ns: 0,
            values: Vec::new(),
            times: TimeSeries::default(),
        });
        let mut values: BTreeMap<NodeId, NodeValue> = rest.values.into_iter().collect();
        for thread in others.map(|index| &self.single[index]) {
            add(&mut values, &thread.values);
            rest.threads += 1;
        }
        rest.values = values.into_iter().collect();
        rest.work_ns = work_ns(&rest.values, idle);
        (rest.threads > 0).then_some(rest)
    }

    fn rest_of_merged(&self, idle: &[bool]) -> Option<ThreadLocation> {
        (self.merged_threads > 0).then(|| ThreadLocation {
            kind: LocationKind::Rest,
            number: None,
            threads: self.merged_threads,
            work_ns: work_ns(&self.merged, idle),
            values: self.merged.clone(),
            times: TimeSeries::default(),
        })
    }
}

/// Returns the exclusive times of values that have some.
fn exclusive(values: impl Iterator<Item = (NodeId, NodeValue)>) -> Vec<(NodeId, u64)> {
    let times = values.map(|(node, value)| (node, value.exclusive_ns));
    times.filter(|(_, ns)| *ns > 0).collect()
}

impl SingleThread {
    /// Returns the outermost function of the program at or below the start routine `start`, which
    /// a library of the language may provide; `start` itself if there is none. Of several callees,
    /// the one with the longest time counts.
    fn routine(&self, tree: &ContextTree, start: NodeId) -> NodeId {
        let mut at = start;
        while tree.frame_of(at).is_of_language() {
            let mut callees: BTreeMap<NodeId, u64> = BTreeMap::new();
            for (node, value) in &self.values {
                let is_callee = |node: &NodeId| tree.nodes[*node as usize].parent == Some(at);
                if let Some(callee) = tree.outwards(*node).find(is_callee) {
                    *callees.entry(callee).or_default() += value.exclusive_ns;
                }
            }
            let longest = callees.into_iter().max_by_key(|(node, ns)| (*ns, Reverse(*node)));
            match longest.filter(|(node, _)| tree.frame_of(*node).call.is_none()) {
                Some((callee, _)) => at = callee,
                None => return start,
            }
        }
        at
    }

    fn location(&self, kind: LocationKind, idle: &[bool]) -> ThreadLocation {
        ThreadLocation {
            kind,
            number: Some(self.number),
            threads: 1,
            work_ns: work_ns(&self.values, idle),
            values: self.values.clone(),
            times: self.times.clone(),
        }
    }
}

/// Procedures in the samples of a thread.
struct Visits {
    /// Number of samples in each procedure and in its callees.
    samples: BTreeMap<NodeId, u64>,
    /// Wrapped calls with at least one call.
    calls: Vec<NodeId>,
}

impl Visits {
    fn of(values: &[(NodeId, NodeValue)], tree: &ContextTree) -> Self {
        let mut samples: BTreeMap<NodeId, u64> = BTreeMap::new();
        let mut calls = Vec::new();
        for (node, value) in values {
            let mut at = Some(*node);
            while let Some(id) = at.filter(|_| value.samples > 0) {
                let outer = &tree.nodes[id as usize];
                if tree.frames[outer.frame as usize].kind == FrameKind::Function {
                    *samples.entry(id).or_default() += value.samples;
                }
                at = outer.parent;
            }
            let frame = &tree.frames[tree.nodes[*node as usize].frame as usize];
            calls.extend((frame.call.is_some() && value.calls > 0).then_some(*node));
        }
        Self { samples, calls }
    }
}

/// Threads that visited the same call paths.
struct Class {
    number: u32,
    threads: u64,
    visits: Visits,
    values: BTreeMap<NodeId, NodeValue>,
}

impl Class {
    fn new(thread: &SingleThread, visits: Visits) -> Self {
        let values = thread.values.iter().copied().collect();
        Self { number: thread.number, threads: 1, visits, values }
    }

    /// Returns whether a thread visited the call paths of the class's threads, and no others.
    fn matches(&self, visits: &Visits) -> bool {
        let never = |seen: &BTreeMap<NodeId, u64>, node: &NodeId| !seen.contains_key(node);
        let (ours, theirs) = (&self.visits.samples, &visits.samples);
        self.visits.calls == visits.calls
            && ours.iter().all(|(node, samples)| {
                samples / self.threads < MIN_VISIT_SAMPLES || !never(theirs, node)
            })
            && theirs
                .iter()
                .all(|(node, samples)| *samples < MIN_VISIT_SAMPLES || !never(ours, node))
    }

    fn add(&mut self, thread: &SingleThread, visits: &Visits) {
        self.threads += 1;
        for (node, samples) in &visits.samples {
            *self.visits.samples.entry(*node).or_default() += samples;
        }
        add(&mut self.values, &thread.values);
    }

    fn location(self, idle: &[bool]) -> ThreadLocation {
        let values: Vec<(NodeId, NodeValue)> = self.values.into_iter().collect();
        ThreadLocation {
            kind: LocationKind::Class,
            number: Some(self.number),
            threads: self.threads,
            work_ns: work_ns(&values, idle),
            values,
            times: TimeSeries::default(),
        }
    }
}

fn add(sums: &mut BTreeMap<NodeId, NodeValue>, values: &[(NodeId, NodeValue)]) {
    for (node, value) in values {
        sums.entry(*node).or_default().add(value);
    }
}

/// Returns for each context whether its exclusive time is no work: in or below a wrapped call that
/// does not merely sleep, or in the code of a thread runtime or of a pool that looks for work.
fn idle_contexts(tree: &ContextTree) -> Vec<bool> {
    let mut in_call: Vec<bool> = Vec::with_capacity(tree.nodes.len());
    let mut idle = Vec::with_capacity(tree.nodes.len());
    for node in &tree.nodes {
        let frame = &tree.frames[node.frame as usize];
        let inside = node.parent.is_some_and(|parent| in_call[parent as usize]);
        let waits = frame.call.is_some_and(|id| calls::class(id) != Some(CallClass::Sleep));
        in_call.push(inside || waits);
        let runs_pool = frame.is_of_thread_runtime() || frame.is_pool_loop();
        let yields = frame.yields() && node.parent.is_some_and(|parent| idle[parent as usize]);
        idle.push(inside || waits || runs_pool || yields);
    }
    idle
}

fn work_ns(values: &[(NodeId, NodeValue)], idle: &[bool]) -> u64 {
    let working = values.iter().filter(|(node, _)| !idle[*node as usize]);
    working.map(|(_, value)| value.exclusive_ns).sum()
}

/// Returns values in nanoseconds, each rounded by itself.
fn by_node(rate: Rate, values: &Values) -> Vec<(NodeId, NodeValue)> {
    let convert =
        |(node, value): (&NodeId, &Value)| (*node, in_ns(rate, value, rate.ns(value.time)));
    let values = values.values.iter().map(convert);
    values.filter(|(_, value)| *value != NodeValue::default()).collect()
}
