//! The recorded streams on disk: two files with the same streams.
//!
//! The *spool* gets large frames, about one per minute and thread, which compress well. The
//! *journal* holds what the spool does not contain yet: every second it gets the new bytes of the
//! rings, as they are and before they are drained. It is emptied when the spool has caught up. Each
//! restart of the journal begins a numbered round: the spool states up to which round it is
//! complete, the journal states its own round. No record is therefore read twice, whenever the
//! process dies; and a regular end leaves no journal.

mod budget;
mod keep;
pub(crate) mod meta;
mod process_tables;
mod sink;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use plimsoll_calls::{CallId, FIRST_CODE_ADDRESS, call};
use plimsoll_sys::memory_kind::{MemoryKind, count_as};
use plimsoll_wire::record::Record;
use plimsoll_wire::teams::PathKey;
use serde_json::Value;

use crate::history::HistoryOptions;
use crate::spooling::meta::{
    FunctionMeta, Meta, ModuleMeta, NameMeta, ProcessMeta, Status, ThreadEnd, ThreadMeta,
};
use plimsoll_binary::{Function, Recovered};
use plimsoll_spool::{Address, SpoolError, SpoolWriter};

use budget::Budget;
pub use keep::{SpoolSelection, keep};
pub(crate) use process_tables::SpoolCursor;
use sink::Sink;

/// Minimum and maximum interval between flushes. The records that a sudden end of the process loses
/// are hardly older than the maximum.
const MIN_FLUSH_INTERVAL: Duration = Duration::from_millis(600);
const MAX_FLUSH_INTERVAL: Duration = Duration::from_millis(900);
/// Maximum duration of a round of the journal.
const SETTLE_EVERY: Duration = Duration::from_secs(64);
/// Bytes of columns in memory, or of the journal, per process, above which a round ends earlier.
const HELD_BYTES: u64 = 1 << 20;
/// Maximum bytes of functions in one value, where JSON takes about four characters per byte. Larger
/// functions are not recorded.
const MAX_CODE_BYTES: usize = 1 << 20;
/// File name extensions of a spool and of its journal.
pub(crate) const SPOOL: &str = "spool";
pub(crate) const JOURNAL: &str = "journal";

/// Returns the path of a spool, without extension. Called when the first bytes are to be written.
pub type PlaceSpool = Box<dyn FnOnce() -> io::Result<PathBuf> + Send>;

/// Outcome of a spool that was finished.
#[derive(Debug, Default)]
pub struct SpoolOutcome {
    /// Bytes on disk.
    pub bytes: u64,
    /// Subsampling level at the end: one sample in 2^`halvings` was kept.
    pub halvings: u32,
    /// Number of records that the spool does not contain.
    pub lost: u64,
    /// Reason why the spool is incomplete, as a sentence; `None` if it is complete.
    pub trouble: Option<String>,
    /// Path without extension; `None` if no file was created.
    pub path: Option<PathBuf>,
}

/// A spool and its journal while they are written.
pub(crate) struct Spooling {
    place: Option<PlaceSpool>,
    path: Option<PathBuf>,
    spool: SpoolWriter<Sink>,
    journal: SpoolWriter<Sink>,
    round: u32,
    processes: u32,
    threads: u32,
    /// Latest status of each process, by its number.
    statuses: BTreeMap<u32, Status>,
    /// Modules not yet written. One value holds those of all processes, which have most modules in
    /// common.
    modules: Vec<ModuleMeta>,
    names: Vec<NameMeta>,
    functions: Vec<FunctionMeta>,
    /// Addresses in memory of the functions already recorded.
    known_functions: HashSet<usize>,
    new_calls: Vec<(CallId, String)>,
    /// Wrapped calls already recorded.
    calls: BTreeSet<CallId>,
    note: Option<Meta>,
    budget: Budget,
    flushed: Instant,
    settled: Instant,
    /// Number of threads recorded when the budget was used up or no file could be created: records
    /// and later threads are refused. `None` until then.
    full: Option<u32>,
    refused: u64,
    trouble: Option<String>,
}

