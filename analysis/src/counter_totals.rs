//! perf events over ranks: accumulated, combined, and finalised together with the metrics derived
//! from their sums (SC10, Algorithm 1).

use std::collections::BTreeMap;

use plimsoll_collector::profile::{CounterProfile, MAX_EVENTS, NodeId};
use serde::{Deserialize, Serialize};

use crate::map_merge::{merge, moved};
use crate::metrics::{Accumulator, NS_PER_S};
use crate::rank::Rank;
use crate::ranks::RankSet;
use crate::summary::{
    ContextCounters, CountStatistics, CountedEvent, Counters, EventStatistics, MetricValues,
    RunMetric,
};
use crate::times::rolled_up;
use plimsoll_summary::derived_metric::{DerivedMetric, SECONDS, variable_of};

/// Number of an event in one context.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextCount {
    /// In the context and its callees.
    pub inclusive: Accumulator,
    /// In the context itself.
    pub exclusive: Accumulator,
}

/// An event over ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct EventTotals {
    /// Number over all ranks and threads.
    total: u128,
    /// Ranks that counted the event.
    counted: RankSet,
    /// Ranks on which the kernel refused to count the event, by error number (errno(3)).
    refused: BTreeMap<u32, RankSet>,
    contexts: BTreeMap<NodeId, ContextCount>,
}

/// Events of some ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterTotals {
    events: BTreeMap<String, EventTotals>,
    uncounted_ns: u64,
    uncounted_threads: u64,
}

impl CounterTotals {
    /// Adds one rank. `places` are the contexts of its communicating thread and of its other
    /// threads in the totals, by node of the rank's tree.
    pub fn add_rank(&mut self, rank: &Rank<'_>, places: [&[Option<NodeId>]; 2]) {
        let counters: &CounterProfile = &rank.input.profile.counters;
        let number = RankSet::from_iter([rank.input.rank]);
        for (index, event) in counters.events.iter().enumerate().take(MAX_EVENTS) {
            let totals = self.events.entry(event.name.clone()).or_default();
            let ranks = match event.refused {
                Some(error) => totals.refused.entry(error).or_default(),
                None => &mut totals.counted,
            };
            *ranks = ranks.union(&number);
            if event.refused.is_some() {
                continue;
            }
            for (values, places) in
                [&counters.main, &counters.other_threads].into_iter().zip(places)
            {
                let tree = &rank.input.profile.tree;
                let mut own: Vec<u64> = vec![0; tree.nodes.len()];
                for (node, increments) in values {
                    let own = &mut own[*node as usize];
                    *own = own.saturating_add(increments[index]);
                }
                totals.total += own.iter().map(|count| u128::from(*count)).sum::<u128>();
                let (inclusive, exclusive) = rolled_up(tree, &own);
                for (node, place) in places.iter().enumerate() {
                    let Some(place) = place.filter(|_| inclusive[node] > 0) else { continue };
                    let context = totals.contexts.entry(place).or_default();
                    context.inclusive.accumulate(inclusive[node]);
                    if exclusive[node] > 0 {
                        context.exclusive.accumulate(exclusive[node]);
                    }
                }
            }
        }
        self.uncounted_ns = self.uncounted_ns.saturating_add(counters.uncounted_ns);
        self.uncounted_threads += counters.uncounted_threads;
    }

    /// Adds other ranks; `places` are their contexts here.
    pub fn combine(&mut self, other: Self, places: &[NodeId]) {
        merge(&mut self.events, other.events, |ours, theirs| {
            ours.total = ours.total.saturating_add(theirs.total);
            ours.counted = ours.counted.union(&theirs.counted);
            merge(&mut ours.refused, theirs.refused, |ours, ranks| *ours = ours.union(&ranks));
            merge(&mut ours.contexts, moved(theirs.contexts, places), |ours, theirs| {
                ours.inclusive.combine(&theirs.inclusive);
                ours.exclusive.combine(&theirs.exclusive);
            });
        });
        self.uncounted_ns = self.uncounted_ns.saturating_add(other.uncounted_ns);
        self.uncounted_threads += other.uncounted_threads;
    }

    /// Returns the names of the events that some rank counted.
    pub fn counted_events(&self) -> Vec<String> {
        let counted = self.events.iter().filter(|(_, event)| !event.counted.is_empty());
        counted.map(|(name, _)| name.clone()).collect()
    }

