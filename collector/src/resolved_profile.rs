//! A process's run in the user's terms: raw phases that are one to the user are joined, rests are
//! shared out, stamps become nanoseconds.

mod resolved_openmp;
mod thread_locations;

pub use thread_locations::aggregate_threads;

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_wire::record::PartnerMessages;

use crate::account::Account;
use crate::address_table::Addresses;
use crate::apportionment::Apportionment;
use crate::clock_rate::Rate;
use crate::context_values::Value;
use crate::contexts::Contexts;
use crate::event_counts::{self, Increments, ProcessEvents};
use crate::exemplars::Exemplars;
use crate::instance_reservoir::{InstanceReservoir, RawInstance};
use crate::loop_profiles::{add_instance, loops};
use crate::loop_slices::KeyContexts;
use crate::partner_values::{PartnerValues, none_with};
use crate::phases::Phases;
use crate::profile::{
    self, ContextTree, CounterProfile, ExemplaryMessage, ExemplaryMessages, InstanceRow,
    InstanceRows, LoopProfile, NodeId, NodeValue, OpenMpProfile, PartnerValue, PhaseProfile,
    Subgroup, TemporalTreeKey, TemporalTreeProfile, ThreadProfile, TimeOutsideMain, WorkerMembers,
    WorkerProfile,
};
use crate::raw_tree::{RawId, Tree};
use crate::region_values::RegionValues;
use crate::sample_series::{Series, SeriesExporter};
use crate::temporal::{KeyInterner, to_user_terms};
use crate::thread_accounts::ThreadAccounts;
use crate::time_series::TimeSeries;
use plimsoll_trees::{CapturedIteration, Cluster, Instance, Node, Pruned, prune_to};

/// Most nodes of a temporal context tree that is handed on: when the run ends, it goes from node to
/// node.
const MAX_COURSE_NODES: usize = 1 << 13;

/// State of a finished run.
pub(crate) struct FinishedRun<'a> {
    /// Contexts of the run.
    pub(crate) tree: &'a Tree,
    /// Addresses of the contexts, all named.
    pub(crate) addresses: &'a Addresses,
    /// Phases of the communicating thread, ended.
    pub(crate) phases: &'a Phases,
    /// Samples in order of time.
    pub(crate) series: &'a Series,
    /// Time of the communicating thread by bins of the run.
    pub(crate) times: &'a TimeSeries,
    /// Values of the other threads.
    pub(crate) thread_accounts: &'a ThreadAccounts,
    /// Messages of all threads.
    pub(crate) partners: &'a PartnerValues,
    /// Parallel regions of all threads.
    pub(crate) regions: &'a RegionValues,
    /// perf events of all threads.
    pub(crate) events: &'a ProcessEvents,
    /// Exemplary messages of all threads.
    pub(crate) exemplars: &'a Exemplars,
    /// The finished temporal context tree of the communicating thread.
    pub(crate) temporal_tree: Option<&'a Node>,
    /// Captured iterations of the communicating thread.
    pub(crate) captured: &'a [CapturedIteration],
    /// Temporal context trees of the other threads, clustered.
    pub(crate) workers: &'a [Cluster<WorkerMembers<RawId>>],
    /// Meaning of the trees' keys.
    pub(crate) keys: &'a KeyInterner,
    /// Stamp of its begin.
    pub(crate) begin: u64,
    /// Length of a stamp.
    pub(crate) rate: Rate,
}

/// A run in the user's terms: what [`crate::profile::ProcessProfile`] says of contexts.
pub(crate) struct ResolvedProfile {
    pub(crate) tree: ContextTree,
    pub(crate) phases: Vec<PhaseProfile>,
    pub(crate) outside_main: Option<TimeOutsideMain>,
    pub(crate) rows: InstanceRows,
    pub(crate) subgroup_intervals: InstanceRows,
    pub(crate) series: Option<crate::profile::Series>,
    pub(crate) times: profile::TimeSeries,
    pub(crate) other_threads: Vec<(NodeId, NodeValue)>,
    pub(crate) thread_locations: ThreadProfile,
    pub(crate) partners: Vec<PartnerValue>,
    pub(crate) counters: CounterProfile,
    pub(crate) messages: ExemplaryMessages,
    pub(crate) openmp: OpenMpProfile,
    pub(crate) temporal_tree: Option<TemporalTreeProfile>,
    pub(crate) workers: WorkerProfile,
    pub(crate) loops: Vec<LoopProfile>,
}

