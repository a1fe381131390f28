//! Places in parallel regions: the contexts in which the threads of a team work and wait.
//!
//! The communicating thread and the other threads have separate contexts, also where they execute
//! the same code of a region. Here both are one place.

use std::collections::BTreeMap;
use std::ops::AddAssign;

use plimsoll_calls::{self as calls, CallClass};
use plimsoll_collector::profile::{ContextTree, Frame, NodeId};

use crate::canonical::Threads;
use crate::frame_classes::{is_part, is_system};
use crate::owners::Owners;
use crate::team_times::at_or_below;
use crate::thresholds::MIN_INNER_FRACTION;
use crate::totals::Totals;

/// Work in each context and its callees, summed over ranks, in nanoseconds.
pub struct TeamWork {
    /// Work of all threads.
    all_ns: Vec<u128>,
    /// Work of the communicating thread of each rank.
    main_ns: Vec<u128>,
    /// Work of the slowest other thread of each rank; 0 if that thread is not known.
    slowest_ns: Vec<u128>,
}

impl TeamWork {
    /// Returns the work of all threads in a place.
    pub fn all_ns(&self, place: &[NodeId]) -> u128 {
        in_place(&self.all_ns, place)
    }

    /// Returns by how much one thread works longer in a place than the mean of `threads`, in
    /// nanoseconds: of the communicating and the slowest other thread, the one with more work in
    /// `function`. 0 or less if it does not.
    pub fn excess_ns(&self, place: &[NodeId], function: &[NodeId], threads: u32) -> f64 {
        let late_ns = [&self.main_ns, &self.slowest_ns]
            .into_iter()
            .max_by_key(|work_ns| in_place(work_ns, function))
            .map_or(0, |work_ns| in_place(work_ns, place));
        late_ns as f64 - self.all_ns(place) as f64 / f64::from(threads.max(1))
    }
}

fn in_place(work_ns: &[u128], place: &[NodeId]) -> u128 {
    place.iter().map(|node| work_ns[*node as usize]).sum()
}

/// Reason for which a thread waits in a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Awaited {
    /// Other threads or tasks.
    Threads,
    /// The end of a region that the thread has made.
    RegionEnd,
    /// A lock, or a critical or ordered section.
    Lock,
}

/// Returns what a thread waits for in a call; `None` if it does not wait for threads.
fn awaited(frame: &Frame) -> Option<Awaited> {
    match frame.call.and_then(calls::class)? {
        CallClass::TeamWait | CallClass::WaitPartner => Some(Awaited::Threads),
        CallClass::Region => Some(Awaited::RegionEnd),
        CallClass::TeamLock | CallClass::WaitLock => Some(Awaited::Lock),
        _ => None,
    }
}

/// Returns for each context of a tree whether a thread waits there for other threads, for the end
/// of a region or for a lock: that time is no work.
fn thread_waits(tree: &ContextTree) -> Vec<bool> {
    at_or_below(tree, |frame| awaited(frame).is_some())
}

/// Contexts of all threads by their callers.
pub struct TeamPlaces<'t> {
    totals: &'t Totals,
    callees: BTreeMap<Option<NodeId>, Vec<NodeId>>,
}

impl<'t> TeamPlaces<'t> {
    /// Sorts the contexts.
    pub fn new(totals: &'t Totals) -> Self {
        let mut callees: BTreeMap<Option<NodeId>, Vec<NodeId>> = BTreeMap::new();
        for (id, node) in (0..).zip(&totals.tree.contexts.nodes) {
            callees.entry(node.parent).or_default().push(id);
        }
        Self { totals, callees }
    }

    /// Returns the work in each context and its callees, in nanoseconds, for threads and ranks with
    /// these inclusive times.
    fn work_ns(&self, owners: &Owners, inclusive_ns: impl Fn(NodeId) -> u128) -> Vec<u128> {
        let contexts = &self.totals.tree.contexts;
        let own_ns = (0..).zip(thread_waits(contexts)).map(|(id, waits)| {
            if waits || owners.owner_of[id as usize].is_none() {
                return 0;
            }
            let callees = self.callees.get(&Some(id)).into_iter().flatten();
            let callees_ns: u128 = callees.map(|callee| inclusive_ns(*callee)).sum();
            inclusive_ns(id).saturating_sub(callees_ns)
        });
        with_callees(contexts, own_ns.collect())
    }

    /// Returns the work of the threads.
    pub fn work(&self, owners: &Owners) -> TeamWork {
        let totals = self.totals;
        let inclusive_ns = |id: NodeId| totals.nodes[id as usize].inclusive.sum;
        let is_main = |id: NodeId| totals.tree.threads[id as usize] == Threads::Main;
        TeamWork {
            all_ns: self.work_ns(owners, inclusive_ns),
            main_ns: self.work_ns(owners, |id| if is_main(id) { inclusive_ns(id) } else { 0 }),
            slowest_ns: self.work_ns(owners, |id| totals.threads.slowest_ns(id)),
        }
    }

    /// Returns the contexts with the call path of `node`: in the communicating threads and in the
    /// others.
    pub fn in_all_threads(&self, node: NodeId) -> Vec<NodeId> {
        let others = self.in_others(node).filter(|it| *it != node);
        [Some(node), others].into_iter().flatten().collect()
    }

