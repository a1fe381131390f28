//! The observed process: its segment, tables and threads.
//!
//! The code here runs at the start and end of the process and of its threads, and when libraries
//! are loaded. This code runs outside the handler, so that it may allocate and lock.

use core::ffi::c_int;
use core::ptr::null_mut;
use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, AtomicUsize, Ordering};
use std::boxed::Box;

use plimsoll_calls::MAX_POLL_GAP_NS;
use plimsoll_sys::lock::Lock;

use crate::addresses::{Addresses, Published as PublishedAddresses};
use crate::code_rules;
use crate::counters::Event;
use crate::marks::marks_disabled::MarksDisabled;
use crate::marks::{Markable, Marks, mark_stubs};
use crate::modules;
use crate::regions::thread_creations::ThreadOrigin;
use crate::scripts::Interpreter;
use crate::thread_blocks::{BLOCK_BYTES, FreeBlocks};
use crate::thread_state::{State, ThreadBlock};
use crate::timer::tick_ns;
use crate::tls;
use crate::tracer;
use crate::unwind::{Frames, Unwinding};
use plimsoll_sys::descriptors::Descriptors;
use plimsoll_sys::mapping;
use plimsoll_sys::posix_clocks::clock_ns;
use plimsoll_sys::process_stat::ProcessStat;
use plimsoll_wire::clock_anchor::{Anchor, stamp, ticks_in};
use plimsoll_wire::segment::{
    ADDRESS_IS_CONSTRUCT, ADDRESSES_OFFSET, Address, ClockKind, MAGIC, MAX_ADDRESSES,
    MAX_SCRIPT_FUNCTIONS, MAX_THREADS, Process, REPORT_BEGUN, REPORT_ENDED, SCRIPTS_OFFSET,
    ScriptFunction, ThreadArea,
};

mod listing;
mod observed_run;
mod observed_threads;
mod shared;
mod start_error;

pub use listing::{LoadedFile, Unloading};
pub use observed_run::Aside;
use shared::Shared;
pub use start_error::StartError;

/// The C library's sigaction.
pub type Sigaction =
    unsafe extern "C" fn(c_int, *const libc::sigaction, *mut libc::sigaction) -> c_int;

/// Settings of the measurement.
#[derive(Clone, Debug)]
pub struct Config {
    /// Sampling period in nanoseconds.
    pub period_ns: u64,
    /// Preferred clock of the sampling timer, used if available.
    pub clock: ClockKind,
    /// Whether return addresses are marked.
    pub marks: Marks,
    /// Whether wrapped calls are measured in addition to samples.
    pub regions: bool,
    /// perf events to count per thread, at most [`plimsoll_wire::increments::MAX_EVENTS`].
    pub events: Vec<Event>,
    /// The C library's sigaction: the `sigaction` that the application sees may be the agent's
    /// wrapper.
    pub sigaction: Sigaction,
}

impl Config {
    /// Returns the settings for samples of CPU time every `period_ns` and for wrapped calls,
    /// without counters and without a wrapper of sigaction.
    pub fn new(period_ns: u64, marks: Marks) -> Self {
        Self {
            period_ns,
            clock: ClockKind::Cpu,
            marks,
            regions: true,
            events: Vec::new(),
            sigaction: libc::sigaction,
        }
    }
}

/// Handler durations above this (ns) include preemption: longer than any handler that keeps its
/// core, shorter than any scheduler slice.
const INTERRUPTED_NS: u64 = 500_000;

