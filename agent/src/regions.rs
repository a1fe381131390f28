//! Wrapped calls: counted and timed per call path.
//!
//! A call path is unwound once. Its frames and the places of their return addresses are stored in a
//! slot. A later call belongs to the slot if it comes from the same place on the stack and every
//! return address is unchanged: an exact test with some twenty loads instead of an unwind. Short
//! calls add to the slot's counters, which are written with the next record. A call that lasted a
//! period or more, was sampled, or synchronised ranks writes a record of its own.

use core::sync::atomic::Ordering;

use crate::channels::Direction;
use crate::counters;
use crate::marks;
use crate::observed_process::Observed;
use crate::partner_table;
use crate::thread_state::{State, add_owned, common_prefix, difference, store_owned};
use crate::unwind::{Frame, Path};
use plimsoll_calls::CallId;
use plimsoll_wire::clock_anchor::stamp;
use plimsoll_wire::record::{Message, OffCpu, PartnerMessages, Record, STAMP_SHIFT};
use plimsoll_wire::segment::{MAX_SLOTS, SlotCounters, ThreadArea};
use plimsoll_wire::sync_id::{SyncId, SyncScope};
use plimsoll_wire::teams::PathKey;

pub mod declared;
pub mod lock_holders;
pub mod outlined;
mod paths;
pub mod shares;
pub mod tasks;
pub mod thread_creations;
pub mod tool_events;

use paths::{Paths, StoredPath, find, unwind};
use tasks::Measured;
use thread_creations::announce_creations;

/// A thread's table of call paths. Zeroed memory becomes an empty table by [`RegionTable::begin`],
/// which writes the fields with other initial values.
pub struct RegionTable {
    slots: [Slot; MAX_SLOTS],
    /// By first candidate slot of a call: which of the candidates was found last.
    last_found: [u8; MAX_SLOTS],
    paths: Paths,
    dirty: [u16; MAX_SLOTS],
    dirty_count: usize,
    /// Whether the consumer may not know the slots of creations of threads.
    creations_unknown: bool,
    /// Round-robin eviction counter, used when all candidate slots of a call are taken.
    turn: u32,
    open: Open,
    /// Time stamp counter at the exit of the last call, if that call polled; otherwise 0.
    polled: u64,
    /// Pseudo call in which the thread waits between shares of parallel regions; `None` if the
    /// thread has not waited yet.
    idle: Option<Entry>,
    /// Declared function with an awaited return.
    awaited: Option<declared::Awaited>,
    /// The share that the thread has executed last.
    last_share: shares::LastShare,
    /// The last wait for a lock.
    lock_wait: lock_holders::LockWait,
    /// Explicit tasks.
    tasks: tasks::Tasks,
    /// Events of an OpenMP runtime that calls back.
    tool: tool_events::ToolThread,
}

/// A wrapped call from one call path. The path holds the frames of the caller, outermost first,
/// without the call itself.
struct Slot {
    /// Id of the call; 0: the slot is unused.
    call: CallId,
    /// Address id under which the call is interned.
    call_id: u32,
    /// Whether the slot's call path has been written to the record stream.
    announced: bool,
    /// Whether the slot is listed in the table's `dirty`.
    dirty: bool,
    /// Whether all return addresses of the path lie at the call's place or higher, so that no
    /// signal frame stands between them.
    outwards: bool,
    /// Whether `outwards` holds and all return addresses lie on the thread's own stack.
    on_stack: bool,
    /// Whether the path has functions of scripts.
    has_scripts: bool,
    /// Whether the path was unwound to the end of the stack.
    whole: bool,
    /// Whether the call polls for progress.
    polls: bool,
    /// Index of the outermost frame in a declared function; 0: no frame is in one.
    declared: u16,
    /// Call path of another thread that the path lies in.
    graft: PathKey,
    /// Name of the whole path, with `graft` and the call.
    path_key: PathKey,
    /// Index in the area's table of parallel regions plus one; 0: no entry.
    region: u8,
    /// Position of the path in the table's `paths`.
    path: StoredPath,
}

