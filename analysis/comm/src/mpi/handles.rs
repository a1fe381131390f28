//! What is known about the application's handles: which ranks has a communicator, how large is a
//! datatype. Asked of MPI once per handle, and forgotten when the application frees any.

mod memory;
mod pending;
mod world_ranks;

use std::ffi::c_int;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, OnceLock};

use parking_lot::Mutex;
use plimsoll_wire::sync::{Among, MAX_PARTS, Part};

use self::memory::Memory;
use self::pending::{Layout, Pending};
use self::world_ranks::WorldRanks;
use super::library::{Abi, Handle, Library};
use crate::fingerprint::{BASIS, extended};

/// Whom a communicator holds: nobody to compare with, all ranks, or from the third number on one of
/// [`Parts`].
const NOBODY: u32 = 0;
const ALL: u32 = 1;
const FIRST_PART: u32 = 2;

/// Set in integer handles, so that none is the address of an object.
const FORTRAN_HANDLE: u64 = 1 << 62;

/// A part of the world that has communicators.
struct KnownPart {
    part: Part,
    /// How many of its synchronisations have begun, each of which got its number as index.
    begun: u64,
    /// The most recent one's index that has ended, plus one.
    ended: u64,
}

/// Parts of the world that have communicators, and how often each has synchronised.
struct Parts {
    known: Mutex<Vec<KnownPart>>,
    /// There are more.
    are_more: AtomicBool,
}

impl Parts {
    const fn new() -> Self {
        Self { known: Mutex::new(Vec::new()), are_more: AtomicBool::new(false) }
    }

    /// The number of a part; communicators with the same members share it.
    fn number(&self, part: Part) -> u32 {
        let mut parts = self.known.lock();
        let number = parts.iter().position(|known| known.part == part).unwrap_or_else(|| {
            parts.push(KnownPart { part, begun: 0, ended: 0 });
            parts.len() - 1
        });
        if number >= MAX_PARTS {
            parts.pop();
            self.are_more.store(true, Ordering::Relaxed);
            return NOBODY;
        }
        FIRST_PART + number as u32
    }

    /// The index of a synchronisation of a part that begins.
    fn begin(&self, number: u32) -> Option<u64> {
        let mut parts = self.known.lock();
        let known = parts.get_mut(number as usize)?;
        known.begun += 1;
        Some(known.begun - 1)
    }

    /// It has ended; `None` if one that began after it has ended before.
    fn end(&self, number: u32, index: u64) -> Option<Among> {
        let mut parts = self.known.lock();
        let known = parts.get_mut(number as usize)?;
        if index < known.ended {
            return None;
        }
        known.ended = index + 1;
        Some(Among::Part(known.part, index))
    }
}

/// Where the requests stand that a call starts or may complete.
#[derive(Clone, Copy, Debug)]
pub struct RequestList {
    /// Address of the first.
    pub first: usize,
    /// Their number.
    pub count: usize,
    /// They are those of C, not of Fortran.
    pub is_c: bool,
}

/// A handle as the application passed it.
#[derive(Clone, Copy, Debug)]
pub enum Named {
    /// In C: an argument word.
    C(Handle),
    /// In Fortran.
    Fortran(c_int),
}

/// Facts about handles.
pub struct HandleFacts {
    library: Arc<Library>,
    members: Memory,
    windows: Memory,
    files: Memory,
    sizes: Memory,
    fortran_members: Memory,
    fortran_sizes: Memory,
    peers: Memory,
    parts: Parts,
    /// Nonblocking collectives: their members, and their index among those of these.
    pending: Pending<(u32, u64)>,
    /// Ranks that have reduced something, and the root, which has broadcast nothing to them since. Kept when
    /// handles are freed: one rank may free a communicator of its own between the two calls, the others not.
    roots: Mutex<Vec<(u32, c_int)>>,
    /// A communicator of all ranks; `None` if a session has made none yet.
    world: Option<Handle>,
    /// What Fortran's MPI_IN_PLACE may be, if that is known.
    in_place: Vec<usize>,
    /// What Fortran's MPI_STATUS_IGNORE may be, asked when it is first passed.
    status_ignore: OnceLock<Vec<usize>>,
    /// Numbers of communicators in `world_ranks`.
    numbers: Memory,
    fortran_numbers: Memory,
    world_ranks: WorldRanks,
}