/// The observed process. Created once, never freed: a handler may always be running.
pub struct Observed {
    /// Sampling period in ticks of the time stamp counter.
    pub period_ticks: u64,
    /// Sampling period in stamps.
    pub period_stamps: u64,
    /// Sampling period of a timer that the kernel checks only at its own ticks, in stamps: at least
    /// one kernel tick.
    ticked_stamps: u64,
    /// Threshold in stamps: a longer interval between two samples contains time off the CPU.
    pub late_stamps: u64,
    /// Threshold in stamps: a longer part of an interval before or inside a call is worth a reading
    /// of the CPU clock, which takes half a microsecond.
    pub part_stamps: u64,
    /// Maximum time between two polls of a polling loop, in ticks.
    pub poll_gap_ticks: u64,
    /// Threshold in ticks: a handler that takes longer was preempted (`INTERRUPTED_NS`).
    pub interrupted_ticks: u64,
    period_ns: u64,
    clock: ClockKind,
    segment: Shared,
    addresses: &'static Addresses,
    snapshots: modules::Published,
    blocks: [AtomicPtr<ThreadBlock>; MAX_THREADS],
    free_blocks: FreeBlocks,
    /// Index behind the area that was claimed last. Used under the lock.
    next_area: AtomicUsize,
    /// Lowest index of an area that the last search from the first area on found undrained, or
    /// [`observed_threads::NO_AREA`]. Used under the lock.
    undrained_area: AtomicUsize,
    own_text: (u64, u64),
    /// Whether the agent is a library of its own rather than linked into the program: then all code
    /// in `own_text` is the agent's.
    is_library: bool,
    verifies_marks: bool,
    /// Interpreter that is loaded with the program, if any.
    interpreter: Option<Interpreter>,
    pub(crate) events: Vec<Event>,
    pub(crate) descriptors: Descriptors,
    lock: Lock<listing::Listing>,
    stopped: AtomicBool,
}

// SAFETY: the raw pointer is to the segment; all fields of the segment are atomic.
unsafe impl Sync for Observed {}
// SAFETY: as above.
unsafe impl Send for Observed {}

static CURRENT: AtomicPtr<Observed> = AtomicPtr::new(null_mut());

/// Page that the kernel zeroes in forked children: nonzero in the process that called [`start`].
static ALIVE: AtomicPtr<AtomicU64> = AtomicPtr::new(null_mut());

/// Returns the observed process; `None` in an unobserved process or in a forked child.
#[inline]
pub fn current() -> Option<&'static Observed> {
    let alive = ALIVE.load(Ordering::Acquire);
    // SAFETY: the page is never unmapped.
    if alive.is_null() || unsafe { (*alive).load(Ordering::Relaxed) } == 0 {
        return None;
    }
    // SAFETY: set before `alive`, never freed.
    unsafe { CURRENT.load(Ordering::Acquire).as_ref() }
}

fn errno() -> c_int {
    // SAFETY: errno's location is valid in every thread.
    unsafe { *libc::__errno_location() }
}

