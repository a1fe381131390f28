//! Single instances of phases, and their subgroup intervals at subgroup synchronisations, kept
//! whole: a bounded subset, equal on every rank.

use plimsoll_wire::sync_id::Subgroup;

use crate::account::{Account, Between};
use crate::profile::instance_level;
use crate::raw_tree::RawId;

/// Maximum number of instances kept.
const CAPACITY: usize = 1024;

/// Phase index of a subgroup interval while its instance has not ended.
pub(crate) const PENDING: u32 = u32::MAX;

/// The synchronisation that ends an instance, or the end of the run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct InstanceEnd {
    /// Index of the synchronisation.
    pub(crate) index: u64,
    /// Subgroup that synchronises; `None` for all ranks.
    pub(crate) subgroup: Option<Subgroup>,
    /// Context of the synchronisation; `None` at the end of the run.
    pub(crate) node: Option<RawId>,
}

/// One instance.
pub(crate) struct RawInstance {
    /// Index of the synchronisation that ends it.
    pub(crate) index: u64,
    /// Subgroup of that synchronisation; `None` for all ranks.
    pub(crate) subgroup: Option<Subgroup>,
    /// Context of that synchronisation; `None` at the end of the run.
    pub(crate) ends_in: Option<RawId>,
    /// Index of the synchronisation of all ranks that ends the instance around it; equal to `index`
    /// if `subgroup` is `None`, and only known together with the phase otherwise.
    pub(crate) instance: u64,
    /// Index of its phase; [`PENDING`] until the phase is known.
    pub(crate) phase: u32,
    /// Wall time of the instance, in stamps.
    pub(crate) duration: u64,
    /// Contexts with time in the instance.
    pub(crate) nodes: Box<[RawId]>,
    /// Time less run delay of each of `nodes`, in stamps.
    pub(crate) times: Box<[u64]>,
    /// Unsampled work of the instance, in stamps.
    pub(crate) unsampled: Box<[(Between, u64)]>,
}

impl RawInstance {
    fn bytes(&self) -> usize {
        size_of::<Self>()
            + self.nodes.len() * 12
            + self.unsampled.len() * size_of::<(Between, u64)>()
    }
}

/// The kept instances. When they are too many, every second one (by a hash of its index, which is
/// the same on every rank) is dropped.
pub(crate) struct InstanceReservoir {
    level: u32,
    rows: Vec<RawInstance>,
    bytes: usize,
    capacity_bytes: usize,
}

impl InstanceReservoir {
    /// Creates an empty table that takes at most `capacity_bytes`.
    pub(crate) fn new(capacity_bytes: usize) -> Self {
        Self { level: 0, rows: Vec::new(), bytes: 0, capacity_bytes }
    }

    /// Adds an instance if its level is kept; raises the level while the table is too large.
    pub(crate) fn insert(&mut self, end: InstanceEnd, phase: u32, account: &Account) {
        if instance_level(end.index) < self.level {
            return;
        }
        let most = account.values().iter().len();
        let (mut nodes, mut times) = (Vec::with_capacity(most), Vec::with_capacity(most));
        for (node, value) in account.values().iter() {
            if value.time > value.run_delay {
                nodes.push(node);
                times.push(value.time - value.run_delay);
            }
        }
        let row = RawInstance {
            index: end.index,
            subgroup: end.subgroup,
            ends_in: end.node,
            instance: end.index,
            phase,
            duration: account.duration(),
            nodes: nodes.into(),
            times: times.into(),
            unsampled: account
                .unsampled()
                .iter()
                .map(|(between, time)| (*between, *time))
                .collect(),
        };
        self.bytes += row.bytes();
        self.rows.push(row);
        while self.rows.len() > CAPACITY
            || (self.bytes > self.capacity_bytes && !self.rows.is_empty())
        {
            self.level += 1;
            let level = self.level;
            self.rows.retain(|row| instance_level(row.index) >= level);
            self.bytes = self.rows.iter().map(RawInstance::bytes).sum();
        }
    }

    /// Sets the phase of the subgroup intervals of the instance that has just ended, by the
    /// synchronisation with index `instance`.
    pub(crate) fn assign_phase(&mut self, phase: u32, instance: u64) {
        let pending = self.rows.iter_mut().rev().take_while(|row| row.phase == PENDING);
        pending.for_each(|row| (row.phase, row.instance) = (phase, instance));
    }

    /// Moves an instance to another phase, or its subgroup intervals.
    pub(crate) fn move_instance(&mut self, instance: u64, phase: u32) {
        let rows = self.rows.iter_mut().filter(|row| row.instance == instance);
        rows.for_each(|row| row.phase = phase);
    }

    /// Returns the lowest level that is kept.
    pub(crate) fn level(&self) -> u32 {
        self.level
    }

    /// Returns the kept instances, in the order in which they ended.
    pub(crate) fn instances(&self) -> &[RawInstance] {
        &self.rows
    }

    /// Returns the approximate memory in use, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(index: u64) -> InstanceEnd {
        InstanceEnd { index, subgroup: None, node: Some(1) }
    }

    fn instance(nodes: u32) -> Account {
        let mut account = Account::default();
        for node in 1..=nodes {
            account.pass(10);
            account.work(node, 10, 4);
        }
        account
    }

    #[test]
    fn a_full_table_keeps_exactly_the_instances_of_its_level() {
        let mut rows = InstanceReservoir::new(1 << 20);
        let account = instance(2);
        for index in 0..10_000 {
            rows.insert(end(index), 0, &account);
        }
        assert!(rows.level() >= 3 && rows.instances().len() <= CAPACITY);
        let kept: Vec<u64> = rows.instances().iter().map(|row| row.index).collect();
        let wanted: Vec<u64> =
            (0..10_000).filter(|index| instance_level(*index) >= rows.level()).collect();
        assert_eq!(kept, wanted);
        assert_eq!(rows.instances()[0].times.iter().sum::<u64>(), 12);
        assert_eq!(rows.instances()[0].duration, 20);
    }

    #[test]
    fn memory_bounds_rows_before_their_number_does() {
        let mut rows = InstanceReservoir::new(20_000);
        let account = instance(100);
        for index in 0..1000 {
            rows.insert(end(index), 0, &account);
            assert!(rows.bytes() <= 20_000);
        }
        assert!(rows.level() > 0 && !rows.instances().is_empty());
        // A row that is larger than the bound ends the keeping of rows, not the program.
        let mut rows = InstanceReservoir::new(100);
        rows.insert(end(1), 0, &account);
        assert!(rows.instances().is_empty());
    }
}
