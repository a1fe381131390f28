//! Numbers of messages in their channels, and the records of exemplary messages.
//!
//! A message takes its number when its call or request starts, which is the order in which MPI
//! matches messages. A received message with MPI_ANY_SOURCE or MPI_ANY_TAG takes its number when it
//! has arrived, since only the status names its channel.

use std::ffi::c_int;

use plimsoll_agent::channels::{Channel, Direction};
use plimsoll_agent::regions::{Exemplar, write_message};
use plimsoll_agent::started_requests::{NumberedBy, Numbering, Started};
use plimsoll_agent::thread_state::State;
use plimsoll_calls::messages::tag_after;
use plimsoll_wire::record::UNKNOWN_PARTNER;

use super::Exchange;

impl Exchange<'_> {
    /// Numbers a message to `to` that the call has sent.
    ///
    /// # Safety
    /// As [`Exchange::book`]; `word` is the argument with the destination.
    #[inline(always)]
    pub(super) unsafe fn number_sent(&self, state: &mut State, to: u32, word: u8) {
        // SAFETY: promised by the caller.
        let tag = unsafe { self.tag(0, word) };
        let channel = self.channel(Direction::Sent, to, tag);
        if let Some(number) = self.next(state, channel) {
            self.write(state, channel, number, self.entered());
        }
    }

    /// Numbers a message from `from` that the call has received.
    ///
    /// # Safety
    /// As [`Exchange::book`]; `words` are the arguments with the source and the status.
    #[inline(always)]
    pub(super) unsafe fn number_received(&self, state: &mut State, from: u32, words: [u8; 2]) {
        // SAFETY: promised by the caller.
        let numbered = unsafe { self.next_received(state, from, words) };
        if let Some((channel, number)) = numbered {
            self.write(state, channel, number, self.entered());
        }
    }

    /// Takes the number of a message that the call has received or matched. Returns the number and
    /// the channel if the message is exemplary.
    ///
    /// # Safety
    /// As [`Self::number_received`].
    #[inline(always)]
    pub(super) unsafe fn next_received(
        &self,
        state: &mut State,
        from: u32,
        [source, status]: [u8; 2],
    ) -> Option<(Channel, u32)> {
        // SAFETY: promised by the caller.
        let mut tag = unsafe { self.tag(1, source) };
        if tag < 0 {
            // SAFETY: as above.
            tag = unsafe { self.found_tag(self.frame.argument(status), 0) };
        }
        let channel = self.channel(Direction::Received, from, tag);
        self.next(state, channel).map(|number| (channel, number))
    }

    /// Numbers the message of a request that the call has started.
    ///
    /// # Safety
    /// As [`Exchange::book`].
    #[inline(always)]
    pub(super) unsafe fn number_started(&self, state: &mut State, started: &mut Started) {
        started.posted = self.entered();
        if let (Some(_), Some(to)) = (started.from, started.to) {
            // SAFETY: promised by the caller.
            unsafe { self.skip_sent_part(state, to) };
        }
        started.numbering = match started.numbered_by() {
            NumberedBy::Start(channel) => {
                self.next(state, channel).map_or(Numbering::None, Numbering::Number)
            }
            NumberedBy::Arrival => Numbering::AtCompletion,
            NumberedBy::Nothing => Numbering::None,
        };
    }

    /// Numbers the sent message of a request that also receives. That message is not recorded.
    ///
    /// # Safety
    /// As [`Exchange::book`].
    #[cold]
    unsafe fn skip_sent_part(&self, state: &mut State, to: u32) {
        let Some(word) = self.messages.ranks()[0] else { return };
        // SAFETY: promised by the caller.
        let tag = unsafe { self.tag(0, word) };
        self.next(state, self.channel(Direction::Sent, to, tag));
    }

    /// Writes the message of a completed request if the message is exemplary. `partner` is the
    /// other end, and the status stands at index `at` of `statuses`.
    ///
    /// # Safety
    /// As [`Exchange::book`].
    #[inline(always)]
    pub(super) unsafe fn number_completed(
        &self,
        state: &mut State,
        (started, partner): (&Started, u32),
        statuses: usize,
        at: usize,
    ) {
        let direction = match started.from {
            Some(_) => Direction::Received,
            None => Direction::Sent,
        };
        let mut channel = Channel { partner, ..started_channel(started, direction) };
        let number = match started.numbering {
            Numbering::None => return,
            Numbering::Number(number) => Some(number),
            Numbering::AtCompletion => {
                if channel.tag < 0 {
                    // SAFETY: promised by the caller.
                    channel.tag = unsafe { self.found_tag(statuses, at) };
                }
                self.next(state, channel)
            }
        };
        // A call that also completes a partitioned message may have waited for that one.
        if let Some(number) = number.filter(|_| !state.requests.lists_partitioned()) {
            self.write(state, channel, number, started.posted);
        }
    }

    /// Writes the message of a request that has lost its place in the table if the message is
    /// exemplary: a send that was complete at once and shares its handle with all such sends.
    pub(super) fn number_replaced(&self, state: &mut State, started: &Started) {
        if !started.is_active {
            return;
        }
        match (started.from, started.to, started.numbering) {
            (None, Some(partner), Numbering::Number(number)) => {
                let channel = Channel { partner, ..started_channel(started, Direction::Sent) };
                self.write_call(state, channel, number, [started.posted; 3]);
            }
            (Some(_), ..) => self.lose_number(state, started),
            _ => {}
        }
    }

    /// Takes note that the message of a request may never arrive: the request was cancelled, or its
    /// completion will not be seen.
    #[cold]
    pub(super) fn lose_number(&self, state: &mut State, started: &Started) {
        match started.numbered_by() {
            NumberedBy::Start(channel) => state.channels.break_off(channel),
            NumberedBy::Arrival => state.channels.miss_receive(),
            NumberedBy::Nothing => {}
        }
    }

    #[inline(always)]
    fn channel(&self, direction: Direction, partner: u32, tag: c_int) -> Channel {
        Channel { direction, partner, communicator: self.communicator, tag }
    }

    /// Takes the next number of a channel. Its tag is negative if unknown.
    #[inline(always)]
    fn next(&self, state: &mut State, channel: Channel) -> Option<u32> {
        if channel.partner == UNKNOWN_PARTNER || channel.tag < 0 {
            if channel.direction == Direction::Received {
                state.channels.miss_receive();
            }
            return None;
        }
        state.channels.next(channel)
    }

    #[cold]
    #[inline(never)]
    fn write(&self, state: &mut State, channel: Channel, number: u32, posted: u64) {
        self.write_call(state, channel, number, [posted, self.entered(), self.left]);
    }

    /// Writes an exemplary message: when it was posted, and when the call that completed it began
    /// and returned.
    fn write_call(
        &self,
        state: &mut State,
        channel: Channel,
        number: u32,
        [posted, entered, left]: [u64; 3],
    ) {
        let Some(group) = self.facts.group_name(channel.communicator) else { return };
        let exemplar = Exemplar {
            direction: channel.direction,
            partner: channel.partner,
            group,
            tag: channel.tag,
            number,
            posted,
            entered,
            left,
        };
        write_message(state, self.slot, &exemplar);
    }

    /// Returns the time stamp counter at the begin of the call.
    #[inline(always)]
    fn entered(&self) -> u64 {
        self.left.saturating_sub(self.ticks)
    }

    /// Returns the tag that belongs to the `which`-th rank among the arguments; `word` is the
    /// argument with the rank. Negative for MPI_ANY_TAG.
    ///
    /// # Safety
    /// As [`Exchange::book`].
    #[inline(always)]
    pub(super) unsafe fn tag(&self, which: usize, word: u8) -> c_int {
        match self.frame.is_c() {
            // SAFETY: promised by the caller.
            true => unsafe { self.frame.argument(tag_after(word)) as c_int },
            false => self.frame.noted.tags[which],
        }
    }

    /// Returns the tag in entry `at` of `statuses`; -1 if the application ignores the status.
    ///
    /// # Safety
    /// As [`plimsoll_comm::mpi::HandleFacts::source`].
    unsafe fn found_tag(&self, statuses: usize, at: usize) -> c_int {
        // SAFETY: promised by the caller.
        let found = unsafe { self.facts.source_and_tag(statuses, at, self.frame.is_c()) };
        found.map_or(-1, |(_, tag)| tag)
    }
}

/// Returns the channel of a request, without the partner.
#[inline]
fn started_channel(started: &Started, direction: Direction) -> Channel {
    let Started { communicator, tag, .. } = *started;
    Channel { direction, partner: UNKNOWN_PARTNER, communicator, tag }
}
