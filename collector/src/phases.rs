//! The phases of the thread that communicates: its run, cut at the global synchronisations
//! (PPoPP20, 4.2). A phase is named by the call paths where it begins and ends; it recurs.
//!
//! Synchronisations of subgroups, such as the rows of a grid, delimit no phase. They divide the
//! work of their members: the slow rank may change from one to the next, and all members wait for
//! it. An instance is therefore divided there into *subgroup intervals*; some of them are kept
//! whole as well.
//!
//! The synchronisations are measured. Without measured calls, the run is one phase here, and
//! [`crate::sample_series`] keeps the data by which the analysis finds phases.

use plimsoll_wire::sync_id::is_followed;

use crate::account::Account;
use crate::instance_reservoir::{InstanceEnd, InstanceReservoir, PENDING};
use crate::raw_tree::{IdMap, RawId};
use crate::replay_target::CompletedSync;
use crate::sync_returns::SyncReturns;

/// All instances of one phase.
pub(crate) struct Phase {
    /// Synchronisation after which it begins.
    pub(crate) begins_after: Option<RawId>,
    /// Synchronisation that ends it.
    pub(crate) ends_in: Option<RawId>,
    /// Index of the synchronisation that ends its first instance.
    pub(crate) first_index: u64,
    /// Index of the one that ends its last instance so far.
    pub(crate) last_index: u64,
    /// Number of instances.
    pub(crate) instances: u64,
    /// Stamp of the begin of its first instance.
    pub(crate) first_begin: u64,
    /// Values of all instances.
    pub(crate) account: Account,
}

/// The run so far.
pub(crate) struct Phases {
    /// The running instance, since the last synchronisation of any ranks.
    pub(crate) open: Account,
    /// The subgroup intervals of it that have ended.
    divided: Account,
    list: Vec<Phase>,
    /// By the places where they begin and end, as one number.
    by_sites: IdMap<u64, u32>,
    rows: InstanceReservoir,
    subgroup_intervals: InstanceReservoir,
    sync_returns: SyncReturns,
    begin: u64,
    after: Option<RawId>,
    next_index: u64,
    /// Records were lost in the running instance, and in its running subgroup interval.
    gap: bool,
    division_gap: bool,
    syncs: u64,
}

impl Phases {
    /// Creates the phases of a run that begins at stamp `begin`. Keeps at most `row_bytes` of
    /// instances whole, and half as many bytes of subgroup intervals.
    pub(crate) fn new(begin: u64, row_bytes: usize) -> Self {
        Self {
            open: Account::default(),
            divided: Account::default(),
            list: Vec::new(),
            by_sites: IdMap::default(),
            rows: InstanceReservoir::new(row_bytes),
            subgroup_intervals: InstanceReservoir::new(row_bytes / 2),
            sync_returns: SyncReturns::default(),
            begin,
            after: None,
            next_index: 0,
            gap: false,
            division_gap: false,
            syncs: 0,
        }
    }

    /// Restarts the run at another stamp: discards everything but the numbers of synchronisations.
    pub(crate) fn restart(&mut self, begin: u64, row_bytes: usize) {
        let (next_index, gap, division_gap) = (self.next_index, self.gap, self.division_gap);
        *self = Self { next_index, gap, division_gap, ..Self::new(begin, row_bytes) };
    }

    /// Returns the number of synchronisations.
    pub(crate) fn syncs(&self) -> u64 {
        self.syncs
    }

    /// Ends the open instance, or a subgroup interval of it, at the return of a synchronisation.
    pub(crate) fn synchronise(&mut self, sync: CompletedSync) {
        if sync.subgroup.is_some() {
            self.divide(sync);
            return;
        }
        // Without a gap, what lies between was completed after this one, and delimits nothing.
        let missing = std::mem::take(&mut self.gap) && sync.index != self.next_index;
        self.next_index = sync.index.saturating_add(1);
        let division_gap = std::mem::take(&mut self.division_gap);
        if !sync.counted {
            return;
        }
        self.syncs += 1;
        if !sync.is_completion {
            // A nonblocking one may have let go earlier.
            self.sync_returns.insert(sync.index, sync.stamp);
        }
        // An instance that spans lost synchronisations is not the same on the other ranks.
        self.fold(Some(sync.node), sync.index, !missing, !division_gap);
        self.after = Some(sync.node);
        self.begin = sync.stamp;
    }

