//! Entry and return of a measured call.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll_agent::observed_process::{self, Observed};
use plimsoll_agent::regions::lock_holders::{LockId, begin_lock_wait, end_lock_wait};
use plimsoll_agent::regions::{self, CallKind, Entry, declared};
use plimsoll_agent::thread_state::State;
use plimsoll_calls::messages::{Messages, messages};
use plimsoll_calls::requests::may_complete;
use plimsoll_calls::{CALLS, Call, CallClass, CallId, Provider, id_of};
use plimsoll_comm::mpi::Members;
use plimsoll_wire::clock_anchor::ticks;
use plimsoll_wire::sync_id::{SyncScope, is_recorded};

use crate::guard::guarded;
use crate::stubs::{Entered, Frame, call_of, symbol_variant_of};
use crate::this_thread::this_thread;
use crate::{gomp, job, message, outlined_tasks, partners, real, synchronisations};

/// Whether calls are measured: set when the observation begins, unless PLIMSOLL_REGIONS is off.
pub static REGIONS: AtomicBool = AtomicBool::new(false);

/// Whether messages are counted by partner: off only to measure what that costs.
pub static PARTNERS: AtomicBool = AtomicBool::new(true);

real! {
    /// Takes a mutex if it is free.
    pthread_mutex_trylock(mutex: *mut libc::pthread_mutex_t) -> libc::c_int
}

/// Called by a stub before the real call. The code is also passed in a register, since every
/// further step depends on it.
///
/// # Safety
/// The frame belongs to a stub, and `code` is the stub's code.
pub unsafe extern "C" fn enter(frame: &mut Frame, code: u32) -> Entered {
    let (call, symbol_variant) = (call_of(code), symbol_variant_of(code));
    let caller = frame.return_address() as *const c_void;
    let function = real::call(call, symbol_variant, caller);
    // MPI_Comm_create_from_group is followed whether or not it is measured, so that all ranks reach
    // the same result.
    let followed = symbol_variant == 0 && call == COMM_CREATE_FROM_GROUP;
    let unmeasured = || Entered { function, measured: usize::from(followed) };
    if !REGIONS.load(Ordering::Relaxed) {
        return unmeasured();
    }
    let measured =
        guarded("enter", || measure(frame, call, symbol_variant, regions::enter), || None);
    measured.map_or_else(unmeasured, |measured| Entered { function, measured })
}

/// As [`enter`], for a call of the OpenMP runtime.
///
/// # Safety
/// As [`enter`].
pub unsafe extern "C" fn enter_runtime(frame: &mut Frame, code: u32) -> Entered {
    let call = call_of(code);
    let function = gomp::definition(call, symbol_variant_of(code));
    let unmeasured = || Entered { function, measured: 0 };
    if !REGIONS.load(Ordering::Relaxed) {
        return unmeasured();
    }
    let lock = lock_of(frame);
    let enter = |observed: &Observed, state: &mut State, entry: &Entry| {
        let is_measured = regions::enter_runtime(observed, state, entry);
        if let (true, Some(lock)) = (is_measured, lock) {
            begin_lock_wait(state, lock, entry.ticks);
        }
        is_measured
    };
    let measured = guarded("enter", || measure(frame, call, 0, enter), || None);
    if outlined_tasks::creates_tasks(call) && observed_process::current().is_some() {
        outlined_tasks::replace(frame);
    }
    measured.map_or_else(unmeasured, |measured| Entered { function, measured })
}

