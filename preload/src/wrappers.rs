//! Entry and return of a measured call.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll_agent::observed_process::{self, Observed};
use plimsoll_agent::regions::lock_holders::{LockId, begin_lock_wait, end_lock_wait};
use plimsoll_agent::regions::{self, CallKind, Entry, declared, open_until};
use plimsoll_agent::thread_state::State;
use plimsoll_calls::{CALLS, Call, CallClass, CallId, Provider, id_of};
use plimsoll_comm::mpi::Members;
use plimsoll_wire::clock_anchor::ticks;
use plimsoll_wire::sync_id::{SyncScope, is_recorded};

use crate::call_plans::{CallPlan, Steps};
use crate::guard::guarded;
use crate::partners::Exchange;
use crate::signals::awaited_signals;
use crate::stubs::{Entered, Frame, call_of, symbol_variant_of};
use crate::this_thread::this_thread;
use crate::{gomp, job, message, outlined_tasks, partners, real, stream_calls, synchronisations};

/// Whether calls are measured: set when the observation begins, unless PLIMSOLL_REGIONS is off.
pub static REGIONS: AtomicBool = AtomicBool::new(false);

/// Whether the threads' timers stop during calls of the C library: set with wall time, which would
/// interrupt those that wait.
pub static SUSPENDS_TIMERS: AtomicBool = AtomicBool::new(false);

/// Whether messages are counted by partner: off only to measure what that costs.
pub static PARTNERS: AtomicBool = AtomicBool::new(true);

real! {
    /// Takes a mutex if it is free.
    pthread_mutex_trylock(mutex: *mut libc::pthread_mutex_t) -> libc::c_int
}

real! {
    /// Takes a lock for reading if no thread has it for writing.
    pthread_rwlock_tryrdlock(lock: *mut libc::pthread_rwlock_t) -> libc::c_int
}

real! {
    /// Takes a lock for writing if it is free.
    pthread_rwlock_trywrlock(lock: *mut libc::pthread_rwlock_t) -> libc::c_int
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
    if (SIGWAIT..=SIGWAITINFO).contains(&call) {
        // SAFETY: the first argument of these calls is a set of signals.
        frame.registers[0] = unsafe { awaited_signals(frame.registers[0] as *const _) } as usize;
    }
    let unmeasured = || Entered { function, measured: usize::from(followed) };
    if !REGIONS.load(Ordering::Relaxed) {
        return unmeasured();
    }
    let measured =
        guarded("enter", || measure(frame, call, symbol_variant, regions::enter), || None);
    if SUSPENDS_TIMERS.load(Ordering::Relaxed) && suspends_timer(call) {
        guarded("suspend", || suspend_timer(frame), || ());
        // Also a call that is not measured must resume the timer.
        return Entered { function, measured: measured_words(call, symbol_variant) };
    }
    measured.map_or_else(unmeasured, |measured| Entered { function, measured })
}

/// Returns whether the thread's timer stops during the call. Such a call is measured at entry and
/// exit, so that no sample is needed inside it.
fn suspends_timer(call: CallId) -> bool {
    let call = &CALLS[usize::from(call) - 1];
    call.provider == Provider::Libc && call.class != CallClass::ThreadCreation
}

#[cold]
fn suspend_timer(frame: &Frame) {
    if let Some((block, _)) = this_thread() {
        block.timer.suspend(&frame.suspension);
    }
}

