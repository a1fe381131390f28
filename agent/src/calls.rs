//! The calls that Plimsoll wraps: one table, from which the wrappers, the labels and the docs come.
//!
//! Each entry names the symbol, the number of machine words it takes (all arguments travel as
//! words, so one wrapper serves every MPI ABI), its class, and where the communicator and the
//! message size stand among its arguments.
//!
//! In a recorded stack a wrapped call is a frame whose "address" is its [`CallId`]: no code lies
//! below [`FIRST_CODE_ADDRESS`], so the two cannot be confused.

/// Addresses below this are [`CallId`]s, not code.
pub const FIRST_CODE_ADDRESS: u64 = 4096;

/// Set in a [`CallId`] when the descriptor of a read or write is a stream (socket, pipe,
/// terminal) and the call therefore waits for a partner rather than for a file.
pub const STREAM: u16 = 0x800;

/// What a call is for; the analysis derives its label (PPoPP20, 5.2) from it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallClass {
    /// A collective that no participant leaves before all have entered.
    CollectiveSync,
    /// Any other MPI call that communicates.
    Communication,
    /// An MPI call that looks for progress and returns at once.
    Polling,
    /// MPI file operations, and reads and writes of files.
    Io,
    /// Waiting for a socket, a pipe, an event or a child process.
    WaitResource,
    /// Waiting for a lock.
    WaitLock,
    /// Waiting for another thread.
    WaitPartner,
    /// Sleeping by the program's own wish: its work, off the CPU.
    Sleep,
}

/// Who provides the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Provider {
    /// The MPI library.
    Mpi,
    /// The C library.
    Libc,
    /// The MPI library, behind a hook that does more than measure.
    Own,
}

/// One wrapped call.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The symbol.
    pub name: &'static str,
    /// The symbol, for the dynamic loader.
    pub symbol: &'static core::ffi::CStr,
    /// Who provides it.
    pub provider: Provider,
    /// What it is for.
    pub class: CallClass,
    /// Number of arguments, in machine words.
    pub arity: u8,
    /// Index of the communicator among the arguments.
    pub communicator: Option<u8>,
    /// Index of the element count among the arguments.
    pub count: Option<u8>,
    /// Index of the datatype among the arguments; without it the count is in bytes.
    pub datatype: Option<u8>,
}

/// Index into [`CALLS`] plus one (0 is no call), possibly with [`STREAM`].
pub type CallId = u16;

/// The entry of a recorded call, or `None` for an id that this build does not know.
pub fn call(id: CallId) -> Option<&'static Call> {
    CALLS.get(usize::from(id & !STREAM).checked_sub(1)?)
}

/// The class of a recorded call: [`STREAM`] makes an I/O call wait for a resource.
pub fn class(id: CallId) -> Option<CallClass> {
    let class = call(id)?.class;
    Some(if id & STREAM != 0 { CallClass::WaitResource } else { class })
}

const fn index(word: i8) -> Option<u8> {
    if word < 0 { None } else { Some(word as u8) }
}