impl HandleFacts {
    /// Nothing known yet. `world` is MPI_COMM_WORLD, which exists when the program has called
    /// MPI_Init, or a communicator of the same ranks that outlives these facts.
    pub fn new(library: Arc<Library>, world: Option<Handle>) -> Self {
        Self {
            world,
            members: Memory::new(),
            windows: Memory::new(),
            files: Memory::new(),
            sizes: Memory::new(),
            fortran_members: Memory::new(),
            fortran_sizes: Memory::new(),
            peers: Memory::new(),
            parts: Parts::new(),
            pending: Pending::new(),
            roots: Mutex::default(),
            in_place: library.fortran_in_place(),
            status_ignore: OnceLock::new(),
            numbers: Memory::new(),
            fortran_numbers: Memory::new(),
            world_ranks: WorldRanks::new(),
            library,
        }
    }

    /// Which ranks a call has synchronised on a communicator, which must be valid; `None` where there
    /// are no others, or that cannot be told. To be asked once for each such call.
    pub fn synchronised(&self, communicator: Named) -> Option<Among> {
        self.count(self.members(communicator))
    }

    /// Whether a call on a communicator, which must be valid, brings ranks together.
    pub fn has_others(&self, communicator: Named) -> bool {
        self.members(communicator) != NOBODY
    }

    /// Whether there were more parts of the ranks than are followed.
    pub fn has_unfollowed_parts(&self) -> bool {
        self.parts.are_more.load(Ordering::Relaxed)
    }

    /// Something came together at one rank of a communicator, which must be valid (MPI_Reduce).
    pub fn gathered(&self, communicator: Named, root: c_int) {
        let members = self.members(communicator);
        let mut roots = self.roots.lock();
        roots.retain(|(known, _)| *known != members);
        roots.push((members, root));
    }

    /// Something went out from one rank of a communicator, which must be valid (MPI_Bcast): which ranks
    /// that has synchronised. None has it before the root has sent it, and where something came together
    /// there before, all had entered that by then.
    pub fn spread(&self, communicator: Named, root: c_int) -> Option<Among> {
        let mut roots = self.roots.lock();
        if roots.is_empty() {
            return None;
        }
        let came = (self.members(communicator), root);
        let at = roots.iter().position(|known| *known == came)?;
        roots.swap_remove(at);
        self.count(came.0)
    }

    /// Which ranks a fence of a window, which must be valid, has synchronised (MPI-4.1, 12.5.1: a barrier,
    /// unless it is said to follow no access).
    pub fn fenced(&self, window: Named, assertion: c_int) -> Option<Among> {
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

    /// Which ranks a collective operation on a file, which must be open, has synchronised: none moves data
    /// before it knows what the others move (two-phase input and output, as all MPI libraries have it).
    pub fn shared_file(&self, file: Named) -> Option<Among> {
        let handle = match file {
            Named::C(word) => word,
            Named::Fortran(integer) => self.library.fortran.file(integer)?,
        };
        let get_group = self.library.file_get_group?;
        // SAFETY: the file is open; the call is local.
        let ask = || self.members_of(|group| unsafe { get_group(handle, group) });
        self.count(self.files.get(handle, ask))
    }

    /// A collective was started on a communicator, which must be valid. `take_index` is asked for its index if
    /// the communicator has all ranks.
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
        let index = match members {
            NOBODY => None,
            ALL => take_index(),
            part => self.parts.begin(part - FIRST_PART),
        };
        let Some(index) = index else { return };
        let layout = Layout::new(self.library.abi, request.is_c);
        // SAFETY: promised by the caller.
        unsafe { self.pending.start(request.first, layout, (members, index)) };
    }

