//! Declared functions: a rule of the user says that no rank leaves them before all have entered.
//!
//! A measured call of MPI within such a function replaces the function's return address by a stub
//! ([`crate::marks`]), which notes the time of the return. The next event of the thread, a measured
//! call or a sample, then writes the record of the synchronisation with that time: no record lies
//! between. Samples alone could not do this, because the function may take less than a period.
//!
//! Of several declared functions on a stack, the outermost one counts.

use core::ptr::null_mut;
use core::sync::atomic::{AtomicPtr, Ordering};
use std::boxed::Box;
use std::vec::Vec;

use super::paths::{StoredCall, store_path};
use super::{announce, call_frame, flush_tallies, sync_id};
use crate::counters;
use crate::marks;
use crate::marks::mark_stubs;
use crate::observed_process::Observed;
use crate::thread_state::{State, common_prefix};
use crate::unwind::{Frame, Path};
use plimsoll_calls::CallId;
use plimsoll_wire::clock_anchor::stamp;
use plimsoll_wire::record::{Record, STAMP_SHIFT};
use plimsoll_wire::sync_id::{SyncScope, is_recorded, unfollowed};

/// Call id of the slots of declared functions; no wrapped call has it.
pub(super) const DECLARED: CallId = 1 << 14;

/// A part of a declared function's code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DeclaredFunction {
    /// First address of the part.
    pub start: u64,
    /// One past its last address.
    pub end: u64,
    /// First address of the function.
    pub entry: u64,
}

/// Declared functions by ascending address; null: none.
static FUNCTIONS: AtomicPtr<Vec<DeclaredFunction>> = AtomicPtr::new(null_mut());

/// Sets the declared functions of the process. The previous list is leaked, since other threads may
/// be using it.
pub fn declare(mut functions: Vec<DeclaredFunction>) {
    functions.sort_unstable_by_key(|function| function.start);
    if known().is_none_or(|known| *known != functions) {
        let list = if functions.is_empty() { null_mut() } else { Box::into_raw(functions.into()) };
        FUNCTIONS.store(list, Ordering::Release);
    }
}

/// Returns whether any function is declared.
#[inline(always)]
pub fn exist() -> bool {
    !FUNCTIONS.load(Ordering::Relaxed).is_null()
}

fn known() -> Option<&'static Vec<DeclaredFunction>> {
    // SAFETY: set from leaked boxes, never freed.
    unsafe { FUNCTIONS.load(Ordering::Acquire).as_ref() }
}

/// Returns the declared function with the instruction at `address`.
fn function_at(functions: &[DeclaredFunction], address: u64) -> Option<DeclaredFunction> {
    let after = functions.partition_point(|function| function.start <= address);
    let function = functions.get(after.checked_sub(1)?)?;
    (address < function.end).then_some(*function)
}

/// Returns the index of the outermost frame in a declared function; 0 if there is none. The
/// outermost frame of all has no caller, and does not count.
pub(super) fn outermost(path: &[Frame]) -> u16 {
    let Some(functions) = known() else { return 0 };
    let inside = |frame: &Frame| function_at(functions, frame.address.wrapping_sub(1)).is_some();
    path.iter().skip(1).position(inside).map_or(0, |at| at as u16 + 1)
}

/// Declared function with an awaited return.
#[derive(Clone, Copy)]
pub(super) struct Awaited {
    /// Slot with the path of the function.
    pub(super) slot: u16,
    /// Ranks that the function synchronises.
    scope: SyncScope,
}

/// A measured call within a declared function with a return that is not awaited yet.
#[derive(Clone, Copy, Debug)]
pub struct CallWithin(u16);

/// Returns the call that has just ended, with its return address at `return_slot`, if the return of
/// a declared function around it is not awaited yet.
pub fn not_awaited(state: &State, return_slot: u64) -> Option<CallWithin> {
    let open = &state.regions.open;
    let slot = &state.regions.slots[usize::from(open.slot)];
    let path = state.regions.path(open.slot.into());
    let is_last = path.last().is_some_and(|caller| caller.return_slot == return_slot);
    if open.return_slot != 0 || slot.declared == 0 || !slot.on_stack || !is_last {
        return None;
    }
    let caller = path[usize::from(slot.declared) - 1];
    // SAFETY: the place lies on the thread's own stack, further out than the call's frames.
    let word = unsafe { *(caller.return_slot as *const u64) };
    // Another word than the stub is left of a call that an exception or a jump has ended.
    let awaited = state.live().awaited_slot == caller.return_slot && word != caller.address;
    (mark_stubs::original(word) == caller.address && !awaited).then_some(CallWithin(open.slot))
}

/// Awaits the return of the declared function around a call that [`not_awaited`] has returned.
/// `scope` names the ranks that the function synchronises.
pub fn await_return(observed: &Observed, state: &mut State, call: CallWithin, scope: SyncScope) {
    if !state.with_room(|state| try_await(observed, state, call, scope)) {
        observed.leave_unfollowed(unfollowed::DECLARED);
    }
}

