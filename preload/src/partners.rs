//! Partners of a point-to-point call: the ranks it exchanges messages with, the number of messages
//! and bytes, and the time of the call.
//!
//! The partner is read from the arguments of the call, or of the call that started its requests. A
//! sent message is counted when its send is started, a received message when it has arrived. The
//! time of a call belongs to the partners of the messages that the call has completed. If a call
//! has completed several messages, its received messages share the time evenly, since a send rarely
//! keeps a rank waiting.

use std::ffi::c_int;

use plimsoll_agent::regions::{meet, open_until};
use plimsoll_agent::started_requests::{Inserted, MAX_LISTED, Source, Started};
use plimsoll_agent::thread_state::State;
use plimsoll_calls::messages::{LIST, Messages};
use plimsoll_comm::mpi::HandleFacts;
use plimsoll_wire::record::{PartnerMessages, UNKNOWN_PARTNER};

use crate::message;
use crate::stubs::Frame;

mod numbering;

/// A call of point-to-point communication that has returned.
pub struct Exchange {
    messages: Messages,
    /// Number of the communicator, or 0 if the call has none.
    communicator: u32,
    /// Size of the message in bytes, computed from the call's count and datatype.
    bytes: u64,
    /// Whether the call returned MPI_SUCCESS.
    succeeded: bool,
}

/// Lists the requests that a call may complete or free, before the call runs: MPI may overwrite
/// their handles before it returns.
///
/// # Safety
/// The frame belongs to a call that has just begun.
#[inline(always)]
pub unsafe fn begin(frame: &Frame, messages: Messages, state: &mut State, facts: &HandleFacts) {
    let Some((count, first)) = messages.completes() else { return };
    // SAFETY: the call table gives the type of each argument.
    unsafe {
        let list = frame.argument(first);
        let count = match count {
            None => 1,
            Some(_) if !frame.is_c() => frame.noted.number as usize,
            Some(word) => usize::try_from(frame.argument(word) as c_int).unwrap_or(0),
        };
        // A null list is invalid in MPI; reporting it is left to MPI.
        let count = if list == 0 { 0 } else { count };
        if count > MAX_LISTED {
            state.channels.miss_receive();
        }
        let is_c = frame.is_c();
        state.requests.list((0..count).map(|at| facts.listed_handle(list, at, is_c)));
    }
}

/// Returns the description of the messages of a call that has returned.
///
/// # Safety
/// The frame belongs to a call that has just returned `result`; `messages` belongs to the call, and
/// `bytes` is the size of its message.
#[inline(always)]
pub unsafe fn exchange(
    frame: &Frame,
    messages: Messages,
    result: c_int,
    bytes: u64,
    facts: &HandleFacts,
) -> Exchange {
    // SAFETY: MPI has accepted the arguments if it has succeeded.
    unsafe {
        let succeeded = message::succeeded(frame, result);
        let communicator = match messages.has_ranks() && succeeded {
            true => message::communicator(frame, frame.entry()),
            false => None,
        };
        let communicator = communicator.map_or(0, |communicator| facts.number(communicator));
        Exchange { messages, communicator, bytes, succeeded }
    }
}

/// Maximum number of completed requests that are handled in one pass.
const MAX_AT_ONCE: usize = 8;

/// Communication of a completed request.
#[derive(Clone, Copy)]
struct Completed {
    /// The other end; `None` if there is no message.
    partner: Option<u32>,
    is_received: bool,
}

/// Numbers of completed requests that share the time of a call: those that received a message or,
/// if there are none, those that sent one.
#[derive(Default)]
struct Shares {
    received: u64,
    sent: u64,
}

impl Shares {
    #[inline]
    fn add(&mut self, is_received: bool) {
        self.received += u64::from(is_received);
        self.sent += u64::from(!is_received);
    }

    /// Returns the time of one request, of `ticks` in all.
    #[inline]
    fn each(&self, ticks: u64) -> u64 {
        let sharers = if self.received > 0 { self.received } else { self.sent };
        // Most calls complete few requests; a division takes longer than all else here.
        match sharers {
            0 | 1 => ticks,
            2 => ticks / 2,
            4 => ticks / 4,
            several => ticks / several,
        }
    }
}

