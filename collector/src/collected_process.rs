//! State of one collected process: its segment, the rings of its threads, and its history.

use std::sync::atomic::{AtomicU32, Ordering, fence};
use std::time::Duration;

use plimsoll_agent::partner_table;
use plimsoll_sys::memory_kind::{MemoryKind, count_as};
use plimsoll_sys::process_stat::ProcessStat;
use plimsoll_wire::clock_anchor::{Anchor, stamp_now};
use plimsoll_wire::increments::EventEntry;
use plimsoll_wire::lengths::{LengthOf, numbers};
use plimsoll_wire::lock_waits::LockWaitCounters;
use plimsoll_wire::record::{Decoder, PartnerMessages, STAMP_SHIFT};
use plimsoll_wire::segment::{REPORT_BEGUN, REPORT_ENDED};
use plimsoll_wire::teams::{MAX_REGIONS, MAX_TASKS, TaskCounters};

use crate::attach::{Area, AttachError, Bell, Segment};
use crate::clock_rate::Rate;
use crate::collector::Options;
use crate::history::{History, HistoryOptions, Setting, ThreadHistory};
use crate::process_info::{FinalThreadState, ProcessInfo, RegionCounts, ThreadCounters};
use crate::profile::ProcessProfile;
use crate::replay_target::Window;
use crate::spooling::meta::ThreadEnd;
use crate::spooling::{SpoolCursor, Spooling};
use plimsoll_binary::Structures;

/// Maximum difference between the time stamp counters of different cores, in nanoseconds. A record
/// further in the future is invalid.
const MAX_SKEW_NS: u64 = 1_000_000_000;

/// Maximum number of reads of a live thread's counters at the end of the run.
const MAX_READS: u32 = 8;

/// Buffers and tables that all processes of a collector share.
#[derive(Default)]
pub(crate) struct Scratch {
    pub(crate) bytes: Vec<u8>,
    pub(crate) decoder: Decoder,
    /// Structure of the programs' code.
    pub(crate) structures: Structures,
    /// Spool that also receives all records read; `None` if no spool is written.
    pub(crate) spool: Option<Spooling>,
}

/// One thread during its use of a thread area. Areas are reused by later threads.
pub(crate) struct ThreadReader {
    pub(crate) generation: u32,
    /// Number of bytes of the stream drained so far.
    pub(crate) position: u64,
    /// Number of bytes of the stream that the journal contains.
    pub(crate) journaled: u64,
    /// Position up to which another collector has drained the stream. The producer may overwrite
    /// the ring's bytes before it.
    pub(crate) read_before: u64,
    pub(crate) thread: ThreadHistory,
    /// Stream of the thread in the spool; `None` without a spool.
    pub(crate) stream: Option<u32>,
}

impl ThreadReader {
    /// Returns the position from which no collector has read the stream yet.
    pub(crate) fn unread(&self) -> u64 {
        self.position.max(self.read_before)
    }
}

/// A thread area, mapped at its first use.
pub(crate) struct ThreadSlot {
    pub(crate) area: Area,
    pub(crate) reader: Option<ThreadReader>,
}

/// A process attached to the collector.
pub(crate) struct Process {
    pub(crate) segment: Segment,
    pub(crate) pid: u32,
    pub(crate) start_time: u64,
    pub(crate) thread_slots: Vec<Option<ThreadSlot>>,
    /// Area and generation of the communicating thread.
    pub(crate) main: Option<(usize, u32)>,
    /// Stream of the communicating thread in the spool.
    pub(crate) main_stream: Option<u32>,
    pub(crate) history: History,
    /// Set until the first poll is done, which finds streams that another collector may have begun
    /// to read.
    pub(crate) first_round: bool,
    /// Progress of writing the process's tables to the spool; `None` without a spool.
    pub(crate) spool_cursor: Option<SpoolCursor>,
    /// Doorbell count at the last call of [`Process::listen`].
    heard: u32,
    /// Stamp of the end of the run; `None` until all of it was drained.
    concluded: Option<u64>,
    /// Stamp of the last check that found the process alive.
    pub(crate) seen_alive: u64,
    /// Earliest possible stamp of the process's death or premature end.
    pub(crate) died: Option<u64>,
    /// Stamp at which the run ends because another process died.
    pub(crate) cut: Option<u64>,
}

