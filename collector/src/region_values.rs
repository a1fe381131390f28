//! Parallel regions of a process by raw context, the call paths that they are made from, and waits
//! for locks.

use std::collections::{BTreeMap, HashMap};

use plimsoll_wire::lengths::LengthCount;
use plimsoll_wire::lock_waits::LockWaitTotals;
use plimsoll_wire::teams::{MAX_SHARES, PathKey, RegionTotals, ShareTotals, TaskTotals};

use crate::raw_tree::RawId;

/// Maximum number of pairs of a context and a kind of thread with regions.
const MAX_VALUES: usize = 1 << 12;

/// Regions of a process.
#[derive(Debug, Default)]
pub(crate) struct RegionValues {
    values: HashMap<RegionPlace, RegionValue>,
    /// Contexts of the calls that make regions, by the names of their paths. Kept over a restart of
    /// the run: the paths stay on the stacks.
    callers: HashMap<PathKey, RawId>,
    /// Explicit tasks by the address ids of their functions.
    tasks: HashMap<u32, TaskValue>,
    /// Waits for locks by waiting call and holder, at most [`MAX_VALUES`]; the holders of further
    /// waits are unknown.
    lock_waits: HashMap<LockWaitPlace, LockWaitTotals>,
    /// Instances of regions beyond [`MAX_VALUES`], or not measured by the process.
    pub(crate) unmeasured: u64,
}

/// Context of a call that makes a region or waits for a lock, and whether the communicating thread
/// makes the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct RegionPlace {
    pub(crate) node: RawId,
    pub(crate) is_main: bool,
}

/// Waiting call, and the name of the call path that has the lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct LockWaitPlace {
    pub(crate) waiter: RegionPlace,
    pub(crate) holder: PathKey,
}

/// Instances of a region, and the shares by thread number.
#[derive(Clone, Debug, Default)]
pub(crate) struct RegionValue {
    pub(crate) totals: RegionTotals,
    pub(crate) shares: Vec<ShareTotals>,
    /// Number of instances by bucket of their duration ([`plimsoll_wire::lengths`]).
    pub(crate) lengths: BTreeMap<u32, u64>,
}

/// Executions of tasks with one function.
#[derive(Clone, Debug, Default)]
pub(crate) struct TaskValue {
    pub(crate) totals: TaskTotals,
    /// Number of executions by bucket of their duration ([`plimsoll_wire::lengths`]).
    pub(crate) lengths: BTreeMap<u32, u64>,
}

impl RegionValues {
    /// Adds the context of a call that makes regions from the path of this name.
    pub(crate) fn add_caller(&mut self, path: PathKey, node: RawId) {
        if self.callers.len() < MAX_VALUES {
            self.callers.entry(path).or_insert(node);
        }
    }

    /// Adds instances of a region.
    pub(crate) fn add(&mut self, place: RegionPlace, totals: &RegionTotals) {
        if self.values.len() >= MAX_VALUES && !self.values.contains_key(&place) {
            self.unmeasured = self.unmeasured.saturating_add(totals.instances);
            return;
        }
        let value = self.values.entry(place).or_insert_with(|| RegionValue {
            totals: RegionTotals { instances: 0, ..RegionTotals::default() },
            shares: Vec::new(),
            lengths: BTreeMap::new(),
        });
        let RegionTotals { path, function, level, .. } = *totals;
        value.totals = RegionTotals { path, function, level, ..value.totals };
        value.totals.add(totals);
    }

    /// Adds shares of a region that has been added.
    pub(crate) fn add_share(&mut self, place: RegionPlace, number: u32, totals: &ShareTotals) {
        let Some(value) = self.values.get_mut(&place) else { return };
        let number = (number as usize).min(MAX_SHARES - 1);
        if value.shares.len() <= number {
            value.shares.resize(number + 1, ShareTotals::default());
        }
        value.shares[number].add(totals);
    }

    /// Adds explicit tasks. Beyond [`MAX_VALUES`] functions, they have no function.
    pub(crate) fn add_task(&mut self, totals: &TaskTotals) {
        let function = self.known_task(totals.function);
        let sums = &mut self.tasks.entry(function).or_default().totals;
        sums.function = function;
        sums.add(totals);
    }

    /// Adds durations of explicit tasks.
    pub(crate) fn add_task_length(&mut self, function: u32, length: LengthCount) {
        let function = self.known_task(function);
        let lengths = &mut self.tasks.entry(function).or_default().lengths;
        *lengths.entry(length.bucket).or_default() += length.count;
    }

    /// Returns the function under which tasks are added.
    fn known_task(&self, function: u32) -> u32 {
        let has_room = self.tasks.contains_key(&function) || self.tasks.len() < MAX_VALUES;
        if has_room { function } else { 0 }
    }

    /// Adds durations of a region that has been added.
    pub(crate) fn add_region_length(&mut self, place: RegionPlace, length: LengthCount) {
        let Some(value) = self.values.get_mut(&place) else { return };
        *value.lengths.entry(length.bucket).or_default() += length.count;
    }

