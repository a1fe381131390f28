//! One perf event of a thread: opened, mapped, closed.

use std::ffi::c_int;

use perf_event_open_sys::bindings as perf;

use super::event_page::EventPage;
use plimsoll_sys::descriptors::Descriptors;
use plimsoll_sys::own::Known;
use plimsoll_sys::syscalls::syscall;

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
    /// Returns whether the kernel counts the event without a counter of the processor.
    pub(super) fn is_software(&self) -> bool {
        self.kind == perf::PERF_TYPE_SOFTWARE
    }

    /// Whether the kernel itself causes the event, so that nothing is counted without kernel mode.
    fn is_in_kernel(&self) -> bool {
        let [switches, migrations] =
            [perf::PERF_COUNT_SW_CONTEXT_SWITCHES, perf::PERF_COUNT_SW_CPU_MIGRATIONS];
        self.is_software() && [u64::from(switches), u64::from(migrations)].contains(&self.config)
    }

    /// Opens the event for the calling thread in the group of `leader`, or as a new group if that
    /// is -1. Hardware events count user code only, which any user may count, and are mapped;
    /// software events include the kernel's part where that is allowed.
    pub(super) fn open(&self, leader: c_int, descriptors: &Descriptors) -> Result<Member, c_int> {
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
        let page = if self.is_software() { None } else { EventPage::map(number) };
        Ok(Member { file, id, page })
    }

    /// Opens the event and returns its descriptor, or the kernel's error number.
    pub(super) fn open_in(&self, leader: c_int, only_user: bool) -> Result<c_int, c_int> {
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

/// An open event of a thread.
#[derive(Clone, Copy)]
pub(super) struct Member {
    /// Descriptor of the event.
    pub(super) file: Known,
    /// The kernel's id. All events' files have one identity; the id distinguishes them.
    pub(super) id: u64,
    /// Mapped page of a hardware event; `None` if the kernel refuses the mapping.
    pub(super) page: Option<EventPage>,
}

impl Member {
    /// Unmaps the page and closes the descriptor if it is still the event's.
    pub(super) fn close(&self, descriptors: &Descriptors) {
        if let Some(page) = self.page {
            page.unmap();
        }
        let number = self.file.number();
        descriptors.release(number, self.file.is_ours() && id_of(number) == Some(self.id));
    }
}
