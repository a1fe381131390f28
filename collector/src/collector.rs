//! The collector: all attached processes behind one lock, and the loop that reads them.

mod rounds;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use plimsoll_sys::memory_kind::{MemoryKind, count_as, request_trim};
use plimsoll_wire::doorbell::{Doorbell, wait_any};

use crate::attach::AttachError;
use crate::death::{Death, Looks, end_at_first};
use crate::pace::{Pace, Reading, Seldom};
use crate::process::{Process, Scratch};
use crate::profile::ProcessProfile;
use crate::spooling::{PlaceSpool, SpoolOutcome, Spooling};
use plimsoll_binary::{self as structure, Limit, Structures};
use plimsoll_spool::SpoolError;
use plimsoll_sys::clocks::thread_cpu_ns;

/// Longest and shortest time between two looks at the rings while something is going on: early in a run,
/// where something is to be looked up, or threads come and go. Later it may be longer.
const CALM: Duration = Duration::from_millis(200);
const BUSY: Duration = Duration::from_millis(2);
/// A ring that is fuller than this is read, and looked at again sooner, in percent.
const FULL_PERCENT: u64 = 25;

/// How often those who wait for the lock look whether it is abandoned.
const ABANDONED_LOOK: Duration = Duration::from_millis(50);

/// Debug information that was read is kept for this long after the last lookup, to be found again.
const IDLE: Duration = Duration::from_secs(2);

/// Settings of a collector.
#[derive(Clone, Debug)]
pub struct Options {
    /// Loops and their iterations are followed from the start of a process, not only from the begin of
    /// its run: what comes before is thrown away where that begins.
    pub follows_from_start: bool,
    /// Where the structure of programs is looked for, and kept for other jobs.
    pub structure: structure::Options,
    /// Memory that one process may take here, in bytes. A bound in kind: at it, deep contexts are
    /// cut and fewer phase instances are kept whole.
    pub memory_bytes: u64,
    /// Whether there is memory for another round: without, [`Collector::run`] ends.
    pub has_memory: fn() -> bool,
    /// How long functions, loops and lines are looked up after the run has ended, for all processes
    /// together; `None` until all are known. The application waits in MPI_Finalize meanwhile.
    pub lookup_time: Option<Duration>,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            memory_bytes: 64 << 20,
            has_memory: || true,
            follows_from_start: true,
            structure: structure::Options::default(),
            lookup_time: None,
        }
    }
}

/// An attached process.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct ProcessKey(u64);

/// What a look at the rings has shown.
struct Look {
    /// How full the fullest was, in percent.
    fullest: u64,
    /// How long they may be left alone if they are not full.
    calm: Duration,
}

#[derive(Default)]
struct State {
    processes: BTreeMap<ProcessKey, Process>,
    next_key: u64,
    reading: Reading,
    pace: Pace,
    looks: Looks,
    /// What was looked up is kept for other jobs.
    keeping: Seldom,
    /// When something was looked up last.
    looked_up: Option<Instant>,
    /// When the run ended.
    ended: Option<Instant>,
    /// What was looked up after the end of a process's run, in nanoseconds of CPU time.
    late_structure_ns: u64,
    scratch: Scratch,
    /// Processes whose profile was taken, and which may wait to hear that it was used.
    finished: Vec<Process>,
    stopping: bool,
    woken: bool,
}

/// Turns the records of a node's processes into profiles. One thread calls [`Collector::run`];
/// everything else may be called from any thread meanwhile.
pub struct Collector {
    options: Options,
    /// The first, or the second once the first is abandoned.
    states: [Mutex<State>; 2],
    abandoned: AtomicBool,
    /// Not yet in the spool.
    note: Mutex<Option<serde_json::Value>>,
    /// Rung when [`Collector::run`] is to end, or to read now.
    bell: Doorbell,
    /// When lookups have to end. Set while a lookup goes on, under the lock of the state.
    limit: Limit,
    /// CPU time of the collecting thread, and of calls that did its work elsewhere.
    run_cpu_ns: AtomicU64,
    finish_cpu_ns: AtomicU64,
}

