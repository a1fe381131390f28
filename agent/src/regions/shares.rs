//! Parallel regions of OpenMP: a team of threads executes one outlined function, each thread its
//! share of the region.
//!
//! The primary thread, which makes the region, keeps a [`Team`] on its stack until the region ends.
//! Each thread writes the totals of its share there when the share ends. A thread of the pool then
//! waits in the pseudo call [`OPENMP_IDLE`], which its next share ends; the primary waits in the
//! call that made the region. At the region's end the primary adds the instance to its table of
//! regions. Entries of the table are written to the record stream once a second.

use core::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::paths::{find, unwind, unwind_in_runtime, unwind_outside};
use super::tasks::Measured;
use super::{CallKind, Entry, count, enter, enter_as, exit, open_until, write_for_slot};
use crate::observed_process::Observed;
use crate::thread_state::{State, ThreadBlock, add_owned, store_owned};
use plimsoll_calls::OPENMP_IDLE;
use plimsoll_wire::clock_anchor::ticks;
use plimsoll_wire::lengths::LengthOf;
use plimsoll_wire::record::Record;
use plimsoll_wire::segment::{MAX_SLOTS, ThreadArea};
use plimsoll_wire::teams::{MAX_REGIONS, MAX_SHARES, PathKey, RegionCounters, ShareTotals};

/// Times that a thread has spent in measured calls since it began, in ticks.
#[derive(Clone, Copy, Debug, Default)]
pub struct CallTimes {
    /// Waits for the team, for tasks and for other threads, except waits for the end of a region
    /// that the thread has made: they lie outside of its share of that region.
    pub barrier: u64,
    /// Waits for critical and ordered sections and for locks.
    pub lock: u64,
    /// Time in MPI calls.
    pub mpi: u64,
}

impl CallTimes {
    /// No times.
    pub(super) const NONE: Self = Self { barrier: 0, lock: 0, mpi: 0 };

    /// Returns the part of a duration with these times that is work.
    #[inline]
    pub(super) fn work_in(&self, duration: u64) -> u64 {
        duration.saturating_sub(self.barrier).saturating_sub(self.lock)
    }

    /// Returns the totals of a share of this duration.
    #[inline]
    fn share(&self, duration: u64) -> ShareTotals {
        let Self { barrier, lock, mpi } = *self;
        ShareTotals { count: 1, work: self.work_in(duration), barrier, lock, mpi }
    }

    /// Returns the times since `before`.
    #[inline]
    pub(super) fn since(&self, before: &Self) -> Self {
        Self {
            barrier: self.barrier.wrapping_sub(before.barrier),
            lock: self.lock.wrapping_sub(before.lock),
            mpi: self.mpi.wrapping_sub(before.mpi),
        }
    }
}

/// Team of an instance of a parallel region, on the stack of the thread that makes the region.
#[repr(C, align(16))]
pub struct Team {
    /// First word of the outlined function's data: the runtime reads its reductions there.
    pub first_word: usize,
    /// The outlined function.
    pub function: usize,
    /// Data of the outlined function.
    pub data: usize,
    /// Block of the primary thread.
    primary: *const ThreadBlock,
    /// The call that makes the region.
    entry: Entry,
    /// Name of the call path of that call.
    path: PathKey,
    /// Slot of that path, unless the slot has been evicted since.
    slot: usize,
    /// Times of the primary thread when the region began.
    before: CallTimes,
    /// Share of an outer region that the primary had executed last when the region began.
    outer_share: LastShare,
    /// Number of threads; 0 until the primary has begun its share.
    threads: AtomicU32,
    /// Largest work of the threads that share the last entry of `shares`.
    folded_work: AtomicU64,
    /// Shares by thread number, in ticks. An entry counts 0 until its share has ended, and the rest
    /// of it is not initialised.
    shares: [SharedTotals; MAX_SHARES],
}

/// Totals of a share, written by the thread that executes the share.
#[repr(C)]
struct SharedTotals {
    count: AtomicU64,
    work: AtomicU64,
    barrier: AtomicU64,
    lock: AtomicU64,
    mpi: AtomicU64,
}

