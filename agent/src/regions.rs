//! Wrapped calls: counted and timed per call path.
//!
//! A call's path is unwound once. Its frames and the places of their return addresses are kept in
//! a slot, and a later call belongs to the slot if it comes from the same place on the stack and
//! every return address still stands where it stood: some twenty loads instead of an unwind, and
//! exact. Short calls add to the slot's counters, which travel with the next record; a call that
//! lasted a period or more, was sampled, or is a global synchronisation writes a record itself.

use core::sync::atomic::Ordering;

use framehop::x86_64::UnwindRegsX86_64;

use crate::calls::{CallId, STREAM};
use crate::clock::stamp;
use crate::marks::{self, Goal, stubs};
use crate::process::Observed;
use crate::record::{OffCpu, Record, STAMP_SHIFT};
use crate::segment::{MAX_SLOTS, SlotCounters};
use crate::thread::{State, bump, difference, kept, set};
use crate::unwind::{End, Frame, Frames, Start};

/// Slots that a call may use: its hash and the next ones.
const PROBES: usize = 4;

/// A thread's table of call paths. All zeros is an empty table.
pub struct RegionTable {
    slots: [Slot; MAX_SLOTS],
    dirty: [u16; MAX_SLOTS],
    dirty_count: usize,
    /// Whose turn it is to be given up when all candidates are taken.
    turn: u32,
    open: Open,
}

/// A call from one call path.
struct Slot {
    /// 0: unused.
    call: CallId,
    /// Interned id of the call.
    call_id: u32,
    /// The reader knows what the slot stands for.
    announced: bool,
    /// Listed in `dirty`.
    dirty: bool,
    /// Frames of the caller, outermost first, without the call.
    path: Frames,
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

/// What the open call means to a sample taken inside it.
pub struct OpenCall<'t> {
    /// Place of its return address.
    pub place: u64,
    /// Stamp of its entry.
    pub entered: u64,
    /// Frames of its caller, outermost first.
    pub path: &'t [Frame],
    /// The frame of the call itself.
    pub frame: Frame,
    /// Where the time before it went, if that was long and is not yet recorded.
    pub before: Option<OffCpu>,
}

impl RegionTable {
    /// Place of the open call's return address.
    pub fn open_place(&self) -> Option<u64> {
        (self.open.place != 0).then_some(self.open.place)
    }

