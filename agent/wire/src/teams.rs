//! Parallel regions of OpenMP: what a thread accumulates of the regions that it makes, and how the
//! totals are recorded.
//!
//! Each thread of a team executes one share of a region. The work of a share is its duration
//! without the waits inside it. Times are in time stamp counter ticks in a thread's area, in stamps
//! in records.

use core::sync::atomic::{AtomicU64, Ordering};

use crate::lengths::LengthCounters;
use crate::record::STAMP_SHIFT;

/// Number of entries of a thread's table of regions.
pub const MAX_REGIONS: usize = 32;

/// Number of entries of a thread's table of tasks.
pub const MAX_TASKS: usize = 32;

/// Maximum number of thread numbers that a region tells apart. The last one also stands for all
/// higher numbers.
pub const MAX_SHARES: usize = 64;

/// Name of a call path, the same for all threads of a process; 0: no call path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PathKey(pub u64);

impl PathKey {
    /// No call path: the thread's own stack is the whole path.
    pub const NONE: Self = Self(0);

    /// Returns the name of the path that continues this one by `step`.
    pub fn then(self, step: u64) -> Self {
        // The finalizer of MurmurHash3, a bijection: one step changes about half of the bits.
        let mut mixed = self.0.rotate_left(5) ^ step;
        mixed = (mixed ^ mixed >> 33).wrapping_mul(0xff51_afd7_ed55_8ccd);
        mixed = (mixed ^ mixed >> 33).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        Self(mixed ^ mixed >> 33)
    }
}

/// Instances of a parallel region that a thread has made from one call path.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RegionTotals {
    /// Name of the call path, which the shares of the other threads refer to.
    pub path: PathKey,
    /// Address id of the outlined function; 0: unknown.
    pub function: u32,
    /// Number of enclosing regions.
    pub level: u32,
    /// Size of the largest team.
    pub threads: u32,
    /// Number of instances.
    pub instances: u64,
    /// Sum over instances of the time from begin to end.
    pub elapsed: u64,
    /// Sum over instances of that time, times threads.
    pub thread_time: u64,
    /// Sum over instances of the mean work of a thread.
    pub mean_work: u64,
    /// Sum over instances of the largest work of a thread.
    pub max_work: u64,
    /// Sum over instances of the largest work of a thread, times threads.
    pub max_thread_work: u64,
}

impl RegionTotals {
    /// Number of integers that the totals and their slot are written as.
    pub const NUMBERS: usize = 11;

    /// Adds later instances from the same call path, saturating.
    pub fn add(&mut self, other: &Self) {
        self.threads = self.threads.max(other.threads);
        for (sum, value) in [
            (&mut self.instances, other.instances),
            (&mut self.elapsed, other.elapsed),
            (&mut self.thread_time, other.thread_time),
            (&mut self.mean_work, other.mean_work),
            (&mut self.max_work, other.max_work),
            (&mut self.max_thread_work, other.max_thread_work),
        ] {
            *sum = sum.saturating_add(value);
        }
    }

    /// Returns the slot and the totals as integers. Inverse of [`Self::of_numbers`].
    pub fn numbers(&self, slot: u32) -> [u64; Self::NUMBERS] {
        [
            slot.into(),
            self.path.0,
            self.function.into(),
            self.level.into(),
            self.threads.into(),
            self.instances,
            self.elapsed,
            self.thread_time,
            self.mean_work,
            self.max_work,
            self.max_thread_work,
        ]
    }

    /// Returns the slot and the totals; `None` if an integer is out of range.
    pub fn of_numbers(numbers: [u64; Self::NUMBERS]) -> Option<(u32, Self)> {
        let [slot, path, function, level, threads, rest @ ..] = numbers;
        let [instances, elapsed, thread_time, mean_work, max_work, max_thread_work] = rest;
        let small = |value: u64| u32::try_from(value).ok();
        let totals = Self {
            path: PathKey(path),
            function: small(function)?,
            level: small(level)?,
            threads: small(threads)?,
            instances,
            elapsed,
            thread_time,
            mean_work,
            max_work,
            max_thread_work,
        };
        Some((small(slot)?, totals))
    }
}

