//! Collector of a node: all attached processes behind one lock, and the loop that polls their
//! rings.

mod rounds;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use plimsoll_sys::memory_kind::{MemoryKind, count_as, request_trim};
use plimsoll_wire::doorbell::{Doorbell, wait_any};

use crate::attach::AttachError;
use crate::collected_process::{FinishedProcess, Process, Scratch};
use crate::death::{Death, LivenessChecks, end_at_first};
use crate::profile::{Aggregation, ProcessProfile};
use crate::schedules::{DrainSchedule, ExponentialSchedule, LookupBudget};
use crate::spooling::{PlaceSpool, SpoolOutcome, Spooling};
use plimsoll_binary::{self as structure, GivenUp, Limit, Structures};
use plimsoll_spool::SpoolError;
use plimsoll_sys::posix_clocks::thread_cpu_ns;

/// Longest and shortest interval between polls of the rings while the collector is busy: early in a
/// run, while lookups are pending, or while threads start and end. Otherwise the interval may be
/// longer than `MAX_BUSY_INTERVAL`.
const MAX_BUSY_INTERVAL: Duration = Duration::from_millis(200);
const MIN_BUSY_INTERVAL: Duration = Duration::from_millis(2);
/// Fill level, in percent, above which a ring is drained at once and the poll interval is
/// shortened.
const FULL_PERCENT: u64 = 25;

/// Interval at which threads that wait for the lock check whether it was abandoned.
const ABANDONED_CHECK_INTERVAL: Duration = Duration::from_millis(50);

/// Time after the last lookup for which parsed debug information is kept in memory for reuse.
const IDLE: Duration = Duration::from_secs(2);

/// Settings of a [`Collector`].
#[derive(Clone, Debug)]
pub struct Options {
    /// Build temporal context trees from process start instead of from the begin of the run
    /// (MPI_Init); the part before is discarded when the run begins.
    pub follows_from_start: bool,
    /// Where to search for debug information, and where to cache program structure for other jobs.
    pub structure: structure::Options,
    /// Approximate memory budget of one process in the collector, in bytes. At the budget, deep
    /// contexts are truncated and fewer phase instances are kept individually.
    pub memory_bytes: u64,
    /// Aggregation of the threads of each process.
    pub aggregation: Aggregation,
    /// Returns whether there is memory for another round; once it returns `false`,
    /// [`Collector::run`] ends.
    pub has_memory: fn() -> bool,
    /// Time budget for lookups of functions, loops and lines after the run has ended, for all
    /// processes together; `None` means unlimited. The application waits in MPI_Finalize meanwhile.
    pub lookup_time: Option<Duration>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            memory_bytes: 64 << 20,
            aggregation: Aggregation::default(),
            has_memory: || true,
            follows_from_start: true,
            structure: structure::Options::default(),
            lookup_time: None,
        }
    }
}

/// Key of an attached process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProcessKey(u64);

/// Result of one poll of the rings.
struct PollResult {
    /// Fill level of the fullest ring, in percent.
    fullest: u64,
    /// Maximum interval until the next poll, unless a ring fills fast.
    max_interval: Duration,
    /// Time within which the spool must be flushed; `Duration::MAX` without a spool.
    until_flush: Duration,
}

impl PollResult {
    /// Adapts the interval between polls, and returns the time until the next poll.
    fn adapt(&self, interval: &mut Duration) -> Duration {
        *interval = match self.fullest > FULL_PERCENT {
            true => (*interval / 4).max(MIN_BUSY_INTERVAL),
            false => (*interval * 2).min(self.max_interval),
        };
        self.until_flush.min(*interval)
    }
}

#[derive(Default)]
struct State {
    processes: BTreeMap<ProcessKey, Process>,
    next_key: u64,
    drain_schedule: DrainSchedule,
    lookup_budget: LookupBudget,
    liveness_checks: LivenessChecks,
    /// Schedule of writing looked-up structure to the cache for other jobs.
    keeping: ExponentialSchedule,
    /// Time of the last lookup; `None` once the parsed debug information was released.
    looked_up: Option<Instant>,
    /// Time at which the run ended; `None` while it goes on.
    ended: Option<Instant>,
    /// Part of the lookup time that lookups of names in progress leave when the run ends.
    reserved: Duration,
    /// CPU time of lookups after the end of a process's run, in nanoseconds.
    late_structure_ns: u64,
    scratch: Scratch,
    /// Processes with a finished profile that may still wait for [`Collector::acknowledge`].
    finished: Vec<FinishedProcess>,
    stopping: bool,
    woken: bool,
}

