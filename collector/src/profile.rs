//! The profile of a process: its run as a tree of calling contexts, with the time of each context
//! in each phase.
//!
//! Times are nanoseconds of wall time on the thread. Nothing here knows ranks or MPI: phases are
//! delimited by the global synchronisations that the records name.

pub use crate::length_distribution::LengthDistribution;
pub use crate::loop_profile::{LoopCluster, LoopInstance, LoopProfile, LoopSlice};
pub use crate::openmp_profile::{
    LockWaitProfile, MAX_SHARES, OpenMpProfile, RegionProfile, ShareProfile, TaskProfile,
};
pub use crate::thread_profile::{
    Aggregation, LocationKind, SiblingThreads, ThreadLocation, ThreadProfile, ThreadStatistics,
};
pub use plimsoll_wire::increments::MAX_EVENTS;
pub use plimsoll_wire::record::{OTHER_PARTNERS, UNKNOWN_PARTNER};
pub use plimsoll_wire::sync_id::level as instance_level;

pub use crate::exemplars::level_of as message_level;
use std::collections::BTreeMap;

use plimsoll_agent::channels::{TAG_CLASSES, stride};
use plimsoll_wire::truncation::Truncation;
use serde::{Deserialize, Serialize};

use plimsoll_trees as clusters;

/// Kind of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum FrameKind {
    /// A procedure.
    Function,
    /// A loop inside the procedure that holds it.
    Loop,
    /// A procedure that the compiler inlined.
    Inlined,
    /// A call of the MPI library, by the name that the program used.
    Mpi,
    /// A source line.
    Line,
}

/// A frame of a call path, in the user's terms.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Frame {
    /// Kind of the frame.
    pub kind: FrameKind,
    /// Demangled name without parameters and return type; without symbols `module+0x1234`.
    pub function: String,
    /// Source file; `None` without debug information.
    pub file: Option<String>,
    /// Source line: of the begin of a loop or of a function of a script, or of the call of an
    /// inlined procedure or of MPI in its caller; `None` for other frames and without debug
    /// information.
    pub line: Option<u32>,
    /// Begin of a loop without a source line, in bytes from the begin of its function.
    /// Distinguishes it from other loops of that function.
    pub offset: Option<u64>,
    /// File name of the module that holds the code.
    pub module: String,
    /// Id of a wrapped call ([`plimsoll_calls`]); `None` for all other frames.
    pub call: Option<u16>,
}

/// Runtimes that start the program's threads and let them wait for each other, by the beginning of
/// the file name: GNU, LLVM and Intel OpenMP.
const THREAD_RUNTIMES: &[&str] = &["libgomp.so", "libomp.so", "libomp-", "libomp5", "libiomp5.so"];

/// Functions in which the threads of a pool look for work, often without sleeping: OpenBLAS. Their
/// own time is waiting; what they call is work.
const POOL_LOOPS: &[&str] = &["blas_thread_server"];

/// Language libraries, by the beginning of the file name.
const LANGUAGE_MODULES: &[&str] = &[
    "libstdc++",
    "libc++",
    "libgcc_s",
    "libgfortran",
    "libquadmath",
    "libflang",
    "libFortran",
    "libifcore",
    "libifport",
    "libimf",
    "libintlc",
    "libirc",
    "libsvml",
];

/// Beginnings of names in the language libraries with code that is compiled into the program:
/// namespaces, and libstdc++'s layer above the C library's threads.
const LANGUAGE_NAMES: &[&str] =
    &["std::", "__gnu_cxx::", "__gthread_", "__pthread_once", "core::", "alloc::"];

impl Frame {
    /// Returns a frame without a place in the source, and of no wrapped call.
    pub fn new(kind: FrameKind, function: impl Into<String>, module: impl Into<String>) -> Self {
        let (function, module) = (function.into(), module.into());
        Self { kind, function, file: None, line: None, offset: None, module, call: None }
    }

    /// Returns whether the threads of a pool look for work in the function.
    pub fn is_pool_loop(&self) -> bool {
        POOL_LOOPS.contains(&self.function.as_str())
    }

