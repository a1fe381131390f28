//! Wrapped calls: counted and timed per call path.
//!
//! A call's path is unwound once. Its frames and the places of their return addresses are kept in
//! a slot, and a later call belongs to the slot if it comes from the same place on the stack and
//! every return address still stands where it stood: some twenty loads instead of an unwind, and
//! exact. Short calls add to the slot's counters, which travel with the next record; a call that
//! lasted a period or more, was sampled, or synchronised ranks writes a record itself.

use core::sync::atomic::Ordering;

use crate::marks;
use crate::partner_table;
use crate::process::Observed;
use crate::thread::{State, bump, difference, kept, set};
use crate::unwind::{Frame, Path};
use plimsoll_calls::CallId;
use plimsoll_wire::clock::stamp;
use plimsoll_wire::record::{OffCpu, PartnerMessages, Record, STAMP_SHIFT};
use plimsoll_wire::segment::{MAX_SLOTS, SlotCounters, ThreadArea};
use plimsoll_wire::sync::{Among, Sync};

mod paths;

use paths::{Kept, Paths, find, unwind};

/// A thread's table of call paths. Zeros are an empty table once [`RegionTable::begin`] has written
/// what zeros do not stand for.
pub struct RegionTable {
    slots: [Slot; MAX_SLOTS],
    paths: Paths,
    dirty: [u16; MAX_SLOTS],
    dirty_count: usize,
    /// Whose turn it is to be given up when all candidates are taken.
    turn: u32,
    open: Open,
}

/// A call from one call path: the frames of its caller, outermost first, without the call.
struct Slot {
    /// 0: unused.
    call: CallId,
    /// Interned id of the call.
    call_id: u32,
    /// The reader knows what the slot stands for.
    announced: bool,
    /// Listed in `dirty`.
    dirty: bool,
    /// All return addresses of its path lie at the call's or at higher addresses: no signal frame
    /// stands between them.
    outwards: bool,
    /// So they do, and on the thread's own stack.
    on_stack: bool,
    /// Its path was unwound to the end of the stack.
    whole: bool,
    /// Where its path stands.
    path: Kept,
}

/// The call that is open.
#[derive(Clone, Copy, Default)]
struct Open {
    slot: u16,
    /// Place of its return address; 0: no call is open.
    place: u64,
    /// Time stamp counter at its entry.
    entered: u64,
    /// A sample was taken inside.
    sampled: bool,
    /// Where the time before it went, if that was long and is not yet recorded.
    before: Option<OffCpu>,
}

/// A call as its wrapper sees it.
#[derive(Clone, Copy)]
pub struct Entry {
    /// Which call.
    pub call: CallId,
    /// Place of its return address on the stack.
    pub place: u64,
    /// The return address.
    pub return_address: u64,
    /// rbp of the caller.
    pub caller_rbp: u64,
    /// The descriptor that it reads or writes, or -1.
    pub descriptor: libc::c_int,
    /// Time stamp counter now.
    pub ticks: u64,
}

/// Where the open call stands on the stack.
pub struct OpenCall<'t> {
    /// Place of its return address.
    pub place: u64,
    /// Frames of its caller, outermost first.
    pub path: &'t [Frame],
    /// The frame of the call itself.
    pub frame: Frame,
}

impl RegionTable {
    /// Makes an empty table of zeros: there is no open call.
    ///
    /// # Safety
    /// The table's memory is zeroed, and the caller's alone.
    pub unsafe fn begin(table: *mut Self) {
        // SAFETY: as the caller promises.
        unsafe { (&raw mut (*table).open).write(Open::default()) };
    }

    /// The open call, if there is one.
    pub fn open_call(&self) -> Option<OpenCall<'_>> {
        let Open { place, slot, entered, .. } = self.open;
        let at = usize::from(slot);
        (place != 0).then(|| OpenCall {
            place,
            path: self.path(at),
            frame: call_frame(&self.slots[at], entered),
        })
    }

    /// The path of a slot.
    #[inline]
    fn path(&self, slot: usize) -> &[Frame] {
        self.paths.get(self.slots[slot].path)
    }

    /// The open call was left by a jump or an exception.
    pub fn leave(&mut self) {
        self.open.place = 0;
    }

    /// A sample is taken inside the open call: stamp of its entry, and where the time before it
    /// went, if that was long and is not yet recorded.
    pub fn sample_open(&mut self) -> Option<(u64, Option<OffCpu>)> {
        if self.open.place == 0 {
            return None;
        }
        self.open.sampled = true;
        Some((stamp(self.open.entered), self.open.before.take()))
    }

    /// After a loss the reader knows no slot any more.
    pub fn announce_all_again(&mut self) {
        for slot in &mut self.slots {
            slot.announced = false;
        }
    }
}

