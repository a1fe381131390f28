//! The table of calls that Plimsoll wraps: MPI functions, blocking functions of the C library, and
//! functions of GCC's OpenMP runtime (libgomp).
//!
//! [`CALLS`] is the table; [`id_of`] finds a call by its C name, [`call`] and [`class`] look up a
//! recorded [`CallId`]. The preloaded library generates one wrapper for each [`Symbol`] of each
//! call, the collector names the frames of wrapped calls, the analysis derives labels from their
//! [`CallClass`], and `analysis/CALLS.md` shows the table with these labels.
//!
//! ```
//! use plimsoll_calls::{CallClass, ON_RESOURCE, call, class, id_of};
//!
//! let read = id_of("read");
//! assert_eq!(call(read).map(|call| call.name), Some("read"));
//! assert_eq!(class(read), Some(CallClass::Io));
//! // A read of a socket waits for a partner.
//! assert_eq!(class(read | ON_RESOURCE), Some(CallClass::WaitResource));
//! ```
//!
//! # Design constraints
//! - All arguments are machine words, so that one wrapper serves every MPI ABI: an entry gives
//!   their number, and the indexes of communicator, count and datatype.
//! - An MPI function is one call in every language: C, `mpif.h` and `mpi_f08` have different
//!   symbols, but the same [`CallId`].
//! - A [`CallId`] fits where an address does: in a recorded stack, the address of a wrapped call's
//!   frame is its id. No code lies below [`FIRST_CODE_ADDRESS`], so the two cannot be confused.
//! - The table is constant data and depends on no other crate, because a build script reads it,
//!   too.

#![forbid(unsafe_code)]

pub mod messages;
mod recent;
pub mod requests;
mod symbols;

pub use symbols::{Convention, MAX_SYMBOL_BYTES, RUNTIME_SYMBOLS, RuntimeSymbol, SYMBOLS, Symbol};

/// Lowest address of code; an "address" below it is a [`CallId`].
pub const FIRST_CODE_ADDRESS: u64 = 4096;

/// Bit of a [`CallId`]: the descriptor of a read or write is a socket, pipe or terminal, so that
/// the call waits for a resource outside of the process and not for a file.
pub const ON_RESOURCE: u16 = 0x800;

/// Calls on streams of the C library.
pub const ON_STREAMS: [CallId; 8] = [
    id_of("fread"),
    id_of("__fread_chk"),
    id_of("fwrite"),
    id_of("fgets"),
    id_of("__fgets_chk"),
    id_of("__getdelim"),
    id_of("fflush"),
    id_of("fclose"),
];

/// Maximum time between two polls of a polling loop, in nanoseconds. A longer time between them may
/// be work.
pub const MAX_POLL_GAP_NS: u64 = 5_000;

/// Purpose of a call, from which the analysis derives the label of its contexts (PPoPP20, 5.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum CallClass {
    /// A collective that no rank leaves before all ranks have entered it.
    CollectiveSync,
    /// Any other MPI call that communicates.
    Communication,
    /// An MPI call that polls for progress and returns at once.
    Polling,
    /// An MPI file operation, or a read or write of a file.
    Io,
    /// Waiting for a socket, a pipe or an event.
    WaitResource,
    /// Waiting for a lock.
    WaitLock,
    /// Waiting for another thread.
    WaitPartner,
    /// A sleep that the program asks for, or a wait for a process that it has started; it counts as
    /// work, off the CPU.
    Sleep,
    /// A parallel region of OpenMP. Only the wait of the thread that made the region for the end of
    /// the others' shares is time of the call.
    Region,
    /// Waiting for the other threads of a team, or for tasks, in OpenMP.
    TeamWait,
    /// Waiting for a critical or ordered section or a lock of OpenMP.
    TeamLock,
    /// Creating a task of OpenMP: overhead of the runtime.
    TaskCreation,
    /// Creating a thread. Calls are counted and not timed.
    ThreadCreation,
}

impl CallClass {
    /// Returns whether the calling thread is off its core during the whole call.
    pub fn leaves_core(self) -> bool {
        matches!(self, Self::Sleep | Self::WaitLock | Self::WaitPartner | Self::WaitResource)
    }
}

/// Library that provides the call.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Provider {
    /// The MPI library.
    Mpi,
    /// The C library.
    Libc,
    /// The MPI library, behind a hook of Plimsoll that does more than measure.
    Own,
    /// The OpenMP runtime of GCC. Calls are redirected to the wrappers: these are not exported.
    Gomp,
    /// An OpenMP runtime that reports its constructs to a tool (OMPT): LLVM's and its relatives. No
    /// symbol belongs to such a call.
    Ompt,
}

