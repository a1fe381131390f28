//! The ranks that a call has synchronised, according to its arguments: all of them leave the call
//! together, and it ends an instance of a phase (PPoPP20, 4).

use std::ffi::c_int;

use plimsoll_agent::observed_process::{self, Observed};
use plimsoll_agent::regions;
use plimsoll_agent::regions::declared;
use plimsoll_agent::thread_state::ThreadBlock;
use plimsoll_calls::requests::{Role, role};
use plimsoll_calls::{CALLS, Call, CallClass, CallId, id_of};
use plimsoll_comm::mpi::{HandleFacts, Members, Named, ObjectKind, RequestList};
use plimsoll_wire::sync_id::{SyncScope, unfollowed};

use crate::message::{c_count, communicator, succeeded};
use crate::stubs::Frame;
use crate::{communicating_thread, job};

/// Whether a call, by its id, may synchronise ranks, alone or with another call. Most calls do not.
pub static MAY_SYNCHRONISE: [bool; CALLS.len() + 1] = {
    let mut calls = [false; CALLS.len() + 1];
    let mut at = 0;
    while at < CALLS.len() {
        let begins = matches!(role(at as CallId + 1), Some(Role::Starts | Role::Prepares));
        calls[at + 1] = begins || matches!(CALLS[at].class, CallClass::CollectiveSync);
        at += 1;
    }
    at = 0;
    while at < SHARED_FILES.len() {
        calls[SHARED_FILES[at] as usize] = true;
        at += 1;
    }
    let others = [
        REDUCE[0],
        REDUCE[1],
        BCAST[0],
        BCAST[1],
        FENCE,
        CART_CREATE,
        GRAPH_CREATE,
        FILE_OPEN,
        FILE_CLOSE,
        WIN_FREE,
    ];
    at = 0;
    while at < others.len() {
        calls[others[at] as usize] = true;
        at += 1;
    }
    calls
};

const REDUCE: [CallId; 2] = [id_of("MPI_Reduce"), id_of("MPI_Reduce_c")];
const BCAST: [CallId; 2] = [id_of("MPI_Bcast"), id_of("MPI_Bcast_c")];
/// Collective operations on a file that no rank leaves before all have entered, in ROMIO as in
/// Open MPI; the file is their first argument. The standard lets libraries release a rank earlier,
/// as some do from MPI_File_sync or MPI_File_preallocate.
const SHARED_FILES: [CallId; 15] = [
    id_of("MPI_File_read_all"),
    id_of("MPI_File_read_all_c"),
    id_of("MPI_File_read_at_all"),
    id_of("MPI_File_read_at_all_c"),
    id_of("MPI_File_write_all"),
    id_of("MPI_File_write_all_c"),
    id_of("MPI_File_write_at_all"),
    id_of("MPI_File_write_at_all_c"),
    id_of("MPI_File_read_ordered"),
    id_of("MPI_File_read_ordered_c"),
    id_of("MPI_File_write_ordered"),
    id_of("MPI_File_write_ordered_c"),
    id_of("MPI_File_seek_shared"),
    id_of("MPI_File_set_size"),
    id_of("MPI_File_set_view"),
];
const FENCE: CallId = id_of("MPI_Win_fence");
/// Topologies: they synchronise all ranks of the old communicator if they leave none of them out.
const CART_CREATE: CallId = id_of("MPI_Cart_create");
const GRAPH_CREATE: CallId = id_of("MPI_Graph_create");
const FILE_OPEN: CallId = id_of("MPI_File_open");
const FILE_CLOSE: CallId = id_of("MPI_File_close");
const WIN_FREE: CallId = id_of("MPI_Win_free");
/// Collectives that create a window; its handle is their last argument.
const CREATE_WINDOW: [CallId; 7] = [
    id_of("MPI_Win_allocate"),
    id_of("MPI_Win_allocate_c"),
    id_of("MPI_Win_allocate_shared"),
    id_of("MPI_Win_allocate_shared_c"),
    id_of("MPI_Win_create"),
    id_of("MPI_Win_create_c"),
    id_of("MPI_Win_create_dynamic"),
];

/// Returns the members of the object that a call, which has just begun, frees.
///
/// # Safety
/// The frame belongs to such a call.
pub unsafe fn about_to_free(frame: &Frame, facts: &HandleFacts) -> Members {
    let kind = match frame.call() {
        WIN_FREE => ObjectKind::Window,
        FILE_CLOSE => ObjectKind::File,
        _ => return Members::NONE,
    };
    // SAFETY: the first argument is the address of the handle.
    unsafe {
        match frame.argument(0) {
            // Reporting an invalid address is left to MPI.
            0 => Members::NONE,
            address => facts.about_to_free(kind, address, frame.is_c()),
        }
    }
}