/// The open wrapped call, if any.
#[derive(Clone, Copy, Default)]
struct Open {
    slot: u16,
    /// Place of the call's return address; 0: no call is open.
    return_slot: u64,
    /// Time stamp counter at the call's entry.
    entered: u64,
    /// Whether a sample was taken inside the call.
    sampled: bool,
    /// Ticks since the last poll, if the call polls and they are few; otherwise 0.
    poll_gap: u64,
    /// CPU time and run-queue delay of the interval before the call. `None`: the interval was
    /// short, or is already recorded.
    before: Option<OffCpu>,
}

impl Open {
    /// No call is open.
    const NONE: Self =
        Self { slot: 0, return_slot: 0, entered: 0, sampled: false, poll_gap: 0, before: None };
}

/// Entry of a wrapped call, as its wrapper describes it.
#[derive(Clone, Copy)]
pub struct Entry {
    /// Id of the call.
    pub call: CallId,
    /// Place of the call's return address on the stack.
    pub return_slot: u64,
    /// The return address.
    pub return_address: u64,
    /// Value of rbp in the caller.
    pub caller_rbp: u64,
    /// File descriptor that the call reads or writes, or -1.
    pub descriptor: libc::c_int,
    /// Time stamp counter at entry.
    pub ticks: u64,
}

/// Position of the open call on the stack.
pub struct OpenCall<'t> {
    /// Place of the call's return address.
    pub return_slot: u64,
    /// Frames of the caller, outermost first.
    pub path: &'t [Frame],
    /// The frame of the call itself.
    pub frame: Frame,
}

impl RegionTable {
    /// Turns zeroed memory into an empty table without an open call.
    ///
    /// # Safety
    /// The table's memory is zeroed, and nothing but the caller uses it.
    pub unsafe fn begin(table: *mut Self) {
        // SAFETY: as the caller promises.
        unsafe {
            (&raw mut (*table).open).write(Open::default());
            (&raw mut (*table).idle).write(None);
            (&raw mut (*table).awaited).write(None);
            (&raw mut (*table).lock_wait).write(lock_holders::LockWait::default());
            (&raw mut (*table).last_share).write(shares::LastShare::NONE);
        };
    }

    /// Returns the open call; `None` if no call is open.
    pub fn open_call(&self) -> Option<OpenCall<'_>> {
        let Open { return_slot, slot, entered, .. } = self.open;
        let at = usize::from(slot);
        (return_slot != 0).then(|| OpenCall {
            return_slot,
            path: self.path(at),
            frame: call_frame(&self.slots[at], entered),
        })
    }

    /// Returns the path of a slot.
    #[inline]
    fn path(&self, slot: usize) -> &[Frame] {
        self.paths.get(self.slots[slot].path)
    }

    /// Drops the open call after a jump or an exception has left it.
    pub fn leave(&mut self) {
        self.open.return_slot = 0;
    }

    /// Notes that a sample is taken inside the open call. Returns the stamp of the call's entry,
    /// and the CPU time and run-queue delay of the interval before the call, if that interval was
    /// long and is not yet recorded. Returns `None` if no call is open.
    pub fn sample_open(&mut self) -> Option<(u64, Option<OffCpu>)> {
        if self.open.return_slot == 0 {
            return None;
        }
        self.open.sampled = true;
        Some((stamp(self.open.entered), self.open.before.take()))
    }

    /// Marks all slots as unannounced: after a loss the consumer no longer knows any slot.
    pub fn announce_all_again(&mut self) {
        for slot in &mut self.slots {
            slot.announced = false;
        }
        self.creations_unknown = true;
    }
}

/// Returns the frame of the call itself, inside the frame of its caller. The frame's place, the
/// time of entry, is unique to this one call.
fn call_frame(slot: &Slot, entered: u64) -> Frame {
    Frame { address: u64::from(slot.call), return_slot: entered | 1, id: slot.call_id, stub: 0 }
}