/// The frame of the call itself, on top of its caller's. Its place is unique to this one call.
fn call_frame(slot: &Slot, entered: u64) -> Frame {
    Frame { address: u64::from(slot.call), place: entered | 1, id: slot.call_id, stub: 0 }
}

/// Notes that a wrapped call begins. False if it is not to be measured: it runs inside another
/// wrapped call, or its path could not be found.
#[inline]
pub fn enter(observed: &Observed, state: &mut State, entry: &Entry) -> bool {
    let open_place = state.regions.open.place;
    if open_place != 0 {
        if entry.place < open_place {
            return false;
        }
        // An outer frame enters a call: the open one was left by a longjmp or an exception.
        state.regions.open.place = 0;
    }
    if state.paused || state.muted {
        return false;
    }
    let slot = match find(state, entry) {
        Some(slot) => slot,
        None => match state.with_room(|state| unwind(observed, state, entry)) {
            Some(slot) => slot,
            None => return false,
        },
    };
    // Read now, since a reading after the call could not tell what happened before it.
    let since_last = stamp(entry.ticks).saturating_sub(state.stream.last_stamp());
    let before =
        (since_last > observed.part_stamps).then(|| state.off_cpu.read(observed.descriptors()));
    let open = &mut state.regions.open;
    open.slot = slot as u16;
    open.place = entry.place;
    open.entered = entry.ticks;
    open.sampled = false;
    open.before = before;
    let thread = &state.area().thread;
    thread.open_stamp.store(stamp(entry.ticks), Ordering::Relaxed);
    set(&thread.open_call, u32::from(entry.call));
    set(&thread.open_slot, slot as u32 + 1);
    true
}

/// The open call, which returns to `place`: its slot, and how long it has lasted at `ticks`.
#[inline]
pub fn open_until(state: &State, place: u64, ticks: u64) -> Option<(u16, u64)> {
    let open = &state.regions.open;
    (open.place == place && place != 0).then(|| (open.slot, ticks.saturating_sub(open.entered)))
}

