//! One process: its segment, the rings of its threads, and its history.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use plimsoll_agent::partner_table;
use plimsoll_sys::memory_kind::{MemoryKind, count_as};
use plimsoll_wire::clock::{Anchor, stamp_now};
use plimsoll_wire::record::{Decoder, PartnerMessages, STAMP_SHIFT};

use crate::attach::{Area, AttachError, Bell, Segment};
use crate::books::Window;
use crate::clock::Rate;
use crate::facts::{Facts, LastWords, ThreadCounters};
use crate::history::{History, Setting, ThreadHistory};
use crate::profile::ProcessProfile;
use crate::spooling::meta::ThreadEnd;
use crate::spooling::{Spooling, Told};
use plimsoll_binary::Structures;

/// How far counters of different cores may differ, in nanoseconds; a later record is garbage.
const SKEW_NS: u64 = 1_000_000_000;

/// Buffers that all processes of a collector use in turn.
#[derive(Default)]
pub(crate) struct Scratch {
    pub(crate) bytes: Vec<u8>,
    pub(crate) decoder: Decoder,
    /// What is known of the programs' code.
    pub(crate) structures: Structures,
    /// Where all that is read goes, too.
    pub(crate) spool: Option<Spooling>,
}

/// The life of one thread in an area.
pub(crate) struct Life {
    pub(crate) generation: u32,
    /// Bytes of its stream read so far.
    pub(crate) position: u64,
    /// Bytes of it that the spool's journal has.
    pub(crate) journaled: u64,
    /// Before this position, another collector has read the stream, and the ring's bytes stand
    /// only as long as the producer does not need the room.
    pub(crate) read_before: u64,
    pub(crate) thread: ThreadHistory,
    /// Its stream in the spool.
    pub(crate) stream: Option<u32>,
}

impl Life {
    /// From where on nobody has read its stream yet.
    pub(crate) fn unread(&self) -> u64 {
        self.position.max(self.read_before)
    }
}

/// A thread area, mapped when it was first used.
pub(crate) struct Seat {
    pub(crate) area: Area,
    pub(crate) life: Option<Life>,
}

/// A process that is collected.
pub(crate) struct Process {
    pub(crate) segment: Segment,
    pub(crate) pid: u32,
    pub(crate) start_time: u64,
    pub(crate) seats: Vec<Option<Seat>>,
    /// Area and generation of the communicating thread.
    pub(crate) main: Option<(usize, u32)>,
    /// Its stream in the spool.
    pub(crate) main_stream: Option<u32>,
    pub(crate) history: History,
    /// The first round finds streams that another collector may have begun to read.
    pub(crate) first_round: bool,
    /// What the spool has been told of it, if it is in one.
    pub(crate) told: Option<Told>,
    /// How often its bell had been rung when it was looked at last.
    heard: u32,
    /// When the run ended, once all of it was read.
    concluded: Option<u64>,
    /// Stamp at which it was seen alive last.
    pub(crate) seen_alive: u64,
    /// Stamp of its death, or of its end before its time: the earliest that is possible.
    pub(crate) died: Option<u64>,
    /// Stamp at which its run ends because another process died.
    pub(crate) cut: Option<u64>,
}

impl Process {
    /// Attaches a process, with a bound on the memory for it.
    pub(crate) fn attach(
        pid: u32,
        fd: i32,
        start_time: u64,
        memory_bytes: u64,
        follows: bool,
        spool: Option<&mut Spooling>,
    ) -> Result<Self, AttachError> {
        let segment = Segment::open(pid, fd, start_time)?;
        let told = spool.map(|spool| Told::new(spool.process(pid, start_time, memory_bytes)));
        let history =
            History::new(begin_stamp(&segment), memory_bytes, follows, only_samples(&segment));
        Ok(Self {
            segment,
            pid,
            start_time,
            seats: Vec::new(),
            main: None,
            main_stream: None,
            history,
            first_round: true,
            told,
            heard: 0,
            concluded: None,
            seen_alive: stamp_now(),
            died: None,
            cut: None,
        })
    }

    /// Whether this is that process.
    pub(crate) fn is(&self, pid: u32, start_time: u64) -> bool {
        (self.pid, self.start_time) == (pid, start_time)
    }

    /// What it rings from now on is news.
    pub(crate) fn listen(&mut self) {
        self.heard = self.segment.process().bell.rings();
    }

    /// Its bell, and how often that had been rung when it was listened to.
    pub(crate) fn bell(&self) -> (Bell, u32) {
        (self.segment.bell(), self.heard)
    }

    /// Names new addresses, for so long at most.
    pub(crate) fn name_some(&mut self, limit: Duration, structures: &mut Structures) {
        self.history.name_some(limit, &self.segment, structures);
    }

    /// Whether there are new addresses.
    pub(crate) fn has_nameless(&self) -> bool {
        self.history.has_nameless()
    }

