//! perf events by raw context. The increments of an interval are apportioned among the contexts
//! that its time is charged to, in proportion to that time, so that events belong to call paths by
//! the same rule as time, and no increment is lost.

use std::collections::{BTreeMap, BTreeSet};

use plimsoll_wire::increments::{Counts, MAX_EVENTS};

use crate::account::Between;
use crate::apportionment::Apportionment;
use crate::contexts::Contexts;
use crate::profile::NodeId;
use crate::raw_tree::{IdMap, RawId};

/// Increment of each event.
pub(crate) type Increments = [u64; MAX_EVENTS];

/// Adds increments, saturating.
pub(crate) fn add(sum: &mut Increments, other: &Increments) {
    for (sum, value) in sum.iter_mut().zip(other) {
        *sum = sum.saturating_add(*value);
    }
}

/// Events of some threads by context.
#[derive(Debug, Default)]
pub(crate) struct EventCounts {
    /// Events of contexts with sampled or measured time.
    pub(crate) values: IdMap<RawId, Increments>,
    /// Events in unsampled work, by the pair of contexts that it lies between.
    pub(crate) unsampled: IdMap<Between, Increments>,
}

impl EventCounts {
    fn bytes(&self) -> u64 {
        let entry = size_of::<(Between, Increments)>() as u64;
        (self.values.capacity() + self.unsampled.capacity()) as u64 * entry
    }

    /// Returns the events by the user's contexts, each event in exactly one. `work` is the sampled
    /// work of the threads, and `outside` returns the context for the events of a raw context
    /// outside all of the user's.
    /// Events in unsampled work are shared out as its time is, but over the whole run.
    pub(crate) fn by_user_context<'c>(
        &self,
        work: impl Iterator<Item = (NodeId, u64)>,
        contexts: &mut Contexts<'c>,
        outside: impl Fn(&mut Contexts<'c>, RawId) -> NodeId,
    ) -> BTreeMap<NodeId, Increments> {
        let mut sums: BTreeMap<NodeId, Increments> = BTreeMap::new();
        // In order, so that the same records give the same tree.
        let mut known: Vec<_> = self.values.iter().collect();
        known.sort_unstable_by_key(|(raw, _)| **raw);
        for (raw, increments) in known {
            let node = contexts.node(*raw).unwrap_or_else(|| outside(contexts, *raw));
            add(sums.entry(node).or_default(), increments);
        }
        let mut unsampled: BTreeMap<NodeId, Increments> = BTreeMap::new();
        let mut by_pair: Vec<_> = self.unsampled.iter().collect();
        by_pair.sort_unstable_by_key(|(between, _)| **between);
        for ((one, other), increments) in by_pair {
            let node = contexts.between(*one, *other).unwrap_or_else(|| outside(contexts, *one));
            add(unsampled.entry(node).or_default(), increments);
        }
        let mut worked: BTreeMap<NodeId, u64> = BTreeMap::new();
        for (node, stamps) in work {
            *worked.entry(node).or_default() += stamps;
        }
        let nodes: BTreeSet<NodeId> = unsampled.keys().copied().collect();
        let shares = Apportionment::new(contexts.nodes(), &nodes, worked.into_iter());
        for (node, increments) in unsampled {
            for (event, count) in increments.into_iter().enumerate().filter(|(_, it)| *it > 0) {
                shares.split(node, count, |recipient, part| {
                    sums.entry(recipient).or_default()[event] += part;
                });
            }
        }
        sums
    }

    fn add(&mut self, context: Context, increments: &Increments) {
        match context {
            Context::Known(node) => add(self.values.entry(node).or_default(), increments),
            Context::Between(between) => {
                add(self.unsampled.entry(between).or_default(), increments)
            }
        }
    }
}

/// Context that time is charged to.
#[derive(Clone, Copy, Debug)]
enum Context {
    Known(RawId),
    Between(Between),
}

/// A part of the time of an interval.
#[derive(Clone, Copy, Debug)]
struct Charge {
    context: Context,
    /// Whether it is the time in the wrapped call at the end of the interval.
    in_call: bool,
    stamps: u64,
}

/// Increments since the last timed record of a thread: before the wrapped call at the end of the
/// interval, and in it.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Uncharged {
    before: Counts,
    in_call: Counts,
}

impl Uncharged {
    /// Adds the increments of a record.
    pub(crate) fn add(&mut self, in_call: bool, counts: &Counts) {
        if in_call { &mut self.in_call } else { &mut self.before }.add(counts);
    }

    /// Returns whether there are no increments.
    pub(crate) fn is_none(&self) -> bool {
        self.before.is_none() && self.in_call.is_none()
    }
}