/// Returns the ranks that a call has synchronised; `None` if it synchronised none.
///
/// # Safety
/// The frame belongs to a call that has just returned, and has succeeded.
#[inline(never)]
pub unsafe fn synchronised(frame: &Frame, call: &Call, facts: &HandleFacts) -> Option<SyncScope> {
    if !communicating_thread::is_current() {
        // SAFETY: as the caller promises.
        unsafe { on_other_thread(frame, call, facts) };
        return None;
    }
    // SAFETY: the table and the standard give the type of each argument. Fortran references remain
    // valid until the call has returned to the caller.
    unsafe {
        let integer = |word| match frame.argument(word) {
            value if frame.is_c() => value as c_int,
            reference => (reference as *const c_int).as_ref().copied().unwrap_or(-1),
        };
        let named = |word| match frame.is_c() {
            true => Named::C(frame.argument(word)),
            false => Named::Fortran(integer(word)),
        };
        let communicator = || communicator(frame, call);
        // A call without elements need not move data, and so need not synchronise.
        let has_elements = || match call.count {
            Some(count) if frame.is_c() => c_count(frame, call, count) > 0,
            _ => frame.noted.count > 0,
        };
        match frame.call() {
            FILE_CLOSE | WIN_FREE => facts.freed(frame.freed),
            id if call.class == CallClass::CollectiveSync || id == FILE_OPEN => {
                let kind = match id {
                    FILE_OPEN => Some(ObjectKind::File),
                    id => CREATE_WINDOW.contains(&id).then_some(ObjectKind::Window),
                };
                if let Some(kind) = kind {
                    let created = frame.argument(call.arity - 1);
                    facts.created(kind, communicator()?, created, frame.is_c());
                }
                let scope = facts.synchronised(communicator()?);
                if scope == Some(SyncScope::All) && moves_data(call) {
                    communicating_thread::count_collective(facts, communicator()?);
                }
                if facts.has_unfollowed_subgroups() {
                    leave_unfollowed(unfollowed::SUBGROUPS);
                }
                scope
            }
            id if BCAST.contains(&id) && has_elements() => {
                facts.spread(communicator()?, integer(BCAST_ROOT))
            }
            id if REDUCE.contains(&id) && has_elements() => {
                facts.gathered(communicator()?, integer(REDUCE_ROOT));
                None
            }
            CART_CREATE | GRAPH_CREATE => {
                let ranks = match frame.call() {
                    GRAPH_CREATE => i64::from(integer(1)),
                    _ => {
                        let sizes = frame.argument(2) as *const c_int;
                        let sizes =
                            (0..usize::try_from(integer(1)).unwrap_or(0)).map(|at| *sizes.add(at));
                        sizes.fold(1, |ranks: i64, size| ranks.saturating_mul(size.into()))
                    }
                };
                let all = facts.ranks(communicator()?);
                if i64::from(all) == ranks { facts.synchronised(communicator()?) } else { None }
            }
            FENCE => facts.fenced(named(1), integer(0)),
            id if SHARED_FILES.contains(&id) => facts.shared_file(named(0)),
            id => {
                let request = || RequestList {
                    first: frame.argument(call.arity - 1),
                    count: 1,
                    is_c: frame.is_c(),
                };
                match role(id) {
                    Some(Role::Starts) => facts.started(communicator()?, request(), take_index),
                    Some(Role::Prepares) => facts.prepared(communicator()?, request()),
                    _ => {}
                }
                None
            }
        }
    }
}

/// Awaits the return of the declared function around a call that has just returned, if the call is
/// the function's first one with a communicator: the function synchronises the ranks of that.
///
/// # Safety
/// The frame belongs to a call that has just returned `result` on the thread of `block`.
#[cold]
#[inline(never)]
pub unsafe fn begin_declared(
    frame: &Frame,
    block: &ThreadBlock,
    observed: &Observed,
    result: isize,
) {
    let not_awaited = |state: &mut _| declared::not_awaited(state, frame.return_slot());
    let (Some(call), Some(facts)) = (block.enter(not_awaited).flatten(), job::handle_facts())
    else {
        return;
    };
    // SAFETY: the call has returned, and the table gives the type of each argument.
    let communicator = unsafe {
        let succeeded = succeeded(frame, result as c_int);
        communicator(frame, frame.entry()).filter(|_| succeeded)
    };
    let Some(communicator) = communicator else { return };
    if !communicating_thread::is_current() {
        if facts.has_others(communicator) {
            leave_unfollowed(unfollowed::OTHER_THREADS);
        }
        return;
    }
    if !observed.marks() {
        leave_unfollowed(unfollowed::DECLARED);
        return;
    }
    let Some(scope) = facts.synchronised(communicator) else { return };
    block.enter(|state| declared::await_return(observed, state, call, scope));
}

/// Returns the index of a synchronisation of all ranks that begins on the calling thread.
pub fn take_index() -> Option<u64> {
    // SAFETY: the block is the calling thread's.
    let block = unsafe { plimsoll_agent::tls::get().as_ref() }?;
    block.enter(|state| regions::take_index(state))
}

/// Returns whether a collective is one of those that programs make to compute, instead of creating
/// objects: threads create communicators and windows for each other.
fn moves_data(call: &Call) -> bool {
    call.class == CallClass::CollectiveSync && (call.count.is_some() || call.name == "MPI_Barrier")
}

/// Lets a thread other than the one that communicates take over the run if it has made a collective
/// of all ranks. Otherwise records that the collective delimits no phase.
///
/// # Safety
/// As [`synchronised`].
unsafe fn on_other_thread(frame: &Frame, call: &Call, facts: &HandleFacts) {
    let begins = matches!(role(id_of(call.name)), Some(Role::Starts | Role::Prepares));
    if call.class != CallClass::CollectiveSync && !begins {
        return;
    }
    // SAFETY: as the caller promises.
    let Some(communicator) = (unsafe { communicator(frame, call) }) else { return };
    if moves_data(call) && communicating_thread::take_over(facts, communicator) {
        return;
    }
    if facts.has_others(communicator) {
        leave_unfollowed(unfollowed::OTHER_THREADS);
    }
}

fn leave_unfollowed(what: u32) {
    if let Some(observed) = observed_process::current() {
        observed.leave_unfollowed(what);
    }
}

/// Argument word of the root rank.
const REDUCE_ROOT: u8 = 5;
const BCAST_ROOT: u8 = 3;