    /// The run, after [`Process::conclude`]; that of all processes of the collector comes first, so
    /// that the same functions have their loops in all of them.
    pub(crate) fn finish(&mut self, scratch: &mut Scratch) -> ProcessProfile {
        let end = self.conclude(scratch);
        self.history.drop_given_up(&scratch.structures);
        let facts = self.facts();
        if let Some(spool) = &mut scratch.spool {
            self.tell(Some(end), &facts, spool);
        }
        let kept_period = self.segment.process().kept_period_stamps.load(Ordering::Relaxed);
        let profile =
            count_as(MemoryKind::Analysis, || self.history.profile(end, kept_period, &facts));
        // The process is heard of the report only: what its profile was made from is not needed.
        self.history = History::new(self.history.begin(), 0, false, false);
        profile
    }

    /// Reads the rest, accounts for what is open, and names what was used, as far as there is time:
    /// once. Returns when the run ended.
    pub(crate) fn conclude(&mut self, scratch: &mut Scratch) -> u64 {
        if let Some(end) = self.concluded {
            return end;
        }
        self.drain(scratch);
        let end = self.end();
        self.close_threads(end, scratch);
        self.history.finish(self.main.is_some(), end);
        self.history.name_used(&self.segment, &mut scratch.structures);
        self.concluded = Some(end);
        end
    }

    /// Bytes of the segment that are in memory.
    pub(crate) fn segment_bytes(&self) -> u64 {
        let areas = self.seats.iter().flatten().map(|seat| seat.area.resident_bytes());
        self.segment.table_bytes() + areas.sum::<u64>()
    }

    /// Memory in use, roughly.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let lives = self.seats.iter().flatten().filter_map(|seat| seat.life.as_ref());
        self.history.bytes() + lives.map(|life| life.thread.course.bytes()).sum::<u64>()
    }

    pub(crate) fn facts(&self) -> Facts {
        let header = self.segment.process();
        let unmapped = self.seats.iter().filter(|seat| seat.is_none()).count() as u32;
        let and_unmapped =
            |count: &AtomicU32| count.load(Ordering::Relaxed).saturating_add(unmapped);
        let unsampled = and_unmapped(&header.unsampled_threads);
        let unseen = and_unmapped(&header.unseen_threads);
        let Anchor { ticks, ns } = self.anchor();
        Facts {
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
        }
    }

    /// Whether the thread that lives in area `index` is the communicating one.
    pub(crate) fn is_main(&self, index: usize, life: &Life) -> bool {
        self.main == Some((index, life.generation))
    }

    /// A thread has ended, or the run has, at stamp `end`.
    pub(crate) fn close_life(
        &mut self,
        area: &Area,
        life: &mut Life,
        end: u64,
        scratch: &mut Scratch,
    ) {
        let window = self.window();
        let setting = setting(&self.segment, window);
        let last = last_words(area);
        self.history.close(&mut life.thread, &last, end, &setting, &mut scratch.structures);
        if let (Some(spool), Some(records)) = (scratch.spool.as_mut(), life.stream) {
            spool.end_thread(ThreadEnd { records, end, last });
        }
    }

    /// The code with which the process announces that it ends before its time.
    pub(crate) fn ending(&self) -> Option<u32> {
        let code = self.segment.process().ending.load(Ordering::Acquire);
        (code != 0).then_some(code)
    }

    /// Tells the process that a report has been made.
    pub(crate) fn acknowledge(&self) {
        self.segment.process().reported.fetch_or(1, Ordering::Release);
    }

    /// Tells the process that nobody of its node has died, whatever is reported.
    pub(crate) fn outlive(&self) {
        self.segment.process().outlived.store(1, Ordering::Release);
    }

    /// Tells the process that its report has come a step further.
    pub(crate) fn advance(&self) {
        self.segment.process().reported.fetch_add(2, Ordering::Relaxed);
    }

    /// The run's window; if its begin has changed, throws away what was gathered before.
    pub(crate) fn window(&mut self) -> Window {
        let begin = begin_stamp(&self.segment);
        if begin != self.history.begin() {
            self.restart(begin);
        }
        let end = self.segment.process().end_stamp.load(Ordering::Acquire);
        let end = if end == 0 { u64::MAX } else { end };
        let latest = stamp_now().saturating_add(rate(&self.segment).stamps(SKEW_NS));
        Window { begin, end: end.min(self.cut.unwrap_or(u64::MAX)), latest }
    }

    /// Begins the run anew.
    pub(crate) fn restart(&mut self, begin: u64) {
        let live = self.seats.iter().flatten().filter(|seat| seat.life.is_some()).count() as u32;
        // The thread that is just being read is out of its seat.
        self.history.restart(begin, live + 1);
    }

    /// The process's own reading of both clocks.
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

    /// Accounts for all threads that live when the run ends.
    fn close_threads(&mut self, end: u64, scratch: &mut Scratch) {
        for index in 0..self.seats.len() {
            let Some(mut seat) = self.seats[index].take() else { continue };
            if let Some(life) = seat.life.as_mut() {
                // Another thread may have become the communicating one since it was read.
                life.thread.is_main = self.is_main(index, life);
                self.close_life(&seat.area, life, end, scratch);
            }
            self.seats[index] = Some(seat);
        }
    }

    /// When the run ended: with the first death on the node, or else as the process says; now, if
    /// it goes on; with what it last did, if it has died.
    fn end(&self) -> u64 {
        let now = stamp_now().max(self.history.begin());
        let said = self.segment.process().end_stamp.load(Ordering::Acquire);
        let end = match self.died {
            _ if said != 0 => said.min(now),
            Some(died) => died.min(now),
            None if is_alive(self.pid, self.start_time) => now,
            None => self.last_sign().min(now),
        };
        // What was booked before the end was known has happened.
        end.min(self.cut.unwrap_or(u64::MAX)).max(self.main_booked())
    }

    /// Stamp of the last thing that a thread is known to have done; now if there is none.
    pub(crate) fn last_sign(&self) -> u64 {
        let last = self.seats.iter().flatten().filter_map(|seat| {
            let thread = seat.area.thread();
            let opened = match thread.open_slot.load(Ordering::Acquire) {
                0 => 0,
                _ => thread.open_stamp.load(Ordering::Relaxed),
            };
            let read = seat.life.as_ref()?.thread.replay.booked().unwrap_or(0);
            Some(thread.last_stamp.load(Ordering::Relaxed).max(opened).max(read))
        });
        last.max().unwrap_or_else(stamp_now)
    }

    /// Up to where the time of any of its threads has been booked.
    pub(crate) fn booked(&self) -> u64 {
        let lives = self.seats.iter().flatten().filter_map(|seat| seat.life.as_ref());
        lives.filter_map(|life| life.thread.replay.booked()).max().unwrap_or(0)
    }

    /// Nanoseconds in a number of stamps.
    pub(crate) fn ns(&self, stamps: u64) -> u64 {
        self.exact_rate().ns(stamps)
    }

    /// Up to where the communicating thread's time has been booked.
    fn main_booked(&self) -> u64 {
        let Some((area, generation)) = self.main else { return 0 };
        let life = self.seats.get(area).and_then(|seat| seat.as_ref()?.life.as_ref());
        let life = life.filter(|life| life.generation == generation);
        life.and_then(|life| life.thread.replay.booked()).unwrap_or(0)
    }
}

