//! perf events of a thread, counted per call path (Fowler; SC10): read in the handler and around
//! wrapped calls.
//!
//! Events of one kind form a group, which one read(2) reads: software events count always, and
//! hardware events may share the counters of a core with other users (multiplexing). Their
//! increments are then scaled by the time that the group was enabled and the time that it counted.

use std::ffi::c_int;

use perf_event_open_sys::bindings as perf;

use crate::observed_process::Observed;
use crate::thread_state::State;
use plimsoll_sys::descriptors::Descriptors;
use plimsoll_sys::own::Known;
use plimsoll_sys::syscalls::syscall;
use plimsoll_wire::increments::{Counts, MAX_EVENTS};
use plimsoll_wire::record::Record;

/// Minimum time between a reading and the next one at the entry of a wrapped call, in stamps: 20
/// us. A reading takes less than 1 us, so that programs with many short calls stay fast. Increments
/// since the last reading are otherwise attributed to the call.
const MIN_ENTRY_STAMPS: u64 = 1_000;

/// An event to be counted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// Name that the user gave it.
    pub name: String,
    /// PERF_TYPE_* of perf_event_open(2).
    pub kind: u32,
    /// `config` of perf_event_open(2).
    pub config: u64,
}

impl Event {
    fn is_software(&self) -> bool {
        self.kind == perf::PERF_TYPE_SOFTWARE
    }

    /// Whether the kernel itself causes the event, so that nothing is counted without kernel mode.
    fn is_in_kernel(&self) -> bool {
        let [switches, migrations] =
            [perf::PERF_COUNT_SW_CONTEXT_SWITCHES, perf::PERF_COUNT_SW_CPU_MIGRATIONS];
        self.is_software() && [u64::from(switches), u64::from(migrations)].contains(&self.config)
    }

    /// Opens the event for the calling thread in the group of `leader`, or as a new group if that
    /// is -1. Hardware events count user code only, which any user may count; software events
    /// include the kernel's part where that is allowed.
    fn open(&self, leader: c_int, descriptors: &Descriptors) -> Result<Member, c_int> {
        let low = match self.open_in(leader, !self.is_software()) {
            Err(libc::EACCES | libc::EPERM) if !self.is_in_kernel() => self.open_in(leader, true),
            opened => opened,
        }?;
        let number = descriptors.adopt(low).ok_or(libc::EMFILE)?;
        let member = Known::new(number).zip(id_of(number));
        let Some((file, id)) = member else {
            descriptors.release(number, true);
            return Err(libc::EBADF);
        };
        Ok(Member { file, id })
    }

    fn open_in(&self, leader: c_int, only_user: bool) -> Result<c_int, c_int> {
        let mut attributes = perf::perf_event_attr {
            type_: self.kind,
            size: size_of::<perf::perf_event_attr>() as u32,
            config: self.config,
            read_format: (perf::PERF_FORMAT_GROUP
                | perf::PERF_FORMAT_ID
                | perf::PERF_FORMAT_TOTAL_TIME_ENABLED
                | perf::PERF_FORMAT_TOTAL_TIME_RUNNING) as u64,
            ..Default::default()
        };
        attributes.set_exclude_kernel(only_user.into());
        attributes.set_exclude_hv(1);
        let flags = perf::PERF_FLAG_FD_CLOEXEC;
        // SAFETY: the attributes outlive the call. The calling thread, on any core.
        let opened = unsafe {
            syscall!(libc::SYS_perf_event_open, &raw mut attributes, 0, -1i32, leader, flags)
        };
        opened.map(|number| number as c_int)
    }
}

/// Returns the kernel's id of an open event; `None` if the descriptor is not an event's.
fn id_of(number: c_int) -> Option<u64> {
    let mut id = 0u64;
    // SAFETY: the kernel writes the id.
    let asked = unsafe { syscall!(libc::SYS_ioctl, number, perf::ID, &raw mut id) };
    asked.is_ok().then_some(id)
}

/// An open event. All events' files have one identity; the id tells them apart.
#[derive(Clone, Copy)]
struct Member {
    file: Known,
    id: u64,
}

impl Member {
    fn close(&self, descriptors: &Descriptors) {
        let number = self.file.number();
        descriptors.release(number, self.file.is_ours() && id_of(number) == Some(self.id));
    }
}

/// Events that one read(2) reads.
#[derive(Clone, Copy)]
struct Group {
    /// Each event with its index in [`Counts::values`]; unused places come last.
    members: [Option<(u8, Member)>; MAX_EVENTS],
    last: Reading,
}