    /// Returns whether the function gives the core to other threads.
    pub fn yields(&self) -> bool {
        self.function.trim_start_matches('_') == "sched_yield"
    }

    /// Returns whether the code belongs to a runtime that starts the program's threads.
    pub fn is_of_thread_runtime(&self) -> bool {
        THREAD_RUNTIMES.iter().any(|beginning| self.module.starts_with(beginning))
    }

    /// Returns whether the code belongs to a language library, or is compiled into the program from
    /// one. It is never named as a cause, not even if the outermost function calls it.
    pub fn is_of_language(&self) -> bool {
        let begins = |name: &str, known: &[&str]| known.iter().any(|known| name.starts_with(known));
        // Methods of Rust traits are written `<Type as Trait>::method`.
        let name = self.function.trim_start_matches('<');
        begins(&self.module, LANGUAGE_MODULES) || begins(name, LANGUAGE_NAMES)
    }
}

/// Index of a node in [`ContextTree::nodes`].
pub type NodeId = u32;

/// One calling context.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Node {
    /// The context that called this one; `None` at the outermost frame.
    pub parent: Option<NodeId>,
    /// Index into [`ContextTree::frames`].
    pub frame: u32,
    /// Call site of an MPI call, or of a call that makes a parallel region: offset of the return
    /// address in its module. Distinguishes several call sites in one function. 0 for all other
    /// frames.
    pub site: u64,
}

/// Calling contexts; a node's index is larger than its parent's.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ContextTree {
    /// Distinct frames.
    pub frames: Vec<Frame>,
    /// Contexts.
    pub nodes: Vec<Node>,
}

impl ContextTree {
    /// Returns the outermost context around each context, by node id.
    pub fn roots(&self) -> Vec<NodeId> {
        let mut roots: Vec<NodeId> = Vec::with_capacity(self.nodes.len());
        for (node, id) in self.nodes.iter().zip(0..) {
            roots.push(node.parent.map_or(id, |parent| roots[parent as usize]));
        }
        roots
    }

    /// Returns a context and its callers, innermost first.
    pub fn outwards(&self, node: NodeId) -> impl Iterator<Item = NodeId> + Clone + '_ {
        std::iter::successors(Some(node), |node| self.nodes[*node as usize].parent)
    }

    /// Returns the frames of a context and of the functions of the program around it, innermost
    /// first. Loops, inlined calls and code of the language are left out: a container creates its
    /// last thread from another place of its code than the others, also where that is inlined.
    pub fn program_path(&self, node: NodeId) -> Vec<u32> {
        let is_part = |frame: &Frame| {
            matches!(frame.kind, FrameKind::Loop | FrameKind::Inlined | FrameKind::Line)
        };
        let around = self.outwards(node).skip(1).filter(|at| {
            let frame = self.frame_of(*at);
            !is_part(frame) && !frame.is_of_language()
        });
        [node].into_iter().chain(around).map(|at| self.nodes[at as usize].frame).collect()
    }

    /// Returns the frame of a context.
    pub fn frame_of(&self, node: NodeId) -> &Frame {
        &self.frames[self.nodes[node as usize].frame as usize]
    }
}

/// Exclusive values of one context: those of the contexts that it calls are not included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeValue {
    /// Wall time, in nanoseconds.
    pub exclusive_ns: u64,
    /// Part of `exclusive_ns` in which the thread was runnable without a core.
    pub run_delay_ns: u64,
    /// Number of calls: exact for wrapped calls, otherwise a lower bound (calls that samples saw
    /// begin).
    pub calls: u64,
    /// Bytes moved by a wrapped call, where its arguments state them.
    pub bytes: u64,
    /// Wall time of the wrapped calls that each took at least [`LONG_CALL_NS`].
    #[serde(default)]
    pub long_ns: u64,
    /// Number of samples.
    pub samples: u64,
    /// Part of `exclusive_ns` between polls that follow each other at once: a rank that waits in a
    /// polling loop spends it so.
    #[serde(default)]
    pub poll_gap_ns: u64,
}