    /// Whether a collective was started and not yet seen to be complete.
    #[inline]
    pub fn has_pending(&self) -> bool {
        self.pending.are_some()
    }

    /// A call begins that may complete requests.
    ///
    /// # Safety
    /// They stand where the list says until [`Self::completed`] is called.
    pub unsafe fn completes(&self, requests: RequestList) {
        let layout = Layout::new(self.library.abi, requests.is_c);
        // SAFETY: promised by the caller.
        unsafe { self.pending.begin(requests.first, requests.count, layout) };
    }

    /// That call has returned, and `succeeded`: which ranks it has synchronised. Of several collectives the one
    /// of most ranks that was started last counts: all have come together by then.
    ///
    /// # Safety
    /// As [`Self::completes`].
    pub unsafe fn completed(&self, succeeded: bool) -> Option<Among> {
        // SAFETY: promised by the caller.
        let completed = unsafe { self.pending.completed(succeeded) };
        let of_all = completed.iter().rev().find(|(members, _)| *members == ALL);
        match of_all.or(completed.last())? {
            (ALL, index) => Some(Among::AllSince(*index)),
            (part, index) => self.parts.end(part - FIRST_PART, *index),
        }
    }

    fn count(&self, members: u32) -> Option<Among> {
        match members {
            NOBODY => None,
            ALL => Some(Among::All),
            part => {
                let index = self.parts.begin(part - FIRST_PART)?;
                self.parts.end(part - FIRST_PART, index)
            }
        }
    }

    /// The members of a communicator.
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

    /// Whether a valid communicator is no intercommunicator, whose group is only its local side.
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

    /// The members of a group, which `get` gets: [`ALL`] if they are all ranks of the world, in whatever
    /// order, and no others; else the number of the part that they are.
    ///
    /// Groups are compared, not communicators: objects of different sessions must not meet in one call
    /// (MPI-4, 11.3), and Open MPI 5 would call the application's error handler.
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