    /// Returns the names of the events that all of these ranks counted.
    pub fn counted_by(&self, ranks: &RankSet) -> Vec<String> {
        let counted = self.events.iter().filter(|(_, event)| event.counted == *ranks);
        counted.map(|(name, _)| name.clone()).collect()
    }

    /// Returns the contexts in which an event occurred.
    pub fn contexts_of(&self, event: &str) -> impl Iterator<Item = (NodeId, &ContextCount)> {
        let contexts = self.events.get(event).into_iter().flat_map(|event| &event.contexts);
        contexts.map(|(node, count)| (*node, count))
    }

    /// Returns the number of an event in a context; `None` if the event was not counted or did not
    /// occur there.
    pub fn count(&self, event: &str, node: NodeId) -> Option<&ContextCount> {
        self.events.get(event)?.contexts.get(&node)
    }

    /// Returns each event with its number in a context itself, summed over ranks.
    pub fn exclusive_sums(&self, node: NodeId) -> impl Iterator<Item = (&str, f64)> {
        self.events.iter().filter_map(move |(name, event)| {
            let sum = event.contexts.get(&node)?.exclusive.sum;
            (sum > 0).then_some((name.as_str(), sum as f64))
        })
    }

    /// Returns the counters of the summary. `places` are the contexts in the summary's tree,
    /// `definitions` the user's metrics, `ranks` the number of ranks, and `seconds` the wall time
    /// of a context, inclusive and exclusive, summed over ranks.
    pub fn conclude(
        &self,
        places: &[Option<u32>],
        definitions: Option<&str>,
        ranks: u32,
        seconds: impl Fn(Option<NodeId>) -> [f64; 2],
    ) -> Counters {
        let metrics = self.metrics(definitions);
        let of_run = |name: &str| match name {
            SECONDS => Some(seconds(None)[0]),
            _ => self.counted(name).map(|event| event.total as f64),
        };
        let shown = places.iter().enumerate();
        let contexts = shown.filter_map(|(node, place)| {
            let times = seconds(Some(node as NodeId));
            self.of_context(node as NodeId, (*place)?, (&metrics, ranks, times))
        });
        Counters {
            events: self.events.iter().map(|(name, event)| event.shown(name)).collect(),
            estimated_s: self.uncounted_ns as f64 / NS_PER_S,
            uncounted_threads: self.uncounted_threads,
            contexts: contexts.collect(),
            metrics: metrics
                .iter()
                .map(|metric| RunMetric {
                    name: metric.name.clone(),
                    expression: metric.expression.clone(),
                    value: metric.value(of_run),
                })
                .collect(),
        }
    }

    fn of_context(
        &self,
        node: NodeId,
        place: u32,
        (metrics, ranks, seconds): (&[DerivedMetric], u32, [f64; 2]),
    ) -> Option<ContextCounters> {
        let statistics = |event: &EventTotals| {
            let count = event.contexts.get(&node)?;
            Some(EventStatistics {
                inclusive: finalized(&count.inclusive, ranks),
                exclusive: finalized(&count.exclusive, ranks),
            })
        };
        let events = self.events.iter();
        let events: BTreeMap<String, EventStatistics> =
            events.filter_map(|(name, event)| Some((name.clone(), statistics(event)?))).collect();
        if events.is_empty() {
            return None;
        }
        // An event that was counted and did not occur here is 0.
        let sum = |name: &str, of: fn(&ContextCount) -> &Accumulator, seconds: f64| match name {
            SECONDS => Some(seconds),
            _ => {
                let context = self.counted(name)?.contexts.get(&node);
                Some(context.map_or(0.0, |count| of(count).sum as f64))
            }
        };
        let values = |metric: &DerivedMetric| MetricValues {
            inclusive: metric.value(|name| sum(name, |count| &count.inclusive, seconds[0])),
            exclusive: metric.value(|name| sum(name, |count| &count.exclusive, seconds[1])),
        };
        let metrics = metrics.iter().map(|metric| (metric.name.clone(), values(metric))).collect();
        Some(ContextCounters { node: place, events, metrics })
    }

