//! What the collector hands on: one process's run as a tree of calling contexts, with the time of
//! each context in each phase.
//!
//! Times are nanoseconds of wall time on the thread. Nothing here knows ranks or MPI: phases are
//! delimited by the global synchronisations that the records name.

pub use plimsoll_wire::record::{OTHER_PARTNERS, UNKNOWN_PARTNER};
pub use plimsoll_wire::sync::level as instance_level;
use serde::{Deserialize, Serialize};

use plimsoll_trees::{self as clusters, Members};

/// What a frame stands for.
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
    /// What it stands for.
    pub kind: FrameKind,
    /// Demangled name without parameters and return type; without symbols `module+0x1234`.
    pub function: String,
    /// Source file, where debug information tells.
    pub file: Option<String>,
    /// Source line, where debug information tells.
    pub line: Option<u32>,
    /// Where a loop begins, in bytes from the begin of its function, if debug information tells no line:
    /// what tells it from others of that function.
    pub offset: Option<u64>,
    /// File name of the module that holds the code.
    pub module: String,
    /// Set for a wrapped call ([`plimsoll_calls`]): its id.
    pub call: Option<u16>,
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
    /// Tells several call sites of one MPI call in one function apart: offset of the return
    /// address in its module. 0 for all other frames.
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

/// What was measured in one context, itself only (without the contexts that it calls).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeValue {
    /// Wall time.
    pub exclusive_ns: u64,
    /// Part of it that the thread was runnable without a core.
    pub run_delay_ns: u64,
    /// Calls: exact for wrapped calls; else a lower bound, the instances seen to begin.
    pub calls: u64,
    /// Bytes moved by a wrapped call, where its arguments tell.
    pub bytes: u64,
    /// Wall time of those of its wrapped calls that each took [`LONG_CALL_NS`] or more.
    #[serde(default)]
    pub long_ns: u64,
    /// Samples.
    pub samples: u64,
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
    /// Time in calls that completed these messages. Time of a call that completed several is shared
    /// evenly by those it received or, if it received none, by those it sent.
    pub waited_ns: u64,
}

/// What a call takes at least to be a long one: five sampling periods (PPoPP20, 5.3.2) of the default
/// length, whatever the period is, so that it decides no verdict.
pub const LONG_CALL_NS: u64 = 20_000_000;

impl NodeValue {
    /// Wall time net of waiting for a core.
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
    }
}

/// All instances of one phase: what lies between a global synchronisation at one place and the
/// next at another (or the same) place, the ending synchronisation included (PPoPP20, 4.2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct PhaseProfile {
    /// The synchronisation after which it begins; `None` at the start of the run.
    pub begins_after: Option<NodeId>,
    /// The synchronisation with whose return it ends; `None` if the run ended without one.
    pub ends_in: Option<NodeId>,
    /// Index of the synchronisation that ends its first instance: the same on every rank, and so
    /// the phase's name across ranks.
    pub first_index: u64,
    /// Index of the synchronisation that ends its last instance.
    pub last_index: u64,
    /// Number of instances.
    pub instances: u64,
    /// Begin of the first instance, since the begin of the run.
    pub first_begin_ns: u64,
    /// Wall time of all instances.
    pub duration_ns: u64,
    /// Contexts with time or calls in this phase, by node id, each once.
    pub values: Vec<(NodeId, NodeValue)>,
}

/// Some of the ranks: the members of a communicator that is not the world's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Part {
    /// What its members call it.
    pub name: u32,
    /// How many they are.
    pub ranks: u32,
}

/// One instance of a phase on this process, kept whole, or a division of one: a stretch of it that begins
/// or ends where a part of the ranks synchronised.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceRow {
    /// Which ranks the synchronisation that ends it is of; `None`: all of them.
    #[serde(default)]
    pub part: Option<Part>,
    /// Index of that synchronisation: the same on each of these ranks.
    pub index: u64,
    /// Its call path; `None` at the end of the run.
    #[serde(default)]
    pub ends_in: Option<NodeId>,
    /// Index into [`ProcessProfile::phases`].
    pub phase: u32,
    /// Wall time of the instance.
    pub duration_ns: u64,
    /// Exclusive wall time less run delay of its contexts, by node id, each once.
    pub values: Vec<(NodeId, u64)>,
}

/// Instances kept whole: those whose [`instance_level`] is at least `level`. Ranks that kept
/// different levels are brought to the highest by dropping rows; then all hold the same instances.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct InstanceRows {
    /// Lowest level that is kept: one instance in 2^level.
    pub level: u32,
    /// By ascending index.
    pub rows: Vec<InstanceRow>,
}