impl Provider {
    /// Whether the call belongs to MPI.
    pub const fn is_mpi(self) -> bool {
        matches!(self, Self::Mpi | Self::Own)
    }
}

/// One wrapped call.
#[derive(Clone, Copy, Debug)]
pub struct Call {
    /// The symbol in C.
    pub name: &'static str,
    /// Library that provides it.
    pub provider: Provider,
    /// Purpose.
    pub class: CallClass,
    /// Number of arguments in C, in machine words.
    pub arity: u8,
    /// Number of arguments that are text: Fortran passes the length of each as a hidden word.
    pub text: u8,
    /// Index of the communicator among the arguments; `None` if the call has none.
    pub communicator: Option<u8>,
    /// Index of the element count among the arguments; `None` if no argument gives the size.
    pub count: Option<u8>,
    /// Meaning of `count`.
    pub extent: Extent,
    /// Index of the datatype among the arguments; `None`: `count` is in bytes.
    pub datatype: Option<u8>,
    /// Index of a buffer: `count` and `datatype` are ignored if it is MPI_IN_PLACE.
    pub in_place: Option<u8>,
    /// The name is that of the variant with large counts (`_c`; MPI-4.1, 2.5.8).
    pub large_count: bool,
    /// Whether `count` is an MPI_Count instead of an int: in `_c` variants and in partitioned
    /// communication.
    pub is_mpi_count: bool,
}

/// Meaning of the count among the arguments of a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// The number of all elements.
    Whole,
    /// The number of elements for each rank of the communicator.
    EachRank,
    /// The address of an array: the number of elements by rank.
    ByRank,
    /// As [`Extent::ByRank`], for what the rank receives. Arguments in the same order describe what
    /// the rank sends, [`SENT_WORDS_BEFORE`] words before these.
    ByRankBothWays,
    /// As [`Extent::ByRankBothWays`], and the datatype is the address of an array of datatypes by
    /// rank.
    ByRankAndType,
}

/// Distance from an argument that describes received blocks to the argument that describes sent
/// ones, in words: buffer, counts, displacements and datatype (MPI-4.1, 6.8).
pub const SENT_WORDS_BEFORE: u8 = 4;

/// Calls with another extent than [`Extent::Whole`]: blocking name, nonblocking name, extent.
const EXTENTS: [(&str, &str, Extent); 6] = [
    ("MPI_Allgather", "MPI_Iallgather", Extent::EachRank),
    ("MPI_Alltoall", "MPI_Ialltoall", Extent::EachRank),
    ("MPI_Reduce_scatter_block", "MPI_Ireduce_scatter_block", Extent::EachRank),
    ("MPI_Allgatherv", "MPI_Iallgatherv", Extent::ByRank),
    ("MPI_Alltoallv", "MPI_Ialltoallv", Extent::ByRankBothWays),
    ("MPI_Reduce_scatter", "MPI_Ireduce_scatter", Extent::ByRank),
];

const fn extent_of(name: &str) -> Extent {
    if same(name, "MPI_Alltoallw") || same(name, "MPI_Ialltoallw") {
        return Extent::ByRankAndType;
    }
    let mut at = 0;
    while at < EXTENTS.len() {
        let (blocking, nonblocking, extent) = EXTENTS[at];
        if same(name, blocking) || same(name, nonblocking) {
            return extent;
        }
        at += 1;
    }
    Extent::Whole
}

/// Index into [`CALLS`] plus one, possibly with the bit [`ON_RESOURCE`]; 0 is no call.
pub type CallId = u16;

/// Returns the entry of a recorded call; `None` for an id that is not in the table.
pub fn call(id: CallId) -> Option<&'static Call> {
    CALLS.get(usize::from(id & !ON_RESOURCE).checked_sub(1)?)
}

/// Returns the class of a recorded call. With the bit [`ON_RESOURCE`] a call on a stream is taken
/// to wait for a command that the program has started by popen, any other for a resource.
pub fn class(id: CallId) -> Option<CallClass> {
    let call = call(id)?;
    Some(match id & ON_RESOURCE {
        0 => call.class,
        _ if ON_STREAMS.contains(&(id & !ON_RESOURCE)) => CallClass::Sleep,
        _ => CallClass::WaitResource,
    })
}

