//! Segment: the memory that a process shares with its node's collector, one memfd per process.
//!
//! ```text
//! 0                Process          header: identity, clock anchor, settings for consumers
//! MODULES_OFFSET   [ModuleEntry]    loaded modules, appended, never moved; a file that is loaded
//!                                   at its former place gets its former entry
//! ADDRESSES_OFFSET [Address]        interned addresses by id
//! SCRIPTS_OFFSET   [ScriptFunction] functions of scripts
//! THREADS_OFFSET   [ThreadArea]     one per application thread: header, region slots, ring
//! ```
//!
//! The file is sparse: pages that are never written cost no memory. The producers are the process's
//! threads, each in its own area; the consumer is one collector thread, in this or in another
//! process. Every field that both sides access is atomic. Consumers must treat the content as
//! hostile: a process may die in mid-write.

use core::sync::atomic::{AtomicU8, AtomicU32, AtomicU64, Ordering};

use crate::doorbell::Doorbell;
use crate::increments::{EventEntry, MAX_EVENTS};
use crate::lock_waits::{LockWaitCounters, MAX_LOCK_WAITS};
use crate::teams::{MAX_REGIONS, MAX_TASKS, RegionCounters, TaskCounters};
use crate::truncation::Truncation;

/// First bytes of a segment.
pub const MAGIC: u64 = u64::from_le_bytes(*b"PLIMSOLL");

/// Maximum number of modules that a process can load during its life, counted per file and place.
/// The last entry stands for all later modules.
pub const MAX_MODULES: usize = 4096;
/// Maximum number of distinct addresses that a process can intern. Beyond it stacks are truncated
/// and counted.
pub const MAX_ADDRESSES: usize = 1 << 19;
/// Maximum number of functions of scripts that a process can name. Further ones are not shown.
pub const MAX_SCRIPT_FUNCTIONS: usize = 4096;
/// Maximum lengths of the name of a function of a script, and of the file with it, in bytes.
pub const MAX_SCRIPT_NAME: usize = 176;
/// See [`MAX_SCRIPT_NAME`].
pub const MAX_SCRIPT_FILE: usize = 320;
/// Maximum number of application threads at a time. Further threads are not sampled but counted.
pub const MAX_THREADS: usize = 512;
/// Number of entries of a thread's region table.
pub const MAX_SLOTS: usize = 256;
/// Number of entries of a thread's partner table. A power of two.
pub const MAX_PARTNERS: usize = 512;
/// Maximum length of a module path, in bytes.
pub const MAX_PATH: usize = 976;

/// Offset of the module table, in bytes.
pub const MODULES_OFFSET: usize = 1 << 12;
/// Offset of the address table, in bytes.
pub const ADDRESSES_OFFSET: usize = MODULES_OFFSET + MAX_MODULES * size_of::<ModuleEntry>();
/// Offset of the table of functions of scripts, in bytes.
pub const SCRIPTS_OFFSET: usize =
    (ADDRESSES_OFFSET + MAX_ADDRESSES * size_of::<Address>()).next_multiple_of(1 << 12);
/// Offset of the first thread area, in bytes.
pub const THREADS_OFFSET: usize =
    (SCRIPTS_OFFSET + MAX_SCRIPT_FUNCTIONS * size_of::<ScriptFunction>()).next_multiple_of(1 << 12);

/// Clock that triggers the samples.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ClockKind {
    /// perf task-clock: the thread's user CPU time.
    Cpu = 0,
    /// A POSIX timer on the thread's CPU clock, where perf events are refused.
    Timer = 1,
    /// A POSIX timer on CLOCK_MONOTONIC.
    Wall = 2,
}

impl ClockKind {
    /// Returns the kind with this number; [`ClockKind::Cpu`] for an unknown number.
    pub fn from_u32(value: u32) -> Self {
        match value {
            1 => Self::Timer,
            2 => Self::Wall,
            _ => Self::Cpu,
        }
    }
}

