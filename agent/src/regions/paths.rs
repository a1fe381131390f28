//! Lookup of the slot for a wrapped call: the slot with a path that still stands on the stack, or a
//! slot into which the call path is unwound.

use core::mem::offset_of;
use core::ops::Range;

use framehop::x86_64::UnwindRegsX86_64;

use super::declared::{DECLARED, give_up, outermost};
use super::lock_holders::flush_lock_waits;
use super::outlined::ended_function;
use super::shares::flush_regions;
use super::tool_events::is_in_runtime;
use super::{Entry, RegionTable, announce, flush_partners, flush_tallies};
use crate::marks::{MarkTarget, mark_stubs};
use crate::observed_process::{self, Observed};
use crate::stack_memory::StackMemory;
use crate::thread_state::{State, add_owned};
use crate::unwind::{Frame, Frames, Start, Unwinding, WalkEnd};
use plimsoll_calls::{CallClass, CallId, ON_RESOURCE, class};
use plimsoll_sys::syscalls::syscall;
use plimsoll_wire::record::MAX_DEPTH;
use plimsoll_wire::segment::MAX_SLOTS;
use plimsoll_wire::teams::PathKey;
use plimsoll_wire::truncation::Truncation;

/// Maximum number of frames of all paths of a thread together: 64 per slot with all slots in use.
const MAX_FRAMES: usize = MAX_SLOTS * 64;
const _: () = assert!(MAX_FRAMES >= MAX_DEPTH, "any path must have room");

/// Call paths of a thread's slots, stored one behind the other, so that they take few pages. When
/// there is no room for another path, all paths are evicted.
pub(super) struct Paths {
    frames: [Frame; MAX_FRAMES],
    used: usize,
}

/// Number of frames of all paths of a thread that has called functions from few places.
const FEW_FRAMES: usize = 1024;

impl RegionTable {
    /// Returns whether the paths take more memory than is worth keeping for another thread.
    pub(crate) fn is_large(&self) -> bool {
        self.paths.used > FEW_FRAMES
    }

    /// Returns the bytes of the table that need no initial value: frames are read only where a slot
    /// has a path, and slots are zeroed as long as no slot was used.
    pub(crate) fn unread(&self) -> [Range<usize>; 2] {
        let paths = offset_of!(Self, paths.frames);
        let slots = offset_of!(Self, slots);
        let slots_end = slots + if self.paths.used == 0 { size_of_val(&self.slots) } else { 0 };
        [paths..paths + size_of_val(&self.paths.frames), slots..slots_end]
    }
}

/// Position of a path in [`Paths`].
#[derive(Clone, Copy)]
pub(super) struct StoredPath {
    from: u32,
    length: u32,
    /// Capacity of the position, in frames.
    room: u32,
}

impl StoredPath {
    const NOTHING: Self = Self { from: 0, length: 0, room: 0 };
}

impl Paths {
    #[inline]
    pub(super) fn get(&self, kept: StoredPath) -> &[Frame] {
        let from = kept.from as usize;
        &self.frames[from..from + kept.length as usize]
    }

    /// Returns whether a path of `frames` frames fits, at the position of its slot or behind all
    /// paths.
    fn has_room(&self, place: StoredPath, frames: usize) -> bool {
        frames <= place.room as usize || frames <= MAX_FRAMES - self.used
    }

    /// Stores a path that fits and returns its position.
    fn keep(&mut self, mut place: StoredPath, path: &[Frame]) -> StoredPath {
        if path.len() > place.room as usize {
            place = StoredPath { from: self.used as u32, length: 0, room: path.len() as u32 };
            self.used += path.len();
        }
        place.length = path.len() as u32;
        let from = place.from as usize;
        self.frames[from..from + path.len()].copy_from_slice(path);
        place
    }
}

/// Number of candidate slots of a call: the one at its hash and the next ones.
const PROBES: usize = 4;

/// Returns the hash of a call; its first candidate slot is the hash modulo [`MAX_SLOTS`].
fn first_slot(call: CallId, return_slot: u64, return_address: u64) -> usize {
    let mixed = (return_slot ^ return_address.rotate_left(20)).wrapping_add(u64::from(call));
    (mixed.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 48) as usize
}

fn hash(entry: &Entry) -> usize {
    first_slot(entry.call, entry.return_slot, entry.return_address)
}

fn candidates(first: usize) -> impl Iterator<Item = usize> + use<> {
    (first..first + PROBES).map(|at| at % MAX_SLOTS)
}

