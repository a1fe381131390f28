//! The job as this process sees it: from the constructor over MPI_Init to the report.

use std::ffi::c_void;
use std::path::PathBuf;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use parking_lot::Mutex;
use plimsoll_agent::marks::Marks;
use plimsoll_agent::process::{self, Config, Observed};
use plimsoll_analysis::input::{Exchange, RankClock};
use plimsoll_analysis::rules::Rules;
use plimsoll_collector::{Collector, Options, ProcessKey};
use plimsoll_comm::mpi::node::NodeRank;
use plimsoll_comm::mpi::presence::Token;
use plimsoll_comm::mpi::{HandleFacts, Library, MpiCommunicator, launch};
use plimsoll_report::output::{LocalTime, job_id};
use plimsoll_summary::settings::{ClockChoice, MarksChoice, Settings};
use plimsoll_wire::segment::ClockKind;

use crate::wrappers::REGIONS;
use crate::{ending, heap, loading, say, signals, surroundings, threads};
use spool::Claimed;

mod attendance;
mod conclude;
mod finalize;
mod irregular;
mod labels;
mod memory_report;
mod session;
mod spool;
mod start;
mod withdrawal;

pub use finalize::{finalize, finalize_session};
pub use irregular::write_incomplete;
pub use session::{Session, around_session_init, made_from_group};
pub use start::around_mpi_init;
pub use withdrawal::{abandon, withdraw};

/// Longest that MPI_Finalize, or another end, waits for loops and lines to be looked up.
const LOOKUP_TIME: Duration = Duration::from_millis(300);

/// The job, as long as this process is observed.
pub struct Job {
    /// What the user set.
    pub settings: Settings,
    /// Current directory at the begin of the process; empty if that was unknown.
    pub directory: PathBuf,
    /// Path of the program.
    pub executable: String,
    /// Job id.
    pub id: String,
    /// Host name.
    pub host: String,
    /// Begin of the process.
    pub started: LocalTime,
    arguments: Vec<String>,
    collector: Arc<Collector>,
    claimed: Mutex<Option<Claimed>>,
    /// The user's rules of labels, once they are read or told.
    rules: Mutex<Option<Rules>>,
    /// Held for moments only, and never while this process communicates, evaluates or writes: an
    /// irregular end may need it at any time.
    state: Mutex<State>,
}

/// How far the job has come, as seen by those who may write its report.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Phase {
    /// Nobody has begun to evaluate the profiles.
    #[default]
    Collecting,
    /// One thread, which has taken the ranks out of the state, evaluates their profiles.
    Concluding,
    /// The report is written, or cannot be.
    Done,
}

#[derive(Default)]
struct State {
    collecting: Option<libc::pthread_t>,
    keeping_house: Option<libc::pthread_t>,
    /// The ranks that this process collects; before MPI_Init and without MPI, itself.
    ranks: Vec<(ProcessKey, NodeRank)>,
    mpi: Option<MpiSide>,
    /// What the holders of profiles have told each other of their clocks.
    exchanges: Vec<Exchange>,
    phase: Phase,
}

impl State {
    /// This process collects ranks, and has yet to evaluate them.
    fn holds(&self) -> bool {
        self.phase == Phase::Collecting && !self.ranks.is_empty()
    }
}

/// What is taken out of the state to be evaluated.
#[derive(Default)]
struct Taken {
    ranks: Vec<(ProcessKey, NodeRank)>,
    exchanges: Vec<Exchange>,
    /// Ranks whose spools are in one folder.
    spool_size: u32,
}

/// The job's MPI.
struct MpiSide {
    library: Arc<Library>,
    rank: u32,
    size: u32,
    /// It began with a session, and MPI_Init was not called: there is no MPI_COMM_WORLD.
    by_session: bool,
    /// All ranks carry the library, and have come together.
    is_together: bool,
    /// Our communicators then, until the run ends.
    together: Option<Together>,
    /// Why not, else.
    apart: Option<String>,
    /// This process speaks for the job.
    speaks: bool,
    /// This rank's token, kept until every rank has counted.
    token: Option<Token>,
}

/// Communicators of our own.
struct Together {
    world: MpiCommunicator,
    node: MpiCommunicator,
    /// The processes that hold profiles, or the others among themselves.
    holders: MpiCommunicator,
    holds: bool,
}