/// Events of all threads of a process.
#[derive(Debug, Default)]
pub(crate) struct ProcessEvents {
    /// Events of the communicating thread.
    pub(crate) main: EventCounts,
    /// Events of the other threads, by the address id of their start routine.
    pub(crate) groups: IdMap<u32, EventCounts>,
    /// Time in which the hardware events of all threads had no counter, in nanoseconds.
    pub(crate) uncounted_ns: u64,
    /// Charges of the interval that is being closed.
    charges: Vec<Charge>,
    /// Whether charges are noted.
    is_noting: bool,
    /// Address id of the start routine of the thread that is replayed; `None` for the communicating
    /// thread.
    routine: Option<u32>,
}

impl ProcessEvents {
    /// Discards all events.
    pub(crate) fn restart(&mut self) {
        *self = Self::default();
    }

    /// Returns the approximate memory use in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.main.bytes() + self.groups.values().map(EventCounts::bytes).sum::<u64>()
    }

    /// Charges the next records to the threads with this start routine; `None` means the
    /// communicating thread.
    pub(crate) fn of_thread(&mut self, routine: Option<u32>) {
        self.routine = routine;
    }

    /// Begins to note the charges of an interval.
    pub(crate) fn begin(&mut self) {
        self.charges.clear();
        self.is_noting = true;
    }

    /// Notes time of a context.
    pub(crate) fn charge(&mut self, node: RawId, stamps: u64, in_call: bool) {
        if self.is_noting && stamps > 0 {
            self.charges.push(Charge { context: Context::Known(node), in_call, stamps });
        }
    }

    /// Notes time that no sample covers.
    pub(crate) fn charge_rest(&mut self, between: Between, stamps: u64) {
        if self.is_noting && stamps > 0 {
            let context = Context::Between(between);
            self.charges.push(Charge { context, in_call: false, stamps });
        }
    }

    /// Apportions increments among the noted charges. Increments of an interval without any charge
    /// are dropped: the measurement was paused, or the run had not begun.
    pub(crate) fn settle(&mut self, uncharged: &Uncharged) {
        self.is_noting = false;
        let charges = std::mem::take(&mut self.charges);
        if !charges.is_empty() {
            let Uncharged { before, in_call } = uncharged;
            for (counts, in_call) in [(before, false), (in_call, true)] {
                self.uncounted_ns = self.uncounted_ns.saturating_add(counts.uncounted_ns);
                // Both kinds of charge exist only if the record has both: the others take all.
                let own = charges.iter().any(|charge| charge.in_call == in_call);
                let takes = |charge: &&Charge| !own || charge.in_call == in_call;
                self.apportion(charges.iter().filter(takes), &counts.values);
            }
        }
        self.charges = charges;
    }

    fn apportion<'c>(
        &mut self,
        charges: impl Iterator<Item = &'c Charge> + Clone,
        values: &Increments,
    ) {
        let total: u128 = charges.clone().map(|charge| u128::from(charge.stamps)).sum();
        if total == 0 || values.iter().all(|value| *value == 0) {
            return;
        }
        let events = match self.routine {
            None => &mut self.main,
            Some(routine) => self.groups.entry(routine).or_default(),
        };
        let (mut stamps, mut given) = (0u128, [0; MAX_EVENTS]);
        for charge in charges {
            stamps += u128::from(charge.stamps);
            let until = values.map(|value| (u128::from(value) * stamps / total) as u64);
            events.add(charge.context, &std::array::from_fn(|at| until[at] - given[at]));
            given = until;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn counts(first: u64, second: u64) -> Counts {
        let mut counts = Counts::NONE;
        counts.values[..2].copy_from_slice(&[first, second]);
        counts
    }

    #[test]
    fn increments_follow_time_and_none_is_lost() {
        let mut events = ProcessEvents::default();
        let mut uncharged = Uncharged::default();
        uncharged.add(false, &counts(10, 1));
        uncharged.add(true, &counts(3, 5));
        events.begin();
        events.charge(1, 20, false);
        events.charge_rest((2, 3), 10);
        events.charge(4, 70, true);
        events.charge(5, 0, true);
        events.settle(&uncharged);
        events.charge(6, 1, false);
        let main = &events.main;
        assert_eq!(main.values[&1][..2], [6, 0]);
        assert_eq!(main.unsampled[&(2, 3)][..2], [4, 1]);
        assert_eq!(main.values[&4][..2], [3, 5]);
        assert_eq!(main.values.len(), 2);
    }

    #[test]
    fn without_time_in_a_call_its_increments_are_the_work_s_and_without_time_nobody_s() {
        let mut events = ProcessEvents::default();
        let mut uncharged = Uncharged::default();
        uncharged.add(true, &counts(7, 0));
        events.of_thread(Some(9));
        events.begin();
        events.charge(1, 5, false);
        events.settle(&uncharged);
        assert_eq!(events.groups[&9].values[&1][0], 7);
        events.begin();
        events.settle(&uncharged);
        assert_eq!(events.groups[&9].values[&1][0], 7);
        assert!(events.main.values.is_empty());
    }
}
