//! Waits for locks of OpenMP over ranks, and the calls that have the lock while others wait.

use std::cmp::Reverse;
use std::collections::BTreeMap;

use plimsoll_collector::profile::{ContextTree, LockWaitProfile, NodeId};
use serde::{Deserialize, Serialize};

use crate::owners::function_around;

/// Waits for locks on some ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LockTotals {
    /// Wait times in nanoseconds.
    waits: BTreeMap<Pair, u64>,
}

/// A call that waits, and the call that has acquired the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
struct Pair {
    waiter: NodeId,
    holder: NodeId,
}

/// Call path that has locks while others wait for them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HolderTime {
    /// Context of the call that acquires the lock.
    pub call: NodeId,
    /// Wait time of the others meanwhile.
    pub ns: u128,
}

impl LockTotals {
    /// Adds the waits of one rank. `places` are the contexts of its communicating thread and of its
    /// other threads in the totals, by node of the rank's tree.
    pub fn add_rank(&mut self, waits: &[LockWaitProfile], places: [&[Option<NodeId>]; 2]) {
        let place = |node: NodeId, is_main: bool| {
            let of = |places: &[Option<NodeId>]| places.get(node as usize).copied().flatten();
            let [own, others] = [usize::from(!is_main), usize::from(is_main)];
            of(places[own]).or_else(|| of(places[others]))
        };
        for wait in waits {
            let Some(waiter) = place(wait.node, wait.is_main) else { continue };
            // Any thread may have the lock.
            let Some(holder) = wait.holder.and_then(|holder| place(holder, false)) else {
                continue;
            };
            *self.waits.entry(Pair { waiter, holder }).or_default() += wait.waited_ns;
        }
    }

    /// Adds other ranks; `places` are their contexts here.
    pub fn combine(&mut self, other: Self, places: &[NodeId]) {
        for (Pair { waiter, holder }, ns) in other.waits {
            let pair = Pair { waiter: places[waiter as usize], holder: places[holder as usize] };
            *self.waits.entry(pair).or_default() += ns;
        }
    }

    /// Returns the holders of the locks that these calls wait for, by falling time. A function that
    /// acquires locks in several contexts may do so for its callers: it is listed once for each of
    /// the functions around it in which these contexts differ first, or only once if they differ in
    /// none. The context with the most time represents each.
    pub fn holders(
        &self,
        tree: &ContextTree,
        is_waiter: impl Fn(NodeId) -> bool,
    ) -> Vec<HolderTime> {
        let mut calls: BTreeMap<NodeId, u128> = BTreeMap::new();
        for (Pair { waiter, holder }, ns) in &self.waits {
            if is_waiter(*waiter) {
                *calls.entry(*holder).or_default() += u128::from(*ns);
            }
        }
        let mut by_function: BTreeMap<Option<u32>, Vec<HolderTime>> = BTreeMap::new();
        for (call, ns) in calls {
            let function = functions_around(tree, call).next();
            by_function.entry(function).or_default().push(HolderTime { call, ns });
        }
        let by_caller = |calls: Vec<HolderTime>| by_caller(tree, calls);
        let mut holders: Vec<HolderTime> = by_function.into_values().flat_map(by_caller).collect();
        holders.sort_by_key(falling);
        holders
    }
}

fn falling(it: &HolderTime) -> (Reverse<u128>, NodeId) {
    (Reverse(it.ns), it.call)
}

/// Returns the frames of the functions around a call, innermost first.
fn functions_around(tree: &ContextTree, call: NodeId) -> impl Iterator<Item = u32> {
    let function = |node: &NodeId| function_around(tree, *node);
    std::iter::successors(function(&call), function).map(|node| tree.nodes[node as usize].frame)
}

/// Combines the calls of one function by the innermost functions around them that differ.
fn by_caller(tree: &ContextTree, mut calls: Vec<HolderTime>) -> Vec<HolderTime> {
    calls.sort_by_key(falling);
    let paths: Vec<Vec<u32>> =
        calls.iter().map(|it| functions_around(tree, it.call).collect()).collect();
    let deepest = paths.iter().map(Vec::len).max().unwrap_or(0);
    let differ = |depth: &usize| paths.iter().any(|it| it.get(*depth) != paths[0].get(*depth));
    let depth = (0..deepest).find(differ).unwrap_or(deepest);
    let mut holders: BTreeMap<Option<u32>, HolderTime> = BTreeMap::new();
    for (it, path) in calls.iter().zip(&paths) {
        let none = HolderTime { ns: 0, ..*it };
        holders.entry(path.get(depth).copied()).or_insert(none).ns += it.ns;
    }
    holders.into_values().collect()
}