/// Adds messages of a partner in calls through a slot, with their time in ticks.
#[inline(never)]
pub fn meet(state: &mut State, slot: u16, messages: &PartnerMessages) {
    // SAFETY: the area stays mapped as long as the state.
    let ThreadArea { thread, partners, .. } = unsafe { &*state.area };
    if !partner_table::add(partners, &thread.partners, slot, messages) {
        flush_and_add(state, slot, messages);
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

/// Notes that the call that returns to `place` ends. `among`: the ranks that it has synchronised.
#[inline]
pub fn exit(
    observed: &Observed,
    state: &mut State,
    place: u64,
    ticks: u64,
    bytes: u64,
    among: Option<Among>,
    mpi: bool,
) {
    let open = &mut state.regions.open;
    if open.place != place {
        // The measurement stopped or the stack was changed meanwhile.
        return;
    }
    open.place = 0;
    let among = among.filter(|among| is_next(state, *among));
    let open = &state.regions.open;
    let slot = usize::from(open.slot);
    let duration = ticks.saturating_sub(open.entered);
    let alone = among.is_some() || open.sampled || open.before.is_some();
    let thread = &state.area().thread;
    set(&thread.open_slot, 0);
    bump(&thread.calls, 1);
    bump(&thread.mpi_calls, u64::from(mpi));
    if alone || duration >= observed.period_ticks {
        state.with_room(|state| record_exit(observed, state, ticks, bytes, among));
    } else {
        count(state, slot, duration, bytes);
    }
}

/// The index of a synchronisation of all ranks that begins. All of them start their collectives in the same
/// order, but where they complete those that do not block is up to each.
pub fn take_index(state: &State) -> u64 {
    let syncs = &state.area().thread.syncs;
    let index = syncs.load(Ordering::Relaxed);
    syncs.store(index + 1, Ordering::Relaxed);
    index
}

/// Whether a synchronisation follows all that were recorded. One that was started before another and
/// completed after it says nothing new.
fn is_next(state: &State, among: Among) -> bool {
    match among {
        Among::AllSince(index) => index >= state.area().thread.synced.load(Ordering::Relaxed),
        Among::All | Among::Part(..) => true,
    }
}

/// Writes a record of the call that was open.
#[cold]
#[inline(never)]
fn record_exit(
    observed: &Observed,
    state: &mut State,
    ticks: u64,
    bytes: u64,
    among: Option<Among>,
) {
    let open = state.regions.open;
    let slot = usize::from(open.slot);
    flush_tallies(state);
    announce(state, slot);
    let regions = &state.regions;
    let call = call_frame(&regions.slots[slot], open.entered);
    let path = Path { outer: regions.path(slot), inner: &[call] };
    let kept = marks::kept(state, kept(&state.current, path, 0));
    if stamp(ticks.saturating_sub(open.entered)) > observed.part_stamps {
        // Waiting for a core while waiting anyway is no loss of its own: the next reading begins
        // after it.
        state.off_cpu.read(observed.descriptors());
    }
    let of_all = |index: u64| {
        state.area().thread.synced.store(index + 1, Ordering::Relaxed);
        Sync { part: None, index }
    };
    let sync = among.map(|among| match among {
        Among::All => of_all(take_index(state)),
        Among::AllSince(index) => of_all(index),
        Among::Part(part, index) => Sync { part: Some(part), index },
    });
    let now = stamp(ticks);
    let duration = now.saturating_sub(stamp(open.entered));
    let record = Record::Exit {
        stamp: state.stream.stamp(now),
        slot: slot as u32,
        kept: kept as u32,
        duration,
        bytes,
        sync,
        off_cpu: open.before,
    };
    let fitted = state.stream.write(&record);
    let markable = fitted && regions.slots[slot].whole && regions.slots[slot].on_stack;
    state.current.follow(path, kept);
    state.common = state.common.min(kept);
    // Between calls that block there may be no sample: so that the next one can tell whether its callers
    // are still the same, their return is marked here, too.
    if markable && observed.marks() {
        marks::plant(observed, state);
    } else {
        marks::note(state);
    }
    state.written(fitted);
}

/// Writes what short calls have added to the slots since the last time.
pub fn flush_tallies(state: &mut State) {
    for at in 0..state.regions.dirty_count {
        let slot = usize::from(state.regions.dirty[at]);
        state.regions.slots[slot].dirty = false;
        announce(state, slot);
        flush_slot(state, slot);
    }
    state.regions.dirty_count = 0;
    let last = state.stream.last_stamp();
    if last.saturating_sub(state.partners_written) > PARTNER_STAMPS {
        flush_partners(state);
    }
}

/// Stamps between two times that partners are written out: a second or more, on a counter of 3.2 GHz or
/// less.
const PARTNER_STAMPS: u64 = 50_000_000;

/// Writes all of the partner table, and empties it.
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
        announce(state, slot.into());
        let messages = PartnerMessages { waited: messages.waited >> STAMP_SHIFT, ..messages };
        let fitted = state.stream.write(&Record::Partner { slot: slot.into(), messages });
        state.written(fitted);
    }
    set(&thread.partners, 0);
}

/// Forgets what short calls have added: it belongs to no run.
pub fn discard_tallies(state: &mut State) {
    for at in 0..state.regions.dirty_count {
        let slot = usize::from(state.regions.dirty[at]);
        state.regions.slots[slot].dirty = false;
        clear(&state.area().slots[slot]);
    }
    state.regions.dirty_count = 0;
    let area = state.area();
    partner_table::clear_all(&area.partners, &area.thread.partners);
    state.requests.clear();
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
    let fitted = state.stream.write(&record);
    state.written(fitted);
}

#[inline]
fn count(state: &mut State, slot: usize, duration: u64, bytes: u64) {
    let counters = &state.area().slots[slot];
    bump(&counters.sum, duration);
    bump(&counters.bytes, bytes);
    bump(&counters.count, 1);
    let regions = &mut state.regions;
    if !regions.slots[slot].dirty {
        regions.slots[slot].dirty = true;
        regions.dirty[regions.dirty_count] = slot as u16;
        regions.dirty_count += 1;
    }
}

/// Tells the reader what a slot stands for, if it does not know.
fn announce(state: &mut State, slot: usize) {
    let entry = &mut state.regions.slots[slot];
    if entry.announced {
        return;
    }
    entry.announced = true;
    let call = Frame { id: entry.call_id, ..Frame::default() };
    let path = Path { outer: state.regions.path(slot), inner: &[call] };
    let kept = kept(&state.current, path, 0);
    let stack = difference(&state.current, path, kept, &mut state.ids);
    let fitted = state.stream.write(&Record::Slot { slot: slot as u32, stack });
    state.written(fitted);
}
