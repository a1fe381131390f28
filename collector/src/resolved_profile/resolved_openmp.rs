//! OpenMP of a finished run in the user's terms: its parallel regions, tasks and waits for locks.

use std::collections::BTreeMap;

use plimsoll_wire::lengths::middle_of;
use plimsoll_wire::record::STAMP_SHIFT;
use plimsoll_wire::teams::PathKey;

use super::FinishedRun;
use crate::contexts::Contexts;
use crate::profile::{
    LengthDistribution, LockWaitProfile, NodeId, OpenMpProfile, RegionProfile, ShareProfile,
    TaskProfile,
};
use crate::region_values::{RegionPlace, RegionValue, TaskValue};

impl FinishedRun<'_> {
    /// Parallel regions by the contexts of the calls that make them.
    pub(super) fn openmp(&self, contexts: &mut Contexts<'_>) -> OpenMpProfile {
        let mut regions: BTreeMap<(NodeId, bool), RegionProfile> = BTreeMap::new();
        let (mut unmeasured, mut runtime) = (self.regions.unmeasured, None);
        for (place, value) in self.regions.sorted() {
            let Some(node) = contexts.node(place.node) else {
                unmeasured += value.totals.instances;
                continue;
            };
            if let Some(named) = self.addresses.named(self.tree.address(place.node)) {
                let module = &self.addresses.frame(named.frame).module;
                // libgomp.so.1, libomp.so.5, libomp-14.so.5
                runtime = module.split(['.', '-']).next().map(str::to_owned);
            }
            let caller = contexts.nodes()[node as usize].parent;
            let function = caller
                .and_then(|caller| contexts.callee(caller, value.totals.function))
                .or_else(|| contexts.outlined(place.node));
            let region = regions.entry((node, place.is_main)).or_insert_with(|| RegionProfile {
                node,
                is_main: place.is_main,
                level: value.totals.level,
                ..RegionProfile::default()
            });
            region.function = region.function.or(function);
            if let Some(named) = self.addresses.named(value.totals.function) {
                region.name = Some(self.addresses.frame(named.frame).function.clone());
                region.file = named.begin.as_ref().map(|begin| begin.file.to_string());
                region.line = named.begin.as_ref().map(|begin| begin.line);
            }
            self.add_region(region, value);
        }
        let regions = regions.into_values().collect();
        let tasks = self.regions.tasks().iter().map(|task| self.task(task)).collect();
        let lock_waits = self.lock_waits(contexts);
        OpenMpProfile { runtime, regions, tasks, lock_waits, unmeasured }
    }

    /// Waits for locks by the contexts of the waiting call and of the call that acquired the lock.
    fn lock_waits(&self, contexts: &mut Contexts<'_>) -> Vec<LockWaitProfile> {
        let waits = self.regions.lock_waits();
        let names = waits.iter().map(|(place, _)| place.holder);
        let holders = self.tree.contexts_of(&names.filter(|it| *it != PathKey::NONE).collect());
        let mut sums: BTreeMap<(NodeId, bool, Option<NodeId>), LockWaitProfile> = BTreeMap::new();
        for (place, totals) in waits {
            let RegionPlace { node, is_main } = place.waiter;
            let Some(node) = contexts.node(node) else { continue };
            let holder = holders.get(&place.holder).and_then(|raw| contexts.node(*raw));
            let none = LockWaitProfile { node, is_main, holder, ..LockWaitProfile::default() };
            let sum = sums.entry((node, is_main, holder)).or_insert(none);
            sum.count += totals.count;
            sum.waited_ns += self.rate.ns(totals.waited);
        }
        sums.into_values().collect()
    }

    fn task(&self, task: &TaskValue) -> TaskProfile {
        let TaskValue { totals, lengths } = task;
        let named = self.addresses.named(totals.function);
        let begin = named.and_then(|named| named.begin.as_ref());
        TaskProfile {
            name: named.map(|named| self.addresses.frame(named.frame).function.clone()),
            file: begin.map(|begin| begin.file.to_string()),
            line: begin.map(|begin| begin.line),
            count: totals.count,
            work_ns: self.rate.ns(totals.work),
            longest_ns: self.rate.ns(totals.longest),
            lengths: self.distribution(lengths),
        }
    }

    /// Returns durations by bucket as a distribution in nanoseconds.
    fn distribution(&self, lengths: &BTreeMap<u32, u64>) -> LengthDistribution {
        const MORE_BITS: u32 = 10;
        let mut distribution = LengthDistribution::default();
        for (bucket, count) in lengths {
            let ticks = middle_of(*bucket as usize);
            // A short duration has few stamps: that of many durations is more precise.
            let ns = self.rate.ns((ticks << MORE_BITS) >> STAMP_SHIFT) >> MORE_BITS;
            distribution.add(ns, *count);
        }
        distribution
    }

    /// Adds the instances of a raw context to a region.
    fn add_region(&self, region: &mut RegionProfile, value: &RegionValue) {
        let ns = |stamps| self.rate.ns(stamps);
        let RegionValue { totals, shares, lengths } = value;
        region.lengths.combine(&self.distribution(lengths));
        region.level = region.level.min(totals.level);
        region.threads = region.threads.max(totals.threads);
        region.instances += totals.instances;
        region.elapsed_ns += ns(totals.elapsed);
        region.thread_ns += ns(totals.thread_time);
        region.mean_work_ns += ns(totals.mean_work);
        region.max_work_ns += ns(totals.max_work);
        region.max_thread_ns += ns(totals.max_thread_work);
        for (share, number) in shares.iter().zip(0..) {
            if region.shares.len() <= number as usize {
                region.shares.push(ShareProfile { number, ..ShareProfile::default() });
            }
            let sum = &mut region.shares[number as usize];
            let [work, barrier, lock, mpi] =
                [share.work, share.barrier, share.lock, share.mpi].map(ns);
            sum.count += share.count;
            sum.work_ns += work;
            sum.barrier_ns += barrier;
            sum.lock_ns += lock;
            sum.mpi_ns += mpi;
            region.work_ns += work;
            region.barrier_ns += barrier;
            region.lock_ns += lock;
            region.mpi_ns += mpi;
        }
    }
}