/// Facts that the runtime knows of the region that the calling thread executes.
pub trait Runtime {
    /// Returns the number of the calling thread in its team. The primary has number 0.
    fn thread_number(&self) -> u32;
    /// Returns the number of threads in the calling thread's team.
    fn threads(&self) -> u32;
    /// Returns the number of regions around the calling thread.
    fn level(&self) -> u32;
}

/// An open share, on the stack of the thread that executes the share.
#[derive(Clone, Copy, Debug)]
#[repr(C)]
pub struct Share {
    team: *const Team,
    number: u32,
    begun: u64,
    before: CallTimes,
    /// Call path that the thread's stack lay in before the share.
    outer: PathKey,
}

/// A share that has ended, while its region goes on. Tasks of the region may still run.
#[derive(Clone, Copy, Debug)]
pub(super) struct LastShare {
    team: *const Team,
    number: u32,
    /// Call path of the region.
    pub(super) path: PathKey,
}

impl LastShare {
    /// No share.
    pub(super) const NONE: Self = Self { team: core::ptr::null(), number: 0, path: PathKey::NONE };
}

/// Adds a task, with its work and the times in its calls, to a share that has ended.
///
/// # Safety
/// The region of the share has not ended.
pub(super) unsafe fn add_task(share: &LastShare, work: u64, times: &CallTimes) {
    // SAFETY: the primary leaves the region after all tasks have ended.
    let Some(team) = (unsafe { share.team.as_ref() }) else { return };
    let number = share.number as usize;
    let CallTimes { barrier, lock, mpi } = *times;
    let [_, places @ ..] = team.shares[number.min(FIRST_FOLDED)].places();
    for (place, value) in places.into_iter().zip([work, barrier, lock, mpi]) {
        if number < FIRST_FOLDED {
            add_owned(place, value);
        } else {
            place.fetch_add(value, Ordering::Relaxed);
        }
    }
}

impl SharedTotals {
    fn read(&self) -> ShareTotals {
        let value = |place: &AtomicU64| place.load(Ordering::Relaxed);
        ShareTotals {
            count: value(&self.count),
            work: value(&self.work),
            barrier: value(&self.barrier),
            lock: value(&self.lock),
            mpi: value(&self.mpi),
        }
    }

    fn places(&self) -> [&AtomicU64; 5] {
        [&self.count, &self.work, &self.barrier, &self.lock, &self.mpi]
    }

    fn write(&self, share: &ShareTotals) {
        let ShareTotals { count, work, barrier, lock, mpi } = *share;
        for (place, value) in self.places().into_iter().zip([count, work, barrier, lock, mpi]) {
            place.store(value, Ordering::Relaxed);
        }
    }

    fn add(&self, share: &ShareTotals) {
        let ShareTotals { count, work, barrier, lock, mpi } = *share;
        for (place, value) in self.places().into_iter().zip([count, work, barrier, lock, mpi]) {
            place.fetch_add(value, Ordering::Relaxed);
        }
    }
}

/// Thread numbers from this one on share the last entry of a team.
const FIRST_FOLDED: usize = MAX_SHARES - 1;