    /// Returns an event that some rank counted, by its name in expressions, in upper or lower case.
    fn counted(&self, variable: &str) -> Option<&EventTotals> {
        let mut events = self.events.iter().filter(|(_, event)| !event.counted.is_empty());
        let is_meant = |name: &str| variable_of(name).eq_ignore_ascii_case(variable);
        events.find(|(name, _)| is_meant(name)).map(|(_, event)| event)
    }

    /// Returns the user's metrics, or IPC where its events are counted and the user has none.
    fn metrics(&self, definitions: Option<&str>) -> Vec<DerivedMetric> {
        match definitions {
            // A job's definitions were valid when it began.
            Some(list) => DerivedMetric::parse_list(list).unwrap_or_default(),
            None => {
                let ipc = DerivedMetric::default_ipc().into_iter();
                let is_counted = |name: &String| self.counted(name).is_some();
                ipc.filter(|ipc| ipc.variables().iter().all(is_counted)).collect()
            }
        }
    }

    /// Returns a sentence for each thing that was not counted as asked.
    pub fn notes(&self, definitions: Option<&str>) -> Vec<String> {
        let mut notes: Vec<String> = Vec::new();
        for (name, event) in &self.events {
            notes.extend(event.refused.iter().map(|(error, ranks)| {
                format!("{name} is not counted on rank {ranks}: {}.", reason(*error))
            }));
        }
        if self.events.is_empty() {
            return notes;
        }
        if self.uncounted_ns > 0 {
            notes.push(format!(
                "Hardware events shared the processor's counters (multiplexing): for {:.1} s, \
                 summed over all threads, their numbers are estimates.",
                self.uncounted_ns as f64 / NS_PER_S
            ));
        }
        if self.uncounted_threads > 0 {
            notes.push(format!(
                "The events of {} threads were not counted, or not to their end: the limit on \
                 open files is too low, or the program has closed their descriptors.",
                self.uncounted_threads
            ));
        }
        for metric in self.metrics(definitions) {
            let unknown = |name: &&String| name.as_str() != SECONDS && self.counted(name).is_none();
            if let Some(name) = metric.variables().iter().find(unknown) {
                let metric = &metric.name;
                notes.push(format!(
                    "The metric {metric} has no value: PLIMSOLL_COUNTERS has no counted event \
                    {name}."
                ));
            }
        }
        notes
    }
}

impl EventTotals {
    fn shown(&self, name: &str) -> CountedEvent {
        let refusals = self.refused.iter();
        let refusals: Vec<String> =
            refusals.map(|(error, ranks)| format!("{} (rank {ranks})", reason(*error))).collect();
        CountedEvent {
            name: name.to_owned(),
            total: (!self.counted.is_empty()).then_some(self.total as f64),
            ranks: self.counted.to_string(),
            refused: (!refusals.is_empty()).then(|| refusals.join("; ")),
        }
    }
}

/// Returns the reason of a refusal (perf_event_open(2), errors), as the end of a sentence.
fn reason(error: u32) -> String {
    match error.cast_signed() {
        libc::ENOENT | libc::EOPNOTSUPP => "this machine has no such hardware counter".into(),
        libc::EACCES | libc::EPERM => {
            "the kernel does not allow it (kernel.perf_event_paranoid, or a container's filter)"
                .into()
        }
        libc::EINVAL | libc::ENOSPC => {
            "the processor cannot count it together with the other events".into()
        }
        libc::EMFILE | libc::ENFILE => "the limit on open files is too low".into(),
        libc::ENOSYS => "the kernel has no perf events".into(),
        error => std::io::Error::from_raw_os_error(error).to_string(),
    }
}

fn finalized(values: &Accumulator, ranks: u32) -> CountStatistics {
    CountStatistics {
        sum: values.sum as f64,
        mean: values.mean(ranks),
        min: values.min(ranks) as f64,
        max: values.max as f64,
        stddev: values.variance(ranks).sqrt(),
        ranks: values.ranks,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn expressions_name_events_in_upper_or_lower_case() {
        let event = EventTotals { total: 3, counted: [0].into_iter().collect(), ..<_>::default() };
        let events = [("LLC-load-misses".to_owned(), event)].into();
        let totals = CounterTotals { events, ..CounterTotals::default() };
        for name in ["LLC_load_misses", "llc_load_misses"] {
            assert_eq!(totals.counted(name).map(|event| event.total), Some(3), "{name}");
        }
        assert!(totals.counted("LLC_loads").is_none());
    }
}
