//! Nonblocking and persistent collectives in progress: the completion of one proves that all its
//! ranks have started it.

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};

use plimsoll_sys::lock::Lock;

use crate::mpi::{Abi, Handle};

/// Maximum number of collectives followed at the same time. Beyond that the oldest are forgotten,
/// and their completion is not counted.
const MAX_PENDING: usize = 32;

/// Representation of a handle in the application's memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Layout {
    /// Integer, as in Fortran and in MPICH.
    Integer,
    /// Machine word.
    Word,
}

impl Layout {
    pub(super) fn new(abi: Abi, is_c: bool) -> Self {
        match abi {
            Abi::Mpich => Self::Integer,
            _ if is_c => Self::Word,
            _ => Self::Integer,
        }
    }

    pub(super) fn bytes(self) -> usize {
        match self {
            Self::Integer => size_of::<c_int>(),
            Self::Word => size_of::<Handle>(),
        }
    }

    /// # Safety
    /// A handle must be stored at `address`.
    pub(super) unsafe fn read(self, address: usize) -> Handle {
        // SAFETY: promised by the caller.
        unsafe {
            match self {
                Self::Integer => (address as *const u32).read_unaligned() as Handle,
                Self::Word => (address as *const Handle).read_unaligned(),
            }
        }
    }
}

/// A started collective.
#[derive(Clone, Copy)]
struct Started<T> {
    request: Handle,
    layout: Layout,
    what: T,
    /// Whether the request is persistent: MPI does not change its handle when it is complete.
    is_persistent: bool,
    /// Place of its request among those that a running call may complete; `None` if it is not among
    /// them.
    place: Option<Place>,
}

/// Place of a request among those that a running call may complete.
#[derive(Clone, Copy)]
struct Place {
    index: usize,
    address: usize,
}

/// Started collectives of one thread with the caller's value for each, oldest first.
pub(super) struct Pending<T> {
    started: Lock<Vec<Started<T>>>,
    /// Whether `started` is not empty.
    are_some: AtomicBool,
}

impl<T: Copy> Pending<T> {
    pub(super) const fn new() -> Self {
        Self { started: Lock::new(Vec::new()), are_some: AtomicBool::new(false) }
    }

    pub(super) fn are_some(&self) -> bool {
        self.are_some.load(Ordering::Relaxed)
    }

    /// Records a started collective with its request at `address`.
    ///
    /// # Safety
    /// A request must be stored at `address`.
    pub(super) unsafe fn start(
        &self,
        address: usize,
        layout: Layout,
        what: T,
        is_persistent: bool,
    ) {
        // SAFETY: promised by the caller.
        let request = unsafe { layout.read(address) };
        let mut started = self.started.lock();
        // If MPI reuses a handle, its earlier collective was completed in a call that was not seen.
        started.retain(|known| (known.request, known.layout) != (request, layout));
        if started.len() == MAX_PENDING {
            started.remove(0);
        }
        started.push(Started { request, layout, what, is_persistent, place: None });
        self.are_some.store(true, Ordering::Relaxed);
    }

    /// Records the begin of a call that may complete `count` requests starting at `first`.
    ///
    /// # Safety
    /// The requests must stay there until [`Self::completed`] is called.
    pub(super) unsafe fn begin(&self, first: usize, count: usize, layout: Layout) {
        let mut started = self.started.lock();
        started.iter_mut().for_each(|known| known.place = None);
        for index in 0..count {
            let address = first + index * layout.bytes();
            // SAFETY: promised by the caller.
            let request = unsafe { layout.read(address) };
            for known in started.iter_mut() {
                if (known.request, known.layout) == (request, layout) {
                    known.place = Some(Place { index, address });
                }
            }
        }
    }

