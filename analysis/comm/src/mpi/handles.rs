//! Facts about the application's handles: the ranks of a communicator, the size of a datatype. MPI
//! is asked once per handle; the answers are forgotten when the application frees a handle of that
//! kind.

mod handle_cache;
mod live_objects;
mod pending;
mod prepared;
mod world_ranks;

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use plimsoll_wire::sync_id::{MAX_SUBGROUPS, Subgroup, SyncScope};

use self::handle_cache::Memory;
pub use self::live_objects::ObjectKind;
use self::live_objects::{LiveObjects, ObjectHandle};
use self::pending::{Layout, Pending};
use self::prepared::PreparedCollectives;
use self::world_ranks::WorldRanks;
use super::mpi_library::{Abi, Handle, Library};
use crate::fingerprint::{BASIS, extended};

/// Members of a communicator: no other rank to compare with, all ranks, or, from the third number
/// on, one of the subgroups in [`Subgroups`].
const NOBODY: u32 = 0;
const ALL: u32 = 1;
const FIRST_SUBGROUP: u32 = 2;

/// Bit set in integer handles, so that none is the address of an object.
const FORTRAN_HANDLE: u64 = 1 << 62;

/// Members of an object that a call is about to free.
#[derive(Clone, Copy, Debug)]
pub struct Members(u32);

impl Members {
    /// No ranks that are followed.
    pub const NONE: Self = Self(NOBODY);
}

/// A subgroup of the world that has communicators.
struct KnownSubgroup {
    subgroup: Subgroup,
    /// Number of synchronisations that have begun; each took the number before it as its index.
    begun: u64,
    /// Index of the most recent synchronisation that has ended, plus one.
    ended: u64,
}

/// Subgroups that have communicators, and the number of synchronisations of each.
struct Subgroups {
    known: Mutex<Vec<KnownSubgroup>>,
    /// Whether there were more than [`MAX_SUBGROUPS`] subgroups.
    are_more: AtomicBool,
}

impl Subgroups {
    const fn new() -> Self {
        Self { known: Mutex::new(Vec::new()), are_more: AtomicBool::new(false) }
    }

    /// Returns the number of a subgroup; communicators with the same members share one. Returns
    /// [`NOBODY`] beyond [`MAX_SUBGROUPS`] subgroups.
    fn number(&self, subgroup: Subgroup) -> u32 {
        let mut subgroups = self.known.lock();
        let number =
            subgroups.iter().position(|known| known.subgroup == subgroup).unwrap_or_else(|| {
                subgroups.push(KnownSubgroup { subgroup, begun: 0, ended: 0 });
                subgroups.len() - 1
            });
        if number >= MAX_SUBGROUPS {
            subgroups.pop();
            self.are_more.store(true, Ordering::Relaxed);
            return NOBODY;
        }
        FIRST_SUBGROUP + number as u32
    }

    /// Returns the index of a synchronisation that begins in a subgroup.
    fn begin(&self, number: u32) -> Option<u64> {
        let mut subgroups = self.known.lock();
        let known = subgroups.get_mut(number as usize)?;
        known.begun += 1;
        Some(known.begun - 1)
    }