/// Starts the observation of this process and of the calling thread, which is the main thread.
pub fn start(config: &Config) -> Result<&'static Observed, StartError> {
    let anchor = Anchor::now();
    let realtime_ns = clock_ns(libc::CLOCK_REALTIME);
    let descriptors = Descriptors::new();
    let segment = Shared::new(config.period_ns, &descriptors)?;
    let ring_bytes = segment.ring_bytes();
    let addresses = mapping::private(size_of::<Addresses>());
    let alive = mapping::private(4096);
    if addresses.is_null() || alive.is_null() {
        return Err(StartError::Segment(errno()));
    }
    // SAFETY: the page was just mapped.
    unsafe { mapping::advise(alive, 4096, libc::MADV_WIPEONFORK) };
    let rate = Anchor::rate_since(anchor);
    let observed = Box::leak(Box::new(Observed {
        period_ticks: ticks_in(config.period_ns, rate),
        period_stamps: stamp(ticks_in(config.period_ns, rate)),
        ticked_stamps: stamp(ticks_in(config.period_ns.max(tick_ns()), rate)),
        late_stamps: stamp(ticks_in(config.period_ns + config.period_ns / 8, rate)),
        part_stamps: stamp(ticks_in(config.period_ns / 4, rate)),
        poll_gap_ticks: ticks_in(MAX_POLL_GAP_NS, rate),
        interrupted_ticks: ticks_in(INTERRUPTED_NS, rate),
        period_ns: config.period_ns,
        clock: config.clock,
        segment,
        // SAFETY: zeroed memory is an empty table.
        addresses: unsafe { &*addresses.cast::<Addresses>() },
        snapshots: modules::Published::none(),
        blocks: [const { AtomicPtr::new(null_mut()) }; MAX_THREADS],
        free_blocks: FreeBlocks::new(),
        next_area: AtomicUsize::new(0),
        undrained_area: AtomicUsize::new(observed_threads::NO_AREA),
        own_text: (0, 0),
        is_library: false,
        verifies_marks: config.marks == Marks::Verify,
        interpreter: None,
        events: config.events.clone(),
        descriptors,
        lock: Lock::default(),
        stopped: AtomicBool::new(false),
    }));
    let here = start as *const () as u64;
    let loaded = modules::loaded();
    let holds_us = |module: &modules::LoadedModule| here >= module.start && here < module.end;
    if let Some(at) = loaded.iter().position(holds_us) {
        observed.own_text = (loaded[at].start, loaded[at].end);
        observed.is_library = at > 0;
    }
    // The Go runtime installs handlers for all signals without the C library, and signals unknown
    // to it are fatal.
    let takes_signals = loaded.first().is_some_and(|program| program.is_go);
    // SAFETY: the mapping holds the whole table, and is never unmapped.
    let (functions, used) = unsafe {
        let start = observed.segment.start();
        let table = start.add(SCRIPTS_OFFSET).cast::<ScriptFunction>();
        let functions = core::slice::from_raw_parts(table, MAX_SCRIPT_FUNCTIONS);
        (functions, &(*start.cast::<Process>()).script_functions)
    };
    observed.interpreter = Interpreter::find(functions, used);
    let observed: &'static Observed = observed;
    let header = observed.header();
    header.version.store(plimsoll_wire::record::VERSION, Ordering::Relaxed);
    header.pid.store(std::process::id(), Ordering::Relaxed);
    header.start_time.store(start_time(), Ordering::Relaxed);
    header.period_ns.store(config.period_ns, Ordering::Relaxed);
    header.period_stamps.store(observed.period_stamps, Ordering::Relaxed);
    header.kept_period_stamps.store(observed.period_stamps, Ordering::Relaxed);
    header.clock.store(config.clock as u32, Ordering::Relaxed);
    header.only_samples.store(u32::from(!config.regions), Ordering::Relaxed);
    header.ring_bytes.store(ring_bytes as u32, Ordering::Relaxed);
    header.anchor_ticks.store(anchor.ticks, Ordering::Relaxed);
    header.anchor_ns.store(anchor.ns, Ordering::Relaxed);
    header.anchor_realtime_ns.store(realtime_ns, Ordering::Relaxed);
    header.ns_per_ticks_q32.store(rate, Ordering::Relaxed);
    header.begin_stamp.store(stamp(anchor.ticks), Ordering::Relaxed);
    header.addresses.store(1, Ordering::Relaxed);
    modules::find_asking_functions();
    code_rules::prepare();
    if config.marks == Marks::Off {
        observed.disable_marks(MarksDisabled::Setting);
    } else {
        mark_stubs::prepare();
    }
    observed.notice_modules();
    header.magic.store(MAGIC, Ordering::Release);
    CURRENT.store(std::ptr::from_ref(observed).cast_mut(), Ordering::Release);
    // SAFETY: the page was just mapped.
    unsafe { (*alive.cast::<AtomicU64>()).store(1, Ordering::Relaxed) };
    ALIVE.store(alive.cast(), Ordering::Release);
    if takes_signals {
        observed.step_aside();
    } else if tracer::is_debugger() {
        observed.step_aside_for(Aside::Debugger);
    } else {
        crate::sampler::install(config.sigaction);
    }
    observed.attach_thread(0, ThreadOrigin::default());
    Ok(observed)
}

/// Returns the start time of this process in clock ticks since boot; 0 if it cannot be read.
pub fn start_time() -> u64 {
    ProcessStat::read("self").map_or(0, |stat| stat.start_time)
}

impl Observed {
    /// Returns the header of the segment.
    pub fn header(&self) -> &Process {
        self.segment.header()
    }

    /// Returns the agent's own file descriptors.
    pub(crate) fn descriptors(&self) -> &Descriptors {
        &self.descriptors
    }

    /// Moves a file descriptor out of the application's way and returns its new number; -1 on
    /// failure.
    pub fn adopt_descriptor(&self, descriptor: c_int) -> c_int {
        self.descriptors.adopt(descriptor).unwrap_or(-1)
    }

    /// Announces to the collector that the process is about to end, so that the collector reports.
    /// `how` is a nonzero code for the kind of end, defined by the user of this crate.
    pub fn announce_ending(&self, how: u32) {
        self.header().ending.store(how, Ordering::Release);
        self.header().bell.ring();
    }

