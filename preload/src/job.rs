//! The job as this process sees it: from the constructor over MPI_Init to the report.

use std::collections::BTreeMap;
use std::ffi::{c_int, c_void};
use std::ptr::null_mut;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering};
use std::time::{Instant, SystemTime};

use parking_lot::Mutex;
use plimsoll_agent::process::{self, Config, Observed};
use plimsoll_agent::segment::ClockKind;
use plimsoll_analysis::communicator::Communicator;
use plimsoll_analysis::diagnose::{Cost, JobInfo, RankInput, diagnose, diagnose_alone};
use plimsoll_analysis::mpi::node::{NodeRank, distribute, introduce};
use plimsoll_analysis::mpi::presence::Token;
use plimsoll_analysis::mpi::{Abi, HandleFacts, Library, MpiCommunicator};
use plimsoll_analysis::output::{LocalTime, job_id};
use plimsoll_analysis::settings::{ClockChoice, Settings};
use plimsoll_analysis::summary::{Mpi, MpiAbi};
use plimsoll_collector::{Collector, Options, ProcessKey};

use crate::{ending, loading, report, say, signals, surroundings, threads};

/// The job, as long as this process is observed.
pub struct Job {
    /// What the user set.
    pub settings: Settings,
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
    state: Mutex<State>,
}

#[derive(Default)]
struct State {
    collecting: Option<libc::pthread_t>,
    keeping_house: Option<libc::pthread_t>,
    /// The ranks that this process collects; before MPI_Init and without MPI, itself.
    ranks: Vec<(ProcessKey, NodeRank)>,
    mpi: Option<MpiSide>,
    done: bool,
}