    /// Ends a subgroup interval at the synchronisation of a subgroup.
    fn divide(&mut self, sync: CompletedSync) {
        let whole = !std::mem::take(&mut self.division_gap);
        if !sync.counted {
            return;
        }
        // An empty interval has no values and, at the end of the run, no instance either.
        if whole && is_followed(sync.index) && !self.open.is_empty() {
            let end =
                InstanceEnd { index: sync.index, subgroup: sync.subgroup, node: Some(sync.node) };
            self.subgroup_intervals.insert(end, PENDING, &self.open);
        }
        self.divided.absorb(&mut self.open);
    }

    /// Records were lost in the running instance: if no synchronisation follows that tells by its
    /// index, the instance may be more than one.
    pub(crate) fn mark_gap(&mut self) {
        self.gap = true;
        self.division_gap = true;
    }

    /// Ends the run: the time after the last synchronisation is a phase, too.
    pub(crate) fn end(&mut self) {
        if !self.open.is_empty() || !self.divided.is_empty() || self.list.is_empty() {
            self.fold(None, self.next_index, !self.gap, !self.division_gap);
        }
    }

    /// Returns all phases, by first end.
    pub(crate) fn list(&self) -> &[Phase] {
        &self.list
    }

    /// Returns the time in which the measurement was paused, also after the last phase.
    pub(crate) fn paused(&self) -> u64 {
        let phases: u64 = self.list.iter().map(|phase| phase.account.paused()).sum();
        phases + self.divided.paused() + self.open.paused()
    }

    /// Returns single instances.
    pub(crate) fn rows(&self) -> &InstanceReservoir {
        &self.rows
    }

    /// Returns single subgroup intervals.
    pub(crate) fn subgroup_intervals(&self) -> &InstanceReservoir {
        &self.subgroup_intervals
    }

    /// Returns the return times of synchronisations.
    pub(crate) fn sync_returns(&self) -> &SyncReturns {
        &self.sync_returns
    }

    /// Returns the memory in use, roughly.
    pub(crate) fn bytes(&self) -> u64 {
        let phases: u64 = self.list.iter().map(|phase| phase.account.bytes()).sum();
        let rows = self.rows.bytes() + self.subgroup_intervals.bytes();
        phases + self.open.bytes() + self.divided.bytes() + rows + self.sync_returns.bytes()
    }

    fn fold(&mut self, ends_in: Option<RawId>, index: u64, whole: bool, division_whole: bool) {
        let end = InstanceEnd { index, subgroup: None, node: ends_in };
        if !self.divided.is_empty() {
            if division_whole {
                self.subgroup_intervals.insert(end, PENDING, &self.open);
            }
            self.divided.absorb(&mut self.open);
            std::mem::swap(&mut self.divided, &mut self.open);
        }
        let site = |node: Option<RawId>| node.map_or(0, |node| u64::from(node) + 1);
        let list = &mut self.list;
        let (begins_after, begin) = (self.after, self.begin);
        let number =
            *self.by_sites.entry(site(begins_after) << 32 | site(ends_in)).or_insert_with(|| {
                list.push(Phase {
                    begins_after,
                    ends_in,
                    first_index: index,
                    last_index: index,
                    instances: 0,
                    first_begin: begin,
                    account: Account::default(),
                });
                list.len() as u32 - 1
            });
        if whole {
            self.rows.insert(end, number, &self.open);
        }
        self.subgroup_intervals.assign_phase(number);
        let phase = &mut self.list[number as usize];
        phase.instances += 1;
        phase.last_index = index;
        phase.account.absorb(&mut self.open);
    }
}

#[cfg(test)]
mod tests {
    use plimsoll_wire::sync_id::Subgroup;

    use super::*;

    fn sync(index: u64, node: RawId) -> CompletedSync {
        CompletedSync {
            subgroup: None,
            index,
            node,
            stamp: 100 * (index + 1),
            is_completion: false,
            counted: true,
        }
    }

