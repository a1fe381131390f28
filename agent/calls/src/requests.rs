//! Which calls start a collective that brings ranks together, and which may complete one.

use super::{CALLS, CallId, id_of};

/// Where the requests stand among the arguments of a call that may complete them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requests {
    /// Index of their number; `None`: it is one.
    pub count: Option<u8>,
    /// Index of the address of the first.
    pub first: u8,
}

/// How a call has to do with nonblocking collectives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// It starts one that no rank completes before all have started it; the address of the request is its
    /// last argument.
    Starts,
    /// It may complete requests.
    Completes(Requests),
}

const STARTS: [CallId; 19] = [
    id_of("MPI_Ibarrier"),
    id_of("MPI_Iallgather"),
    id_of("MPI_Iallgather_c"),
    id_of("MPI_Iallgatherv"),
    id_of("MPI_Iallgatherv_c"),
    id_of("MPI_Iallreduce"),
    id_of("MPI_Iallreduce_c"),
    id_of("MPI_Ialltoall"),
    id_of("MPI_Ialltoall_c"),
    id_of("MPI_Ialltoallv"),
    id_of("MPI_Ialltoallv_c"),
    id_of("MPI_Ialltoallw"),
    id_of("MPI_Ialltoallw_c"),
    id_of("MPI_Ireduce_scatter"),
    id_of("MPI_Ireduce_scatter_c"),
    id_of("MPI_Ireduce_scatter_block"),
    id_of("MPI_Ireduce_scatter_block_c"),
    id_of("MPI_Comm_idup"),
    id_of("MPI_Comm_idup_with_info"),
];

const COMPLETES: [(CallId, Requests); 8] = {
    const ONE: Requests = Requests { count: None, first: 0 };
    const SOME: Requests = Requests { count: Some(0), first: 1 };
    [
        (id_of("MPI_Wait"), ONE),
        (id_of("MPI_Waitall"), SOME),
        (id_of("MPI_Waitany"), SOME),
        (id_of("MPI_Waitsome"), SOME),
        (id_of("MPI_Test"), ONE),
        (id_of("MPI_Testall"), SOME),
        (id_of("MPI_Testany"), SOME),
        (id_of("MPI_Testsome"), SOME),
    ]
};

static ROLES: [Option<Role>; CALLS.len() + 1] = {
    let mut roles = [None; CALLS.len() + 1];
    let mut at = 0;
    while at < STARTS.len() {
        roles[STARTS[at] as usize] = Some(Role::Starts);
        at += 1;
    }
    at = 0;
    while at < COMPLETES.len() {
        roles[COMPLETES[at].0 as usize] = Some(Role::Completes(COMPLETES[at].1));
        at += 1;
    }
    // Where a name of these lists is none of the table's.
    assert!(roles[0].is_none());
    roles
};

/// What a call, which is one of [`CALLS`], has to do with nonblocking collectives.
#[inline]
pub const fn role(call: CallId) -> Option<Role> {
    ROLES[call as usize]
}

/// Whether a recorded call may complete requests.
pub fn may_complete(call: CallId) -> bool {
    matches!(ROLES.get(usize::from(call)), Some(Some(Role::Completes(_))))
}
