//! With whom a call of point-to-point communication exchanges messages, and how long it took.
//!
//! Ranks are among the arguments of the call, or of the call that has started its requests. Messages
//! that a rank sends are counted when they are sent or started, those that it receives when they are
//! there. The time of a call is that of the partners whose messages it has completed; of a call that
//! has completed several, those of received messages share it evenly, since what is sent rarely keeps
//! a rank waiting.

use std::ffi::c_int;

use plimsoll_agent::regions::{meet, open_until};
use plimsoll_agent::started_requests::{Source, Started};
use plimsoll_agent::thread::State;
use plimsoll_calls::messages::{LIST, Messages, messages};
use plimsoll_comm::mpi::HandleFacts;
use plimsoll_wire::record::{PartnerMessages, UNKNOWN_PARTNER};

use crate::message;
use crate::stubs::Frame;

/// A call of point-to-point communication that has returned.
pub struct Exchange {
    messages: Messages,
    /// Number of its communicator, or 0 if it has none.
    communicator: u32,
    /// Bytes of the message that its count describes.
    bytes: u64,
    /// Whether it succeeded.
    succeeded: bool,
}

/// A call begins: notes the requests that it may complete or free, whose handles may be others when it
/// returns.
///
/// # Safety
/// The frame is of a call that has just begun.
#[inline(always)]
pub unsafe fn begin(frame: &Frame, state: &mut State, facts: &HandleFacts) {
    let Some(messages) = messages(frame.call()) else { return };
    let Some((count, first)) = messages.completes() else { return };
    // SAFETY: the table says what the arguments are.
    unsafe {
        let list = frame.argument(first);
        let count = match count {
            None => 1,
            Some(_) if !frame.is_c() => frame.noted.number as usize,
            Some(word) => usize::try_from(frame.argument(word) as c_int).unwrap_or(0),
        };
        // What MPI would refuse is left to MPI.
        let count = if list == 0 { 0 } else { count };
        let is_c = frame.is_c();
        state.requests.list((0..count).map(|at| facts.listed_handle(list, at, is_c)));
    }
}

/// What a call that has returned says of messages; `None` if nothing.
///
/// # Safety
/// The frame is of a call that has just returned `result`; `bytes` is the size of its message.
#[inline(always)]
pub unsafe fn exchange(
    frame: &Frame,
    result: c_int,
    bytes: u64,
    facts: &HandleFacts,
) -> Option<Exchange> {
    let messages = messages(frame.call())?;
    let has_ranks = messages.ranks() != [None; 2];
    // SAFETY: MPI has accepted the arguments if it has succeeded.
    unsafe {
        let succeeded = message::succeeded(frame, result);
        let communicator = match has_ranks && succeeded {
            true => message::communicator(frame, frame.entry()),
            false => None,
        };
        let communicator = communicator.map_or(0, |communicator| facts.number(communicator));
        Some(Exchange { messages, communicator, bytes, succeeded })
    }
}

/// A call in progress, as the functions below see it.
struct Returned<'c> {
    frame: &'c Frame,
    facts: &'c HandleFacts,
    exchange: &'c Exchange,
    slot: u16,
    ticks: u64,
}

/// Books the messages of a call that has returned at `now`, and follows its requests.
///
/// # Safety
/// As [`exchange`], which said so of this call; [`begin`] was called when it began.
#[inline(always)]
pub unsafe fn finish(
    frame: &Frame,
    state: &mut State,
    exchange: &Exchange,
    facts: &HandleFacts,
    now: u64,
) {
    if !exchange.succeeded {
        return;
    }
    let Some((slot, ticks)) = open_until(state, frame.place(), now) else { return };
    let returned = Returned { frame, facts, exchange, slot, ticks };
    // SAFETY: promised by the caller.
    unsafe { returned.book(state) };
}

