//! Nonblocking and persistent collectives: the calls that prepare or start one, and the calls that
//! may complete one.

use super::{CALLS, CallId, id_of};

/// Position of the requests among the arguments of a call that starts or may complete them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Requests {
    /// Index of the number of requests; `None`: one request.
    pub count: Option<u8>,
    /// Index of the address of the first request.
    pub first: u8,
}

/// Part that a call plays in nonblocking and persistent collectives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// The call starts a collective that no rank completes before all ranks have started it. The
    /// address of the request is its last argument.
    Starts,
    /// The call makes the persistent request of a collective that no rank completes before all
    /// ranks have started it. The address of the request is its last argument.
    Prepares,
    /// The call starts persistent requests.
    StartsPrepared(Requests),
    /// The call may complete requests.
    Completes(Requests),
}

const PREPARES: [CallId; 9] = [
    id_of("MPI_Barrier_init"),
    id_of("MPI_Allgather_init"),
    id_of("MPI_Allgatherv_init"),
    id_of("MPI_Allreduce_init"),
    id_of("MPI_Alltoall_init"),
    id_of("MPI_Alltoallv_init"),
    id_of("MPI_Alltoallw_init"),
    id_of("MPI_Reduce_scatter_init"),
    id_of("MPI_Reduce_scatter_block_init"),
];

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

const ONE: Requests = Requests { count: None, first: 0 };
const SOME: Requests = Requests { count: Some(0), first: 1 };

const COMPLETES: [(CallId, Requests); 8] = [
    (id_of("MPI_Wait"), ONE),
    (id_of("MPI_Waitall"), SOME),
    (id_of("MPI_Waitany"), SOME),
    (id_of("MPI_Waitsome"), SOME),
    (id_of("MPI_Test"), ONE),
    (id_of("MPI_Testall"), SOME),
    (id_of("MPI_Testany"), SOME),
    (id_of("MPI_Testsome"), SOME),
];

static ROLES: [Option<Role>; CALLS.len() + 1] = {
    let mut roles = [None; CALLS.len() + 1];
    let mut at = 0;
    while at < STARTS.len() {
        roles[STARTS[at] as usize] = Some(Role::Starts);
        at += 1;
    }
    at = 0;
    while at < PREPARES.len() {
        roles[PREPARES[at] as usize] = Some(Role::Prepares);
        at += 1;
    }
    roles[id_of("MPI_Start") as usize] = Some(Role::StartsPrepared(ONE));
    roles[id_of("MPI_Startall") as usize] = Some(Role::StartsPrepared(SOME));
    at = 0;
    while at < COMPLETES.len() {
        roles[COMPLETES[at].0 as usize] = Some(Role::Completes(COMPLETES[at].1));
        at += 1;
    }
    // A name above that is not in the table has id 0.
    assert!(roles[0].is_none());
    roles
};

/// Returns the part that a call plays in nonblocking and persistent collectives. Panics unless the
/// id is at most the length of [`CALLS`].
#[inline]
pub const fn role(call: CallId) -> Option<Role> {
    ROLES[call as usize]
}

/// Returns whether a recorded call may complete requests; false for an unknown id.
#[inline]
pub fn may_complete(call: CallId) -> bool {
    matches!(ROLES.get(usize::from(call)), Some(Some(Role::Completes(_))))
}
