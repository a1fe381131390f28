//! One process: its segment, the streams of its threads, and what has come of them so far.

use std::sync::atomic::Ordering;

use plimsoll_agent::clock::{Anchor, stamp_now};
use plimsoll_agent::record::{Decoder, STAMP_SHIFT};
use plimsoll_agent::segment::ClockKind;

use crate::account::Account;
use crate::addresses::Addresses;
use crate::attach::{Area, AttachError, Segment};
use crate::books::{Books, Window};
use crate::clock::Rate;
use crate::periods::Periods;
use crate::phases::Phases;
use crate::profile::{CollectionCounts, ProcessProfile};
use crate::replay::Replay;
use crate::snapshot::Run;
use crate::symbols::Symbols;
use crate::tree::{IdMap, ROOT, Tree};

/// Memory that a raw context takes with its values, in bytes: for the bound on their number.
const CONTEXT_BYTES: u64 = 256;

/// How far counters of different cores may differ, in nanoseconds; a later record is garbage.
const SKEW_NS: u64 = 1_000_000_000;

/// Buffers that all processes of a collector use in turn.
#[derive(Default)]
pub(crate) struct Scratch {
    pub(crate) bytes: Vec<u8>,
    pub(crate) decoder: Decoder,
}

/// The life of one thread in an area.
pub(crate) struct Life {
    pub(crate) generation: u32,
    /// Bytes of its stream read so far.
    pub(crate) position: u64,
    /// Before this position, another collector has read the stream, and the ring's bytes stand
    /// only as long as the producer does not need the room.
    pub(crate) history: u64,
    /// Address id of its start routine; 0 if that is not known.
    pub(crate) routine: u32,
    pub(crate) replay: Replay,
}

/// A thread area, mapped when it was first used.
pub(crate) struct Seat {
    pub(crate) area: Area,
    pub(crate) life: Option<Life>,
}

/// A process that is collected.
pub(crate) struct Process {
    pub(crate) segment: Segment,
    pid: u32,
    start_time: u64,
    pub(crate) addresses: Addresses,
    pub(crate) tree: Tree,
    pub(crate) periods: Periods,
    pub(crate) seats: Vec<Option<Seat>>,
    /// Area and generation of the communicating thread.
    pub(crate) main: Option<(usize, u32)>,
    /// When it ended, or the run did.
    main_end: Option<u64>,
    pub(crate) phases: Phases,
    /// Values of the other threads, by the address id of their start routine.
    pub(crate) groups: IdMap<u32, Account>,
    pub(crate) begin: u64,
    row_bytes: usize,
    pub(crate) threads: u32,
    /// Counters of the threads that have ended, and what was lost on this side.
    pub(crate) counts: CollectionCounts,
    handler_ticks: u64,
    /// The first round finds streams that another collector may have begun to read.
    pub(crate) first_round: bool,
}

impl Process {
    /// Attaches a process, with a bound on the memory for it.
    pub(crate) fn attach(
        pid: u32,
        fd: i32,
        start_time: u64,
        memory_bytes: u64,
    ) -> Result<Self, AttachError> {
        let segment = Segment::open(pid, fd, start_time)?;
        let contexts = (memory_bytes / 2 / CONTEXT_BYTES).clamp(1 << 10, 1 << 26) as usize;
        let row_bytes = usize::try_from(memory_bytes / 8).unwrap_or(usize::MAX);
        let begin = begin_stamp(&segment);
        Ok(Self {
            segment,
            pid,
            start_time,
            addresses: Addresses::default(),
            tree: Tree::new(contexts),
            periods: Periods::default(),
            seats: Vec::new(),
            main: None,
            main_end: None,
            phases: Phases::new(begin, row_bytes),
            groups: IdMap::default(),
            begin,
            row_bytes,
            threads: 0,
            counts: CollectionCounts::default(),
            handler_ticks: 0,
            first_round: true,
        })
    }

    /// Whether this is that process.
    pub(crate) fn is(&self, pid: u32, start_time: u64) -> bool {
        (self.pid, self.start_time) == (pid, start_time)
    }

    /// Names some of the new addresses; false when all have names.
    pub(crate) fn name_some(&mut self, limit: usize, symbols: &mut Symbols) -> bool {
        self.addresses.name_some(limit, &self.segment, symbols)
    }