/// Header of the segment.
#[repr(C)]
pub struct Process {
    /// [`MAGIC`], written last when the segment is ready.
    pub magic: AtomicU64,
    /// [`crate::record::VERSION`].
    pub version: AtomicU32,
    /// Process id.
    pub pid: AtomicU32,
    /// Start of the process in clock ticks since boot (field 22 of /proc/pid/stat): with the pid,
    /// its identity.
    pub start_time: AtomicU64,
    /// Sampling period in nanoseconds.
    pub period_ns: AtomicU64,
    /// Sampling period in stamps.
    pub period_stamps: AtomicU64,
    /// Period that the timers in use can keep, in stamps: the sampling period, or the kernel's tick
    /// if that is longer.
    pub kept_period_stamps: AtomicU64,
    /// A [`ClockKind`].
    pub clock: AtomicU32,
    /// Bytes of each thread's ring: a power of two.
    pub ring_bytes: AtomicU32,
    /// Time stamp counter at the anchor.
    pub anchor_ticks: AtomicU64,
    /// CLOCK_MONOTONIC at the anchor, in nanoseconds.
    pub anchor_ns: AtomicU64,
    /// CLOCK_REALTIME at the anchor, in nanoseconds.
    pub anchor_realtime_ns: AtomicU64,
    /// Nanoseconds per 2^32 ticks, as measured at the start; readers refine it with a later anchor.
    pub ns_per_ticks_q32: AtomicU64,
    /// Stamp at which the observed run begins: return of MPI_Init, or the process's own start.
    pub begin_stamp: AtomicU64,
    /// Stamp at which the observed run ends (entry of MPI_Finalize, or the end of the process); 0
    /// until then.
    pub end_stamp: AtomicU64,
    /// Number of entries used in the module table.
    pub modules: AtomicU32,
    /// Number of entries used in the address table, including the reserved id 0.
    pub addresses: AtomicU32,
    /// Number of thread areas ever used.
    pub threads: AtomicU32,
    /// Number of application threads that are not sampled, or not to their end.
    pub unsampled_threads: AtomicU32,
    /// Reason why marks are disabled, the number of a
    /// `plimsoll_agent::marks::marks_disabled::MarksDisabled`; 0 while marks are enabled.
    pub marks_off: AtomicU32,
    /// User of the sampling signal for which sampling was disabled, the number of a
    /// `plimsoll_agent::observed_process::Aside`; 0 if none.
    pub stepped_aside: AtomicU32,
    /// Nonzero after the agent's code failed; nothing is measured from then on.
    pub failed: AtomicU32,
    /// Number of changes of the consumer. After each change, every thread describes its stack and
    /// slots anew, beginning with [`crate::record::Record::Lost`].
    pub reader: AtomicU32,
    /// Nonzero: the process is about to end without MPI_Finalize and waits for a report. The value
    /// is a code defined by the hooks.
    pub ending: AtomicU32,
    /// Progress of the report of this process's end: [`REPORT_BEGUN`] and [`REPORT_ENDED`].
    pub reported: AtomicU32,
    /// Nonzero: the report ended the run, but the process that announced its end still runs and
    /// reaches MPI_Finalize. Set before [`REPORT_ENDED`] in `reported`.
    pub outlived: AtomicU32,
    /// Index of the thread area of the thread that called MPI_Init (or of the initial thread).
    pub main_thread: AtomicU32,
    /// Nonzero in sampling-only mode: the application's calls are not measured.
    pub only_samples: AtomicU32,
    /// Device of the segment's file. Together with `inode`, the file's identity: a descriptor
    /// number that now refers to another file is not the segment's, even with equal content.
    pub device: AtomicU64,
    /// Inode of the segment's file.
    pub inode: AtomicU64,
    /// Doorbell that wakes the collector before its next poll: a ring fills, thread areas run
    /// short, or the process is about to end.
    pub bell: Doorbell,
    /// Number of the `unsampled_threads` without an area, because all areas were in use.
    pub unseen_threads: AtomicU32,
    /// Bits of [`crate::sync_id::unfollowed`] for what the process does not follow.
    pub unfollowed: AtomicU32,
    /// perf events that the threads count; unused entries come last.
    pub events: [EventEntry; MAX_EVENTS],
    /// Number of threads with events that are not counted, or are counted only in a part of the
    /// thread's life.
    pub uncounted_threads: AtomicU32,
    /// Number of functions of scripts that were numbered; it may exceed [`MAX_SCRIPT_FUNCTIONS`].
    pub script_functions: AtomicU32,
}