impl Collector {
    /// A collector that reads nothing yet.
    pub fn new(options: Options) -> Self {
        let limit = Limit::default();
        let structures = Structures::with_limit(options.structure.clone(), limit.clone());
        Self {
            options,
            limit,
            states: [
                Mutex::new(State {
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

    /// A thread that may have been working here is gone for good, in the middle of anything: from here on
    /// there is nothing collected here. Allocates nothing.
    pub fn abandon(&self) {
        self.abandoned.store(true, Ordering::Release);
        self.bell.ring();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        loop {
            let state = &self.states[usize::from(self.abandoned.load(Ordering::Acquire))];
            // Who waits for an abandoned one must notice.
            if let Some(state) = state.try_lock_for(ABANDONED_LOOK) {
                return state;
            }
        }
    }

    /// Begins to collect process `pid`, which started at `start_time` (field 22 of /proc/pid/stat)
    /// and has its segment open as descriptor `fd`. A process must be read by one collector at a
    /// time.
    pub fn attach(&self, pid: u32, fd: i32, start_time: u64) -> Result<ProcessKey, AttachError> {
        let mut state = self.lock();
        if state.processes.values().any(|process| process.is(pid, start_time)) {
            return Err(AttachError::AlreadyAttached);
        }
        let spool = state.scratch.spool.as_mut();
        let Options { memory_bytes, follows_from_start, .. } = self.options;
        let process = counted(|| {
            Process::attach(pid, fd, start_time, memory_bytes, follows_from_start, spool)
        })?;
        let key = ProcessKey(state.next_key);
        state.next_key += 1;
        state.processes.insert(key, process);
        state.go_on(&self.limit);
        // From now on its bell is listened to, too.
        self.bell.ring();
        Ok(key)
    }

    /// Begins a spool of all processes that are attached from now on: everything that is read of them
    /// is in it within a second. It takes `limit_bytes` at most; near that, and where the disk has
    /// little room left, fewer and fewer samples are kept.
    pub fn spool(&self, place: PlaceSpool, limit_bytes: u64) -> Result<(), SpoolError> {
        self.lock().scratch.spool = Some(Spooling::new(place, limit_bytes)?);
        Ok(())
    }

    /// Adds a note to the spool, for those who read it. The last one counts. Waits for no round: the
    /// caller may be about to let the application go on.
    pub fn note(&self, note: serde_json::Value) {
        *self.note.lock() = Some(note);
    }

    /// Ends the spool, if there is one; the processes in it have been finished.
    pub fn end_spool(&self) -> Option<SpoolOutcome> {
        let mut spool = self.lock().scratch.spool.take()?;
        self.hand_over_note(&mut spool);
        Some(spool.finish())
    }

    fn hand_over_note(&self, spool: &mut Spooling) {
        if let Some(note) = self.note.lock().take() {
            spool.note(note);
        }
    }

    /// Takes a spool back: nothing stays of it on disk.
    pub fn discard_spool(&self) {
        if let Some(spool) = self.lock().scratch.spool.take() {
            spool.discard();
        }
    }

    /// Lets go of a process without a profile, so that another collector can take it over. That
    /// one finds the process's whole run as long as no ring has wrapped around.
    pub fn detach(&self, key: ProcessKey) {
        let mut state = self.lock();
        state.processes.remove(&key);
        if state.processes.is_empty() {
            // This process may collect nothing any more: symbol tables take megabytes.
            let structure = self.options.structure.clone();
            state.scratch.structures = Structures::with_limit(structure, self.limit.clone());
        }
    }

    /// Reads the rings until [`Collector::stop`], when it is worth it or one fills fast. `ending` is told,
    /// once, when a process announces that it ends before its time, with the code that it gives; it must
    /// not call this collector.
    pub fn run(&self, ending: impl Fn(u32)) {
        let cpu_before = thread_cpu_ns();
        let mut pause = CALM;
        let mut told = false;
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
            let look = counted(|| state.turn(is_asked, Instant::now()));
            if let (false, Some(code)) = (told, state.processes.values().find_map(Process::ending))
            {
                told = true;
                ending(code);
            }
            pause = match look.fullest > FULL_PERCENT {
                true => (pause / 4).max(BUSY),
                false => (pause * 2).min(look.calm),
            };
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

    /// Ends [`Collector::run`], also one that has yet to begin; it may be called again afterwards.
    pub fn stop(&self) {
        // A lookup that goes on holds the lock. It may come to its end in half of the time; the other half
        // is for what has more samples.
        let now = Instant::now();
        self.limit.set(self.options.lookup_time.map(|time| now + time / 2));
        let mut state = self.lock();
        state.stopping = true;
        state.ended.get_or_insert(now);
        self.bell.ring();
    }

    /// Makes [`Collector::run`] read the rings now.
    pub fn flush(&self) {
        self.lock().woken = true;
        self.bell.ring();
    }

    /// Reads the rest of all processes and looks up what they used, so that a function for which there
    /// is no time stands without its loops in all of their profiles. `advance` is called after each.
    pub fn conclude(&self, advance: impl Fn()) {
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
            state.processes.values().for_each(Process::advance);
            advance();
        }
        state.late_structure_ns += state.scratch.structures.cpu_ns() - structure_before;
        let cpu_ns = thread_cpu_ns().saturating_sub(cpu_before);
        self.finish_cpu_ns.fetch_add(cpu_ns, Ordering::Relaxed);
    }

    /// Looks up nothing any more once the time for that is over.
    fn set_deadline(&self, state: &mut State) {
        let ended = *state.ended.get_or_insert_with(Instant::now);
        self.limit.set(self.options.lookup_time.map(|time| ended + time));
    }

    /// Reads the rest of a process's records, accounts for what is still open, and returns its
    /// profile; the process is detached. Also after the process has died. `None` for a key that is
    /// not attached.
    pub fn finish(&self, key: ProcessKey) -> Option<ProcessProfile> {
        let cpu_before = thread_cpu_ns();
        let mut state = self.lock();
        let mut process = state.processes.remove(&key)?;
        self.set_deadline(&mut state);
        let structure_before = state.scratch.structures.cpu_ns();
        let profile = counted(|| process.finish(&mut state.scratch));
        state.late_structure_ns += state.scratch.structures.cpu_ns() - structure_before;
        state.finished.push(process);
        if state.processes.is_empty() {
            state.scratch.structures.save();
            state.scratch.structures.forget();
        }
        request_trim();
        let cpu_ns = thread_cpu_ns().saturating_sub(cpu_before);
        self.finish_cpu_ns.fetch_add(cpu_ns, Ordering::Relaxed);
        Some(profile)
    }

    /// Ends the run of all processes with the first death among them, if there was one; to be called
    /// before [`Collector::finish`] where the run does not reach its regular end.
    pub fn end_at_first_death(&self) -> Option<Death> {
        end_at_first(&mut self.lock().processes)
    }

    /// Tells all processes whose profile was taken that a report has been made of it, and lets go
    /// of them.
    pub fn acknowledge(&self) {
        for process in std::mem::take(&mut self.lock().finished) {
            process.acknowledge();
        }
    }

    /// Tells all processes that the one with whose announced end the run is reported lives on: they are not
    /// to miss it. To be called before [`Collector::acknowledge`].
    pub fn outlive(&self) {
        let state = self.lock();
        state.processes.values().chain(&state.finished).for_each(Process::outlive);
    }

    /// Tells all processes that the report has come a step further: those that end wait for it.
    pub fn advance(&self) {
        let state = self.lock();
        state.processes.values().chain(&state.finished).for_each(Process::advance);
    }

    /// Reads the rings, here and now; returns how full the fullest was, in percent.
    #[cfg(test)]
    pub(crate) fn round(&self) -> u64 {
        let mut state = self.lock();
        let fullest = state.drain();
        state.look_up();
        state.keep(true);
        fullest
    }

    /// Brings all that was read to disk, into the journal or, `settled`, into the spool.
    #[cfg(test)]
    pub(crate) fn flush_spool(&self, settled: bool) {
        let mut state = self.lock();
        state.write_out(true);
        if let Some(spool) = state.scratch.spool.as_mut().filter(|_| settled) {
            spool.settle();
        }
    }

    /// What the rings of a process look like.
    #[cfg(test)]
    pub(crate) fn glance(&self, key: ProcessKey) -> crate::glance::Glance {
        self.lock().processes[&key].glance()
    }

    /// One turn of [`Collector::run`], in which rings are read only if that is worth it.
    #[cfg(test)]
    pub(crate) fn turn(&self, now: Instant) {
        self.lock().turn(false, now);
    }

    /// Brings what is in the rings to disk, into the journal, and reads none of it.
    #[cfg(test)]
    pub(crate) fn flush_unread(&self) {
        self.lock().write_out(false);
    }

    /// CPU time of the collecting so far, in nanoseconds: the thread in [`Collector::run`], up to
    /// its last round, and all calls of [`Collector::finish`].
    pub fn cpu_ns(&self) -> u64 {
        self.run_cpu_ns.load(Ordering::Relaxed) + self.finish_cpu_ns.load(Ordering::Relaxed)
    }

    /// The part of [`Collector::cpu_ns`] in which functions, loops and lines were looked up, and the part of
    /// that after the run of a process had ended, in nanoseconds.
    pub fn structure_cpu_ns(&self) -> (u64, u64) {
        let state = self.lock();
        (state.scratch.structures.cpu_ns(), state.late_structure_ns)
    }

    /// Bytes in memory of the shared segments of all processes: rings, counters, addresses, modules. Only
    /// what was touched, by whichever process; without rings that no thread has used yet.
    pub fn segment_bytes(&self) -> u64 {
        let state = self.lock();
        state.processes.values().chain(&state.finished).map(Process::segment_bytes).sum()
    }

    /// Memory that contexts, values, names and structures take now, in bytes, roughly.
    pub fn memory_bytes(&self) -> u64 {
        let state = self.lock();
        let processes = state.processes.values().chain(&state.finished);
        processes.map(Process::memory_bytes).sum::<u64>() + state.scratch.structures.bytes()
    }
}

/// Counts what `work` allocates as contexts, unless parts of it say otherwise.
fn counted<R>(work: impl FnOnce() -> R) -> R {
    count_as(MemoryKind::Contexts, work)
}