/// Messages between this process's rank and another one, in calls of one context.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PartnerValue {
    /// Context of the calls.
    pub node: NodeId,
    /// Rank of the partner among all ranks, [`UNKNOWN_PARTNER`] or [`OTHER_PARTNERS`].
    pub partner: u32,
    /// Messages sent to the partner.
    pub sent: u64,
    /// Bytes of these messages.
    pub bytes: u64,
    /// Messages received from the partner.
    pub received: u64,
    /// Time in calls that completed these messages. The time of a call that completed several
    /// messages is divided evenly among those received or, if there are none, among those sent.
    pub waited_ns: u64,
}

/// A perf event that the process was asked to count.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CountedEvent {
    /// Name that the user gave it.
    pub name: String,
    /// Error number of the kernel's refusal (errno(3)); `None` if the event was counted.
    pub refused: Option<u32>,
}

/// perf events of a process (perf_event_open(2)), by context.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CounterProfile {
    /// The events; no events if none were asked for.
    pub events: Vec<CountedEvent>,
    /// Number of each event in the context itself on the communicating thread, by node id, each
    /// once.
    pub main: Vec<(NodeId, [u64; MAX_EVENTS])>,
    /// Number of each event in the context itself on all other threads, by node id, each once.
    pub other_threads: Vec<(NodeId, [u64; MAX_EVENTS])>,
    /// Time in which the hardware events of all threads had no counter, because the kernel shared
    /// the counters, in nanoseconds. Their numbers are estimates for this time.
    pub uncounted_ns: u64,
    /// Number of threads with events that were not counted, or only in a part of the thread's life.
    pub uncounted_threads: u64,
}

/// Exemplary messages of a process: the blocks of messages with a level ([`message_level`]) of at
/// least `level`, among those that both ends record.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExemplaryMessages {
    /// Minimum level of the messages.
    pub level: u32,
    /// The messages, each thread's in the order of their completion.
    pub messages: Vec<ExemplaryMessage>,
}

/// One message at one of its two ends. Times are nanoseconds since the begin of the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExemplaryMessage {
    /// Context of the call that completed the message.
    pub node: NodeId,
    /// Whether this process sent the message; otherwise it received the message.
    pub is_sent: bool,
    /// Rank of the partner among all ranks.
    pub partner: u32,
    /// Name of the communicator's members, the same on all of them.
    pub group: u32,
    /// Tag.
    pub tag: i32,
    /// Number of the message in its channel, the same at both ends. Messages of the same sender,
    /// receiver, group and tag class (tag modulo 16) have one channel.
    pub number: u32,
    /// Begin of the call that sent or posted the message.
    pub posted_ns: u64,
    /// Begin of the call that completed the message.
    pub entered_ns: u64,
    /// Return of that call.
    pub left_ns: u64,
    /// Time that the thread had spent in calls of point-to-point communication before that call.
    pub waited_ns: u64,
}

impl ExemplaryMessage {
    /// Returns the class of a tag, which is part of the channel.
    pub fn class_of(tag: i32) -> u32 {
        tag as u32 % TAG_CLASSES
    }

    /// Returns the number of messages of a channel that the message with this number stands for.
    pub fn stride_of(number: u32) -> u64 {
        stride(number.into())
    }
}

/// Minimum duration of a long call: five sampling periods (PPoPP20, 5.3.2) of the default length.
/// It does not depend on the actual period, so the period does not affect a verdict.
pub const LONG_CALL_NS: u64 = 20_000_000;

impl NodeValue {
    /// Returns the wall time net of waiting for a core.
    pub fn net_ns(&self) -> u64 {
        self.exclusive_ns.saturating_sub(self.run_delay_ns)
    }

    /// Adds another measurement of the same context.
    pub fn add(&mut self, other: &Self) {
        self.exclusive_ns += other.exclusive_ns;
        self.run_delay_ns += other.run_delay_ns;
        self.calls += other.calls;
        self.bytes += other.bytes;
        self.long_ns += other.long_ns;
        self.samples += other.samples;
        self.poll_gap_ns += other.poll_gap_ns;
    }
}