/// A loaded module.
#[repr(C)]
pub struct ModuleEntry {
    /// Load bias: runtime address minus address in the file.
    pub bias: AtomicU64,
    /// First runtime address of the executable segments.
    pub start: AtomicU64,
    /// One past the last runtime address of the executable segments.
    pub end: AtomicU64,
    /// Bytes used in `path`.
    pub path_bytes: AtomicU32,
    /// Bytes used in `build_id`.
    pub build_id_bytes: AtomicU32,
    pad: [AtomicU32; 2],
    /// GNU build-id.
    pub build_id: [AtomicU8; 20],
    /// Path as the loader knows it; the main program's path is resolved. Not necessarily UTF-8.
    pub path: [AtomicU8; MAX_PATH],
}

/// A function of a script that an interpreter executes.
#[repr(C)]
pub struct ScriptFunction {
    /// First line of the function.
    pub line: AtomicU32,
    /// Bytes used in `name`.
    pub name_bytes: AtomicU32,
    /// Bytes used in `file`.
    pub file_bytes: AtomicU32,
    pad: AtomicU32,
    /// Name, in UTF-8.
    pub name: [AtomicU8; MAX_SCRIPT_NAME],
    /// File as the interpreter knows it, in UTF-8.
    pub file: [AtomicU8; MAX_SCRIPT_FILE],
}

/// An interned address.
#[repr(C)]
pub struct Address {
    /// A return address, a program counter (innermost frames), a wrapped call's id, or a
    /// [`script_value`].
    pub value: AtomicU64,
    /// Index into the module table plus one; 0 for wrapped calls. For functions of scripts, the
    /// module with the interpreter.
    pub module: AtomicU32,
    /// [`ADDRESS_IS_LEAF`], [`ADDRESS_IS_CONSTRUCT`], [`ADDRESS_IS_DECLARED`].
    pub flags: AtomicU32,
}

/// Flag of an address that was a program counter: symbols are looked up at the address, not one
/// byte before it.
pub const ADDRESS_IS_LEAF: u32 = 1;

/// Flag of an address that stands for a parallel region or a task of OpenMP: the first one of an
/// outlined function, or one within the program's call of the runtime. The source line is looked
/// up, too.
pub const ADDRESS_IS_CONSTRUCT: u32 = 2;

/// Flag of an address that stands for a function that a rule declares to synchronise ranks: its
/// first one. In a stack, the address is treated like a wrapped call.
pub const ADDRESS_IS_DECLARED: u32 = 4;

/// First value of addresses that stand for functions of scripts: no code lies there.
const SCRIPT_VALUE: u64 = 1 << 61;
/// Bits of the index of a function of a script; its current line stands above.
const SCRIPT_INDEX_BITS: u32 = 16;
const _: () = assert!(MAX_SCRIPT_FUNCTIONS <= 1 << SCRIPT_INDEX_BITS);

/// Returns the value of the address that stands for a line of a function of a script, by the
/// function's index.
pub fn script_value(index: u32, line: u32) -> u64 {
    SCRIPT_VALUE | u64::from(line) << SCRIPT_INDEX_BITS | u64::from(index)
}

/// Returns the index of the function of a script that an address stands for, and the line in it;
/// `None` for code and wrapped calls.
pub fn script_place(value: u64) -> Option<(usize, u32)> {
    let place = value.checked_sub(SCRIPT_VALUE)?;
    let index = place as usize & ((1 << SCRIPT_INDEX_BITS) - 1);
    let line = u32::try_from(place >> SCRIPT_INDEX_BITS).ok()?;
    (index < MAX_SCRIPT_FUNCTIONS).then_some((index, line))
}

/// Flag in [`Process::reported`]: the collector evaluates the run for the report.
pub const REPORT_BEGUN: u32 = 1;

/// Flag in [`Process::reported`]: the report is made, or cannot be made.
pub const REPORT_ENDED: u32 = 2;

/// Life cycle of a thread area.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum ThreadState {
    /// The area was never used, or the collector has freed it.
    Free = 0,
    /// A live thread writes into the area.
    Live = 1,
    /// The thread has ended; the collector reads the rest and then frees the area.
    Ended = 2,
}