/// Values by the user's contexts.
#[derive(Clone, Default)]
struct Values {
    values: BTreeMap<NodeId, Value>,
    unsampled: BTreeMap<NodeId, u64>,
    /// Time outside of the user's contexts, in stamps: a part of `values`, and one of `unsampled`.
    outside: u64,
    outside_unsampled: u64,
}

type Ends = (Option<NodeId>, Option<NodeId>);

struct UserPhase {
    ends: Ends,
    first_index: u64,
    last_index: u64,
    first_begin: u64,
    instances: u64,
    values: Values,
}

/// Converts stamps to nanoseconds so that the parts of a whole sum up to the whole.
struct Partition {
    rate: Rate,
    stamps: u64,
}

impl Partition {
    fn take(&mut self, stamps: u64) -> u64 {
        let before = self.rate.ns(self.stamps);
        self.stamps = self.stamps.saturating_add(stamps);
        self.rate.ns(self.stamps) - before
    }
}

impl Values {
    /// Adds an account. `outside` returns the context for the time of a raw context outside all of
    /// the user's.
    fn add<'c>(
        &mut self,
        account: &Account,
        contexts: &mut Contexts<'c>,
        outside: impl Fn(&mut Contexts<'c>, RawId) -> NodeId,
    ) {
        // In order, so that the same records give the same tree.
        let mut values: Vec<_> = account.values().iter().collect();
        values.sort_unstable_by_key(|(raw, _)| *raw);
        for (raw, value) in values {
            match contexts.place(raw) {
                Some(place) => {
                    // It was called as a whole; it works where it does.
                    if contexts.counts_calls(raw) && (value.calls > 0 || value.bytes > 0) {
                        let Value { calls, bytes, long, .. } = value;
                        let value = Value { calls, bytes, long, ..Value::default() };
                        self.values.entry(place.called).or_default().add(&value);
                    }
                    let value = Value { calls: 0, bytes: 0, long: 0, ..value };
                    self.values.entry(place.inner).or_default().add(&value);
                }
                None if value.time > 0 || value.samples > 0 => {
                    // Its time is somebody's, but its calls are nobody's.
                    let value = Value { calls: 0, bytes: 0, long: 0, ..value };
                    self.outside += value.time;
                    self.values.entry(outside(contexts, raw)).or_default().add(&value);
                }
                None => {}
            }
        }
        let mut unsampled: Vec<_> = account.unsampled().iter().collect();
        unsampled.sort_unstable();
        for ((one, other), stamps) in unsampled {
            let node = contexts.between(*one, *other).unwrap_or_else(|| {
                self.outside_unsampled += stamps;
                outside(contexts, *one)
            });
            *self.unsampled.entry(node).or_default() += stamps;
        }
    }

    /// Adds other values.
    fn merge(&mut self, other: &Self) {
        for (node, value) in &other.values {
            self.values.entry(*node).or_default().add(value);
        }
        for (node, stamps) in &other.unsampled {
            *self.unsampled.entry(*node).or_default() += stamps;
        }
        self.outside += other.outside;
        self.outside_unsampled += other.outside_unsampled;
    }

    /// Returns the sampled work of each context, in stamps.
    fn work(&self) -> impl Iterator<Item = (NodeId, u64)> + '_ {
        self.values.iter().map(|(node, value)| (*node, value.work))
    }

    fn shares(&self, contexts: &Contexts<'_>, order: &[u32]) -> Apportionment {
        let unsampled: BTreeSet<NodeId> = self.unsampled.keys().copied().collect();
        let mut worked: Vec<(NodeId, u64)> = self.work().collect();
        worked.sort_unstable_by_key(|(node, _)| order[*node as usize]);
        Apportionment::new(contexts.nodes(), &unsampled, worked.into_iter())
    }

    fn apportion(&mut self, shares: &Apportionment) {
        for (node, rest) in std::mem::take(&mut self.unsampled) {
            shares.split(node, rest, |recipient, part| {
                self.values.entry(recipient).or_default().time += part;
            });
        }
    }

    fn nanoseconds(&self, partition: &mut Partition, order: &[u32]) -> Vec<(NodeId, NodeValue)> {
        let convert = |(node, value): (&NodeId, &Value)| {
            let exclusive_ns = partition.take(value.time);
            (*node, in_ns(partition.rate, value, exclusive_ns))
        };
        let something = |(_, value): &(NodeId, NodeValue)| *value != NodeValue::default();
        let mut values: Vec<(&NodeId, &Value)> = self.values.iter().collect();
        values.sort_unstable_by_key(|(node, _)| order[**node as usize]);
        let mut values: Vec<_> = values.into_iter().map(convert).filter(something).collect();
        values.sort_unstable_by_key(|(node, _)| *node);
        // Kept until the end of the analysis, for each rank of the node.
        values.shrink_to_fit();
        values
    }
}

