//! The collector: all attached processes behind one lock, and the loop that reads them.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use parking_lot::{Mutex, MutexGuard};
use plimsoll_agent::doorbell::{Doorbell, wait_any};

use crate::attach::AttachError;
use crate::clock::thread_cpu_ns;
use crate::pace::{Pace, Reading, Seldom};
use crate::process::{Process, Scratch};
use crate::profile::ProcessProfile;
use crate::spool::SpoolError;
use crate::spooling::{PlaceSpool, SpoolOutcome, Spooling};
use crate::structure::{self, Structures};

/// Longest and shortest time between two looks at the rings while something is going on: early in a run,
/// where something is to be looked up, or threads come and go. Later it may be longer.
const CALM: Duration = Duration::from_millis(200);
const BUSY: Duration = Duration::from_millis(2);
/// A ring that is fuller than this is read, and looked at again sooner, in percent.
const FULL_PERCENT: u64 = 25;

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
}

impl Default for Options {
    fn default() -> Self {
        Self {
            memory_bytes: 64 << 20,
            follows_from_start: true,
            structure: structure::Options::default(),
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
    /// What was looked up is kept for other jobs.
    keeping: Seldom,
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
    state: Mutex<State>,
    /// Not yet in the spool.
    note: Mutex<Option<serde_json::Value>>,
    /// Rung when [`Collector::run`] is to end, or to read now.
    bell: Doorbell,
    /// CPU time of the collecting thread, and of calls that did its work elsewhere.
    run_cpu_ns: AtomicU64,
    finish_cpu_ns: AtomicU64,
}

impl Collector {
    /// A collector that reads nothing yet.
    pub fn new(options: Options) -> Self {
        let structures = Structures::new(options.structure.clone());
        Self {
            options,
            state: Mutex::new(State {
                scratch: Scratch { structures, ..Scratch::default() },
                ..State::default()
            }),
            note: Mutex::new(None),
            bell: Doorbell::new(),
            run_cpu_ns: AtomicU64::new(0),
            finish_cpu_ns: AtomicU64::new(0),
        }
    }

    /// Begins to collect process `pid`, which started at `start_time` (field 22 of /proc/pid/stat)
    /// and has its segment open as descriptor `fd`. A process must be read by one collector at a
    /// time.
    pub fn attach(&self, pid: u32, fd: i32, start_time: u64) -> Result<ProcessKey, AttachError> {
        let mut state = self.state.lock();
        if state.processes.values().any(|process| process.is(pid, start_time)) {
            return Err(AttachError::AlreadyAttached);
        }
        let spool = state.scratch.spool.as_mut();
        let Options { memory_bytes, follows_from_start, .. } = self.options;
        let process =
            Process::attach(pid, fd, start_time, memory_bytes, follows_from_start, spool)?;
        let key = ProcessKey(state.next_key);
        state.next_key += 1;
        state.processes.insert(key, process);
        // From now on its bell is listened to, too.
        self.bell.ring();
        Ok(key)
    }

    /// Begins a spool of all processes that are attached from now on: everything that is read of them
    /// is in it within a second. It takes `limit_bytes` at most; near that, and where the disk has
    /// little room left, fewer and fewer samples are kept.
    pub fn spool(&self, place: PlaceSpool, limit_bytes: u64) -> Result<(), SpoolError> {
        self.state.lock().scratch.spool = Some(Spooling::new(place, limit_bytes)?);
        Ok(())
    }

    /// Adds a note to the spool, for those who read it. The last one counts. Waits for no round: the
    /// caller may be about to let the application go on.
    pub fn note(&self, note: serde_json::Value) {
        *self.note.lock() = Some(note);
    }

    /// Ends the spool, if there is one; the processes in it have been finished.
    pub fn end_spool(&self) -> Option<SpoolOutcome> {
        let mut spool = self.state.lock().scratch.spool.take()?;
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
        if let Some(spool) = self.state.lock().scratch.spool.take() {
            spool.discard();
        }
    }

    /// Lets go of a process without a profile, so that another collector can take it over. That
    /// one finds the process's whole run as long as no ring has wrapped around.
    pub fn detach(&self, key: ProcessKey) {
        let mut state = self.state.lock();
        state.processes.remove(&key);
        if state.processes.is_empty() {
            // This process may collect nothing any more: symbol tables take megabytes.
            state.scratch.structures = Structures::new(self.options.structure.clone());
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
        let mut state = self.state.lock();
        while !state.stopping {
            state.woken = false;
            let heard = self.bell.rings();
            if let Some(spool) = &mut state.scratch.spool {
                self.hand_over_note(spool);
            }
            let look = state.turn(is_asked, Instant::now());
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
        self.state.lock().stopping = true;
        self.bell.ring();
    }

    /// Makes [`Collector::run`] read the rings now.
    pub fn flush(&self) {
        self.state.lock().woken = true;
        self.bell.ring();
    }

    /// Reads the rest of a process's records, accounts for what is still open, and returns its
    /// profile; the process is detached. Also after the process has died. `None` for a key that is
    /// not attached.
    pub fn finish(&self, key: ProcessKey) -> Option<ProcessProfile> {
        let cpu_before = thread_cpu_ns();
        let mut state = self.state.lock();
        let mut process = state.processes.remove(&key)?;
        let structure_before = state.scratch.structures.cpu_ns();
        let profile = process.finish(&mut state.scratch);
        state.late_structure_ns += state.scratch.structures.cpu_ns() - structure_before;
        state.finished.push(process);
        let cpu_ns = thread_cpu_ns().saturating_sub(cpu_before);
        self.finish_cpu_ns.fetch_add(cpu_ns, Ordering::Relaxed);
        Some(profile)
    }

    /// Tells all processes whose profile was taken that a report has been made of it, and lets go
    /// of them.
    pub fn acknowledge(&self) {
        for process in std::mem::take(&mut self.state.lock().finished) {
            process.acknowledge();
        }
    }

    /// Reads the rings, here and now; returns how full the fullest was, in percent.
    #[cfg(test)]
    pub(crate) fn round(&self) -> u64 {
        let mut state = self.state.lock();
        let fullest = state.drain();
        state.look_up();
        state.keep(true);
        fullest
    }

    /// Brings all that was read to disk, into the journal or, `settled`, into the spool.
    #[cfg(test)]
    pub(crate) fn flush_spool(&self, settled: bool) {
        let mut state = self.state.lock();
        state.write_out(true);
        if let Some(spool) = state.scratch.spool.as_mut().filter(|_| settled) {
            spool.settle();
        }
    }

    /// What the rings of a process look like.
    #[cfg(test)]
    pub(crate) fn glance(&self, key: ProcessKey) -> crate::glance::Glance {
        self.state.lock().processes[&key].glance()
    }

    /// One turn of [`Collector::run`], in which rings are read only if that is worth it.
    #[cfg(test)]
    pub(crate) fn turn(&self, now: Instant) {
        self.state.lock().turn(false, now);
    }

    /// Brings what is in the rings to disk, into the journal, and reads none of it.
    #[cfg(test)]
    pub(crate) fn flush_unread(&self) {
        self.state.lock().write_out(false);
    }

    /// CPU time of the collecting so far, in nanoseconds: the thread in [`Collector::run`], up to
    /// its last round, and all calls of [`Collector::finish`].
    pub fn cpu_ns(&self) -> u64 {
        self.run_cpu_ns.load(Ordering::Relaxed) + self.finish_cpu_ns.load(Ordering::Relaxed)
    }

    /// The part of [`Collector::cpu_ns`] in which functions, loops and lines were looked up, and the part of
    /// that after the run of a process had ended, in nanoseconds.
    pub fn structure_cpu_ns(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.scratch.structures.cpu_ns(), state.late_structure_ns)
    }

    /// Memory that contexts, values, names and structures take now, in bytes, roughly.
    pub fn memory_bytes(&self) -> u64 {
        let state = self.state.lock();
        let processes: u64 = state.processes.values().map(Process::memory_bytes).sum();
        processes + state.scratch.structures.bytes()
    }
}

impl State {
    /// Looks at the rings, and does what is to be done; `is_asked`: reads them in any case.
    fn turn(&mut self, is_asked: bool, now: Instant) -> Look {
        let (mut fullest, mut pending, mut has_changed) = (0, 0u64, false);
        for process in self.processes.values_mut() {
            process.listen();
            let glance = process.glance();
            fullest = fullest.max(glance.fullest);
            pending = pending.saturating_add(glance.pending);
            has_changed |= glance.has_changed;
        }
        let is_due = self.reading.is_due(now, pending);
        let reads = is_due || is_asked || has_changed || fullest > FULL_PERCENT;
        if reads {
            self.reading.begin(now);
            self.drain();
        }
        self.look_up();
        self.keep(reads);
        let is_nameless = self.processes.values().any(Process::has_nameless);
        let goes_on = has_changed || is_nameless || self.scratch.structures.is_open();
        Look { fullest, calm: if goes_on { CALM } else { self.reading.pause(now, CALM) } }
    }

    /// Reads the rings; returns how full the fullest was, in percent.
    fn drain(&mut self) -> u64 {
        let Self { processes, scratch, .. } = self;
        processes.values_mut().map(|process| process.drain(scratch)).max().unwrap_or(0)
    }

    /// Looks up names, as far as that may be done now.
    fn look_up(&mut self) {
        let Self { processes, scratch, pace, keeping, .. } = self;
        let mut nameless =
            processes.values_mut().filter(|process| process.has_nameless()).peekable();
        if nameless.peek().is_some() {
            for process in nameless {
                let begin = Instant::now();
                let allowed = pace.allows(begin, scratch.structures.is_open());
                if allowed > Duration::ZERO {
                    process.name_some(allowed, &mut scratch.structures);
                    pace.spend(begin.elapsed());
                }
            }
        } else {
            if scratch.structures.has_news() && keeping.is_due(Instant::now()) {
                scratch.structures.save();
            }
            if scratch.structures.is_open() {
                // Nothing new for a round: what was read to look it up takes much memory.
                scratch.structures.release();
            }
        }
    }

    /// Brings to disk what is due. `read`: the rings have just been read.
    fn keep(&mut self, read: bool) {
        if self.scratch.spool.as_ref().is_some_and(Spooling::is_due) {
            self.write_out(read);
        }
    }

    /// Brings to disk all that there is.
    fn write_out(&mut self, read: bool) {
        let Self { processes, scratch, .. } = self;
        for process in processes.values_mut().filter(|_| !read) {
            process.journal(scratch);
        }
        let Some(spool) = &mut scratch.spool else { return };
        for process in processes.values_mut() {
            process.tell(None, &process.facts(), spool);
        }
        spool.flush(read);
    }
}