impl Spooling {
    /// Creates a spool that takes at most `limit_bytes` on disk.
    pub(crate) fn new(place: PlaceSpool, limit_bytes: u64) -> Result<Self, SpoolError> {
        let mut journal = counted(|| SpoolWriter::new(Sink::default()))?.uncompressed();
        counted(|| journal.meta(meta::STREAM, &Meta::Journal { round: 1, next: Vec::new() }))?;
        let now = Instant::now();
        Ok(Self {
            place: Some(place),
            path: None,
            spool: counted(|| SpoolWriter::new(Sink::default()))?.stand_alone(),
            journal,
            round: 1,
            processes: 0,
            threads: 0,
            statuses: BTreeMap::new(),
            modules: Vec::new(),
            names: Vec::new(),
            functions: Vec::new(),
            known_functions: HashSet::new(),
            new_calls: Vec::new(),
            calls: BTreeSet::new(),
            note: None,
            budget: Budget::new(limit_bytes),
            flushed: now,
            settled: now,
            full: None,
            refused: 0,
            trouble: None,
        })
    }

    /// Records a new process and returns its number.
    pub(crate) fn process(&mut self, pid: u32, start_time: u64, options: &HistoryOptions) -> u32 {
        let process = self.processes;
        self.processes += 1;
        let HistoryOptions { memory_bytes, aggregation, .. } = *options;
        let meta = ProcessMeta { process, pid, start_time, memory_bytes, aggregation };
        self.both(&Meta::Process(meta));
        process
    }

    /// Records the name of an address.
    pub(crate) fn name(&mut self, name: NameMeta) {
        counted(|| self.names.push(name));
    }

    /// Records a function that occurred in stacks of a process; `module` is the number of its
    /// module there.
    pub(crate) fn function(&mut self, process: u32, module: u32, function: &Arc<Function>) {
        // Functions live until the collector ends, so their addresses are not reused.
        if !counted(|| self.known_functions.insert(Arc::as_ptr(function).addr())) {
            return;
        }
        let code = Recovered::of(function);
        let code = code.and_then(|code| counted(|| postcard::to_allocvec(&code).ok()));
        let Some(code) = code.filter(|code| code.len() <= MAX_CODE_BYTES) else { return };
        let name = function.name.as_deref().map(str::to_owned);
        counted(|| self.functions.push(FunctionMeta { process, module, name, code }));
    }

    /// Records a module that a process has loaded.
    pub(crate) fn module(&mut self, module: ModuleMeta) {
        counted(|| self.modules.push(module));
    }

    /// Records addresses of a process with consecutive ids from `first` on.
    pub(crate) fn addresses(&mut self, process: u32, first: u32, addresses: &[Address]) {
        if self.full.is_some() {
            return;
        }
        let calls = addresses.iter().map(|address| address.value).filter(|value| *value != 0);
        for id in calls.filter(|value| *value < FIRST_CODE_ADDRESS) {
            if let (Some(call), true) = (call(id as CallId), self.calls.insert(id as CallId)) {
                self.new_calls.push((id as CallId, call.name.to_owned()));
            }
        }
        counted(|| {
            self.spool.addresses(process, first, addresses);
            self.journal.addresses(process, first, addresses);
        });
    }

    /// Records a new thread with ticks every `period` stamps; returns the stream of its records.
    pub(crate) fn thread(
        &mut self,
        process: u32,
        routine: u32,
        origin: PathKey,
        born: Option<u64>,
        period: u64,
    ) -> u32 {
        let records = self.threads;
        self.threads += 1;
        if self.full.is_some() {
            return records;
        }
        let origin = origin.0;
        self.both(&Meta::Thread(ThreadMeta { process, records, routine, origin, born }));
        counted(|| self.spool.begin(records, period));
        records
    }

    /// Journals the new bytes in the ring of a thread: whole records. When they are drained, each
    /// also goes to [`Spooling::record`]. Empty `bytes` mean that the stream is to be read from its
    /// next whole stack on.
    pub(crate) fn ring(&mut self, stream: u32, bytes: &[u8]) {
        if self.full.is_none() {
            counted(|| self.journal.ring(stream, bytes));
        }
    }

    /// Marks a loss of records of a thread: later ones are ignored until a whole stack.
    pub(crate) fn mark_gap(&mut self, stream: u32) {
        self.record(stream, &Record::Lost { records: 0 });
        self.ring(stream, &[]);
    }

