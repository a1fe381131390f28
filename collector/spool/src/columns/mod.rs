//! The records of one thread as columns: values that look alike stand together, so that each column
//! gets an entropy code of its own (`frame.rs`).
//!
//! A payload can be read alone. Its stacks are differences to a current stack, as everywhere
//! ([`plimsoll_wire::record`]), and are passed through unchanged. A payload may begin with a
//! prelude, records that restore the stack and the slots, so that a reader can continue after a
//! lost payload.
//!
//! # Layout
//! All integers are LEB128.
//!
//! | what | meaning |
//! |---|---|
//! | records | how many |
//! | prelude | how many of them, at the beginning, only repeat what the payload before has said |
//! | merged | samples that were merged into these records (`thinning.rs`) |
//! | columns | bit i is set if column i is there, that is not empty |
//! | lengths | of each column that is there, in bytes |
//! | bytes | of each column that is there |
//!
//! The first column has a byte for each record, its *shape*: kind, optional fields, and for a tick
//! the numbers of dropped and added frames if they are small. The shape determines the other
//! columns with a value of the record. Differences are modulo 2^64 and folded to small numbers for
//! either sign, so that every value is exact, including those that no thread ever writes.
//!
//! # What was tried
//! Bytes per tick with 250 ticks a frame (a second at the default period), 1000, and 60000, of the
//! computing thread in `tests/programs.rs`; measured in a prototype, at zstd level 1 by default:
//!
//! | ids of frames as | 250 | 1000 | 60000 |
//! |---|---|---|---|
//! | ids, in one column; all columns in one block of zstd's (level 3) | 3.33 | 2.92 | 2.37 |
//! | ids, innermost frames apart from outer ones; a block for each column, as below | 3.05 | 2.62 |
//! 2.30 |
//! | differences to the id before (level 3) | 3.30 | 2.82 | 2.55 |
//! | places in a list moved to the front, ids between where they are new | 2.99 | 2.46 | 2.05 |
//! | places among the latest successors of the frame outside (level 3) | 3.73 | 2.97 | 2.07 |
//! | places in a list of all ids, which comes first, in ascending order | 3.02 | 2.62 | 2.24 |
//! | the same, moved to the front | **2.80** | **2.42** | **2.06** |
//!
//! zstd's levels 3, 6 and 12 give 2.92, 2.87 and 2.74 instead of 2.80 for 250 ticks, and 2.17, 2.09
//! and 2.12 instead of 2.06 for 60000: the rest is noise, in which a longer search mostly finds
//! matches that cost more than they save. Separate columns for the first bytes of long integers
//! save 1 % of a communicating thread (4 % with 60000 records), shapes for samples like those of
//! ticks 2 % of a halved stream: too little.
//!
//! The present format, file and index included, takes 2.96, 2.49 and 2.22 bytes for that thread's
//! ticks; 5.56, 4.91 and 4.09 for the records of the communicating thread.

mod builder;
mod ids;
mod records;

pub use builder::Builder;
pub use records::Records;

/// Ticks have shapes below this: frames dropped times [`TICK_ADDED`] + 1 plus frames added.
const TICKS: u8 = (TICK_DROPPED as u8 + 1) * (TICK_ADDED as u8 + 1);
/// From this number of dropped and of added frames on, the rest of a tick's stand in columns.
const TICK_DROPPED: u32 = 7;
const TICK_ADDED: u32 = 13;