/// Shares of the threads with one number in their teams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ShareTotals {
    /// Number of shares.
    pub count: u64,
    /// Durations without the waits inside.
    pub work: u64,
    /// Waits for the team, for tasks and for other threads.
    pub barrier: u64,
    /// Waits for critical and ordered sections and for locks.
    pub lock: u64,
    /// Time in MPI calls, part of `work`.
    pub mpi: u64,
}

impl ShareTotals {
    /// Number of integers that the totals are written as, with slot and thread number.
    pub const NUMBERS: usize = 7;

    /// Adds shares of the same thread number, saturating.
    pub fn add(&mut self, other: &Self) {
        for (sum, value) in [
            (&mut self.count, other.count),
            (&mut self.work, other.work),
            (&mut self.barrier, other.barrier),
            (&mut self.lock, other.lock),
            (&mut self.mpi, other.mpi),
        ] {
            *sum = sum.saturating_add(value);
        }
    }

    /// Returns slot, thread number and totals as integers. Inverse of [`Self::of_numbers`].
    pub fn numbers(&self, slot: u32, number: u32) -> [u64; Self::NUMBERS] {
        let Self { count, work, barrier, lock, mpi } = *self;
        [slot.into(), number.into(), count, work, barrier, lock, mpi]
    }

    /// Returns slot, thread number and totals; `None` if an integer is out of range.
    pub fn of_numbers(numbers: [u64; Self::NUMBERS]) -> Option<(u32, u32, Self)> {
        let [slot, number, count, work, barrier, lock, mpi] = numbers;
        let number = u32::try_from(number).ok().filter(|it| (*it as usize) < MAX_SHARES)?;
        Some((u32::try_from(slot).ok()?, number, Self { count, work, barrier, lock, mpi }))
    }
}

/// Executions of explicit tasks with one function.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TaskTotals {
    /// Address id of the function; 0: unknown.
    pub function: u32,
    /// Number of executions.
    pub count: u64,
    /// Durations, without those of the tasks executed inside.
    pub work: u64,
    /// The longest of these durations.
    pub longest: u64,
}

impl TaskTotals {
    /// Number of integers that the totals are written as.
    pub const NUMBERS: usize = 4;

    /// Adds executions of the same function, saturating.
    pub fn add(&mut self, other: &Self) {
        self.count = self.count.saturating_add(other.count);
        self.work = self.work.saturating_add(other.work);
        self.longest = self.longest.max(other.longest);
    }

    /// Returns the totals as integers. Inverse of [`Self::of_numbers`].
    pub fn numbers(&self) -> [u64; Self::NUMBERS] {
        [self.function.into(), self.count, self.work, self.longest]
    }

    /// Returns the totals; `None` if an integer is out of range.
    pub fn of_numbers([function, count, work, longest]: [u64; Self::NUMBERS]) -> Option<Self> {
        Some(Self { function: u32::try_from(function).ok()?, count, work, longest })
    }
}

/// Entry of a thread's table of tasks, in the segment: totals that are in no record yet.
#[repr(C)]
pub struct TaskCounters {
    /// The integers in the order of [`TaskTotals::numbers`]; unused while the count is 0.
    numbers: [AtomicU64; TaskTotals::NUMBERS],
    /// Distribution of the durations.
    pub lengths: LengthCounters,
}

impl TaskCounters {
    /// Begins an entry that is unused, for the function with this address id.
    pub fn begin(&self, function: u32) {
        self.numbers[0].store(function.into(), Ordering::Relaxed);
    }

    /// Adds an execution; the duration is in ticks. Only the thread of the area writes.
    #[inline]
    pub fn add(&self, work: u64) {
        self.lengths.add(work);
        let [_, count, sum, longest] = &self.numbers;
        sum.store(sum.load(Ordering::Relaxed).wrapping_add(work), Ordering::Relaxed);
        if longest.load(Ordering::Relaxed) < work {
            longest.store(work, Ordering::Relaxed);
        }
        count.store(count.load(Ordering::Relaxed) + 1, Ordering::Release);
    }

