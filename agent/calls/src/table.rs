// The table of wrapped calls, included by `lib.rs`. Wrappers, labels and documentation are derived
// from it; `analysis/CALLS.md` shows it with its labels, and a test compares it with the mpi.h of
// the installed MPI libraries. A new function of MPI-4 also goes into `recent.rs`.
//
//     name class words text communicator count datatype in_place
//
// class         purpose of the call (`CallClass`)
// words         number of arguments in C; in Fortran ierror follows
// text          number of text arguments: in Fortran their lengths follow ierror as hidden words
// communicator  index of the communicator of the ranks that the call synchronises or exchanges with
// count         index of the number of elements, or of the numbers by rank (`Extent`); libc: bytes
// datatype      index of the datatype of the elements
// in_place      index of the buffer that, if it is MPI_IN_PLACE, voids count and datatype
//
// In a collective with one block per rank, the size is what a rank receives from all ranks, or what
// it sends to them if that is more; in a rooted one, what each other rank sends or receives. `_`
// stands for an argument that the call does not have, or that does not give the size of the whole
// message: the number of neighbours of a neighbourhood collective is not among its arguments. Calls
// in `large_count` also exist as `NAME_c`, with MPI_Count for int (MPI-4.1, 2.5.8). Calls in `own`
// have hooks that do more than measure. All calls of MPI-4.1 that may wait for another process are
// listed; of the local calls, only those that make, free or cancel requests, because the partners
// of requests are followed.