/// A loop in one calling context, and its iterations as far as samples tell them apart (ICS18, 3.2).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopProfile {
    /// Its node.
    pub node: NodeId,
    /// How often it was entered.
    pub executions: u64,
    /// Wall time of all executions.
    pub duration_ns: u64,
    /// Iterations of all executions.
    pub accepted: u64,
    /// Stretches of all executions that were too short to be iterations.
    pub rejected: u64,
    /// How many iterations in a row each of `durations` holds.
    pub stride: u64,
    /// Wall time and number of iterations, by their order, of all executions.
    pub durations: Vec<(u64, u64)>,
    /// Iterations that were alike: their numbers, how many they are in all executions, their time.
    pub clusters: Vec<(Members, u64, u64)>,
}

/// What a key of a course stands for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CourseKey {
    /// A procedure, a wrapped call or a loop, in its context; `None` for what lies outside of main or
    /// of the start routine, such as the thread itself.
    pub node: Option<NodeId>,
    /// Of a call, the return address in its module's file: it tells calls of one procedure in one
    /// context apart. Where nothing called it, its own address; 0 for a loop.
    pub site: u64,
    /// Its place in the control flow of the procedure that holds it, the same in every process: what can
    /// run before it without a back edge has a lower one. `None` where that is not known.
    pub position: Option<u64>,
}

/// The course of a thread: its temporal context tree (ICS18, 3.1).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct CourseProfile {
    /// Calls and loops by time, in nanoseconds. Its root is the thread.
    pub tree: clusters::Node,
    /// What its keys stand for: a key is an index. No two have the same `node` and `site`.
    pub keys: Vec<CourseKey>,
}

/// Threads beside the communicating one, that did alike (ICS18, 4.2). Of more than 64 that live at the same
/// time the later ones are not followed.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CrewProfile {
    /// As [`CourseProfile::tree`], of threads by the order in which they were seen. Threads without
    /// samples are in none.
    pub clusters: Vec<clusters::Cluster>,
    /// As [`CourseProfile::keys`].
    pub keys: Vec<CourseKey>,
}

/// A function that stands without its loops, inlined calls and lines, because these were not looked up by
/// the deadline.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct LateFunction {
    /// Its name.
    pub name: String,
    /// Samples in the function itself.
    pub samples: u64,
}

/// Most [`LateFunction`]s of a process that are named.
pub const MAX_NAMED_LATE: usize = 8;

/// What the measurement cost and what it could not do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CollectionCounts {
    /// Samples taken.
    pub samples: u64,
    /// Records lost because a ring was full or could not be read.
    pub lost: u64,
    /// Samples whose outer frames are missing.
    pub truncated: u64,
    /// Calls of MPI that were counted.
    pub mpi_calls: u64,
    /// Bytes of records written into the rings.
    pub record_bytes: u64,
    /// Time in the signal handler, in nanoseconds.
    pub sampling_cpu_ns: u64,
    /// Return addresses marked.
    pub marks_planted: u64,
    /// Marks that the next sample found.
    pub marks_hit: u64,
    /// Marks that it did not find.
    pub marks_stale: u64,
    /// Stacks that a mark or an open call shortened, held against the whole one.
    pub marks_verified: u64,
    /// Of these, the ones that differed.
    pub marks_mismatched: u64,
    /// Why return addresses were not marked, a [`plimsoll_agent::marks::retreat::Reason`], or 0.
    pub marks_off: u32,
    /// Threads that could not be sampled, or not to their end.
    pub unsampled_threads: u64,
    /// Those of them of which nothing is known: they are not among the profile's threads.
    pub unseen_threads: u64,
    /// What was not followed: bits of [`plimsoll_wire::sync::unfollowed`].
    #[serde(default)]
    pub unfollowed: u32,
    /// The application took the sampling signal for itself.
    pub stepped_aside: bool,
    /// Code of ours failed in the process: what was measured is not to be trusted.
    pub failed: bool,
    /// Functions that stand without their loops, inlined calls and lines, because these were not looked up
    /// by the deadline.
    pub late_functions: u64,
    /// Samples in these functions themselves.
    pub late_samples: u64,
}

/// When global synchronisations let a process go, on its own node's clock: CLOCK_MONOTONIC as the
/// process reads it, in nanoseconds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Releases {
    /// Begin of the run.
    pub begin_ns: u64,
    /// Index of each synchronisation that was kept, the same on every rank, and when it returned here.
    /// Of a long run some are kept, those of the highest [`instance_level`]s, by ascending index.
    pub ends: Vec<(u64, u64)>,
}

/// A place from which MPI was called to synchronise, as samples saw it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SyncSite {
    /// Return addresses from main on, each in its module's file; the call of MPI is the last.
    pub chain: Vec<u64>,
    /// The call of MPI: a [`plimsoll_calls::CallId`].
    pub call: u16,
    /// Its context.
    pub node: NodeId,
}

/// What a procedure that went on may have called and returned from between two samples, by its control
/// flow: on the shortest way, with no loop gone around more often than it must have been.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Passage {
    /// Return addresses of the calls that the procedure lies in, from main on, as in [`SyncSite::chain`].
    pub outer: Vec<u64>,
    /// Addresses of its calls, in its module's file, ascending.
    pub calls: Vec<u64>,
}

