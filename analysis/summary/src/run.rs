//! Description of a run: the job, the cost of the measurement, and the efficiency of the ranks.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// The job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Run {
    /// Path of the executable, as far as known.
    pub executable: String,
    /// Arguments of the executable, without the executable's own name.
    pub arguments: Vec<String>,
    /// Job id of the batch system, else the launcher's process id; `None` without a launcher.
    pub job: Option<String>,
    /// Local time of the begin, RFC 3339.
    pub started: String,
    /// Time from the return of MPI_Init to the entry of MPI_Finalize, on the rank with the longest;
    /// without MPI the process's life.
    pub elapsed_s: f64,
    /// Measured MPI ranks; 1 without MPI.
    pub ranks: u32,
    /// Ranks in MPI_COMM_WORLD, also those that were not measured (PLIMSOLL_RANKS); `None` without
    /// MPI and in summaries of earlier builds.
    #[serde(default)]
    pub world_ranks: Option<u32>,
    /// Application threads, the sum over all ranks.
    pub threads: u32,
    /// Nodes of the job.
    pub nodes: Vec<NodeOfRun>,
    /// The MPI library.
    pub mpi: Mpi,
    /// Sampling period.
    pub period_us: PeriodUs,
    /// Clock of the samples.
    pub clock: Clock,
    /// Whether the run reached MPI_Finalize (without MPI: its exit) and all ranks contributed.
    pub complete: bool,
    /// Reason why it is not complete, as the end of a sentence: the rank that ended first if one is
    /// known; `None` if [`Run::ended`] is the reason.
    #[serde(default)]
    pub incomplete: Option<String>,
    /// End of the run: `finalize`, `exit`, `abort`, `signal 11`, ...
    pub ended: String,
    /// Settings in effect, by variable name.
    pub settings: BTreeMap<String, String>,
}

/// A node (host) of the job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeOfRun {
    /// Host name.
    pub host: String,
    /// Rank list.
    pub ranks: String,
    /// Cores on which the job may run here.
    pub cores: u32,
}

/// The MPI library of the job.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Mpi {
    /// First line of MPI_Get_library_version; `None` without MPI.
    pub library: Option<String>,
    /// Binary interface of the library.
    pub abi: MpiAbi,
}

/// Binary interface of an MPI library.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MpiAbi {
    /// MPICH and its relatives.
    Mpich,
    /// Open MPI.
    OpenMpi,
    /// The ABI of the MPI 5 standard.
    Standard,
    /// The program did not use MPI.
    #[default]
    None,
}

/// Sampling period in microseconds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PeriodUs {
    /// As set.
    pub asked: f64,
    /// Measured CPU time per sample; `None` without samples.
    pub effective: Option<f64>,
}

/// Clock of the samples.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Clock {
    /// perf task-clock: the user CPU time of each thread.
    #[default]
    Cpu,
    /// A POSIX timer on each thread's CPU clock, where perf events are refused.
    Timer,
    /// A timer on wall time.
    Wall,
}

/// Numbers of stacks without their outer frames, by the reason why the unwind ended.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TruncatedBy {
    /// No loaded file contains the code of a frame: generated code, a library that was being
    /// unloaded, or a stack that was overwritten.
    pub unknown_code: u64,
    /// The caller of a frame cannot be found: the file has no unwind table for this code, or the
    /// stack cannot be read.
    pub no_caller: u64,
    /// The stack is deeper than 512 frames.
    pub too_deep: u64,
    /// The table of addresses is full.
    pub table_full: u64,
}

impl TruncatedBy {
    /// Returns the most frequent reason, as it reads behind "most of them"; `None` without one.
    pub fn main_reason(&self) -> Option<&'static str> {
        let reasons = [
            (self.unknown_code, "at code that no loaded file contains"),
            (self.no_caller, "at code without an unwind table"),
            (self.too_deep, "because the stack is too deep"),
            (self.table_full, "because there are too many addresses"),
        ];
        let main = reasons.into_iter().rev().max_by_key(|reason| reason.0)?;
        (main.0 > 0).then_some(main.1)
    }
}

/// Cost of the measurement, and what it missed: sums over ranks, except where noted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Collection {
    /// Samples taken.
    pub samples: u64,
    /// Records lost because a ring was full or could not be read.
    pub lost: u64,
    /// Call paths of samples and of measured calls without their outer frames.
    pub truncated: u64,
    /// `truncated` by the reason.
    #[serde(default)]
    pub truncated_by: TruncatedBy,
    /// Stacks without their inner frames, since the memory for contexts was full.
    #[serde(default)]
    pub pruned: u64,
    /// Return-address marks.
    pub marks: Marks,
    /// MPI calls counted.
    pub mpi_calls: u64,
    /// Bytes of samples spooled to disk.
    pub spool_bytes: u64,
    /// Bytes of records written into the rings.
    pub record_bytes: u64,
    /// CPU time in the signal handlers.
    pub sampling_cpu_s: f64,
    /// CPU time of the collector threads.
    pub collector_cpu_s: f64,
    /// Part of `collector_cpu_s` for lookups of functions, loops and lines.
    #[serde(default)]
    pub structure_cpu_s: f64,
    /// Part of `structure_cpu_s` after the end of the run.
    #[serde(default)]
    pub late_structure_cpu_s: f64,
    /// Functions without loops, inlined calls and lines, because the lookups did not finish within
    /// 0.3 s after the run; maximum over ranks.
    #[serde(default)]
    pub late_functions: u64,
    /// Samples in these functions themselves.
    #[serde(default)]
    pub late_samples: u64,
    /// Wall time of the analysis in MPI_Finalize, on the slowest rank; `None` if the run ended
    /// without it.
    pub finalize_s: Option<f64>,
    /// Maximum memory per rank: memory of a collecting process, divided by the ranks that it
    /// collects.
    pub memory_bytes: Option<u64>,
    /// Memory by purpose in the process with the most.
    #[serde(default)]
    pub memory: Option<Memory>,
    /// Application threads that could not be sampled.
    #[serde(default)]
    pub unsampled_threads: u64,
}

