//! Functions of MPI-4.0 and later, which installed MPI libraries may lack.

use super::Call;

/// Calls that MPI-4.0 and MPI-4.1 introduced, without the `_c` variants. A new function of these
/// standards goes into `table.rs` and into this list.
const RECENT: &[&str] = &[
    "MPI_Allgather_init",
    "MPI_Allgatherv_init",
    "MPI_Allreduce_init",
    "MPI_Alltoall_init",
    "MPI_Alltoallv_init",
    "MPI_Alltoallw_init",
    "MPI_Barrier_init",
    "MPI_Bcast_init",
    "MPI_Buffer_flush",
    "MPI_Buffer_iflush",
    "MPI_Comm_create_from_group",
    "MPI_Comm_detach_buffer",
    "MPI_Comm_flush_buffer",
    "MPI_Comm_idup_with_info",
    "MPI_Comm_iflush_buffer",
    "MPI_Exscan_init",
    "MPI_Gather_init",
    "MPI_Gatherv_init",
    "MPI_Intercomm_create_from_groups",
    "MPI_Isendrecv",
    "MPI_Isendrecv_replace",
    "MPI_Neighbor_allgather_init",
    "MPI_Neighbor_allgatherv_init",
    "MPI_Neighbor_alltoall_init",
    "MPI_Neighbor_alltoallv_init",
    "MPI_Neighbor_alltoallw_init",
    "MPI_Parrived",
    "MPI_Pready",
    "MPI_Pready_list",
    "MPI_Pready_range",
    "MPI_Precv_init",
    "MPI_Psend_init",
    "MPI_Reduce_init",
    "MPI_Reduce_scatter_block_init",
    "MPI_Reduce_scatter_init",
    "MPI_Request_get_status_all",
    "MPI_Request_get_status_any",
    "MPI_Request_get_status_some",
    "MPI_Scan_init",
    "MPI_Scatter_init",
    "MPI_Scatterv_init",
    "MPI_Session_detach_buffer",
    "MPI_Session_finalize",
    "MPI_Session_flush_buffer",
    "MPI_Session_iflush_buffer",
    "MPI_Session_init",
];

impl Call {
    /// Returns whether a library of MPI-3 lacks this function. Its wrapper is not exported: a
    /// program that tests for the function by a weak reference, as mpi4py does, must find the MPI
    /// library's definition or none.
    pub fn is_recent(&self) -> bool {
        self.large_count || RECENT.contains(&self.name)
    }
}

#[cfg(test)]
mod tests {
    use super::super::{CALLS, id_of};
    use super::RECENT;

    #[test]
    fn recent_calls_are_in_the_table() {
        assert!(RECENT.iter().all(|name| id_of(name) != 0));
        let recent = |name: &str| CALLS[usize::from(id_of(name)) - 1].is_recent();
        assert!(recent("MPI_Send_c") && recent("MPI_Session_init"));
        assert!(!recent("MPI_Send") && !recent("MPI_Neighbor_alltoall") && !recent("read"));
    }
}
