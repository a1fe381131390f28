//! Threads of processes as the summary shows them.

use std::collections::BTreeMap;

use plimsoll_collector::profile::{Aggregation, Node, NodeId};

use super::{ListedProcess, LocationTimes, Role, RoleTotals, ThreadTotals};
use crate::labelling::ContextClass;
use crate::metrics::NS_PER_S;
use crate::summary::{
    KeyThreads, ProcessThreads, ThreadAggregation, ThreadDistinction, ThreadRole, ThreadTimes,
    ThreadsOfProcess,
};
use crate::summary_tree::shown_path;
use crate::thresholds::{MIN_DISTINCTION_FRACTION, MIN_INNER_FRACTION};
use crate::totals::Totals;

/// Contexts with one path, frames of the language left out.
struct CommonPlace {
    /// Index of the place around.
    outer: Option<usize>,
    nodes: Vec<NodeId>,
}

impl ThreadTotals {
    /// Returns the times of the threads in a context by role, in seconds: means over the threads of
    /// all ranks with that role. Under the aggregation `set` statistics over threads instead.
    pub fn times(&self, node: NodeId) -> impl Iterator<Item = (String, f64)> {
        let roles = self.contexts.get(&node).into_iter().flatten();
        let of_role = roles.filter_map(|(role, ns)| {
            let threads = self.roles.get(role)?.threads.max(1);
            Some((role.name(), *ns as f64 / threads as f64 / NS_PER_S))
        });
        let statistics = self.statistics.get(&node).into_iter().flat_map(|it| {
            let n = it.threads.max(1) as f64;
            let mean = it.sum.exclusive_ns as f64 / n;
            let variance = (it.squares_ns2 as f64 / n - mean * mean).max(0.0);
            [
                ("threads", it.threads as f64),
                ("mean", mean / NS_PER_S),
                ("minimum", it.minimum.exclusive_ns as f64 / NS_PER_S),
                ("maximum", it.maximum.exclusive_ns as f64 / NS_PER_S),
                ("deviation", variance.sqrt() / NS_PER_S),
            ]
        });
        of_role.chain(statistics.map(|(name, value)| (name.to_owned(), value)))
    }

    /// Returns the summary of the threads. `places` are the contexts' nodes in the summary's tree.
    pub fn shown(
        &self,
        totals: &Totals,
        context_classes: &[ContextClass],
        places: &[Option<u32>],
    ) -> ProcessThreads {
        let mut listed: Vec<&ListedProcess> = self.processes.iter().collect();
        listed.sort_by_key(|it| it.rank);
        ProcessThreads {
            aggregation: match self.aggregation.unwrap_or_default() {
                Aggregation::Sum => ThreadAggregation::Sum,
                Aggregation::Set => ThreadAggregation::Set,
                Aggregation::Key => ThreadAggregation::Key,
                Aggregation::Calltree => ThreadAggregation::Calltree,
                Aggregation::All => ThreadAggregation::All,
            },
            roles: self.roles.iter().map(|(role, totals)| shown_role(*role, totals)).collect(),
            processes: listed.into_iter().map(ListedProcess::shown).collect(),
            unlisted: self.unlisted,
            distinction: self.distinction(totals, context_classes, places),
        }
    }

    fn distinction(
        &self,
        totals: &Totals,
        context_classes: &[ContextClass],
        shown_nodes: &[Option<u32>],
    ) -> Option<ThreadDistinction> {
        self.roles.get(&Role::Fastest)?;
        let nodes = &totals.tree.contexts.nodes;
        let [slowest_ns, fastest_ns] =
            [Role::Slowest, Role::Fastest].map(|role| self.work_ns(role, nodes, context_classes));
        let places = self.common_places(totals);
        let sum_ns = |place: &CommonPlace, ns: &[f64]| -> f64 {
            place.nodes.iter().map(|node| ns[*node as usize]).sum()
        };
        let excess_ns =
            |at: usize| sum_ns(&places[at], &slowest_ns) - sum_ns(&places[at], &fastest_ns);
        let mut inner: BTreeMap<Option<usize>, Vec<usize>> = BTreeMap::new();
        for (at, place) in places.iter().enumerate() {
            inner.entry(place.outer).or_default().push(at);
        }
        let largest = |outer: Option<usize>| {
            let inner = inner.get(&outer)?.iter().copied();
            inner.max_by(|a, b| excess_ns(*a).total_cmp(&excess_ns(*b)).then(b.cmp(a)))
        };
        let is_much = |at: &usize| {
            let least_ns = MIN_DISTINCTION_FRACTION * sum_ns(&places[*at], &slowest_ns);
            excess_ns(*at) > 0.0 && excess_ns(*at) >= least_ns
        };
        let mut at = largest(None).filter(is_much)?;
        while let Some(inner) = largest(Some(at))
            .filter(|inner| excess_ns(*inner) >= MIN_INNER_FRACTION * excess_ns(at))
        {
            at = inner;
        }
        let of_slowest = |node: &&NodeId| slowest_ns[**node as usize];
        let node =
            places[at].nodes.iter().max_by(|a, b| of_slowest(a).total_cmp(&of_slowest(b)))?;
        Some(ThreadDistinction {
            node: shown_nodes[*node as usize]?,
            path: shown_path(totals, *node),
            slowest_s: sum_ns(&places[at], &slowest_ns) / NS_PER_S,
            fastest_s: sum_ns(&places[at], &fastest_ns) / NS_PER_S,
        })
    }