/// The job's MPI.
struct MpiSide {
    library: Arc<Library>,
    rank: u32,
    size: u32,
    /// Our communicators, if all ranks carry the library.
    together: Option<Together>,
    /// Why not, else.
    apart: Option<String>,
    /// This process speaks for the job.
    speaks: bool,
    /// Keeps this rank's token until every rank has counted.
    _token: Option<Token>,
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
static INSIDE_MPI_INIT: AtomicBool = AtomicBool::new(false);
static COLLECTED_ELSEWHERE: AtomicBool = AtomicBool::new(false);

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

/// The application freed a communicator or a datatype.
pub fn handle_freed() {
    if let Some(facts) = handle_facts() {
        facts.forget();
    }
}

/// Whether the calling thread is the one that called MPI_Init.
pub fn is_main_thread() -> bool {
    let block: *mut c_void = plimsoll_agent::tls::get().cast();
    !block.is_null() && block == MAIN_THREAD.load(Ordering::Relaxed)
}

/// Whether MPI_Init runs: threads that are created now are MPI's.
pub fn inside_mpi_init() -> bool {
    INSIDE_MPI_INIT.load(Ordering::Relaxed)
}

/// Whether this process has its own thread, which writes the report of an irregular end.
pub fn has_thread() -> bool {
    get().is_some_and(|job| job.state.try_lock().is_none_or(|state| state.keeping_house.is_some()))
}

/// Whether another process of the node collects this one, and writes the report.
pub fn is_collected_elsewhere() -> bool {
    COLLECTED_ELSEWHERE.load(Ordering::Relaxed)
}

/// In a forked child: the job is the parent's.
pub fn forget_in_child() {
    CURRENT.store(null_mut(), Ordering::Relaxed);
    FACTS.store(null_mut(), Ordering::Relaxed);
    MAIN_THREAD.store(null_mut(), Ordering::Relaxed);
    INSIDE_MPI_INIT.store(false, Ordering::Relaxed);
    COLLECTED_ELSEWHERE.store(false, Ordering::Relaxed);
    ending::forget_in_child();
}

/// The application uses the sampling signal itself.
pub fn step_aside() {
    if let Some(observed) = process::current() {
        observed.step_aside();
    }
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
    let config =
        Config { period_ns: settings.period_ns, clock, sigaction: signals::real_sigaction };
    threads::prepare_exit_watch();
    let observed = match process::start(&config) {
        Ok(observed) => observed,
        Err(error) => {
            say::warn(&format!("this process is not observed: {error}"));
            return;
        }
    };
    let collector = Arc::new(Collector::new(Options { memory_bytes: settings.memory_bytes }));
    // SAFETY: no preconditions.
    let launcher = unsafe { libc::getppid() } as u32;
    let job = Box::leak(Box::new(Job {
        executable: surroundings::executable().to_string_lossy().into_owned(),
        id: job_id(|name| std::env::var_os(name), launcher),
        host: surroundings::host(),
        started: LocalTime::at(SystemTime::now()),
        arguments: surroundings::arguments(),
        collector,
        state: Mutex::new(State::default()),
        settings,
    }));
    CURRENT.store(job, Ordering::Release);
    let job: &'static Job = job;
    let me = job.introduce(observed, 0);
    let mut state = job.state.lock();
    match job.collector.attach(me.pid, me.descriptor, me.start_time) {
        Ok(key) => state.ranks.push((key, me)),
        Err(error) => say::warn(&format!("this process's samples cannot be read: {error}")),
    }
    state.collecting = job.spawn_collector();
    state.keeping_house = threads::spawn(Box::new(ending::keep_house));
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
            watched: self.settings.ranks.contains(rank),
        }
    }

    fn spawn_collector(&self) -> Option<libc::pthread_t> {
        let collector = self.collector.clone();
        threads::spawn(Box::new(move || collector.run(ending::by_rank)))
    }

    fn stop_collector(&self, state: &mut State) {
        if let Some(thread) = state.collecting.take() {
            self.collector.stop();
            threads::join(thread);
        }
    }

    fn info(&self, state: &State, ended: &str, complete: bool) -> JobInfo {
        let mpi = match &state.mpi {
            Some(side) => Mpi {
                library: Some(side.library.version.clone()),
                abi: match side.library.abi {
                    Abi::Mpich => MpiAbi::Mpich,
                    Abi::OpenMpi => MpiAbi::OpenMpi,
                    Abi::Standard => MpiAbi::Standard,
                },
            },
            None => Mpi { library: None, abi: MpiAbi::None },
        };
        let settings: BTreeMap<String, String> = self.settings.in_effect();
        JobInfo {
            executable: self.executable.clone(),
            arguments: self.arguments.clone(),
            job: Some(self.id.clone()),
            started: self.started.rfc3339(),
            mpi,
            complete,
            ended: ended.to_owned(),
            settings,
            marks_off_reason: Some(String::from("return-address marks are not implemented yet")),
            notes: state.mpi.iter().filter_map(|side| side.apart.clone()).collect(),
        }
    }

    /// The profiles of the ranks that this process collects.
    fn profiles(&self, state: &mut State) -> Vec<RankInput> {
        let ranks = std::mem::take(&mut state.ranks);
        let memory_bytes = self.collector.memory_bytes() / ranks.len().max(1) as u64;
        let mut inputs: Vec<RankInput> = ranks
            .into_iter()
            .filter_map(|(key, rank)| {
                let profile = self.collector.finish(key)?;
                Some(RankInput {
                    rank: rank.rank,
                    host: self.host.clone(),
                    cores: rank.cores,
                    profile,
                    cost: Cost { memory_bytes: Some(memory_bytes), ..Cost::default() },
                })
            })
            .collect();
        if let Some(host) = inputs.first_mut() {
            host.cost.collector_cpu_ns = self.collector.cpu_ns();
        }
        inputs
    }
}

/// Runs the real MPI_Init, defined at `definition`.
pub fn around_mpi_init(definition: *const c_void, init: impl FnOnce() -> c_int) -> c_int {
    crate::begin_for_mpi();
    let hide = |socket| process::current().map_or(-1, |observed| observed.adopt_descriptor(socket));
    let token = get().and_then(|_| match Token::leave(&hide) {
        Ok(token) => Some(token),
        Err(error) => {
            say::debug(|| format!("no token could be left: {error}"));
            None
        }
    });
    INSIDE_MPI_INIT.store(true, Ordering::Relaxed);
    let code = init();
    INSIDE_MPI_INIT.store(false, Ordering::Relaxed);
    if code == 0
        && let Some(job) = get()
        && let Some(observed) = process::current()
    {
        job.mpi_started(observed, definition, token);
    }
    code
}