/// Purpose of the time in a wrapped call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CallKind {
    /// MPI.
    Mpi,
    /// Waiting for other threads: for the team or tasks of OpenMP, or in the C library.
    Barrier,
    /// Waiting for a section of OpenMP or a lock.
    Lock,
    /// Anything else.
    Other,
}

/// Notes the entry of a wrapped call. Returns false if the call is not measured: the call runs
/// inside another wrapped call, the thread is paused or muted, or the call path could not be found.
#[inline]
pub fn enter(observed: &Observed, state: &mut State, entry: &Entry) -> bool {
    enter_as(observed, state, entry, Measured::ByPath)
}

/// As [`enter`], for a call of the OpenMP runtime.
pub fn enter_runtime(observed: &Observed, state: &mut State, entry: &Entry) -> bool {
    let measured = tasks::measured(state, entry.call);
    enter_as(observed, state, entry, measured)
}

#[inline(always)]
fn enter_as(observed: &Observed, state: &mut State, entry: &Entry, measured: Measured) -> bool {
    let open_slot_address = state.regions.open.return_slot;
    if open_slot_address != 0 {
        if entry.return_slot < open_slot_address {
            return false;
        }
        // An outer frame enters a call: the open one was left by a longjmp or an exception.
        state.regions.open.return_slot = 0;
    }
    if state.paused || state.muted {
        return false;
    }
    declared::settle(observed, state);
    let slot = match measured {
        Measured::Through(slot) => slot,
        Measured::No => return false,
        Measured::ByPath => match find(state, entry) {
            Some(slot) => slot,
            None => match state.with_room(|state| unwind(observed, state, entry)) {
                Some(slot) => slot,
                None => return false,
            },
        },
    };
    // Read the clock now: a reading after the call could not separate the interval before it.
    let since_last = stamp(entry.ticks).saturating_sub(state.stream.last_stamp());
    let before =
        (since_last > observed.part_stamps).then(|| state.off_cpu.read(observed.descriptors()));
    let poll_gap = poll_gap(observed, &state.regions, slot, entry.ticks);
    let open = &mut state.regions.open;
    open.slot = slot as u16;
    open.return_slot = entry.return_slot;
    open.entered = entry.ticks;
    open.sampled = false;
    open.poll_gap = poll_gap;
    open.before = before;
    let thread = &state.area().thread;
    thread.open_stamp.store(stamp(entry.ticks), Ordering::Relaxed);
    store_owned(&thread.open_call, u32::from(entry.call));
    store_owned(&thread.open_slot, slot as u32 + 1);
    let now = stamp(entry.ticks);
    if state.counters.is_due(now) {
        counters::before_call(observed, state, now);
    }
    true
}

/// Returns the ticks between the last poll and a call through `slot` that is entered at `ticks`. 0
/// unless the call polls, no other wrapped call lies between, and the time is too short for work.
#[inline(always)]
fn poll_gap(observed: &Observed, regions: &RegionTable, slot: usize, ticks: u64) -> u64 {
    let gap = ticks.saturating_sub(regions.polled);
    if regions.slots[slot].polls && gap <= observed.poll_gap_ticks { gap } else { 0 }
}

/// Returns the slot of the open call with its return address at `return_slot`, and the call's
/// duration until `ticks`, in ticks. Returns `None` if that call is not open.
#[inline]
pub fn open_until(state: &State, return_slot: u64, ticks: u64) -> Option<(u16, u64)> {
    let open = &state.regions.open;
    (open.return_slot == return_slot && return_slot != 0)
        .then(|| (open.slot, ticks.saturating_sub(open.entered)))
}

/// Adds messages exchanged with a partner in calls through a slot. Their wait time is in ticks
/// here.
#[inline(always)]
pub fn meet(state: &mut State, slot: u16, messages: PartnerMessages) {
    // SAFETY: the area stays mapped as long as the state.
    let ThreadArea { thread, partners, .. } = unsafe { &*state.area };
    if !partner_table::add(partners, &thread.partners, slot, &messages) {
        // A copy: the compiler would write the original to memory for every message.
        let copy = messages;
        flush_and_add(state, slot, &copy);
    }
}