    /// As [`Self::members_of`]; `None` if a group has but one member, or one that is not in the world.
    ///
    /// # Safety
    /// Both groups are valid.
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
        let part = Part { name: (hash ^ hash >> 32) as u32, ranks: ranks.len() as u32 };
        Some(self.parts.number(part))
    }

    /// How many ranks a communicator has, which must be valid; 0 of one between two groups, each of which has its
    /// own number.
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

    /// The number of a communicator, which must be valid, for [`Self::world_rank`].
    #[inline]
    pub fn number(&self, communicator: Named) -> u32 {
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

    /// Ranks in the world of the processes that messages on a communicator reach: its members, or of one
    /// between two groups those of the other group.
    fn ranks_in_world(&self, communicator: Handle) -> Option<Vec<c_int>> {
        let of_all = self.world?;
        let functions = &self.library.functions;
        let get = match self.is_of_one_group(communicator) {
            true => functions.comm_group,
            false => functions.comm_remote_group,
        };
        let (mut group, mut world, mut size) = (0, 0, 0);
        // SAFETY: both communicators are valid, the groups are ours, and both lists have as many members as
        // the group; all calls are local.
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

    /// Rank in the world of a rank of the communicator with this number; `None` if that is not known, and of
    /// MPI_PROC_NULL.
    #[inline]
    pub fn world_rank(&self, number: u32, rank: c_int) -> Option<u32> {
        self.world_ranks.get(number, u32::try_from(rank).ok()?)
    }

    /// Whether a rank among the arguments is MPI_ANY_SOURCE.
    #[inline]
    pub fn is_any_source(&self, rank: c_int) -> bool {
        rank == self.library.constants.any_source
    }

    /// The source that the status at an index of a list says; `None` where the application ignores it.
    ///
    /// # Safety
    /// `statuses` is that argument of a call that has returned and has set this status, or which ignores it.
    pub unsafe fn source(&self, statuses: usize, at: usize, is_c: bool) -> Option<c_int> {
        let constants = &self.library.constants;
        if statuses == 0 || is_c && statuses == constants.status_ignore {
            return None;
        }
        if !is_c {
            let ignored = self.status_ignore.get_or_init(|| self.library.fortran_status_ignore());
            // Where nothing is known of them, any may be the ignored one.
            if ignored.is_empty() || ignored.contains(&statuses) {
                return None;
            }
        }
        let place = statuses + at * constants.status.bytes + constants.status.source;
        // SAFETY: promised by the caller.
        Some(unsafe { (place as *const c_int).read_unaligned() })
    }

    /// The handle at an index of a list of requests or messages. Those of C and of Fortran differ, too, where
    /// both are of one object.
    ///
    /// # Safety
    /// The list is that long.
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

    /// Bytes of one element of the datatype at an index of a list.
    ///
    /// # Safety
    /// The list has valid datatypes of C up to this index.
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

    /// Bytes of one element of the datatype, which must be valid; 0 if MPI does not say.
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

    /// [`Self::type_bytes`], of a handle in Fortran.
    pub fn fortran_type_bytes(&self, datatype: c_int) -> u64 {
        let functions = &self.library.fortran;
        let ask = || {
            let bytes = self.type_bytes(functions.datatype(datatype));
            u32::try_from(bytes).unwrap_or(0)
        };
        self.fortran_sizes.get(datatype as u32 as usize, ask).into()
    }

    /// Whether a buffer is MPI_IN_PLACE: one of two addresses that no buffer has, in all ABIs.
    pub fn is_in_place(&self, buffer: usize) -> bool {
        matches!(buffer, 1 | usize::MAX)
    }

    /// Whether a buffer may be Fortran's MPI_IN_PLACE, a variable of the library's.
    pub fn fortran_may_be_in_place(&self, buffer: usize) -> bool {
        self.in_place.is_empty() || self.in_place.contains(&buffer)
    }

    /// The application freed a communicator, a window or a file, whose handle may come back with other members.
    pub fn forget_members(&self) {
        self.members.clear();
        self.fortran_members.clear();
        self.windows.clear();
        self.files.clear();
        self.peers.clear();
        self.numbers.clear();
        self.fortran_numbers.clear();
    }

    /// The application freed a datatype, whose handle may come back with another size.
    pub fn forget_datatypes(&self) {
        self.sizes.clear();
        self.fortran_sizes.clear();
    }

    /// A handle as an argument word: where it is an int, the upper half of the word is anything.
    fn handle(&self, word: Handle) -> Handle {
        if self.library.abi == Abi::Mpich { word as u32 as Handle } else { word }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_part_counts_its_own_synchronisations() {
        let parts = Parts::new();
        let part = |name: u32| Part { name, ranks: 4 };
        let (row, column) = (parts.number(part(7)), parts.number(part(8)));
        assert_eq!(parts.number(part(7)), row, "another communicator of the same ranks");
        let count = |number: u32| {
            let index = parts.begin(number - FIRST_PART)?;
            parts.end(number - FIRST_PART, index)
        };
        assert_eq!(count(row), Some(Among::Part(part(7), 0)));
        assert_eq!(count(column), Some(Among::Part(part(8), 0)));
        assert_eq!(count(row), Some(Among::Part(part(7), 1)));
        assert!(!parts.are_more.load(Ordering::Relaxed));
        let numbers: Vec<u32> =
            (0..MAX_PARTS as u32 + 5).map(|name| parts.number(part(name))).collect();
        assert_eq!(numbers[MAX_PARTS..], [NOBODY; 5], "what more there are is not followed");
        assert!(parts.are_more.load(Ordering::Relaxed));
        assert_eq!(count(row), Some(Among::Part(part(7), 2)));
        let started = parts.begin(row - FIRST_PART).unwrap();
        assert_eq!(count(row), Some(Among::Part(part(7), 4)));
        assert_eq!(parts.end(row - FIRST_PART, started), None, "a later one has ended before");
    }
}
