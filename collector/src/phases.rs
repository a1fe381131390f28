//! The phases of the thread that communicates: its run, cut at the global synchronisations
//! (PPoPP20, 4.2). A phase is named by the call paths where it begins and ends; it recurs.
//!
//! Synchronisations of subgroups, such as the rows of a grid, delimit no phase. They divide the
//! work of their members: the slow rank may change from one to the next, and all members wait for
//! it. An instance is therefore divided there into *subgroup intervals*; some of them are kept
//! whole as well.
//!
//! A run that is broken off ends at one time on all ranks, and some ranks may have seen a few
//! synchronisations more than others. Which ones all ranks saw is known to the analysis alone, so
//! the last instances of such a run are phases of their own ([`Phases::break_off`]).
//!
//! The synchronisations are measured. Without measured calls, the run is one phase here, and
//! [`crate::sample_series`] keeps the data by which the analysis finds phases.

use std::collections::VecDeque;

use plimsoll_wire::sync_id::is_followed;

use crate::account::Account;
use crate::instance_reservoir::{InstanceEnd, InstanceReservoir, PENDING};
use crate::raw_tree::{IdMap, RawId};
use crate::replay_target::CompletedSync;
use crate::sync_returns::SyncReturns;

/// Maximum number of ended instances that are kept apart from their phases. Ranks of one node
/// differ by one synchronisation at a time, and by more only through nonblocking ones. Ranks of
/// different nodes are cut at times that differ by the error of their clocks.
const MAX_RECENT: usize = 16;
/// Maximum memory of these instances, in bytes, unless there is only one.
const MAX_RECENT_BYTES: u64 = 1 << 16;

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
    /// Set for a single instance at the end of a run that was broken off. Another phase may have
    /// the same ends.
    pub(crate) is_apart: bool,
}

/// An ended instance that its phase does not contain yet.
struct RecentInstance {
    /// Index of the phase.
    phase: u32,
    /// Index of the synchronisation that ended the instance.
    index: u64,
    /// Stamp of its begin.
    begin: u64,
    account: Account,
}

/// The run so far.
pub(crate) struct Phases {
    /// The running instance, since the last synchronisation of any ranks.
    pub(crate) open: Account,
    /// The subgroup intervals of it that have ended.
    divided: Account,
    list: Vec<Phase>,
    /// The last instances, by time.
    recent: VecDeque<RecentInstance>,
    recent_bytes: u64,
    /// Empty account, kept for its memory: the next instance uses it.
    spare: Account,
    is_broken_off: bool,
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
            recent: VecDeque::new(),
            recent_bytes: 0,
            spare: Account::default(),
            is_broken_off: false,
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
        if !sync.counted && sync.stamp > self.begin {
            // After the end of the run, a synchronisation delimits nothing.
            return;
        }
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

    /// Notes that the run does not reach its regular end: each of its last instances is to be a
    /// phase of its own.
    pub(crate) fn break_off(&mut self) {
        self.is_broken_off = true;
    }

    /// Ends the run: the time after the last synchronisation is a phase, too.
    pub(crate) fn end(&mut self) {
        if self.is_broken_off {
            self.set_apart();
        }
        if !self.open.is_empty() || !self.divided.is_empty() || self.list.is_empty() {
            self.fold(None, self.next_index, !self.gap, !self.division_gap);
        }
        while !self.recent.is_empty() {
            self.settle_oldest();
        }
    }

    /// Makes a phase of each recent instance.
    fn set_apart(&mut self) {
        for RecentInstance { phase, index, begin, account } in std::mem::take(&mut self.recent) {
            let new = self.list.len() as u32;
            let known = &mut self.list[phase as usize];
            let (begins_after, ends_in) = (known.begins_after, known.ends_in);
            let apart = Phase {
                begins_after,
                ends_in,
                first_index: index,
                last_index: index,
                instances: 1,
                first_begin: begin,
                account,
                is_apart: true,
            };
            if known.instances == 0 {
                *known = apart;
                continue;
            }
            self.list.push(apart);
            self.rows.move_instance(index, new);
            self.subgroup_intervals.move_instance(index, new);
        }
        self.recent_bytes = 0;
    }

    /// Adds the oldest recent instance to its phase.
    fn settle_oldest(&mut self) {
        let Some(RecentInstance { phase, index, mut account, .. }) = self.recent.pop_front() else {
            return;
        };
        self.recent_bytes -= account.bytes();
        let phase = &mut self.list[phase as usize];
        phase.instances += 1;
        phase.last_index = index;
        phase.account.absorb(&mut account);
        // What one long instance has needed is not kept for the short ones after it.
        if account.bytes() <= MAX_RECENT_BYTES / MAX_RECENT as u64 {
            self.spare = account;
        }
    }

    /// Returns all phases, by first end; complete once the run has ended.
    pub(crate) fn list(&self) -> &[Phase] {
        &self.list
    }