    /// Returns the context of other threads with the call path of a context; `None` if they do not
    /// have it.
    fn in_others(&self, node: NodeId) -> Option<NodeId> {
        let contexts = &self.totals.tree.contexts;
        let wanted = &contexts.nodes[node as usize];
        let caller = match wanted.parent {
            Some(caller) => Some(self.in_others(caller)?),
            None => None,
        };
        let is_it = |id: &&NodeId| {
            let it = &contexts.nodes[**id as usize];
            self.totals.tree.threads[**id as usize] == Threads::Other
                && (it.frame, it.site) == (wanted.frame, wanted.site)
        };
        self.callees.get(&caller)?.iter().find(is_it).copied()
    }

    /// Returns the callees of the contexts of one place, by place.
    pub fn inside(&self, outer: &[NodeId]) -> Vec<Vec<NodeId>> {
        let mut places: BTreeMap<(u32, u64), Vec<NodeId>> = BTreeMap::new();
        for id in outer.iter().filter_map(|node| self.callees.get(&Some(*node))).flatten() {
            let node = &self.totals.tree.contexts.nodes[*id as usize];
            places.entry((node.frame, node.site)).or_default().push(*id);
        }
        places.into_values().collect()
    }

    /// Returns the innermost function at or below a region's outlined function that holds most of
    /// what the slowest rank's other threads work there beyond the mean of all ranks; `None` if no
    /// other thread executes the region.
    pub fn uneven_over_ranks(&self, outlined: NodeId) -> Option<NodeId> {
        let is_function = |node: &NodeId| is_function(self.totals.tree.contexts.frame_of(*node));
        let outermost = self.in_others(outlined)?;
        self.uneven_inwards(outermost, &self.excess_ns()).filter(is_function).last()
    }

    /// Returns the innermost function of the program below a context of other threads that has most
    /// of the excess there: the work of the slowest rank's threads less the mean of all ranks.
    /// Returns `None` if the excess in that function is less than `least_ns` nanoseconds.
    pub fn uneven_function(&self, outermost: NodeId, least_ns: f64) -> Option<NodeId> {
        let contexts = &self.totals.tree.contexts;
        let is_of_program = |node: &NodeId| {
            let frame = contexts.frame_of(*node);
            is_function(frame) && !frame.is_of_language() && !is_system(frame)
        };
        let excess_ns = self.excess_ns();
        let inwards = self.uneven_inwards(outermost, &excess_ns).skip(1);
        let innermost = inwards.filter(is_of_program).last()?;
        (excess_ns[innermost as usize] >= least_ns).then_some(innermost)
    }

    /// Returns a context and those inwards of it that each hold most of the excess around them.
    fn uneven_inwards(&self, outermost: NodeId, excess_ns: &[f64]) -> impl Iterator<Item = NodeId> {
        let contexts = &self.totals.tree.contexts;
        let excess_ns = |node: NodeId| excess_ns[node as usize];
        let largest = move |outer: &NodeId| {
            let callees = self.callees.get(&Some(*outer)).into_iter().flatten().copied();
            let callees = callees.filter(|callee| contexts.frame_of(*callee).call.is_none());
            let largest =
                callees.max_by(|a, b| excess_ns(*a).total_cmp(&excess_ns(*b)).then(b.cmp(a)));
            let is_most = |ns: f64| ns > 0.0 && ns >= MIN_INNER_FRACTION * excess_ns(*outer);
            largest.filter(|callee| is_most(excess_ns(*callee)))
        };
        std::iter::successors(Some(outermost), largest)
    }

    /// Returns the work in each context and its callees of the slowest rank beyond the mean of all
    /// ranks, in nanoseconds.
    fn excess_ns(&self) -> Vec<f64> {
        let totals = self.totals;
        let contexts = &totals.tree.contexts;
        let own_ns = (0..).zip(thread_waits(contexts)).map(|(id, waits)| {
            // The exclusive time of a function includes that of its parts.
            if waits || is_part(contexts.frame_of(id)) {
                return 0.0;
            }
            totals.nodes[id as usize].exclusive.imbalance(totals.job.ranks.len())
        });
        with_callees(contexts, own_ns.collect())
    }

    /// Returns the name of the call below a context in which threads wait longest for their team,
    /// for tasks or for other threads; `None` if they do not wait there. Locks are a loss of their
    /// own, and the wait for a region that is made inside of another one is a loss of the inner
    /// region only.
    pub fn longest_wait(&self, outer: NodeId) -> Option<&'t str> {
        let contexts = &self.totals.tree.contexts;
        let mut waits: BTreeMap<&str, u128> = BTreeMap::new();
        let mut inside = vec![self.in_all_threads(outer)];
        while let Some(place) = inside.pop() {
            inside.extend(self.inside(&place));
            for node in place {
                let frame = contexts.frame_of(node);
                if awaited(frame) == Some(Awaited::Threads) {
                    let ns = self.totals.nodes[node as usize].inclusive.sum;
                    *waits.entry(&frame.function).or_default() += ns;
                }
            }
        }
        waits.into_iter().max_by_key(|(_, ns)| *ns).filter(|(_, ns)| *ns > 0).map(|(name, _)| name)
    }
}

/// Returns whether a frame is a function that is no call that Plimsoll measures.
pub fn is_function(frame: &Frame) -> bool {
    frame.call.is_none() && !is_part(frame)
}

/// Returns the sum of each context's value and those of its callees.
pub fn with_callees<T: Copy + AddAssign>(tree: &ContextTree, mut values: Vec<T>) -> Vec<T> {
    for (id, node) in tree.nodes.iter().enumerate().rev() {
        if let Some(caller) = node.parent {
            let value = values[id];
            values[caller as usize] += value;
        }
    }
    values
}