/// Turns the records of a node's processes into profiles. One thread calls [`Collector::run`]; all
/// other methods may be called from any thread meanwhile.
pub struct Collector {
    options: Options,
    /// The first state is in use; the second one replaces it once the first is abandoned.
    states: [Mutex<State>; 2],
    abandoned: AtomicBool,
    /// Latest note, until it is handed to the spool.
    note: Mutex<Option<serde_json::Value>>,
    /// Doorbell that makes [`Collector::run`] end or drain now.
    bell: Doorbell,
    /// Deadline of lookups. May be set while a lookup goes on under the lock of the state.
    limit: Limit,
    /// CPU time in nanoseconds: of the thread in [`Collector::run`], and of [`Collector::conclude`]
    /// and [`Collector::finish`] on other threads.
    run_cpu_ns: AtomicU64,
    finish_cpu_ns: AtomicU64,
}

impl Collector {
    /// Creates a collector without processes.
    pub fn new(options: Options) -> Self {
        let limit = Limit::default();
        let structures = Structures::with_limit(options.structure.clone(), limit.clone());
        let reserved = options.lookup_time.unwrap_or_default() / 2;
        Self {
            options,
            limit,
            states: [
                Mutex::new(State {
                    reserved,
                    scratch: Scratch { structures, ..Scratch::default() },
                    ..State::default()
                }),
                Mutex::default(),
            ],
            abandoned: AtomicBool::new(false),
            note: Mutex::new(None),
            bell: Doorbell::new(),
            run_cpu_ns: AtomicU64::new(0),
            finish_cpu_ns: AtomicU64::new(0),
        }
    }

    /// Abandons the current state, because a thread that may hold its lock is gone for good,
    /// possibly in the middle of an update. The collector continues with an empty state. Allocates
    /// nothing.
    pub fn abandon(&self) {
        self.abandoned.store(true, Ordering::Release);
        self.bell.ring();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        loop {
            let state = &self.states[usize::from(self.abandoned.load(Ordering::Acquire))];
            // The timeout lets a waiting thread notice that the state was abandoned.
            if let Some(state) = state.try_lock_for(ABANDONED_CHECK_INTERVAL) {
                return state;
            }
        }
    }

    /// Attaches process `pid`, which started at `start_time` (field 22 of /proc/pid/stat) and holds
    /// its segment open as descriptor `fd`. A process must be read by at most one collector at a
    /// time.
    pub fn attach(&self, pid: u32, fd: i32, start_time: u64) -> Result<ProcessKey, AttachError> {
        let mut state = self.lock();
        if state.processes.values().any(|process| process.is(pid, start_time)) {
            return Err(AttachError::AlreadyAttached);
        }
        let spool = state.scratch.spool.as_mut();
        let process = counted(|| Process::attach(pid, fd, start_time, &self.options, spool))?;
        let key = ProcessKey(state.next_key);
        state.next_key += 1;
        state.processes.insert(key, process);
        state.go_on(&self.limit);
        // Wakes `run`, so that it also waits for the doorbell of the new process.
        self.bell.ring();
        Ok(key)
    }

    /// Starts a spool for all processes attached from now on. Records are on disk within a second
    /// of being read. The spool takes at most `limit_bytes`; near that limit, and when the disk is
    /// nearly full, it keeps ever fewer samples.
    pub fn spool(&self, place: PlaceSpool, limit_bytes: u64) -> Result<(), SpoolError> {
        self.lock().scratch.spool = Some(Spooling::new(place, limit_bytes)?);
        Ok(())
    }

    /// Adds a note for readers of the spool, replacing the previous note. Does not wait for a round
    /// in progress, because the caller may be about to let the application continue.
    pub fn note(&self, note: serde_json::Value) {
        *self.note.lock() = Some(note);
    }

    /// Ends the spool, if there is one. All processes in it must be finished before.
    pub fn end_spool(&self) -> Option<SpoolOutcome> {
        let mut spool = self.lock().scratch.spool.take()?;
        self.hand_over_note(&mut spool);
        let outcome = spool.finish();
        request_trim();
        Some(outcome)
    }

    fn hand_over_note(&self, spool: &mut Spooling) {
        if let Some(note) = self.note.lock().take() {
            spool.note(note);
        }
    }

    /// Discards the spool and deletes its files.
    pub fn discard_spool(&self) {
        if let Some(spool) = self.lock().scratch.spool.take() {
            spool.discard();
        }
    }

    /// Detaches a process without a profile, so that another collector can attach it. The other
    /// collector sees the whole run of the process if no ring has wrapped around.
    pub fn detach(&self, key: ProcessKey) {
        let mut state = self.lock();
        state.processes.remove(&key);
        if state.processes.is_empty() {
            // Releases symbol tables, which take megabytes: this process may not collect any more.
            let structure = self.options.structure.clone();
            state.scratch.structures = Structures::with_limit(structure, self.limit.clone());
        }
    }