/// Records the entry of a call. Returns [`Entered::measured`], or `None` if the call is not
/// measured.
#[inline(always)]
fn measure(
    frame: &mut Frame,
    call: CallId,
    symbol_variant: usize,
    enter: impl Fn(&Observed, &mut State, &Entry) -> bool,
) -> Option<usize> {
    if [COMM_FREE, COMM_DISCONNECT, WIN_FREE, FILE_CLOSE].contains(&call) {
        // SAFETY: the call has just begun.
        let members = |facts| unsafe { synchronisations::about_to_free(frame, facts) };
        frame.freed = job::handle_facts().map_or(Members::NONE, members);
        job::members_freed();
    } else if call == TYPE_FREE {
        job::datatype_freed();
    } else if may_complete(call)
        && let Some(facts) = job::handle_facts()
        && facts.has_pending()
    {
        // SAFETY: the call has just begun.
        unsafe { message::completes(frame, facts) };
    } else if call == REQUEST_FREE
        && let Some(facts) = job::handle_facts()
        && facts.has_prepared()
    {
        // SAFETY: the call has just begun.
        unsafe { message::frees(frame, facts) };
    }
    let (block, observed) = this_thread()?;
    let descriptor = if reads_descriptor(call) {
        // SAFETY: such calls have a descriptor as their first argument.
        unsafe { frame.argument(0) as i32 }
    } else {
        -1
    };
    let entry = frame.begun(call, descriptor);
    let completing = messages(call).filter(|messages| messages.completes().is_some());
    let followed = match completing {
        Some(messages) if PARTNERS.load(Ordering::Relaxed) => {
            job::handle_facts().map(|facts| (messages, facts))
        }
        _ => None,
    };
    let is_measured = block.enter(|state| {
        let is_measured = enter(observed, state, &entry);
        if is_measured && symbol_variant != 0 {
            // SAFETY: a Fortran call of this function.
            frame.noted = unsafe { message::note(frame) };
        }
        if let (true, Some((messages, facts))) = (is_measured, followed) {
            // SAFETY: the call has just begun.
            unsafe { partners::begin(frame, messages, state, facts) };
        }
        is_measured
    });
    if !is_measured? {
        return None;
    }
    let entry = &CALLS[usize::from(call) - 1];
    let mut words = entry.arity;
    if symbol_variant != 0 {
        // ierror and the lengths of character arguments follow.
        words += 1 + entry.text;
    }
    Some(1 + usize::from(words).saturating_sub(6))
}

/// Called by a stub after the real call, with its result.
///
/// # Safety
/// As [`enter`].
pub unsafe extern "C" fn leave(frame: &Frame, result: isize) {
    // SAFETY: as the caller promises.
    guarded("leave", || unsafe { note_return(frame, result) }, || ());
}

/// Records the return of a call.
///
/// # Safety
/// As [`enter`].
#[inline(always)]
unsafe fn note_return(frame: &Frame, result: isize) {
    let now = ticks();
    let entry = frame.entry();
    let mpi = entry.provider == Provider::Mpi;
    let kind = kind_of(entry);
    let (mut bytes, mut scope, mut exchange) = (0, None, None);
    let facts = if mpi { job::handle_facts() } else { None };
    if mpi {
        let messages = messages(frame.call());
        let result = result as c_int;
        if let Some(facts) = facts {
            // SAFETY: the call has returned, and its arguments have the types in the table.
            unsafe {
                bytes = message::finished(frame, result, facts, &mut scope);
                if let Some(messages) = messages
                    && PARTNERS.load(Ordering::Relaxed)
                {
                    exchange = Some(partners::exchange(frame, messages, result, bytes, facts));
                }
            }
        }
        if messages.is_some_and(Messages::only_prepares) {
            bytes = 0;
        }
    } else if entry.count.is_some() && result > 0 {
        bytes = result as u64;
    }
    let Some(observed) = observed_process::current() else { return };
    // A synchronisation without a record of its own is counted like any other call.
    let scope = scope.as_ref().filter(|scope| match scope {
        SyncScope::All | SyncScope::AllSince(_) => true,
        SyncScope::Subgroup(_, index) => is_recorded(*index),
    });
    // SAFETY: the block is the calling thread's.
    if let Some(block) = unsafe { plimsoll_agent::tls::get().as_ref() } {
        block.enter(|state| {
            if let (Some(exchange), Some(facts)) = (&exchange, facts) {
                // SAFETY: the call has returned, and began as above.
                unsafe { partners::finish(frame, state, exchange, facts, now) };
            }
            if let (CallKind::Lock, Some(lock)) = (kind, lock_of(frame)) {
                end_lock_wait(state, lock, frame.return_slot(), now);
            }
            regions::exit(observed, state, frame.return_slot(), now, bytes, scope, kind);
        });
        if mpi && declared::exist() {
            // SAFETY: the call has just returned.
            unsafe { synchronisations::begin_declared(frame, block, observed, result) };
        }
    }
    if frame.call() == COMM_CREATE_FROM_GROUP && frame.is_c() && result as c_int == 0 {
        // SAFETY: the fifth argument is the address of the new communicator.
        job::made_from_group(unsafe { frame.argument(4) } as *const c_void);
    }
}