/// Begins a region in `team`, which the calling thread makes by the call of `entry`. `call` names
/// the outlined function and its data. `known` is the slot of the call's path, if the caller knows
/// it. Returns false, and writes nothing, if the region is not measured.
///
/// # Safety
/// The memory of `team` stays in place until the region has ended.
#[inline(always)]
pub unsafe fn begin_region(
    observed: &Observed,
    block: &ThreadBlock,
    state: &mut State,
    entry: &Entry,
    known: Option<usize>,
    team: *mut Team,
) -> bool {
    let open = state.regions.open.return_slot;
    if open != 0 {
        if entry.return_slot < open {
            return false;
        }
        state.regions.open.return_slot = 0;
    }
    if state.paused || state.muted {
        return false;
    }
    let slot = match known.or_else(|| find(state, entry)) {
        Some(slot) => slot,
        None => match state.with_room(|state| unwind(observed, state, entry)) {
            Some(slot) => slot,
            None => return false,
        },
    };
    // SAFETY: the team belongs to this call. The entries of `shares` are written before they are
    // read.
    unsafe {
        (&raw mut (*team).primary).write(block);
        (&raw mut (*team).entry).write(*entry);
        (&raw mut (*team).path).write(state.regions.slots[slot].path_key);
        (&raw mut (*team).slot).write(slot);
        (&raw mut (*team).before).write(state.call_times);
        (&raw mut (*team).outer_share).write(state.regions.last_share);
        (&raw mut (*team).threads).write(AtomicU32::new(0));
        (&raw mut (*team).folded_work).write(AtomicU64::new(0));
        let last = &raw const (*team).shares[FIRST_FOLDED];
        (*last).write(&ShareTotals::default());
    }
    true
}

/// Begins the calling thread's share of the region of `team`, in which other threads work, too: see
/// [`Team::is_alone`].
#[inline]
pub fn begin_share(
    observed: &Observed,
    block: &ThreadBlock,
    state: &mut State,
    team: &Team,
    runtime: &impl Runtime,
) -> Share {
    let outer = state.graft;
    let is_primary = core::ptr::eq(block, team.primary);
    let number = if is_primary { 0 } else { runtime.thread_number() };
    let begun = ticks();
    if !is_primary {
        end_idle(observed, state, begun);
        state.graft = team.path;
    }
    team.leave_out(number);
    Share { team, number, begun, before: state.call_times, outer }
}

impl Team {
    /// Notes that the thread with this number has not ended a share. Must be called once by each
    /// thread of the team that does not begin one: the memory of the team may hold anything.
    #[inline]
    pub fn leave_out(&self, number: u32) {
        if (number as usize) < FIRST_FOLDED {
            self.shares[number as usize].count.store(0, Ordering::Relaxed);
        }
    }

    /// Whether the calling thread is alone in the team, so that it works from the begin of the
    /// region to its end and needs no share. Takes note of the size of the team.
    #[inline]
    pub fn is_alone(&self, block: &ThreadBlock, runtime: &impl Runtime) -> bool {
        if !core::ptr::eq(block, self.primary) {
            return false;
        }
        if self.threads.load(Ordering::Relaxed) == 0 {
            self.threads.store(runtime.threads(), Ordering::Relaxed);
        }
        self.threads.load(Ordering::Relaxed) <= 1
    }

    /// Notes that the thread that makes the region is alone in the team.
    #[inline]
    pub fn set_alone(&self) {
        self.threads.store(1, Ordering::Relaxed);
    }

    /// Whether a thread makes the region.
    pub fn is_made_by(&self, block: &ThreadBlock) -> bool {
        core::ptr::eq(block, self.primary)
    }
}

/// Function in which a thread of a pool waits for its next share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum IdlePlace {
    /// The caller of the function that ends the share.
    Caller,
    /// The outermost function of the runtime that calls back.
    StartOfRuntime,
}

/// Ends a share: writes its totals to the team and begins the wait for the end of the region.
/// `from` is the place of the outlined function's caller, or that of the runtime's callback; its
/// time is not used.
///
/// # Safety
/// The share was begun by [`begin_share`] on this thread, and its region has not ended.
#[inline]
pub unsafe fn end_share(
    observed: &Observed,
    block: &ThreadBlock,
    state: &mut State,
    share: &Share,
    from: &Entry,
    idle: IdlePlace,
) {
    // SAFETY: the primary leaves the region, and with it the team, after this share has ended.
    let team = unsafe { &*share.team };
    let times = state.call_times.since(&share.before);
    let now = ticks();
    let totals = times.share(now.saturating_sub(share.begun));
    let number = share.number as usize;
    if number < FIRST_FOLDED {
        team.shares[number].write(&totals);
    } else {
        team.shares[FIRST_FOLDED].add(&totals);
        team.folded_work.fetch_max(totals.work, Ordering::Relaxed);
    }
    state.graft = share.outer;
    state.regions.last_share =
        LastShare { team: share.team, number: share.number, path: team.path };
    if !core::ptr::eq(block, team.primary) {
        begin_idle(observed, state, &Entry { ticks: now, ..*from }, idle);
    } else {
        let entry = Entry { ticks: now, ..team.entry };
        let slot = team.kept_slot(state);
        let how = slot.map_or(Measured::ByPath, Measured::Through);
        enter_as(observed, state, &entry, how);
    }
}