/// A call that has returned, with its region's slot and its time in ticks.
struct Returned<'c> {
    frame: &'c Frame,
    facts: &'c HandleFacts,
    exchange: &'c Exchange,
    slot: u16,
    ticks: u64,
    /// Time stamp counter at the return of the call.
    left: u64,
}

/// Counts the messages of a call that has returned at `now`, and updates the requests that it
/// started or completed.
///
/// # Safety
/// As [`exchange`], which has returned `exchange` for this call; [`begin`] was called when the call
/// began.
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
    let Some((slot, ticks)) = open_until(state, frame.return_slot(), now) else { return };
    let returned = Returned { frame, facts, exchange, slot, ticks, left: now };
    // SAFETY: promised by the caller.
    unsafe { returned.book(state) };
    state.channels.waited += ticks;
}

impl Returned<'_> {
    /// # Safety
    /// As [`finish`].
    unsafe fn book(&self, state: &mut State) {
        use Messages::*;
        let bytes = self.exchange.bytes;
        // SAFETY: the call table gives the type of each argument, and the call has succeeded.
        unsafe {
            match self.exchange.messages {
                Sends { to: word } => {
                    if let Some(to) = self.rank(0, word) {
                        self.meet(state, to, [1, bytes, 0], self.ticks);
                        self.number_sent(state, to, word);
                    }
                }
                Receives { from, status } => {
                    if let Some(sender) = self.received(state, [from, status], 1) {
                        self.number_received(state, sender, [from, status]);
                    }
                }
                Probes { from, status } => drop(self.received(state, [from, status], 0)),
                Exchanges { to: to_word, from: from_word, status } => {
                    let to = self.rank(0, to_word);
                    let from = self.found_source(from_word, status);
                    match (to, from) {
                        (Some(both), Some(from)) if both == from => {
                            self.meet(state, both, [1, bytes, 1], self.ticks);
                        }
                        _ => {
                            if let Some(to) = to {
                                let ticks = if from.is_none() { self.ticks } else { 0 };
                                self.meet(state, to, [1, bytes, 0], ticks);
                            }
                            if let Some(from) = from {
                                self.meet(state, from, [0, 0, 1], self.ticks);
                            }
                        }
                    }
                    if let Some(to) = to {
                        self.number_sent(state, to, to_word);
                    }
                    if let Some(from) = from {
                        self.number_received(state, from, [from_word, status]);
                    }
                }
                Matches { from, message, status } => {
                    self.matched(state, message, [from, status]);
                }
                MayMatch { from, flag, message, status } => {
                    if self.integer(flag) != 0 {
                        self.matched(state, message, [from, status]);
                    }
                }
                Takes { status, .. } => self.took(state, status),
                StartsToTake { request, .. } => {
                    let message = state.requests.listed_handle(0);
                    let found = message.and_then(|message| state.requests.complete(message));
                    self.start(state, request, found.unwrap_or_default());
                }
                StartsToSend { to, request } => {
                    self.start_active(state, request, self.started(Some(to), None));
                }
                StartsToReceive { from, request } => {
                    self.start_active(state, request, self.started(None, Some(from)));
                }
                StartsToExchange { to, from, request } => {
                    self.start_active(state, request, self.started(Some(to), Some(from)));
                }
                PreparesToSend { to, request, partitions } => {
                    let partitions = partitions.map_or(1, |word| self.number(word));
                    let started = self.started(Some(to), None);
                    let bytes = bytes.saturating_mul(partitions);
                    self.start(state, request, Started { bytes, is_persistent: true, ..started });
                }
                PreparesToReceive { from, request } => {
                    let started = self.started(None, Some(from));
                    let started = Started { is_persistent: true, ..started };
                    self.start(state, request, started);
                }
                Starts { count, requests } => {
                    let count = count.map_or(1, |word| self.number(word));
                    let list = self.frame.argument(requests);
                    for at in 0..count as usize {
                        let handle = self.facts.listed_handle(list, at, self.frame.is_c());
                        if let Some(mut started) = state.requests.start(handle) {
                            self.send(state, &started, self.ticks / count);
                            self.number_started(state, &mut started);
                            state.requests.insert(handle, started);
                        }
                    }
                }
                CompletesOne { flag, status, .. } => match flag {
                    Some(flag) if self.integer(flag) == 0 => self.looked(state),
                    _ => self.completed(state, 1, status, |_, at| Some((at, at))),
                },
                CompletesAll { flag, statuses } => match flag {
                    Some(flag) if self.integer(flag) == 0 => self.looked(state),
                    _ => {
                        let count = state.requests.listed();
                        self.completed(state, count, statuses, |_, at| Some((at, at)));
                    }
                },
                CompletesAny { index, flag, status } => match flag {
                    Some(flag) if self.integer(flag) == 0 => self.looked(state),
                    _ => {
                        let found = self.index(state, index, 0);
                        self.completed(state, 1, status, |_, _| Some((found?, 0)));
                    }
                },
                CompletesSome { number, indices, statuses } => {
                    let count = usize::try_from(self.integer(number)).unwrap_or(0);
                    if count == 0 {
                        self.looked(state);
                    }
                    self.completed(state, count, statuses, |state, at| {
                        Some((self.index(state, indices, at)?, at))
                    });
                }
                Frees { .. } => {
                    if let Some(handle) = state.requests.listed_handle(0) {
                        let started = state.requests.get(handle).copied();
                        if let Some(started) = started.filter(|it| it.is_wildcard_receive()) {
                            self.lose_number(state, &started);
                        }
                        state.requests.remove(handle);
                    }
                }
                // A receive that completed before it could be cancelled is not counted as received.
                Cancels { .. } => {
                    let handle = state.requests.listed_handle(0);
                    let started = handle.and_then(|handle| state.requests.complete(handle));
                    if let Some(started) = started {
                        self.lose_number(state, &started);
                    }
                }
                StartsOther => {
                    let request = self.frame.entry().arity - 1;
                    state.requests.remove(self.handle(request));
                }
            }
        }
    }

    /// Adds to the counts of a partner: messages sent, their bytes, messages received.
    #[inline(always)]
    fn meet(&self, state: &mut State, partner: u32, counts: [u64; 3], waited: u64) {
        let [sent, bytes, received] = counts;
        meet(state, self.slot, &PartnerMessages { partner, sent, bytes, received, waited });
    }

    /// Counts a message that the call has received, or only probed if `count` is 0. Returns its
    /// sender. `words` are the arguments with the source and the status.
    ///
    /// # Safety
    /// As [`finish`].
    #[inline(always)]
    unsafe fn received(&self, state: &mut State, words: [u8; 2], count: u64) -> Option<u32> {
        // SAFETY: promised by the caller.
        let from = unsafe { self.found_source(words[0], words[1])? };
        self.meet(state, from, [0, 0, count], self.ticks);
        Some(from)
    }

    /// Returns the sender of the message that the call has received or probed; `None` if there is
    /// no message (MPI_PROC_NULL).
    ///
    /// # Safety
    /// As [`finish`].
    #[inline(always)]
    unsafe fn found_source(&self, from: u8, status: u8) -> Option<u32> {
        // SAFETY: promised by the caller.
        unsafe { self.resolved(self.source(from)?, self.frame.argument(status), 0) }
    }

    /// Returns the sender of a message. With MPI_ANY_SOURCE the sender is read from entry `at` of
    /// `statuses`. `None` if the message was cancelled.
    ///
    /// # Safety
    /// As [`HandleFacts::source`].
    #[inline(always)]
    unsafe fn resolved(&self, source: Source, statuses: usize, at: usize) -> Option<u32> {
        let communicator = match source {
            Source::Rank(rank) => return Some(rank),
            Source::Any(communicator) => communicator,
        };
        // SAFETY: promised by the caller.
        let rank = unsafe { self.facts.source(statuses, at, self.frame.is_c()) };
        // A negative rank in the status means that no message was received: the receive was
        // cancelled.
        let known = |rank| self.facts.world_rank(communicator, rank).unwrap_or(UNKNOWN_PARTNER);
        match rank {
            Some(rank) if rank < 0 => None,
            rank => Some(rank.map_or(UNKNOWN_PARTNER, known)),
        }
    }

    /// Remembers the handle of a probed message (MPI_Mprobe), which a later call receives.
    ///
    /// # Safety
    /// As [`finish`].
    unsafe fn matched(&self, state: &mut State, message: u8, words: [u8; 2]) {
        // SAFETY: promised by the caller.
        unsafe {
            let from = self.received(state, words, 0);
            if let Some(from) = from {
                self.next_received(state, from, words);
            }
            let from = from.map(Source::Rank);
            let started = Started { from, is_active: true, ..Started::default() };
            state.requests.insert(self.handle(message), started);
        }
    }

    /// Counts a message received by its handle (MPI_Mrecv).
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

    /// Returns the transfer that the call starts, as its arguments describe it: `to` and `from` are
    /// the arguments with the destination and the source.
    ///
    /// # Safety
    /// As [`finish`].
    #[inline(always)]
    unsafe fn started(&self, to: Option<u8>, from: Option<u8>) -> Started {
        // SAFETY: promised by the caller.
        unsafe {
            let source = from.and_then(|word| self.source(word));
            // The tag of a transfer without a source is that of the sent message.
            let (which, word) = if source.is_some() { (1, from) } else { (0, to) };
            Started {
                to: to.and_then(|word| self.rank(0, word)),
                from: source,
                bytes: self.exchange.bytes,
                tag: word.map_or(0, |word| self.tag(which, word)),
                communicator: self.exchange.communicator,
                ..Started::default()
            }
        }
    }

    /// Counts and remembers the transfer that a request has started.
    ///
    /// # Safety
    /// As [`finish`].
    #[inline(always)]
    unsafe fn start_active(&self, state: &mut State, request: u8, started: Started) {
        let mut started = Started { is_active: true, ..started };
        self.send(state, &started, self.ticks);
        // SAFETY: promised by the caller.
        unsafe {
            self.number_started(state, &mut started);
            self.start(state, request, started);
        }
    }

    /// Remembers the transfer that a request has started or will start.
    ///
    /// # Safety
    /// As [`finish`].
    #[inline(always)]
    unsafe fn start(&self, state: &mut State, request: u8, started: Started) {
        // SAFETY: promised by the caller.
        let handle = unsafe { self.handle(request) };
        match state.requests.insert(handle, started) {
            Inserted::Added => {}
            Inserted::Replaced(before) => self.number_replaced(state, &before),
            // A forgotten request may be a receive that takes its number when it is complete.
            Inserted::Forgotten => state.channels.miss_receive(),
        }
    }

    /// Counts the message that a request has started to send.
    #[inline(always)]
    fn send(&self, state: &mut State, started: &Started, ticks: u64) {
        if let Some(to) = started.to {
            let waited = if started.from.is_none() { ticks } else { 0 };
            self.meet(state, to, [1, started.bytes, 0], waited);
        }
    }

    /// Charges the time of a call that has completed nothing to the partner of its receives or, if
    /// there are none, of its sends, since the thread waits for that partner. Of requests with
    /// several partners, the partner is unknown.
    fn looked(&self, state: &mut State) {
        let requests = &state.requests;
        let mut partners: [Option<u32>; 2] = [None; 2];
        for at in 0..requests.listed().min(MAX_AT_ONCE) {
            let started = requests.listed_handle(at).and_then(|handle| requests.get(handle));
            let Some(started) = started.filter(|started| started.is_active) else { continue };
            let (which, partner) = match started.from {
                Some(Source::Rank(rank)) => (0, Some(rank)),
                Some(Source::Any(_)) => (0, Some(UNKNOWN_PARTNER)),
                None => (1, started.to),
            };
            let known = &mut partners[which];
            *known = if known.is_none_or(|it| Some(it) == partner) {
                partner
            } else {
                Some(UNKNOWN_PARTNER)
            };
        }
        let is_whole = requests.listed() <= MAX_AT_ONCE;
        if let Some(partner) = partners[0].or(partners[1]) {
            let partner = if is_whole { partner } else { UNKNOWN_PARTNER };
            self.meet(state, partner, [0, 0, 0], self.ticks);
        }
    }

    /// Counts `count` completed requests of the list. `place` maps the n-th completed request to
    /// its index in the list and the index of its status.
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
        if count > MAX_AT_ONCE {
            // The messages are counted first, since the receives share the time of the call.
            let mut shares = Shares::default();
            for at in 0..count {
                let listed = place(state, at).and_then(|it| state.requests.listed_handle(it.0));
                let started = listed.and_then(|handle| state.requests.get(handle));
                if let Some(started) = started.filter(|started| started.is_active) {
                    shares.add(started.from.is_some());
                }
            }
            for at in 0..count {
                // SAFETY: the call has set the status of each request that is complete.
                let ended =
                    place(state, at).and_then(|it| unsafe { self.complete(state, it, statuses) });
                if let Some(ended) = ended {
                    self.meet_completed(state, &ended, &shares);
                }
            }
            return;
        }
        let (mut ended, mut shares) = ([None; MAX_AT_ONCE], Shares::default());
        for (at, ended) in ended.iter_mut().enumerate().take(count) {
            let Some(places) = place(state, at) else { continue };
            // SAFETY: as above.
            *ended = unsafe { self.complete(state, places, statuses) };
            if let Some(ended) = ended {
                shares.add(ended.is_received);
            }
        }
        for ended in ended.iter().take(count).flatten() {
            self.meet_completed(state, ended, &shares);
        }
    }

    /// Takes note that a request is complete: its index in the list, and the index of its status.
    /// Returns its communication; `None` if the request is not followed.
    ///
    /// # Safety
    /// As [`Self::completed`].
    #[inline(always)]
    unsafe fn complete(
        &self,
        state: &mut State,
        (listed, status): (usize, usize),
        statuses: usize,
    ) -> Option<Completed> {
        let handle = state.requests.listed_handle(listed)?;
        let started = state.requests.complete(handle)?;
        let (is_received, partner) = match started.from {
            // SAFETY: promised by the caller.
            Some(from) => (true, unsafe { self.resolved(from, statuses, status) }),
            None => (false, started.to),
        };
        if let Some(partner) = partner {
            // SAFETY: as above.
            unsafe { self.number_completed(state, (&started, partner), statuses, status) };
        }
        Some(Completed { partner, is_received })
    }

    /// Counts a completed message with its share of the call's time.
    #[inline(always)]
    fn meet_completed(&self, state: &mut State, ended: &Completed, shares: &Shares) {
        let Completed { partner: Some(partner), is_received } = *ended else { return };
        if is_received {
            self.meet(state, partner, [0, 0, 1], shares.each(self.ticks));
        } else if shares.received == 0 {
            self.meet(state, partner, [0, 0, 0], shares.each(self.ticks));
        }
    }

    /// Returns an argument's rank as a rank of the world: the `which`-th rank that
    /// [`Messages::ranks`] names. `None` means MPI_PROC_NULL.
    ///
    /// # Safety
    /// As [`finish`]; `word` is that argument.
    #[inline(always)]
    unsafe fn rank(&self, which: usize, word: u8) -> Option<u32> {
        // SAFETY: promised by the caller.
        let rank = unsafe { self.rank_argument(which, word) };
        if rank < 0 {
            return None;
        }
        Some(self.facts.world_rank(self.exchange.communicator, rank).unwrap_or(UNKNOWN_PARTNER))
    }

    /// Returns the source of the message that the call receives, as its argument `word` gives it;
    /// `None` means MPI_PROC_NULL.
    ///
    /// # Safety
    /// As [`finish`].
    #[inline(always)]
    unsafe fn source(&self, word: u8) -> Option<Source> {
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
    #[inline(always)]
    unsafe fn rank_argument(&self, which: usize, word: u8) -> c_int {
        match self.frame.is_c() {
            // SAFETY: promised by the caller.
            true => unsafe { self.frame.argument(word) as c_int },
            false => self.frame.noted.ranks[which],
        }
    }

    /// Returns the handle that an argument points to.
    ///
    /// # Safety
    /// As [`finish`].
    #[inline(always)]
    unsafe fn handle(&self, word: u8) -> u64 {
        // SAFETY: promised by the caller.
        unsafe { self.facts.listed_handle(self.frame.argument(word), 0, self.frame.is_c()) }
    }

    /// Returns the value of a count argument, at least 1.
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

    /// Returns the integer that an argument points to, in C and in Fortran.
    ///
    /// # Safety
    /// As [`finish`].
    unsafe fn integer(&self, word: u8) -> c_int {
        // SAFETY: promised by the caller. The argument points to a result of the call; Fortran
        // logicals are integers, and false is 0.
        unsafe { (self.frame.argument(word) as *const c_int).as_ref().copied().unwrap_or(0) }
    }

    /// Returns the index of a completed request in the list of requests, read from entry `at` of
    /// the call's list of indices; `None` if the entry is MPI_UNDEFINED.
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
        // Fortran indices start at one, except in mpi_f08 of MPICH 4.0, where they start at zero.
        // The handles distinguish the two: the handle of a completed request has changed.
        let changed = |at: usize| {
            // SAFETY: as above; both indices are within the list.
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