    /// Returns the values of the collectives that the call has completed: those with a changed
    /// request, or with a persistent request that `is_reported` by the call as complete, given its
    /// index in the list. `succeeded` is the call's outcome.
    ///
    /// # Safety
    /// As for [`Self::begin`] of that call.
    pub(super) unsafe fn completed(
        &self,
        succeeded: bool,
        is_reported: impl Fn(usize) -> bool,
    ) -> Vec<T> {
        let mut completed = Vec::new();
        let mut started = self.started.lock();
        started.retain_mut(|known| {
            let place = known.place.take().filter(|_| succeeded);
            let is_done = place.is_some_and(|place| match known.is_persistent {
                true => is_reported(place.index),
                // SAFETY: promised by the caller.
                false => unsafe { known.layout.read(place.address) != known.request },
            });
            if is_done {
                completed.push(known.what);
            }
            !is_done
        });
        self.are_some.store(!started.is_empty(), Ordering::Relaxed);
        completed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NULL: Handle = 0;

    /// Returns the values of the collectives completed by a call that sets some requests to null.
    fn complete(pending: &Pending<u8>, requests: &mut [Handle], done: &[usize]) -> Vec<u8> {
        // SAFETY: the requests stand there.
        unsafe {
            pending.begin(requests.as_ptr() as usize, requests.len(), Layout::Word);
            done.iter().for_each(|at| requests[*at] = NULL);
            pending.completed(true, |_| false)
        }
    }

    fn start(pending: &Pending<u8>, request: Handle, what: u8) {
        // SAFETY: it stands there.
        unsafe { pending.start(&raw const request as usize, Layout::Word, what, false) };
    }

    #[test]
    fn a_collective_is_complete_when_its_request_is_another() {
        let pending = Pending::new();
        assert!(!pending.are_some());
        start(&pending, 70, 7);
        start(&pending, 80, 8);
        // Other requests lie between them, at any position.
        let mut requests = [5, 80, 6, 70];
        assert!(complete(&pending, &mut requests, &[]).is_empty());
        assert_eq!(complete(&pending, &mut requests, &[0, 1]), [8]);
        assert!(pending.are_some());
        assert_eq!(complete(&pending, &mut [70], &[0]), [7]);
        assert!(!pending.are_some());
    }

    #[test]
    fn unseen_completions_are_forgotten() {
        let pending = Pending::new();
        start(&pending, 70, 7);
        // A call that fails completes nothing.
        let requests = [70_usize];
        // SAFETY: the requests stand there.
        let failed = unsafe {
            pending.begin(requests.as_ptr() as usize, 1, Layout::Word);
            pending.completed(false, |_| true)
        };
        assert!(failed.is_empty());
        start(&pending, 70, 9);
        assert_eq!(complete(&pending, &mut [70], &[0]), [9]);
        (0..=MAX_PENDING as u8).for_each(|what| start(&pending, 100 + Handle::from(what), what));
        let mut all: Vec<Handle> = (100..=100 + MAX_PENDING).collect();
        let done: Vec<usize> = (0..all.len()).collect();
        let completed = complete(&pending, &mut all, &done);
        assert!(completed.iter().copied().eq(1..=MAX_PENDING as u8));
    }

    #[test]
    fn a_persistent_collective_is_complete_when_the_call_says_so() {
        let pending = Pending::new();
        let requests: [Handle; 2] = [70, 80];
        let first = requests.as_ptr() as usize;
        // SAFETY: the requests stand there.
        unsafe {
            for (at, what) in [(0, 7), (1, 8)] {
                pending.start(first + at * Layout::Word.bytes(), Layout::Word, what, true);
            }
            pending.begin(first, 2, Layout::Word);
            assert_eq!(pending.completed(true, |index| index == 1), [8]);
            // It is not among the requests of this call.
            pending.begin(first, 0, Layout::Word);
            assert!(pending.completed(true, |_| true).is_empty());
            pending.begin(first, 2, Layout::Word);
            assert_eq!(pending.completed(true, |_| true), [7]);
        }
        assert!(!pending.are_some());
    }
}