/// Returns the candidate slot with a call path that is still on the stack, compared word by word.
#[inline(always)]
pub(super) fn find(state: &mut State, entry: &Entry) -> Option<usize> {
    if entry.return_slot < state.stack_bounds.0 || entry.return_slot >= state.stack_bounds.1 {
        return find_elsewhere(state, entry);
    }
    let first = hash(entry) % MAX_SLOTS;
    let probable = (first + usize::from(state.regions.last_found[first])) % MAX_SLOTS;
    if stands(state, entry, probable) {
        return Some(probable);
    }
    find_other(state, entry, first)
}

/// Like [`find`], for a call path that is not in the candidate slot found last.
#[inline(never)]
fn find_other(state: &mut State, entry: &Entry, first: usize) -> Option<usize> {
    let slot = |candidate: u8| (first + usize::from(candidate)) % MAX_SLOTS;
    let found = (0..PROBES as u8).find(|candidate| stands(state, entry, slot(*candidate)))?;
    state.regions.last_found[first] = found;
    Some(slot(found))
}

/// Returns whether the call path of a slot is that of a call on the thread's own stack.
#[inline(always)]
fn stands(state: &State, entry: &Entry, at: usize) -> bool {
    let slot = &state.regions.slots[at];
    let path = state.regions.path(at);
    slot.call & !ON_RESOURCE == entry.call
        && slot.on_stack
        && slot.graft == state.graft
        && path.last().is_some_and(|caller| caller.return_slot == entry.return_slot)
        && path.iter().rev().all(|frame| {
            if slot.has_scripts && frame.is_of_script() {
                return true;
            }
            // SAFETY: the slot says that the place lies on the thread's own stack, between the
            // call's, which is this one's, and the stack's upper end.
            let word = unsafe { *(frame.return_slot as *const u64) };
            word == frame.address || is_marked(word, frame.address)
        })
        && (!slot.has_scripts || scripts_stand(path))
}

/// Returns whether the functions of scripts in a call path are those that the thread executes.
#[inline(never)]
fn scripts_stand(path: &[Frame]) -> bool {
    let observed = observed_process::current();
    let Some(interpreter) = observed.and_then(Observed::interpreter) else { return false };
    // SAFETY: the thread is in a call with this native path, which the interpreter has made.
    unsafe { interpreter.executes(path.iter().rev().filter(|frame| frame.is_of_script())) }
}

/// Returns whether a word is the mark that replaces a return address. Out of line: few are marked.
#[inline(never)]
fn is_marked(word: u64, address: u64) -> bool {
    mark_stubs::original(word) == address
}

/// Like [`find`], for a stack other than the thread's own: the places of an old path may be
/// unmapped, so each page is checked by a system call before it is read.
#[cold]
#[inline(never)]
fn find_elsewhere(state: &State, entry: &Entry) -> Option<usize> {
    let mut memory = StackMemory::at(entry.return_slot, state.stack_bounds);
    candidates(hash(entry)).find(|at| {
        let slot = &state.regions.slots[*at];
        let path = state.regions.path(*at);
        slot.call & !ON_RESOURCE == entry.call
            && slot.outwards
            && slot.graft == state.graft
            && path.last().is_some_and(|caller| caller.return_slot == entry.return_slot)
            && path.iter().rev().filter(|frame| !frame.is_of_script()).all(|frame| {
                memory.read(frame.return_slot).is_ok_and(|word| {
                    word == frame.address || mark_stubs::original(word) == frame.address
                })
            })
            && (!slot.has_scripts || scripts_stand(path))
    })
}

/// Unwinds the call path and returns the slot for it: an existing one with the same path, or a new
/// one. Returns `None` for the agent's own calls and if no path is found.
#[cold]
#[inline(never)]
pub(super) fn unwind(observed: &Observed, state: &mut State, entry: &Entry) -> Option<usize> {
    let whole = walk(observed, state, entry)?;
    store(observed, state, entry, whole)
}

/// Unwinds the call path of `entry` and drops its innermost frame: the call is taken to be made by
/// the caller of the function that makes it. Stores the path and returns its entry.
#[cold]
#[inline(never)]
pub(super) fn unwind_outside(
    observed: &Observed,
    state: &mut State,
    entry: &Entry,
) -> Option<Entry> {
    let whole = walk(observed, state, entry)?;
    state.found.pop();
    let caller = state.found.as_slice().last()?;
    let entry = Entry { return_slot: caller.return_slot, return_address: caller.address, ..*entry };
    store(observed, state, &entry, whole)?;
    Some(entry)
}