impl Job {
    fn mpi_started(
        &'static self,
        observed: &'static Observed,
        definition: *const c_void,
        token: Option<Token>,
    ) {
        let mut state = self.state.lock();
        if state.mpi.is_some() || state.done {
            return;
        }
        let library = match Library::detect(definition) {
            Ok(library) => Arc::new(library),
            Err(error) => {
                say::warn(&format!("{error}; each process writes its own report"));
                return;
            }
        };
        let Ok((rank, size)) = MpiCommunicator::place_in_world(&library) else { return };
        say::debug(|| format!("rank {rank} of {size} on {} ({:?})", library.version, library.abi));
        let present = token.as_ref().and_then(|token| token.count().ok()).unwrap_or_default();
        let mut side = MpiSide {
            library: library.clone(),
            rank,
            size,
            together: None,
            apart: None,
            speaks: rank == present.lowest_rank.unwrap_or(0),
            _token: token,
        };
        if present.processes == size {
            match self.come_together(observed, &library, rank, &mut state) {
                Ok(together) => side.together = Some(together),
                Err(reason) => {
                    side.apart = Some(format!("The ranks could not be compared: {reason}."))
                }
            }
        } else {
            side.apart = Some(format!(
                "Only {} of {size} ranks carry Plimsoll on this node, so ranks are not compared: each writes a \
                 report of its own. Start all ranks with `plimsoll run` or LD_PRELOAD, on one node.",
                present.processes
            ));
            for (_, me) in &mut state.ranks {
                me.rank = rank;
            }
        }
        if let (true, Some(reason)) = (side.speaks, &side.apart) {
            say::warn(reason);
        }
        FACTS.store(Box::into_raw(Box::new(HandleFacts::new(library))), Ordering::Release);
        MAIN_THREAD.store(plimsoll_agent::tls::get().cast(), Ordering::Relaxed);
        state.mpi = Some(side);
        if !self.settings.ranks.contains(rank) {
            observed.stop();
        }
        observed.begin();
    }

    /// Makes our communicators and lets each node's first rank collect the node. Collective.
    fn come_together(
        &self,
        observed: &Observed,
        library: &Arc<Library>,
        rank: u32,
        state: &mut State,
    ) -> Result<Together, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let world = MpiCommunicator::world(library.clone()).map_err(|error| text(&error))?;
        let node = world.node().map_err(|error| text(&error))?;
        // A collector takes over when the one before has let go.
        self.stop_collector(state);
        for (key, _) in std::mem::take(&mut state.ranks) {
            self.collector.detach(key);
        }
        let me = self.introduce(observed, rank);
        let everyone = introduce(&node, me.clone()).map_err(|error| text(&error))?;
        let collected = everyone.map(|ranks| {
            ranks.into_iter().map(|rank| self.collect(rank, state)).collect::<Vec<bool>>()
        });
        let is_collected = distribute(&node, collected).map_err(|error| text(&error))?;
        if !is_collected && me.watched {
            say::debug(|| format!("rank {rank} collects itself"));
            self.collect(me, state);
        }
        let holds = !state.ranks.is_empty();
        COLLECTED_ELSEWHERE.store(is_collected && node.rank() != 0, Ordering::Relaxed);
        if holds {
            state.collecting = self.spawn_collector();
        }
        let holders = world.split(u32::from(!holds)).map_err(|error| text(&error))?;
        world.barrier().map_err(|error| text(&error))?;
        Ok(Together { world, node, holders, holds })
    }

    fn collect(&self, rank: NodeRank, state: &mut State) -> bool {
        if !rank.watched {
            return false;
        }
        match self.collector.attach(rank.pid, rank.descriptor, rank.start_time) {
            Ok(key) => {
                state.ranks.push((key, rank));
                true
            }
            Err(error) => {
                say::debug(|| format!("rank {} is not readable from here: {error}", rank.rank));
                false
            }
        }
    }
}