    /// Ends a synchronisation of a subgroup; returns `None` if one that began later has already
    /// ended.
    fn end(&self, number: u32, index: u64) -> Option<SyncScope> {
        let mut subgroups = self.known.lock();
        let known = subgroups.get_mut(number as usize)?;
        if index < known.ended {
            return None;
        }
        known.ended = index + 1;
        Some(SyncScope::Subgroup(known.subgroup, index))
    }
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

/// A handle as the application passed it.
#[derive(Clone, Copy, Debug)]
pub enum Named {
    /// C handle: an argument word.
    C(Handle),
    /// Fortran handle: an integer.
    Fortran(c_int),
}

/// Facts about handles.
pub struct HandleFacts {
    library: Arc<Library>,
    /// Bits of an argument word that hold the handle: for ABIs with int handles the upper half of
    /// the word is undefined.
    handle_mask: Handle,
    members: Memory,
    windows: Memory,
    files: Memory,
    live_objects: LiveObjects,
    sizes: Memory,
    fortran_members: Memory,
    fortran_sizes: Memory,
    peers: Memory,
    subgroups: Subgroups,
    /// Nonblocking collectives in progress: their members, and their index among the collectives of
    /// those members.
    pending: Pending<(u32, u64)>,
    prepared: PreparedCollectives,
    /// Members and root of each reduction that no broadcast from the same root has followed yet.
    /// Kept when handles are freed: one rank may free a communicator of its own between the two
    /// calls and the others not.
    roots: Mutex<Vec<(u32, c_int)>>,
    /// Communicator of all ranks; `None` if a session has made none yet.
    world: Option<Handle>,
    /// Possible addresses of Fortran's MPI_IN_PLACE; empty if unknown.
    in_place: Vec<usize>,
    /// Possible addresses of Fortran's MPI_STATUS_IGNORE, looked up when first needed.
    status_ignore: OnceLock<Vec<usize>>,
    /// Numbers of communicators in `world_ranks`.
    numbers: Memory,
    fortran_numbers: Memory,
    world_ranks: WorldRanks,
}

impl HandleFacts {
    /// Builds an empty store. `world` is MPI_COMM_WORLD, which exists once the program has called
    /// MPI_Init, or a communicator of the same ranks that outlives this store.
    pub fn new(library: Arc<Library>, world: Option<Handle>) -> Self {
        Self {
            handle_mask: if library.abi == Abi::Mpich { u32::MAX as Handle } else { Handle::MAX },
            world,
            members: Memory::new(),
            windows: Memory::new(),
            files: Memory::new(),
            live_objects: LiveObjects::new(),
            sizes: Memory::new(),
            fortran_members: Memory::new(),
            fortran_sizes: Memory::new(),
            peers: Memory::new(),
            subgroups: Subgroups::new(),
            pending: Pending::new(),
            prepared: PreparedCollectives::new(),
            roots: Mutex::default(),
            in_place: library.fortran_in_place(),
            status_ignore: OnceLock::new(),
            numbers: Memory::new(),
            fortran_numbers: Memory::new(),
            world_ranks: WorldRanks::new(),
            library,
        }
    }

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