/// What the kernel returns for a group.
#[derive(Clone, Copy)]
struct Reading {
    enabled_ns: u64,
    running_ns: u64,
    values: [u64; MAX_EVENTS],
}

impl Group {
    const EMPTY: Self = Self {
        members: [None; MAX_EVENTS],
        last: Reading { enabled_ns: 0, running_ns: 0, values: [0; MAX_EVENTS] },
    };

    fn members(&self) -> impl Iterator<Item = (u8, Member)> + '_ {
        self.members.iter().map_while(|member| *member)
    }

    fn leader(&self) -> c_int {
        self.members[0].map_or(-1, |(_, member)| member.file.number())
    }

    fn add(&mut self, index: u8, member: Member) {
        if let Some(place) = self.members.iter_mut().find(|place| place.is_none()) {
            *place = Some((index, member));
        }
    }

    /// Reads the group; `None` if the application has closed its descriptor.
    fn read(&self) -> Option<Reading> {
        /// `struct read_format` of perf_event_open(2) with the flags of [`Event::open_in`].
        #[repr(C)]
        #[derive(Default)]
        struct Format {
            count: u64,
            enabled_ns: u64,
            running_ns: u64,
            events: [(u64, u64); MAX_EVENTS],
        }
        const HEAD_BYTES: usize = 3 * size_of::<u64>();
        let (_, leader) = self.members[0]?;
        let count = self.members().count();
        let bytes = HEAD_BYTES + count * size_of::<(u64, u64)>();
        let number = leader.file.get()?;
        let mut format = Format::default();
        // SAFETY: the structure holds as many bytes.
        let read = unsafe { syscall!(libc::SYS_read, number, &raw mut format, bytes) };
        let ids = self.members().map(|(_, member)| member.id);
        if read != Ok(bytes)
            || format.count != count as u64
            || !ids.eq(format.events[..count].iter().map(|(_, id)| *id))
        {
            return None;
        }
        let Format { enabled_ns, running_ns, events, .. } = format;
        Some(Reading { enabled_ns, running_ns, values: events.map(|(value, _)| value) })
    }

    /// Adds the increments since the previous reading to `counts`; false if the group cannot be
    /// read any more.
    fn count(&mut self, counts: &mut Counts) -> bool {
        let Some(now) = self.read() else { return false };
        let last = self.last;
        let enabled_ns = now.enabled_ns.saturating_sub(last.enabled_ns);
        let running_ns = now.running_ns.saturating_sub(last.running_ns);
        if running_ns == 0 && enabled_ns > 0 {
            // Nothing was counted yet: the next reading covers this time as well.
            return true;
        }
        for (place, (index, _)) in self.members().enumerate() {
            let counted = now.values[place].saturating_sub(last.values[place]);
            let sum = &mut counts.values[usize::from(index)];
            *sum = sum.saturating_add(scaled(counted, enabled_ns, running_ns));
        }
        counts.uncounted_ns += enabled_ns.saturating_sub(running_ns);
        self.last = now;
        true
    }
}

/// Returns the increment that a group enabled for `enabled_ns` would have counted, if it counted
/// `counted` in `running_ns` of them (perf_event_open(2), PERF_FORMAT_TOTAL_TIME_RUNNING).
fn scaled(counted: u64, enabled_ns: u64, running_ns: u64) -> u64 {
    if running_ns == 0 || running_ns >= enabled_ns {
        return counted;
    }
    let whole = u128::from(counted) * u128::from(enabled_ns) / u128::from(running_ns);
    u64::try_from(whole).unwrap_or(u64::MAX)
}