#[cold]
fn resume_timer(frame: &Frame) {
    if let Some((block, observed)) = this_thread() {
        observed.resume_timer(block, &frame.suspension);
    }
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
    let plan = CallPlan::of(call);
    if plan.has(Steps::FREES) {
        // SAFETY: the call has just begun.
        unsafe { about_to_free(frame, call) };
    } else if plan.has(Steps::COMPLETES)
        && let Some(facts) = job::handle_facts()
        && facts.has_pending()
    {
        // SAFETY: as above.
        unsafe { message::completes(frame, facts) };
    }
    let (block, observed) = this_thread()?;
    let descriptor = if plan.has(Steps::READS_DESCRIPTOR) {
        // SAFETY: such calls have a descriptor as their first argument.
        unsafe { frame.argument(0) as i32 }
    } else if plan.has(Steps::READS_STREAM) {
        // SAFETY: such calls have a stream as their last argument.
        unsafe { stream_calls::descriptor_of(frame.argument(frame.entry().arity - 1)) }
    } else {
        -1
    };
    let entry = frame.begun(call, descriptor);
    let lists_requests = plan.has(Steps::ENDS_REQUESTS) && PARTNERS.load(Ordering::Relaxed);
    let facts = if lists_requests { job::handle_facts() } else { None };
    let is_measured = block.enter(|state| {
        let is_measured = enter(observed, state, &entry);
        if is_measured && symbol_variant != 0 {
            // SAFETY: a Fortran call of this function.
            frame.noted = unsafe { message::note(frame) };
        }
        if let (true, Some(facts)) = (is_measured, facts) {
            // SAFETY: the call has just begun.
            unsafe { partners::begin(frame, plan.messages, state, facts) };
        }
        is_measured
    });
    is_measured?.then(|| measured_words(call, symbol_variant))
}

/// Returns [`Entered::measured`] of a measured call.
#[inline(always)]
fn measured_words(call: CallId, symbol_variant: usize) -> usize {
    let entry = &CALLS[usize::from(call) - 1];
    let mut words = entry.arity;
    if symbol_variant != 0 {
        // ierror and the lengths of character arguments follow.
        words += 1 + entry.text;
    }
    1 + usize::from(words).saturating_sub(6)
}

/// Takes note of the handles that a call is about to free.
///
/// # Safety
/// The call has [`Steps::FREES`] and has just begun.
#[cold]
#[inline(never)]
unsafe fn about_to_free(frame: &mut Frame, call: CallId) {
    match call {
        TYPE_FREE => job::datatype_freed(),
        REQUEST_FREE => {
            if let Some(facts) = job::handle_facts().filter(|facts| facts.has_prepared()) {
                // SAFETY: promised by the caller.
                unsafe { message::frees(frame, facts) };
            }
        }
        _ => {
            // SAFETY: promised by the caller.
            let members = |facts| unsafe { synchronisations::about_to_free(frame, facts) };
            frame.freed = job::handle_facts().map_or(Members::NONE, members);
            job::members_freed();
        }
    }
}

/// Called by a stub after the real call, with its result.
///
/// # Safety
/// As [`enter`].
pub unsafe extern "C" fn leave(frame: &Frame, result: isize) {
    // SAFETY: as the caller promises.
    guarded("leave", || unsafe { note_return(frame, result) }, || ());
    if SUSPENDS_TIMERS.load(Ordering::Relaxed) && suspends_timer(frame.call()) {
        guarded("resume", || resume_timer(frame), || ());
    }
}