/// A process that only waits for the report, with its profile taken: nothing else of it is kept.
pub(crate) struct FinishedProcess {
    segment: Segment,
    /// Resident bytes of the segment when the process was finished.
    pub(crate) segment_bytes: u64,
}

impl FinishedProcess {
    /// Notifies the process that a report has been made.
    pub(crate) fn acknowledge(&self) {
        self.segment.process().reported.fetch_or(REPORT_ENDED, Ordering::Release);
    }

    /// As [`Process::outlive`].
    pub(crate) fn outlive(&self) {
        outlive(&self.segment);
    }
}

fn outlive(segment: &Segment) {
    segment.process().outlived.store(1, Ordering::Release);
}

impl Process {
    /// Attaches a process, with the collector's settings for its history.
    pub(crate) fn attach(
        pid: u32,
        fd: i32,
        start_time: u64,
        options: &Options,
        spool: Option<&mut Spooling>,
    ) -> Result<Self, AttachError> {
        let segment = Segment::open(pid, fd, start_time)?;
        let options = HistoryOptions {
            memory_bytes: options.memory_bytes,
            follows: options.follows_from_start,
            only_samples: only_samples(&segment),
            aggregation: options.aggregation,
        };
        let spool_cursor =
            spool.map(|spool| SpoolCursor::new(spool.process(pid, start_time, &options)));
        let history = History::new(begin_stamp(&segment), &options);
        Ok(Self {
            segment,
            pid,
            start_time,
            thread_slots: Vec::new(),
            main: None,
            main_stream: None,
            history,
            first_round: true,
            spool_cursor,
            heard: 0,
            concluded: None,
            seen_alive: stamp_now(),
            died: None,
            cut: None,
        })
    }

    /// Returns whether this process has that id and start time.
    pub(crate) fn is(&self, pid: u32, start_time: u64) -> bool {
        (self.pid, self.start_time) == (pid, start_time)
    }

    /// Snapshots the doorbell count; later rings wake the collector.
    pub(crate) fn listen(&mut self) {
        self.heard = self.segment.process().bell.rings();
    }

    /// Returns the doorbell and its count at the last call of [`Process::listen`].
    pub(crate) fn bell(&self) -> (Bell, u32) {
        (self.segment.bell(), self.heard)
    }

    /// Looks up names of new addresses, for at most `limit`.
    pub(crate) fn name_some(&mut self, limit: Duration, structures: &mut Structures) {
        self.history.name_some(limit, &self.segment, structures);
    }

    /// Returns whether there are addresses without names.
    pub(crate) fn has_nameless(&self) -> bool {
        self.history.has_nameless()
    }

    /// Returns the profile of the run, after [`Process::conclude`], and what is left of the
    /// process. The collector concludes all processes first, so that equal functions have their
    /// loops in all profiles.
    pub(crate) fn finish(mut self, scratch: &mut Scratch) -> (ProcessProfile, FinishedProcess) {
        let end = self.conclude(scratch);
        self.history.drop_given_up(&scratch.structures);
        let info = self.info();
        if let Some(spool) = &mut scratch.spool {
            self.write_tables(Some(end), &info, spool);
        }
        let kept_period = self.segment.process().kept_period_stamps.load(Ordering::Relaxed);
        let profile =
            count_as(MemoryKind::Analysis, || self.history.profile(end, kept_period, &info));
        let segment_bytes = self.segment_bytes();
        (profile, FinishedProcess { segment: self.segment, segment_bytes })
    }

    /// Drains the remaining records, closes open calls, and looks up the names in use as far as
    /// time allows. Later calls do nothing. Returns the stamp of the end of the run.
    pub(crate) fn conclude(&mut self, scratch: &mut Scratch) -> u64 {
        if let Some(end) = self.concluded {
            return end;
        }
        self.drain(scratch);
        self.conclude_drained(scratch)
    }

    /// Concludes the run once its records are drained. Returns the stamp of its end.
    pub(crate) fn conclude_drained(&mut self, scratch: &mut Scratch) -> u64 {
        let end = self.end();
        self.close_threads(end, scratch);
        self.history.finish(self.main.is_some(), end, &self.segment);
        self.history.name_used(&self.segment, &mut scratch.structures);
        self.concluded = Some(end);
        end
    }

    /// Returns the resident bytes of the segment.
    pub(crate) fn segment_bytes(&self) -> u64 {
        let areas = self.thread_slots.iter().flatten().map(|slot| slot.area.resident_bytes());
        self.segment.table_bytes() + areas.sum::<u64>()
    }