    /// Returns the totals in stamps; `None` if the entry is unused.
    pub fn read(&self) -> Option<TaskTotals> {
        let [function, count, work, longest] =
            self.numbers.each_ref().map(|it| it.load(Ordering::Acquire));
        let [work, longest] = [work, longest].map(|it| it >> STAMP_SHIFT);
        TaskTotals::of_numbers([function, count, work, longest]).filter(|it| it.count > 0)
    }

    /// Frees the entry.
    pub fn clear(&self) {
        for number in self.numbers.iter().filter(|it| it.load(Ordering::Relaxed) != 0) {
            number.store(0, Ordering::Relaxed);
        }
        self.lengths.clear();
    }
}

/// Entry of a thread's table of regions, in the segment: totals that are in no record yet.
#[repr(C)]
pub struct RegionCounters {
    /// Slot of the call path plus one; 0: the entry is unused.
    pub slot: AtomicU64,
    /// The integers after the slot, in the order of [`RegionTotals::numbers`].
    totals: [AtomicU64; RegionTotals::NUMBERS - 1],
    /// Shares by thread number: the integers after slot and number, in the order of
    /// [`ShareTotals::numbers`].
    shares: [[AtomicU64; ShareTotals::NUMBERS - 2]; MAX_SHARES],
    /// Distribution of the instances' times from begin to end.
    pub lengths: LengthCounters,
}

/// Totals of an entry in stamps.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RegionEntry {
    /// Slot of the call path.
    pub slot: u32,
    /// Totals of the region.
    pub totals: RegionTotals,
}

impl RegionCounters {
    /// Begins an entry that is unused.
    pub fn begin(&self, slot: u16, path: PathKey, function: u32, level: u32) {
        let named = RegionTotals { path, function, level, ..RegionTotals::default() };
        let numbers = named.numbers(0);
        for (place, value) in self.totals.iter().zip(&numbers[1..]) {
            place.store(*value, Ordering::Relaxed);
        }
        self.slot.store(u64::from(slot) + 1, Ordering::Release);
    }

    /// Adds one instance of a region; times in ticks. Only the thread of the area writes.
    #[inline]
    pub fn add(&self, threads: u32, elapsed: u64, work: u64, max_work: u64) {
        self.lengths.add(elapsed);
        let team = u64::from(threads.max(1));
        let most = &self.totals[3];
        if most.load(Ordering::Relaxed) < team {
            most.store(team, Ordering::Relaxed);
        }
        let values = [1, elapsed, elapsed * team, work / team, max_work, max_work * team];
        for (place, value) in self.totals[4..].iter().zip(values) {
            let sum = place.load(Ordering::Relaxed).wrapping_add(value);
            place.store(sum, Ordering::Relaxed);
        }
    }

    /// Adds the share of a thread; times in ticks. Only the thread of the area writes.
    #[inline]
    pub fn add_share(&self, number: usize, share: &ShareTotals) {
        let numbers = share.numbers(0, 0);
        for (place, value) in self.shares[number.min(MAX_SHARES - 1)].iter().zip(&numbers[2..]) {
            let sum = place.load(Ordering::Relaxed).wrapping_add(*value);
            place.store(sum, Ordering::Relaxed);
        }
    }

    /// Returns slot and totals in stamps; `None` if the entry is unused.
    pub fn read(&self) -> Option<RegionEntry> {
        let slot = u32::try_from(self.slot.load(Ordering::Acquire).checked_sub(1)?).ok()?;
        let mut numbers = [0; RegionTotals::NUMBERS];
        for (at, (number, place)) in numbers[1..].iter_mut().zip(&self.totals).enumerate() {
            let value = place.load(Ordering::Relaxed);
            // Only the numbers after the instances are times.
            *number = if at > 4 { value >> STAMP_SHIFT } else { value };
        }
        let (_, totals) = RegionTotals::of_numbers(numbers)?;
        Some(RegionEntry { slot, totals })
    }