    #[test]
    fn phases_recur_by_the_places_of_their_ends() {
        let mut phases = Phases::new(0, 1 << 20);
        for index in 0..10 {
            phases.open.pass(7);
            phases.open.work(3, 7, 0);
            phases.synchronise(sync(index, 5 + (index % 2) as RawId));
        }
        phases.end();
        let found: Vec<_> = phases
            .list()
            .iter()
            .map(|p| (p.begins_after, p.ends_in, p.first_index, p.instances, p.account.duration()))
            .collect();
        assert_eq!(
            found,
            [(None, Some(5), 0, 1, 7), (Some(5), Some(6), 1, 5, 35), (Some(6), Some(5), 2, 4, 28)]
        );
        assert_eq!(phases.list()[1].first_begin, 100);
        assert_eq!(phases.rows().instances().len(), 10);
    }

    #[test]
    fn an_instance_with_a_gap_is_counted_but_not_kept() {
        let mut phases = Phases::new(0, 1 << 20);
        phases.synchronise(sync(0, 5));
        phases.mark_gap();
        phases.synchronise(sync(3, 5));
        phases.mark_gap();
        phases.synchronise(sync(4, 5));
        phases.mark_gap();
        phases.open.pass(1);
        phases.end();
        let kept: Vec<u64> = phases.rows().instances().iter().map(|row| row.index).collect();
        assert_eq!(kept, [0, 4]);
        // When it ended is known all the same.
        assert_eq!(phases.sync_returns().kept(), [(0, 100), (3, 400), (4, 500)]);
        assert_eq!(phases.list()[1].instances, 2);
        assert_eq!((phases.list()[2].ends_in, phases.list()[2].first_index), (None, 5));
        assert_eq!(phases.syncs(), 3);
    }

    #[test]
    fn a_run_without_synchronisations_is_one_phase() {
        let mut phases = Phases::new(0, 1 << 20);
        phases.end();
        assert_eq!(phases.list().len(), 1);
        assert_eq!((phases.list()[0].first_index, phases.list()[0].instances), (0, 1));
        // What happened before the run began is not counted, but its index is remembered.
        let mut phases = Phases::new(0, 1 << 20);
        phases.synchronise(CompletedSync { counted: false, ..sync(0, 5) });
        phases.synchronise(sync(1, 5));
        assert_eq!((phases.list()[0].first_index, phases.syncs()), (1, 1));
        assert_eq!(phases.rows().instances().len(), 1);
    }

    #[test]
    fn parts_of_the_ranks_divide_an_instance() {
        let row = Some(Subgroup { name: 9, ranks: 4 });
        let mut phases = Phases::new(0, 1 << 20);
        let work = |phases: &mut Phases, time: u64, sync: CompletedSync| {
            phases.open.pass(time);
            phases.open.work(3, time, 0);
            phases.synchronise(sync);
        };
        work(&mut phases, 7, CompletedSync { subgroup: row, ..sync(0, 4) });
        work(&mut phases, 8, CompletedSync { subgroup: row, ..sync(1, 4) });
        work(&mut phases, 9, sync(0, 5));
        // What all synchronise without a part before is no subgroup interval.
        work(&mut phases, 10, sync(1, 5));
        phases.mark_gap();
        work(&mut phases, 11, CompletedSync { subgroup: row, ..sync(2, 4) });
        work(&mut phases, 12, CompletedSync { subgroup: row, ..sync(3, 4) });
        phases.end();
        let found: Vec<_> = phases
            .subgroup_intervals()
            .instances()
            .iter()
            .map(|it| (it.subgroup, it.index, it.ends_in, it.phase, it.duration))
            .collect();
        let all = None;
        assert_eq!(
            found,
            [
                (row, 0, Some(4), 0, 7),
                (row, 1, Some(4), 0, 8),
                (all, 0, Some(5), 0, 9),
                (row, 3, Some(4), 2, 12),
                (all, 2, None, 2, 0)
            ]
        );
        let whole: Vec<u64> = phases.list().iter().map(|it| it.account.duration()).collect();
        assert_eq!(whole, [24, 10, 23]);
        let kept: Vec<_> = phases.rows().instances().iter().map(|row| row.duration).collect();
        assert_eq!(kept, [24, 10]);
        assert_eq!(phases.syncs(), 2);
    }
}