    /// The open call, if there is one. Marks it as sampled.
    pub fn sample_open(&mut self) -> Option<OpenCall<'_>> {
        if self.open.place == 0 {
            return None;
        }
        self.open.sampled = true;
        let before = self.open.before.take();
        let slot = &self.slots[usize::from(self.open.slot)];
        Some(OpenCall {
            frame: call_frame(slot, self.open.entered),
            place: self.open.place,
            entered: stamp(self.open.entered),
            path: slot.path.as_slice(),
            before,
        })
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
pub fn enter(observed: &Observed, state: &mut State, entry: &Entry) -> bool {
    // Our own reads and writes are no part of the application.
    if observed.is_own(entry.return_address) {
        return false;
    }
    let open = state.regions.open;
    if open.place != 0 {
        if entry.place < open.place {
            return false;
        }
        // An outer frame enters a call: the open one was left by a longjmp or an exception.
        state.regions.open = Open::default();
    }
    if state.paused || state.muted {
        return false;
    }
    let slot = match find(state, entry) {
        Some(slot) => slot,
        None => match unwind(observed, state, entry) {
            Some(slot) => slot,
            None => return false,
        },
    };
    // Read now, since a reading after the call could not tell what happened before it.
    let since_last = stamp(entry.ticks).saturating_sub(state.stream.last_stamp());
    let before = (since_last > observed.part_stamps).then(|| state.off_cpu.read());
    state.regions.open = Open {
        slot: slot as u16,
        place: entry.place,
        entered: entry.ticks,
        sampled: false,
        before,
    };
    let thread = &state.area().thread;
    thread.open_stamp.store(stamp(entry.ticks), Ordering::Relaxed);
    set(&thread.open_call, u32::from(entry.call));
    set(&thread.open_slot, slot as u32 + 1);
    true
}

/// Notes that the call that returns to `place` ends. `sync`: it was a global synchronisation.
pub fn exit(
    observed: &Observed,
    state: &mut State,
    place: u64,
    ticks: u64,
    bytes: u64,
    sync: bool,
    mpi: bool,
) {
    let open = state.regions.open;
    if open.place != place {
        // The measurement stopped or the stack was changed meanwhile.
        return;
    }
    state.regions.open = Open::default();
    let thread = &state.area().thread;
    set(&thread.open_slot, 0);
    bump(&thread.calls, 1);
    bump(&thread.mpi_calls, u64::from(mpi));
    let duration = ticks.saturating_sub(open.entered);
    let slot = usize::from(open.slot);
    let alone = sync || open.sampled || open.before.is_some();
    if !alone && duration < observed.period_ticks {
        count(state, slot, duration, bytes);
        return;
    }
    flush_tallies(state);
    announce(state, slot);
    let call = &state.regions.slots[slot];
    state.taken.copy_from(call.path.as_slice());
    state.taken.push(call_frame(call, open.entered));
    let compared = kept(&state.current, state.taken.as_slice());
    let kept = marks::kept(state, state.live(), compared) as u32;
    if stamp(duration) > observed.part_stamps {
        // Waiting for a core while waiting anyway is no loss of its own: the next reading begins
        // after it.
        state.off_cpu.read();
    }
    let sync = sync.then(|| {
        let syncs = &state.area().thread.syncs;
        let index = syncs.load(Ordering::Relaxed);
        syncs.store(index + 1, Ordering::Relaxed);
        index
    });
    let now = stamp(ticks);
    let duration = now.saturating_sub(stamp(open.entered));
    let record = Record::Exit {
        stamp: state.stream.stamp(now),
        slot: slot as u32,
        kept,
        duration,
        bytes,
        sync,
        off_cpu: open.before,
    };
    let fitted = state.stream.write(&record);
    core::mem::swap(&mut state.current, &mut state.taken);
    marks::note(state);
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
}

/// Forgets what short calls have added: it belongs to no run.
pub fn discard_tallies(state: &mut State) {
    for at in 0..state.regions.dirty_count {
        let slot = usize::from(state.regions.dirty[at]);
        state.regions.slots[slot].dirty = false;
        clear(&state.area().slots[slot]);
    }
    state.regions.dirty_count = 0;
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
        min: counters.min.load(Ordering::Relaxed) >> STAMP_SHIFT,
        max: counters.max.load(Ordering::Relaxed) >> STAMP_SHIFT,
        bytes: counters.bytes.load(Ordering::Relaxed),
    };
    clear(counters);
    let fitted = state.stream.write(&record);
    state.written(fitted);
}

fn count(state: &mut State, slot: usize, duration: u64, bytes: u64) {
    let counters = &state.area().slots[slot];
    let first = counters.count.load(Ordering::Relaxed) == 0;
    bump(&counters.sum, duration);
    bump(&counters.bytes, bytes);
    let (min, max) = (counters.min.load(Ordering::Relaxed), counters.max.load(Ordering::Relaxed));
    counters.min.store(if first { duration } else { min.min(duration) }, Ordering::Relaxed);
    counters.max.store(if first { duration } else { max.max(duration) }, Ordering::Relaxed);
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
    let (regions, current) = (&mut state.regions, &state.current);
    let entry = &mut regions.slots[slot];
    if entry.announced {
        return;
    }
    entry.announced = true;
    state.taken.copy_from(entry.path.as_slice());
    state.taken.push(Frame { id: entry.call_id, ..Frame::default() });
    let kept = kept(current, state.taken.as_slice());
    let stack = difference(current, state.taken.as_slice(), kept, &mut state.ids);
    let fitted = state.stream.write(&Record::Slot { slot: slot as u32, stack });
    state.written(fitted);
}