#[cold]
#[inline(never)]
fn flush_and_add(state: &mut State, slot: u16, messages: &PartnerMessages) {
    state.with_room(flush_partners);
    // SAFETY: as above.
    let ThreadArea { thread, partners, .. } = unsafe { &*state.area };
    let added = partner_table::add(partners, &thread.partners, slot, messages);
    debug_assert!(added, "an empty table has room");
}

/// Notes the exit of the call with its return address at `return_slot`. `scope` names the ranks
/// that the call has synchronised; `None` if there is no synchronisation to record.
#[inline]
pub fn exit(
    observed: &Observed,
    state: &mut State,
    return_slot: u64,
    ticks: u64,
    bytes: u64,
    scope: Option<&SyncScope>,
    kind: CallKind,
) {
    let open = &mut state.regions.open;
    if open.return_slot != return_slot {
        // Meanwhile the measurement was stopped or the stack switched.
        return;
    }
    open.return_slot = 0;
    let scope = scope.filter(|scope| is_next(state, **scope));
    let open = &state.regions.open;
    let slot = usize::from(open.slot);
    let duration = ticks.saturating_sub(open.entered);
    let polls = state.regions.slots[slot].polls;
    state.regions.polled = if polls { ticks } else { 0 };
    let times = &mut state.call_times;
    match kind {
        CallKind::Mpi => times.mpi = times.mpi.wrapping_add(duration),
        CallKind::Barrier => times.barrier = times.barrier.wrapping_add(duration),
        CallKind::Lock => times.lock = times.lock.wrapping_add(duration),
        CallKind::Other => {}
    }
    let open = &state.regions.open;
    let alone = scope.is_some() || open.sampled || open.before.is_some();
    let thread = &state.area().thread;
    store_owned(&thread.open_slot, 0);
    add_owned(&thread.calls, 1);
    add_owned(&thread.mpi_calls, u64::from(kind == CallKind::Mpi));
    if alone || duration >= observed.period_ticks {
        state.with_room(|state| record_exit(observed, state, ticks, bytes, scope));
    } else {
        // A poll moves no bytes: its counter holds the time since the poll before.
        let amount = if polls { state.regions.open.poll_gap } else { bytes };
        count(state, slot, duration, amount);
    }
}

/// Takes the index of a synchronisation of all ranks at its start. All ranks start collectives in
/// the same order, but each rank may complete nonblocking collectives in a different order.
pub fn take_index(state: &State) -> u64 {
    let syncs = &state.area().thread.syncs;
    let index = syncs.load(Ordering::Relaxed);
    syncs.store(index + 1, Ordering::Relaxed);
    index
}

/// Returns whether a synchronisation comes after all recorded ones. A collective that was started
/// before another one and completed after it adds no information.
fn is_next(state: &State, scope: SyncScope) -> bool {
    match scope {
        SyncScope::AllSince(index) => index >= state.area().thread.synced.load(Ordering::Relaxed),
        SyncScope::All | SyncScope::Subgroup(..) => true,
    }
}

/// Returns the identity of a synchronisation that is being recorded.
fn sync_id(state: &State, scope: SyncScope) -> SyncId {
    let of_all = |index: u64| {
        state.area().thread.synced.store(index + 1, Ordering::Relaxed);
        SyncId { subgroup: None, index }
    };
    match scope {
        SyncScope::All => of_all(take_index(state)),
        SyncScope::AllSince(index) => of_all(index),
        SyncScope::Subgroup(subgroup, index) => SyncId { subgroup: Some(subgroup), index },
    }
}