    /// Reads the rest, accounts for what is open, and returns the run.
    /// Reads no more afterwards.
    pub(crate) fn finish(
        &mut self,
        scratch: &mut Scratch,
        symbols: &mut Symbols,
    ) -> ProcessProfile {
        self.drain(scratch);
        let end = self.end();
        self.close_threads(end);
        if self.main.is_none() {
            let length = end.saturating_sub(self.begin);
            self.phases.open.pass(length);
            self.phases.open.rest((ROOT, ROOT), length);
        }
        self.phases.end();
        while self.name_some(usize::MAX, symbols) {}
        self.profile(end)
    }

    /// Memory in use, roughly.
    pub(crate) fn memory_bytes(&self) -> u64 {
        let groups: u64 = self.groups.values().map(Account::bytes).sum();
        self.tree.bytes() + self.addresses.bytes() + self.phases.bytes() + groups
    }

    fn profile(&self, end: u64) -> ProcessProfile {
        let header = self.segment.process();
        let rate = self.exact_rate();
        let run = Run {
            tree: &self.tree,
            addresses: &self.addresses,
            phases: &self.phases,
            groups: &self.groups,
            begin: self.begin,
            rate,
        };
        let picture = run.picture();
        let paused = self.phases.paused();
        // The run is that of the communicating thread; others may outlive it.
        let end = self.main_end.unwrap_or(end);
        let elapsed = end.saturating_sub(self.begin).saturating_sub(paused);
        let unmapped = self.seats.iter().filter(|seat| seat.is_none()).count() as u32;
        let unsampled = header.unsampled_threads.load(Ordering::Relaxed).saturating_add(unmapped);
        let clock = match ClockKind::from_u32(header.clock.load(Ordering::Relaxed)) {
            ClockKind::Cpu => "cpu",
            ClockKind::Timer => "timer",
            ClockKind::Wall => "wall",
        };
        ProcessProfile {
            tree: picture.tree,
            phases: picture.phases,
            rows: picture.rows,
            other_threads: picture.other_threads,
            threads: self.threads,
            syncs: self.phases.syncs(),
            elapsed_ns: rate.ns(elapsed),
            period_ns: header.period_ns.load(Ordering::Relaxed),
            effective_period_ns: rate.ns(self.periods.typical()),
            clock: clock.to_owned(),
            collection: CollectionCounts {
                sampling_cpu_ns: rate.ns_of_ticks(self.handler_ticks),
                marks_off: header.marks_off.load(Ordering::Relaxed),
                unsampled_threads: u64::from(unsampled),
                stepped_aside: header.stepped_aside.load(Ordering::Relaxed) != 0,
                ..self.counts
            },
        }
    }

    /// A thread has ended, or the run has, at stamp `end`: accounts for what its stream does not
    /// say, and adds its counters up.
    pub(crate) fn close_life(&mut self, index: usize, area: &Area, life: &mut Life, end: u64) {
        let window = self.window();
        let thread = area.thread();
        if !life.replay.ended() {
            for (slot, counters) in area.slots().iter().enumerate() {
                let count = counters.count.load(Ordering::Relaxed);
                if count > 0 {
                    let sum = counters.sum.load(Ordering::Relaxed) >> STAMP_SHIFT;
                    let bytes = counters.bytes.load(Ordering::Relaxed);
                    let unknown = life.replay.tally(slot as u32, count, sum, bytes).is_err();
                    self.counts.lost += u64::from(unknown);
                }
            }
        }
        let open = thread.open_slot.load(Ordering::Acquire).checked_sub(1);
        let open = open.map(|slot| (slot, thread.open_stamp.load(Ordering::Relaxed)));
        let is_main = self.main == Some((index, life.generation));
        let rate = self.rate();
        let mut books = self.books(is_main, life.routine, window, rate);
        life.replay.close(end, open, &mut books);
        if is_main {
            self.main_end = life.replay.booked();
        }

        let counts = &mut self.counts;
        let add = |sum: &mut u64, counter: &std::sync::atomic::AtomicU64| {
            *sum = sum.saturating_add(counter.load(Ordering::Relaxed));
        };
        add(&mut counts.samples, &thread.samples);
        add(&mut counts.lost, &thread.lost);
        add(&mut counts.truncated, &thread.truncated);
        add(&mut counts.mpi_calls, &thread.mpi_calls);
        add(&mut counts.marks_planted, &thread.marks_planted);
        add(&mut counts.marks_hit, &thread.marks_hit);
        add(&mut counts.marks_stale, &thread.marks_stale);
        add(&mut counts.marks_verified, &thread.marks_verified);
        add(&mut counts.marks_mismatched, &thread.marks_mismatched);
        add(&mut self.handler_ticks, &thread.handler_ticks);
    }

    /// The code with which the process announces that it ends before its time.
    pub(crate) fn ending(&self) -> Option<u32> {
        let code = self.segment.process().ending.load(Ordering::Acquire);
        (code != 0).then_some(code)
    }