/// All instances of one phase: the code between a global synchronisation in one context and the
/// next one in another (or the same) context, the ending synchronisation included (PPoPP20, 4.2).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseProfile {
    /// The synchronisation after which it begins; `None` at the start of the run.
    pub begins_after: Option<NodeId>,
    /// Synchronisation that ends the phase; `None` if the run ended without one.
    pub ends_in: Option<NodeId>,
    /// Index of the synchronisation that ends the first instance. Equal on every rank; identifies
    /// the phase across ranks.
    pub first_index: u64,
    /// Index of the synchronisation that ends its last instance.
    pub last_index: u64,
    /// Number of instances.
    pub instances: u64,
    /// Begin of the first instance, in nanoseconds since the begin of the run.
    pub first_begin_ns: u64,
    /// Wall time of all instances.
    pub duration_ns: u64,
    /// Contexts with time or calls in this phase, by node id, each once.
    pub values: Vec<(NodeId, NodeValue)>,
}

/// A subgroup: the ranks of a communicator smaller than the world.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Subgroup {
    /// Number by which the members identify the subgroup.
    pub name: u32,
    /// Number of member ranks.
    pub ranks: u32,
}

/// One instance of a phase on this process, kept whole, or a subgroup interval of an instance: the
/// code between two synchronisations, at least one of them a subgroup's.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceRow {
    /// Subgroup of the synchronisation that ends the row; `None` for all ranks.
    #[serde(default)]
    pub subgroup: Option<Subgroup>,
    /// Index of the synchronisation that ends the row: equal on each of its ranks.
    pub index: u64,
    /// Context of the synchronisation that ends the row; `None` at the end of the run.
    #[serde(default)]
    pub ends_in: Option<NodeId>,
    /// Index into [`ProcessProfile::phases`].
    pub phase: u32,
    /// Wall time of the instance.
    pub duration_ns: u64,
    /// Exclusive wall time less run delay of its contexts, by node id, each once.
    pub values: Vec<(NodeId, u64)>,
}

/// Instances kept whole: those with an [`instance_level`] of at least `level`. When ranks kept
/// different levels, rows below the highest level are dropped; then all ranks hold the same
/// instances.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceRows {
    /// Lowest level that is kept: one instance in 2^level.
    pub level: u32,
    /// By ascending index.
    pub rows: Vec<InstanceRow>,
}

/// Time of the communicating thread outside of `main`: before `main` begins, after it has returned,
/// and where records are missing. It is part of the values of [`ProcessProfile::phases`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeOutsideMain {
    /// `main`, or the outermost context if there is no `main`.
    pub node: NodeId,
    /// Time with a known stack, in nanoseconds: charged to `node`.
    pub with_stack_ns: u64,
    /// Time without a known stack, in nanoseconds: apportioned among the contexts at and below
    /// `node`.
    pub without_stack_ns: u64,
}

/// Meaning of a key in a temporal context tree.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemporalTreeKey {
    /// Context of a procedure, a wrapped call or a loop; `None` for frames outside of main or of
    /// the start routine, such as the thread itself.
    pub node: Option<NodeId>,
    /// Return address of a call, in its module's file: distinguishes calls of one procedure in one
    /// context. The frame's own address if it has no caller; 0 for a loop.
    pub site: u64,
    /// Position in the control flow of the enclosing procedure, equal in every process: code that
    /// can run earlier without a back edge has a lower position. `None` if the control flow is not
    /// known.
    pub position: Option<u64>,
}

/// The temporal context tree of a thread (ICS18, 3.1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TemporalTreeProfile {
    /// Calls and loops by time, in nanoseconds. Its root is the thread.
    pub tree: clusters::Node,
    /// Meaning of the keys: a key is an index. No two entries have equal `node` and `site`.
    pub keys: Vec<TemporalTreeKey>,
}

/// Clusters of similar threads other than the communicating one (ICS18, 4.2). When more than 64
/// threads live at the same time, the later ones are not followed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerProfile {
    /// Clusters of trees as in [`TemporalTreeProfile::tree`]. Threads without samples are in no
    /// cluster.
    pub clusters: Vec<clusters::Cluster<WorkerMembers<NodeId>>>,
    /// Meaning of the keys, as in [`TemporalTreeProfile::keys`].
    pub keys: Vec<TemporalTreeKey>,
}