/// Unwinds the call path of a callback of an OpenMP runtime and drops the innermost frames in the
/// runtime, all or, with `keep_first`, all but the outermost one of them. Stores the path and
/// returns the call.
#[cold]
#[inline(never)]
pub(super) fn unwind_in_runtime(
    observed: &Observed,
    state: &mut State,
    callback: &Entry,
    keep_first: bool,
) -> Option<KnownCall> {
    let whole = walk(observed, state, callback)?;
    let found = state.found.as_slice();
    let inside = found.iter().rev().take_while(|frame| is_in_runtime(frame.address)).count();
    let kept = found.len() - inside + usize::from(keep_first && inside > 0);
    while state.found.as_slice().len() > kept {
        state.found.pop();
    }
    let caller = state.found.as_slice().last()?;
    let (return_slot, return_address) = (caller.return_slot, caller.address);
    let entry = Entry { return_slot, return_address, ..*callback };
    let slot = store(observed, state, &entry, whole)?;
    Some(KnownCall { entry, slot })
}

/// A call with a known path.
#[derive(Clone, Copy)]
pub(super) struct KnownCall {
    pub(super) entry: Entry,
    /// Slot of the path.
    pub(super) slot: usize,
}

/// Unwinds the call path of `entry` into `state.found`, outermost first, and returns whether the
/// path is whole. Returns `None` for the agent's own calls and if no path is found.
fn walk(observed: &Observed, state: &mut State, entry: &Entry) -> Option<bool> {
    let ended_function = ended_function(entry);
    // The agent's own reads and writes are no part of the application.
    if ended_function.is_none() && observed.is_own(entry.return_address) {
        return None;
    }
    let start = Start {
        address: entry.return_address,
        is_return: true,
        return_slot: entry.return_slot,
        regs: UnwindRegsX86_64::new(entry.return_address, entry.return_slot + 8, entry.caller_rbp),
        stack_bounds: state.stack_bounds,
        stop_at: u64::MAX,
        stop_address: 0,
        mark_target: MarkTarget::NONE,
    };
    let mut whole = false;
    observed.with_unwinding(state, |unwinding, walk| {
        walk.found.clear();
        let mut end = unwinding.walk(start, walk.found);
        if walk.found.as_slice().len() == MAX_DEPTH {
            // The call itself is one more frame: the outermost frame makes room for it.
            walk.found.pop();
            end = WalkEnd::Truncated(Truncation::TooDeep);
        }
        whole = end.is_whole();
        if let WalkEnd::Truncated(reason) = end {
            add_owned(&walk.area().thread.truncated[reason as usize], 1);
        }
        walk.found.reverse();
        if let Some(function) = ended_function {
            push_below_last(unwinding, walk.found, function);
        }
    })?;
    Some(whole)
}

/// Adds a frame without an id to a path, outside of the innermost frame, if there is room.
fn push_below_last(unwinding: &mut Unwinding<'_>, path: &mut Frames, frame: Frame) {
    // The call itself is one more frame.
    if path.as_slice().len() + 1 < MAX_DEPTH
        && let Some(last) = path.as_slice().last().copied()
        && let Some(id) = unwinding.intern_function(frame.address)
    {
        path.pop();
        path.push(Frame { id, ..frame });
        path.push(last);
    }
}

/// Returns the slot for the path in `state.found`: an existing one with the same path, or a new
/// one. Returns `None` if there is no path.
fn store(observed: &Observed, state: &mut State, entry: &Entry, whole: bool) -> Option<usize> {
    let mut call = entry.call;
    if is_resource(entry.descriptor) {
        call |= ON_RESOURCE;
    }
    let call_id = observed.with_unwinding(state, |unwinding, _| unwinding.intern_call(call))??;
    let at =
        Frame { address: entry.return_address, return_slot: entry.return_slot, ..Frame::default() };
    store_path(state, StoredCall { call, call_id, at }, whole)
}

/// A call with a path to be stored.
pub(super) struct StoredCall {
    /// Id of the call.
    pub(super) call: CallId,
    /// Address id of the call.
    pub(super) call_id: u32,
    /// Return address of the call, and its place.
    pub(super) at: Frame,
}