/// Records the return of a call.
///
/// # Safety
/// As [`enter`].
#[inline(always)]
unsafe fn note_return(frame: &Frame, result: isize) {
    let now = ticks();
    let plan = CallPlan::of(frame.call());
    let is_mpi = plan.has(Steps::MPI);
    let (mut bytes, mut scope, mut exchanged) = (0, None, None);
    if is_mpi && let Some(facts) = job::handle_facts() {
        // SAFETY: the call has returned, and its arguments have the types in the table.
        unsafe {
            let succeeded = message::succeeded(frame, result as c_int);
            bytes = message::finished(frame, plan, succeeded, facts, &mut scope);
            if plan.has(Steps::HAS_PARTNERS) && succeeded && PARTNERS.load(Ordering::Relaxed) {
                exchanged = Some((facts, partners::communicator(frame, plan, facts), bytes));
            }
        }
        if plan.has(Steps::ONLY_PREPARES) {
            bytes = 0;
        }
    } else if plan.has(Steps::RETURNS_BYTES) && result > 0 {
        bytes = result as u64;
        if plan.has(Steps::RETURNS_ITEMS)
            && let Some(count) = frame.entry().count
        {
            // SAFETY: the size of an item is the argument before the number of items.
            bytes = bytes.saturating_mul(unsafe { frame.argument(count - 1) } as u64);
        }
    }
    let kind = if is_mpi { CallKind::Mpi } else { kind_of(frame.entry()) };
    let Some(observed) = observed_process::current() else { return };
    // A synchronisation without a record of its own is counted like any other call.
    let scope = scope.as_ref().filter(|scope| match scope {
        SyncScope::All | SyncScope::AllSince(_) => true,
        SyncScope::Subgroup(_, index) => is_recorded(*index),
    });
    // SAFETY: the block is the calling thread's.
    if let Some(block) = unsafe { plimsoll_agent::tls::get().as_ref() } {
        block.enter(|state| {
            if let Some((facts, communicator, bytes)) = exchanged
                && let Some((slot, ticks)) = open_until(state, frame.return_slot(), now)
            {
                let messages = &plan.messages;
                let exchange = Exchange {
                    frame,
                    facts,
                    messages,
                    communicator,
                    slot,
                    bytes,
                    ticks,
                    left: now,
                };
                // SAFETY: the call has succeeded, and began as above.
                unsafe { exchange.book(state) };
                state.channels.waited += ticks;
            }
            if kind == CallKind::Lock
                && let Some(lock) = lock_of(frame)
            {
                end_lock_wait(state, lock, frame.return_slot(), now);
            }
            regions::exit(observed, state, frame.return_slot(), now, bytes, scope, kind);
        });
        if is_mpi && declared::exist() {
            // SAFETY: the call has just returned.
            unsafe { synchronisations::begin_declared(frame, block, observed, result) };
        }
    }
    if frame.call() == COMM_CREATE_FROM_GROUP && frame.is_c() && result as c_int == 0 {
        // SAFETY: the fifth argument is the address of the new communicator.
        job::made_from_group(unsafe { frame.argument(4) } as *const c_void);
    }
}

/// Calls that wait for a set of signals: sigwait, sigtimedwait and sigwaitinfo, one after another
/// in the table.
const SIGWAIT: CallId = id_of("sigwait");
const SIGWAITINFO: CallId = id_of("sigwaitinfo");
const _: () = assert!(SIGWAITINFO - SIGWAIT == 2 && id_of("sigtimedwait") == SIGWAIT + 1);
const COMM_CREATE_FROM_GROUP: CallId = id_of("MPI_Comm_create_from_group");
const REQUEST_FREE: CallId = id_of("MPI_Request_free");
const TYPE_FREE: CallId = id_of("MPI_Type_free");

/// Returns the kind of a call of the OpenMP runtime or the C library. A wait for something outside
/// of the process, such as a socket, is like work: other threads may have to wait for its end.
fn kind_of(call: &Call) -> CallKind {
    match call.class {
        CallClass::TeamLock | CallClass::WaitLock => CallKind::Lock,
        CallClass::Region | CallClass::TeamWait | CallClass::WaitPartner => CallKind::Barrier,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_for_other_threads_are_no_work_of_a_share() {
        for (name, kind) in [
            ("GOMP_parallel", CallKind::Barrier),
            ("GOMP_barrier", CallKind::Barrier),
            ("GOMP_critical_start", CallKind::Lock),
            ("GOMP_task", CallKind::Other),
            ("pthread_barrier_wait", CallKind::Barrier),
            ("pthread_cond_wait", CallKind::Barrier),
            ("pthread_mutex_lock", CallKind::Lock),
            ("sem_wait", CallKind::Barrier),
            ("poll", CallKind::Other),
            ("write", CallKind::Other),
            ("nanosleep", CallKind::Other),
        ] {
            assert_eq!(kind_of(&CALLS[usize::from(id_of(name)) - 1]), kind, "{name}");
        }
    }
}