/// The events of a thread.
pub struct Counters {
    /// Software events, then all others.
    groups: [Group; 2],
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
        groups: [Group::EMPTY; 2],
        pending: [Counts::NONE; 2],
        read_stamp: 0,
        counts: false,
    };

    /// Opens the events for the calling thread. `refused` receives the kernel's error number for
    /// each event that is not counted, 0 for the others.
    fn open(events: &[Event], descriptors: &Descriptors, refused: &mut [u32; MAX_EVENTS]) -> Self {
        let mut counters = Self::NONE;
        for (index, event) in events.iter().take(MAX_EVENTS).enumerate() {
            let group = &mut counters.groups[usize::from(!event.is_software())];
            match event.open(group.leader(), descriptors) {
                Ok(member) => group.add(index as u8, member),
                Err(error) => refused[index] = error as u32,
            }
        }
        counters.counts = counters.groups.iter().any(|group| group.members[0].is_some());
        counters.skip();
        counters
    }

    /// Closes the events.
    fn close(&mut self, descriptors: &Descriptors) {
        // Members first, since a group ends with its leader.
        for (_, member) in self.groups.iter().flat_map(|group| group.members().skip(1)) {
            member.close(descriptors);
        }
        for (_, leader) in self.groups.iter().filter_map(|group| group.members[0]) {
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
        let mut used = self.groups.iter_mut().filter(|group| group.members[0].is_some());
        self.counts = used.all(|group| group.count(counts));
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
mod tests {
    use super::*;

    const PAGE_FAULTS: Event = Event { name: String::new(), kind: 1, config: 2 };
    const CONTEXT_SWITCHES: Event = Event { name: String::new(), kind: 1, config: 3 };

    /// Touches `pages` new pages.
    fn touch(pages: usize) {
        let bytes = pages * 4096;
        // SAFETY: an anonymous mapping of this function's own, written within its length.
        unsafe {
            let memory = libc::mmap(
                core::ptr::null_mut(),
                bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS,
                -1,
                0,
            );
            assert_ne!(memory, libc::MAP_FAILED);
            libc::madvise(memory, bytes, libc::MADV_NOHUGEPAGE);
            for page in 0..pages {
                memory.cast::<u8>().add(page * 4096).write_volatile(1);
            }
            libc::munmap(memory, bytes);
        }
    }

    #[test]
    fn faults_and_switches_are_those_of_the_thread() {
        let descriptors = Descriptors::new();
        let mut refused = [0; MAX_EVENTS];
        let events = [CONTEXT_SWITCHES, PAGE_FAULTS];
        let mut counters = Counters::open(&events, &descriptors, &mut refused);
        if refused[1] != 0 {
            println!("SKIPPED: perf events are refused here: {}", refused[1]);
            return;
        }
        touch(1000);
        assert!(counters.note(1, false));
        for _ in 0..20 {
            std::thread::sleep(std::time::Duration::from_micros(100));
        }
        assert!(counters.note(2, true));
        let [before, inside] = counters.pending.map(|counts| counts.values);
        assert!((1000..1010).contains(&before[1]), "{before:?}");
        assert!(inside[1] < 10, "{inside:?}");
        if refused[0] == 0 {
            assert!((20..60).contains(&inside[0]), "{inside:?}");
        }
        counters.skip();
        assert!(counters.pending.iter().all(Counts::is_none));
        counters.close(&descriptors);
        assert!(!counters.counts());
    }

    #[test]
    fn a_file_of_the_application_under_the_number_is_left_alone() {
        let descriptors = Descriptors::new();
        let mut refused = [0; MAX_EVENTS];
        let mut counters = Counters::open(&[PAGE_FAULTS], &descriptors, &mut refused);
        if refused[0] != 0 {
            println!("SKIPPED: perf events are refused here: {}", refused[0]);
            return;
        }
        let number = counters.groups[0].leader();
        let mut ends = [0; 2];
        // SAFETY: the array holds two descriptors; the read end takes the event's number.
        unsafe {
            assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
            assert_eq!(libc::write(ends[1], [7u8; 64].as_ptr().cast(), 64), 64);
            assert_eq!(libc::dup2(ends[0], number), number);
        }
        assert!(!counters.note(1, false), "a pipe is no event");
        // An event of the application under the number is not ours either.
        let other = PAGE_FAULTS.open_in(-1, true).expect("events are allowed");
        // SAFETY: both descriptors are open.
        assert_eq!(unsafe { libc::dup2(other, number) }, number);
        assert!(counters.groups[0].read().is_none());
        counters.close(&descriptors);
        let mut bytes = [0u8; 64];
        // SAFETY: the buffer holds 64 bytes; closes what this function has opened.
        unsafe {
            assert_eq!(libc::read(ends[0], bytes.as_mut_ptr().cast(), 64), 64, "nothing was read");
            assert_eq!(libc::close(number), 0, "it was not ours to close");
            for descriptor in [ends[0], ends[1], other] {
                libc::close(descriptor);
            }
        }
    }

    #[test]
    fn increments_of_a_shared_counter_are_scaled() {
        assert_eq!(scaled(100, 1_000, 1_000), 100);
        assert_eq!(scaled(100, 1_000, 250), 400);
        assert_eq!(scaled(100, 0, 0), 100);
        assert_eq!(scaled(u64::MAX, u64::MAX, 1), u64::MAX);
    }
}