    /// Adds waits for a lock in a call.
    pub(crate) fn add_lock_wait(&mut self, waiter: RegionPlace, totals: &LockWaitTotals) {
        let place = LockWaitPlace { waiter, holder: totals.holder };
        if self.lock_waits.len() < MAX_VALUES || self.lock_waits.contains_key(&place) {
            let sums = self.lock_waits.entry(place).or_default();
            sums.holder = totals.holder;
            sums.add(totals);
        }
    }

    /// Returns the waits for locks by ascending place.
    pub(crate) fn lock_waits(&self) -> Vec<(LockWaitPlace, LockWaitTotals)> {
        let mut all: Vec<_> = self.lock_waits.iter().map(|(place, it)| (*place, *it)).collect();
        all.sort_unstable_by_key(|(place, _)| *place);
        all
    }

    /// Returns the explicit tasks by ascending function.
    pub(crate) fn tasks(&self) -> Vec<&TaskValue> {
        let mut all: Vec<&TaskValue> = self.tasks.values().collect();
        all.sort_unstable_by_key(|it| it.totals.function);
        all
    }

    /// Returns the regions by ascending place.
    pub(crate) fn sorted(&self) -> Vec<(RegionPlace, &RegionValue)> {
        let mut all: Vec<_> = self.values.iter().map(|(place, value)| (*place, value)).collect();
        all.sort_unstable_by_key(|(place, _)| *place);
        all
    }

    /// Returns the context of the call that makes the regions from the path of this name.
    pub(crate) fn caller(&self, path: PathKey) -> Option<RawId> {
        self.callers.get(&path).copied()
    }

    /// Returns the contexts of all calls that make regions.
    pub(crate) fn callers(&self) -> impl Iterator<Item = RawId> + '_ {
        self.callers.values().copied()
    }

    /// Returns the address ids of all outlined functions.
    pub(crate) fn functions(&self) -> impl Iterator<Item = u32> + '_ {
        let of_regions = self.values.values().map(|value| value.totals.function);
        of_regions.chain(self.tasks.keys().copied())
    }

    /// Discards the regions before the run.
    pub(crate) fn restart(&mut self) {
        self.values.clear();
        self.tasks.clear();
        self.lock_waits.clear();
        self.unmeasured = 0;
    }

    /// Approximate memory use in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let shares: usize = self.values.values().map(|value| value.shares.capacity()).sum();
        let each = size_of::<(RegionPlace, RegionValue)>() + 1;
        let callers = self.callers.capacity() * (size_of::<(PathKey, RawId)>() + 1);
        let tasks = self.tasks.capacity() * (size_of::<(u32, TaskValue)>() + 1);
        let lock_waits =
            self.lock_waits.capacity() * (size_of::<(LockWaitPlace, LockWaitTotals)>() + 1);
        let callers = callers + tasks + lock_waits;
        (self.values.capacity() * each + shares * size_of::<ShareTotals>() + callers) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_of_one_place_add_up() {
        let mut values = RegionValues::default();
        let place = RegionPlace { node: 3, is_main: true };
        let totals = RegionTotals {
            path: PathKey(9),
            function: 5,
            level: 1,
            threads: 2,
            instances: 4,
            max_work: 10,
            ..RegionTotals::default()
        };
        values.add_caller(totals.path, place.node);
        values.add(place, &totals);
        values.add(place, &RegionTotals { threads: 4, instances: 1, ..totals });
        values.add(RegionPlace { is_main: false, ..place }, &totals);
        let share = ShareTotals { count: 4, work: 7, ..ShareTotals::default() };
        values.add_share(place, 1, &share);
        values.add_share(place, 1, &share);
        let all = values.sorted();
        assert_eq!(all.len(), 2);
        let (_, main) = all[1];
        let sum = RegionTotals { threads: 4, instances: 5, max_work: 20, ..totals };
        assert_eq!(main.totals, sum);
        assert_eq!(
            main.shares,
            [ShareTotals::default(), ShareTotals { count: 8, work: 14, ..share }]
        );
        assert_eq!(values.caller(PathKey(9)), Some(3));
        values.restart();
        assert!(values.sorted().is_empty() && values.caller(PathKey(9)) == Some(3));
    }

    #[test]
    fn memory_is_bounded_and_nothing_is_lost_silently() {
        let mut values = RegionValues::default();
        let count = 2 * MAX_VALUES as u32;
        for node in 0..count {
            let totals = RegionTotals {
                path: PathKey(node.into()),
                instances: 1,
                ..RegionTotals::default()
            };
            values.add_caller(totals.path, node);
            values.add(RegionPlace { node, is_main: true }, &totals);
        }
        let kept: u64 = values.sorted().iter().map(|(_, value)| value.totals.instances).sum();
        assert_eq!(kept + values.unmeasured, u64::from(count));
        assert!(values.bytes() < 4 << 20);
    }
}
