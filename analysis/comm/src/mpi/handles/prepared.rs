//! Persistent requests of collectives.

use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll_sys::lock::Lock;

use super::pending::Layout;
use crate::mpi::Handle;

/// Maximum number of persistent requests that are known at the same time. Further ones end no
/// phase.
const MAX_PREPARED: usize = 256;

/// Request of a collective, until it is freed.
#[derive(Clone, Copy)]
struct Prepared {
    request: Handle,
    layout: Layout,
    members: u32,
}

/// Persistent requests of collectives, with the members of their communicators.
pub(super) struct PreparedCollectives {
    known: Lock<Vec<Prepared>>,
    /// Whether `known` is not empty.
    are_some: AtomicBool,
}

impl PreparedCollectives {
    pub(super) const fn new() -> Self {
        Self { known: Lock::new(Vec::new()), are_some: AtomicBool::new(false) }
    }

    #[inline]
    pub(super) fn are_some(&self) -> bool {
        self.are_some.load(Ordering::Relaxed)
    }

    /// Adds the request at `address`, or replaces one with the same handle.
    ///
    /// # Safety
    /// A request must be stored at `address`.
    pub(super) unsafe fn add(&self, address: usize, layout: Layout, members: u32) {
        // SAFETY: promised by the caller.
        let request = unsafe { layout.read(address) };
        let mut known = self.known.lock();
        known.retain(|it| (it.request, it.layout) != (request, layout));
        if known.len() < MAX_PREPARED {
            known.push(Prepared { request, layout, members });
        }
        self.are_some.store(true, Ordering::Relaxed);
    }

    /// Returns the members of the collective with its request at `address`; `None` for another
    /// request.
    ///
    /// # Safety
    /// As [`Self::add`].
    pub(super) unsafe fn members(&self, address: usize, layout: Layout) -> Option<u32> {
        // SAFETY: promised by the caller.
        let request = unsafe { layout.read(address) };
        let known = self.known.lock();
        let found = known.iter().find(|it| (it.request, it.layout) == (request, layout))?;
        Some(found.members)
    }

    /// Forgets the request at `address`.
    ///
    /// # Safety
    /// As [`Self::add`].
    pub(super) unsafe fn remove(&self, address: usize, layout: Layout) {
        // SAFETY: promised by the caller.
        let request = unsafe { layout.read(address) };
        let mut known = self.known.lock();
        known.retain(|it| (it.request, it.layout) != (request, layout));
        self.are_some.store(!known.is_empty(), Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freed_request_is_forgotten() {
        let prepared = PreparedCollectives::new();
        let requests: [Handle; 2] = [70, 80];
        let [one, other] = requests.each_ref().map(|request| &raw const *request as usize);
        // SAFETY: the requests stand there.
        unsafe {
            prepared.add(one, Layout::Word, 1);
            assert_eq!(prepared.members(one, Layout::Word), Some(1));
            assert_eq!(prepared.members(other, Layout::Word), None);
            prepared.add(one, Layout::Word, 2);
            assert_eq!(prepared.members(one, Layout::Word), Some(2));
            prepared.remove(other, Layout::Word);
            assert!(prepared.are_some());
            prepared.remove(one, Layout::Word);
            assert_eq!(prepared.members(one, Layout::Word), None);
        }
        assert!(!prepared.are_some());
    }
}
