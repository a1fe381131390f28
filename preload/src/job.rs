//! The job, from the library's constructor through MPI_Init to the report, as this process takes
//! part in it.

use std::path::PathBuf;
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicPtr, AtomicU32, Ordering};
use std::time::{Duration, SystemTime};

use plimsoll_agent::counters::Event;
use plimsoll_agent::marks::Marks;
use plimsoll_agent::observed_process::{self, Config, Observed};
use plimsoll_analysis::input::{Exchange, RankClock};
use plimsoll_analysis::rules::Rules;
use plimsoll_collector::profile::Aggregation;
use plimsoll_collector::{Collector, Options, ProcessKey};
use plimsoll_comm::mpi::node::NodeRank;
use plimsoll_comm::mpi::presence::Token;
use plimsoll_comm::mpi::{HandleFacts, Library, MpiCommunicator, launcher};
use plimsoll_report::output::{LocalTime, job_id};
use plimsoll_summary::settings::{ClockChoice, EventChoice, MarksChoice, Settings, ThreadsChoice};
use plimsoll_sys::lock::Lock;
use plimsoll_wire::segment::ClockKind;

use crate::wrappers::{PARTNERS, REGIONS, SUSPENDS_TIMERS};
use crate::{
    communicating_thread, environment, heap, loading, log, own_threads, signals, termination,
    threads,
};
use spool::Claimed;

mod conclude;
mod finalize;
mod irregular;
mod labels;
mod memory_report;
mod preload_census;
mod session;
mod spool;
mod start;
mod withdrawal;

pub use finalize::{finalize, finalize_session};
pub use irregular::write_incomplete;
pub use session::{Session, around_session_init, made_from_group};
pub use start::around_mpi_init;
pub use withdrawal::{abandon, withdraw};

/// Maximum time that MPI_Finalize, or another end of the process, waits for the lookup of loops and
/// source lines.
const LOOKUP_TIME: Duration = Duration::from_millis(300);

/// State of the job in this process; exists while the process is observed.
pub struct Job {
    /// Settings from the environment.
    pub settings: Settings,
    /// Current directory at the start of the process; empty if unknown.
    pub directory: PathBuf,
    /// Path of the program; empty if unknown.
    pub executable: String,
    /// Job id of the batch system; without a batch system, the process id of the launcher.
    pub id: String,
    /// Host name.
    pub host: String,
    /// Local time at the start of the process.
    pub started: LocalTime,
    arguments: Vec<String>,
    collector: Arc<Collector>,
    claimed: Lock<Option<Claimed>>,
    /// The user's label rules; `None` until they are read, or received from rank 0.
    rules: Lock<Option<Rules>>,
    /// Locked only briefly, and never while this process communicates, evaluates or writes, because
    /// an irregular end may need the lock at any time.
    state: Lock<State>,
}

/// Progress of the job, which decides which thread may write the report.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Phase {
    /// No thread has begun to evaluate the profiles.
    #[default]
    Collecting,
    /// One thread, which has taken the ranks out of the state, evaluates their profiles.
    Concluding,
    /// The report is written or cannot be written.
    Done,
}

#[derive(Default)]
struct State {
    collecting: Option<libc::pthread_t>,
    helper: Option<libc::pthread_t>,
    /// Ranks that this process collects; before MPI_Init and without MPI, only this process.
    ranks: Vec<(ProcessKey, NodeRank)>,
    mpi: Option<MpiSide>,
    /// Clock exchanges between the holders of profiles.
    exchanges: Vec<Exchange>,
    phase: Phase,
}

impl State {
    /// Returns whether this process collects ranks that are not evaluated yet.
    fn holds(&self) -> bool {
        self.phase == Phase::Collecting && !self.ranks.is_empty()
    }
}

/// Values moved out of the state for the evaluation.
#[derive(Default)]
struct Taken {
    ranks: Vec<(ProcessKey, NodeRank)>,
    exchanges: Vec<Exchange>,
    /// Number of ranks with their spools in one folder.
    spool_size: u32,
}