fn try_await(observed: &Observed, state: &mut State, call: CallWithin, scope: SyncScope) -> bool {
    let slot = &state.regions.slots[usize::from(call.0)];
    let (at, whole) = (usize::from(slot.declared), slot.whole);
    let path = state.regions.path(call.0.into());
    let (within, caller) = (path[at], path[at - 1]);
    let Some(functions) = known() else { return false };
    let Some(function) = function_at(functions, within.address.wrapping_sub(1)) else {
        return false;
    };
    let Some(stub) = marks::stub_of_caller(observed, state, &path[..at]) else {
        return false;
    };
    state.found.clear();
    for frame in &path[..at] {
        // The path is shorter than another one that fits.
        let _ = state.found.push(*frame);
    }
    let id = observed.intern_declared(state, function.entry);
    let stored = StoredCall { call: DECLARED, call_id: id, at: caller };
    let Some(slot) = (id != 0).then(|| store_path(state, stored, whole)).flatten() else {
        return false;
    };
    let word = caller.return_slot as *mut u64;
    // SAFETY: the return address of a frame that has not returned, on the thread's own stack: a
    // call within it has just returned. No stub runs now.
    unsafe {
        let found = word.read_volatile();
        if mark_stubs::original(found) != caller.address {
            return false;
        }
        word.write_volatile(mark_stubs::address(stub));
        (*state.mark).awaited_slot = caller.return_slot;
    }
    state.regions.awaited = Some(Awaited { slot: slot as u16, scope });
    true
}

/// Writes the record of a declared function that has returned, if one has. Called before each
/// other record of the thread.
#[inline(always)]
pub fn settle(observed: &Observed, state: &mut State) {
    if state.live().awaited_return != 0 {
        state.with_room(|state| record_return(observed, state));
    }
}

#[cold]
#[inline(never)]
fn record_return(observed: &Observed, state: &mut State) {
    // SAFETY: the thread's own mark; no stub of the thread runs now.
    let returned = unsafe { core::mem::take(&mut (*state.mark).awaited_return) };
    let Some(Awaited { slot, scope }) = state.regions.awaited.take() else { return };
    let is_left_out = matches!(scope, SyncScope::Subgroup(_, index) if !is_recorded(index));
    if state.paused || state.muted || is_left_out {
        return;
    }
    let slot = usize::from(slot);
    let now = stamp(returned).max(state.stream.last_stamp());
    let is_long = now - state.stream.last_stamp() > observed.part_stamps;
    let off_cpu = is_long.then(|| state.off_cpu.read(observed.descriptors()));
    flush_tallies(state);
    counters::write(observed, state, now, false);
    let is_known = announce(state, slot);
    let regions = &state.regions;
    let function = call_frame(&regions.slots[slot], now << STAMP_SHIFT);
    let path = Path { outer: regions.path(slot), inner: &[function] };
    let compared = common_prefix(&state.current, path, 0);
    let common_prefix = marks::limit_common_at_return(state, compared);
    let sync = sync_id(state, scope);
    let record = Record::Exit {
        stamp: state.stream.stamp(now),
        slot: slot as u32,
        common: common_prefix as u32,
        duration: 0,
        bytes: 0,
        sync: Some(sync),
        off_cpu,
    };
    let fitted = state.stream.write_for_slot(is_known, &record);
    state.current.follow(path, common_prefix);
    state.common = state.common.min(common_prefix);
    marks::note_at_return(state);
    state.written(fitted);
}

/// Gives up an awaited return: the table of call paths is full, or the return address must not be
/// replaced any longer.
#[cold]
pub(crate) fn give_up(state: &mut State) {
    if state.regions.awaited.take().is_some() {
        // SAFETY: the thread's own mark; no stub of the thread runs now.
        unsafe { (*state.mark).awaited_slot = 0 };
        if let Some(observed) = crate::observed_process::current() {
            observed.leave_unfollowed(unfollowed::DECLARED);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(address: u64) -> Frame {
        Frame { address, ..Frame::default() }
    }

    #[test]
    fn the_outermost_declared_function_counts() {
        let part = |start, end| DeclaredFunction { start, end, entry: 0x1000 };
        let functions = [part(0x1000, 0x1100), part(0x3000, 0x3010)];
        for (address, expected) in [
            (0xfff, None),
            (0x1000, Some(0)),
            (0x10ff, Some(0)),
            (0x1100, None),
            (0x300f, Some(1)),
            (0x3010, None),
        ] {
            let found = function_at(&functions, address);
            assert_eq!(found, expected.map(|at: usize| functions[at]), "{address:#x}");
        }
        assert_eq!(outermost(&[frame(0x1001), frame(0x2000)]), 0);
        declare(functions.to_vec());
        assert!(exist());
        // A return address lies behind its call, which may be the function's last instruction.
        let path = [frame(0x1100), frame(0x2000), frame(0x1100), frame(0x3008)];
        assert_eq!(outermost(&path), 2);
        assert_eq!(outermost(&path[..2]), 0);
        declare(Vec::new());
        assert!(!exist());
    }
}
