//! Message of a call, read from its arguments: the number of bytes, and the ranks that the call
//! synchronised. In C the arguments are values. In Fortran they are references; counts and handles
//! are read when the call begins, since the caller's variables may change meanwhile.

use std::ffi::c_int;

use plimsoll_calls::messages::{Messages, messages, tag_after};
use plimsoll_calls::requests::{Requests, Role, role};
use plimsoll_calls::{Call, Convention, Extent, SENT_WORDS_BEFORE};
use plimsoll_comm::mpi::{HandleFacts, Named, RequestList};
use plimsoll_wire::sync_id::SyncScope;

use crate::call_plans::{CallPlan, Steps};
use crate::communicating_thread;
use crate::stubs::{Frame, Noted};
use crate::synchronisations::{synchronised, take_index};

/// Reads the arguments that a Fortran call passes by reference.
///
/// # Safety
/// The frame belongs to a Fortran call that has just begun.
#[inline(never)]
pub unsafe fn note(frame: &Frame) -> Noted {
    let call = frame.entry();
    // SAFETY: the table names the arguments that are counts and handles. By the standard they are
    // references to an INTEGER, to a handle that holds one, or to an INTEGER(MPI_COUNT_KIND).
    unsafe {
        let integer = |word: Option<u8>| {
            word.and_then(|word| (frame.argument(word) as *const c_int).as_ref()).copied()
        };
        let count = match call.count {
            Some(word) if call.is_mpi_count => {
                let count = (frame.argument(word) as *const i64).as_ref().copied();
                count.unwrap_or(0)
            }
            word => integer(word).unwrap_or(0).into(),
        };
        let messages = messages(frame.call());
        let [to, from] = messages.map_or([None; 2], Messages::ranks);
        Noted {
            ranks: [to, from].map(|word| integer(word).unwrap_or(-1)),
            tags: [to, from].map(|word| integer(word.map(tag_after)).unwrap_or(-1)),
            number: u64::try_from(integer(messages.and_then(number_of)).unwrap_or(0)).unwrap_or(0),
            count: u64::try_from(count).unwrap_or(0),
            datatype: integer(call.datatype).unwrap_or(0),
            communicator: integer(call.communicator).unwrap_or(0),
        }
    }
}

/// Returns the argument word that holds the number of partitions, or of requests in a list; `None`
/// if the call has neither.
pub fn number_of(messages: Messages) -> Option<u8> {
    match messages {
        Messages::PreparesToSend { partitions, .. } => partitions,
        Messages::Starts { count, .. } => count,
        other => other.completes()?.0,
    }
}

/// Returns the size of the call's message in bytes, after the call has returned, and stores the
/// ranks that it synchronised in `scope`. Hardly any call stores something there: returned by
/// value, it would be copied for each call.
///
/// # Safety
/// The frame belongs to a call with this plan that has just returned, successfully or not.
#[inline(always)]
pub unsafe fn finished(
    frame: &Frame,
    plan: &CallPlan,
    succeeded: bool,
    facts: &HandleFacts,
    scope: &mut Option<SyncScope>,
) -> u64 {
    let may_synchronise = plan.has(Steps::SYNCHRONISES);
    // SAFETY: the frame is intact, and MPI has accepted the arguments if it has succeeded.
    unsafe {
        if may_synchronise || plan.has(Steps::COMPLETES) && facts.has_pending() {
            note_synchronisation(frame, succeeded, facts, scope);
        }
        if !succeeded {
            0
        } else if plan.has(Steps::WHOLE_MESSAGE) {
            whole(frame, plan.message, facts)
        } else if plan.has(Steps::OTHER_MESSAGES) {
            by_rank(frame, frame.entry().extent, plan.message, facts)
        } else {
            0
        }
    }
}

/// Stores the ranks that a call has synchronised in `scope`.
///
/// # Safety
/// As [`finished`].
#[inline(never)]
unsafe fn note_synchronisation(
    frame: &Frame,
    succeeded: bool,
    facts: &HandleFacts,
    scope: &mut Option<SyncScope>,
) {
    // SAFETY: promised by the caller.
    unsafe {
        match role(frame.call()) {
            // Its caller has seen that collectives are pending.
            Some(Role::Completes(_)) => {
                if communicating_thread::is_current() {
                    *scope = facts.completed(succeeded, |index| is_reported(frame, index));
                }
            }
            _ if !succeeded => {}
            Some(Role::StartsPrepared(requests)) => {
                if facts.has_prepared() {
                    start_prepared(frame, requests, facts);
                }
            }
            _ => *scope = synchronised(frame, frame.entry(), facts),
        }
    }
}

/// Lists the requests of a call that begins and may complete nonblocking collectives.
///
/// # Safety
/// The frame belongs to such a call, which has just begun.
#[cold]
#[inline(never)]
pub unsafe fn completes(frame: &Frame, facts: &HandleFacts) {
    let Some(Role::Completes(requests)) = role(frame.call()) else { return };
    if communicating_thread::is_current() {
        // SAFETY: the role gives the type of each argument.
        unsafe { facts.completes(list_of(frame, requests)) };
    }
}