/// What holds for the process while its records are read.
pub(crate) fn setting(segment: &Segment, window: Window) -> Setting<'_> {
    let period = segment.process().kept_period_stamps.load(Ordering::Relaxed);
    Setting { tables: segment, window, rate: rate(segment), period }
}

fn only_samples(segment: &Segment) -> bool {
    segment.process().only_samples.load(Ordering::Relaxed) != 0
}

/// Length of a stamp as the process measured it.
fn rate(segment: &Segment) -> Rate {
    Rate::coarse(segment.process().ns_per_ticks_q32.load(Ordering::Relaxed))
}

/// What a thread's area says beside its stream.
pub(crate) fn last_words(area: &Area) -> LastWords {
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
    let open = thread.open_slot.load(Ordering::Acquire).checked_sub(1);
    let value = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    LastWords {
        tallies: tallies.collect(),
        partners: partners.collect(),
        open: open.map(|slot| (slot, value(&thread.open_stamp))),
        counters: ThreadCounters {
            samples: value(&thread.samples),
            lost: value(&thread.lost),
            truncated: value(&thread.truncated),
            mpi_calls: value(&thread.mpi_calls),
            marks_planted: value(&thread.marks_planted),
            marks_hit: value(&thread.marks_hit),
            marks_stale: value(&thread.marks_stale),
            marks_verified: value(&thread.marks_verified),
            marks_mismatched: value(&thread.marks_mismatched),
            handler_ticks: value(&thread.handler_ticks),
        },
    }
}

/// Stamp of the begin of the run: what the process says, or else its own start.
fn begin_stamp(segment: &Segment) -> u64 {
    let header = segment.process();
    match header.begin_stamp.load(Ordering::Acquire) {
        0 => header.anchor_ticks.load(Ordering::Relaxed) >> STAMP_SHIFT,
        begin => begin,
    }
}

/// Whether the process that started at `start_time` still runs; a zombie does not.
pub(crate) fn is_alive(pid: u32, start_time: u64) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    // The command's name may hold anything, but no field after it holds a parenthesis.
    let Some((_, fields)) = stat.rsplit_once(')') else { return false };
    let mut fields = fields.split_whitespace();
    let state = fields.next();
    let started = fields.nth(18).and_then(|field| field.parse().ok());
    !matches!(state, Some("Z" | "X") | None) && started == Some(start_time)
}
