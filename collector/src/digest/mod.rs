//! Reader of spools: replays the records of a spool's processes with the code that replays rings.

mod contents;
mod lives;
mod reading;
mod recorded;

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use plimsoll_calls::{CallId, ON_RESOURCE, id_of};
use plimsoll_wire::teams::PathKey;

use crate::clock_rate::Rate;
use crate::history::{History, HistoryOptions, Setting, ThreadHistory};
use crate::loop_profiles::wanted;
use crate::process_info::FinalThreadState;
use crate::profile::{Frame, ProcessProfile};
use crate::replay::Replay;
use crate::replay_target::Window;
use crate::spooling::meta::{Meta, NameMeta};
use crate::spooling::{JOURNAL, SPOOL};
use plimsoll_binary::Structures;
use plimsoll_spool::{Address, Kind, SpoolError, SpoolReader, Step, Stream};
use plimsoll_sys::own_files::open_regular;
use plimsoll_trees::WantedIteration;

use contents::Found;
pub use lives::{Moment, SpooledProcess};
use reading::Reading;
use recorded::{Process, Recorded};

/// Maximum number of addresses of a process accepted from a spool.
const MAX_ADDRESSES: usize = plimsoll_wire::segment::MAX_ADDRESSES;
/// Maximum memory of a process in a digest, independent of its budget at recording.
const MAX_MEMORY_BYTES: u64 = 1 << 30;
/// Maximum number of damages listed individually.
const MAX_DAMAGES: usize = 20;

/// Spool of one collector, and its journal if the collector left one.
pub struct Digest<R = File> {
    spool: SpoolReader<R>,
    /// Offset up to which frames of records in the spool are used.
    until: u64,
    journal: Option<Journal<R>>,
    bytes: u64,
    processes: BTreeMap<u32, Process>,
    note: Option<serde_json::Value>,
    /// Call ids of this build, keyed by the call ids in the spool.
    calls: BTreeMap<CallId, CallId>,
    damages: Vec<String>,
    structures: Structures,
    is_broken_off: bool,
}

struct Journal<R> {
    reader: SpoolReader<R>,
    /// Number of the next frame of each stream: the journal continues the spool from there.
    next: BTreeMap<u32, u32>,
}

/// Returns the spools in a folder, sorted by name, as input for [`Digest::open`].
pub fn spools(folder: &Path) -> std::io::Result<Vec<PathBuf>> {
    let mut paths = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|end| end == SPOOL) {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths)
}

impl Digest {
    /// Opens a spool and its journal, and reads everything except records.
    pub fn open(path: &Path) -> Result<Self, SpoolError> {
        let journal = path.with_extension(JOURNAL);
        let journal = if journal.exists() { Some(open_regular(&journal)?) } else { None };
        Self::new(open_regular(path)?, journal)
    }
}

impl<R: Read + Seek> Digest<R> {
    /// Reads a spool and its journal, if there is one, except for their records.
    pub fn new(mut spool: R, journal: Option<R>) -> Result<Self, SpoolError> {
        let bytes = spool.seek(SeekFrom::End(0))?;
        let mut digest = Self {
            spool: SpoolReader::new(spool)?,
            until: u64::MAX,
            journal: None,
            bytes,
            processes: BTreeMap::new(),
            note: None,
            calls: BTreeMap::new(),
            damages: Vec::new(),
            structures: Structures::default(),
            is_broken_off: false,
        };
        let round = digest.read_spool()?;
        match journal.map(SpoolReader::new) {
            Some(Ok(reader)) => digest.read_journal(reader, round)?,
            // The journal was just restarted or never written: all data is in the spool.
            None | Some(Err(SpoolError::NotASpool)) => {}
            Some(Err(error)) => digest.damaged(format!("its journal: {error}")),
        }
        Ok(digest)
    }

    /// Returns the note that was added last.
    pub fn note(&self) -> Option<&serde_json::Value> {
        self.note.as_ref()
    }