const COMM_CREATE_FROM_GROUP: CallId = id_of("MPI_Comm_create_from_group");
const COMM_FREE: CallId = id_of("MPI_Comm_free");
const COMM_DISCONNECT: CallId = id_of("MPI_Comm_disconnect");
const WIN_FREE: CallId = id_of("MPI_Win_free");
const FILE_CLOSE: CallId = id_of("MPI_File_close");
const REQUEST_FREE: CallId = id_of("MPI_Request_free");
const TYPE_FREE: CallId = id_of("MPI_Type_free");

fn kind_of(call: &Call) -> CallKind {
    match (call.provider, call.class) {
        (Provider::Mpi, _) => CallKind::Mpi,
        (Provider::Gomp, CallClass::TeamLock) => CallKind::Lock,
        (Provider::Gomp, CallClass::TaskCreation) => CallKind::Other,
        (Provider::Gomp, _) => CallKind::Barrier,
        _ => CallKind::Other,
    }
}

/// Returns the lock that a call of the OpenMP runtime acquires; `None` if the call acquires none.
fn lock_of(frame: &Frame) -> Option<LockId> {
    match frame.call() {
        GOMP_CRITICAL => Some(LockId::CRITICAL),
        GOMP_ATOMIC => Some(LockId::ATOMIC),
        GOMP_ORDERED => Some(LockId::ORDERED),
        // The address of the lock, or of the word that belongs to the section's name.
        GOMP_CRITICAL_NAME | OMP_SET_LOCK | OMP_SET_NEST_LOCK => {
            Some(LockId(frame.registers[0] as u64))
        }
        _ => None,
    }
}

const GOMP_CRITICAL: CallId = id_of("GOMP_critical_start");
const GOMP_CRITICAL_NAME: CallId = id_of("GOMP_critical_name_start");
const GOMP_ATOMIC: CallId = id_of("GOMP_atomic_start");
const GOMP_ORDERED: CallId = id_of("GOMP_ordered_start");
const OMP_SET_LOCK: CallId = id_of("omp_set_lock");
const OMP_SET_NEST_LOCK: CallId = id_of("omp_set_nest_lock");

/// Returns whether the label of a call depends on the kind of file behind its descriptor.
fn reads_descriptor(call: CallId) -> bool {
    static READERS: [bool; CALLS.len() + 1] = {
        let mut readers = [false; CALLS.len() + 1];
        let mut at = 0;
        while at < CALLS.len() {
            let entry = &CALLS[at];
            let io =
                matches!(entry.class, CallClass::Io) && matches!(entry.provider, Provider::Libc);
            // msync takes an address.
            readers[at + 1] = io && at + 1 != id_of("msync") as usize;
            at += 1;
        }
        readers
    };
    READERS[usize::from(call)]
}

/// Runs a wait of Plimsoll for all ranks as a measured call of the application; used by a hook that
/// implements the call.
pub fn as_region(frame: &Frame, wait: impl FnOnce()) {
    let entry = frame.begun(frame.call(), -1);
    let measured = observed_process::current().is_some_and(|observed| {
        let enter = |state: &mut _| regions::enter(observed, state, &entry);
        observed.with_thread(enter).unwrap_or(false)
    });
    wait();
    let now = ticks();
    if measured && let Some(observed) = observed_process::current() {
        observed.with_thread(|state| {
            regions::exit(
                observed,
                state,
                entry.return_slot,
                now,
                0,
                Some(&SyncScope::All),
                CallKind::Mpi,
            )
        });
    }
}