    /// Returns whether the collector has reported since then.
    pub fn is_reported(&self) -> bool {
        self.header().reported.load(Ordering::Acquire) & REPORT_ENDED != 0
    }

    /// Returns whether the run was reported because a process announced its end, although that
    /// process still runs (it restricts itself).
    pub fn is_outlived(&self) -> bool {
        self.header().outlived.load(Ordering::Acquire) != 0
    }

    /// Returns whether the collector has begun to evaluate the run for the report.
    pub fn is_report_begun(&self) -> bool {
        self.header().reported.load(Ordering::Relaxed) & REPORT_BEGUN != 0
    }

    /// Returns the file descriptor of the segment, for a collector in another process.
    pub fn descriptor(&self) -> c_int {
        self.segment.number()
    }

    /// Maps a range of the segment once more, for a collector in this process; `None` on failure.
    pub fn map_segment(&self, offset: usize, bytes: usize) -> Option<*mut u8> {
        self.segment.map(offset, bytes)
    }

    /// Returns the size of the segment in bytes.
    pub fn segment_bytes(&self) -> usize {
        self.segment.size()
    }

    /// Returns the resident bytes of the sampler's own mappings: the table of addresses, and the
    /// state and handler stack of each thread and of some former ones. The heap and the segment are
    /// not included. Takes no lock, since a crashed thread may hold the lock. A thread that ends
    /// during the call counts as 0 bytes.
    pub fn sampling_bytes(&self) -> u64 {
        let blocks = self.blocks.iter().map(|block| block.load(Ordering::Acquire));
        let blocks = blocks.filter(|block| !block.is_null());
        let of_threads: u64 =
            blocks.map(|block| mapping::resident(block.cast(), BLOCK_BYTES)).sum();
        let table = std::ptr::from_ref(self.addresses).cast();
        of_threads
            + self.free_blocks.resident_bytes()
            + mapping::resident(table, size_of::<Addresses>())
    }

    /// Returns whether every stack that a mark or an open call shortened is compared with the whole
    /// stack.
    #[inline]
    pub fn verifies_marks(&self) -> bool {
        self.verifies_marks
    }

    /// Returns whether return addresses are marked.
    #[inline]
    pub fn marks(&self) -> bool {
        self.header().marks_off.load(Ordering::Relaxed) == 0
    }

    /// Disables marks and records the reason; the first reason is kept.
    pub fn disable_marks(&self, reason: MarksDisabled) {
        let off = &self.header().marks_off;
        let _ = off.compare_exchange(0, reason as u32, Ordering::Relaxed, Ordering::Relaxed);
    }

    /// Sets a bit of [`plimsoll_wire::sync_id::unfollowed`] in the header: `what` is not followed.
    pub fn leave_unfollowed(&self, what: u32) {
        let unfollowed = &self.header().unfollowed;
        if unfollowed.load(Ordering::Relaxed) & what == 0 {
            unfollowed.fetch_or(what, Ordering::Relaxed);
        }
    }

    /// Returns the table of addresses that may be marked.
    pub(crate) fn markable(&self) -> &Markable {
        &self.addresses.markable
    }

    /// Returns the interpreter of the process, if there is one.
    pub(crate) fn interpreter(&self) -> Option<&Interpreter> {
        self.interpreter.as_ref()
    }

    /// Returns whether `address` lies in the code of this library.
    #[inline]
    pub fn is_own(&self, address: u64) -> bool {
        self.is_library && address >= self.own_text.0 && address < self.own_text.1
    }