impl Team {
    /// Returns the slot of the call that makes the region; `None` if the slot has been evicted.
    fn kept_slot(&self, state: &State) -> Option<usize> {
        Some(self.slot).filter(|slot| state.regions.slots[*slot].path_key == self.path)
    }
}

/// Ends the region of `team` at `ticks`: the wait for the others' shares is over, and the instance
/// is added to the table of regions.
#[inline]
pub fn end_region(
    observed: &Observed,
    state: &mut State,
    team: &Team,
    runtime: &impl Runtime,
    ticks: u64,
) {
    let threads = team.threads.load(Ordering::Relaxed).max(1);
    let elapsed = ticks.saturating_sub(team.entry.ticks);
    if threads == 1 {
        return end_alone(observed, state, team, runtime, elapsed);
    }
    // Tasks may make regions while their thread waits for the end of an outer one.
    state.regions.last_share = team.outer_share;
    let return_slot = team.entry.return_slot;
    let Some((slot, _)) = open_until(state, return_slot, ticks) else {
        add_owned(&state.area().thread.unmeasured_regions, 1);
        return;
    };
    // The wait is idle time of this region only: it counts as work in the share of an outer region.
    exit(observed, state, return_slot, ticks, 0, None, CallKind::Other);
    let shares = &team.shares[..(threads as usize).min(MAX_SHARES)];
    let mut work = 0;
    let mut max_work = team.folded_work.load(Ordering::Relaxed);
    let ended = || {
        let has_ended = |share: &SharedTotals| share.count.load(Ordering::Relaxed) != 0;
        shares.iter().enumerate().filter(move |(_, share)| has_ended(share))
    };
    for (number, share) in ended() {
        let it = share.work.load(Ordering::Relaxed);
        work += it;
        if number < FIRST_FOLDED {
            max_work = max_work.max(it);
        }
    }
    let Some(counters) = region_counters(observed, state, slot, team, runtime) else { return };
    // SAFETY: the area stays mapped as long as the state.
    let counters = unsafe { &*counters };
    counters.add(threads, elapsed, work, max_work);
    for (number, share) in ended() {
        counters.add_share(number, &share.read());
    }
}

/// Ends the region of a team of one thread, which waits for no other. Tasks that the thread has
/// executed since the end of its share are work.
#[inline]
fn end_alone(
    observed: &Observed,
    state: &mut State,
    team: &Team,
    runtime: &impl Runtime,
    elapsed: u64,
) {
    let slot = team.kept_slot(state).filter(|_| !state.paused && !state.muted);
    let Some(slot) = slot else {
        add_owned(&state.area().thread.unmeasured_regions, 1);
        return;
    };
    add_owned(&state.area().thread.calls, 1);
    count(state, slot, 0, 0);
    let share = state.call_times.since(&team.before).share(elapsed);
    let counters = region_counters(observed, state, slot as u16, team, runtime);
    // SAFETY: the area stays mapped as long as the state.
    let Some(counters) = counters.map(|it| unsafe { &*it }) else { return };
    counters.add(1, elapsed, share.work, share.work);
    counters.add_share(0, &share);
}

/// Returns the entry of a slot in the table of regions, and begins it if there is none.
#[inline]
fn region_counters(
    observed: &Observed,
    state: &mut State,
    slot: u16,
    team: &Team,
    runtime: &impl Runtime,
) -> Option<*const RegionCounters> {
    let known = state.regions.slots[usize::from(slot)].region;
    let at = match known.checked_sub(1) {
        Some(at) => usize::from(at),
        None => begin_counters(observed, state, slot, team, runtime.level())?,
    };
    Some(&raw const state.area().regions[at])
}