impl Returned<'_> {
    /// # Safety
    /// As [`finish`].
    unsafe fn book(&self, state: &mut State) {
        use Messages::*;
        let bytes = self.exchange.bytes;
        // SAFETY: the table says what the arguments are, and the call has succeeded.
        unsafe {
            match self.exchange.messages {
                Sends { to } => {
                    if let Some(to) = self.rank(0, to) {
                        self.meet(state, to, [1, bytes, 0], self.ticks);
                    }
                }
                Receives { status, .. } => self.received(state, status, 1),
                Probes { status, .. } => self.received(state, status, 0),
                Exchanges { to, status, .. } => {
                    let to = self.rank(0, to);
                    let from = self.found_source(status);
                    if let (Some(both), true) = (to, to == from) {
                        return self.meet(state, both, [1, bytes, 1], self.ticks);
                    }
                    if let Some(to) = to {
                        let ticks = if from.is_none() { self.ticks } else { 0 };
                        self.meet(state, to, [1, bytes, 0], ticks);
                    }
                    if let Some(from) = from {
                        self.meet(state, from, [0, 0, 1], self.ticks);
                    }
                }
                Matches { message, status, .. } => {
                    self.received(state, status, 0);
                    self.matched(state, message, status);
                }
                MayMatch { flag, message, status, .. } => {
                    if self.integer(flag) != 0 {
                        self.received(state, status, 0);
                        self.matched(state, message, status);
                    }
                }
                Takes { status, .. } => self.took(state, status),
                StartsToTake { request, .. } => {
                    let message = state.requests.listed_handle(0);
                    let found = message.and_then(|message| state.requests.complete(message));
                    self.start(state, request, found.unwrap_or_default());
                }
                StartsToSend { request, .. }
                | StartsToReceive { request, .. }
                | StartsToExchange { request, .. } => {
                    let started = Started { is_active: true, ..self.started() };
                    self.send(state, &started, self.ticks);
                    self.start(state, request, started);
                }
                PreparesToSend { request, partitions, .. } => {
                    let partitions = partitions.map_or(1, |word| self.number(word));
                    let started = self.started();
                    let bytes = bytes.saturating_mul(partitions);
                    self.start(state, request, Started { bytes, is_persistent: true, ..started });
                }
                PreparesToReceive { request, .. } => {
                    let started = Started { is_persistent: true, ..self.started() };
                    self.start(state, request, started);
                }
                Starts { count, requests } => {
                    let count = count.map_or(1, |word| self.number(word));
                    let list = self.frame.argument(requests);
                    for at in 0..count as usize {
                        let handle = self.facts.listed_handle(list, at, self.frame.is_c());
                        if let Some(started) = state.requests.start(handle) {
                            self.send(state, &started, self.ticks / count);
                        }
                    }
                }
                CompletesOne { flag, status, .. } => match flag {
                    Some(flag) if self.integer(flag) == 0 => self.looked(state),
                    _ => self.completed(state, 1, status, |_, at| Some((at, at))),
                },
                CompletesAll { flag, statuses } => {
                    if flag.is_none_or(|flag| self.integer(flag) != 0) {
                        let count = state.requests.listed();
                        self.completed(state, count, statuses, |_, at| Some((at, at)));
                    }
                }
                CompletesAny { index, flag, status } => {
                    if flag.is_none_or(|flag| self.integer(flag) != 0) {
                        let found = self.index(state, index, 0);
                        self.completed(state, 1, status, |_, _| Some((found?, 0)));
                    }
                }
                CompletesSome { number, indices, statuses } => {
                    let count = usize::try_from(self.integer(number)).unwrap_or(0);
                    self.completed(state, count, statuses, |state, at| {
                        Some((self.index(state, indices, at)?, at))
                    });
                }
                Frees { .. } => {
                    if let Some(handle) = state.requests.listed_handle(0) {
                        state.requests.remove(handle);
                    }
                }
                // A message that was there before it could be cancelled is not counted as received.
                Cancels { .. } => {
                    if let Some(handle) = state.requests.listed_handle(0) {
                        state.requests.complete(handle);
                    }
                }
                StartsOther => {
                    let request = self.frame.entry().arity - 1;
                    state.requests.remove(self.handle(request));
                }
            }
        }
    }

    /// Books messages of a partner: those sent, their bytes, those received.
    #[inline]
    fn meet(&self, state: &mut State, partner: u32, counts: [u64; 3], waited: u64) {
        let [sent, bytes, received] = counts;
        meet(state, self.slot, &PartnerMessages { partner, sent, bytes, received, waited });
    }

    /// Books a message that the call has received, or has found if `count` is 0.
    ///
    /// # Safety
    /// As [`finish`].
    unsafe fn received(&self, state: &mut State, status: u8, count: u64) {
        // SAFETY: promised by the caller.
        if let Some(from) = unsafe { self.found_source(status) } {
            self.meet(state, from, [0, 0, count], self.ticks);
        }
    }

    /// The sender of the message that the call has found; `None` if there is none (MPI_PROC_NULL).
    ///
    /// # Safety
    /// As [`finish`].
    unsafe fn found_source(&self, status: u8) -> Option<u32> {
        // SAFETY: promised by the caller.
        unsafe { self.resolved(self.source()?, self.frame.argument(status), 0) }
    }

    /// The sender of a message, whose status stands at an index of a list.
    ///
    /// # Safety
    /// As [`HandleFacts::source`].
    unsafe fn resolved(&self, source: Source, statuses: usize, at: usize) -> Option<u32> {
        let communicator = match source {
            Source::Rank(rank) => return Some(rank),
            Source::Any(communicator) => communicator,
        };
        // SAFETY: promised by the caller.
        let rank = unsafe { self.facts.source(statuses, at, self.frame.is_c()) };
        // A negative one is that of no message: it was cancelled.
        let known = |rank| self.facts.world_rank(communicator, rank).unwrap_or(UNKNOWN_PARTNER);
        match rank {
            Some(rank) if rank < 0 => None,
            rank => Some(rank.map_or(UNKNOWN_PARTNER, known)),
        }
    }

    /// A message was found that a later call will receive, by its handle.
    ///
    /// # Safety
    /// As [`finish`].
    unsafe fn matched(&self, state: &mut State, message: u8, status: u8) {
        // SAFETY: promised by the caller.
        unsafe {
            let from = self.found_source(status).map(Source::Rank);
            let started = Started { from, is_active: true, ..Started::default() };
            state.requests.insert(self.handle(message), started);
        }
    }

    /// The message of a handle was received.
    ///
    /// # Safety
    /// As [`finish`].
    unsafe fn took(&self, state: &mut State, status: u8) {
        let message = state.requests.listed_handle(0);
        let Some(found) = message.and_then(|message| state.requests.complete(message)) else {
            return self.meet(state, UNKNOWN_PARTNER, [0, 0, 1], self.ticks);
        };
        // SAFETY: promised by the caller.
        let from = unsafe {
            found.from.and_then(|from| self.resolved(from, self.frame.argument(status), 0))
        };
        if let Some(from) = from {
            self.meet(state, from, [0, 0, 1], self.ticks);
        }
    }

    /// What the call starts, by its own arguments.
    ///
    /// # Safety
    /// As [`finish`].
    unsafe fn started(&self) -> Started {
        // SAFETY: promised by the caller.
        let to = unsafe { self.exchange.messages.ranks()[0].and_then(|word| self.rank(0, word)) };
        // SAFETY: as above.
        let from = unsafe { self.source() };
        Started { to, from, bytes: self.exchange.bytes, ..Started::default() }
    }

    /// Notes what a request has started or will start.
    ///
    /// # Safety
    /// As [`finish`].
    unsafe fn start(&self, state: &mut State, request: u8, started: Started) {
        // SAFETY: promised by the caller.
        let handle = unsafe { self.handle(request) };
        state.requests.insert(handle, started);
    }

    /// Books the message that a request has started to send.
    fn send(&self, state: &mut State, started: &Started, ticks: u64) {
        if let Some(to) = started.to {
            let waited = if started.from.is_none() { ticks } else { 0 };
            self.meet(state, to, [1, started.bytes, 0], waited);
        }
    }

    /// A request was looked at that is not complete: its partner is waited for.
    fn looked(&self, state: &mut State) {
        let handle = state.requests.listed_handle(0);
        let started = handle.and_then(|handle| state.requests.get(handle)).copied();
        let Some(started) = started.filter(|started| started.is_active) else { return };
        let partner = match started.from {
            Some(Source::Rank(rank)) => Some(rank),
            Some(Source::Any(_)) => Some(UNKNOWN_PARTNER),
            None => started.to,
        };
        if let Some(partner) = partner {
            self.meet(state, partner, [0, 0, 0], self.ticks);
        }
    }

    /// Requests are complete: `count` of those that were listed. `place` says the place in the list, and
    /// that of the status, of each.
    ///
    /// # Safety
    /// As [`finish`].
    unsafe fn completed(
        &self,
        state: &mut State,
        count: usize,
        statuses: u8,
        place: impl Fn(&State, usize) -> Option<(usize, usize)>,
    ) {
        // SAFETY: promised by the caller.
        let statuses = unsafe { self.frame.argument(statuses) };
        // With one request nothing is shared; of several, those that receive share the time.
        let mut sharers = 1;
        let mut receives = false;
        if count > 1 {
            let started = |at| {
                let handle = state.requests.listed_handle(place(state, at)?.0)?;
                state.requests.get(handle).filter(|started| started.is_active)
            };
            let [mut received, mut sent] = [0; 2];
            for started in (0..count).filter_map(started) {
                match started.from {
                    Some(_) => received += 1,
                    None => sent += 1,
                }
            }
            receives = received > 0;
            sharers = if receives { received } else { sent.max(1) };
        }
        let ticks_each = if sharers == 1 { self.ticks } else { self.ticks / sharers };
        for at in 0..count {
            let Some((listed, status)) = place(state, at) else { continue };
            let Some(handle) = state.requests.listed_handle(listed) else { continue };
            let Some(started) = state.requests.complete(handle) else { continue };
            match (started.from, started.to) {
                (Some(from), _) => {
                    // SAFETY: the call has set the status of each request that is complete.
                    if let Some(from) = unsafe { self.resolved(from, statuses, status) } {
                        self.meet(state, from, [0, 0, 1], ticks_each);
                    }
                }
                (None, Some(to)) if !receives => {
                    self.meet(state, to, [0, 0, 0], ticks_each);
                }
                _ => {}
            }
        }
    }

    /// A rank among the arguments, as one of the world: the `which`-th that [`Messages::ranks`] names.
    /// `None` is MPI_PROC_NULL.
    ///
    /// # Safety
    /// As [`finish`]; `word` is that argument.
    #[inline]
    unsafe fn rank(&self, which: usize, word: u8) -> Option<u32> {
        // SAFETY: promised by the caller.
        let rank = unsafe { self.rank_argument(which, word) };
        if rank < 0 {
            return None;
        }
        Some(self.facts.world_rank(self.exchange.communicator, rank).unwrap_or(UNKNOWN_PARTNER))
    }

    /// Where the message comes from that the call receives, by its arguments; `None` if from no one.
    ///
    /// # Safety
    /// As [`finish`].
    #[inline]
    unsafe fn source(&self) -> Option<Source> {
        let word = self.exchange.messages.ranks()[1]?;
        // SAFETY: promised by the caller.
        unsafe {
            if self.facts.is_any_source(self.rank_argument(1, word)) {
                return Some(Source::Any(self.exchange.communicator));
            }
            self.rank(1, word).map(Source::Rank)
        }
    }

    /// # Safety
    /// As [`Self::rank`].
    #[inline]
    unsafe fn rank_argument(&self, which: usize, word: u8) -> c_int {
        match self.frame.is_c() {
            // SAFETY: promised by the caller.
            true => unsafe { self.frame.argument(word) as c_int },
            false => self.frame.noted.ranks[which],
        }
    }

    /// The handle that an argument points to.
    ///
    /// # Safety
    /// As [`finish`].
    unsafe fn handle(&self, word: u8) -> u64 {
        // SAFETY: promised by the caller.
        unsafe { self.facts.listed_handle(self.frame.argument(word), 0, self.frame.is_c()) }
    }

    /// A number among the arguments; at least 1.
    ///
    /// # Safety
    /// As [`finish`].
    unsafe fn number(&self, word: u8) -> u64 {
        let number = match self.frame.is_c() {
            // SAFETY: promised by the caller.
            true => u64::try_from(unsafe { self.frame.argument(word) } as c_int).unwrap_or(0),
            false => self.frame.noted.number,
        };
        number.max(1)
    }

    /// An integer that an argument points to, in C and in Fortran.
    ///
    /// # Safety
    /// As [`finish`].
    unsafe fn integer(&self, word: u8) -> c_int {
        // SAFETY: promised by the caller. It is where the call has put a result; logicals of Fortran are
        // integers, and false is 0.
        unsafe { (self.frame.argument(word) as *const c_int).as_ref().copied().unwrap_or(0) }
    }

    /// A place in the list of requests, as the call has put its index at a place of another list; `None` if that
    /// is none (MPI_UNDEFINED).
    ///
    /// # Safety
    /// As [`finish`].
    unsafe fn index(&self, state: &State, word: u8, at: usize) -> Option<usize> {
        // SAFETY: promised by the caller.
        let index = unsafe { *(self.frame.argument(word) as *const c_int).add(at) };
        let index = usize::try_from(index).ok()?;
        if self.frame.is_c() {
            return Some(index);
        }
        // Fortran counts from one, but for mpi_f08 of MPICH 4.0: there the handle of a request that is complete
        // tells, which is another then.
        let changed = |at: usize| {
            // SAFETY: as above; both are places in the list.
            let now = unsafe { self.facts.listed_handle(self.frame.argument(LIST), at, false) };
            state.requests.listed_handle(at).is_some_and(|before| before != now)
        };
        let from_one = index.checked_sub(1);
        match from_one {
            Some(place) if changed(place) => from_one,
            _ if index < state.requests.listed() && changed(index) => Some(index),
            _ => from_one,
        }
    }
}
