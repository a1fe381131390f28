//! Synchronisations of ranks: calls on communicators, windows and files, and nonblocking and
//! persistent collectives.

use std::ffi::c_int;
use std::sync::atomic::Ordering;

use plimsoll_wire::sync_id::SyncScope;

use super::known_subgroups::{ALL, FIRST_SUBGROUP, NOBODY};
use super::live_objects::{ObjectHandle, ObjectKind};
use super::pending::Layout;
use super::{HandleFacts, Named};

/// Members of an object that a call is about to free.
#[derive(Clone, Copy, Debug)]
pub struct Members(u32);

impl Members {
    /// No ranks that are followed.
    pub const NONE: Self = Self(NOBODY);
}

/// Location of the requests that a call starts or may complete.
#[derive(Clone, Copy, Debug)]
pub struct RequestList {
    /// Address of the first request.
    pub first: usize,
    /// Number of requests.
    pub count: usize,
    /// Whether the requests are C handles, not Fortran ones.
    pub is_c: bool,
}

impl HandleFacts {
    /// Returns which ranks a call on a communicator has synchronised; `None` if the communicator
    /// has no other ranks or its members are unknown. The communicator must be valid. Must be
    /// called exactly once per such call, because each call counts as a synchronisation.
    pub fn synchronised(&self, communicator: Named) -> Option<SyncScope> {
        self.count(self.members(communicator))
    }

    /// Returns whether a call on a communicator, which must be valid, brings ranks together.
    pub fn has_others(&self, communicator: Named) -> bool {
        self.members(communicator) != NOBODY
    }

    /// Returns whether a communicator, which must be valid, has all ranks.
    pub fn has_all(&self, communicator: Named) -> bool {
        self.members(communicator) == ALL
    }

    /// Returns whether there were more subgroups than are followed.
    pub fn has_unfollowed_subgroups(&self) -> bool {
        self.subgroups.are_more.load(Ordering::Relaxed)
    }

    /// Records that data was gathered at one rank of a communicator, which must be valid
    /// (MPI_Reduce).
    pub fn gathered(&self, communicator: Named, root: c_int) {
        let members = self.members(communicator);
        let mut roots = self.roots.lock();
        roots.retain(|(known, _)| *known != members);
        roots.push((members, root));
    }

    /// Records that data was sent from one rank of a communicator, which must be valid, to the
    /// others (MPI_Bcast), and returns which ranks that has synchronised. No rank has the data
    /// before the root has sent it; if data was gathered at the same root before, all ranks had
    /// entered that gathering by then.
    pub fn spread(&self, communicator: Named, root: c_int) -> Option<SyncScope> {
        let mut roots = self.roots.lock();
        if roots.is_empty() {
            return None;
        }
        let came = (self.members(communicator), root);
        let at = roots.iter().position(|known| *known == came)?;
        roots.swap_remove(at);
        self.count(came.0)
    }

    /// Returns which ranks a fence of a window, which must be valid, has synchronised (MPI-4.1,
    /// 12.5.1: a barrier, unless its assertion says that it follows no access).
    pub fn fenced(&self, window: Named, assertion: c_int) -> Option<SyncScope> {
        if assertion & self.library.constants.no_precede != 0 {
            return None;
        }
        let handle = match window {
            Named::C(word) => self.handle(word),
            Named::Fortran(integer) => self.library.fortran.window(integer),
        };
        let members = self.windows.get(handle, || {
            // SAFETY: the window is valid; the call is local.
            self.members_of(|group| unsafe {
                (self.library.functions.win_get_group)(handle, group)
            })
        });
        self.count(members)
    }

    /// Returns which ranks a collective operation on a file, which must be open, has synchronised:
    /// no rank moves data before it knows what the others move (two-phase input and output, as in
    /// all MPI libraries).
    pub fn shared_file(&self, file: Named) -> Option<SyncScope> {
        let handle = match file {
            Named::C(word) => word,
            Named::Fortran(integer) => self.library.fortran.file(integer)?,
        };
        let get_group = self.library.file_get_group?;
        // SAFETY: the file is open; the call is local.
        let ask = || self.members_of(|group| unsafe { get_group(handle, group) });
        self.count(self.files.get(handle, ask))
    }

    /// Records that a collective on a communicator, which must be valid, has created an object; its
    /// handle is at `address`.
    ///
    /// # Safety
    /// The handle stands there.
    pub unsafe fn created(
        &self,
        kind: ObjectKind,
        communicator: Named,
        address: usize,
        is_c: bool,
    ) {
        // SAFETY: promised by the caller.
        let object = unsafe { self.object(kind, address, is_c) };
        self.live_objects.add(object, self.members(communicator));
    }

    /// Returns the members of an object that a call is about to free, and forgets the object. Its
    /// handle is at `address`; it need not be valid.
    ///
    /// # Safety
    /// A handle stands there.
    pub unsafe fn about_to_free(&self, kind: ObjectKind, address: usize, is_c: bool) -> Members {
        // SAFETY: promised by the caller.
        let object = unsafe { self.object(kind, address, is_c) };
        Members(self.live_objects.remove(object).unwrap_or(NOBODY))
    }

