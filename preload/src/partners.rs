//! Partners of a point-to-point call: the ranks it exchanges messages with, the number of messages
//! and bytes, and the time of the call.
//!
//! The partner is read from the arguments of the call, or of the call that started its requests. A
//! sent message is counted when its send is started, a received message when it has arrived. The
//! time of a call belongs to the partners of the messages that the call has completed. If a call
//! has completed several messages, its received messages share the time evenly, since a send rarely
//! keeps a rank waiting.

use std::ffi::c_int;

use plimsoll_agent::regions::meet;
use plimsoll_agent::started_requests::{
    Inserted, MAX_LISTED, Numbering, RequestPlace, Source, Started,
};
use plimsoll_agent::thread_state::State;
use plimsoll_calls::messages::{LIST, Messages};
use plimsoll_comm::mpi::{HandleFacts, Named};
use plimsoll_wire::record::{PartnerMessages, UNKNOWN_PARTNER};

use crate::call_plans::{CallPlan, Steps};
use crate::stubs::Frame;

mod numbering;

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
        facts.read_handles(list, frame.is_c(), state.requests.list(count));
    }
}

/// A call of point-to-point communication that has returned.
pub struct Exchange<'c> {
    pub frame: &'c Frame,
    pub facts: &'c HandleFacts,
    pub messages: &'static Messages,
    /// Number of the communicator, or 0 if the call has none.
    pub communicator: u32,
    /// Slot of the call's region.
    pub slot: u16,
    /// Size of the message in bytes, computed from the call's count and datatype.
    pub bytes: u64,
    /// Duration of the call in ticks.
    pub ticks: u64,
    /// Time stamp counter at the return of the call.
    pub left: u64,
}

/// Returns the number of the communicator of a call that has returned; 0 if the call has none.
///
/// # Safety
/// The frame belongs to a call with this plan that has succeeded.
#[inline(always)]
pub unsafe fn communicator(frame: &Frame, plan: &CallPlan, facts: &HandleFacts) -> u32 {
    if !plan.has(Steps::HAS_RANKS) {
        return 0;
    }
    facts.number(match frame.is_c() {
        // SAFETY: promised by the caller.
        true => Named::C(unsafe { frame.argument(plan.communicator) }),
        false => Named::Fortran(frame.noted.communicator),
    })
}

/// Maximum number of completed requests that are handled in one pass.
const MAX_AT_ONCE: usize = 8;

/// Completed requests that received messages, or completed requests that sent messages.
#[derive(Default)]
struct Completed {
    /// Number of the requests.
    all: u64,
    /// Partners of the requests; a request without a message has none.
    partners: [u32; MAX_AT_ONCE],
    partner_count: usize,
}

impl Completed {
    #[inline(always)]
    fn add(&mut self, partner: Option<u32>) {
        self.all += 1;
        if let Some(partner) = partner {
            self.partners[self.partner_count] = partner;
            self.partner_count += 1;
        }
    }
}

/// Returns the time of each of several requests that share `ticks`.
#[inline]
fn share(ticks: u64, requests: u64) -> u64 {
    // Most calls complete few requests; a division takes longer than all else here.
    match requests {
        0 | 1 => ticks,
        2 => ticks / 2,
        4 => ticks / 4,
        several => ticks / several,
    }
}

