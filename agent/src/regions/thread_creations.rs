//! Creation of threads: the stack of a created thread lies inside the call path that created the
//! thread.

use super::paths::{find, unwind};
use super::{Entry, Slot, announce, count};
use crate::observed_process::Observed;
use crate::thread_state::{State, add_owned};
use plimsoll_calls::CREATE_THREAD;
use plimsoll_wire::segment::MAX_SLOTS;
use plimsoll_wire::teams::PathKey;

/// Maximum number of creators that a call path passes through. Threads that are created further
/// inside lie in the call path of their creator, so that the tree does not grow without bound if
/// each thread creates its successor.
const MAX_CREATORS: u8 = 8;

/// Call path that created a thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ThreadOrigin {
    /// Name of the path; [`PathKey::NONE`] if the path is unknown.
    pub path: PathKey,
    /// Number of threads that the path passes through.
    pub creators: u8,
}

/// Returns the call path of a thread that the calling thread is about to create by the call of
/// `entry`, after a record that describes this path. The path is unknown if the call runs inside
/// another wrapped call: a library creates the thread for itself. `counts` says whether the call is
/// counted.
pub fn begin_creation(
    observed: &Observed,
    state: &mut State,
    entry: &Entry,
    counts: bool,
) -> ThreadOrigin {
    let open = state.regions.open.return_slot;
    if open != 0 {
        if entry.return_slot < open {
            return ThreadOrigin::default();
        }
        state.regions.open.return_slot = 0;
    }
    if state.muted {
        return ThreadOrigin::default();
    }
    let found = find(state, entry);
    let Some(slot) = found.or_else(|| state.with_room(|state| unwind(observed, state, entry)))
    else {
        return ThreadOrigin::default();
    };
    if !state.regions.slots[slot].announced {
        state.with_room(|state| announce(state, slot));
    }
    if counts && !state.paused {
        add_owned(&state.area().thread.calls, 1);
        count(state, slot, 0, 0);
    }
    if state.origin.creators == MAX_CREATORS {
        return state.origin;
    }
    ThreadOrigin { path: state.regions.slots[slot].path_key, creators: state.origin.creators + 1 }
}

/// Announces the call paths that have created threads and that the consumer no longer knows. The
/// threads may live long after the last creation from their path.
#[cold]
#[inline(never)]
pub(super) fn announce_creations(state: &mut State) {
    state.regions.creations_unknown = false;
    for slot in 0..MAX_SLOTS {
        let Slot { call, announced, .. } = state.regions.slots[slot];
        if call == CREATE_THREAD && !announced && !announce(state, slot) {
            // The record did not fit the ring.
            return;
        }
    }
}