/// Returns the requests of a call.
///
/// # Safety
/// The frame belongs to a call with requests among its arguments there.
unsafe fn list_of(frame: &Frame, requests: Requests) -> RequestList {
    // SAFETY: promised by the caller.
    unsafe {
        let count = match (requests.count, frame.is_c()) {
            (None, _) => 1,
            (Some(word), true) => frame.argument(word) as c_int,
            (Some(word), false) => {
                (frame.argument(word) as *const c_int).as_ref().copied().unwrap_or(0)
            }
        };
        let first = frame.argument(requests.first);
        // A null list is invalid in MPI; reporting it is left to MPI.
        let count = if first == 0 { 0 } else { usize::try_from(count).unwrap_or(0) };
        RequestList { first, count, is_c: frame.is_c() }
    }
}

/// Records the start of persistent requests.
///
/// # Safety
/// The frame belongs to such a call, which has just returned.
#[cold]
#[inline(never)]
unsafe fn start_prepared(frame: &Frame, requests: Requests, facts: &HandleFacts) {
    if communicating_thread::is_current() {
        // SAFETY: the role gives the type of each argument.
        unsafe { facts.started_prepared(list_of(frame, requests), take_index) };
    }
}

/// Forgets the persistent request that a call is about to free.
///
/// # Safety
/// The frame belongs to MPI_Request_free, which has just begun.
#[cold]
#[inline(never)]
pub unsafe fn frees(frame: &Frame, facts: &HandleFacts) {
    // SAFETY: the request is the first argument.
    unsafe {
        let list = list_of(frame, Requests { count: None, first: 0 });
        if list.count > 0 {
            facts.frees(list);
        }
    }
}

/// Returns whether a call reports the request with this index in its list as complete.
///
/// # Safety
/// The frame belongs to a call that may complete requests, and has just returned successfully.
unsafe fn is_reported(frame: &Frame, index: usize) -> bool {
    use Messages::*;
    // Fortran counts from one.
    let from = usize::from(!frame.is_c());
    // SAFETY: the table gives the type of each argument; these point to results of the call.
    // Fortran logicals are integers, and false is 0.
    unsafe {
        let at = |word: u8, at: usize| match frame.argument(word) as *const c_int {
            list if list.is_null() => -1,
            list => *list.add(at),
        };
        let is_set = |flag: Option<u8>| flag.is_none_or(|word| at(word, 0) != 0);
        let is_index = |found: c_int| usize::try_from(found) == Ok(index + from);
        match messages(frame.call()) {
            Some(CompletesOne { flag, .. } | CompletesAll { flag, .. }) => is_set(flag),
            Some(CompletesAny { index, flag, .. }) => is_set(flag) && is_index(at(index, 0)),
            Some(CompletesSome { number, indices, .. }) => (0..usize::try_from(at(number, 0))
                .unwrap_or(0))
                .any(|place| is_index(at(indices, place))),
            _ => false,
        }
    }
}

/// Returns the call's communicator; `None` if the call has none.
///
/// # Safety
/// As [`finished`].
#[inline]
pub unsafe fn communicator(frame: &Frame, call: &Call) -> Option<Named> {
    let word = call.communicator?;
    if !frame.is_c() {
        return Some(Named::Fortran(frame.noted.communicator));
    }
    // SAFETY: the table names the argument.
    Some(Named::C(unsafe { frame.argument(word) }))
}

/// Returns the size in bytes of a message described by one count and one datatype.
///
/// # Safety
/// As [`finished`]; `count` and `datatype` are the words of these arguments.
#[inline]
unsafe fn whole(frame: &Frame, (count, datatype): (u8, u8), facts: &HandleFacts) -> u64 {
    // SAFETY: promised by the caller.
    unsafe {
        let call = frame.entry();
        let count = if frame.is_c() { c_count(frame, call, count) } else { frame.noted.count };
        // Without elements the datatype may be invalid, and with MPI_IN_PLACE it is ignored: MPI
        // must not be asked for its size.
        if count == 0 || is_in_place(frame, call, facts) {
            0
        } else if frame.is_c() {
            count.saturating_mul(facts.type_bytes(frame.argument(datatype)))
        } else {
            count.saturating_mul(facts.fortran_type_bytes(frame.noted.datatype))
        }
    }
}