    /// Returns the approximate memory in use, in bytes.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let readers = self.thread_slots.iter().flatten().filter_map(|slot| slot.reader.as_ref());
        self.history.bytes()
            + readers.map(|reader| reader.thread.temporal_tree.bytes()).sum::<u64>()
    }

    pub(crate) fn info(&self) -> ProcessInfo {
        let header = self.segment.process();
        let unmapped = self.thread_slots.iter().filter(|slot| slot.is_none()).count() as u32;
        let and_unmapped =
            |count: &AtomicU32| count.load(Ordering::Relaxed).saturating_add(unmapped);
        let unsampled = and_unmapped(&header.unsampled_threads);
        let unseen = and_unmapped(&header.unseen_threads);
        let Anchor { ticks, ns } = self.anchor();
        ProcessInfo {
            period_ns: header.period_ns.load(Ordering::Relaxed),
            clock: header.clock.load(Ordering::Relaxed),
            rate: self.exact_rate(),
            anchor: Some((ticks, ns)),
            marks_off: header.marks_off.load(Ordering::Relaxed),
            only_samples: only_samples(&self.segment),
            unsampled_threads: u64::from(unsampled),
            unseen_threads: u64::from(unseen),
            unfollowed: header.unfollowed.load(Ordering::Relaxed),
            stepped_aside: header.stepped_aside.load(Ordering::Relaxed) != 0,
            failed: header.failed.load(Ordering::Relaxed) != 0,
            events: header.events.iter().map_while(EventEntry::get).collect(),
            uncounted_threads: u64::from(header.uncounted_threads.load(Ordering::Relaxed)),
        }
    }

    /// Returns whether the current thread of area `index` is the communicating one.
    pub(crate) fn is_main(&self, index: usize, reader: &ThreadReader) -> bool {
        self.main == Some((index, reader.generation))
    }

    /// Closes a thread that ended, or was alive when the run ended, at stamp `end`; `last` are the
    /// values that are in no record.
    pub(crate) fn close_reader(
        &mut self,
        reader: &mut ThreadReader,
        last: FinalThreadState,
        end: u64,
        scratch: &mut Scratch,
    ) {
        let window = self.window();
        let setting = setting(&self.segment, window);
        self.history.close(&mut reader.thread, &last, end, &setting, &mut scratch.structures);
        if let (Some(spool), Some(records)) = (scratch.spool.as_mut(), reader.stream) {
            spool.end_thread(ThreadEnd { records, end, last });
        }
    }

    /// Returns the code with which the process announces its premature end, if it does.
    pub(crate) fn ending(&self) -> Option<u32> {
        let code = self.segment.process().ending.load(Ordering::Acquire);
        (code != 0).then_some(code)
    }

    /// Notifies the process that its report is begun.
    pub(crate) fn begin_report(&self) {
        self.segment.process().reported.fetch_or(REPORT_BEGUN, Ordering::Relaxed);
    }

    /// Notifies the process that no process of its node has died, in spite of any report.
    pub(crate) fn outlive(&self) {
        outlive(&self.segment);
    }

    /// Returns the window of the run. If the begin of the run has changed, discards the data from
    /// before.
    pub(crate) fn window(&mut self) -> Window {
        let begin = begin_stamp(&self.segment);
        if begin != self.history.begin() {
            self.restart(begin);
            // Another thread may have begun it. Its name in the header is at least as new.
            self.main = None;
        }
        let end = self.segment.process().end_stamp.load(Ordering::Acquire);
        let end = if end == 0 { u64::MAX } else { end };
        let latest = stamp_now().saturating_add(rate(&self.segment).stamps(MAX_SKEW_NS));
        Window { begin, end: end.min(self.cut.unwrap_or(u64::MAX)), latest }
    }

    /// Restarts the run at stamp `begin`.
    pub(crate) fn restart(&mut self, begin: u64) {
        let live =
            self.thread_slots.iter().flatten().filter(|slot| slot.reader.is_some()).count() as u32;
        // The slot of the thread being drained is empty.
        self.history.restart(begin, live + 1);
    }

    /// Returns the simultaneous reading of both clocks that the process made.
    fn anchor(&self) -> Anchor {
        let header = self.segment.process();
        Anchor {
            ticks: header.anchor_ticks.load(Ordering::Relaxed),
            ns: header.anchor_ns.load(Ordering::Relaxed),
        }
    }

    fn exact_rate(&self) -> Rate {
        let coarse = self.segment.process().ns_per_ticks_q32.load(Ordering::Relaxed);
        Rate::since(self.anchor(), coarse)
    }

    /// Closes all threads that are alive when the run ends.
    fn close_threads(&mut self, end: u64, scratch: &mut Scratch) {
        for index in 0..self.thread_slots.len() {
            let Some(mut slot) = self.thread_slots[index].take() else { continue };
            if let Some(reader) = slot.reader.as_mut() {
                // Another thread may have become the communicating one since it was read.
                reader.thread.is_main = self.is_main(index, reader);
                let last = self.last_state(&slot.area, reader, end, scratch);
                self.close_reader(reader, last, end, scratch);
            }
            self.thread_slots[index] = Some(slot);
        }
    }

    /// Reads the counters of a thread that may still run, in a run that ends at stamp `end`. If the
    /// thread writes records meanwhile, it may have moved counters to them, so that the records are
    /// drained, too.
    fn last_state(
        &mut self,
        area: &Area,
        reader: &mut ThreadReader,
        end: u64,
        scratch: &mut Scratch,
    ) -> FinalThreadState {
        let mut reads = 1;
        loop {
            let last = final_state(area, self.history.is_unfollowed(&reader.thread));
            // The head is read after the counters.
            fence(Ordering::Acquire);
            let head = area.thread().head.load(Ordering::Acquire);
            if head == reader.position || reads == MAX_READS {
                return last;
            }
            reads += 1;
            let window = self.window();
            let window = Window { end: window.end.min(end), ..window };
            self.read(area, reader, head, window, scratch);
        }
    }

    /// Returns the stamp of the end of the run: the first death on the node, or else the end that
    /// the process announced; otherwise now if the process is alive, or its last activity if it has
    /// died.
    fn end(&self) -> u64 {
        let now = stamp_now().max(self.history.begin());
        let said = self.segment.process().end_stamp.load(Ordering::Acquire);
        let end = match self.died {
            _ if said != 0 => said.min(now),
            Some(died) => died.min(now),
            None if is_alive(self.pid, self.start_time) => now,
            None => self.last_sign().min(now),
        };
        // Time that was charged before the end was known lies within the run.
        end.min(self.cut.unwrap_or(u64::MAX)).max(self.main_booked())
    }

    /// Returns the stamp of the last known activity of any thread; now if there is none.
    pub(crate) fn last_sign(&self) -> u64 {
        let last = self.thread_slots.iter().flatten().filter_map(|slot| {
            let thread = slot.area.thread();
            let opened = match thread.open_slot.load(Ordering::Acquire) {
                0 => 0,
                _ => thread.open_stamp.load(Ordering::Relaxed),
            };
            let read = slot.reader.as_ref()?.thread.replay.booked().unwrap_or(0);
            Some(thread.last_stamp.load(Ordering::Relaxed).max(opened).max(read))
        });
        last.max().unwrap_or_else(stamp_now)
    }

    /// Returns the stamp up to which the time of any thread has been charged; 0 if none was.
    pub(crate) fn booked(&self) -> u64 {
        let readers = self.thread_slots.iter().flatten().filter_map(|slot| slot.reader.as_ref());
        readers.filter_map(|reader| reader.thread.replay.booked()).max().unwrap_or(0)
    }

    /// Converts a number of stamps to nanoseconds.
    pub(crate) fn ns(&self, stamps: u64) -> u64 {
        self.exact_rate().ns(stamps)
    }

    /// Returns the stamp up to which the communicating thread's time has been charged; 0 if none
    /// was.
    fn main_booked(&self) -> u64 {
        let Some((area, generation)) = self.main else { return 0 };
        let reader = self.thread_slots.get(area).and_then(|slot| slot.as_ref()?.reader.as_ref());
        let reader = reader.filter(|reader| reader.generation == generation);
        reader.and_then(|reader| reader.thread.replay.booked()).unwrap_or(0)
    }
}