/// The job's MPI library and the rank of this process in the job.
struct MpiSide {
    library: Arc<Library>,
    rank: u32,
    size: u32,
    /// Whether MPI began with a session and without MPI_Init: there is no MPI_COMM_WORLD.
    by_session: bool,
    /// Whether all ranks carry the library and have agreed on that.
    is_together: bool,
    /// Plimsoll's communicators, from that agreement until the run ends; `None` otherwise.
    together: Option<Together>,
    /// Reason why the ranks are not together; `None` if they are.
    apart: Option<String>,
    /// Whether this process prints the messages of the job.
    speaks: bool,
    /// This rank's token of the census, kept until every rank has counted.
    token: Option<Token>,
}

/// Communicators that only Plimsoll uses, so that its messages never match the application's.
struct Together {
    world: MpiCommunicator,
    node: MpiCommunicator,
    /// Communicator of the processes that hold profiles, or, on the other processes, of those
    /// others.
    holders: MpiCommunicator,
    holds: bool,
}

static CURRENT: AtomicPtr<Job> = AtomicPtr::new(null_mut());
static FACTS: AtomicPtr<HandleFacts> = AtomicPtr::new(null_mut());
/// Whether this process prints the messages of the job, judged by the launcher's environment.
static SPEAKS: AtomicBool = AtomicBool::new(false);
static INSIDE_MPI_INIT: AtomicBool = AtomicBool::new(false);
/// Id of the thread that collects; 0 before it starts.
static COLLECTING: AtomicI32 = AtomicI32::new(0);
/// Process id of the other process that collects this one; 0 if there is none.
static COLLECTOR: AtomicU32 = AtomicU32::new(0);

pub fn get() -> Option<&'static Job> {
    observed_process::current()?;
    // SAFETY: set from a leaked box, never freed.
    unsafe { CURRENT.load(Ordering::Acquire).as_ref() }
}

/// Returns the facts about the application's MPI handles; `None` while there are none.
pub fn handle_facts() -> Option<&'static HandleFacts> {
    // SAFETY: set from a leaked box, never freed.
    unsafe { FACTS.load(Ordering::Acquire).as_ref() }
}

/// Drops the facts about MPI handles, which are no longer valid.
fn forget_handles() {
    FACTS.store(null_mut(), Ordering::Release);
}

/// Drops the cached members of communicators and windows, since the application frees one.
pub fn members_freed() {
    if let Some(facts) = handle_facts() {
        facts.forget_members();
    }
}

/// Drops the cached datatypes, since the application frees one.
pub fn datatype_freed() {
    if let Some(facts) = handle_facts() {
        facts.forget_datatypes();
    }
}

/// Writes the report when the application's last thread ends, since the process ends once no thread
/// of Plimsoll is left. Waits until Plimsoll's threads have ended, so that the C library runs the
/// exit handlers on the application's thread.
pub fn last_thread_ended() {
    termination::by_exit();
    let Some(job) = get() else { return };
    job.stop_collector();
    let helper = job.state.lock().helper.take();
    termination::finished();
    loading::wake();
    if let Some(helper) = helper {
        own_threads::join(helper);
    }
}

/// Returns whether MPI_Init is running: threads created during MPI_Init are MPI's.
pub fn inside_mpi_init() -> bool {
    INSIDE_MPI_INIT.load(Ordering::Relaxed)
}

/// Returns whether this process has a thread that writes the report of an irregular end.
pub fn has_thread() -> bool {
    get().is_some_and(|job| job.state.try_lock().is_none_or(|state| state.helper.is_some()))
}

/// Ends Plimsoll's threads when the process can create no further one. Samples in the rings stay
/// there until the process ends. Returns whether there were any threads to end.
pub fn give_threads_back() -> bool {
    let ended = end_threads();
    if ended && speaks() {
        log::warn(
            "the threads that read and report the samples have ended, since the program could \
             create no further one beside them: most samples from here on will be lost. Raise \
             `ulimit -u`, the limit on processes.",
        );
    }
    ended
}