/// Memory of the library in one process that collects ranks, in bytes: its heap at its maximum up
/// to the writing of the report, and other memory at the end of the run. Its code and the stacks of
/// its two threads are not counted. All but `total_bytes` and `ranks` add up to the total.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Memory {
    /// Sum of the following. PLIMSOLL_MEMORY limits segments, contexts, clusters and spool; not the
    /// rest.
    pub total_bytes: u64,
    /// Ranks that the process collects.
    pub ranks: u32,
    /// The ranks' rings, and their tables of addresses and modules: memory shared with the ranks.
    pub segment_bytes: u64,
    /// State of the sampler in this process: loaded modules, frame rules, state of threads; and
    /// settings.
    pub sampling_bytes: u64,
    /// Calling contexts, their values by phase, addresses and names.
    pub context_bytes: u64,
    /// Temporal context trees: clusters of iterations.
    pub cluster_bytes: u64,
    /// Symbols, loops and lines of functions.
    pub structure_bytes: u64,
    /// Debug information and unwind tables while they are read.
    #[serde(default)]
    pub debug_info_bytes: u64,
    /// Records on their way to the spool.
    pub spool_bytes: u64,
    /// Profiles, their reduction over ranks, the summary.
    pub analysis_bytes: u64,
    /// The rest of the heap: free, rounded up, or for the heap itself.
    pub unused_bytes: u64,
}

/// Return-address marks of all ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Marks {
    /// Marks planted.
    pub planted: u64,
    /// Marks met by the next sample.
    pub hit: u64,
    /// Marks that had become stale.
    pub stale: u64,
    /// With PLIMSOLL_MARKS=verify: stacks that were unwound a second time without help.
    #[serde(default)]
    pub verified: u64,
    /// Verified stacks that differed.
    #[serde(default)]
    pub mismatched: u64,
    /// Reason why marks were not used; `None` if they were.
    pub off_reason: Option<String>,
}

/// POP efficiencies, 0 to 1, with the label computation as useful time; `None` without MPI, and if
/// the communicating threads mostly wait for other threads of their ranks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Efficiency {
    /// Mean useful time over ranks / elapsed time: load balance x communication, and x the parallel
    /// efficiency of OpenMP unless `openmp` is `None`.
    pub parallel: Option<f64>,
    /// Mean / maximum of the ranks' useful time.
    pub load_balance: Option<f64>,
    /// Maximum of the ranks' useful time / elapsed time.
    pub communication: Option<f64>,
    /// Efficiency of the ranks' threads, net of MPI; `None` without teams, and in an MPI job that
    /// hardly uses them.
    #[serde(default)]
    pub openmp: Option<OpenMpEfficiency>,
    /// Efficiencies over time: at most 128 windows of equal length from the begin of the run to its
    /// end, pauses of the measurement included; the last may be shorter. Empty if `parallel` is
    /// `None`. The `parallel` of a window is load balance x communication, without OpenMP.
    #[serde(default)]
    pub windows: Vec<Window>,
}

/// TALP's efficiency of teams of threads, 0 to 1: the thread time in parallel regions, and in work
/// outside of regions, that is work. Threads that are idle while the thread that communicates is in
/// MPI outside of regions are not counted. A rank without teams counts as one thread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct OpenMpEfficiency {
    /// The product of the other three.
    pub parallel: f64,
    /// Thread time that is not lost because some threads have less work than others.
    pub load_balance: f64,
    /// Part of the rest that is not lost in regions while no thread works: begin and end of
    /// regions, waits that all threads have.
    pub scheduling: f64,
    /// Part of the rest that is not lost because threads are idle while one thread works outside of
    /// regions.
    pub serialisation: f64,
}

/// POP efficiencies of a part of the run, 0 to 1. `None` if no rank was measured in it, because the
/// program paused the measurement; `load_balance` also if no rank did useful work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Window {
    /// Begin, in seconds since the begin of the run on the reference's clock.
    pub begin_s: f64,
    /// End, on the same clock.
    pub end_s: f64,
    /// Mean useful time over ranks / length of the window without pauses of all ranks.
    pub parallel: Option<f64>,
    /// Mean / maximum of the ranks' useful time in the window.
    pub load_balance: Option<f64>,
    /// Maximum of the ranks' useful time in the window / its length without pauses of all ranks.
    pub communication: Option<f64>,
}

/// Predicted run time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Projection {
    /// Run time without all losses together; no second is counted twice.
    pub elapsed_s: f64,
}