    /// Adds a record of a thread to the spool, or counts it as refused if the spool is full.
    #[inline]
    pub(crate) fn record(&mut self, stream: u32, record: &Record<'_>) {
        if self.full.is_some() {
            self.refused += 1;
            return;
        }
        counted(|| self.spool.record(stream, record));
    }

    /// Records the end of a thread, or of its process.
    pub(crate) fn end_thread(&mut self, end: ThreadEnd) {
        if self.full.is_some_and(|threads| end.records >= threads) {
            return;
        }
        counted(|| self.spool.end(end.records));
        self.both(&Meta::ThreadEnd(Box::new(end)));
    }

    /// Replaces the status of a process.
    pub(crate) fn status(&mut self, status: Status) {
        counted(|| self.statuses.insert(status.process, status));
    }

    /// Records a note of the collector's user; the last note replaces earlier ones.
    pub(crate) fn note(&mut self, note: Value) {
        let note = Meta::Note(note);
        report(&mut self.trouble, self.journal.meta(meta::STREAM, &note));
        self.note = Some(note);
    }

    /// Returns whether it is time to update the status of all processes and to flush.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        now.saturating_duration_since(self.flushed) >= MIN_FLUSH_INTERVAL
    }

    /// Returns the time from `now` within which the next flush must come.
    pub(crate) fn until_flush(&self, now: Instant) -> Duration {
        MAX_FLUSH_INTERVAL.saturating_sub(now.saturating_duration_since(self.flushed))
    }

    /// Writes everything up to `now` to disk. `read`: all bytes that were journaled have been
    /// drained, so the spool can catch up and the journal may begin a new round.
    pub(crate) fn flush(&mut self, read: bool, now: Instant) {
        counted(|| self.write_out(read, now));
    }

    fn write_out(&mut self, read: bool, now: Instant) {
        self.flushed = now;
        self.open();
        if self.full.is_some() {
            return;
        }
        self.tell_tables();
        let statuses = self.statuses();
        report(&mut self.trouble, self.journal.meta(meta::STREAM, &statuses));
        self.journal.flush();
        let most = HELD_BYTES * u64::from(self.processes.max(1));
        let held = (self.spool.held_bytes() as u64).max(self.journal.counts().bytes);
        if read && (self.settled.elapsed() >= SETTLE_EVERY || held > most) {
            self.settle();
        }
        self.keep_within_budget();
        // The spool gets a frame per minute and thread, and a few values meanwhile.
        self.spool.release();
        self.journal.release();
    }

    /// Drops the spool and removes its files.
    pub(crate) fn discard(self) {
        let Some(path) = &self.path else { return };
        for end in [SPOOL, JOURNAL] {
            let _ = std::fs::remove_file(path.with_extension(end));
        }
        if let Some(folder) = path.parent() {
            // The folder stays if it holds other files.
            let _ = std::fs::remove_dir(folder);
        }
    }

    /// Completes the spool, removes the journal if that succeeded, and returns the outcome.
    pub(crate) fn finish(mut self) -> SpoolOutcome {
        self.open();
        self.catch_up();
        let Self { spool, path, trouble, refused, .. } = self;
        let (counts, halvings) = (spool.counts(), spool.level());
        let (counts, ended) = match spool.finish() {
            Ok(counts) => (counts, None),
            Err(error) => (counts, Some(error.to_string())),
        };
        if let (None, Some(path)) = (&ended, &path) {
            let _ = std::fs::remove_file(path.with_extension(JOURNAL));
        }
        SpoolOutcome {
            bytes: if path.is_some() { counts.bytes } else { 0 },
            halvings,
            lost: counts.lost + refused,
            trouble: trouble.or(ended),
            path,
        }
    }

    /// Creates the files of the spool and the journal, once; on failure the spool counts as full.
    fn open(&mut self) {
        let Some(place) = self.place.take() else { return };
        let opened = place().and_then(|path| {
            self.spool.sink_mut().open(&path.with_extension(SPOOL))?;
            self.journal.sink_mut().open(&path.with_extension(JOURNAL))?;
            Ok(path)
        });
        match opened {
            Ok(path) => {
                self.budget.measure(&path);
                self.path = Some(path);
            }
            Err(error) => {
                self.trouble = Some(error.to_string());
                self.full = Some(0);
                for writer in [&mut self.spool, &mut self.journal] {
                    // An error of the sink: the writer drops what it holds, and all that follows.
                    *writer.sink_mut() = Sink::Missing;
                    writer.flush();
                }
            }
        }
    }

    /// Moves everything into the spool and begins a new round of the journal.
    pub(crate) fn settle(&mut self) {
        self.settled = Instant::now();
        self.catch_up();
        if self.spool.error().is_some() {
            // The spool takes no more: the journal must keep what it has.
            return;
        }
        self.round += 1;
        let first = Meta::Journal { round: self.round, next: self.spool.next_frames() };
        let begun = self.journal.restart().and_then(|()| self.journal.meta(meta::STREAM, &first));
        report(&mut self.trouble, begun);
        self.spool.restate(&mut self.journal);
    }

    fn catch_up(&mut self) {
        self.tell_tables();
        let (statuses, round) = (self.statuses(), Meta::Round(self.round));
        for value in [&statuses].into_iter().chain(&self.note) {
            report(&mut self.trouble, self.spool.meta(meta::STREAM, value));
        }
        self.spool.flush();
        report(&mut self.trouble, self.spool.meta(meta::STREAM, &round));
        self.spool.flush();
    }

    fn tell_tables(&mut self) {
        let modules = Meta::Modules(std::mem::take(&mut self.modules));
        let calls = Meta::Calls(std::mem::take(&mut self.new_calls));
        let names = Meta::Names(std::mem::take(&mut self.names));
        for table in [modules, calls, names] {
            self.table(table);
        }
        let (mut some, mut bytes) = (Vec::new(), 0);
        for function in std::mem::take(&mut self.functions) {
            if bytes + function.code.len() > MAX_CODE_BYTES {
                self.table(Meta::Functions(std::mem::take(&mut some)));
                bytes = 0;
            }
            bytes += function.code.len();
            some.push(function);
        }
        self.table(Meta::Functions(some));
    }

    /// Writes a table to both files, in as many values as frames need: the names of a program with
    /// large C++ templates take tens of megabytes. Writes nothing for an empty table.
    fn table(&mut self, table: Meta) {
        // The last part is written first.
        let mut parts = vec![table];
        parts.retain(|table| table.items() > 0);
        while let Some(part) = parts.pop() {
            match self.try_both(&part) {
                Err(SpoolError::TooLarge(_)) if part.items() > 1 => parts.extend(part.halves()),
                written => report(&mut self.trouble, written),
            }
        }
    }

    fn statuses(&self) -> Meta {
        Meta::Statuses(self.statuses.values().cloned().collect())
    }

    fn keep_within_budget(&mut self) {
        let bytes = self.spool.counts().bytes + self.journal.counts().bytes;
        let Some(level) = self.budget.level(bytes) else { return self.give_up() };
        while self.spool.level() < level {
            self.spool.halve();
        }
    }

    /// Stops recording because the budget is used up. Small values still fit.
    fn give_up(&mut self) {
        for (stream, _) in self.spool.next_frames() {
            self.record(stream, &Record::Lost { records: 0 });
        }
        self.settle();
        self.full = Some(self.threads);
        self.trouble.get_or_insert_with(|| self.budget.exhausted());
    }

    fn both(&mut self, value: &Meta) {
        let written = self.try_both(value);
        report(&mut self.trouble, written);
    }

    fn try_both(&mut self, value: &Meta) -> Result<(), SpoolError> {
        let json = serde_json::to_vec(value)?;
        let Self { spool, journal, .. } = self;
        counted(|| spool.json_in_both(journal, meta::STREAM, &json))
    }
}

/// Charges the allocations of `work` to the spool.
#[inline]
fn counted<R>(work: impl FnOnce() -> R) -> R {
    count_as(MemoryKind::Spool, work)
}

/// Keeps the first error.
fn report(trouble: &mut Option<String>, outcome: Result<(), SpoolError>) {
    if let (Err(error), None) = (outcome, &trouble) {
        *trouble = Some(error.to_string());
    }
}
