//! Reduction of a spool after its run: where many processes behave alike, the spools of some are
//! enough.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::Path;

use plimsoll_sys::own::Own;
use serde_json::Value;

use super::SPOOL;
use crate::spooling::meta::{self, Meta};
use plimsoll_spool::{Frame, Kind, SpoolError, SpoolReader, SpoolWriter, Step, Stream, Walk};
use plimsoll_sys::own_files;

/// End of the name of what is to take a spool's place.
const KEPT: &str = "kept";

/// Selection of the processes that a spool keeps.
#[derive(Clone, Debug)]
pub struct SpoolSelection {
    /// Processes, by their ids.
    pub pids: BTreeSet<u32>,
    /// New note of the spool.
    pub note: Value,
}

/// Reduces a spool that was ended in order to some processes; removes the spool if it has none of
/// them. `choose` receives the spool's note. The path is that of [`super::SpoolOutcome::path`].
///
/// The reduced spool replaces the old one at once: after an error or a crash, the spool is
/// unchanged. Damage of a kept part is an error; removed parts are not read.
pub fn keep(
    path: &Path,
    choose: impl FnOnce(Value) -> Result<SpoolSelection, SpoolError>,
) -> Result<(), SpoolError> {
    let spool = path.with_extension(SPOOL);
    let mut reader = SpoolReader::new(own_files::open_own(&spool)?)?;
    let mut contents = Contents::default();
    let values = Stream { kind: Kind::Meta, number: meta::STREAM };
    for_each_frame(reader.walk_stream(values), |frame| contents.look_at(frame))?;
    let SpoolSelection { pids, note } = choose(contents.note.take().unwrap_or_default())?;
    let of_kept = |(process, pid): &(u32, u32)| pids.contains(pid).then_some(*process);
    let processes: BTreeSet<u32> = contents.processes.iter().filter_map(of_kept).collect();
    if processes.is_empty() {
        return Ok(fs::remove_file(&spool)?);
    }
    let kept = path.with_extension(KEPT);
    // What is there already is not ours, and stays.
    let file = own_files::create(&kept)?;
    let written = contents.copy(&mut reader, &processes, &note, file);
    let moved = written.and_then(|()| Ok(fs::rename(&kept, &spool)?));
    moved.inspect_err(|_| drop(fs::remove_file(&kept)))
}

/// Reads frames in order; damage is an error.
fn for_each_frame(
    mut walk: Walk<'_, Own<File>>,
    mut take: impl FnMut(&Frame<'_>) -> Result<(), SpoolError>,
) -> Result<(), SpoolError> {
    while let Some(step) = walk.next()? {
        match step {
            Step::Frame(frame) => take(&frame)?,
            Step::Missing(..) | Step::Damaged(_) => {
                return Err(io::Error::other("it is damaged").into());
            }
        }
    }
    Ok(())
}

/// Contents of a spool that must be known before copying.
#[derive(Default)]
struct Contents {
    /// Numbers of processes, with their ids.
    processes: Vec<(u32, u32)>,
    /// Streams of threads, with the numbers of their processes.
    threads: Vec<(u32, u32)>,
    /// Processes with functions that others share.
    tellers: BTreeSet<u32>,
    note: Option<Value>,
}

impl Contents {
    fn look_at(&mut self, frame: &Frame<'_>) -> Result<(), SpoolError> {
        match frame.meta()? {
            Meta::Process(process) => self.processes.push((process.process, process.pid)),
            Meta::Thread(thread) => self.threads.push((thread.records, thread.process)),
            Meta::Functions(functions) => {
                self.tellers.extend(functions.iter().map(|function| function.process));
            }
            Meta::Note(note) => self.note = Some(note),
            _ => {}
        }
        Ok(())
    }

    /// Writes what is of these processes to a new file.
    fn copy(
        &self,
        reader: &mut SpoolReader<Own<File>>,
        processes: &BTreeSet<u32>,
        note: &Value,
        file: Own<File>,
    ) -> Result<(), SpoolError> {
        let of_kept =
            |(stream, process): &(u32, u32)| processes.contains(process).then_some(*stream);
        let threads: BTreeSet<u32> = self.threads.iter().filter_map(of_kept).collect();
        let is_kept = |stream: &Stream| match stream.kind {
            Kind::Meta => true,
            Kind::Records | Kind::Ring => threads.contains(&stream.number),
            Kind::Addresses => processes.contains(&stream.number),
            Kind::Index => false,
        };
        let streams = reader.streams().into_keys().filter(is_kept).collect();
        let mut writer = SpoolWriter::new(file)?;
        for_each_frame(reader.walk_streams(streams), |frame| {
            if frame.info.stream.kind != Kind::Meta {
                return writer.copy(frame);
            }
            let value = self.of(frame.meta()?, processes, &threads);
            value.map_or(Ok(()), |value| writer.meta(frame.info.stream.number, &value))
        })?;
        writer.meta(meta::STREAM, &Meta::Note(note.clone()))?;
        writer.finish().map(drop)
    }

    /// Returns the part of a value that belongs to these processes and their threads.
    fn of(
        &self,
        mut value: Meta,
        processes: &BTreeSet<u32>,
        threads: &BTreeSet<u32>,
    ) -> Option<Meta> {
        let is_kept = match &mut value {
            Meta::Process(process) => processes.contains(&process.process),
            Meta::Thread(thread) => threads.contains(&thread.records),
            Meta::ThreadEnd(end) => threads.contains(&end.records),
            Meta::Names(names) => {
                names.retain(|name| processes.contains(&name.process));
                !names.is_empty()
            }
            Meta::Statuses(statuses) => {
                statuses.retain(|status| processes.contains(&status.process));
                !statuses.is_empty()
            }
            Meta::Modules(modules) => {
                let is_kept = |of: u32| processes.contains(&of) || self.tellers.contains(&of);
                modules.retain(|module| is_kept(module.process));
                !modules.is_empty()
            }
            // Another one takes its place.
            Meta::Note(_) => false,
            Meta::Functions(_) | Meta::Calls(_) | Meta::Round(_) | Meta::Journal { .. } => true,
        };
        is_kept.then_some(value)
    }
}