/// Returns the bytes that a rank exchanges with all ranks of a collective: those that it receives,
/// or sends, whichever are more, because both directions proceed at the same time. Few calls get
/// here, and each has moved a block for each rank that is counted.
///
/// # Safety
/// As [`whole`]; lists have an element for each rank of the communicator, and remain unchanged
/// until the call is complete (MPI-4.1, 6.12).
#[inline(never)]
unsafe fn by_rank(
    frame: &Frame,
    extent: Extent,
    (count, datatype): (u8, u8),
    facts: &HandleFacts,
) -> u64 {
    let call = frame.entry();
    // SAFETY: promised by the caller; the table names the arguments.
    unsafe {
        let Some(communicator) = communicator(frame, call) else { return 0 };
        let ranks = facts.ranks(communicator);
        if extent == Extent::EachRank {
            return whole(frame, (count, datatype), facts).saturating_mul(ranks.into());
        }
        let received = of_blocks(frame, ranks, (count, datatype), facts);
        if extent == Extent::ByRank {
            return received;
        }
        let [buffer, count, datatype] =
            [count - 1, count, datatype].map(|received| received - SENT_WORDS_BEFORE);
        // With MPI_IN_PLACE, the rank sends what it receives.
        match is_marked_in_place(frame, buffer, facts) {
            true => received,
            false => received.max(of_blocks(frame, ranks, (count, datatype), facts)),
        }
    }
}

/// Returns the bytes of blocks that arguments list by rank.
///
/// # Safety
/// As [`by_rank`].
unsafe fn of_blocks(
    frame: &Frame,
    ranks: u32,
    (count, datatype): (u8, u8),
    facts: &HandleFacts,
) -> u64 {
    let call = frame.entry();
    // SAFETY: promised by the caller.
    unsafe {
        let (counts, types) = (frame.argument(count), frame.argument(datatype));
        let elements = |at: usize| elements(counts, at, call.is_mpi_count);
        let type_bytes = |at: usize| match (frame.is_c(), call.extent) {
            (true, Extent::ByRankAndType) => facts.listed_type_bytes(types, at),
            (true, _) => facts.type_bytes(types),
            // A reference, or an array.
            (false, _) => facts.fortran_type_bytes(*(types as *const c_int).add(at)),
        };
        // The datatype of a block without elements may be invalid.
        let bytes_of = |at: usize, elements: u64| match elements {
            0 => 0,
            elements => elements.saturating_mul(type_bytes(at)),
        };
        let blocks = 0..ranks as usize;
        if call.extent == Extent::ByRankAndType {
            return blocks.map(|at| bytes_of(at, elements(at))).fold(0, u64::saturating_add);
        }
        bytes_of(0, blocks.map(elements).fold(0, u64::saturating_add))
    }
}

/// Returns an element of a list of counts; negative counts are 0.
///
/// # Safety
/// The list has more than `at` elements.
unsafe fn elements(list: usize, at: usize, are_large: bool) -> u64 {
    // SAFETY: promised by the caller.
    let count = unsafe {
        match are_large {
            true => *(list as *const i64).add(at),
            false => i64::from(*(list as *const c_int).add(at)),
        }
    };
    u64::try_from(count).unwrap_or(0)
}

/// Returns whether an MPI call succeeded (MPI_SUCCESS is 0 in every ABI): C returns an int, Fortran
/// writes ierror, which may be absent in mpi_f08.
///
/// # Safety
/// As [`finished`].
#[inline]
pub unsafe fn succeeded(frame: &Frame, result: c_int) -> bool {
    if frame.is_c() {
        return result == 0;
    }
    let before = match frame.entry().name {
        // Fortran has no argc and argv.
        "MPI_Init" => 0,
        "MPI_Init_thread" => 2,
        _ => frame.entry().arity,
    };
    // SAFETY: ierror follows the other arguments.
    let ierror = unsafe { (frame.argument(before) as *const c_int).as_ref() };
    ierror.is_none_or(|code| *code == 0)
}

/// # Safety
/// As [`finished`]; `word` is the argument word of the count.
#[inline]
pub unsafe fn c_count(frame: &Frame, call: &Call, word: u8) -> u64 {
    // SAFETY: promised by the caller.
    let count = unsafe { frame.argument(word) };
    let count = if call.is_mpi_count { count as i64 } else { (count as c_int).into() };
    u64::try_from(count).unwrap_or(0)
}

/// Returns whether the buffer is MPI_IN_PLACE, which makes MPI ignore its count and datatype.
///
/// # Safety
/// As [`finished`].
unsafe fn is_in_place(frame: &Frame, call: &Call, facts: &HandleFacts) -> bool {
    // SAFETY: promised by the caller.
    call.in_place.is_some_and(|word| unsafe { is_marked_in_place(frame, word, facts) })
}

/// Returns whether the buffer in an argument word is MPI_IN_PLACE.
///
/// # Safety
/// As [`finished`]; `word` is the argument word of a buffer.
unsafe fn is_marked_in_place(frame: &Frame, word: u8, facts: &HandleFacts) -> bool {
    // SAFETY: the buffer is an argument; a Fortran descriptor begins with the address (Fortran
    // 2018, 18.5.3).
    unsafe {
        let buffer = frame.argument(word);
        match frame.symbol().convention {
            Convention::C => facts.is_in_place(buffer),
            Convention::Fortran | Convention::F08 => facts.fortran_may_be_in_place(buffer),
            Convention::F08Descriptors => match (buffer as *const usize).as_ref() {
                Some(address) => facts.fortran_may_be_in_place(*address),
                None => true,
            },
        }
    }
}