/// Returns the values of a context with times in nanoseconds, of these `exclusive_ns` in itself.
fn in_ns(rate: Rate, value: &Value, exclusive_ns: u64) -> NodeValue {
    NodeValue {
        exclusive_ns,
        run_delay_ns: rate.ns(value.run_delay).min(exclusive_ns),
        calls: value.calls,
        bytes: value.bytes,
        long_ns: rate.ns(value.long),
        samples: value.samples,
        poll_gap_ns: rate.ns(value.poll_gap_of_time()).min(exclusive_ns),
    }
}

impl FinishedRun<'_> {
    /// Returns the time of the communicating thread outside of `main`; `None` if there is none.
    fn outside_main(
        &self,
        phases: &[UserPhase],
        contexts: &mut Contexts<'_>,
    ) -> Option<TimeOutsideMain> {
        let outside = phases.iter().map(|phase| phase.values.outside).sum();
        let unsampled = phases.iter().map(|phase| phase.values.outside_unsampled).sum();
        (outside > 0 || unsampled > 0).then(|| TimeOutsideMain {
            node: contexts.main(),
            with_stack_ns: self.rate.ns(outside),
            without_stack_ns: self.rate.ns(unsampled),
        })
    }

    /// The run in the user's terms.
    pub(crate) fn resolve(&self) -> ResolvedProfile {
        let mut contexts =
            Contexts::new(self.tree, self.addresses, self.regions, self.series.is_kept());
        let (mut phases, numbers) = self.join(&mut contexts);
        let outside_main = self.outside_main(&phases, &mut contexts);
        let order = contexts.order();
        let shares: Vec<Apportionment> =
            phases.iter().map(|phase| phase.values.shares(&contexts, &order)).collect();
        let [rows, subgroup_intervals] = [self.phases.rows(), self.phases.subgroup_intervals()]
            .map(|rows| self.rows(rows, &shares, &numbers, &mut contexts, &order));
        let counters = self.counters(&phases, &mut contexts);
        let mut partition = Partition { rate: self.rate, stamps: 0 };
        let phases: Vec<PhaseProfile> = phases
            .iter_mut()
            .map(|phase| {
                let shares = phase.values.shares(&contexts, &order);
                phase.values.apportion(&shares);
                let values = phase.values.nanoseconds(&mut partition, &order);
                PhaseProfile {
                    begins_after: phase.ends.0,
                    ends_in: phase.ends.1,
                    first_index: phase.first_index,
                    last_index: phase.last_index,
                    instances: phase.instances,
                    first_begin_ns: self.rate.ns(phase.first_begin.saturating_sub(self.begin)),
                    duration_ns: values.iter().map(|(_, value)| value.exclusive_ns).sum(),
                    values,
                }
            })
            .collect();
        let times =
            self.times(self.times, |raw| contexts.node(raw).unwrap_or_else(|| contexts.main()));
        let mut threads = self.other_threads(&mut contexts);
        let partners = self.partners(&mut contexts);
        let messages = self.messages(&mut contexts);
        let mut temporal_tree = self.temporal_tree.map(|temporal_tree| {
            let (mut trees, keys) = self.to_user_terms([temporal_tree], &mut contexts);
            TemporalTreeProfile { tree: trees.remove(0), keys }
        });
        let mut loops = temporal_tree.as_ref().map_or_else(Vec::new, |it| {
            loops(&it.tree, KeyContexts { keys: &it.keys, nodes: contexts.nodes() })
        });
        let (paths, keys) =
            self.to_user_terms(self.captured.iter().map(|it| &it.path), &mut contexts);
        for (captured, path) in self.captured.iter().zip(&paths) {
            let (number, duration_ns) = (captured.number, self.rate.ns(captured.duration));
            let contexts = KeyContexts { keys: &keys, nodes: contexts.nodes() };
            add_instance(&mut loops, Instance { number, duration: duration_ns }, path, contexts);
        }
        if let Some(temporal_tree) = &mut temporal_tree {
            prune_to(&mut temporal_tree.tree, MAX_COURSE_NODES, &mut Pruned::default());
        }
        let workers = self.workers(&mut contexts);
        let mut exporter = SeriesExporter {
            tree: self.tree,
            addresses: self.addresses,
            keys: self.keys,
            contexts: &mut contexts,
            rate: self.rate,
        };
        let series = exporter.export(self.series);
        let openmp = self.openmp(&mut contexts);
        let tree = contexts.finish();
        let thread_locations =
            threads.aggregate(self.thread_accounts.aggregation(), &tree, &phases);
        ResolvedProfile {
            tree,
            phases,
            outside_main,
            rows,
            subgroup_intervals,
            series,
            times,
            other_threads: std::mem::take(&mut threads.sum),
            thread_locations,
            partners,
            counters,
            messages,
            openmp,
            temporal_tree,
            workers,
            loops,
        }
    }

    /// Returns a thread's time by bins. `node_of` returns the context of a raw context.
    fn times(
        &self,
        times: &TimeSeries,
        mut node_of: impl FnMut(RawId) -> NodeId,
    ) -> profile::TimeSeries {
        let bins = times.bins().iter().map(|bin| {
            let mut values: BTreeMap<NodeId, u64> = BTreeMap::new();
            for (raw, time) in &bin.values {
                *values.entry(node_of(*raw)).or_default() += time;
            }
            profile::TimeBin {
                values: values.iter().map(|(node, time)| (*node, self.rate.ns(*time))).collect(),
                other_work_ns: self.rate.ns(bin.other_work),
                other_calls_ns: self.rate.ns(bin.other_calls),
            }
        });
        profile::TimeSeries { width_ns: self.rate.ns(times.width()), bins: bins.collect() }
    }

    fn to_user_terms<'n>(
        &self,
        temporal_trees: impl IntoIterator<Item = &'n Node>,
        contexts: &mut Contexts<'_>,
    ) -> (Vec<Node>, Vec<TemporalTreeKey>) {
        to_user_terms(temporal_trees, self.keys, self.tree, self.addresses, contexts, self.rate)
    }

    fn workers(&self, contexts: &mut Contexts<'_>) -> WorkerProfile {
        let (trees, keys) =
            self.to_user_terms(self.workers.iter().map(|cluster| &cluster.tree), contexts);
        let mut members_of = |members: &WorkerMembers<RawId>| {
            let mut short_calls: BTreeMap<NodeId, u64> = BTreeMap::new();
            for (raw, stamps) in &members.short_calls {
                let node = contexts.node(*raw).unwrap_or_else(|| contexts.main());
                *short_calls.entry(node).or_default() += self.rate.ns(*stamps);
            }
            WorkerMembers { numbers: members.numbers.clone(), short_calls }
        };
        let cluster = |(ended, tree): (&Cluster<WorkerMembers<RawId>>, Node)| Cluster {
            members: members_of(&ended.members),
            tree,
            instances: Default::default(),
        };
        WorkerProfile { clusters: self.workers.iter().zip(trees).map(cluster).collect(), keys }
    }

    /// Merges phases with equal ends in the user's terms, except those apart. Also returns which
    /// raw phase became which.
    fn join(&self, contexts: &mut Contexts<'_>) -> (Vec<UserPhase>, Vec<u32>) {
        // The communicating thread's contexts come first, so that its outermost one is known
        // before time without a stack is given to it.
        let list = self.phases.list();
        for phase in list {
            let mut raw: Vec<_> = phase.account.values().nodes().collect();
            raw.sort_unstable();
            for raw in raw {
                contexts.node(raw);
            }
        }
        let mut joined: Vec<UserPhase> = Vec::new();
        let mut by_ends: BTreeMap<Ends, usize> = BTreeMap::new();
        let mut numbers = Vec::new();
        for phase in list {
            let mut end = |raw: Option<_>| {
                raw.map(|raw| contexts.node(raw).unwrap_or_else(|| contexts.main()))
            };
            let ends = (end(phase.begins_after), end(phase.ends_in));
            let new = joined.len();
            let number = match phase.is_apart {
                true => new,
                false => *by_ends.entry(ends).or_insert(new),
            };
            if number == new {
                joined.push(UserPhase {
                    ends,
                    first_index: phase.first_index,
                    last_index: phase.last_index,
                    first_begin: phase.first_begin,
                    instances: 0,
                    values: Values::default(),
                });
            }
            let user = &mut joined[number];
            user.instances += phase.instances;
            user.last_index = user.last_index.max(phase.last_index);
            user.values.add(&phase.account, contexts, |contexts, _| contexts.main());
            numbers.push(number as u32);
        }
        (joined, numbers)
    }

    fn rows(
        &self,
        rows: &InstanceReservoir,
        shares: &[Apportionment],
        numbers: &[u32],
        contexts: &mut Contexts<'_>,
        order: &[u32],
    ) -> InstanceRows {
        let convert = |row: &RawInstance| {
            let phase = numbers[row.phase as usize];
            let mut times: BTreeMap<NodeId, u64> = BTreeMap::new();
            for (raw, time) in row.nodes.iter().zip(&row.times) {
                let node = contexts.node(*raw).unwrap_or_else(|| contexts.main());
                *times.entry(node).or_default() += time;
            }
            for ((one, other), rest) in &row.unsampled {
                let node = contexts.between(*one, *other).unwrap_or_else(|| contexts.main());
                shares[phase as usize].split(node, *rest, |recipient, part| {
                    *times.entry(recipient).or_default() += part;
                });
            }
            let mut partition = Partition { rate: self.rate, stamps: 0 };
            let end = |raw| contexts.node(raw).unwrap_or_else(|| contexts.main());
            InstanceRow {
                subgroup: row.subgroup.map(|it| Subgroup { name: it.name, ranks: it.ranks }),
                index: row.index,
                ends_in: row.ends_in.map(end),
                phase,
                duration_ns: self.rate.ns(row.duration),
                values: {
                    let mut times: Vec<(NodeId, u64)> = times.into_iter().collect();
                    // What is only in rows, and in no phase, comes last.
                    let place = |node: NodeId| order.get(node as usize).copied();
                    times.sort_by_key(|(node, _)| (place(*node).is_none(), place(*node)));
                    for (_, time) in &mut times {
                        *time = partition.take(*time);
                    }
                    times.sort_unstable_by_key(|(node, _)| *node);
                    times
                },
            }
        };
        let mut converted: Vec<InstanceRow> = rows.instances().iter().map(convert).collect();
        converted.sort_by_key(|row| (row.subgroup, row.index));
        InstanceRows { level: rows.level(), rows: converted }
    }

    /// Messages by the contexts that the calls are booked in.
    fn partners(&self, contexts: &mut Contexts<'_>) -> Vec<PartnerValue> {
        let mut sums: BTreeMap<(NodeId, u32), PartnerMessages> = BTreeMap::new();
        for (raw, messages) in self.partners.sorted() {
            let Some(place) = contexts.place(raw) else { continue };
            let key = (place.called, messages.partner);
            sums.entry(key).or_insert(none_with(messages.partner)).add(&messages);
        }
        let value = |((node, partner), it): ((NodeId, u32), PartnerMessages)| PartnerValue {
            node,
            partner,
            sent: it.sent,
            bytes: it.bytes,
            received: it.received,
            waited_ns: self.rate.ns(it.waited),
        };
        sums.into_iter().map(value).collect()
    }

    /// Returns perf events by context.
    fn counters(&self, phases: &[UserPhase], contexts: &mut Contexts<'_>) -> CounterProfile {
        let work = phases.iter().flat_map(|phase| phase.values.work());
        let main = self.events.main.by_user_context(work, contexts, |contexts, _| contexts.main());
        let mut others: BTreeMap<NodeId, Increments> = BTreeMap::new();
        let mut routines: Vec<_> = self.events.groups.iter().collect();
        routines.sort_unstable_by_key(|(routine, _)| **routine);
        for (routine, events) in routines {
            let outside = |contexts: &mut Contexts<'_>, raw| contexts.start_routine(*routine, raw);
            let mut values = Values::default();
            for (_, account) in self.thread_accounts.iter().filter(|(it, _)| it == routine) {
                values.add(account, contexts, outside);
            }
            for (node, increments) in events.by_user_context(values.work(), contexts, outside) {
                event_counts::add(others.entry(node).or_default(), &increments);
            }
        }
        let [main, other_threads] = [main, others].map(|sums| sums.into_iter().collect());
        CounterProfile { main, other_threads, ..CounterProfile::default() }
    }

    /// Returns the exemplary messages, with times since the begin of the run.
    fn messages(&self, contexts: &mut Contexts<'_>) -> ExemplaryMessages {
        let ns = |stamp: u64| self.rate.ns(stamp.saturating_sub(self.begin));
        let kept = self.exemplars.kept().iter().filter_map(|(raw, it)| {
            Some(ExemplaryMessage {
                node: contexts.place(*raw)?.called,
                is_sent: it.is_sent,
                partner: it.partner,
                group: it.group,
                tag: it.tag,
                number: it.number,
                posted_ns: ns(it.posted),
                entered_ns: ns(it.entered),
                left_ns: ns(it.left),
                waited_ns: self.rate.ns(it.waited),
            })
        });
        ExemplaryMessages { level: self.exemplars.level(), messages: kept.collect() }
    }
}