/// The communicating thread was seen in a context, in one sample or in several one after another.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sight {
    /// When it was last seen elsewhere, since the begin of the run.
    pub earliest_ns: u64,
    /// From when on its time counts, as neighbouring samples share the time between them.
    pub at_ns: u64,
    /// When it was first seen here.
    pub latest_ns: u64,
    /// And last.
    pub last_ns: u64,
    /// The context.
    pub node: NodeId,
    /// Procedures that began since the sight before, a lower bound.
    pub begun: Vec<NodeId>,
    /// Number of samples.
    pub samples: u64,
    /// How long it waited for a core.
    pub run_delay_ns: u64,
    /// The synchronisation that it is inside: an index into [`Series::sites`].
    pub inside: Option<u32>,
    /// That is the same call as at the sight before.
    pub goes_on: bool,
    /// What else it may have called since the sight before: an index into [`Series::ways`].
    pub way: Option<u32>,
}

/// What samples saw of the communicating thread, in their order: of a process whose calls are not
/// measured.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Series {
    /// Nothing is missing. Else there are no sights.
    pub is_whole: bool,
    /// By time.
    pub sights: Vec<Sight>,
    /// Synchronisations that it was seen in.
    pub sites: Vec<SyncSite>,
    /// Parts of ways, each in one procedure.
    pub passages: Vec<Passage>,
    /// Ways between two sights: indices into `passages`.
    pub ways: Vec<Vec<u32>>,
}

/// What a thread did in one bin of its run. The sums of all bins are the run, but for what was paused.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeBin {
    /// Exclusive wall time of the contexts with the most time, by node id, each once.
    pub values: Vec<(NodeId, u64)>,
    /// Wall time of all other contexts outside of wrapped calls.
    pub other_work_ns: u64,
    /// Wall time of all other contexts inside of wrapped calls.
    pub other_calls_ns: u64,
}

/// The communicating thread's time in equal bins from the begin of the run on. The last bin reaches to
/// the end of the run or beyond it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimeSeries {
    /// Length of a bin; 0 where there is none.
    pub width_ns: u64,
    /// At most 256.
    pub bins: Vec<TimeBin>,
}

impl TimeSeries {
    /// Adds time of a context in a stretch of the run, in nanoseconds since its begin, evenly. Makes
    /// as many bins as that takes: for profiles that no collector makes.
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
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ProcessProfile {
    /// Contexts of all its threads.
    pub tree: ContextTree,
    /// Phases of the thread that communicates, by order of `first_index`.
    pub phases: Vec<PhaseProfile>,
    /// Instances of these phases kept whole.
    pub rows: InstanceRows,
    /// Divisions of instances kept whole: of those of a part, ever fewer are offered
    /// ([`plimsoll_wire::sync::least_level`]).
    #[serde(default)]
    pub divisions: InstanceRows,
    /// When synchronisations returned; `None` where it is not known how stamps stand to the node's clock.
    pub releases: Option<Releases>,
    /// What samples saw, where calls are not measured: then the phases are yet to be found.
    #[serde(default)]
    pub series: Option<Series>,
    /// Its time by bins of the run.
    #[serde(default)]
    pub times: TimeSeries,
    /// Contexts of all other threads, over the whole run, by node id, each once.
    pub other_threads: Vec<(NodeId, NodeValue)>,
    /// Messages of all threads over the whole run, by node id and partner, each pair once.
    #[serde(default)]
    pub partners: Vec<PartnerValue>,
    /// What the thread that communicates did, in order; `None` if that was not followed.
    pub course: Option<CourseProfile>,
    /// What the other threads did.
    #[serde(default)]
    pub crew: CrewProfile,
    /// Loops of its course, each node once.
    pub loops: Vec<LoopProfile>,
    /// Application threads seen, the communicating one included.
    pub threads: u32,
    /// Global synchronisations seen.
    pub syncs: u64,
    /// Length of the run: from its begin to its end, on this process.
    pub elapsed_ns: u64,
    /// Asked sampling period.
    pub period_ns: u64,
    /// Sampling period that the timers can keep, at least the asked one: where the kernel refuses perf
    /// events, CPU timers keep no period shorter than its tick. Thresholds that count in periods use it.
    pub kept_period_ns: u64,
    /// Period that the samples kept: CPU time per sample; 0 without samples.
    pub effective_period_ns: u64,
    /// What drove the samples: "cpu", "timer" or "wall".
    pub clock: String,
    /// What the measurement cost and missed.
    pub collection: CollectionCounts,
    /// Functions without structure, those with most samples first; at most [`MAX_NAMED_LATE`] of
    /// [`CollectionCounts::late_functions`].
    #[serde(default)]
    pub late: Vec<LateFunction>,
}