/// Writes the exit record of the call that was open.
#[cold]
#[inline(never)]
fn record_exit(
    observed: &Observed,
    state: &mut State,
    ticks: u64,
    bytes: u64,
    scope: Option<&SyncScope>,
) {
    let open = state.regions.open;
    let slot = usize::from(open.slot);
    flush_tallies(state);
    counters::write(observed, state, stamp(ticks), true);
    let is_known = announce(state, slot);
    let regions = &state.regions;
    let call = call_frame(&regions.slots[slot], open.entered);
    let path = Path { outer: regions.path(slot), inner: &[call] };
    let common_prefix = marks::limit_common(state, common_prefix(&state.current, path, 0));
    if stamp(ticks.saturating_sub(open.entered)) > observed.part_stamps {
        // Waiting for a core inside a call that waits anyway is no loss of its own: this reading
        // makes the next one begin after the call.
        state.off_cpu.read(observed.descriptors());
    }
    let sync = scope.map(|scope| sync_id(state, *scope));
    let now = stamp(ticks);
    let duration = now.saturating_sub(stamp(open.entered));
    let record = Record::Exit {
        stamp: state.stream.stamp(now),
        slot: slot as u32,
        common: common_prefix as u32,
        duration,
        bytes,
        sync,
        off_cpu: open.before,
    };
    let fitted = state.stream.write_for_slot(is_known, &record);
    let markable = fitted && regions.slots[slot].whole && regions.slots[slot].on_stack;
    state.current.follow(path, common_prefix);
    state.common = state.common.min(common_prefix);
    // Between blocking calls there may be no sample. The stack is therefore marked here, too, so
    // that the next call can determine which caller frames have returned.
    if markable && observed.marks() {
        marks::plant(observed, state);
    } else {
        marks::note(state);
    }
    state.written(fitted);
}

/// Writes and clears the counters that short calls have added to the slots since the last flush,
/// and the tables of partners and of OpenMP when they are due.
pub fn flush_tallies(state: &mut State) {
    for at in 0..state.regions.dirty_count {
        let slot = usize::from(state.regions.dirty[at]);
        state.regions.slots[slot].dirty = false;
        flush_slot(state, slot);
    }
    state.regions.dirty_count = 0;
    if state.regions.creations_unknown {
        announce_creations(state);
    }
    let last = state.stream.last_stamp();
    if last.saturating_sub(state.partners_written) > PARTNER_STAMPS {
        flush_partners(state);
        flush_openmp(state);
    }
}

/// Writes and clears the tables of parallel regions, tasks and waits for locks.
pub fn flush_openmp(state: &mut State) {
    shares::flush_regions(state);
    tasks::flush_tasks(state);
    lock_holders::flush_lock_waits(state);
}

/// Minimum interval between two flushes of the partner table, in stamps: one second or more with a
/// time stamp counter of 3.2 GHz or less.
const PARTNER_STAMPS: u64 = 50_000_000;

/// Writes all entries of the partner table and clears it.
#[cold]
#[inline(never)]
pub fn flush_partners(state: &mut State) {
    state.partners_written = state.stream.last_stamp();
    // SAFETY: the area stays mapped as long as the state.
    let ThreadArea { thread, partners, .. } = unsafe { &*state.area };
    if thread.partners.load(Ordering::Relaxed) == 0 {
        return;
    }
    for entry in partners {
        let Some((slot, messages)) = partner_table::read(entry) else { continue };
        partner_table::clear(entry);
        let messages = PartnerMessages { waited: messages.waited >> STAMP_SHIFT, ..messages };
        write_for_slot(state, slot.into(), &Record::Partner { slot: slot.into(), messages });
    }
    store_owned(&thread.partners, 0);
}

/// One end of an exemplary message, recorded when the completing call has returned. Times are in
/// ticks of the time stamp counter.
pub struct Exemplar {
    /// Direction of the message.
    pub direction: Direction,
    /// Rank of the partner among all ranks.
    pub partner: u32,
    /// Name of the communicator's members, the same on all of them.
    pub group: u32,
    /// Tag.
    pub tag: i32,
    /// Number of the message in its channel.
    pub number: u32,
    /// When the call began that has sent or posted the message.
    pub posted: u64,
    /// When the call began that has completed the message.
    pub entered: u64,
    /// When that call returned.
    pub left: u64,
}

