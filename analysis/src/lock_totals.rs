//! Waits for locks of OpenMP over ranks, and the calls that have the lock while others wait.

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
    /// acquires locks in several contexts is represented by the one with the most time.
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
        let mut calls: Vec<HolderTime> =
            calls.into_iter().map(|(call, ns)| HolderTime { call, ns }).collect();
        let falling = |it: &HolderTime| (std::cmp::Reverse(it.ns), it.call);
        calls.sort_by_key(falling);
        let mut functions: Vec<u32> = Vec::new();
        let mut holders: Vec<HolderTime> = Vec::new();
        for it in calls {
            let function = function_around(tree, it.call).unwrap_or(it.call);
            let frame = tree.nodes[function as usize].frame;
            match functions.iter().position(|known| *known == frame) {
                Some(at) => holders[at].ns += it.ns,
                None => {
                    functions.push(frame);
                    holders.push(it);
                }
            }
        }
        holders.sort_by_key(falling);
        holders
    }
}