    /// Polls the rings until [`Collector::stop`], and drains them when a batch is worthwhile or a
    /// ring fills fast. Calls `ending` once, with the announced code, when a process announces that
    /// it ends prematurely; `ending` must not call this collector.
    pub fn run(&self, ending: impl Fn(u32)) {
        let cpu_before = thread_cpu_ns();
        let mut interval = MAX_BUSY_INTERVAL;
        let mut is_announced = false;
        let mut is_asked = true;
        let mut state = self.lock();
        if !state.stopping {
            state.go_on(&self.limit);
        }
        while !state.stopping && (self.options.has_memory)() {
            state.woken = false;
            let heard = self.bell.rings();
            if let Some(spool) = &mut state.scratch.spool {
                self.hand_over_note(spool);
            }
            let polled = counted(|| state.poll_once(is_asked, Instant::now()));
            if let (false, Some(code)) =
                (is_announced, state.processes.values().find_map(Process::ending))
            {
                is_announced = true;
                ending(code);
            }
            let pause = polled.adapt(&mut interval);
            let cpu_ns = thread_cpu_ns().saturating_sub(cpu_before);
            self.run_cpu_ns.store(cpu_ns, Ordering::Relaxed);
            if !state.stopping && !state.woken {
                let bells: Vec<_> = state.processes.values().map(Process::bell).collect();
                let others = bells.iter().map(|(bell, heard)| (&**bell, *heard));
                let bells: Vec<_> = [(&self.bell, heard)].into_iter().chain(others).collect();
                MutexGuard::unlocked(&mut state, || wait_any(&bells, pause));
            }
            is_asked = state.woken;
        }
        state.stopping = false;
    }

    /// Ends [`Collector::run`], or makes the next call return at once; `run` may be called again
    /// after that.
    pub fn stop(&self) {
        // A lookup in progress holds the lock. A lookup of names gets half of the lookup time; the
        // other half is reserved for functions with more samples.
        let now = Instant::now();
        self.limit.set(self.options.lookup_time.map(|time| now + time / 2));
        let mut state = self.lock();
        state.stopping = true;
        state.ended.get_or_insert(now);
        self.bell.ring();
    }

    /// Lifts the deadline of lookups that [`Collector::stop`] has set, because the run goes on
    /// without [`Collector::run`].
    pub fn go_on(&self) {
        self.lock().go_on(&self.limit);
    }

    /// Makes [`Collector::run`] drain the rings now.
    pub fn flush(&self) {
        self.lock().woken = true;
        self.bell.ring();
    }

    /// Drains the rest of all processes and looks up the addresses they use. All processes come
    /// before any profile, so that a function for which the lookup time does not suffice stands
    /// without its loops in all profiles.
    pub fn conclude(&self) {
        let cpu_before = thread_cpu_ns();
        let mut guard = self.lock();
        let state = &mut *guard;
        self.set_deadline(state);
        let structure_before = state.scratch.structures.cpu_ns();
        let keys: Vec<ProcessKey> = state.processes.keys().copied().collect();
        for key in keys {
            if let Some(process) = state.processes.get_mut(&key) {
                counted(|| process.conclude(&mut state.scratch));
            }
        }
        state.late_structure_ns += state.scratch.structures.cpu_ns() - structure_before;
        let cpu_ns = thread_cpu_ns().saturating_sub(cpu_before);
        self.finish_cpu_ns.fetch_add(cpu_ns, Ordering::Relaxed);
    }

    /// Returns the functions without structure after [`Collector::conclude`], because it was not
    /// looked up in time.
    pub fn given_up(&self) -> BTreeSet<GivenUp> {
        self.lock().scratch.structures.given_up()
    }

    /// Removes the structure of functions that other collectors have given up. Call before
    /// [`Collector::finish`].
    pub fn give_up(&self, functions: &BTreeSet<GivenUp>) {
        self.lock().scratch.structures.give_up_all(functions);
    }

    /// Sets the deadline of lookups: the end of the run plus the lookup time.
    fn set_deadline(&self, state: &mut State) {
        let ended = *state.ended.get_or_insert_with(Instant::now);
        self.limit.set(self.options.lookup_time.map(|time| ended + time));
    }

    /// Drains the rest of a process's records, accounts for calls and intervals still open,
    /// detaches the process and returns its profile. Works also after the process has died. Returns
    /// `None` for a key that is not attached.
    pub fn finish(&self, key: ProcessKey) -> Option<ProcessProfile> {
        let cpu_before = thread_cpu_ns();
        let mut state = self.lock();
        let process = state.processes.remove(&key)?;
        self.set_deadline(&mut state);
        let structure_before = state.scratch.structures.cpu_ns();
        let (profile, finished) = counted(|| process.finish(&mut state.scratch));
        state.late_structure_ns += state.scratch.structures.cpu_ns() - structure_before;
        state.finished.push(finished);
        if state.processes.is_empty() {
            state.scratch.structures.save();
            state.scratch.structures.forget();
            state.scratch.bytes = Vec::new();
        }
        request_trim();
        let cpu_ns = thread_cpu_ns().saturating_sub(cpu_before);
        self.finish_cpu_ns.fetch_add(cpu_ns, Ordering::Relaxed);
        Some(profile)
    }