impl Exchange<'_> {
    /// Counts the messages of the call. The most frequent calls have functions of their own, which
    /// save few registers.
    ///
    /// # Safety
    /// The call has returned and has succeeded, and [`begin`] was called when it began.
    #[inline(never)]
    pub unsafe fn book(&self, state: &mut State) {
        use Messages::*;
        // SAFETY: promised by the caller.
        unsafe {
            match *self.messages {
                Sends { to } => self.book_send(state, to),
                Receives { from, status } => self.book_receive(state, [from, status]),
                Exchanges { to, from, status } => self.book_exchange(state, to, [from, status]),
                StartsToSend { to, request } => self.book_started_send(state, to, request),
                StartsToReceive { from, request } => {
                    self.book_started_receive(state, from, request);
                }
                CompletesOne { flag: None, status, .. } => self.book_completed(state, 1, status),
                CompletesAll { flag: None, statuses } => {
                    self.book_completed(state, state.requests.listed(), statuses);
                }
                _ => self.book_other(state),
            }
        }
    }

    /// # Safety
    /// As [`Self::book`].
    #[inline(never)]
    unsafe fn book_send(&self, state: &mut State, to_word: u8) {
        // SAFETY: promised by the caller.
        unsafe {
            if let Some(to) = self.rank(0, to_word) {
                self.meet(state, to, [1, self.bytes, 0], self.ticks);
                self.number_sent(state, to, to_word);
            }
        }
    }

    /// # Safety
    /// As [`Self::book`].
    #[inline(never)]
    unsafe fn book_receive(&self, state: &mut State, words: [u8; 2]) {
        // SAFETY: promised by the caller.
        unsafe {
            if let Some(sender) = self.received(state, words, 1) {
                self.number_received(state, sender, words);
            }
        }
    }

    /// # Safety
    /// As [`Self::book`].
    #[inline(never)]
    unsafe fn book_exchange(&self, state: &mut State, to_word: u8, words: [u8; 2]) {
        // SAFETY: promised by the caller.
        unsafe {
            let to = self.rank(0, to_word);
            let from = self.found_source(words[0], words[1]);
            match (to, from) {
                (Some(both), Some(from)) if both == from => {
                    self.meet(state, both, [1, self.bytes, 1], self.ticks);
                }
                _ => {
                    if let Some(to) = to {
                        let ticks = if from.is_none() { self.ticks } else { 0 };
                        self.meet(state, to, [1, self.bytes, 0], ticks);
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
                self.number_received(state, from, words);
            }
        }
    }

    /// # Safety
    /// As [`Self::book`].
    #[inline(never)]
    unsafe fn book_started_send(&self, state: &mut State, to: u8, request: u8) {
        // SAFETY: promised by the caller.
        unsafe { self.start_active(state, request, self.started(Some(to), None)) };
    }

    /// # Safety
    /// As [`Self::book`].
    #[inline(never)]
    unsafe fn book_started_receive(&self, state: &mut State, from: u8, request: u8) {
        // SAFETY: promised by the caller.
        unsafe { self.start_active(state, request, self.started(None, Some(from))) };
    }

    /// Counts the first `count` requests of the list, which are complete.
    ///
    /// # Safety
    /// As [`Self::book`].
    #[inline(never)]
    unsafe fn book_completed(&self, state: &mut State, count: usize, statuses: u8) {
        // SAFETY: promised by the caller.
        unsafe { self.completed(state, count, statuses, |_, at| Some((at, at))) };
    }

    /// # Safety
    /// As [`Self::book`].
    #[inline(never)]
    unsafe fn book_other(&self, state: &mut State) {
        use Messages::*;
        let bytes = self.bytes;
        // SAFETY: the call table gives the type of each argument, and the call has succeeded.
        unsafe {
            match *self.messages {
                Probes { from, status } => drop(self.received(state, [from, status], 0)),
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
                StartsToExchange { to, from, request } => {
                    self.start_active(state, request, self.started(Some(to), Some(from)));
                }
                PreparesToSend { to, request, partitions } => {
                    let started = Started {
                        bytes: bytes.saturating_mul(partitions.map_or(1, |it| self.number(it))),
                        is_persistent: true,
                        is_partitioned: partitions.is_some(),
                        ..self.started(Some(to), None)
                    };
                    self.start(state, request, started);
                }
                PreparesToReceive { from, request, partitions } => {
                    let started = Started {
                        is_persistent: true,
                        is_partitioned: partitions.is_some(),
                        ..self.started(None, Some(from))
                    };
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
                    _ => self.book_completed(state, 1, status),
                },
                CompletesAll { flag, statuses } => match flag {
                    Some(flag) if self.integer(flag) == 0 => self.looked(state),
                    _ => self.book_completed(state, state.requests.listed(), statuses),
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
                // These have functions of their own.
                Sends { .. }
                | Receives { .. }
                | Exchanges { .. }
                | StartsToSend { .. }
                | StartsToReceive { .. } => {}
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
        meet(state, self.slot, PartnerMessages { partner, sent, bytes, received, waited });
    }

    /// Counts a message that the call has received, or only probed if `count` is 0. Returns its
    /// sender. `words` are the arguments with the source and the status.
    ///
    /// # Safety
    /// As [`Self::book`].
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
    /// As [`Self::book`].
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
    /// As [`Self::book`].
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
    /// As [`Self::book`].
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
    /// As [`Self::book`].
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
                bytes: self.bytes,
                tag: word.map_or(0, |word| self.tag(which, word)),
                communicator: self.communicator,
                ..Started::default()
            }
        }
    }

    /// Counts and remembers the transfer that a request has started.
    ///
    /// # Safety
    /// As [`Self::book`].
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
    /// As [`Self::book`].
    #[inline(always)]
    unsafe fn start(&self, state: &mut State, request: u8, started: Started) {
        // SAFETY: promised by the caller.
        let handle = unsafe { self.handle(request) };
        if !state.requests.add(handle, started) {
            let copy = started;
            self.start_instead(state, handle, &copy);
        }
    }

    /// Remembers the transfer of a request with a known handle, or that finds no room.
    #[inline(never)]
    fn start_instead(&self, state: &mut State, handle: u64, started: &Started) {
        match state.requests.insert(handle, *started) {
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
    /// As [`Self::book`].
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
            // SAFETY: as above.
            return unsafe { self.many_completed(state, count, statuses, place) };
        }
        let (mut received, mut sent) = (Completed::default(), Completed::default());
        for at in 0..count {
            let Some(places) = place(state, at) else { continue };
            // SAFETY: the call has set the status of each request that is complete.
            match unsafe { self.complete(state, places, statuses) } {
                Some((true, partner)) => received.add(partner),
                Some((false, partner)) => sent.add(partner),
                None => {}
            }
        }
        // A send rarely keeps a rank waiting.
        if received.all > 0 {
            let waited = share(self.ticks, received.all);
            for partner in received.partners.iter().take(received.partner_count) {
                self.meet(state, *partner, [0, 0, 1], waited);
            }
        } else {
            let waited = share(self.ticks, sent.all);
            for partner in sent.partners.iter().take(sent.partner_count) {
                self.meet(state, *partner, [0, 0, 0], waited);
            }
        }
    }

    /// Like [`Self::completed`], for many requests: they are counted first, and then completed.
    ///
    /// # Safety
    /// As [`Self::completed`]; `statuses` is the address of the statuses.
    #[inline(never)]
    unsafe fn many_completed(
        &self,
        state: &mut State,
        count: usize,
        statuses: usize,
        place: impl Fn(&State, usize) -> Option<(usize, usize)>,
    ) {
        let (mut received, mut sent) = (0, 0);
        for at in 0..count {
            let listed = place(state, at).and_then(|it| state.requests.listed_handle(it.0));
            let started = listed.and_then(|handle| state.requests.get(handle));
            if let Some(started) = started.filter(|started| started.is_active) {
                received += u64::from(started.from.is_some());
                sent += u64::from(started.from.is_none());
            }
        }
        for at in 0..count {
            // SAFETY: the call has set the status of each request that is complete.
            let ended =
                place(state, at).and_then(|it| unsafe { self.complete(state, it, statuses) });
            match ended {
                Some((true, Some(partner))) => {
                    self.meet(state, partner, [0, 0, 1], share(self.ticks, received));
                }
                Some((false, Some(partner))) if received == 0 => {
                    self.meet(state, partner, [0, 0, 0], share(self.ticks, sent));
                }
                _ => {}
            }
        }
    }

    /// Takes note that a request is complete: its index in the list, and the index of its status.
    /// Returns whether it received, and its partner; `None` if the request is not followed.
    ///
    /// # Safety
    /// As [`Self::completed`].
    #[inline(always)]
    unsafe fn complete(
        &self,
        state: &mut State,
        (listed, status): (usize, usize),
        statuses: usize,
    ) -> Option<(bool, Option<u32>)> {
        let handle = state.requests.listed_handle(listed)?;
        let place = state.requests.place(handle)?;
        let started = state.requests.at(place);
        let is_active = started.is_active;
        let (is_received, mut partner, is_known) = match started.from {
            Some(Source::Rank(from)) => (true, Some(from), true),
            Some(Source::Any(_)) => (true, None, false),
            None => (false, started.to, true),
        };
        // Few messages are exemplary, or have a sender that only the status names.
        if is_active && !(is_known && started.numbering == Numbering::None) {
            // SAFETY: promised by the caller.
            partner = unsafe { self.note_completed(state, place, statuses, status) };
        }
        state.requests.complete_at(place);
        is_active.then_some((is_received, partner))
    }

    /// Returns the partner of a completed request, and numbers its message.
    ///
    /// # Safety
    /// As [`Self::complete`].
    #[cold]
    #[inline(never)]
    unsafe fn note_completed(
        &self,
        state: &mut State,
        place: RequestPlace,
        statuses: usize,
        status: usize,
    ) -> Option<u32> {
        let started = *state.requests.at(place);
        // SAFETY: promised by the caller.
        unsafe {
            let partner = match started.from {
                Some(from) => self.resolved(from, statuses, status),
                None => started.to,
            };
            if let Some(partner) = partner {
                self.number_completed(state, (&started, partner), statuses, status);
            }
            partner
        }
    }

    /// Returns an argument's rank as a rank of the world: the `which`-th rank that
    /// [`Messages::ranks`] names. `None` means MPI_PROC_NULL.
    ///
    /// # Safety
    /// As [`Self::book`]; `word` is that argument.
    #[inline(always)]
    unsafe fn rank(&self, which: usize, word: u8) -> Option<u32> {
        // SAFETY: promised by the caller.
        let rank = unsafe { self.rank_argument(which, word) };
        if rank < 0 {
            return None;
        }
        Some(self.facts.world_rank(self.communicator, rank).unwrap_or(UNKNOWN_PARTNER))
    }

    /// Returns the source of the message that the call receives, as its argument `word` gives it;
    /// `None` means MPI_PROC_NULL.
    ///
    /// # Safety
    /// As [`Self::book`].
    #[inline(always)]
    unsafe fn source(&self, word: u8) -> Option<Source> {
        // SAFETY: promised by the caller.
        unsafe {
            if self.facts.is_any_source(self.rank_argument(1, word)) {
                return Some(Source::Any(self.communicator));
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
    /// As [`Self::book`].
    #[inline(always)]
    unsafe fn handle(&self, word: u8) -> u64 {
        // SAFETY: promised by the caller.
        unsafe { self.facts.listed_handle(self.frame.argument(word), 0, self.frame.is_c()) }
    }

    /// Returns the value of a count argument, at least 1.
    ///
    /// # Safety
    /// As [`Self::book`].
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
    /// As [`Self::book`].
    unsafe fn integer(&self, word: u8) -> c_int {
        // SAFETY: promised by the caller. The argument points to a result of the call; Fortran
        // logicals are integers, and false is 0.
        unsafe { (self.frame.argument(word) as *const c_int).as_ref().copied().unwrap_or(0) }
    }

    /// Returns the index of a completed request in the list of requests, read from entry `at` of
    /// the call's list of indices; `None` if the entry is MPI_UNDEFINED.
    ///
    /// # Safety
    /// As [`Self::book`].
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
