//! The parts of OMPT that Plimsoll uses: types and numbers of the OpenMP tools interface.
//!
//! Source: OpenMP 5.2, chapters 19 (OMPT interface) and 20 (callbacks). The numbers are the same in
//! versions 5.0 to 6.0; numbers that a version adds are said so.

use std::ffi::{c_char, c_int, c_uint, c_void};

/// Word that a tool keeps with a thread, a team or a task (`ompt_data_t`, 19.4.4.3). The runtime
/// sets it to 0 before the callback that begins the object.
#[repr(C)]
#[derive(Debug)]
pub struct Data {
    /// Value, or address.
    pub value: u64,
}

/// Result of `ompt_start_tool` (`ompt_start_tool_result_t`, 19.4.1).
#[repr(C)]
pub struct StartToolResult {
    /// Called once, when the runtime has set itself up; 0 declines.
    pub initialize: unsafe extern "C" fn(Lookup, c_int, *mut Data) -> c_int,
    /// Called when the runtime ends.
    pub finalize: unsafe extern "C" fn(*mut Data),
    /// The tool's own word.
    pub tool_data: Data,
}

/// `ompt_start_tool` (19.2.1).
pub type StartTool = unsafe extern "C" fn(c_uint, *const c_char) -> *mut StartToolResult;

/// Returns an entry point of the runtime by its name (`ompt_function_lookup_t`, 19.6.3).
pub type Lookup = unsafe extern "C" fn(*const c_char) -> Option<unsafe extern "C" fn()>;

/// `ompt_set_callback` (19.6.1.3). All callbacks have at most six words and return nothing.
pub type SetCallback = unsafe extern "C" fn(c_int, *const c_void) -> c_int;

/// Lowest result of `ompt_set_callback` with which the callback is called at all
/// (`ompt_set_result_t`: `ompt_set_sometimes`).
pub const MIN_SET: c_int = 3;

/// Callbacks that are registered (`ompt_callbacks_t`, 19.4.2).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
pub enum Event {
    /// A thread meets a parallel region.
    ParallelBegin = 3,
    /// A parallel region has ended.
    ParallelEnd = 4,
    /// An explicit task is created.
    TaskCreate = 5,
    /// A thread leaves one task for another.
    TaskSchedule = 6,
    /// A thread begins or ends its share of a region.
    ImplicitTask = 7,
    /// A thread begins or ends to wait for its team or for tasks.
    SyncRegion = 23,
    /// A thread begins to wait for a lock or section.
    MutexAcquire = 26,
    /// A thread has got a lock or section.
    MutexAcquired = 27,
    /// A thread has got a lock that it held already, or has released one of several holds.
    NestLock = 28,
}

/// Begin of an object or wait (`ompt_scope_endpoint_t`).
pub const SCOPE_BEGIN: u32 = 1;
/// End of an object or wait.
pub const SCOPE_END: u32 = 2;

/// Kinds of waits for the team or for tasks (`ompt_sync_region_t`).
pub mod sync {
    /// Any implicit barrier, in runtimes of OpenMP 5.0; also the one that ends a region.
    pub const BARRIER_IMPLICIT: u32 = 2;
    /// `taskwait`.
    pub const TASKWAIT: u32 = 5;
    /// End of `taskgroup`.
    pub const TASKGROUP: u32 = 6;
    /// Part of a reduction: computation.
    pub const REDUCTION: u32 = 7;
    /// The barrier that ends a region, since OpenMP 5.1.
    pub const BARRIER_IMPLICIT_PARALLEL: u32 = 9;
}

/// Kinds of locks and sections (`ompt_mutex_t`).
pub mod mutex {
    /// `omp_set_lock`.
    pub const LOCK: u32 = 1;
    /// `omp_set_nest_lock`.
    pub const NEST_LOCK: u32 = 3;
    /// `critical`.
    pub const CRITICAL: u32 = 5;
    /// `atomic`.
    pub const ATOMIC: u32 = 6;
    /// `ordered`.
    pub const ORDERED: u32 = 7;
}

/// Flags of tasks (`ompt_task_flag_t`).
pub mod task {
    /// The task that is the whole program, or a team of a league.
    pub const INITIAL: u32 = 1;
    /// A task that the program creates.
    pub const EXPLICIT: u32 = 4;
}

/// Whether a task that a thread leaves has ended (`ompt_task_status_t`: complete, or cancelled).
pub const fn has_ended(status: u32) -> bool {
    matches!(status, 1 | 3)
}

/// Flag of a parallel region: teams of a league (`ompt_parallel_flag_t`).
pub const PARALLEL_LEAGUE: u32 = 0x4000_0000;