    fn address_table(&self) -> PublishedAddresses<'_> {
        // SAFETY: the mapping holds the whole table.
        let table = unsafe {
            core::slice::from_raw_parts(
                self.segment.start().add(ADDRESSES_OFFSET).cast::<Address>(),
                MAX_ADDRESSES,
            )
        };
        PublishedAddresses { table, used: &self.header().addresses }
    }

    /// Runs `work` with the tables and caches for unwinding. Returns `None` before the first module
    /// snapshot is published.
    #[inline]
    pub(crate) fn with_unwinding<R>(
        &self,
        state: &mut State,
        work: impl FnOnce(&mut Unwinding<'_>, &mut Walk<'_>) -> R,
    ) -> Option<R> {
        let block = self.blocks[state.index as usize].load(Ordering::Relaxed);
        // SAFETY: the block of the calling thread, which is attached.
        let hazard = unsafe { &(*block).hazard };
        let snapshot = self.snapshots.protect(hazard)?;
        let mut unwinding = Unwinding {
            snapshot,
            addresses: self.addresses,
            published: self.address_table(),
            cache: &mut state.cache,
            scratch: &mut state.scratch,
            interpreter: self.interpreter.as_ref(),
        };
        let mut walk = Walk {
            found: &mut state.found,
            whole: &mut state.whole,
            stack_bounds: state.stack_bounds,
            area: state.area,
        };
        let result = work(&mut unwinding, &mut walk);
        hazard.store(null_mut(), Ordering::Release);
        Some(result)
    }

    /// Interns an address from outside the handler and returns its id; 0 on failure.
    pub(crate) fn intern(&self, state: &mut State, value: u64) -> u32 {
        self.with_unwinding(state, |unwinding, _| {
            unwinding
                .addresses
                .intern(value, true, &unwinding.published, unwinding.snapshot, unwinding.scratch)
                .map_or(0, |interned| interned.id)
        })
        .unwrap_or(0)
    }

    /// Interns an address that stands for a region or task of OpenMP; otherwise as
    /// [`Observed::intern`].
    pub(crate) fn intern_construct(&self, state: &mut State, value: u64) -> u32 {
        let id = self.intern(state, value);
        if let Some(address) = self.address_table().table.get(id as usize) {
            address.flags.fetch_or(ADDRESS_IS_CONSTRUCT, Ordering::Relaxed);
        }
        id
    }

    /// Interns the first address of a function that a rule declares to synchronise ranks. Samples
    /// at that address have another id. Returns the id; 0 on failure.
    pub(crate) fn intern_declared(&self, state: &mut State, entry: u64) -> u32 {
        self.with_unwinding(state, |unwinding, _| {
            unwinding
                .addresses
                .intern_declared(entry, &unwinding.published, unwinding.snapshot, unwinding.scratch)
                .map_or(0, |interned| interned.id)
        })
        .unwrap_or(0)
    }

    /// Runs `work` on the calling thread's state while the handler is excluded, on a stack with
    /// enough room for `work`.
    pub fn with_thread<R>(&self, work: impl FnOnce(&mut State) -> R) -> Option<R> {
        // SAFETY: the block is the calling thread's.
        unsafe { tls::get().as_ref() }?.enter(|state| state.with_room(work))
    }

    /// Returns whether the calling process is the observed one, and not a vforked child that shares
    /// its memory.
    pub fn is_own_process(&self) -> bool {
        // SAFETY: getpid has no preconditions.
        let pid = unsafe { libc::syscall(libc::SYS_getpid) } as u32;
        self.header().pid.load(Ordering::Relaxed) == pid
    }

    /// Returns whether the calling thread is the one that was attached to its block, and not a
    /// vforked child that shares the block.
    pub fn is_own_thread(&self) -> bool {
        // SAFETY: gettid has no preconditions.
        let tid = unsafe { libc::syscall(libc::SYS_gettid) } as libc::pid_t;
        self.with_thread(|state| state.tid == tid).unwrap_or(false)
    }
}

/// Number of modules that were loaded with the program. The loader lists them first.
static PERMANENT: AtomicU64 = AtomicU64::new(0);

/// Parts of the thread's state that an unwind uses.
pub(crate) struct Walk<'s> {
    /// [`State::found`].
    pub found: &'s mut Frames,
    /// [`State::whole`].
    pub whole: &'s mut Frames,
    /// [`State::stack_bounds`].
    pub stack_bounds: (u64, u64),
    area: *const ThreadArea,
}

impl Walk<'_> {
    /// Returns the thread's area in the segment.
    pub fn area(&self) -> &ThreadArea {
        // SAFETY: as `State::area`.
        unsafe { &*self.area }
    }
}

/// Detaches a forked child from the parent's measurement: the child is not observed.
pub fn forget_in_child() {
    tls::set(null_mut());
    ALIVE.store(null_mut(), Ordering::Release);
    CURRENT.store(null_mut(), Ordering::Release);
    PERMANENT.store(0, Ordering::Relaxed);
}