    /// Tells the process that a report has been made.
    pub(crate) fn acknowledge(&self) {
        self.segment.process().reported.store(1, Ordering::Release);
    }

    /// What a thread's stream is replayed into.
    pub(crate) fn books(
        &mut self,
        is_main: bool,
        routine: u32,
        window: Window,
        rate: Rate,
    ) -> Books<'_> {
        let period = self.segment.process().period_stamps.load(Ordering::Relaxed);
        let account =
            if is_main { &mut self.phases.open } else { self.groups.entry(routine).or_default() };
        Books {
            segment: &self.segment,
            addresses: &mut self.addresses,
            tree: &mut self.tree,
            account,
            periods: &mut self.periods,
            cut: &mut self.counts.lost,
            window,
            rate,
            period,
        }
    }

    /// The run's window; if its begin has changed, throws away what was gathered before.
    pub(crate) fn window(&mut self) -> Window {
        let begin = begin_stamp(&self.segment);
        if begin != self.begin {
            self.begin = begin;
            self.restart();
        }
        let end = self.segment.process().end_stamp.load(Ordering::Acquire);
        let latest = stamp_now().saturating_add(self.rate().stamps(SKEW_NS));
        Window { begin, end: if end == 0 { u64::MAX } else { end }, latest }
    }

    /// Begins the run anew.
    pub(crate) fn restart(&mut self) {
        self.phases.restart(self.begin, self.row_bytes);
        self.groups.clear();
        let live = self.seats.iter().flatten().filter(|seat| seat.life.is_some()).count() as u32;
        // The thread that is just being read is out of its seat.
        self.threads = live + 1;
    }

    /// Length of a stamp as the process measured it: good enough to compare durations.
    pub(crate) fn rate(&self) -> Rate {
        Rate::coarse(self.segment.process().ns_per_ticks_q32.load(Ordering::Relaxed))
    }

    fn exact_rate(&self) -> Rate {
        let header = self.segment.process();
        let anchor = Anchor {
            ticks: header.anchor_ticks.load(Ordering::Relaxed),
            ns: header.anchor_ns.load(Ordering::Relaxed),
        };
        Rate::since(anchor, header.ns_per_ticks_q32.load(Ordering::Relaxed))
    }

    /// Accounts for all threads that live when the run ends.
    fn close_threads(&mut self, end: u64) {
        for index in 0..self.seats.len() {
            let Some(mut seat) = self.seats[index].take() else { continue };
            if let Some(life) = seat.life.as_mut() {
                self.close_life(index, &seat.area, life, end);
            }
            self.seats[index] = Some(seat);
        }
    }

    /// When the run ended: as the process says; now, if it goes on; with what it last did, if it
    /// has died.
    fn end(&self) -> u64 {
        let now = stamp_now().max(self.begin);
        let end = self.segment.process().end_stamp.load(Ordering::Acquire);
        if end != 0 {
            // What was booked before the end was known has happened.
            return end.min(now).max(self.main_booked());
        }
        if is_alive(self.pid, self.start_time) {
            return now.max(self.main_booked());
        }
        let last = self.seats.iter().flatten().filter_map(|seat| {
            let thread = seat.area.thread();
            let opened = match thread.open_slot.load(Ordering::Acquire) {
                0 => 0,
                _ => thread.open_stamp.load(Ordering::Relaxed),
            };
            let read = seat.life.as_ref()?.replay.booked().unwrap_or(0);
            Some(thread.last_stamp.load(Ordering::Relaxed).max(opened).max(read))
        });
        last.max().unwrap_or(now).min(now).max(self.main_booked())
    }

    /// Up to where the communicating thread's time has been booked.
    fn main_booked(&self) -> u64 {
        let Some((area, generation)) = self.main else { return 0 };
        let life = self.seats.get(area).and_then(|seat| seat.as_ref()?.life.as_ref());
        let life = life.filter(|life| life.generation == generation);
        life.and_then(|life| life.replay.booked()).unwrap_or(0)
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
fn is_alive(pid: u32, start_time: u64) -> bool {
    let Ok(stat) = std::fs::read_to_string(format!("/proc/{pid}/stat")) else { return false };
    // The command's name may hold anything, but no field after it holds a parenthesis.
    let Some((_, fields)) = stat.rsplit_once(')') else { return false };
    let mut fields = fields.split_whitespace();
    let state = fields.next();
    let started = fields.nth(18).and_then(|field| field.parse().ok());
    !matches!(state, Some("Z" | "X") | None) && started == Some(start_time)
}