/// Counters and public state of one thread.
#[repr(C)]
pub struct Thread {
    /// A [`ThreadState`].
    pub state: AtomicU32,
    /// Kernel thread id.
    pub tid: AtomicU32,
    /// Address id of the thread's start routine; 0 for the initial thread.
    pub start_routine: AtomicU32,
    /// Number of threads that have used this area, so that the consumer notices a new thread.
    pub generation: AtomicU32,
    /// Total bytes written into the ring.
    pub head: AtomicU64,
    /// Total bytes read from the ring; written by the collector only.
    pub tail: AtomicU64,
    /// Slot of the open wrapped call, plus one; 0 if no call is open.
    pub open_slot: AtomicU32,
    /// The `plimsoll_calls::CallId` of the open call.
    pub open_call: AtomicU32,
    /// Stamp of the open call's entry.
    pub open_stamp: AtomicU64,
    /// Number of samples taken.
    pub samples: AtomicU64,
    /// Number of records lost because the ring was full.
    pub lost: AtomicU64,
    /// Numbers of truncated stacks, without their outer frames, by [`Truncation`].
    pub truncated: [AtomicU64; Truncation::COUNT],
    /// Number of return addresses marked.
    pub marks_planted: AtomicU64,
    /// Number of unwinds that reached the mark.
    pub marks_hit: AtomicU64,
    /// Number of unwinds that missed the mark and reached the outermost frame.
    pub marks_stale: AtomicU64,
    /// Number of shortened stacks that were compared with the whole stack.
    pub marks_verified: AtomicU64,
    /// Number of `marks_verified` stacks that differed.
    pub marks_mismatched: AtomicU64,
    /// Number of wrapped calls that returned.
    pub calls: AtomicU64,
    /// Number of MPI calls among `calls`.
    pub mpi_calls: AtomicU64,
    /// Time stamp counter ticks spent on the CPU in the agent's signal handler.
    pub handler_ticks: AtomicU64,
    /// Stamp of the last timed record. The ring does not yet cover the time since then.
    pub last_stamp: AtomicU64,
    /// Number of synchronisations of all ranks that have an index; equals the next index.
    pub syncs: AtomicU64,
    /// Index of the last recorded synchronisation of all ranks, plus one.
    pub synced: AtomicU64,
    /// Number of entries of the partner table in use.
    pub partners: AtomicU32,
    /// Number of entries of the table of parallel regions in use.
    pub regions: AtomicU32,
    /// Number of entries of the table of tasks in use.
    pub tasks: AtomicU32,
    /// Nonzero while an entry of the table of waits for locks is in use.
    pub lock_waits: AtomicU32,
    /// Number of instances of parallel regions that could not be measured.
    pub unmeasured_regions: AtomicU64,
    /// Stamp from which the thread is observed; 0: unknown.
    pub born: AtomicU64,
    /// Name of the call path that created the thread ([`crate::teams::PathKey`]); 0: unknown. The
    /// thread lies in this path until its records say otherwise.
    pub origin: AtomicU64,
}

impl Thread {
    /// Resets the counters of a run to zero.
    pub fn clear_counters(&self) {
        for counter in [
            &self.samples,
            &self.lost,
            &self.calls,
            &self.mpi_calls,
            &self.marks_planted,
            &self.marks_hit,
            &self.marks_stale,
            &self.marks_verified,
            &self.marks_mismatched,
            &self.handler_ticks,
            &self.unmeasured_regions,
        ]
        .into_iter()
        .chain(&self.truncated)
        {
            counter.store(0, Ordering::Relaxed);
        }
    }
}

/// One entry of a region table: totals of a wrapped call from one call path, since the slot's last
/// tally record. Durations are in time stamp counter ticks.
#[repr(C)]
pub struct SlotCounters {
    /// Number of calls.
    pub count: AtomicU64,
    /// Sum of durations, in time stamp counter ticks.
    pub sum: AtomicU64,
    /// Bytes moved. Polls move none: the sum of short times between them, in ticks
    /// ([`crate::record::Record::Tally`]).
    pub bytes: AtomicU64,
}