/// Threads of a cluster. `C` numbers contexts.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct WorkerMembers<C: Ord> {
    /// The threads, numbered in the order in which they were first seen.
    pub numbers: clusters::Members,
    /// Time of short measured calls by context, summed over the threads; nanoseconds in a profile.
    /// Such calls change no stack, so that the cluster's tree has this time in their callers.
    pub short_calls: BTreeMap<C, u64>,
}

impl<C: Ord> WorkerMembers<C> {
    /// Returns the approximate memory in use, in bytes, without the value itself.
    pub fn bytes(&self) -> usize {
        self.numbers.bytes() + self.short_calls.len() * size_of::<(C, u64)>()
    }
}

impl<C: Ord + Copy> clusters::MemberSet for WorkerMembers<C> {
    fn join(&mut self, other: &Self) {
        self.numbers.join(&other.numbers);
        for (context, time) in &other.short_calls {
            *self.short_calls.entry(*context).or_default() += time;
        }
    }

    fn lowest(&self) -> Option<u64> {
        self.numbers.lowest()
    }
}

/// A function without loops, inlined calls and lines, because its structure was not looked up by
/// the deadline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LateFunction {
    /// Name of the function.
    pub name: String,
    /// Samples in the function itself.
    pub samples: u64,
}

/// Maximum number of [`LateFunction`]s that a profile names.
pub const MAX_NAMED_LATE: usize = 8;

/// Costs and gaps of the measurement.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectionCounts {
    /// Samples taken.
    pub samples: u64,
    /// Records lost because a ring was full or could not be read.
    pub lost: u64,
    /// Call paths of samples and of measured calls without their outer frames.
    pub truncated: u64,
    /// `truncated` by [`plimsoll_wire::truncation::Truncation`].
    pub truncated_by: [u64; Truncation::COUNT],
    /// Stacks without their inner frames: the memory for contexts was full, or a frame has an
    /// address that was never announced.
    #[serde(default)]
    pub pruned: u64,
    /// Number of MPI calls counted.
    pub mpi_calls: u64,
    /// Bytes of records written into the rings.
    pub record_bytes: u64,
    /// Time in the signal handler, in nanoseconds.
    pub sampling_cpu_ns: u64,
    /// Return addresses marked.
    pub marks_planted: u64,
    /// Marks that the next sample reached.
    pub marks_hit: u64,
    /// Marks that the next sample did not reach.
    pub marks_stale: u64,
    /// Stacks shortened by a mark or an open call that were compared with the whole stack.
    pub marks_verified: u64,
    /// Number of `marks_verified` stacks that differed from the whole stack.
    pub marks_mismatched: u64,
    /// Reason why return addresses were not marked, a
    /// [`plimsoll_agent::marks::marks_disabled::MarksDisabled`]; 0 if they were.
    pub marks_off: u32,
    /// Number of threads that could not be sampled, or not to their end.
    pub unsampled_threads: u64,
    /// Number of `unsampled_threads` without any record; the profile's threads do not include them.
    pub unseen_threads: u64,
    /// Synchronisations that were not followed: bits of [`plimsoll_wire::sync_id::unfollowed`].
    #[serde(default)]
    pub unfollowed: u32,
    /// Time in which the application had paused the measurement, in nanoseconds; in no other value.
    #[serde(default)]
    pub paused_ns: u64,
    /// Set if the application took over the sampling signal.
    pub stepped_aside: bool,
    /// Set if code of this library failed in the process: the measurement is not to be trusted.
    pub failed: bool,
    /// Number of functions without loops, inlined calls and lines, because their structure was not
    /// looked up by the deadline.
    pub late_functions: u64,
    /// Exclusive samples of the `late_functions`.
    pub late_samples: u64,
}

/// Times at which global synchronisations returned in a process, on the clock of its node:
/// CLOCK_MONOTONIC as the process reads it, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SyncReturns {
    /// Begin of the run.
    pub begin_ns: u64,
    /// Index of each kept synchronisation, equal on every rank, and the time of its return here, by
    /// ascending index. Long runs keep only the highest [`instance_level`]s.
    pub ends: Vec<(u64, u64)>,
}

