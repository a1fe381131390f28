//! perf events of a thread, counted per call path (Fowler; SC10): read in the handler and around
//! wrapped calls.
//!
//! Software events form one group. Hardware events form another, or several if the processor has
//! too few counters for all of them. The kernel lets groups take turns if they, or other users,
//! need the same counters (multiplexing). Their increments are then scaled by the time that the
//! group was enabled and the time that it counted. Hardware events are read by rdpmc where the
//! kernel allows that, software events by one read(2).

mod counted_event;
mod event_group;
mod event_page;

use std::ffi::c_int;

use crate::observed_process::Observed;
use crate::thread_state::State;
use plimsoll_sys::descriptors::Descriptors;
use plimsoll_wire::increments::{Counts, MAX_EVENTS};
use plimsoll_wire::record::Record;

pub use counted_event::Event;
use counted_event::Member;
use event_group::Group;

/// Minimum time between a reading and the next one at the entry of a wrapped call, in stamps: 20
/// us. A reading takes less than 1 us, so that programs with many short calls stay fast. Increments
/// since the last reading are otherwise attributed to the call.
const MIN_ENTRY_STAMPS: u64 = 1_000;

/// Maximum number of groups of a thread: one of software events, the others of hardware events.
const MAX_GROUPS: usize = 4;

/// The events of a thread.
pub struct Counters {
    /// Software events, then hardware events in as few groups as the processor needs.
    groups: [Group; MAX_GROUPS],
    /// Increments that are in no record yet: before the open wrapped call, or without one; and in
    /// it.
    pending: [Counts; 2],
    /// Stamp of the last reading.
    read_stamp: u64,
    counts: bool,
}

impl Counters {
    /// Counts nothing.
    pub const NONE: Self = Self {
        groups: [Group::EMPTY; MAX_GROUPS],
        pending: [Counts::NONE; 2],
        read_stamp: 0,
        counts: false,
    };

    /// Opens the events for the calling thread. `refused` receives the kernel's error number for
    /// each event that is not counted, 0 for the others.
    fn open(events: &[Event], descriptors: &Descriptors, refused: &mut [u32; MAX_EVENTS]) -> Self {
        let mut counters = Self::NONE;
        for (index, event) in events.iter().take(MAX_EVENTS).enumerate() {
            let (software, hardware) = counters.groups.split_at_mut(1);
            let groups = if event.is_software() { software } else { hardware };
            let opened =
                add_to_group(groups, index as u8, |leader| event.open(leader, descriptors));
            refused[index] = opened.map_or_else(|error| error as u32, |()| 0);
        }
        counters.counts = counters.groups.iter().any(|group| !group.is_empty());
        counters.skip();
        counters
    }

    /// Closes the events.
    fn close(&mut self, descriptors: &Descriptors) {
        // Members first, since a group ends with its leader.
        for (_, member) in self.groups.iter().flat_map(|group| group.members().skip(1)) {
            member.close(descriptors);
        }
        for (_, leader) in self.groups.iter().filter_map(|group| group.members().next()) {
            leader.close(descriptors);
        }
        *self = Self::NONE;
    }

    /// Returns whether events are counted.
    #[inline(always)]
    pub fn counts(&self) -> bool {
        self.counts
    }

    /// Returns whether a reading is due at the entry of a wrapped call at this stamp.
    #[inline(always)]
    pub fn is_due(&self, stamp: u64) -> bool {
        self.counts && stamp.saturating_sub(self.read_stamp) > MIN_ENTRY_STAMPS
    }

    /// Reads the events and notes their increments: in the open wrapped call, or outside of it.
    /// Returns false if they can no longer be read. Async-signal-safe.
    fn note(&mut self, stamp: u64, in_call: bool) -> bool {
        self.read_stamp = stamp;
        let counts = &mut self.pending[usize::from(in_call)];
        let mut used = self.groups.iter_mut().filter(|group| !group.is_empty());
        let longest_ns = used.try_fold(0, |longest_ns: u64, group| {
            Some(longest_ns.max(group.count(&mut counts.values)?))
        });
        counts.uncounted_ns += longest_ns.unwrap_or(0);
        self.counts = longest_ns.is_some();
        self.counts
    }

    /// Reads the events and discards all increments up to now.
    fn skip(&mut self) {
        if self.counts {
            self.note(self.read_stamp, false);
        }
        self.pending = [Counts::NONE; 2];
    }
}

/// Adds the event with this index to the first group that the kernel accepts it in: the processor
/// cannot count too many events at the same time (EINVAL, ENOSPC). `open` opens the event in the
/// group of a descriptor, or as a new group for -1. Returns the kernel's error number otherwise.
fn add_to_group(
    groups: &mut [Group],
    index: u8,
    mut open: impl FnMut(c_int) -> Result<Member, c_int>,
) -> Result<(), c_int> {
    let mut refusal = libc::EINVAL;
    for group in groups {
        match open(group.leader()) {
            Ok(member) => {
                group.add(index, member);
                return Ok(());
            }
            Err(error @ (libc::EINVAL | libc::ENOSPC)) if !group.is_empty() => refusal = error,
            Err(error) => return Err(error),
        }
    }
    Err(refusal)
}

impl Observed {
    /// Opens the events of the calling thread; `state` must be that thread's. The first thread
    /// decides which events the process counts; a later thread counts all of these or none.
    pub(crate) fn count_events(&self, state: &mut State) {
        if self.events.is_empty() {
            return;
        }
        let header = self.header();
        let mut refused = [0; MAX_EVENTS];
        let mut counters = Counters::open(&self.events, &self.descriptors, &mut refused);
        if header.events[0].get().is_none() {
            for (place, (event, refused)) in
                header.events.iter().zip(self.events.iter().zip(refused))
            {
                place.set(&event.name, refused);
            }
        }
        let agreed = header.events.iter().map(|event| event.get().map_or(0, |(_, error)| error));
        if !agreed.map(|error| error != 0).eq(refused.map(|error| error != 0)) {
            counters.close(&self.descriptors);
            self.note_uncounted();
        }
        state.counters = counters;
    }

    #[cold]
    fn note_uncounted(&self) {
        self.header().uncounted_threads.fetch_add(1, core::sync::atomic::Ordering::Relaxed);
    }
}

/// Reads the thread's events at the entry of a wrapped call.
#[cold]
#[inline(never)]
pub fn before_call(observed: &Observed, state: &mut State, stamp: u64) {
    if !state.counters.note(stamp, false) {
        observed.note_uncounted();
    }
}

/// Reads the thread's events and writes their increments, for the interval that the next timed
/// record closes. `in_call`: a wrapped call has been open since the previous reading.
pub fn write(observed: &Observed, state: &mut State, stamp: u64, in_call: bool) {
    if !state.counters.counts() {
        return;
    }
    if !state.counters.note(stamp, in_call) {
        observed.note_uncounted();
    }
    for in_call in [false, true] {
        let counts = state.counters.pending[usize::from(in_call)];
        if counts.is_none() {
            continue;
        }
        // What does not fit stays for the next record, so that totals are exact.
        let fitted = state.stream.write(&Record::Counts { in_call, counts });
        if fitted {
            state.counters.pending[usize::from(in_call)] = Counts::NONE;
        }
        state.written(fitted);
    }
}

/// Discards what the thread's events have counted: it belongs to no run.
pub fn discard(state: &mut State) {
    state.counters.skip();
}

/// Stops counting the thread's events, at its end.
pub fn close(state: &mut State, descriptors: &Descriptors) {
    state.counters.close(descriptors);
}

#[cfg(test)]
mod tests;