/// One entry of a partner table: messages between the thread's rank and a partner in calls from one
/// call path, since the last partner record. The agent's module `partner_table` fills the table.
#[repr(C)]
pub struct PartnerCounters {
    /// Slot of the call path plus one in the upper half, partner in the lower half. 0: unused.
    pub key: AtomicU64,
    /// Messages sent to the partner.
    pub sent: AtomicU64,
    /// Bytes of these messages.
    pub bytes: AtomicU64,
    /// Messages received from the partner.
    pub received: AtomicU64,
    /// Time in calls that completed these messages, in time stamp counter ticks.
    pub waited: AtomicU64,
}

/// A thread's area in the segment; the thread's ring follows directly.
#[repr(C, align(4096))]
pub struct ThreadArea {
    /// Counters and state.
    pub thread: Thread,
    /// The region table's counters.
    pub slots: [SlotCounters; MAX_SLOTS],
    /// The partner table.
    pub partners: [PartnerCounters; MAX_PARTNERS],
    /// The table of parallel regions.
    pub regions: [RegionCounters; MAX_REGIONS],
    /// The table of tasks.
    pub tasks: [TaskCounters; MAX_TASKS],
    /// The table of waits for locks.
    pub lock_waits: [LockWaitCounters; MAX_LOCK_WAITS],
}

/// Returns the size of a thread area with its ring, in bytes.
pub const fn thread_area_bytes(ring_bytes: usize) -> usize {
    size_of::<ThreadArea>() + ring_bytes
}

/// Returns the offset of a thread's area in the segment, in bytes.
pub const fn thread_offset(index: usize, ring_bytes: usize) -> usize {
    THREADS_OFFSET + index * thread_area_bytes(ring_bytes)
}

/// Returns the size of a segment with all thread areas, in bytes.
pub const fn segment_bytes(ring_bytes: usize) -> usize {
    thread_offset(MAX_THREADS, ring_bytes)
}

/// Returns the number of whole thread areas in a segment of `bytes` bytes, at most [`MAX_THREADS`].
pub const fn areas_in(bytes: u64, ring_bytes: usize) -> usize {
    let areas = bytes.saturating_sub(THREADS_OFFSET as u64) / thread_area_bytes(ring_bytes) as u64;
    if areas < MAX_THREADS as u64 { areas as usize } else { MAX_THREADS }
}

/// Returns the ring size in bytes for a sampling period: room for about 30 s of samples of 32
/// bytes, at least 256 KiB, at most 8 MiB.
pub const fn ring_bytes_for(period_ns: u64) -> usize {
    let samples = 30_000_000_000 / if period_ns == 0 { 1 } else { period_ns };
    let wanted = samples.saturating_mul(32);
    let bounded = if wanted < 1 << 18 {
        1 << 18
    } else if wanted > 1 << 23 {
        1 << 23
    } else {
        wanted
    };
    (bounded as usize).next_power_of_two()
}

const _: () = {
    assert!(size_of::<Process>() <= MODULES_OFFSET);
    assert!(size_of::<ModuleEntry>() == 1040);
    assert!(size_of::<ScriptFunction>() == 512);
    assert!(size_of::<ThreadArea>().is_multiple_of(4096));
};

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_areas_are_in_a_segment() {
        let ring_bytes = ring_bytes_for(4_000_000);
        let whole = |areas: usize| thread_offset(areas, ring_bytes) as u64;
        let areas = |bytes: u64| areas_in(bytes, ring_bytes);
        assert_eq!([areas(0), areas(whole(0)), areas(whole(1) - 1)], [0, 0, 0]);
        assert_eq!([areas(whole(1)), areas(whole(3) - 1)], [1, 2]);
        assert_eq!([areas(whole(MAX_THREADS)), areas(u64::MAX)], [MAX_THREADS, MAX_THREADS]);
    }

    #[test]
    fn rings_hold_half_a_minute() {
        for period_ns in [250_000, 1_000_000, 4_000_000] {
            let bytes = ring_bytes_for(period_ns) as u64;
            assert!(bytes * period_ns / 32 >= 30_000_000_000, "{bytes} bytes at {period_ns} ns");
        }
        assert_eq!(ring_bytes_for(1), 1 << 23);
        assert_eq!(ring_bytes_for(u64::MAX), 1 << 18);
    }
}