    /// Returns whether the writer ended the spool in order; otherwise its last frames may be
    /// missing.
    pub fn is_orderly(&self) -> bool {
        self.spool.orderly()
    }

    /// Returns the size on disk in bytes.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Returns what could not be read so far, one sentence each.
    pub fn damages(&self) -> &[String] {
        &self.damages
    }

    /// Returns the number of frames of records, to report the progress of a replay.
    pub fn frames(&self) -> u64 {
        let journal = self.journal.iter().flat_map(|journal| journal.reader.frames());
        let all = self.spool.frames().iter().chain(journal);
        all.filter(|frame| matches!(frame.stream.kind, Kind::Records | Kind::Ring)).count() as u64
    }

    /// Returns the profile of one process: the profile that its collector made, or would have made.
    /// `progress` is called for each frame with the number of its records. Returns `None` for an
    /// unknown process number.
    pub fn profile(
        &mut self,
        number: u32,
        mut progress: impl FnMut(u64),
    ) -> Result<Option<ProcessProfile>, SpoolError> {
        self.give_functions();
        let Some(process) = self.processes.remove(&number) else { return Ok(None) };
        let profile = self.replay(&process, Vec::new(), &mut progress);
        self.processes.insert(number, process);
        profile
    }

    /// Returns the profile of one process like [`Digest::profile`], with the representative
    /// iterations of its loops as they ran. Reads the records twice, since only the first pass
    /// finds which iterations these are; `progress` is called in the second one.
    pub fn profile_with_instances(
        &mut self,
        number: u32,
        mut progress: impl FnMut(u64),
    ) -> Result<Option<ProcessProfile>, SpoolError> {
        let Some(profile) = self.profile(number, |_| ())? else { return Ok(None) };
        let Some(process) = self.processes.remove(&number) else { return Ok(None) };
        let rate = process.status.as_ref().map(|status| status.info.rate);
        let wanted = rate.map_or_else(Vec::new, |rate| {
            wanted(&profile.loops, |duration_ns| rate.stamps(duration_ns))
        });
        let profile = self.replay(&process, wanted, &mut progress);
        self.processes.insert(number, process);
        profile
    }