/// MPI_Finalize was entered: gathers, diagnoses, writes. `measured` runs a wait as a measured call.
pub fn finalize(measured: impl FnOnce(&mut dyn FnMut())) {
    let (Some(job), Some(observed)) = (get(), process::current()) else { return };
    let mut guard = job.state.lock();
    let state = &mut *guard;
    let Some(side) = state.mpi.as_mut().filter(|_| !state.done) else { return };
    let entered = Instant::now();
    let together = side.together.take();
    let (rank, size, speaks) = (side.rank, side.size, side.speaks);
    if let Some(together) = &together {
        measured(&mut || {
            if let Err(error) = together.world.barrier() {
                say::debug(|| format!("waiting for the other ranks failed: {error}"));
            }
        });
    }
    observed.end(together.is_some());
    observed.stop();
    match together {
        Some(together) => {
            job.conclude(state, &together, entered, size);
            for communicator in [together.holders, together.node, together.world] {
                communicator.free();
            }
        }
        None => {
            let inputs = job.profiles(state);
            let info = job.info(state, "finalize", size == 1);
            job.write_alone(inputs, &info, entered, size, Some(&format!("rank{rank}")), speaks);
        }
    }
    state.done = true;
    job.stop_collector(state);
    job.collector.acknowledge();
    let house = state.keeping_house.take();
    drop(guard);
    ending::finished();
    loading::wake();
    if let Some(house) = house {
        threads::join(house);
    }
}

impl Job {
    fn conclude(&self, state: &mut State, together: &Together, entered: Instant, size: u32) {
        if let Err(error) = together.node.barrier() {
            say::warn(&format!("the ranks of this node did not come together: {error}"));
        }
        if !together.holds {
            return;
        }
        let inputs = self.profiles(state);
        let info = self.info(state, "finalize", true);
        match diagnose(&together.holders, inputs, &info) {
            Ok(Some(mut summary)) => {
                summary.collection.finalize_s = Some(entered.elapsed().as_secs_f64());
                report::write(self, &summary, size, None, true);
            }
            Ok(None) => {}
            Err(error) => say::warn(&format!("no summary: {error}")),
        }
    }

    fn write_alone(
        &self,
        inputs: Vec<RankInput>,
        info: &JobInfo,
        entered: Instant,
        size: u32,
        part: Option<&str>,
        speaks: bool,
    ) {
        match diagnose_alone(inputs, info) {
            Ok(mut summary) => {
                summary.collection.finalize_s = Some(entered.elapsed().as_secs_f64());
                report::write(self, &summary, size, part, speaks);
            }
            Err(error) if speaks => say::warn(&format!("no summary: {error}")),
            Err(_) => {}
        }
    }
}

/// The process ends without MPI_Finalize: writes what this process holds. Runs on the process's
/// own thread.
pub fn write_incomplete(ended: &str) {
    let Some(job) = get() else { return };
    let entered = Instant::now();
    let mut guard = job.state.lock();
    let state = &mut *guard;
    if state.done {
        return;
    }
    state.done = true;
    job.stop_collector(state);
    let inputs = job.profiles(state);
    if inputs.is_empty() {
        return;
    }
    let regular = state.mpi.is_none() && ended == "exit";
    let info = job.info(state, ended, regular);
    let (size, part, speaks) = match &state.mpi {
        None => (1, None, true),
        Some(side) if inputs.len() == side.size as usize => (side.size, None, side.rank == 0),
        Some(side) => (side.size, Some(format!("rank{}", side.rank)), side.speaks),
    };
    job.write_alone(inputs, &info, entered, size, part.as_deref(), speaks);
    job.collector.acknowledge();
}