/// Ends Plimsoll's threads, and waits until the kernel no longer counts them. Returns whether there
/// were any threads to end.
pub fn end_threads() -> bool {
    // A child made by clone has the state of its parent, but not the threads.
    if !observed_process::current().is_some_and(Observed::is_own_process) {
        return false;
    }
    let Some(job) = get() else { return false };
    let helper = {
        let Some(mut state) = job.state.try_lock() else { return false };
        if state.phase != Phase::Collecting || termination::is_requested() {
            return false;
        }
        if state.helper.is_none() && state.collecting.is_none() {
            return false;
        }
        state.helper.take()
    };
    if let Some(helper) = helper {
        termination::dismiss();
        loading::wake();
        own_threads::join(helper);
    }
    job.stop_collector();
    job.collector.go_on();
    for id in [termination::helper_id(), COLLECTING.load(Ordering::Relaxed)] {
        own_threads::await_release(id);
    }
    true
}

/// Starts the threads again that [`end_threads`] has ended.
pub fn start_threads_again() {
    have_thread_again();
    let Some(job) = get() else { return };
    let Some(mut state) = job.state.try_lock() else { return };
    if state.collecting.is_none() {
        state.collecting = job.spawn_collector();
    }
    if state.helper.is_none() || state.collecting.is_none() {
        log::debug(|| "threads of Plimsoll could not be created again".to_owned());
    }
}

/// Restarts the thread that writes reports, which [`end_threads`] has ended, if there is room for
/// it. Returns whether the thread exists.
pub fn have_thread_again() -> bool {
    let Some(job) = get() else { return false };
    let Some(mut state) = job.state.try_lock() else { return false };
    if state.helper.is_none() && termination::take_dismissal() {
        state.helper = own_threads::spawn(Box::new(termination::helper_thread));
    }
    state.helper.is_some()
}

/// Returns the process id of the other process on the node that collects this one and writes the
/// report; `None` if this process does so itself.
pub fn collector_elsewhere() -> Option<u32> {
    Some(COLLECTOR.load(Ordering::Relaxed)).filter(|pid| *pid != 0)
}

/// Resets the state in a forked child, since the job belongs to the parent.
pub fn forget_in_child() {
    CURRENT.store(null_mut(), Ordering::Relaxed);
    withdrawal::forget_in_child();
    FACTS.store(null_mut(), Ordering::Relaxed);
    communicating_thread::forget_all();
    INSIDE_MPI_INIT.store(false, Ordering::Relaxed);
    COLLECTOR.store(0, Ordering::Relaxed);
    termination::forget_in_child();
}

/// Returns whether this process prints the messages of the job, judged by the launcher's
/// environment.
pub fn speaks() -> bool {
    SPEAKS.load(Ordering::Relaxed)
}

/// Pauses or resumes the measurement, as MPI_Pcontrol asks.
pub fn pause(pause: bool) {
    if let Some(observed) = observed_process::current() {
        observed.pause(pause);
    }
}

fn event(EventChoice { name, kind, config }: &EventChoice) -> Event {
    Event { name: name.clone(), kind: *kind, config: *config }
}