/// Call path of a synchronising MPI call, as found by samples.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SyncSite {
    /// Return addresses from main inwards, each in its module's file; the last one is that of the
    /// MPI call.
    pub chain: Vec<u64>,
    /// Id of the MPI call: a [`plimsoll_calls::CallId`].
    pub call: u16,
    /// Context of the MPI call.
    pub node: NodeId,
}

/// Calls that a procedure may have made and returned from between two samples, according to its
/// control flow: those on the shortest path, with the minimum number of loop iterations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Passage {
    /// Return addresses of the procedure's callers, from main inwards, as in [`SyncSite::chain`].
    pub outer: Vec<u64>,
    /// Addresses of the procedure's calls, in its module's file, ascending.
    pub calls: Vec<u64>,
}

/// Consecutive samples of the communicating thread in one context.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sight {
    /// Time of the last sample elsewhere, in nanoseconds since the begin of the run.
    pub earliest_ns: u64,
    /// Begin of the time charged to this context: neighbouring samples share the time between them.
    pub at_ns: u64,
    /// Time of the first sample here.
    pub latest_ns: u64,
    /// Time of the last sample here.
    pub last_ns: u64,
    /// Context of the samples.
    pub node: NodeId,
    /// Procedures that began since the previous entry, a lower bound.
    pub begun: Vec<NodeId>,
    /// Number of samples.
    pub samples: u64,
    /// Time in which the thread was runnable without a core.
    pub run_delay_ns: u64,
    /// Enclosing synchronisation, an index into [`Series::sites`]; `None` outside of one.
    pub inside: Option<u32>,
    /// Set if `inside` is the call that already was open at the previous entry.
    pub goes_on: bool,
    /// Other calls that may have happened since the previous entry: an index into [`Series::ways`].
    pub way: Option<u32>,
}

/// Samples of the communicating thread, in their order, for a process without measured calls.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Series {
    /// Set if no sample is missing; otherwise `sights` is empty.
    pub is_whole: bool,
    /// Maximum number of samples that one of the series stands for: more than 1 if the memory was
    /// too small for all, then a power of 2.
    pub stride: u32,
    /// Samples by ascending time.
    pub sights: Vec<Sight>,
    /// Synchronisations in which samples found the thread.
    pub sites: Vec<SyncSite>,
    /// Elements of `ways`, each in one procedure.
    pub passages: Vec<Passage>,
    /// Control-flow paths between two neighbouring sights, as indices into `passages`.
    pub ways: Vec<Vec<u32>>,
}

/// Time of a thread by context in one bin of its run. All bins add up to the run time without
/// pauses.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeBin {
    /// Exclusive wall time of the contexts with the most time, by node id, each once.
    pub values: Vec<(NodeId, u64)>,
    /// Wall time of all other contexts outside of wrapped calls.
    pub other_work_ns: u64,
    /// Wall time of all other contexts inside of wrapped calls.
    pub other_calls_ns: u64,
}

impl TimeBin {
    /// Returns the time of all contexts, in nanoseconds: less than the length of the bin if the
    /// measurement was paused.
    pub fn whole_ns(&self) -> u64 {
        let of_values: u64 = self.values.iter().map(|(_, ns)| ns).sum();
        of_values + self.other_work_ns + self.other_calls_ns
    }
}

/// A thread's time in equal bins from the begin of the run on, pauses included. The last bin of the
/// communicating thread reaches to the end of the run or beyond it, or to a pause at the end.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeSeries {
    /// Length of a bin, in nanoseconds; 0 if there are no bins.
    pub width_ns: u64,
    /// Bins by time, at most 256 of the communicating thread.
    pub bins: Vec<TimeBin>,
}

impl TimeSeries {
    /// Adds the time of a context from `begin_ns` to `end_ns` (since the begin of the run) to the
    /// bins that it overlaps, and adds bins as needed: for profiles that no collector makes.
    pub fn add(&mut self, node: NodeId, begin_ns: u64, end_ns: u64) {
        let width = self.width_ns.max(1);
        let mut at = begin_ns;
        while at < end_ns {
            let bin = (at / width) as usize;
            let next = (at / width + 1).saturating_mul(width).min(end_ns);
            if self.bins.len() <= bin {
                self.bins.resize_with(bin + 1, TimeBin::default);
            }
            let values = &mut self.bins[bin].values;
            match values.binary_search_by_key(&node, |(node, _)| *node) {
                Ok(place) => values[place].1 += next - at,
                Err(place) => values.insert(place, (node, next - at)),
            }
            at = next;
        }
    }
}