    /// Ends the run of all processes at the first death among them and returns that death, if any.
    /// Call before [`Collector::finish`] if the run does not reach its regular end. The last
    /// instances of phases are then phases of their own.
    pub fn end_at_first_death(&self) -> Option<Death> {
        let processes = &mut self.lock().processes;
        let death = end_at_first(processes);
        processes.values_mut().for_each(|process| process.history.break_off());
        death
    }

    /// Notifies all processes that their report is begun; ending processes wait for it.
    pub fn begin_report(&self) {
        self.lock().processes.values().for_each(Process::begin_report);
    }

    /// Notifies all finished processes that a report was made of their profiles, and releases them.
    pub fn acknowledge(&self) {
        for process in std::mem::take(&mut self.lock().finished) {
            process.acknowledge();
        }
    }

    /// Notifies all processes that the process with the announced end, for which the run is
    /// reported, lives on, so that the other processes do not count it as dead. Call before
    /// [`Collector::acknowledge`].
    pub fn outlive(&self) {
        let state = self.lock();
        state.processes.values().for_each(Process::outlive);
        state.finished.iter().for_each(FinishedProcess::outlive);
    }

    /// Drains the rings once; returns the fill level of the fullest ring in percent.
    #[cfg(test)]
    pub(crate) fn round(&self) -> u64 {
        let mut state = self.lock();
        let fullest = state.drain();
        state.look_up();
        state.keep(true, Instant::now());
        fullest
    }

    /// Drains the rings once, as a drain that is in progress when half of the lookup time after the
    /// end of the run has passed.
    #[cfg(test)]
    pub(crate) fn drain_late(&self) {
        self.limit.set(Some(Instant::now()));
        self.lock().drain();
    }

    /// Writes everything read so far to disk: to the journal, or with `settled` to the spool.
    #[cfg(test)]
    pub(crate) fn flush_spool(&self, settled: bool) {
        let mut state = self.lock();
        state.write_out(true, Instant::now());
        if let Some(spool) = state.scratch.spool.as_mut().filter(|_| settled) {
            spool.settle();
        }
    }

    /// Returns the fill state of a process's rings.
    #[cfg(test)]
    pub(crate) fn poll(&self, key: ProcessKey) -> crate::poll::RingOccupancy {
        self.lock().processes[&key].poll()
    }

    /// Polls once as [`Collector::run`] does, which drains the rings only if that is worthwhile.
    /// Returns the longest time until the next poll.
    #[cfg(test)]
    pub(crate) fn poll_once(&self, now: Instant) -> Duration {
        self.lock().poll_once(false, now).adapt(&mut IDLE.clone())
    }

    /// Copies the unread bytes of the rings to the journal without draining them.
    #[cfg(test)]
    pub(crate) fn flush_unread(&self) {
        self.lock().write_out(false, Instant::now());
    }

    /// Returns the CPU time of the collector so far, in nanoseconds: of the thread in
    /// [`Collector::run`] up to its last round, and of all calls of [`Collector::conclude`] and
    /// [`Collector::finish`].
    pub fn cpu_ns(&self) -> u64 {
        self.run_cpu_ns.load(Ordering::Relaxed) + self.finish_cpu_ns.load(Ordering::Relaxed)
    }

    /// Returns the part of [`Collector::cpu_ns`] spent on lookups of functions, loops and lines,
    /// and the part of these lookups after the end of a process's run, both in nanoseconds.
    pub fn structure_cpu_ns(&self) -> (u64, u64) {
        let state = self.lock();
        (state.scratch.structures.cpu_ns(), state.late_structure_ns)
    }

    /// Returns the resident bytes of the shared segments of all processes: rings, counters,
    /// addresses and modules. Counts pages touched by any process; rings that no thread has used
    /// yet are not included.
    pub fn segment_bytes(&self) -> u64 {
        let state = self.lock();
        let finished = state.finished.iter().map(|process| process.segment_bytes);
        state.processes.values().map(Process::segment_bytes).chain(finished).sum()
    }

    /// Returns the approximate memory use of contexts, values, names and structures, in bytes.
    pub fn memory_bytes(&self) -> u64 {
        let state = self.lock();
        let processes = state.processes.values();
        processes.map(Process::memory_bytes).sum::<u64>() + state.scratch.structures.bytes()
    }
}

/// Attributes allocations of `work` to contexts, except where inner code selects another kind.
fn counted<R>(work: impl FnOnce() -> R) -> R {
    count_as(MemoryKind::Contexts, work)
}