static CURRENT: AtomicPtr<Job> = AtomicPtr::new(null_mut());
static FACTS: AtomicPtr<HandleFacts> = AtomicPtr::new(null_mut());
/// Block of the thread that called MPI_Init.
static MAIN_THREAD: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
/// By what the launcher says, this process speaks for the job.
static SPEAKS: AtomicBool = AtomicBool::new(false);
static INSIDE_MPI_INIT: AtomicBool = AtomicBool::new(false);
/// The process that collects this one, if it is another.
static COLLECTOR: AtomicU32 = AtomicU32::new(0);

fn get() -> Option<&'static Job> {
    process::current()?;
    // SAFETY: set from a leaked box, never freed.
    unsafe { CURRENT.load(Ordering::Acquire).as_ref() }
}

/// What is known about the application's MPI handles.
pub fn handle_facts() -> Option<&'static HandleFacts> {
    // SAFETY: set from a leaked box, never freed.
    unsafe { FACTS.load(Ordering::Acquire).as_ref() }
}

/// Nothing is known about handles any more.
fn forget_handles() {
    FACTS.store(null_mut(), Ordering::Release);
}

/// The application frees a communicator or a window.
pub fn members_freed() {
    if let Some(facts) = handle_facts() {
        facts.forget_members();
    }
}

/// The application frees a datatype.
pub fn datatype_freed() {
    if let Some(facts) = handle_facts() {
        facts.forget_datatypes();
    }
}

/// Whether the calling thread is the one that called MPI_Init.
pub fn is_main_thread() -> bool {
    let block: *mut c_void = plimsoll_agent::tls::get().cast();
    !block.is_null() && block == MAIN_THREAD.load(Ordering::Relaxed)
}

/// The calling thread ends: another may come to have its block.
pub fn forget_thread() {
    if is_main_thread() {
        MAIN_THREAD.store(null_mut(), Ordering::Relaxed);
    }
}

/// The application's last thread ends, and with it the process, once no thread of ours is left: reports,
/// and waits until ours have ended, so that the C library runs the exit handlers on the application's.
pub fn last_thread_ended() {
    ending::by_exit();
    let Some(job) = get() else { return };
    job.stop_collector();
    let house = job.state.lock().keeping_house.take();
    ending::finished();
    loading::wake();
    if let Some(house) = house {
        threads::join(house);
    }
}

/// Whether MPI_Init runs: threads that are created now are MPI's.
pub fn inside_mpi_init() -> bool {
    INSIDE_MPI_INIT.load(Ordering::Relaxed)
}

/// Whether this process has its own thread, which writes the report of an irregular end.
pub fn has_thread() -> bool {
    get().is_some_and(|job| job.state.try_lock().is_none_or(|state| state.keeping_house.is_some()))
}

/// The process can have no further thread: ends ours. What was measured stays where it is until the process
/// ends. Returns whether there were any.
pub fn give_threads_back() -> bool {
    let Some(job) = get() else { return false };
    let house = {
        let Some(mut state) = job.state.try_lock() else { return false };
        if state.phase != Phase::Collecting || ending::is_requested() {
            return false;
        }
        if state.keeping_house.is_none() && state.collecting.is_none() {
            return false;
        }
        state.keeping_house.take()
    };
    if let Some(house) = house {
        ending::dismiss();
        loading::wake();
        threads::join(house);
    }
    job.stop_collector();
    if speaks() {
        say::warn(
            "the threads that read and report the samples have ended, since the program could create no \
             further one beside them: most samples from here on will be lost. Raise `ulimit -u`, the limit on \
             processes.",
        );
    }
    true
}

/// The process exits, and its own thread was given back: there may be room for it now.
pub fn have_thread_again() -> bool {
    let Some(job) = get() else { return false };
    let Some(mut state) = job.state.try_lock() else { return false };
    if state.keeping_house.is_none() && ending::take_dismissal() {
        state.keeping_house = threads::spawn(Box::new(ending::keep_house));
    }
    state.keeping_house.is_some()
}

/// The other process of the node that collects this one and writes the report, if one does.
pub fn collector_elsewhere() -> Option<u32> {
    Some(COLLECTOR.load(Ordering::Relaxed)).filter(|pid| *pid != 0)
}

/// In a forked child: the job is the parent's.
pub fn forget_in_child() {
    CURRENT.store(null_mut(), Ordering::Relaxed);
    withdrawal::forget_in_child();
    FACTS.store(null_mut(), Ordering::Relaxed);
    MAIN_THREAD.store(null_mut(), Ordering::Relaxed);
    INSIDE_MPI_INIT.store(false, Ordering::Relaxed);
    COLLECTOR.store(0, Ordering::Relaxed);
    ending::forget_in_child();
}

/// Whether this process speaks for the job, by what the launcher says.
pub fn speaks() -> bool {
    SPEAKS.load(Ordering::Relaxed)
}