/// Where the slots for a call begin.
fn first_slot(entry: &Entry) -> usize {
    let mixed =
        (entry.place ^ entry.return_address.rotate_left(20)).wrapping_add(u64::from(entry.call));
    (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as usize
}

fn candidates(entry: &Entry) -> impl Iterator<Item = usize> + use<> {
    let first = first_slot(entry);
    (first..first + PROBES).map(|at| at % MAX_SLOTS)
}

/// The slot whose call path is still on the stack, word by word.
#[inline]
fn find(state: &State, entry: &Entry) -> Option<usize> {
    // On another stack than the thread's own, the places of an old path may be gone.
    if entry.place < state.stack_bounds.0 || entry.place >= state.stack_bounds.1 {
        return None;
    }
    candidates(entry).find(|at| {
        let slot = &state.regions.slots[*at];
        slot.call & !STREAM == entry.call
            && slot.path.as_slice().last().is_some_and(|caller| caller.place == entry.place)
            && slot.path.as_slice().iter().rev().all(|frame| {
                // SAFETY: the place lies on the thread's own stack, between the innermost frame's
                // place, which is this call's, and the stack's upper end.
                frame.place >= entry.place
                    && frame.place < state.stack_bounds.1
                    && stubs::original(unsafe { *(frame.place as *const u64) }) == frame.address
            })
    })
}

/// Unwinds the call's path into a slot.
#[cold]
fn unwind(observed: &Observed, state: &mut State, entry: &Entry) -> Option<usize> {
    let start = Start {
        address: entry.return_address,
        is_return: true,
        place: entry.place,
        regs: UnwindRegsX86_64::new(entry.return_address, entry.place + 8, entry.caller_rbp),
        stack_bounds: state.stack_bounds,
        stop_at: u64::MAX,
        goal: Goal::NONE,
    };
    let mut call = entry.call;
    if is_stream(entry.descriptor) {
        call |= STREAM;
    }
    let call_id = observed.with_unwinding(state, |unwinding, walk| {
        walk.taken.clear();
        if unwinding.walk(start, walk.taken) == End::Truncated {
            bump(&walk.area().thread.truncated, 1);
        }
        walk.taken.reverse();
        unwinding.intern_call(call)
    })??;
    if state.taken.as_slice().is_empty() {
        return None;
    }
    let same = |slot: &Slot| slot.call == call && slot.path.as_slice() == state.taken.as_slice();
    if let Some(at) = candidates(entry).find(|at| same(&state.regions.slots[*at])) {
        return Some(at);
    }
    let at = match candidates(entry).find(|at| state.regions.slots[*at].call == 0) {
        Some(at) => at,
        None => {
            // All taken: give up the oldest of them by turns. Its counts must not be lost.
            state.inner.copy_from(state.taken.as_slice());
            flush_tallies(state);
            state.taken.copy_from(state.inner.as_slice());
            state.regions.turn = state.regions.turn.wrapping_add(1);
            (first_slot(entry) + state.regions.turn as usize % PROBES) % MAX_SLOTS
        }
    };
    let slot = &mut state.regions.slots[at];
    slot.path.copy_from(state.taken.as_slice());
    (slot.call, slot.call_id, slot.announced) = (call, call_id, false);
    Some(at)
}

/// Whether a descriptor is a socket, a pipe or a terminal. Leaves errno alone.
fn is_stream(descriptor: libc::c_int) -> bool {
    if descriptor < 0 {
        return false;
    }
    let mut status = core::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: errno's location is valid; the kernel fills in the status.
    let mode = unsafe {
        let errno = *libc::__errno_location();
        let result = libc::syscall(libc::SYS_fstat, descriptor, status.as_mut_ptr());
        *libc::__errno_location() = errno;
        if result != 0 {
            return false;
        }
        status.assume_init().st_mode & libc::S_IFMT
    };
    !matches!(mode, libc::S_IFREG | libc::S_IFBLK | libc::S_IFDIR)
}