/// One process's run.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessProfile {
    /// Contexts of all threads.
    pub tree: ContextTree,
    /// Phases of the thread that communicates, by order of `first_index`. In a run that was broken
    /// off, each of the last instances is a phase of its own, in any order.
    pub phases: Vec<PhaseProfile>,
    /// Time of that thread outside of `main`; `None` if there is none.
    #[serde(default)]
    pub outside_main: Option<TimeOutsideMain>,
    /// Instances of these phases kept whole.
    pub rows: InstanceRows,
    /// Subgroup intervals of instances kept whole. The longer the run, the smaller the fraction of
    /// a subgroup's subgroup intervals that is offered ([`plimsoll_wire::sync_id::least_level`]).
    #[serde(default)]
    pub subgroup_intervals: InstanceRows,
    /// Times at which synchronisations returned; `None` if the offset between stamps and the node's
    /// clock is not known.
    pub sync_returns: Option<SyncReturns>,
    /// Samples in their order, if calls are not measured: the phases are then still to be found.
    /// `None` if calls are measured.
    #[serde(default)]
    pub series: Option<Series>,
    /// Time of the communicating thread by bins of the run.
    #[serde(default)]
    pub times: TimeSeries,
    /// Contexts of all other threads, over the whole run, by node id, each once.
    pub other_threads: Vec<(NodeId, NodeValue)>,
    /// Values of these other threads, aggregated as PLIMSOLL_THREADS asks.
    #[serde(default)]
    pub thread_locations: ThreadProfile,
    /// Messages of all threads over the whole run, by node id and partner, each pair once.
    #[serde(default)]
    pub partners: Vec<PartnerValue>,
    /// perf events of all threads over the whole run.
    #[serde(default)]
    pub counters: CounterProfile,
    /// Exemplary messages of all threads.
    #[serde(default)]
    pub messages: ExemplaryMessages,
    /// Parallel regions and tasks of OpenMP.
    #[serde(default)]
    pub openmp: OpenMpProfile,
    /// Temporal context tree of the communicating thread; `None` if it was not built.
    pub temporal_tree: Option<TemporalTreeProfile>,
    /// Clusters of the other threads.
    #[serde(default)]
    pub workers: WorkerProfile,
    /// Loops of `temporal_tree`, each node once.
    pub loops: Vec<LoopProfile>,
    /// Number of application threads seen, including the communicating one.
    pub threads: u32,
    /// Number of other threads that lived at one time: the largest mean over a time bin, rounded.
    #[serde(default)]
    pub concurrent_threads: u32,
    /// Number of global synchronisations seen.
    pub syncs: u64,
    /// Duration of the run on this process, in nanoseconds.
    pub elapsed_ns: u64,
    /// Requested sampling period, in nanoseconds.
    pub period_ns: u64,
    /// Sampling period that the timers can keep, in nanoseconds, at least `period_ns`: without perf
    /// events, CPU timers keep no period shorter than the kernel's tick. Thresholds in periods use
    /// it.
    pub kept_period_ns: u64,
    /// Measured sampling period: CPU time per sample, in nanoseconds; 0 without samples.
    pub effective_period_ns: u64,
    /// Source of the sampling signal: "cpu", "timer" or "wall".
    pub clock: String,
    /// Costs and gaps of the measurement.
    pub collection: CollectionCounts,
    /// Functions without structure, by descending number of samples; at most [`MAX_NAMED_LATE`] out
    /// of [`CollectionCounts::late_functions`].
    #[serde(default)]
    pub late: Vec<LateFunction>,
}

impl ProcessProfile {
    /// Returns the duration of the run with the pauses of the measurement, in nanoseconds. Bins of
    /// time and begins of phases lie within it.
    pub fn span_ns(&self) -> u64 {
        self.elapsed_ns.saturating_add(self.collection.paused_ns)
    }
}