table! {
    large_count {
        // Collectives that no rank leaves before all have entered.
        MPI_Allgather CollectiveSync 7 0 6 4 5 _
        MPI_Allgatherv CollectiveSync 8 0 7 4 6 _
        MPI_Allreduce CollectiveSync 6 0 5 2 3 _
        MPI_Alltoall CollectiveSync 7 0 6 4 5 _
        MPI_Alltoallv CollectiveSync 9 0 8 5 7 _
        MPI_Alltoallw CollectiveSync 9 0 8 5 7 _
        MPI_Reduce_scatter CollectiveSync 6 0 5 2 3 _
        MPI_Reduce_scatter_block CollectiveSync 6 0 5 2 3 _
        // Other collectives: rooted, of prefixes, nonblocking, of neighbours, and their persistent
        // requests.
        MPI_Allgather_init Communication 9 0 6 _ _ _
        MPI_Allgatherv_init Communication 10 0 7 _ _ _
        MPI_Allreduce_init Communication 8 0 5 _ _ _
        MPI_Alltoall_init Communication 9 0 6 _ _ _
        MPI_Alltoallv_init Communication 11 0 8 _ _ _
        MPI_Alltoallw_init Communication 11 0 8 _ _ _
        MPI_Bcast Communication 5 0 4 1 2 _
        MPI_Bcast_init Communication 7 0 4 _ _ _
        MPI_Exscan Communication 6 0 5 2 3 _
        MPI_Exscan_init Communication 8 0 5 _ _ _
        MPI_Gather Communication 8 0 7 1 2 0
        MPI_Gather_init Communication 10 0 7 _ _ _
        MPI_Gatherv Communication 9 0 8 1 2 0
        MPI_Gatherv_init Communication 11 0 8 _ _ _
        MPI_Iallgather Communication 8 0 6 4 5 _
        MPI_Iallgatherv Communication 9 0 7 4 6 _
        MPI_Iallreduce Communication 7 0 5 2 3 _
        MPI_Ialltoall Communication 8 0 6 4 5 _
        MPI_Ialltoallv Communication 10 0 8 5 7 _
        MPI_Ialltoallw Communication 10 0 8 5 7 _
        MPI_Ibcast Communication 6 0 4 1 2 _
        MPI_Iexscan Communication 7 0 5 2 3 _
        MPI_Igather Communication 9 0 7 1 2 0
        MPI_Igatherv Communication 10 0 8 1 2 0
        MPI_Ineighbor_allgather Communication 8 0 6 1 2 _
        MPI_Ineighbor_allgatherv Communication 9 0 7 1 2 _
        MPI_Ineighbor_alltoall Communication 8 0 6 1 2 _
        MPI_Ineighbor_alltoallv Communication 10 0 8 _ _ _
        MPI_Ineighbor_alltoallw Communication 10 0 8 _ _ _
        MPI_Ireduce Communication 8 0 6 2 3 _
        MPI_Ireduce_scatter Communication 7 0 5 2 3 _
        MPI_Ireduce_scatter_block Communication 7 0 5 2 3 _
        MPI_Iscan Communication 7 0 5 2 3 _
        MPI_Iscatter Communication 9 0 7 4 5 3
        MPI_Iscatterv Communication 10 0 8 5 6 4
        MPI_Neighbor_allgather Communication 7 0 6 1 2 _
        MPI_Neighbor_allgather_init Communication 9 0 6 _ _ _
        MPI_Neighbor_allgatherv Communication 8 0 7 1 2 _
        MPI_Neighbor_allgatherv_init Communication 10 0 7 _ _ _
        MPI_Neighbor_alltoall Communication 7 0 6 1 2 _
        MPI_Neighbor_alltoall_init Communication 9 0 6 _ _ _
        MPI_Neighbor_alltoallv Communication 9 0 8 _ _ _
        MPI_Neighbor_alltoallv_init Communication 11 0 8 _ _ _
        MPI_Neighbor_alltoallw Communication 9 0 8 _ _ _
        MPI_Neighbor_alltoallw_init Communication 11 0 8 _ _ _
        MPI_Reduce Communication 7 0 6 2 3 _
        MPI_Reduce_init Communication 9 0 6 _ _ _
        MPI_Reduce_scatter_block_init Communication 8 0 5 _ _ _
        MPI_Reduce_scatter_init Communication 8 0 5 _ _ _
        MPI_Scan Communication 6 0 5 2 3 _
        MPI_Scan_init Communication 8 0 5 _ _ _
        MPI_Scatter Communication 8 0 7 4 5 3
        MPI_Scatter_init Communication 10 0 7 _ _ _
        MPI_Scatterv Communication 9 0 8 5 6 4
        MPI_Scatterv_init Communication 11 0 8 _ _ _
        // Point to point, partitioned, waiting, and buffers that drain.
        MPI_Bsend Communication 6 0 5 1 2 _
        MPI_Bsend_init Communication 7 0 5 1 2 _
        MPI_Buffer_detach Communication 2 0 _ _ _ _
        MPI_Comm_detach_buffer Communication 3 0 0 _ _ _
        MPI_Ibsend Communication 7 0 5 1 2 _
        MPI_Imrecv Communication 5 0 _ 1 2 _
        MPI_Irecv Communication 7 0 5 1 2 _
        MPI_Irsend Communication 7 0 5 1 2 _
        MPI_Isend Communication 7 0 5 1 2 _
        MPI_Isendrecv Communication 12 0 10 1 2 _
        MPI_Isendrecv_replace Communication 9 0 7 1 2 _
        MPI_Issend Communication 7 0 5 1 2 _
        MPI_Mrecv Communication 5 0 _ 1 2 _
        MPI_Recv Communication 7 0 5 1 2 _
        MPI_Recv_init Communication 7 0 5 1 2 _
        MPI_Rsend Communication 6 0 5 1 2 _
        MPI_Rsend_init Communication 7 0 5 1 2 _
        MPI_Send Communication 6 0 5 1 2 _
        MPI_Send_init Communication 7 0 5 1 2 _
        MPI_Sendrecv Communication 12 0 10 1 2 _
        MPI_Sendrecv_replace Communication 9 0 7 1 2 _
        MPI_Session_detach_buffer Communication 3 0 _ _ _ _
        MPI_Ssend Communication 6 0 5 1 2 _
        MPI_Ssend_init Communication 7 0 5 1 2 _
        // One-sided: windows, their synchronisation, and accesses.
        MPI_Accumulate Communication 9 0 _ 1 2 _
        MPI_Get Communication 8 0 _ 1 2 _
        MPI_Get_accumulate Communication 12 0 _ 1 2 _
        MPI_Put Communication 8 0 _ 1 2 _
        MPI_Raccumulate Communication 10 0 _ 1 2 _
        MPI_Rget Communication 9 0 _ 1 2 _
        MPI_Rget_accumulate Communication 13 0 _ 1 2 _
        MPI_Rput Communication 9 0 _ 1 2 _
        MPI_Win_allocate CollectiveSync 6 0 3 _ _ _
        MPI_Win_allocate_shared CollectiveSync 6 0 3 _ _ _
        MPI_Win_create CollectiveSync 6 0 4 _ _ _
        // Files.
        MPI_File_iread Io 5 0 _ 2 3 _
        MPI_File_iread_all Io 5 0 _ 2 3 _
        MPI_File_iread_at Io 6 0 _ 3 4 _
        MPI_File_iread_at_all Io 6 0 _ 3 4 _
        MPI_File_iread_shared Io 5 0 _ 2 3 _
        MPI_File_iwrite Io 5 0 _ 2 3 _
        MPI_File_iwrite_all Io 5 0 _ 2 3 _
        MPI_File_iwrite_at Io 6 0 _ 3 4 _
        MPI_File_iwrite_at_all Io 6 0 _ 3 4 _
        MPI_File_iwrite_shared Io 5 0 _ 2 3 _
        MPI_File_read Io 5 0 _ 2 3 _
        MPI_File_read_all Io 5 0 _ 2 3 _
        MPI_File_read_all_begin Io 4 0 _ 2 3 _
        MPI_File_read_at Io 6 0 _ 3 4 _
        MPI_File_read_at_all Io 6 0 _ 3 4 _
        MPI_File_read_at_all_begin Io 5 0 _ 3 4 _
        MPI_File_read_ordered Io 5 0 _ 2 3 _
        MPI_File_read_ordered_begin Io 4 0 _ 2 3 _
        MPI_File_read_shared Io 5 0 _ 2 3 _
        MPI_File_write Io 5 0 _ 2 3 _
        MPI_File_write_all Io 5 0 _ 2 3 _
        MPI_File_write_all_begin Io 4 0 _ 2 3 _
        MPI_File_write_at Io 6 0 _ 3 4 _
        MPI_File_write_at_all Io 6 0 _ 3 4 _
        MPI_File_write_at_all_begin Io 5 0 _ 3 4 _
        MPI_File_write_ordered Io 5 0 _ 2 3 _
        MPI_File_write_ordered_begin Io 4 0 _ 2 3 _
        MPI_File_write_shared Io 5 0 _ 2 3 _
    }
    mpi {
        // Collectives that no rank leaves before all have entered.
        MPI_Barrier CollectiveSync 1 0 0 _ _ _
        // Other collectives: rooted, of prefixes, nonblocking, of neighbours, and their persistent
        // requests.
        MPI_Barrier_init Communication 3 0 0 _ _ _
        MPI_Ibarrier Communication 2 0 0 _ _ _
        // Point to point, partitioned, waiting, and buffers that drain.
        MPI_Buffer_flush Communication 0 0 _ _ _ _
        MPI_Buffer_iflush Communication 1 0 _ _ _ _
        MPI_Comm_flush_buffer Communication 1 0 0 _ _ _
        MPI_Comm_iflush_buffer Communication 2 0 0 _ _ _
        MPI_Mprobe Communication 5 0 2 _ _ _
        MPI_Cancel Communication 1 0 _ _ _ _
        MPI_Precv_init Communication 9 0 6 2 3 _
        MPI_Pready Communication 2 0 _ _ _ _
        MPI_Pready_list Communication 3 0 _ _ _ _
        MPI_Pready_range Communication 3 0 _ _ _ _
        MPI_Probe Communication 4 0 2 _ _ _
        MPI_Psend_init Communication 9 0 6 2 3 _
        MPI_Request_free Communication 1 0 _ _ _ _
        MPI_Session_flush_buffer Communication 1 0 _ _ _ _
        MPI_Session_iflush_buffer Communication 2 0 _ _ _ _
        MPI_Start Communication 1 0 _ _ _ _
        MPI_Startall Communication 2 0 _ _ _ _
        MPI_Wait Communication 2 0 _ _ _ _
        MPI_Waitall Communication 3 0 _ _ _ _
        MPI_Waitany Communication 4 0 _ _ _ _
        MPI_Waitsome Communication 5 0 _ _ _ _
        // Looking for progress.
        MPI_Improbe Polling 6 0 2 _ _ _
        MPI_Iprobe Polling 5 0 2 _ _ _
        MPI_Parrived Polling 3 0 _ _ _ _
        MPI_Request_get_status Polling 3 0 _ _ _ _
        MPI_Request_get_status_all Polling 4 0 _ _ _ _
        MPI_Request_get_status_any Polling 5 0 _ _ _ _
        MPI_Request_get_status_some Polling 5 0 _ _ _ _
        MPI_Test Polling 3 0 _ _ _ _
        MPI_Testall Polling 4 0 _ _ _ _
        MPI_Testany Polling 5 0 _ _ _ _
        MPI_Testsome Polling 5 0 _ _ _ _
        MPI_Win_test Polling 2 0 _ _ _ _
        // One-sided: windows, their synchronisation, and accesses.
        MPI_Compare_and_swap Communication 7 0 _ _ _ _
        MPI_Fetch_and_op Communication 7 0 _ _ _ _
        MPI_Win_complete Communication 1 0 _ _ _ _
        MPI_Win_create_dynamic CollectiveSync 3 0 1 _ _ _
        MPI_Win_fence Communication 2 0 _ _ _ _
        MPI_Win_flush Communication 2 0 _ _ _ _
        MPI_Win_flush_all Communication 1 0 _ _ _ _
        MPI_Win_flush_local Communication 2 0 _ _ _ _
        MPI_Win_flush_local_all Communication 1 0 _ _ _ _
        MPI_Win_free Communication 1 0 _ _ _ _
        MPI_Win_lock Communication 4 0 _ _ _ _
        MPI_Win_lock_all Communication 2 0 _ _ _ _
        MPI_Win_post Communication 3 0 _ _ _ _
        MPI_Win_start Communication 3 0 _ _ _ _
        MPI_Win_sync Communication 1 0 _ _ _ _
        MPI_Win_unlock Communication 2 0 _ _ _ _
        MPI_Win_unlock_all Communication 1 0 _ _ _ _
        MPI_Win_wait Communication 1 0 _ _ _ _
        // Creating and freeing communicators; freeing datatypes, because MPI reuses their handles.
        // All members create a communicator together, and none returns before all have called; a
        // topology may leave ranks out.
        MPI_Cart_create Communication 6 0 0 _ _ _
        MPI_Cart_sub CollectiveSync 3 0 0 _ _ _
        MPI_Comm_create CollectiveSync 3 0 0 _ _ _
        MPI_Comm_create_from_group Communication 5 1 _ _ _ _
        MPI_Comm_create_group Communication 4 0 0 _ _ _
        MPI_Comm_dup CollectiveSync 2 0 0 _ _ _
        MPI_Comm_dup_with_info CollectiveSync 3 0 0 _ _ _
        MPI_Comm_free Communication 1 0 _ _ _ _
        MPI_Comm_idup Communication 3 0 0 _ _ _
        MPI_Comm_idup_with_info Communication 4 0 0 _ _ _
        MPI_Comm_split CollectiveSync 4 0 0 _ _ _
        MPI_Comm_split_type CollectiveSync 5 0 0 _ _ _
        MPI_Dist_graph_create CollectiveSync 9 0 0 _ _ _
        MPI_Dist_graph_create_adjacent CollectiveSync 10 0 0 _ _ _
        MPI_Graph_create Communication 6 0 0 _ _ _
        MPI_Intercomm_create Communication 6 0 0 _ _ _
        MPI_Intercomm_create_from_groups Communication 8 1 _ _ _ _
        MPI_Intercomm_merge Communication 3 0 _ _ _ _
        MPI_Type_free Communication 1 0 _ _ _ _
        // Sessions and processes that come and go.
        MPI_Comm_accept Communication 5 1 3 _ _ _
        MPI_Comm_connect Communication 5 1 3 _ _ _
        MPI_Comm_disconnect Communication 1 0 _ _ _ _
        MPI_Comm_join Communication 2 0 _ _ _ _
        MPI_Comm_spawn Communication 8 2 5 _ _ _
        MPI_Comm_spawn_multiple Communication 9 2 6 _ _ _
        MPI_Lookup_name Communication 3 2 _ _ _ _
        MPI_Open_port Communication 2 1 _ _ _ _
        MPI_Publish_name Communication 3 2 _ _ _ _
        MPI_Unpublish_name Communication 3 2 _ _ _ _
        // Files.
        MPI_File_close Io 1 0 _ _ _ _
        MPI_File_delete Io 2 1 _ _ _ _
        MPI_File_open Io 5 1 0 _ _ _
        MPI_File_preallocate Io 2 0 _ _ _ _
        MPI_File_read_all_end Io 3 0 _ _ _ _
        MPI_File_read_at_all_end Io 3 0 _ _ _ _
        MPI_File_read_ordered_end Io 3 0 _ _ _ _
        MPI_File_seek_shared Io 3 0 _ _ _ _
        MPI_File_set_atomicity Io 2 0 _ _ _ _
        MPI_File_set_info Io 2 0 _ _ _ _
        MPI_File_set_size Io 2 0 _ _ _ _
        MPI_File_set_view Io 6 1 _ _ _ _
        MPI_File_sync Io 1 0 _ _ _ _
        MPI_File_write_all_end Io 3 0 _ _ _ _
        MPI_File_write_at_all_end Io 3 0 _ _ _ _
        MPI_File_write_ordered_end Io 3 0 _ _ _ _
    }
    own {
        // The begin and the end of MPI, and its word to profilers.
        MPI_Init Communication 2 0 _ _ _ _
        MPI_Init_thread Communication 4 0 _ _ _ _
        MPI_Finalize CollectiveSync 0 0 _ _ _ _
        MPI_Abort Communication 2 0 _ _ _ _
        MPI_Pcontrol Communication 1 0 _ _ _ _
        MPI_Session_init Communication 3 0 _ _ _ _
        MPI_Session_finalize CollectiveSync 1 0 _ _ _ _
    }
    libc {
        read Io 3 0 _ 2 _ _
        write Io 3 0 _ 2 _ _
        readv Io 3 0 _ _ _ _
        writev Io 3 0 _ _ _ _
        pread Io 4 0 _ 2 _ _
        pwrite Io 4 0 _ 2 _ _
        pread64 Io 4 0 _ 2 _ _
        pwrite64 Io 4 0 _ 2 _ _
        __read_chk Io 4 0 _ 2 _ _
        fsync Io 1 0 _ _ _ _
        fdatasync Io 1 0 _ _ _ _
        msync Io 3 0 _ _ _ _
        sync Io 0 0 _ _ _ _
        syncfs Io 1 0 _ _ _ _
        close Io 1 0 _ _ _ _
        // Files by name: slow across a network; and truncation, which is slow anywhere. Without the
        // function truncate: a library may have one of its own, of a number.
        open Io 3 0 _ _ _ _
        open64 Io 3 0 _ _ _ _
        __open_2 Io 2 0 _ _ _ _
        __open64_2 Io 2 0 _ _ _ _
        openat Io 4 0 _ _ _ _
        openat64 Io 4 0 _ _ _ _
        creat Io 2 0 _ _ _ _
        creat64 Io 2 0 _ _ _ _
        fopen Io 2 0 _ _ _ _
        fopen64 Io 2 0 _ _ _ _
        ftruncate Io 2 0 _ _ _ _
        rename Io 2 0 _ _ _ _
        unlink Io 1 0 _ _ _ _
        remove Io 1 0 _ _ _ _
        mkdir Io 2 0 _ _ _ _
        // Streams: the count is that of items; measured only where many bytes are moved.
        fread Io 4 0 _ 2 _ _
        __fread_chk Io 5 0 _ 3 _ _
        fwrite Io 4 0 _ 2 _ _
        // Lines: measured only where none is left in the stream's buffer. Programs call getline as
        // __getdelim; a getline may be a function of their own.
        fgets Io 3 0 _ _ _ _
        __fgets_chk Io 4 0 _ _ _ _
        __getdelim Io 4 0 _ _ _ _
        fflush Io 1 0 _ _ _ _
        fclose Io 1 0 _ _ _ _
        flock WaitLock 2 0 _ _ _ _
        recv WaitResource 4 0 _ 2 _ _
        __recv_chk WaitResource 5 0 _ 2 _ _
        recvfrom WaitResource 6 0 _ 2 _ _
        __recvfrom_chk WaitResource 7 0 _ 2 _ _
        recvmsg WaitResource 3 0 _ _ _ _
        recvmmsg WaitResource 5 0 _ _ _ _
        send WaitResource 4 0 _ 2 _ _
        sendto WaitResource 6 0 _ 2 _ _
        sendmsg WaitResource 3 0 _ _ _ _
        sendmmsg WaitResource 4 0 _ _ _ _
        accept WaitResource 3 0 _ _ _ _
        accept4 WaitResource 4 0 _ _ _ _
        connect WaitResource 3 0 _ _ _ _
        poll WaitResource 3 0 _ _ _ _
        __poll_chk WaitResource 4 0 _ _ _ _
        ppoll WaitResource 4 0 _ _ _ _
        __ppoll_chk WaitResource 5 0 _ _ _ _
        select WaitResource 5 0 _ _ _ _
        pselect WaitResource 6 0 _ _ _ _
        epoll_wait WaitResource 4 0 _ _ _ _
        epoll_pwait WaitResource 5 0 _ _ _ _
        msgrcv WaitResource 5 0 _ 2 _ _
        msgsnd WaitResource 4 0 _ _ _ _
        semop WaitResource 3 0 _ _ _ _
        semtimedop WaitResource 4 0 _ _ _ _
        pause WaitResource 0 0 _ _ _ _
        sigwait WaitResource 2 0 _ _ _ _
        sigtimedwait WaitResource 3 0 _ _ _ _
        sigwaitinfo WaitResource 2 0 _ _ _ _
        sigsuspend WaitResource 1 0 _ _ _ _
        nanosleep Sleep 2 0 _ _ _ _
        clock_nanosleep Sleep 4 0 _ _ _ _
        usleep Sleep 1 0 _ _ _ _
        sleep Sleep 1 0 _ _ _ _
        thrd_sleep Sleep 2 0 _ _ _ _
        // Work that the program leaves to processes of its own.
        system Sleep 1 0 _ _ _ _
        pclose Sleep 1 0 _ _ _ _
        wait Sleep 1 0 _ _ _ _
        waitpid Sleep 3 0 _ _ _ _
        waitid Sleep 4 0 _ _ _ _
        wait4 Sleep 4 0 _ _ _ _
        pthread_mutex_lock WaitLock 1 0 _ _ _ _
        pthread_mutex_timedlock WaitLock 2 0 _ _ _ _
        pthread_rwlock_rdlock WaitLock 1 0 _ _ _ _
        pthread_rwlock_wrlock WaitLock 1 0 _ _ _ _
        sem_wait WaitPartner 1 0 _ _ _ _
        sem_timedwait WaitPartner 2 0 _ _ _ _
        sem_clockwait WaitPartner 3 0 _ _ _ _
        pthread_cond_wait WaitPartner 2 0 _ _ _ _
        pthread_cond_timedwait WaitPartner 3 0 _ _ _ _
        pthread_cond_clockwait WaitPartner 4 0 _ _ _ _
        pthread_barrier_wait WaitPartner 1 0 _ _ _ _
        pthread_join WaitPartner 2 0 _ _ _ _
        pthread_timedjoin_np WaitPartner 3 0 _ _ _ _
        // With its number: measured only where it waits for a futex.
        syscall WaitPartner 7 0 _ _ _ _
        pthread_create ThreadCreation 4 0 _ _ _ _
    }
    gomp {
        // Parallel regions. The first two arguments are the outlined function and its data.
        GOMP_parallel Region 4 0 _ _ _ _
        GOMP_parallel_loop_dynamic Region 8 0 _ _ _ _
        GOMP_parallel_loop_guided Region 8 0 _ _ _ _
        GOMP_parallel_loop_maybe_nonmonotonic_runtime Region 7 0 _ _ _ _
        GOMP_parallel_loop_nonmonotonic_dynamic Region 8 0 _ _ _ _
        GOMP_parallel_loop_nonmonotonic_guided Region 8 0 _ _ _ _
        GOMP_parallel_loop_nonmonotonic_runtime Region 7 0 _ _ _ _
        GOMP_parallel_loop_runtime Region 7 0 _ _ _ _
        GOMP_parallel_loop_static Region 8 0 _ _ _ _
        GOMP_parallel_reductions Region 4 0 _ _ _ _
        GOMP_parallel_sections Region 5 0 _ _ _ _
        // Waits for the team and for tasks.
        GOMP_barrier TeamWait 0 0 _ _ _ _
        GOMP_barrier_cancel TeamWait 0 0 _ _ _ _
        // One word for each of the nested loops: more than programs have.
        GOMP_doacross_ull_wait TeamWait 26 0 _ _ _ _
        GOMP_doacross_wait TeamWait 26 0 _ _ _ _
        GOMP_loop_end TeamWait 0 0 _ _ _ _
        GOMP_loop_end_cancel TeamWait 0 0 _ _ _ _
        GOMP_sections_end TeamWait 0 0 _ _ _ _
        GOMP_sections_end_cancel TeamWait 0 0 _ _ _ _
        GOMP_single_copy_start TeamWait 0 0 _ _ _ _
        GOMP_taskloop TeamWait 11 0 _ _ _ _
        GOMP_taskloop_ull TeamWait 11 0 _ _ _ _
        GOMP_taskgroup_end TeamWait 0 0 _ _ _ _
        GOMP_taskwait TeamWait 0 0 _ _ _ _
        GOMP_taskwait_depend TeamWait 1 0 _ _ _ _
        OpenMP_idle TeamWait 0 0 _ _ _ _
        // Tasks. The first argument is the outlined function.
        GOMP_task TaskCreation 10 0 _ _ _ _
        // Sections that one thread at a time executes, and locks.
        GOMP_atomic_start TeamLock 0 0 _ _ _ _
        GOMP_critical_name_start TeamLock 1 0 _ _ _ _
        GOMP_critical_start TeamLock 0 0 _ _ _ _
        GOMP_ordered_start TeamLock 0 0 _ _ _ _
        omp_set_lock TeamLock 1 0 _ _ _ _
        omp_set_nest_lock TeamLock 1 0 _ _ _ _
    }
    ompt {
        // Constructs that OpenMP runtimes report through the tools interface.
        OpenMP_parallel Region 0 0 _ _ _ _
        OpenMP_barrier TeamWait 0 0 _ _ _ _
        OpenMP_taskgroup TeamWait 0 0 _ _ _ _
        OpenMP_taskwait TeamWait 0 0 _ _ _ _
        OpenMP_atomic TeamLock 0 0 _ _ _ _
        OpenMP_critical TeamLock 0 0 _ _ _ _
        OpenMP_ordered TeamLock 0 0 _ _ _ _
    }
}