/// Returns the settings under which the process's records are replayed.
pub(crate) fn setting(segment: &Segment, window: Window) -> Setting<'_> {
    let header = segment.process();
    let period = header.kept_period_stamps.load(Ordering::Relaxed);
    let tick_period = header.period_stamps.load(Ordering::Relaxed);
    Setting { tables: segment, window, rate: rate(segment), period, tick_period }
}

fn only_samples(segment: &Segment) -> bool {
    segment.process().only_samples.load(Ordering::Relaxed) != 0
}

/// Returns the length of a stamp as the process measured it.
fn rate(segment: &Segment) -> Rate {
    Rate::coarse(segment.process().ns_per_ticks_q32.load(Ordering::Relaxed))
}

/// Reads the counters in a thread's area that are not part of its stream.
pub(crate) fn final_state(area: &Area, is_unfollowed: bool) -> FinalThreadState {
    let thread = area.thread();
    let tallies = area.slots().iter().zip(0..).filter_map(|(counters, slot)| {
        let count = counters.count.load(Ordering::Relaxed);
        let sum = counters.sum.load(Ordering::Relaxed) >> STAMP_SHIFT;
        (count > 0).then(|| (slot, count, sum, counters.bytes.load(Ordering::Relaxed)))
    });
    let in_use = thread.partners.load(Ordering::Relaxed) > 0;
    let entries = area.partners().iter().filter(|_| in_use);
    let partners = entries.filter_map(partner_table::read).map(|(slot, messages)| {
        let waited = messages.waited >> STAMP_SHIFT;
        (u32::from(slot), PartnerMessages { waited, ..messages }.into())
    });
    let used = (thread.regions.load(Ordering::Acquire) as usize).min(MAX_REGIONS);
    let used_regions = &area.regions()[..used];
    let regions = used_regions.iter().filter_map(RegionCounts::read);
    let lengths_of_regions = used_regions
        .iter()
        .filter_map(|counters| Some((LengthOf::Region(counters.read()?.slot), &counters.lengths)));
    let used = (thread.tasks.load(Ordering::Acquire) as usize).min(MAX_TASKS);
    let used_tasks = &area.tasks()[..used];
    let tasks = used_tasks.iter().filter_map(TaskCounters::read);
    let lengths_of_tasks = used_tasks.iter().filter_map(|counters| {
        Some((LengthOf::Task(counters.read()?.function), &counters.lengths))
    });
    let lengths = lengths_of_regions
        .chain(lengths_of_tasks)
        .flat_map(|(of, lengths)| lengths.read().map(move |length| numbers(of, length)));
    let tasks = tasks.map(|totals| totals.numbers());
    let lock_waits = area.lock_waits().into_iter().flatten().filter_map(LockWaitCounters::read);
    let open = thread.open_slot.load(Ordering::Acquire).checked_sub(1);
    let value = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    FinalThreadState {
        tallies: tallies.collect(),
        partners: partners.collect(),
        regions: regions.collect(),
        tasks: tasks.collect(),
        lengths: lengths.collect(),
        lock_waits: lock_waits.map(|(slot, totals)| totals.numbers(slot)).collect(),
        open: open.map(|slot| (slot, value(&thread.open_stamp))),
        is_unfollowed,
        counters: ThreadCounters {
            samples: value(&thread.samples),
            lost: value(&thread.lost),
            truncated: thread.truncated.iter().map(value).sum(),
            truncated_by: thread.truncated.each_ref().map(value),
            mpi_calls: value(&thread.mpi_calls),
            marks_planted: value(&thread.marks_planted),
            marks_hit: value(&thread.marks_hit),
            marks_stale: value(&thread.marks_stale),
            marks_verified: value(&thread.marks_verified),
            marks_mismatched: value(&thread.marks_mismatched),
            handler_ticks: value(&thread.handler_ticks),
            unmeasured_regions: value(&thread.unmeasured_regions),
        },
    }
}

/// Returns the stamp of the begin of the run: the one that the process announced, or else its
/// start.
fn begin_stamp(segment: &Segment) -> u64 {
    let header = segment.process();
    match header.begin_stamp.load(Ordering::Acquire) {
        0 => header.anchor_ticks.load(Ordering::Relaxed) >> STAMP_SHIFT,
        begin => begin,
    }
}

/// Returns whether the process that started at `start_time` still runs; a zombie does not.
pub(crate) fn is_alive(pid: u32, start_time: u64) -> bool {
    ProcessStat::read(pid)
        .is_some_and(|stat| !matches!(stat.state, 'Z' | 'X') && stat.start_time == start_time)
}