/// Starts to observe this process: sampling, the collector, the spool and the threads.
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
        events: settings.events.iter().map(event).collect(),
        sigaction: signals::real_sigaction,
    };
    let rules = labels::read_at_start(&settings);
    own_threads::find_creator();
    threads::prepare_exit_watch();
    let observed = match observed_process::start(&config) {
        Ok(observed) => observed,
        Err(error) => {
            // The other ranks report that this one is missing.
            if crate::speaks() {
                log::warn(&format!("this process is not observed: {error}"));
            }
            return;
        }
    };
    heap::keep_reserve();
    threads::watch_first();
    let suspends_timers = settings.regions && settings.clock == ClockChoice::Wall;
    SUSPENDS_TIMERS.store(suspends_timers, Ordering::Relaxed);
    REGIONS.store(settings.regions, Ordering::Relaxed);
    PARTNERS.store(settings.partners, Ordering::Relaxed);
    SPEAKS.store(launcher::launcher_rank().is_none_or(|rank| rank == 0), Ordering::Relaxed);
    signals::tell_stepped_aside();
    let structure = plimsoll_binary::Options {
        cache: plimsoll_binary::default_cache_folder(),
        ..Default::default()
    };
    let options = Options {
        memory_bytes: settings.memory_bytes,
        aggregation: match settings.threads {
            ThreadsChoice::Sum => Aggregation::Sum,
            ThreadsChoice::Set => Aggregation::Set,
            ThreadsChoice::Key => Aggregation::Key,
            ThreadsChoice::Calltree => Aggregation::Calltree,
            ThreadsChoice::All => Aggregation::All,
        },
        // The trees that a rank builds before MPI_Init are discarded, so the lookup of their names
        // would be wasted.
        follows_from_start: launcher::is_alone(),
        structure,
        has_memory: heap::has_room,
        lookup_time: Some(LOOKUP_TIME),
    };
    let collector = Arc::new(Collector::new(options));
    // SAFETY: no preconditions.
    let launcher = unsafe { libc::getppid() } as u32;
    let job = Box::leak(Box::new(Job {
        directory: std::env::current_dir().unwrap_or_default(),
        executable: environment::executable().to_string_lossy().into_owned(),
        id: job_id(|name| std::env::var_os(name), launcher),
        host: environment::host(),
        started: LocalTime::at(SystemTime::now()),
        arguments: environment::arguments(),
        collector,
        claimed: Lock::new(None),
        rules: Lock::new(rules),
        state: Lock::new(State::default()),
        settings,
    }));
    CURRENT.store(job, Ordering::Release);
    let job: &'static Job = job;
    let me = job.introduce(observed, 0);
    job.spool_alone();
    let mut state = job.state.lock();
    match job.collector.attach(me.pid, me.descriptor, me.start_time) {
        Ok(key) => state.ranks.push((key, me)),
        Err(error) => log::warn(&format!("this process's samples cannot be read: {error}")),
    }
    job.note_spool(&state);
    state.collecting = job.spawn_collector();
    state.helper = own_threads::spawn(Box::new(termination::helper_thread));
    if (state.collecting.is_none() || state.helper.is_none()) && speaks() {
        log::warn(
            "the threads that read and report the samples could not be created: most samples will \
             be lost. Raise `ulimit -u`, the limit on processes.",
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
            start_time: observed_process::start_time(),
            descriptor: observed.descriptor(),
            cores: environment::cores(),
            clock: environment::clock(),
            watched: self.settings.ranks.contains(rank),
        }
    }

    /// Returns the clock of a rank collected here, with the exchanges that compare it to other
    /// clocks.
    fn clock_of(exchanges: &[Exchange], rank: &NodeRank) -> RankClock {
        // The exchanges of this process describe its own clock only.
        let ours = rank.clock == environment::clock();
        let exchanges = if ours { exchanges.to_vec() } else { Vec::new() };
        RankClock { id: rank.clock.clone(), exchanges }
    }

    fn spawn_collector(&self) -> Option<libc::pthread_t> {
        let collector = self.collector.clone();
        own_threads::spawn(Box::new(move || {
            COLLECTING.store(own_threads::current_id(), Ordering::Relaxed);
            own_threads::give_way();
            collector.run(termination::by_rank);
            if heap::is_exhausted() {
                withdrawal::tell_exhausted();
            }
        }))
    }

    /// Stops the collector and joins its thread. Must be called without the lock of the state held.
    fn stop_collector(&self) {
        let thread = self.state.lock().collecting.take();
        if let Some(thread) = thread {
            self.collector.stop();
            own_threads::join(thread);
        }
    }
}