    /// Replays the records of a process, and captures the wanted iterations.
    fn replay(
        &mut self,
        process: &Process,
        wanted: Vec<WantedIteration>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<Option<ProcessProfile>, SpoolError> {
        let (Some(meta), Some(status)) = (&process.meta, &process.status) else { return Ok(None) };
        let tables = Recorded { process, calls: &self.calls.clone() };
        let known_end = status.end.or(status.died);
        let latest_end = process.cut.unwrap_or(u64::MAX);
        let setting = Setting {
            tables: &tables,
            window: Window {
                begin: status.begin,
                end: known_end.unwrap_or(u64::MAX).min(latest_end),
                latest: u64::MAX,
            },
            rate: Rate::coarse(status.ns_per_ticks_q32),
            period: status.kept_period_stamps.max(status.period_stamps),
            tick_period: status.period_stamps,
        };
        let memory_bytes = meta.memory_bytes.min(MAX_MEMORY_BYTES);
        let only_samples = status.info.only_samples;
        let options = HistoryOptions {
            memory_bytes,
            follows: status.follows,
            only_samples,
            aggregation: meta.aggregation,
        };
        let mut history = History::new(status.begin, &options);
        history.capture(wanted);
        if self.is_broken_off {
            history.break_off();
        }
        for name in &process.names {
            // Another build may number the calls differently.
            let call = name.frame.call.and_then(|id| self.calls.get(&id).copied());
            let frame = Frame { call, ..name.frame.clone() };
            history.learn(&NameMeta { frame, ..name.clone() });
        }
        // A communicating thread that began when the spool was full is not in it.
        let main = status.main.filter(|stream| process.threads.contains_key(stream));
        let living: BTreeMap<u32, &FinalThreadState> =
            status.living.iter().map(|(stream, last)| (*stream, last)).collect();
        let (mut threads, mut booked) = (Vec::new(), status.read);
        for (stream, meta) in &process.threads {
            let replay = Replay::new(meta.born);
            let mut thread = history.thread(meta.routine, PathKey(meta.origin), replay, &tables);
            if main == Some(*stream) {
                history.make_main(&mut thread);
            }
            let ended = process.ends.get(stream);
            let last = ended.map(|ended| &ended.last).or(living.get(stream).copied());
            if last.is_some_and(|last| last.is_unfollowed) {
                history.unfollow(&mut thread);
            }
            self.replay_thread(*stream, &mut thread, &mut history, &setting, progress)?;
            booked = booked.max(thread.replay.booked().unwrap_or(0));
            // As in the running job, closing an ended thread frees the state that only live threads
            // need.
            if let Some(ended) = ended {
                let (end, last) = (ended.end, &ended.last);
                history.close(&mut thread, last, end, &setting, &mut self.structures);
                continue;
            }
            threads.push((*stream, thread));
        }
        let end = known_end.unwrap_or(booked).min(latest_end);
        let nothing = FinalThreadState::default();
        for (stream, thread) in &mut threads {
            let last = living.get(stream).copied().unwrap_or(&nothing);
            history.close(thread, last, end, &setting, &mut self.structures);
        }
        history.finish(main.is_some(), end, &tables);
        history.name_used(&tables, &mut self.structures);
        history.drop_given_up(&self.structures);
        // The number of threads in the run cannot be derived from their records alone.
        history.threads = status.threads;
        history.unread = history.unread.saturating_add(status.unread);
        history.counts.record_bytes = status.record_bytes;
        Ok(Some(history.profile(end, setting.period, &status.info)))
    }

    /// Registers the functions stored in the spool: their binaries may be gone, or belong to
    /// another build.
    fn give_functions(&mut self) {
        for process in self.processes.values_mut() {
            for spooled in std::mem::take(&mut process.functions) {
                let module = spooled.module.checked_sub(1).and_then(|at| process.modules.get(&at));
                let (Some(module), Ok(code)) = (module, postcard::from_bytes(&spooled.code)) else {
                    continue;
                };
                let path = PathBuf::from(&module.path);
                let module = self.structures.module(path, module.build_id.clone());
                self.structures.give(module, spooled.name.as_deref(), code);
            }
        }
    }

    fn replay_thread(
        &mut self,
        stream: u32,
        thread: &mut ThreadHistory,
        history: &mut History,
        setting: &Setting<'_>,
        progress: &mut dyn FnMut(u64),
    ) -> Result<(), SpoolError> {
        let records = Stream { kind: Kind::Records, number: stream };
        let structures = &mut self.structures;
        let mut reading = Reading { thread, history, setting, structures, sound: true };
        let mut next = 0;
        let mut walk = self.spool.walk_stream(records);
        while let Some(step) = walk.next()? {
            match step {
                Step::Frame(frame) if frame.info.offset >= self.until => break,
                Step::Frame(frame) => {
                    next = frame.info.sequence + 1;
                    progress(reading.frame(&frame));
                }
                step => reading.interrupted(&step),
            }
        }
        let Some(journal) = &mut self.journal else { return Ok(()) };
        if journal.next.get(&stream).is_some_and(|goes_on_from| *goes_on_from != next) {
            reading.mark_gap();
        }
        // Snapshot that the thread's records continue from; in spools of earlier builds, all later
        // records.
        let mut walk = journal.reader.walk_stream(records);
        while let Some(step) = walk.next()? {
            match step {
                Step::Frame(frame) => progress(reading.frame(&frame)),
                step => reading.interrupted(&step),
            }
        }
        let mut walk = journal.reader.walk_stream(Stream { kind: Kind::Ring, number: stream });
        while let Some(step) = walk.next()? {
            match step {
                Step::Frame(frame) => progress(reading.ring(&frame)),
                step => reading.interrupted(&step),
            }
        }
        Ok(())
    }

    /// Reads everything in the spool except records. Returns the last complete round, and the
    /// offset of the frame that says so.
    fn read_spool(&mut self) -> Result<(u32, u64), SpoolError> {
        let mut found = Found::default();
        let mut walk = self.spool.walk();
        while let Some(step) = walk.next()? {
            found.take(&step);
        }
        let round = found.round.unwrap_or((0, u64::MAX));
        self.learn(found);
        Ok(round)
    }

    fn read_journal(
        &mut self,
        mut reader: SpoolReader<R>,
        (round, until): (u32, u64),
    ) -> Result<(), SpoolError> {
        let mut found = Found::default();
        let mut walk = reader.walk();
        while let Some(step) = walk.next()? {
            found.take(&step);
        }
        // The journal of an earlier round is contained in the spool.
        if let Some((of, next)) = found.journal.take().filter(|(of, _)| *of > round) {
            if of == round + 1 {
                // The journal also holds what the spool has after its last complete round.
                self.until = until;
            }
            self.journal = Some(Journal { reader, next: next.into_iter().collect() });
            self.learn(found);
        }
        Ok(())
    }

    fn learn(&mut self, found: Found) {
        for value in found.values {
            match value {
                Meta::Process(meta) => {
                    let process = meta.process;
                    self.of(process).meta = Some(meta);
                }
                Meta::Modules(modules) => {
                    for module in modules {
                        self.of(module.process).modules.insert(module.index, module);
                    }
                }
                Meta::Thread(thread) => {
                    self.of(thread.process).threads.insert(thread.records, thread);
                }
                Meta::Names(names) => {
                    for name in names {
                        self.of(name.process).names.push(name);
                    }
                }
                Meta::Functions(functions) => {
                    for function in functions {
                        self.of(function.process).functions.push(function);
                    }
                }
                Meta::Calls(calls) => {
                    let ours = |(id, name): (CallId, String)| (id, id_of(&name) | id & ON_RESOURCE);
                    self.calls.extend(calls.into_iter().map(ours));
                }
                Meta::ThreadEnd(end) => {
                    let holder = self.processes.values_mut();
                    let holder = holder.into_iter().find(|p| p.threads.contains_key(&end.records));
                    if let Some(process) = holder {
                        process.ends.insert(end.records, *end);
                    }
                }
                Meta::Statuses(_) | Meta::Note(_) | Meta::Round(_) | Meta::Journal { .. } => {}
            }
        }
        for (process, status) in found.statuses {
            self.of(process).status = Some(status);
        }
        self.note = found.note.or(self.note.take());
        for (process, first, addresses) in found.addresses {
            let held = &mut self.of(process).addresses;
            let end = (first as usize).saturating_add(addresses.len()).min(MAX_ADDRESSES);
            if end > held.len() {
                held.resize(end, Address::default());
            }
            for (place, address) in held.iter_mut().skip(first as usize).zip(addresses) {
                if address.value != 0 {
                    *place = address;
                }
            }
        }
        found.damages.into_iter().for_each(|damage| self.damaged(damage));
    }

    /// Simulates reading the spool on a machine with other files.
    #[cfg(test)]
    pub(crate) fn move_modules(&mut self) {
        let modules = self.processes.values_mut().flat_map(|process| process.modules.values_mut());
        modules.for_each(|module| module.path.insert_str(0, "/elsewhere/"));
    }

    fn of(&mut self, process: u32) -> &mut Process {
        self.processes.entry(process).or_default()
    }

    fn damaged(&mut self, sentence: String) {
        if self.damages.len() < MAX_DAMAGES {
            self.damages.push(sentence);
        }
    }
}