/// Writes the record of an exemplary message completed by the open call, which runs through `slot`.
#[cold]
#[inline(never)]
pub fn write_message(state: &mut State, slot: u16, exemplar: &Exemplar) {
    let message = Message {
        is_sent: exemplar.direction == Direction::Sent,
        partner: exemplar.partner,
        // Numbers begin anew when the measurement is resumed.
        group: exemplar.group ^ state.channels.epoch,
        tag: exemplar.tag,
        number: exemplar.number,
        posted: stamp(exemplar.posted),
        entered: stamp(exemplar.entered),
        left: stamp(exemplar.left),
        waited: stamp(state.channels.waited),
    };
    state.with_room(|state| {
        write_for_slot(state, slot.into(), &Record::Message { slot: slot.into(), message });
    });
}

/// Discards the counters of short calls and partners and the started requests: they belong to no
/// run.
pub fn discard_tallies(state: &mut State) {
    for at in 0..state.regions.dirty_count {
        let slot = usize::from(state.regions.dirty[at]);
        state.regions.slots[slot].dirty = false;
        clear(&state.area().slots[slot]);
    }
    state.regions.dirty_count = 0;
    shares::discard_regions(state);
    tasks::discard_tasks(state);
    lock_holders::discard_lock_waits(state);
    let area = state.area();
    partner_table::clear_all(&area.partners, &area.thread.partners);
    state.requests.clear();
    state.channels.clear();
}

fn clear(counters: &SlotCounters) {
    counters.count.store(0, Ordering::Relaxed);
    counters.sum.store(0, Ordering::Relaxed);
    counters.bytes.store(0, Ordering::Relaxed);
}

fn flush_slot(state: &mut State, slot: usize) {
    let counters: &SlotCounters = &state.area().slots[slot];
    let count = counters.count.load(Ordering::Relaxed);
    if count == 0 {
        return;
    }
    let record = Record::Tally {
        slot: slot as u32,
        count,
        sum: counters.sum.load(Ordering::Relaxed) >> STAMP_SHIFT,
        bytes: counters.bytes.load(Ordering::Relaxed),
    };
    clear(counters);
    write_for_slot(state, slot, &record);
}

#[inline]
fn count(state: &mut State, slot: usize, duration: u64, amount: u64) {
    let counters = &state.area().slots[slot];
    add_owned(&counters.sum, duration);
    add_owned(&counters.bytes, amount);
    add_owned(&counters.count, 1);
    let regions = &mut state.regions;
    if !regions.slots[slot].dirty {
        regions.slots[slot].dirty = true;
        regions.dirty[regions.dirty_count] = slot as u16;
        regions.dirty_count += 1;
    }
}

/// Writes a record that names a slot, after the slot's call path if the consumer does not know it.
fn write_for_slot(state: &mut State, slot: usize, record: &Record<'_>) {
    let is_known = announce(state, slot);
    let fitted = state.stream.write_for_slot(is_known, record);
    state.written(fitted);
}

/// Writes the slot's call path to the record stream unless the consumer already knows the slot.
/// Returns whether the consumer knows the slot afterwards: the path may not fit the ring. The
/// stream is corrupt if it names an unknown slot.
fn announce(state: &mut State, slot: usize) -> bool {
    let entry = &mut state.regions.slots[slot];
    if entry.announced {
        return true;
    }
    entry.announced = true;
    let graft = entry.graft;
    lie_in(state, graft);
    if state.announced_graft != graft {
        // The record did not fit the ring, and the consumer knows no slot any more.
        return false;
    }
    let entry = &state.regions.slots[slot];
    let call = Frame { id: entry.call_id, ..Frame::default() };
    let path = Path { outer: state.regions.path(slot), inner: &[call] };
    let common_prefix = common_prefix(&state.current, path, 0);
    let stack = difference(&state.current, path, common_prefix, &mut state.ids);
    let fitted = state.stream.write(&Record::Slot { slot: slot as u32, stack });
    state.written(fitted);
    fitted
}

/// Writes that the stacks and slots of the next records lie in the call path `path`, unless the
/// consumer knows it.
#[inline]
pub fn lie_in(state: &mut State, path: PathKey) {
    if state.announced_graft != path {
        state.announced_graft = path;
        let fitted = state.stream.write(&Record::Graft { path });
        state.written(fitted);
    }
}