    /// Returns whether a communicator, which must be valid, is MPI_COMM_WORLD itself.
    pub fn is_world(&self, communicator: Named) -> bool {
        self.world.is_some_and(|world| self.communicator(communicator) == world)
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

    /// Returns the members of a communicator: [`NOBODY`], [`ALL`] or the number of a subgroup.
    fn members(&self, communicator: Named) -> u32 {
        match communicator {
            Named::C(word) => {
                let handle = self.handle(word);
                self.members.get(handle, || self.members_of_communicator(handle))
            }
            Named::Fortran(integer) => {
                let ask = || self.members_of_communicator(self.communicator(communicator));
                self.fortran_members.get(integer as u32 as usize, ask)
            }
        }
    }

    fn communicator(&self, communicator: Named) -> Handle {
        match communicator {
            Named::C(word) => self.handle(word),
            Named::Fortran(integer) => self.library.fortran.communicator(integer),
        }
    }

    /// Returns whether a valid communicator is an intracommunicator. The group of an
    /// intercommunicator is only its local side.
    fn is_of_one_group(&self, communicator: Handle) -> bool {
        let mut inter = 0;
        // SAFETY: the communicator is valid; the call is local.
        let code = unsafe { (self.library.functions.comm_test_inter)(communicator, &mut inter) };
        code == 0 && inter == 0
    }

    fn members_of_communicator(&self, communicator: Handle) -> u32 {
        if Some(communicator) == self.world {
            return ALL;
        }
        if !self.is_of_one_group(communicator) {
            return NOBODY;
        }
        let get = self.library.functions.comm_group;
        // SAFETY: the communicator is valid; the call is local.
        self.members_of(|group| unsafe { get(communicator, group) })
    }

    /// Returns the members of the group that `get` obtains: [`ALL`] for all ranks of the world, in
    /// any order; the number of the subgroup for some of them; [`NOBODY`] for a single rank or
    /// ranks outside of the world.
    ///
    /// Groups are compared, not communicators: objects of different sessions must not meet in one
    /// call (MPI-4, 11.3), and Open MPI 5 would call the application's error handler.
    fn members_of(&self, get: impl FnOnce(*mut Handle) -> c_int) -> u32 {
        let Some(of_all) = self.world else { return NOBODY };
        let functions = &self.library.functions;
        let (mut group, mut world) = (0, 0);
        // SAFETY: the communicator of all is valid, and the groups are ours; all calls are local.
        unsafe {
            if get(&mut group) != 0 {
                return NOBODY;
            }
            (functions.comm_group)(of_all, &mut world);
            let members = self.members_among(group, world);
            (functions.group_free)(&mut group);
            (functions.group_free)(&mut world);
            members.unwrap_or(NOBODY)
        }
    }

    /// Implements [`Self::members_of`]; `None` if the group has only one member, or one outside of
    /// the world.
    ///
    /// # Safety
    /// Both groups must be valid.
    unsafe fn members_among(&self, group: Handle, world: Handle) -> Option<u32> {
        let functions = &self.library.functions;
        let (mut size, mut all) = (0, 0);
        // SAFETY: promised by the caller; the calls are local.
        let codes = unsafe {
            [(functions.group_size)(group, &mut size), (functions.group_size)(world, &mut all)]
        };
        if codes != [0; 2] || size < 2 {
            return None;
        }
        let own: Vec<c_int> = (0..size).collect();
        let mut ranks = vec![-1; own.len()];
        // SAFETY: as above; both lists have as many members as the group.
        let code = unsafe {
            (functions.group_translate_ranks)(group, size, own.as_ptr(), world, ranks.as_mut_ptr())
        };
        if code != 0 || ranks.iter().any(|rank| *rank < 0) {
            return None;
        }
        if size == all {
            return Some(ALL);
        }
        // Other communicators may have the same ranks in another order.
        ranks.sort_unstable();
        let hash = ranks.iter().fold(BASIS, |hash, rank| extended(hash, &rank.to_le_bytes()));
        let subgroup = Subgroup { name: (hash ^ hash >> 32) as u32, ranks: ranks.len() as u32 };
        Some(self.subgroups.number(subgroup))
    }

    /// Returns the number of ranks of a communicator, which must be valid; 0 for an
    /// intercommunicator, because each of its two groups has its own number of ranks.
    pub fn ranks(&self, communicator: Named) -> u32 {
        let communicator = self.communicator(communicator);
        let ask = || {
            if !self.is_of_one_group(communicator) {
                return 0;
            }
            let mut ranks: c_int = 0;
            // SAFETY: the communicator is valid; the call is local.
            let code = unsafe { (self.library.functions.comm_size)(communicator, &mut ranks) };
            if code == 0 { u32::try_from(ranks).unwrap_or(0) } else { 0 }
        };
        self.peers.get(communicator, ask)
    }

    /// Returns the number of a communicator, which must be valid, for [`Self::world_rank`].
    #[inline(always)]
    pub fn number(&self, communicator: Named) -> u32 {
        let known = match communicator {
            Named::C(word) => self.numbers.at_first(self.handle(word)),
            Named::Fortran(integer) => self.fortran_numbers.at_first(integer as u32 as usize),
        };
        match known {
            Some(number) => number,
            None => self.look_up_number(communicator),
        }
    }

    #[inline(never)]
    fn look_up_number(&self, communicator: Named) -> u32 {
        match communicator {
            Named::C(word) => {
                let handle = self.handle(word);
                self.numbers.get(handle, || self.number_of(handle))
            }
            Named::Fortran(integer) => {
                let ask = || self.number_of(self.communicator(communicator));
                self.fortran_numbers.get(integer as u32 as usize, ask)
            }
        }
    }

    #[cold]
    fn number_of(&self, communicator: Handle) -> u32 {
        if Some(communicator) == self.world {
            return WorldRanks::WORLD;
        }
        self.ranks_in_world(communicator)
            .map_or(WorldRanks::UNKNOWN, |ranks| self.world_ranks.number(ranks))
    }

    /// Returns the world ranks of the processes that messages on a communicator reach: its members,
    /// or, for an intercommunicator, those of the remote group.
    fn ranks_in_world(&self, communicator: Handle) -> Option<Vec<c_int>> {
        let of_all = self.world?;
        let functions = &self.library.functions;
        let get = match self.is_of_one_group(communicator) {
            true => functions.comm_group,
            false => functions.comm_remote_group,
        };
        let (mut group, mut world, mut size) = (0, 0, 0);
        // SAFETY: both communicators are valid, the groups are ours, and both lists have as many
        // members as the group; all calls are local.
        unsafe {
            if get(communicator, &mut group) != 0 {
                return None;
            }
            (functions.comm_group)(of_all, &mut world);
            (functions.group_size)(group, &mut size);
            let own: Vec<c_int> = (0..size).collect();
            let mut ranks = vec![-1; own.len()];
            let code = (functions.group_translate_ranks)(
                group,
                size,
                own.as_ptr(),
                world,
                ranks.as_mut_ptr(),
            );
            (functions.group_free)(&mut group);
            (functions.group_free)(&mut world);
            (code == 0).then_some(ranks)
        }
    }

    /// Returns the world rank of a rank of the communicator with this number; `None` if unknown,
    /// and for MPI_PROC_NULL.
    #[inline(always)]
    pub fn world_rank(&self, number: u32, rank: c_int) -> Option<u32> {
        self.world_ranks.get(number, u32::try_from(rank).ok()?)
    }

    /// Returns the name of the members of the communicator with this number: the same on all of
    /// its members, and most likely different for other members. `None` if they are unknown.
    pub fn group_name(&self, number: u32) -> Option<u32> {
        self.world_ranks.name(number)
    }

    /// Returns whether a rank argument is MPI_ANY_SOURCE.
    #[inline]
    pub fn is_any_source(&self, rank: c_int) -> bool {
        rank == self.library.constants.any_source
    }

    /// Returns the source in the status at an index of a list; `None` if the application ignores
    /// the status.
    ///
    /// # Safety
    /// `statuses` must be that argument of a call that has returned and has set this status, or an
    /// argument that ignores the status.
    #[inline]
    pub unsafe fn source(&self, statuses: usize, at: usize, is_c: bool) -> Option<c_int> {
        // SAFETY: promised by the caller.
        Some(unsafe { self.source_and_tag(statuses, at, is_c)? }.0)
    }

    /// Returns the source and the tag in the status at an index of a list; `None` if the
    /// application ignores the status.
    ///
    /// # Safety
    /// As [`Self::source`].
    #[inline]
    pub unsafe fn source_and_tag(
        &self,
        statuses: usize,
        at: usize,
        is_c: bool,
    ) -> Option<(c_int, c_int)> {
        let constants = &self.library.constants;
        if statuses == 0 || is_c && statuses == constants.status_ignore {
            return None;
        }
        if !is_c {
            let ignored = self.status_ignore.get_or_init(|| self.library.fortran_status_ignore());
            // If the address of MPI_STATUS_IGNORE is unknown, any status may be the ignored one.
            if ignored.is_empty() || ignored.contains(&statuses) {
                return None;
            }
        }
        let place = statuses + at * constants.status.bytes + constants.status.source;
        let source = place as *const c_int;
        // SAFETY: promised by the caller. The tag follows the source in every ABI.
        Some(unsafe { (source.read_unaligned(), source.add(1).read_unaligned()) })
    }

    /// Returns the handle at an index of a list of requests or messages. The C and the Fortran
    /// handle of one object differ, too.
    ///
    /// # Safety
    /// The list must have an element at this index.
    #[inline]
    pub unsafe fn listed_handle(&self, list: usize, at: usize, is_c: bool) -> u64 {
        let layout = Layout::new(self.library.abi, is_c);
        // SAFETY: promised by the caller.
        let handle = unsafe { layout.read(list + at * layout.bytes()) } as u64;
        match layout {
            Layout::Integer => handle | FORTRAN_HANDLE,
            Layout::Word => handle,
        }
    }

    /// Reads the first handles of a list, as [`Self::listed_handle`] returns them.
    ///
    /// # Safety
    /// The list must have at least as many elements as `handles`.
    #[inline(always)]
    pub unsafe fn read_handles(&self, list: usize, is_c: bool, handles: &mut [u64]) {
        // SAFETY: promised by the caller.
        unsafe {
            match Layout::new(self.library.abi, is_c) {
                Layout::Integer => {
                    for (at, handle) in handles.iter_mut().enumerate() {
                        let word = (list as *const u32).add(at).read_unaligned();
                        *handle = u64::from(word) | FORTRAN_HANDLE;
                    }
                }
                Layout::Word => {
                    for (at, handle) in handles.iter_mut().enumerate() {
                        *handle = (list as *const Handle).add(at).read_unaligned() as u64;
                    }
                }
            }
        }
    }

    /// Returns the bytes of one element of the datatype at an index of a list.
    ///
    /// # Safety
    /// The list must have valid C datatypes up to this index.
    pub unsafe fn listed_type_bytes(&self, list: usize, index: usize) -> u64 {
        // SAFETY: promised by the caller; MPICH's handles are ints, those of other ABIs words.
        let datatype = unsafe {
            match self.library.abi {
                Abi::Mpich => *(list as *const u32).add(index) as Handle,
                _ => *(list as *const Handle).add(index),
            }
        };
        self.type_bytes(datatype)
    }

    /// Returns the bytes of one element of a datatype, which must be valid; 0 if MPI does not say.
    pub fn type_bytes(&self, datatype: Handle) -> u64 {
        let datatype = self.handle(datatype);
        let ask = || {
            let mut bytes: c_int = 0;
            // SAFETY: the datatype is valid; the call is local.
            let code = unsafe { (self.library.functions.type_size)(datatype, &mut bytes) };
            if code == 0 { u32::try_from(bytes).unwrap_or(0) } else { 0 }
        };
        u64::from(self.sizes.get(datatype, ask))
    }

    /// Like [`Self::type_bytes`], for a Fortran handle.
    pub fn fortran_type_bytes(&self, datatype: c_int) -> u64 {
        let functions = &self.library.fortran;
        let ask = || {
            let bytes = self.type_bytes(functions.datatype(datatype));
            u32::try_from(bytes).unwrap_or(0)
        };
        self.fortran_sizes.get(datatype as u32 as usize, ask).into()
    }

    /// Returns whether a buffer is MPI_IN_PLACE: in all ABIs one of two addresses that no buffer
    /// has.
    pub fn is_in_place(&self, buffer: usize) -> bool {
        matches!(buffer, 1 | usize::MAX)
    }

    /// Returns whether a buffer may be Fortran's MPI_IN_PLACE, a variable of the MPI library.
    pub fn fortran_may_be_in_place(&self, buffer: usize) -> bool {
        self.in_place.is_empty() || self.in_place.contains(&buffer)
    }

    /// Forgets the members of all handles. To be called when the application frees a communicator,
    /// a window or a file, because MPI may reuse the handle for other members.
    pub fn forget_members(&self) {
        self.members.clear();
        self.fortran_members.clear();
        self.windows.clear();
        self.files.clear();
        self.peers.clear();
        self.numbers.clear();
        self.fortran_numbers.clear();
    }

    /// Forgets the sizes of all datatypes. To be called when the application frees a datatype,
    /// because MPI may reuse the handle for another size.
    pub fn forget_datatypes(&self) {
        self.sizes.clear();
        self.fortran_sizes.clear();
    }

    /// Returns the handle in an argument word.
    #[inline(always)]
    fn handle(&self, word: Handle) -> Handle {
        word & self.handle_mask
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_counts_its_own_synchronisations() {
        let subgroups = Subgroups::new();
        let subgroup = |name: u32| Subgroup { name, ranks: 4 };
        let (row, column) = (subgroups.number(subgroup(7)), subgroups.number(subgroup(8)));
        assert_eq!(subgroups.number(subgroup(7)), row, "another communicator of the same ranks");
        let count = |number: u32| {
            let index = subgroups.begin(number - FIRST_SUBGROUP)?;
            subgroups.end(number - FIRST_SUBGROUP, index)
        };
        assert_eq!(count(row), Some(SyncScope::Subgroup(subgroup(7), 0)));
        assert_eq!(count(column), Some(SyncScope::Subgroup(subgroup(8), 0)));
        assert_eq!(count(row), Some(SyncScope::Subgroup(subgroup(7), 1)));
        assert!(!subgroups.are_more.load(Ordering::Relaxed));
        let numbers: Vec<u32> =
            (0..MAX_SUBGROUPS as u32 + 5).map(|name| subgroups.number(subgroup(name))).collect();
        assert_eq!(numbers[MAX_SUBGROUPS..], [NOBODY; 5], "what more there are is not followed");
        assert!(subgroups.are_more.load(Ordering::Relaxed));
        assert_eq!(count(row), Some(SyncScope::Subgroup(subgroup(7), 2)));
        let started = subgroups.begin(row - FIRST_SUBGROUP).unwrap();
        assert_eq!(count(row), Some(SyncScope::Subgroup(subgroup(7), 4)));
        assert_eq!(
            subgroups.end(row - FIRST_SUBGROUP, started),
            None,
            "a later one has ended before"
        );
    }
}
