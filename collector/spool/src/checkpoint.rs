//! State of a reader after each record of one thread. Repeated at the beginning of a payload, the
//! state lets a reader begin there that has lost the frames before.

use plimsoll_wire::record::{Delta, MAX_DEPTH, Record, Stamp, tick_stamp};
use plimsoll_wire::segment::MAX_SLOTS;
use plimsoll_wire::teams::PathKey;

/// State of a reader after the records of one thread so far.
pub(super) struct ReplayCheckpoint {
    /// Sampling period in stamps; `None` if not known.
    period: Option<u64>,
    /// Stamp of the last timed record; `None` if not known: the rest of the state is then not
    /// known, either.
    stamp: Option<u64>,
    stack: Vec<u32>,
    /// Call path that the stack lies in.
    graft: PathKey,
    slots: Vec<Option<SlotPath>>,
    /// Whether the last timed record was a sample outside wrapped calls.
    working: bool,
    paused: bool,
    /// Whether no timed record has arrived since the stream began or records were lost.
    fresh: bool,
    /// Buffer for the path of a slot.
    restored: Vec<u32>,
}

/// Call path of a slot.
#[derive(Clone)]
struct SlotPath {
    graft: PathKey,
    frames: Box<[u32]>,
}

impl ReplayCheckpoint {
    /// Begins a stream with its sampling period in stamps.
    pub(super) fn new(period: Option<u64>) -> Self {
        Self {
            period,
            stamp: None,
            stack: Vec::new(),
            graft: PathKey::NONE,
            slots: Vec::new(),
            working: false,
            paused: false,
            fresh: true,
            restored: Vec::new(),
        }
    }

    /// Updates the state by one record.
    pub(super) fn follow(&mut self, record: &Record<'_>) {
        match *record {
            Record::Sample { stamp, stack, entered, .. } => {
                self.timed(stamp);
                self.step(stack, entered.is_none());
            }
            Record::Tick { delay, stack } => {
                let next = self.stamp.zip(self.period);
                self.stamp = next.and_then(|(last, period)| tick_stamp(last, period, delay));
                self.step(stack, true);
            }
            Record::Slot { slot, stack } => self.announce(slot as usize, stack),
            Record::Exit { stamp, slot, .. } => {
                self.timed(stamp);
                match self.slots.get(slot as usize) {
                    Some(Some(path)) => {
                        self.stack.clear();
                        self.stack.extend_from_slice(&path.frames);
                    }
                    _ => self.stamp = None,
                }
                self.working = false;
            }
            Record::Pause { stamp } => {
                self.timed(stamp);
                (self.paused, self.working) = (true, false);
            }
            Record::Resume { stamp } => {
                self.timed(stamp);
                (self.paused, self.working) = (false, false);
            }
            Record::End { stamp } => self.timed(stamp),
            Record::Lost { .. } => self.forget(),
            Record::Tally { .. }
            | Record::Partner { .. }
            | Record::Counts { .. }
            | Record::Message { .. }
            | Record::Region { .. }
            | Record::Share { .. }
            | Record::Task { .. }
            | Record::Length { .. }
            | Record::LockWait { .. } => {}
            Record::Graft { path } => self.graft = path,
        }
    }

    /// Passes on records that restore this state in a reader; none if the state is not known.
    pub(super) fn restore(&self, mut push: impl FnMut(&Record<'_>)) {
        let Some(stamp) = self.stamp else { return };
        push(&Record::Lost { records: 0 });
        let mut graft = PathKey::NONE;
        let mut lie_in = |path: PathKey, push: &mut dyn FnMut(&Record<'_>)| {
            if graft != path {
                graft = path;
                push(&Record::Graft { path });
            }
        };
        for (slot, path) in (0..).zip(&self.slots) {
            if let Some(SlotPath { graft, frames }) = path {
                lie_in(*graft, &mut push);
                push(&Record::Slot { slot, stack: Delta { dropped: 0, added: frames } });
            }
        }
        lie_in(self.graft, &mut push);
        push(&Record::Sample {
            stamp: Stamp::Resync(stamp),
            stack: Delta { dropped: 0, added: &self.stack },
            // The next record is not the work of a wrapped call's frame.
            entered: (!self.working).then_some(0),
            off_cpu: None,
            truncated: false,
        });
        if self.paused {
            push(&Record::Pause { stamp: Stamp::Delta(0) });
        }
    }

    fn timed(&mut self, stamp: Stamp) {
        match stamp {
            Stamp::Delta(delta) => {
                self.stamp = self.stamp.and_then(|last| last.checked_add(delta));
            }
            Stamp::Resync(now) => {
                if !self.fresh {
                    self.forget();
                }
                self.stamp = Some(now);
            }
        }
        self.fresh = false;
    }

    fn step(&mut self, stack: Delta<'_>, working: bool) {
        self.working = working;
        match self.stack.len().checked_sub(stack.dropped as usize) {
            Some(common) if common + stack.added.len() <= MAX_DEPTH => {
                self.stack.truncate(common);
                self.stack.extend_from_slice(stack.added);
            }
            _ => self.stamp = None,
        }
    }

    fn announce(&mut self, slot: usize, stack: Delta<'_>) {
        let common = self.stack.len().checked_sub(stack.dropped as usize);
        let path = common.filter(|common| common + stack.added.len() <= MAX_DEPTH).map(|common| {
            self.restored.clear();
            self.restored.extend_from_slice(&self.stack[..common]);
            self.restored.extend_from_slice(stack.added);
            SlotPath { graft: self.graft, frames: Box::from(&self.restored[..]) }
        });
        if slot < MAX_SLOTS && slot >= self.slots.len() {
            self.slots.resize(slot + 1, None);
        }
        if let Some(place) = self.slots.get_mut(slot) {
            *place = path;
        }
    }

    fn forget(&mut self) {
        self.stamp = None;
        self.stack.clear();
        self.graft = PathKey::NONE;
        self.slots.clear();
        self.working = false;
        self.fresh = true;
    }
}