    /// Returns the values of the whole run so far, in parts.
    pub(crate) fn accounts(&self) -> impl Iterator<Item = &Account> {
        let phases = self.list.iter().map(|phase| &phase.account);
        let recent = self.recent.iter().map(|instance| &instance.account);
        phases.chain(recent).chain([&self.divided, &self.open])
    }

    /// Returns the time in which the measurement was paused, also after the last phase.
    pub(crate) fn paused(&self) -> u64 {
        self.accounts().map(Account::paused).sum()
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
        let accounts: u64 = self.accounts().chain([&self.spare]).map(Account::bytes).sum();
        let rows = self.rows.bytes() + self.subgroup_intervals.bytes();
        accounts + rows + self.sync_returns.bytes()
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
                    is_apart: false,
                });
                list.len() as u32 - 1
            });
        if whole {
            self.rows.insert(end, number, &self.open);
        }
        self.subgroup_intervals.assign_phase(number, index);
        let account = std::mem::replace(&mut self.open, std::mem::take(&mut self.spare));
        self.recent_bytes += account.bytes();
        self.recent.push_back(RecentInstance { phase: number, index, begin, account });
        let is_full =
            |it: &Self| it.recent.len() > MAX_RECENT || it.recent_bytes > MAX_RECENT_BYTES;
        while self.recent.len() > 1 && is_full(self) {
            self.settle_oldest();
        }
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

    /// Runs 40 instances of 10 stamps, which two barriers end in turns, and 3 stamps after them.
    fn forty(break_off: impl FnOnce(&mut Phases)) -> Phases {
        let mut phases = Phases::new(0, 1 << 20);
        let part = Some(Subgroup { name: 9, ranks: 4 });
        for index in 0..40 {
            for subgroup in [part, None] {
                phases.open.pass(5);
                phases.open.work(3, 5, 0);
                let node = if subgroup.is_some() { 4 } else { 5 + (index % 2) as RawId };
                phases.synchronise(CompletedSync { subgroup, ..sync(index, node) });
            }
        }
        phases.open.pass(3);
        phases.open.work(3, 3, 0);
        break_off(&mut phases);
        phases.end();
        phases
    }

    fn shown(phases: &Phases) -> Vec<(u64, u64, u64, u64)> {
        let phases = phases.list().iter();
        phases
            .map(|it| (it.first_index, it.last_index, it.instances, it.account.duration()))
            .collect()
    }

    #[test]
    fn the_last_instances_of_a_broken_off_run_are_phases_of_their_own() {
        let whole = [(0, 0, 1, 10), (1, 39, 20, 200), (2, 38, 19, 190), (40, 40, 1, 3)];
        assert_eq!(shown(&forty(|_| ())), whole);
        let phases = forty(Phases::break_off);
        let first = 40 - MAX_RECENT as u64;
        let settled = [(0, 0, 1, 10), (1, first - 1, 12, 120), (2, first - 2, 11, 110)];
        let apart = (first..40).map(|index| (index, index, 1, 10));
        let all: Vec<_> = settled.into_iter().chain(apart).chain([(40, 40, 1, 3)]).collect();
        assert_eq!(shown(&phases), all);
        // Single instances and subgroup intervals move with them.
        for rows in [phases.rows(), phases.subgroup_intervals()] {
            for row in rows.instances() {
                let phase = &phases.list()[row.phase as usize];
                assert!((phase.first_index..=phase.last_index).contains(&row.instance));
                assert_eq!(phase.is_apart, (first..40).contains(&row.instance));
            }
        }
    }

    #[test]
    fn a_phase_whose_only_instances_are_the_last_ones_has_no_other() {
        let mut phases = Phases::new(0, 1 << 20);
        (0..3).for_each(|index| phases.synchronise(sync(index, 5)));
        phases.break_off();
        phases.end();
        let found: Vec<_> =
            phases.list().iter().map(|it| (it.first_index, it.instances, it.is_apart)).collect();
        assert_eq!(found, [(0, 1, true), (1, 1, true), (2, 1, true)]);
    }

    #[test]
    fn long_instances_are_not_kept_apart_beyond_the_memory_for_them() {
        let mut phases = Phases::new(0, 1 << 20);
        for index in 0..10 {
            (0..400).for_each(|node| phases.open.work(node, 1, 0));
            phases.open.pass(400);
            phases.synchronise(sync(index, 5));
            let kept: u64 = phases.recent.iter().map(|it| it.account.bytes()).sum();
            assert_eq!(kept, phases.recent_bytes);
            assert!(kept <= MAX_RECENT_BYTES || phases.recent.len() == 1);
        }
    }

    #[test]
    fn a_run_without_synchronisations_is_one_phase() {
        let mut phases = Phases::new(0, 1 << 20);
        phases.end();
        assert_eq!(phases.list().len(), 1);
        assert_eq!((phases.list()[0].first_index, phases.list()[0].instances), (0, 1));
        // What happened before the run began is not counted, but its index is remembered.
        let mut phases = Phases::new(150, 1 << 20);
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