/// MPI_Pcontrol.
pub fn pause(pause: bool) {
    if let Some(observed) = process::current() {
        observed.pause(pause);
    }
}

/// Begins to observe this process.
pub fn begin(settings: Settings) {
    let clock = match settings.clock {
        ClockChoice::Cpu => ClockKind::Cpu,
        ClockChoice::Wall => ClockKind::Wall,
    };
    let config = Config {
        period_ns: settings.period_ns,
        clock,
        marks: match settings.marks {
            MarksChoice::On => Marks::On,
            MarksChoice::Off => Marks::Off,
            MarksChoice::Verify => Marks::Verify,
        },
        regions: settings.regions,
        sigaction: signals::real_sigaction,
    };
    let rules = labels::read_at_start(&settings);
    heap::keep_reserve();
    threads::prepare_exit_watch();
    let observed = match process::start(&config) {
        Ok(observed) => observed,
        Err(error) => {
            // One that is missing is missed by the others.
            if crate::speaks() {
                say::warn(&format!("this process is not observed: {error}"));
            }
            return;
        }
    };
    threads::watch_first();
    REGIONS.store(settings.regions, Ordering::Relaxed);
    SPEAKS.store(launch::told_rank().is_none_or(|rank| rank == 0), Ordering::Relaxed);
    signals::tell_stepped_aside();
    let structure = plimsoll_binary::Options {
        cache: plimsoll_binary::default_cache_folder(),
        ..Default::default()
    };
    let options = Options {
        memory_bytes: settings.memory_bytes,
        // Before MPI_Init a rank would look up what nobody is told.
        follows_from_start: launch::told_rank().is_none(),
        structure,
        has_memory: heap::has_room,
        lookup_time: Some(LOOKUP_TIME),
    };
    let collector = Arc::new(Collector::new(options));
    // SAFETY: no preconditions.
    let launcher = unsafe { libc::getppid() } as u32;
    let job = Box::leak(Box::new(Job {
        directory: std::env::current_dir().unwrap_or_default(),
        executable: surroundings::executable().to_string_lossy().into_owned(),
        id: job_id(|name| std::env::var_os(name), launcher),
        host: surroundings::host(),
        started: LocalTime::at(SystemTime::now()),
        arguments: surroundings::arguments(),
        collector,
        claimed: Mutex::new(None),
        rules: Mutex::new(rules),
        state: Mutex::new(State::default()),
        settings,
    }));
    CURRENT.store(job, Ordering::Release);
    let job: &'static Job = job;
    let me = job.introduce(observed, 0);
    job.spool_alone();
    let mut state = job.state.lock();
    match job.collector.attach(me.pid, me.descriptor, me.start_time) {
        Ok(key) => state.ranks.push((key, me)),
        Err(error) => say::warn(&format!("this process's samples cannot be read: {error}")),
    }
    job.note_spool(&state);
    state.collecting = job.spawn_collector();
    state.keeping_house = threads::spawn(Box::new(ending::keep_house));
    if (state.collecting.is_none() || state.keeping_house.is_none()) && speaks() {
        say::warn(
            "the threads that read and report the samples could not be created: most samples will be lost. \
             Raise `ulimit -u`, the limit on processes.",
        );
    }
    drop(state);
    signals::watch_fatal();
}

impl Job {
    fn introduce(&self, observed: &Observed, rank: u32) -> NodeRank {
        NodeRank {
            rank,
            pid: std::process::id(),
            start_time: process::start_time(),
            descriptor: observed.descriptor(),
            cores: surroundings::cores(),
            clock: surroundings::clock(),
            watched: self.settings.ranks.contains(rank),
        }
    }

    /// What is known of the clock that a rank collected here reads.
    fn clock_of(exchanges: &[Exchange], rank: &NodeRank) -> RankClock {
        // What this process told the others is of its own.
        let ours = rank.clock == surroundings::clock();
        let exchanges = if ours { exchanges.to_vec() } else { Vec::new() };
        RankClock { id: rank.clock.clone(), exchanges }
    }

    fn spawn_collector(&self) -> Option<libc::pthread_t> {
        let collector = self.collector.clone();
        threads::spawn(Box::new(move || {
            threads::give_way();
            collector.run(ending::by_rank);
            if heap::is_exhausted() {
                withdrawal::tell_exhausted();
            }
        }))
    }

    /// To be called without the lock of the state.
    fn stop_collector(&self) {
        let thread = self.state.lock().collecting.take();
        if let Some(thread) = thread {
            self.collector.stop();
            threads::join(thread);
        }
    }
}