/// First shapes of the other kinds: a kind's flags are added.
const SAMPLE: u8 = TICKS;
const EXIT: u8 = SAMPLE + 16;
const TALLY: u8 = EXIT + 16;
const PAUSE: u8 = TALLY + 2;
const RESUME: u8 = PAUSE + 2;
const END: u8 = RESUME + 2;
const SLOT: u8 = END + 2;
const LOST: u8 = SLOT + 1;
/// Shape of exits that synchronised a subgroup; a flag marks exits that synchronised all ranks.
const PART_EXIT: u8 = LOST + 1;
/// Messages of a partner.
const PARTNER: u8 = PART_EXIT + 8;
/// Increments of perf events: before a wrapped call, and in it.
const COUNTS: u8 = PARTNER + 1;
const COUNTS_IN_CALL: u8 = COUNTS + 1;
/// Exemplary messages, received and sent.
const MESSAGE: u8 = COUNTS_IN_CALL + 1;
const SENT_MESSAGE: u8 = MESSAGE + 1;
/// Parallel regions, their shares, the call path that the stack lies in, and tasks.
const REGION: u8 = SENT_MESSAGE + 1;
const SHARE: u8 = REGION + 1;
const GRAFT: u8 = SHARE + 1;
const TASK: u8 = GRAFT + 1;
/// Waits for locks by holder.
const LOCK_WAIT: u8 = TASK + 1;
/// Durations of tasks and regions.
const LENGTH: u8 = LOCK_WAIT + 1;

/// The stamp is absolute: all timed kinds but ticks.
const RESYNC: u8 = 1;
/// Bytes were moved: exits and tallies. (Tallies have no stamp.)
const EXIT_BYTES: u8 = 2;
const TALLY_BYTES: u8 = 1;
/// Off-CPU parts are known: samples and exits.
const OFF_CPU: u8 = 4;
/// Flag of exits: all ranks were synchronised.
const SYNC: u8 = 8;
/// A wrapped call is open: samples.
const IN_REGION: u8 = 2;
/// Outer frames are missing: samples.
const TRUNCATED: u8 = 8;

/// Nanoseconds of off-CPU parts are multiples of two to this: rotated right by it, they are small.
const OFF_CPU_SHIFT: u32 = 6;

/// The columns, in the order in which they stand.
#[derive(Clone, Copy)]
enum Column {
    /// One byte a record.
    Shapes,
    /// Delays of ticks, one signed byte each.
    Delays,
    /// Frames dropped, of samples and slots; what a tick's shape cannot say.
    Dropped,
    /// Numbers of added frames.
    Added,
    /// Innermost new frames of samples and ticks: places in the list of [`Column::LeafIds`].
    Leaves,
    /// All other new frames: places in the list of [`Column::InnerIds`].
    Inner,
    /// The ids of innermost frames, ascending, as differences.
    LeafIds,
    /// The ids of other frames, ascending, as differences.
    InnerIds,
    /// Differential stamps of samples, less that of the previous sample; of pauses, resumptions and
    /// ends.
    Stamps,
    /// Absolute stamps.
    Resyncs,
    /// Time for which the wrapped call of a sample has been open.
    Entered,
    /// Off-CPU parts: on a core.
    Cpu,
    /// Off-CPU parts: waiting for one.
    RunDelay,
    /// Slots of exits.
    ExitSlots,
    /// Frames kept by exits.
    Kept,
    /// Durations of exits.
    Durations,
    /// Differential stamps of exits, less the duration: the time before the call.
    Before,
    /// Bytes moved by exits.
    ExitBytes,
    /// Indices of synchronisations of all ranks, as differences to the one before.
    Syncs,
    /// Slots that are announced.
    Announced,
    /// Slots of tallies, as differences to the one before.
    TallySlots,
    /// Counts of tallies.
    Counts,
    /// Sums of their durations.
    Sums,
    /// Bytes moved by tallies.
    TallyBytes,
    /// Numbers of lost records.
    Lost,
    /// Indices of synchronisations of parts, as differences to the one before of any part.
    PartSyncs,
    /// Names of these parts.
    PartNames,
    /// Numbers of ranks of subgroups.
    PartRanks,
    /// Messages of partners: all numbers of such a record, one behind the other.
    Partners,
    /// Increments of perf events: how many numbers follow, and these.
    Events,
    /// Exemplary messages: all numbers of such a record, one after the other.
    Messages,
    /// Parallel regions, their shares, tasks, and names of call paths that stacks lie in: all
    /// numbers of such a record, one after the other.
    Regions,
}

/// Number of columns.
const COLUMNS: usize = Column::Regions as usize + 1;
const _: () = assert!(COLUMNS <= 32);