const fn symbol(name: &'static str) -> &'static core::ffi::CStr {
    match core::ffi::CStr::from_bytes_with_nul(name.as_bytes()) {
        Ok(symbol) => symbol,
        Err(_) => panic!("a symbol holds no NUL"),
    }
}

macro_rules! table {
    ($($provider:ident $name:ident $arity:literal $class:ident $comm:literal $count:literal $datatype:literal)*) => {
        /// All wrapped calls.
        pub const CALLS: &[Call] = &[$(Call {
            name: stringify!($name),
            symbol: symbol(concat!(stringify!($name), "\0")),
            provider: Provider::$provider,
            class: CallClass::$class,
            arity: $arity,
            communicator: index($comm),
            count: index($count),
            datatype: index($datatype),
        }),*];
    };
}

/// Hands the table to another macro: `provider symbol words class communicator count datatype`,
/// with -1 where an argument does not exist.
#[macro_export]
macro_rules! for_each_call {
    ($macro:ident) => {
        $macro! {
            Mpi MPI_Barrier 1 CollectiveSync 0 -1 -1
            Mpi MPI_Allreduce 6 CollectiveSync 5 2 3
            Mpi MPI_Allgather 7 CollectiveSync 6 1 2
            Mpi MPI_Allgatherv 8 CollectiveSync 7 1 2
            Mpi MPI_Alltoall 7 CollectiveSync 6 1 2
            Mpi MPI_Alltoallv 9 CollectiveSync 8 -1 -1
            Mpi MPI_Alltoallw 9 CollectiveSync 8 -1 -1
            Mpi MPI_Reduce_scatter 6 CollectiveSync 5 -1 -1
            Mpi MPI_Reduce_scatter_block 6 CollectiveSync 5 2 3
            Mpi MPI_Bcast 5 Communication 4 1 2
            Mpi MPI_Gather 8 Communication 7 1 2
            Mpi MPI_Gatherv 9 Communication 8 1 2
            Mpi MPI_Scatter 8 Communication 7 4 5
            Mpi MPI_Scatterv 9 Communication 8 5 6
            Mpi MPI_Reduce 7 Communication 6 2 3
            Mpi MPI_Scan 6 Communication 5 2 3
            Mpi MPI_Exscan 6 Communication 5 2 3
            Mpi MPI_Ibarrier 2 Communication 0 -1 -1
            Mpi MPI_Ibcast 6 Communication 4 1 2
            Mpi MPI_Igather 9 Communication 7 1 2
            Mpi MPI_Igatherv 10 Communication 8 1 2
            Mpi MPI_Iscatter 9 Communication 7 4 5
            Mpi MPI_Iscatterv 10 Communication 8 5 6
            Mpi MPI_Ireduce 8 Communication 6 2 3
            Mpi MPI_Iallreduce 7 Communication 5 2 3
            Mpi MPI_Iallgather 8 Communication 6 1 2
            Mpi MPI_Iallgatherv 9 Communication 7 1 2
            Mpi MPI_Ialltoall 8 Communication 6 1 2
            Mpi MPI_Ialltoallv 10 Communication 8 -1 -1
            Mpi MPI_Ialltoallw 10 Communication 8 -1 -1
            Mpi MPI_Ireduce_scatter 7 Communication 5 -1 -1
            Mpi MPI_Ireduce_scatter_block 7 Communication 5 2 3
            Mpi MPI_Iscan 7 Communication 5 2 3
            Mpi MPI_Iexscan 7 Communication 5 2 3
            Mpi MPI_Neighbor_allgather 7 Communication 6 1 2
            Mpi MPI_Neighbor_allgatherv 8 Communication 7 1 2
            Mpi MPI_Neighbor_alltoall 7 Communication 6 1 2
            Mpi MPI_Neighbor_alltoallv 9 Communication 8 -1 -1
            Mpi MPI_Neighbor_alltoallw 9 Communication 8 -1 -1
            Mpi MPI_Send 6 Communication 5 1 2
            Mpi MPI_Bsend 6 Communication 5 1 2
            Mpi MPI_Ssend 6 Communication 5 1 2
            Mpi MPI_Rsend 6 Communication 5 1 2
            Mpi MPI_Isend 7 Communication 5 1 2
            Mpi MPI_Ibsend 7 Communication 5 1 2
            Mpi MPI_Issend 7 Communication 5 1 2
            Mpi MPI_Irsend 7 Communication 5 1 2
            Mpi MPI_Recv 7 Communication 5 1 2
            Mpi MPI_Irecv 7 Communication 5 1 2
            Mpi MPI_Mrecv 5 Communication -1 1 2
            Mpi MPI_Imrecv 5 Communication -1 1 2
            Mpi MPI_Sendrecv 12 Communication 10 1 2
            Mpi MPI_Sendrecv_replace 9 Communication 7 1 2
            Mpi MPI_Start 1 Communication -1 -1 -1
            Mpi MPI_Startall 2 Communication -1 -1 -1
            Mpi MPI_Wait 2 Communication -1 -1 -1
            Mpi MPI_Waitall 3 Communication -1 -1 -1
            Mpi MPI_Waitany 4 Communication -1 -1 -1
            Mpi MPI_Waitsome 5 Communication -1 -1 -1
            Mpi MPI_Probe 4 Communication 2 -1 -1
            Mpi MPI_Mprobe 5 Communication 2 -1 -1
            Mpi MPI_Test 3 Polling -1 -1 -1
            Mpi MPI_Testall 4 Polling -1 -1 -1
            Mpi MPI_Testany 5 Polling -1 -1 -1
            Mpi MPI_Testsome 5 Polling -1 -1 -1
            Mpi MPI_Request_get_status 3 Polling -1 -1 -1
            Mpi MPI_Iprobe 5 Polling 2 -1 -1
            Mpi MPI_Improbe 6 Polling 2 -1 -1
            Mpi MPI_Put 8 Communication -1 1 2
            Mpi MPI_Get 8 Communication -1 1 2
            Mpi MPI_Accumulate 9 Communication -1 1 2
            Mpi MPI_Win_create 6 Communication 4 -1 -1
            Mpi MPI_Win_allocate 6 Communication 3 -1 -1
            Mpi MPI_Win_allocate_shared 6 Communication 3 -1 -1
            Mpi MPI_Win_free 1 Communication -1 -1 -1
            Mpi MPI_Win_fence 2 Communication -1 -1 -1
            Mpi MPI_Win_post 3 Communication -1 -1 -1
            Mpi MPI_Win_start 3 Communication -1 -1 -1
            Mpi MPI_Win_complete 1 Communication -1 -1 -1
            Mpi MPI_Win_wait 1 Communication -1 -1 -1
            Mpi MPI_Win_test 2 Polling -1 -1 -1
            Mpi MPI_Win_lock 4 Communication -1 -1 -1
            Mpi MPI_Win_lock_all 2 Communication -1 -1 -1
            Mpi MPI_Win_unlock 2 Communication -1 -1 -1
            Mpi MPI_Win_unlock_all 1 Communication -1 -1 -1
            Mpi MPI_Win_flush 2 Communication -1 -1 -1
            Mpi MPI_Win_flush_all 1 Communication -1 -1 -1
            Mpi MPI_Win_flush_local 2 Communication -1 -1 -1
            Mpi MPI_Win_flush_local_all 1 Communication -1 -1 -1
            Mpi MPI_Comm_dup 2 Communication 0 -1 -1
            Mpi MPI_Comm_split 4 Communication 0 -1 -1
            Mpi MPI_Comm_split_type 5 Communication 0 -1 -1
            Mpi MPI_Comm_create 3 Communication 0 -1 -1
            Mpi MPI_Comm_free 1 Communication -1 -1 -1
            Mpi MPI_Type_free 1 Communication -1 -1 -1
            Mpi MPI_Comm_spawn 8 Communication 5 -1 -1
            Mpi MPI_Comm_accept 5 Communication 3 -1 -1
            Mpi MPI_Comm_connect 5 Communication 3 -1 -1
            Mpi MPI_Comm_disconnect 1 Communication -1 -1 -1
            Mpi MPI_Intercomm_create 6 Communication 0 -1 -1
            Mpi MPI_Intercomm_merge 3 Communication -1 -1 -1
            Mpi MPI_Cart_create 6 Communication 0 -1 -1
            Mpi MPI_Dist_graph_create 9 Communication 0 -1 -1
            Mpi MPI_Dist_graph_create_adjacent 10 Communication 0 -1 -1
            Mpi MPI_File_open 5 Io 0 -1 -1
            Mpi MPI_File_close 1 Io -1 -1 -1
            Mpi MPI_File_sync 1 Io -1 -1 -1
            Mpi MPI_File_set_size 2 Io -1 -1 -1
            Mpi MPI_File_set_view 6 Io -1 -1 -1
            Mpi MPI_File_preallocate 2 Io -1 -1 -1
            Mpi MPI_File_read 5 Io -1 2 3
            Mpi MPI_File_read_all 5 Io -1 2 3
            Mpi MPI_File_read_shared 5 Io -1 2 3
            Mpi MPI_File_read_ordered 5 Io -1 2 3
            Mpi MPI_File_read_at 6 Io -1 3 4
            Mpi MPI_File_read_at_all 6 Io -1 3 4
            Mpi MPI_File_write 5 Io -1 2 3
            Mpi MPI_File_write_all 5 Io -1 2 3
            Mpi MPI_File_write_shared 5 Io -1 2 3
            Mpi MPI_File_write_ordered 5 Io -1 2 3
            Mpi MPI_File_write_at 6 Io -1 3 4
            Mpi MPI_File_write_at_all 6 Io -1 3 4
            Mpi MPI_File_iread 5 Io -1 2 3
            Mpi MPI_File_iwrite 5 Io -1 2 3
            Mpi MPI_File_iread_at 6 Io -1 3 4
            Mpi MPI_File_iwrite_at 6 Io -1 3 4
            Libc read 3 Io -1 2 -1
            Libc write 3 Io -1 2 -1
            Libc readv 3 Io -1 -1 -1
            Libc writev 3 Io -1 -1 -1
            Libc pread 4 Io -1 2 -1
            Libc pwrite 4 Io -1 2 -1
            Libc pread64 4 Io -1 2 -1
            Libc pwrite64 4 Io -1 2 -1
            Libc __read_chk 4 Io -1 2 -1
            Libc fsync 1 Io -1 -1 -1
            Libc fdatasync 1 Io -1 -1 -1
            Libc msync 3 Io -1 -1 -1
            Libc flock 2 WaitLock -1 -1 -1
            Libc recv 4 WaitResource -1 2 -1
            Libc __recv_chk 5 WaitResource -1 2 -1
            Libc recvfrom 6 WaitResource -1 2 -1
            Libc recvmsg 3 WaitResource -1 -1 -1
            Libc send 4 WaitResource -1 2 -1
            Libc sendto 6 WaitResource -1 2 -1
            Libc sendmsg 3 WaitResource -1 -1 -1
            Libc accept 3 WaitResource -1 -1 -1
            Libc accept4 4 WaitResource -1 -1 -1
            Libc connect 3 WaitResource -1 -1 -1
            Libc poll 3 WaitResource -1 -1 -1
            Libc __poll_chk 4 WaitResource -1 -1 -1
            Libc ppoll 4 WaitResource -1 -1 -1
            Libc select 5 WaitResource -1 -1 -1
            Libc pselect 6 WaitResource -1 -1 -1
            Libc epoll_wait 4 WaitResource -1 -1 -1
            Libc epoll_pwait 5 WaitResource -1 -1 -1
            Libc wait 1 WaitResource -1 -1 -1
            Libc waitpid 3 WaitResource -1 -1 -1
            Libc waitid 4 WaitResource -1 -1 -1
            Libc wait4 4 WaitResource -1 -1 -1
            Libc pause 0 WaitResource -1 -1 -1
            Libc sigwait 2 WaitResource -1 -1 -1
            Libc sigtimedwait 3 WaitResource -1 -1 -1
            Libc sigwaitinfo 2 WaitResource -1 -1 -1
            Libc sigsuspend 1 WaitResource -1 -1 -1
            Libc nanosleep 2 Sleep -1 -1 -1
            Libc clock_nanosleep 4 Sleep -1 -1 -1
            Libc usleep 1 Sleep -1 -1 -1
            Libc sleep 1 Sleep -1 -1 -1
            Libc thrd_sleep 2 Sleep -1 -1 -1
            Libc pthread_mutex_lock 1 WaitLock -1 -1 -1
            Libc pthread_mutex_timedlock 2 WaitLock -1 -1 -1
            Libc pthread_rwlock_rdlock 1 WaitLock -1 -1 -1
            Libc pthread_rwlock_wrlock 1 WaitLock -1 -1 -1
            Libc sem_wait 1 WaitLock -1 -1 -1
            Libc sem_timedwait 2 WaitLock -1 -1 -1
            Libc pthread_cond_wait 2 WaitPartner -1 -1 -1
            Libc pthread_cond_timedwait 3 WaitPartner -1 -1 -1
            Libc pthread_cond_clockwait 4 WaitPartner -1 -1 -1
            Libc pthread_barrier_wait 1 WaitPartner -1 -1 -1
            Libc pthread_join 2 WaitPartner -1 -1 -1
            Libc pthread_timedjoin_np 3 WaitPartner -1 -1 -1
            Own MPI_Finalize 0 CollectiveSync -1 -1 -1
        }
    };
}

for_each_call!(table);

/// The id of the call named `name`.
pub const fn id_of(name: &str) -> CallId {
    let mut i = 0;
    while i < CALLS.len() {
        if same(CALLS[i].name, name) {
            return i as CallId + 1;
        }
        i += 1;
    }
    0
}

const fn same(a: &str, b: &str) -> bool {
    let (a, b) = (a.as_bytes(), b.as_bytes());
    if a.len() != b.len() {
        return false;
    }
    let mut i = 0;
    while i < a.len() {
        if a[i] != b[i] {
            return false;
        }
        i += 1;
    }
    true
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_name_their_calls_and_stay_below_code() {
        assert!(CALLS.len() < usize::from(STREAM), "ids would collide with the stream bit");
        assert!(u64::from(STREAM) * 2 <= FIRST_CODE_ADDRESS);
        for (i, entry) in CALLS.iter().enumerate() {
            assert_eq!(usize::from(id_of(entry.name)), i + 1, "{} is listed twice", entry.name);
            for word in [entry.communicator, entry.count, entry.datatype].into_iter().flatten() {
                assert!(word < entry.arity, "{} has no argument {word}", entry.name);
            }
        }
        assert!(call(0).is_none());
    }

    #[test]
    fn a_stream_is_waited_for() {
        assert_eq!(class(id_of("read")), Some(CallClass::Io));
        assert_eq!(class(id_of("read") | STREAM), Some(CallClass::WaitResource));
    }
}
