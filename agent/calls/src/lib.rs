//! The calls that Plimsoll wraps: one table, from which the wrappers, the labels and the docs come.
//!
//! Each entry names the symbol, the number of machine words it takes (all arguments travel as
//! words, so one wrapper serves every MPI ABI), its class, and where the communicator and the
//! message size stand among its arguments. `analysis/CALLS.md` shows it with its labels. An MPI function is
//! one call, by whichever of its symbols it is called ([`Symbol`]).
//!
//! In a recorded stack a wrapped call is a frame whose "address" is its [`CallId`]: no code lies
//! below [`FIRST_CODE_ADDRESS`], so the two cannot be confused.

#![forbid(unsafe_code)]

pub mod messages;
mod recent;
pub mod requests;
mod symbols;

pub use symbols::{Convention, LONGEST_SYMBOL, SYMBOLS, Symbol};

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

impl CallClass {
    /// Whether the caller's core is free for others all the time that such a call takes.
    pub fn leaves_core(self) -> bool {
        matches!(self, Self::Sleep | Self::WaitLock | Self::WaitPartner | Self::WaitResource)
    }
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
    /// The symbol in C.
    pub name: &'static str,
    /// Who provides it.
    pub provider: Provider,
    /// What it is for.
    pub class: CallClass,
    /// Number of arguments in C, in machine words.
    pub arity: u8,
    /// How many of them are text, whose lengths Fortran passes as hidden words.
    pub text: u8,
    /// Index of the communicator among the arguments.
    pub communicator: Option<u8>,
    /// Index of the element count among the arguments.
    pub count: Option<u8>,
    /// What that count holds.
    pub extent: Extent,
    /// Index of the datatype among the arguments; without it the count is in bytes.
    pub datatype: Option<u8>,
    /// Index of the buffer that, being MPI_IN_PLACE, voids count and datatype.
    pub in_place: Option<u8>,
    /// The name is that of the variant with large counts.
    pub large_count: bool,
    /// The count is an MPI_Count instead of an int: in these variants, and in partitioned communication.
    pub is_mpi_count: bool,
}

/// What the count of a call holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All elements.
    Whole,
    /// The elements for each rank of the communicator.
    EachRank,
    /// The address of the elements by rank.
    ByRank,
    /// The same, and the datatype is the address of the datatypes by rank.
    ByRankAndType,
}

/// Which calls have other counts than [`Extent::Whole`]: by their names without what makes them nonblocking.
const EXTENTS: [(&str, &str, Extent); 6] = [
    ("MPI_Allgather", "MPI_Iallgather", Extent::EachRank),
    ("MPI_Alltoall", "MPI_Ialltoall", Extent::EachRank),
    ("MPI_Reduce_scatter_block", "MPI_Ireduce_scatter_block", Extent::EachRank),
    ("MPI_Allgatherv", "MPI_Iallgatherv", Extent::ByRank),
    ("MPI_Alltoallv", "MPI_Ialltoallv", Extent::ByRank),
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

macro_rules! word {
    (_) => {
        None
    };
    ($word:literal) => {
        Some($word)
    };
}

macro_rules! row {
    ($provider:ident $large:literal $name:expr, $plain:expr; $class:ident $words:literal $text:literal
     $comm:tt $count:tt $datatype:tt $in_place:tt) => {
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
    ) => {
        /// All wrapped calls.
        pub const CALLS: &[Call] = &[
            $(row!(Libc false stringify!($libc), stringify!($libc); $l1 $l2 $l3 $l4 $l5 $l6 $l7),)*
            $(row!(Own false stringify!($own), stringify!($own); $o1 $o2 $o3 $o4 $o5 $o6 $o7),)*
            $(row!(Mpi false stringify!($mpi), stringify!($mpi); $m1 $m2 $m3 $m4 $m5 $m6 $m7),)*
            $(row!(Mpi false stringify!($twin), stringify!($twin); $t1 $t2 $t3 $t4 $t5 $t6 $t7),)*
            $(row!(Mpi true concat!(stringify!($twin), "_c"), stringify!($twin); $t1 $t2 $t3 $t4 $t5 $t6 $t7),)*
        ];
    };
}

include!("table.rs");

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
            let words = [entry.communicator, entry.count, entry.datatype, entry.in_place];
            for word in words.into_iter().flatten() {
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
