//! perf events that share counters: read together, by rdpmc or one read(2), and scaled by the time
//! that they were counted.

use std::ffi::c_int;

use super::counted_event::Member;
use plimsoll_sys::syscalls::syscall;
use plimsoll_wire::increments::MAX_EVENTS;

/// Events that the kernel counts together.
#[derive(Clone, Copy)]
pub(super) struct Group {
    /// Events with their index in [`Counts::values`](plimsoll_wire::increments::Counts); unused
    /// places come last.
    members: [Option<(u8, Member)>; MAX_EVENTS],
    last: Reading,
}

/// Values that the kernel returns for a group.
#[derive(Clone, Copy)]
pub(super) struct Reading {
    enabled_ns: u64,
    running_ns: u64,
    values: [u64; MAX_EVENTS],
}

impl Group {
    /// A group without events.
    pub(super) const EMPTY: Self = Self {
        members: [None; MAX_EVENTS],
        last: Reading { enabled_ns: 0, running_ns: 0, values: [0; MAX_EVENTS] },
    };

    /// Returns the events, the leader first, each with its index in
    /// [`Counts::values`](plimsoll_wire::increments::Counts).
    pub(super) fn members(&self) -> impl Iterator<Item = (u8, Member)> + '_ {
        self.members.iter().map_while(|member| *member)
    }

    /// Returns the descriptor of the first event, which the others join; -1 without events.
    pub(super) fn leader(&self) -> c_int {
        self.members[0].map_or(-1, |(_, member)| member.file.number())
    }

    /// Returns whether the group has no events.
    pub(super) fn is_empty(&self) -> bool {
        self.members[0].is_none()
    }

    /// Adds an event.
    pub(super) fn add(&mut self, index: u8, member: Member) {
        if let Some(place) = self.members.iter_mut().find(|place| place.is_none()) {
            *place = Some((index, member));
        }
    }

    /// Reads the group; `None` if that is no longer possible.
    #[inline]
    pub(super) fn read(&self) -> Option<Reading> {
        self.read_pages().or_else(|| self.read_file())
    }

    /// Reads the group by rdpmc; `None` unless all events have counters that user code may read.
    /// The times are the leader's, as those of read(2): the events of a group have their counters
    /// at the same time.
    fn read_pages(&self) -> Option<Reading> {
        let (_, leader) = self.members[0]?;
        let first = leader.page?.read()?;
        let mut values = [0; MAX_EVENTS];
        values[0] = first.value;
        for (place, (_, member)) in values.iter_mut().zip(self.members()).skip(1) {
            *place = member.page?.read()?.value;
        }
        Some(Reading { enabled_ns: first.enabled_ns, running_ns: first.running_ns, values })
    }

    /// Reads the group by read(2); `None` if the application has closed its descriptor.
    fn read_file(&self) -> Option<Reading> {
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

    /// Adds the increments since the previous reading to `sums`. Returns the time since then in
    /// which the group had no counters, in nanoseconds; `None` if the group is unreadable.
    pub(super) fn count(&mut self, sums: &mut [u64; MAX_EVENTS]) -> Option<u64> {
        let now = self.read()?;
        let last = self.last;
        let enabled_ns = now.enabled_ns.saturating_sub(last.enabled_ns);
        let running_ns = now.running_ns.saturating_sub(last.running_ns);
        if running_ns == 0 && enabled_ns > 0 {
            // Nothing was counted yet: the next reading covers this time as well.
            return Some(0);
        }
        for (place, (index, _)) in self.members().enumerate() {
            let counted = now.values[place].saturating_sub(last.values[place]);
            let sum = &mut sums[usize::from(index)];
            *sum = sum.saturating_add(scaled(counted, enabled_ns, running_ns));
        }
        self.last = now;
        Some(enabled_ns.saturating_sub(running_ns))
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn increments_of_a_shared_counter_are_scaled() {
        assert_eq!(scaled(100, 1_000, 1_000), 100);
        assert_eq!(scaled(100, 1_000, 250), 400);
        assert_eq!(scaled(100, 0, 0), 100);
        assert_eq!(scaled(u64::MAX, u64::MAX, 1), u64::MAX);
    }
}