    /// Returns the contexts of threads by their path without frames of the language: a container's
    /// code that creates threads is on other paths for the first thread than for later ones, also
    /// in calls that the compiler inlines. Outer places come first.
    fn common_places(&self, totals: &Totals) -> Vec<CommonPlace> {
        let contexts = &totals.tree.contexts;
        let mut places: Vec<CommonPlace> = Vec::new();
        let mut by_frame: BTreeMap<(Option<usize>, u32), usize> = BTreeMap::new();
        let mut place_of: BTreeMap<NodeId, Option<usize>> = BTreeMap::new();
        for node in self.contexts.keys() {
            let Node { parent, frame, .. } = contexts.nodes[*node as usize];
            let outer = parent.and_then(|parent| place_of.get(&parent).copied().flatten());
            if contexts.frame_of(*node).is_of_language() {
                place_of.insert(*node, outer);
                continue;
            }
            let at = *by_frame.entry((outer, frame)).or_insert(places.len());
            if at == places.len() {
                places.push(CommonPlace { outer, nodes: Vec::new() });
            }
            places[at].nodes.push(*node);
            place_of.insert(*node, Some(at));
        }
        places
    }

    /// Returns the computation of a thread with a role in each context and its callees, in
    /// nanoseconds: mean over threads.
    fn work_ns(&self, role: Role, nodes: &[Node], context_classes: &[ContextClass]) -> Vec<f64> {
        let threads = self.roles.get(&role).map_or(1, |it| it.threads.max(1)) as f64;
        let mut of_callees = vec![0.0; nodes.len()];
        let mut work_ns = vec![0.0; nodes.len()];
        for (id, node) in nodes.iter().enumerate().rev() {
            let times = self.contexts.get(&(id as NodeId));
            let ns = times.and_then(|roles| roles.get(&role)).copied().unwrap_or(0) as f64;
            if context_classes[id].is_useful() {
                work_ns[id] += (ns - of_callees[id]) / threads;
            }
            if let Some(parent) = node.parent {
                of_callees[parent as usize] += ns;
                work_ns[parent as usize] += work_ns[id];
            }
        }
        work_ns
    }
}

impl Role {
    fn name(self) -> String {
        match self {
            Self::Initial => "initial".to_owned(),
            Self::Slowest => "slowest".to_owned(),
            Self::Fastest => "fastest".to_owned(),
            Self::Class(number) => format!("class {number}"),
            Self::Thread(number) => format!("thread {number}"),
            Self::Rest => "rest".to_owned(),
        }
    }
}

impl LocationTimes {
    fn shown(&self) -> ThreadTimes {
        let mean_s = |ns: u64| ns as f64 / self.threads.max(1) as f64 / NS_PER_S;
        ThreadTimes {
            number: self.number,
            threads: self.threads,
            work_s: mean_s(self.work_ns),
            time_s: mean_s(self.time_ns),
        }
    }
}

impl ListedProcess {
    fn shown(&self) -> ThreadsOfProcess {
        let one =
            |role: Role| self.locations.iter().find(|it| it.role == role).map(LocationTimes::shown);
        let key = one(Role::Initial).zip(one(Role::Slowest)).map(|(initial, slowest)| KeyThreads {
            initial,
            slowest,
            fastest: one(Role::Fastest),
            rest: one(Role::Rest),
        });
        let others = self.locations.iter().filter(|it| it.role != Role::Initial);
        let classes = others.map(LocationTimes::shown).collect();
        ThreadsOfProcess {
            rank: self.rank,
            threads: self.threads,
            classes: key.is_none().then_some(classes),
            key,
        }
    }
}

fn shown_role(role: Role, totals: &RoleTotals) -> ThreadRole {
    let mean_s = |ns: u128| ns as f64 / totals.threads.max(1) as f64 / NS_PER_S;
    let of_ranks = totals.of_ranks.finalize(totals.of_ranks.ranks);
    ThreadRole {
        role: role.name(),
        ranks: totals.ranks.to_string(),
        threads: totals.threads,
        work_s: mean_s(totals.work_ns),
        min_work_s: of_ranks.min_s,
        max_work_s: of_ranks.max_s,
        time_s: mean_s(totals.time_ns),
    }
}