#[cold]
#[inline(never)]
fn begin_counters(
    observed: &Observed,
    state: &mut State,
    slot: u16,
    team: &Team,
    level: u32,
) -> Option<usize> {
    if state.area().thread.regions.load(Ordering::Relaxed) as usize == MAX_REGIONS {
        state.with_room(flush_regions);
    }
    let function = state.with_room(|state| observed.intern_construct(state, team.function as u64));
    let used = state.area().thread.regions.load(Ordering::Relaxed);
    let at = used as usize;
    let counters = state.area().regions.get(at)?;
    counters.begin(slot, team.path, function, level);
    store_owned(&state.area().thread.regions, used + 1);
    state.regions.slots[usize::from(slot)].region = at as u8 + 1;
    Some(at)
}

/// Writes all entries of the table of regions and clears it.
#[cold]
#[inline(never)]
pub fn flush_regions(state: &mut State) {
    // SAFETY: the area stays mapped as long as the state.
    let ThreadArea { thread, regions, .. } = unsafe { &*state.area };
    let used = thread.regions.load(Ordering::Relaxed) as usize;
    for counters in &regions[..used.min(MAX_REGIONS)] {
        if let Some(entry) = counters.read() {
            let slot = entry.slot;
            let at = slot as usize % MAX_SLOTS;
            write_for_slot(state, at, &Record::Region { slot, totals: entry.totals });
            for number in 0..MAX_SHARES {
                let Some(totals) = counters.share(number) else { continue };
                let number = number as u32;
                write_for_slot(state, at, &Record::Share { slot, number, totals });
            }
            let of = LengthOf::Region(slot);
            for length in counters.lengths.read() {
                write_for_slot(state, at, &Record::Length { of, length });
            }
            state.regions.slots[at].region = 0;
        }
        counters.clear();
    }
    store_owned(&thread.regions, 0);
}

/// Discards the table of regions.
pub fn discard_regions(state: &mut State) {
    state.regions.slots.iter_mut().for_each(|slot| slot.region = 0);
    let area = state.area();
    let used = area.thread.regions.load(Ordering::Relaxed) as usize;
    area.regions[..used.min(MAX_REGIONS)].iter().for_each(RegionCounters::clear);
    store_owned(&area.thread.regions, 0);
}

/// Begins the wait of a pool's thread for its next share: a call made by the thread's start
/// routine, which calls the function that `from` lies in.
#[inline]
fn begin_idle(observed: &Observed, state: &mut State, from: &Entry, idle: IdlePlace) {
    if let Some(place) = state.regions.idle {
        let entry = Entry { ticks: from.ticks, ..place };
        if let Some(slot) = find(state, &entry) {
            enter_as(observed, state, &entry, Measured::Through(slot));
            return;
        }
    }
    begin_first_idle(observed, state, from, idle);
}

#[cold]
#[inline(never)]
fn begin_first_idle(observed: &Observed, state: &mut State, from: &Entry, idle: IdlePlace) {
    let from = Entry { call: OPENMP_IDLE, ..*from };
    state.regions.idle = state.with_room(|state| match idle {
        IdlePlace::Caller => unwind_outside(observed, state, &from),
        IdlePlace::StartOfRuntime => {
            unwind_in_runtime(observed, state, &from, true).map(|call| call.entry)
        }
    });
    if let Some(place) = state.regions.idle {
        enter(observed, state, &Entry { ticks: from.ticks, ..place });
    }
}

/// Ends the wait of a pool's thread at `ticks`; does nothing if it does not wait.
#[inline]
pub fn end_idle(observed: &Observed, state: &mut State, ticks: u64) {
    let Some(place) = state.regions.idle else { return };
    if state.regions.open.return_slot == place.return_slot {
        // Idle time lies between shares, and in none of them.
        exit(observed, state, place.return_slot, ticks, 0, None, CallKind::Other);
    }
}