/// As [`store`], for an interned call.
pub(super) fn store_path(state: &mut State, stored: StoredCall, whole: bool) -> Option<usize> {
    let StoredCall { call, call_id, at: Frame { address, return_slot, .. } } = stored;
    let first = first_slot(call & !ON_RESOURCE, return_slot, address);
    if state.found.as_slice().is_empty() {
        return None;
    }
    let same = |at: &usize| {
        let (regions, slot) = (&state.regions, &state.regions.slots[*at]);
        slot.call == call
            && slot.call_id == call_id
            && slot.graft == state.graft
            && regions.path(*at) == state.found.as_slice()
    };
    if let Some(at) = candidates(first).find(same) {
        return Some(at);
    }
    let at = match candidates(first).find(|at| state.regions.slots[*at].call == 0) {
        Some(at) => at,
        None => {
            // All candidates are taken: evict them round-robin. Flush first, so that no counts are
            // lost.
            flush_all(state);
            let awaited = state.regions.awaited.map(|awaited| usize::from(awaited.slot));
            loop {
                state.regions.turn = state.regions.turn.wrapping_add(1);
                let at = (first + state.regions.turn as usize % PROBES) % MAX_SLOTS;
                if Some(at) != awaited {
                    break at;
                }
            }
        }
    };
    let frames = state.found.as_slice().len();
    if !state.regions.paths.has_room(state.regions.slots[at].path, frames) {
        // No call is open here, but slots may be in use: of regions and of calls that tasks have
        // interrupted. Their users see by the name of the path that the slot is evicted.
        flush_all(state);
        give_up(state);
        for slot in &mut state.regions.slots {
            (slot.call, slot.path, slot.path_key) = (0, StoredPath::NOTHING, PathKey::NONE);
            slot.announced = false;
        }
        state.regions.paths.used = 0;
    }
    let path = state.found.as_slice();
    let (low, high) = state.stack_bounds;
    let mut native = path.iter().filter(|frame| !frame.is_of_script());
    let outwards = native.clone().all(|frame| return_slot <= frame.return_slot);
    let on_stack = low <= return_slot && outwards && native.all(|frame| frame.return_slot < high);
    let has_scripts = path.iter().any(Frame::is_of_script);
    let ids = path.iter().map(|frame| frame.id).chain([call_id]);
    let path_key = ids.fold(state.graft, |key, id| key.then(u64::from(id)));
    let declared = outermost(path);
    let slot = &mut state.regions.slots[at];
    slot.polls = class(call & !ON_RESOURCE) == Some(CallClass::Polling);
    slot.declared = if call == DECLARED { 0 } else { declared };
    slot.path = state.regions.paths.keep(slot.path, path);
    (slot.call, slot.call_id, slot.announced) = (call, call_id, false);
    (slot.outwards, slot.on_stack, slot.whole) = (outwards, on_stack, whole);
    slot.has_scripts = has_scripts;
    (slot.graft, slot.path_key, slot.region) = (state.graft, path_key, 0);
    // The thread may write no further record before the run ends. A path that does not fit the ring
    // is announced again with the first record that names the slot.
    announce(state, at);
    Some(at)
}

/// Writes all counters that refer to slots.
fn flush_all(state: &mut State) {
    flush_tallies(state);
    flush_partners(state);
    flush_regions(state);
    flush_lock_waits(state);
}

/// Returns whether a file descriptor is a socket, a pipe or a terminal. Preserves errno.
fn is_resource(descriptor: libc::c_int) -> bool {
    if descriptor < 0 {
        return false;
    }
    let mut status = core::mem::MaybeUninit::<libc::stat>::zeroed();
    // SAFETY: the kernel fills in the status.
    let mode = unsafe {
        if syscall!(libc::SYS_fstat, descriptor, status.as_mut_ptr()).is_err() {
            return false;
        }
        status.assume_init().st_mode & libc::S_IFMT
    };
    !matches!(mode, libc::S_IFREG | libc::S_IFBLK | libc::S_IFDIR)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(frames: u64) -> Vec<Frame> {
        (0..frames).map(|address| Frame { address, ..Frame::default() }).collect()
    }

    #[test]
    fn paths_stand_behind_each_other_until_there_is_no_room() {
        // SAFETY: zeros are no paths.
        let mut paths = unsafe { Box::<Paths>::new_zeroed().assume_init() };
        let first = paths.keep(StoredPath::NOTHING, &path(10));
        let second = paths.keep(StoredPath::NOTHING, &path(20));
        assert_eq!(paths.get(first), path(10));
        // A path that fits keeps its position; a longer one moves.
        let shorter = paths.keep(first, &path(7));
        assert_eq!((shorter.from, paths.get(shorter)), (first.from, &path(7)[..]));
        let longest = paths.keep(shorter, &path(10));
        assert_eq!(longest.from, first.from);
        let moved = paths.keep(longest, &path(11));
        assert_eq!((moved.from, paths.used), (30, 41));
        assert_eq!([paths.get(second), paths.get(moved)], [path(20), path(11)]);

        let left = MAX_FRAMES - 41;
        assert!(paths.has_room(StoredPath::NOTHING, left) && !paths.has_room(second, left + 1));
        paths.keep(StoredPath::NOTHING, &path(left as u64));
        assert!(paths.has_room(second, 20) && !paths.has_room(second, 21));
    }
}