    /// Returns the shares of threads with this number in stamps; `None` if there are none.
    pub fn share(&self, number: usize) -> Option<ShareTotals> {
        let [count, work, barrier, lock, mpi] =
            self.shares.get(number)?.each_ref().map(|it| it.load(Ordering::Relaxed));
        let [work, barrier, lock, mpi] = [work, barrier, lock, mpi].map(|it| it >> STAMP_SHIFT);
        (count > 0).then_some(ShareTotals { count, work, barrier, lock, mpi })
    }

    /// Frees the entry.
    pub fn clear(&self) {
        if self.slot.load(Ordering::Relaxed) == 0 {
            return;
        }
        self.slot.store(0, Ordering::Relaxed);
        self.lengths.clear();
        for place in self.totals.iter().chain(self.shares.iter().flatten()) {
            // Entries of thread numbers that do not occur take no memory.
            if place.load(Ordering::Relaxed) != 0 {
                place.store(0, Ordering::Relaxed);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn entry() -> Box<RegionCounters> {
        // SAFETY: atomics are valid as zeros.
        unsafe { Box::<RegionCounters>::new_zeroed().assume_init() }
    }

    #[test]
    fn an_entry_holds_the_sums_of_its_instances_in_stamps() {
        let entry = entry();
        assert_eq!(entry.read(), None);
        entry.begin(7, PathKey(1 << 60), 3, 1);
        let ticks = |stamps: u64| stamps << STAMP_SHIFT;
        entry.add(4, ticks(10), ticks(24), ticks(8));
        entry.add(2, ticks(5), ticks(6), ticks(4));
        let share = ShareTotals { count: 1, work: ticks(8), barrier: 0, lock: ticks(1), mpi: 0 };
        entry.add_share(0, &share);
        entry.add_share(MAX_SHARES + 9, &share);
        entry.add_share(MAX_SHARES - 1, &share);
        let totals = RegionTotals {
            path: PathKey(1 << 60),
            function: 3,
            level: 1,
            threads: 4,
            instances: 2,
            elapsed: 15,
            thread_time: 50,
            mean_work: 9,
            max_work: 12,
            max_thread_work: 40,
        };
        assert_eq!(entry.read(), Some(RegionEntry { slot: 7, totals }));
        let one = ShareTotals { count: 1, work: 8, barrier: 0, lock: 1, mpi: 0 };
        assert_eq!(entry.share(0), Some(one));
        assert_eq!(entry.share(1), None);
        let two = ShareTotals { count: 2, work: 16, lock: 2, ..one };
        assert_eq!(entry.share(MAX_SHARES - 1), Some(two));
        entry.clear();
        assert_eq!(entry.read(), None);
        assert!((0..MAX_SHARES).all(|number| entry.share(number).is_none()));
    }

    #[test]
    fn an_entry_of_tasks_holds_their_sum_and_the_longest() {
        // SAFETY: atomics are valid as zeros.
        let entry = unsafe { Box::<TaskCounters>::new_zeroed().assume_init() };
        entry.begin(4);
        assert_eq!(entry.read(), None);
        for stamps in [3, 9, 5] {
            entry.add(stamps << STAMP_SHIFT);
        }
        let totals = TaskTotals { function: 4, count: 3, work: 17, longest: 9 };
        assert_eq!(entry.read(), Some(totals));
        entry.clear();
        assert_eq!(entry.read(), None);
    }

    #[test]
    fn names_of_paths_depend_on_each_step_and_on_the_order() {
        let of = |steps: &[u64]| steps.iter().fold(PathKey::NONE, |path, step| path.then(*step));
        let mut names = vec![of(&[1]), of(&[2]), of(&[1, 2]), of(&[2, 1]), of(&[1, 2, 3])];
        names.sort();
        names.dedup();
        assert_eq!(names.len(), 5);
        assert_eq!(of(&[1, 2]).then(3), of(&[1, 2, 3]));
    }
}