macro_rules! word {
    (_) => {
        None
    };
    ($word:literal) => {
        Some($word)
    };
}

macro_rules! row {
    ($provider:ident $large:literal $name:expr, $plain:expr; $class:ident $words:literal
     $text:literal $comm:tt $count:tt $datatype:tt $in_place:tt) => {
        Call {
            name: $name,
            provider: Provider::$provider,
            class: CallClass::$class,
            arity: $words,
            text: $text,
            communicator: word!($comm),
            count: word!($count),
            extent: extent_of($plain),
            datatype: word!($datatype),
            in_place: word!($in_place),
            large_count: $large,
            is_mpi_count: $large || same($name, "MPI_Psend_init") || same($name, "MPI_Precv_init"),
        }
    };
}

macro_rules! table {
    (
        large_count { $($twin:ident $t1:ident $t2:tt $t3:tt $t4:tt $t5:tt $t6:tt $t7:tt)* }
        mpi { $($mpi:ident $m1:ident $m2:tt $m3:tt $m4:tt $m5:tt $m6:tt $m7:tt)* }
        own { $($own:ident $o1:ident $o2:tt $o3:tt $o4:tt $o5:tt $o6:tt $o7:tt)* }
        libc { $($libc:ident $l1:ident $l2:tt $l3:tt $l4:tt $l5:tt $l6:tt $l7:tt)* }
        gomp { $($gomp:ident $g1:ident $g2:tt $g3:tt $g4:tt $g5:tt $g6:tt $g7:tt)* }
        ompt { $($ompt:ident $p1:ident $p2:tt $p3:tt $p4:tt $p5:tt $p6:tt $p7:tt)* }
    ) => {
        /// All wrapped calls.
        // A constant would be copied into each crate that uses it, and relocated in each process.
        pub static CALLS: &[Call] = &[
            $(row!(Libc false stringify!($libc), stringify!($libc); $l1 $l2 $l3 $l4 $l5 $l6 $l7),)*
            $(row!(Own false stringify!($own), stringify!($own); $o1 $o2 $o3 $o4 $o5 $o6 $o7),)*
            $(row!(Mpi false stringify!($mpi), stringify!($mpi); $m1 $m2 $m3 $m4 $m5 $m6 $m7),)*
            $(row!(Mpi false stringify!($twin), stringify!($twin); $t1 $t2 $t3 $t4 $t5 $t6 $t7),)*
            $(row!(Mpi true concat!(stringify!($twin), "_c"), stringify!($twin);
                   $t1 $t2 $t3 $t4 $t5 $t6 $t7),)*
            $(row!(Gomp false stringify!($gomp), stringify!($gomp); $g1 $g2 $g3 $g4 $g5 $g6 $g7),)*
            $(row!(Ompt false stringify!($ompt), stringify!($ompt); $p1 $p2 $p3 $p4 $p5 $p6 $p7),)*
        ];
    };
}

include!("table.rs");

/// Id of the call that creates a thread. The preloaded library has a hook of its own for this call.
pub const CREATE_THREAD: CallId = id_of("pthread_create");

/// Id of the pseudo call in which a thread of an OpenMP pool waits between its shares of parallel
/// regions. No symbol belongs to it.
pub const OPENMP_IDLE: CallId = id_of("OpenMP_idle");

/// Returns the id of the call with this C name; 0 if the table has none.
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
        assert!(CALLS.len() < usize::from(ON_RESOURCE), "ids would collide with the bit");
        assert!(u64::from(ON_RESOURCE) * 2 <= FIRST_CODE_ADDRESS);
        for (i, entry) in CALLS.iter().enumerate() {
            assert_eq!(usize::from(id_of(entry.name)), i + 1, "{} is listed twice", entry.name);
            let words = [entry.communicator, entry.count, entry.datatype, entry.in_place];
            for word in words.into_iter().flatten() {
                assert!(word < entry.arity, "{} has no argument {word}", entry.name);
            }
        }
        assert!(call(0).is_none());
    }

    #[test]
    fn a_socket_pipe_or_terminal_is_waited_for() {
        assert_eq!(class(id_of("read")), Some(CallClass::Io));
        assert_eq!(class(id_of("read") | ON_RESOURCE), Some(CallClass::WaitResource));
        assert_eq!(class(id_of("fgets")), Some(CallClass::Io));
        assert_eq!(class(id_of("fgets") | ON_RESOURCE), Some(CallClass::Sleep), "of a command");
    }
}