    /// Returns which ranks a call has synchronised that has freed an object with these members:
    /// none frees the object before all have called (MPI-4.1, 12.2.5, for windows).
    pub fn freed(&self, members: Members) -> Option<SyncScope> {
        self.count(members.0)
    }

    /// # Safety
    /// A handle stands at `address`.
    unsafe fn object(&self, kind: ObjectKind, address: usize, is_c: bool) -> ObjectHandle {
        let layout = match kind {
            // Files are pointers in all libraries.
            ObjectKind::File if is_c => Layout::Word,
            _ => Layout::new(self.library.abi, is_c),
        };
        // SAFETY: promised by the caller.
        ObjectHandle { kind, is_c, handle: unsafe { layout.read(address) } }
    }

    /// Records the start of a collective on a communicator, which must be valid. `take_index`
    /// supplies its index if the communicator has all ranks.
    ///
    /// # Safety
    /// The request stands where the list says.
    pub unsafe fn started(
        &self,
        communicator: Named,
        request: RequestList,
        take_index: impl FnOnce() -> Option<u64>,
    ) {
        let members = self.members(communicator);
        let Some(index) = self.begin(members, take_index) else { return };
        let layout = self.layout(request);
        // SAFETY: promised by the caller.
        unsafe { self.pending.start(request.first, layout, (members, index), false) };
    }

    fn begin(&self, members: u32, take_index: impl FnOnce() -> Option<u64>) -> Option<u64> {
        match members {
            NOBODY => None,
            ALL => take_index(),
            subgroup => self.subgroups.begin(subgroup - FIRST_SUBGROUP),
        }
    }

    fn layout(&self, requests: RequestList) -> Layout {
        Layout::new(self.library.abi, requests.is_c)
    }

    /// Records that a persistent request of a collective on a communicator, which must be valid,
    /// was made.
    ///
    /// # Safety
    /// As [`Self::started`].
    pub unsafe fn prepared(&self, communicator: Named, request: RequestList) {
        let members = self.members(communicator);
        if members != NOBODY {
            // SAFETY: promised by the caller.
            unsafe { self.prepared.add(request.first, self.layout(request), members) };
        }
    }

    /// Returns whether there is a persistent request of a collective.
    #[inline]
    pub fn has_prepared(&self) -> bool {
        self.prepared.are_some()
    }

    /// Records the start of persistent requests, some of them perhaps of collectives. `take_index`
    /// supplies the index of one of all ranks.
    ///
    /// # Safety
    /// The requests stand where the list says.
    pub unsafe fn started_prepared(
        &self,
        requests: RequestList,
        take_index: impl Fn() -> Option<u64>,
    ) {
        let layout = self.layout(requests);
        for address in (0..requests.count).map(|at| requests.first + at * layout.bytes()) {
            // SAFETY: promised by the caller.
            unsafe {
                let Some(members) = self.prepared.members(address, layout) else { continue };
                let Some(index) = self.begin(members, &take_index) else { continue };
                self.pending.start(address, layout, (members, index), true);
            }
        }
    }

    /// Records that a request is about to be freed.
    ///
    /// # Safety
    /// As [`Self::started`].
    pub unsafe fn frees(&self, request: RequestList) {
        // SAFETY: promised by the caller.
        unsafe { self.prepared.remove(request.first, self.layout(request)) };
    }

    /// Returns whether a started collective has not yet been seen to complete.
    #[inline]
    pub fn has_pending(&self) -> bool {
        self.pending.are_some()
    }

    /// Records the begin of a call that may complete requests.
    ///
    /// # Safety
    /// The requests must stay where the list says until [`Self::completed`] is called.
    pub unsafe fn completes(&self, requests: RequestList) {
        let layout = self.layout(requests);
        // SAFETY: promised by the caller.
        unsafe { self.pending.begin(requests.first, requests.count, layout) };
    }

    /// Returns which ranks the call announced by [`Self::completes`] has synchronised; `succeeded`
    /// is its outcome, and `is_reported` says whether it reports the request with this index in its
    /// list as complete. If it completed several collectives, the last started one of all ranks
    /// counts, or else the last started one: all its ranks have come together by then.
    ///
    /// # Safety
    /// As [`Self::completes`].
    pub unsafe fn completed(
        &self,
        succeeded: bool,
        is_reported: impl Fn(usize) -> bool,
    ) -> Option<SyncScope> {
        // SAFETY: promised by the caller.
        let completed = unsafe { self.pending.completed(succeeded, is_reported) };
        let of_all = completed.iter().rev().find(|(members, _)| *members == ALL);
        match of_all.or(completed.last())? {
            (ALL, index) => Some(SyncScope::AllSince(*index)),
            (subgroup, index) => self.subgroups.end(subgroup - FIRST_SUBGROUP, *index),
        }
    }

    fn count(&self, members: u32) -> Option<SyncScope> {
        match members {
            NOBODY => None,
            ALL => Some(SyncScope::All),
            subgroup => {
                let index = self.subgroups.begin(subgroup - FIRST_SUBGROUP)?;
                self.subgroups.end(subgroup - FIRST_SUBGROUP, index)
            }
        }
    }
}
