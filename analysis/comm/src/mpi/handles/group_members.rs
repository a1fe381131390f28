//! Groups of ranks: members of communicators, windows and files, and their ranks in the world.

use std::ffi::c_int;

use plimsoll_wire::sync_id::Subgroup;

use super::handle_cache::Memory;
use super::known_subgroups::{ALL, NOBODY};
use super::world_ranks::WorldRanks;
use super::{HandleFacts, Named};
use crate::fingerprint::{BASIS, extended};
use crate::mpi::Handle;

impl HandleFacts {
    /// Returns the members of a communicator: [`NOBODY`], [`ALL`] or the number of a subgroup.
    pub(super) fn members(&self, communicator: Named) -> u32 {
        let known = [&self.members, &self.fortran_members];
        self.once(communicator, known, |handle| self.members_of_communicator(handle))
    }

    /// Returns what is known of a communicator, in the cache of C handles or in that of Fortran
    /// ones, or else what `ask` finds out.
    fn once(
        &self,
        communicator: Named,
        [of_c, of_fortran]: [&Memory; 2],
        ask: impl FnOnce(Handle) -> u32,
    ) -> u32 {
        match communicator {
            Named::C(word) => {
                let handle = self.handle(word);
                of_c.get(handle, || ask(handle))
            }
            Named::Fortran(integer) => {
                of_fortran.get(integer as u32 as usize, || ask(self.communicator(communicator)))
            }
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
    pub(super) fn members_of(&self, get: impl FnOnce(*mut Handle) -> c_int) -> u32 {
        let Some((mut ranks, all)) = self.ranks_in_world(get) else { return NOBODY };
        if ranks.len() < 2 || ranks.iter().any(|rank| *rank < 0) {
            return NOBODY;
        }
        if ranks.len() == all {
            return ALL;
        }
        // Other communicators may have the same ranks in another order.
        ranks.sort_unstable();
        let hash = ranks.iter().fold(BASIS, |hash, rank| extended(hash, &rank.to_le_bytes()));
        let subgroup = Subgroup { name: (hash ^ hash >> 32) as u32, ranks: ranks.len() as u32 };
        self.subgroups.number(subgroup)
    }

    /// Returns the world rank of each member of the group that `get` obtains, negative outside of
    /// the world, and the number of ranks in the world; `None` if MPI does not tell.
    fn ranks_in_world(
        &self,
        get: impl FnOnce(*mut Handle) -> c_int,
    ) -> Option<(Vec<c_int>, usize)> {
        let of_all = self.world?;
        let functions = &self.library.functions;
        let (mut group, mut world, mut size, mut all) = (0, 0, 0, 0);
        // SAFETY: the communicator of all is valid, the groups are ours, and both lists have as
        // many members as the group; all calls are local.
        unsafe {
            if get(&mut group) != 0 {
                return None;
            }
            let mut codes = [0; 4];
            codes[0] = (functions.comm_group)(of_all, &mut world);
            codes[1] = (functions.group_size)(group, &mut size);
            codes[2] = (functions.group_size)(world, &mut all);
            let own: Vec<c_int> = (0..size).collect();
            let mut ranks = vec![-1; own.len()];
            codes[3] = (functions.group_translate_ranks)(
                group,
                size,
                own.as_ptr(),
                world,
                ranks.as_mut_ptr(),
            );
            (functions.group_free)(&mut group);
            (functions.group_free)(&mut world);
            (codes == [0; 4]).then_some((ranks, all as usize))
        }
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
        let known = [&self.numbers, &self.fortran_numbers];
        self.once(communicator, known, |handle| self.number_of(handle))
    }

    #[cold]
    fn number_of(&self, communicator: Handle) -> u32 {
        if Some(communicator) == self.world {
            return WorldRanks::WORLD;
        }
        // Messages on an intercommunicator reach the remote group.
        let get = match self.is_of_one_group(communicator) {
            true => self.library.functions.comm_group,
            false => self.library.functions.comm_remote_group,
        };
        // SAFETY: the communicator is valid; the call is local.
        self.ranks_in_world(|group| unsafe { get(communicator, group) })
            .map_or(WorldRanks::UNKNOWN, |(ranks, _)| self.world_ranks.number(ranks))
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
}
