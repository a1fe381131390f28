//! Thinning of a stream's samples without loss of time: an omitted sample is merged into the next
//! record.
//!
//! Two values of a record are relative to the record before it, and are merged:
//! - the interval that the record closes: stamps add up, so that the later record closes both;
//! - the stack: of two differences, the second first drops the frames that the first has added,
//!   then frames that were there before. A frame that neither drops is one call that still runs.
//!
//! Slots announced after an omitted sample are relative to a stack that the reader does not see, so
//! their differences are also merged with that sample's, and so is the number of frames that an
//! exit keeps. Tallies lie in the interval that the next timed record closes, which still contains
//! them. All these records are kept, and so are
//! - absolute stamps: the interval before them is not known;
//! - samples with off-CPU parts: the parts belong to the sample's own interval;
//! - the last sample before a pause, a resumption, an end or a loss, which carry no stack.
//!
//! A tick that closes two intervals becomes a sample, since a tick's interval is one period. A
//! stream without a known period therefore keeps its ticks.

use plimsoll_wire::record::{Delta, MAX_DEPTH, Record, Stamp, tick_stamp};
use plimsoll_wire::segment::MAX_SLOTS;

/// Samples omitted since the last timed record that was kept, merged into one.
struct Pending {
    stamps: u64,
    dropped: u32,
    added: Vec<u32>,
    /// Value of the last omitted sample.
    entered: Option<u64>,
    truncated: bool,
    /// Number of omitted samples; at least 1.
    samples: u64,
    /// Number of outermost frames that all omitted samples have left unchanged.
    common: u32,
}

/// Thinning state of one thread's stream.
pub(super) struct Thinning {
    /// Sampling period in stamps; `None` if not known.
    period: Option<u64>,
    /// Number of samples since the last one that was kept.
    skipped: u32,
    pending: Option<Pending>,
    /// Depth of the unthinned stream's current stack; `None` if the stream contradicts itself.
    depth: Option<u32>,
    /// Depth of each slot's path; `None` if not known.
    slots: Vec<Option<u32>>,
    /// Whether no timed record has arrived since the stream began or records were lost.
    fresh: bool,
    /// Buffer for merged stacks.
    stack: Vec<u32>,
}

/// Sample, or a tick converted to a sample.
#[derive(Clone, Copy)]
struct Sample<'a> {
    stamps: u64,
    stack: Delta<'a>,
    entered: Option<u64>,
    truncated: bool,
}

impl Thinning {
    /// Begins a stream with its sampling period in stamps.
    pub(super) fn new(period: Option<u64>) -> Self {
        Self {
            period,
            skipped: 0,
            pending: None,
            depth: Some(0),
            slots: Vec::new(),
            fresh: true,
            stack: Vec::new(),
        }
    }

    /// Passes a record on to `keep`, or holds it back: one sample in 2^`level` is kept. The second
    /// argument of `keep` is the number of samples merged into the record.
    pub(super) fn pass(
        &mut self,
        record: &Record<'_>,
        level: u32,
        mut keep: impl FnMut(&Record<'_>, u64),
    ) {
        match *record {
            Record::Sample { stamp: Stamp::Delta(stamps), stack, entered, off_cpu, truncated } => {
                let sample = Sample { stamps, stack, entered, truncated };
                if off_cpu.is_some() || !self.hold(sample, level, &mut keep) {
                    self.merge_sample(record, stamps, stack, &mut keep);
                }
            }
            Record::Tick { delay, stack } => {
                // The interval does not depend on the stamp where it begins.
                match self.period.and_then(|period| tick_stamp(0, period, delay)) {
                    Some(stamps) => {
                        let sample = Sample { stamps, stack, entered: None, truncated: false };
                        if !self.hold(sample, level, &mut keep) {
                            self.merge_sample(record, stamps, stack, &mut keep);
                        }
                    }
                    None => {
                        self.release(&mut keep);
                        keep(record, 0);
                    }
                }
            }
            Record::Exit { stamp: Stamp::Delta(stamps), .. } => {
                self.merge_exit(record, stamps, &mut keep);
            }
            Record::Slot { slot, stack } => self.merge_slot(slot, stack, &mut keep),
            Record::Tally { .. }
            | Record::Partner { .. }
            | Record::Counts { .. }
            | Record::Message { .. }
            | Record::Region { .. }
            | Record::Share { .. }
            | Record::Task { .. }
            | Record::Length { .. }
            | Record::LockWait { .. } => {
                keep(record, 0);
            }
            _ => {
                self.release(&mut keep);
                keep(record, 0);
            }
        }
        self.follow(record);
    }

    /// Passes the pending samples on as one sample.
    pub(super) fn release(&mut self, mut keep: impl FnMut(&Record<'_>, u64)) {
        let Some(pending) = self.pending.take() else { return };
        let record = Record::Sample {
            stamp: Stamp::Delta(pending.stamps),
            stack: Delta { dropped: pending.dropped, added: &pending.added },
            entered: pending.entered,
            off_cpu: None,
            truncated: pending.truncated,
        };
        keep(&record, pending.samples - 1);
        self.skipped = 0;
    }

    /// Holds a sample back if thinning omits it. Returns whether the sample is held back.
    fn hold(
        &mut self,
        sample: Sample<'_>,
        level: u32,
        keep: &mut impl FnMut(&Record<'_>, u64),
    ) -> bool {
        let wanted = 1u32.checked_shl(level).map_or(u32::MAX, |every| every - 1);
        if self.skipped >= wanted {
            return false;
        }
        let Some(depth) = self.depth else { return false };
        let Some(left) = depth.checked_sub(sample.stack.dropped) else { return false };
        if !self.add_to_pending(&sample) {
            self.release(keep);
            self.pending = Some(Pending {
                stamps: sample.stamps,
                dropped: sample.stack.dropped,
                added: sample.stack.added.to_vec(),
                entered: sample.entered,
                truncated: sample.truncated,
                samples: 1,
                common: left,
            });
        }
        self.skipped += 1;
        true
    }

    /// Merges a sample into the pending ones. Returns false if none is pending, or if the merged
    /// sample would overflow the stamp or be too deep.
    fn add_to_pending(&mut self, sample: &Sample<'_>) -> bool {
        let Some(pending) = &mut self.pending else { return false };
        let Some(stamps) = pending.stamps.checked_add(sample.stamps) else { return false };
        let Some(dropped) = pending.compose(sample.stack, &mut self.stack) else { return false };
        pending.stamps = stamps;
        pending.common = pending.common.saturating_sub(dropped - pending.dropped);
        pending.dropped = dropped;
        pending.added.clone_from(&self.stack);
        pending.entered = sample.entered;
        pending.truncated = sample.truncated;
        pending.samples += 1;
        true
    }

    /// Keeps a sample or tick, with the pending samples merged into it.
    fn merge_sample(
        &mut self,
        record: &Record<'_>,
        stamps: u64,
        stack: Delta<'_>,
        keep: &mut impl FnMut(&Record<'_>, u64),
    ) {
        let merged = self.pending.as_ref().and_then(|pending| {
            let stamps = pending.stamps.checked_add(stamps)?;
            Some((stamps, pending.compose(stack, &mut self.stack)?, pending.samples))
        });
        let Some((stamps, dropped, samples)) = merged else {
            self.release(&mut *keep);
            self.skipped = 0;
            return keep(record, 0);
        };
        let (entered, off_cpu, truncated) = match *record {
            Record::Sample { entered, off_cpu, truncated, .. } => (entered, off_cpu, truncated),
            _ => (None, None, false),
        };
        let stamp = Stamp::Delta(stamps);
        let stack = Delta { dropped, added: &self.stack };
        keep(&Record::Sample { stamp, stack, entered, off_cpu, truncated }, samples);
        self.pending = None;
        self.skipped = 0;
    }

    /// Keeps an exit, with the pending samples merged into it.
    fn merge_exit(
        &mut self,
        record: &Record<'_>,
        stamps: u64,
        keep: &mut impl FnMut(&Record<'_>, u64),
    ) {
        let sum = self.pending.as_ref().and_then(|pending| pending.stamps.checked_add(stamps));
        match (sum, self.pending.take(), *record) {
            (
                Some(sum),
                Some(pending),
                Record::Exit { slot, common, duration, bytes, sync, off_cpu, .. },
            ) => {
                let stamp = Stamp::Delta(sum);
                let common = common.min(pending.common);
                let record = Record::Exit { stamp, slot, common, duration, bytes, sync, off_cpu };
                keep(&record, pending.samples);
            }
            (_, pending, _) => {
                self.pending = pending;
                self.release(&mut *keep);
                keep(record, 0);
            }
        }
    }

    fn merge_slot(&mut self, slot: u32, stack: Delta<'_>, keep: &mut impl FnMut(&Record<'_>, u64)) {
        let pending = self.pending.as_ref();
        match pending.and_then(|pending| pending.compose(stack, &mut self.stack)) {
            Some(dropped) => {
                keep(&Record::Slot { slot, stack: Delta { dropped, added: &self.stack } }, 0);
            }
            None => {
                self.release(&mut *keep);
                keep(&Record::Slot { slot, stack }, 0);
            }
        }
    }

    /// Updates the depth of the unthinned stream's stack.
    fn follow(&mut self, record: &Record<'_>) {
        let resync = matches!(
            *record,
            Record::Sample { stamp: Stamp::Resync(_), .. }
                | Record::Exit { stamp: Stamp::Resync(_), .. }
                | Record::Pause { stamp: Stamp::Resync(_) }
                | Record::Resume { stamp: Stamp::Resync(_) }
                | Record::End { stamp: Stamp::Resync(_) }
        );
        if matches!(record, Record::Lost { .. }) || resync && !self.fresh {
            self.depth = Some(0);
            self.slots.clear();
        }
        match *record {
            Record::Sample { stack, .. } | Record::Tick { stack, .. } => {
                self.depth = moved(self.depth, stack);
            }
            Record::Slot { slot, stack } => {
                let index = slot as usize;
                if index < MAX_SLOTS && index >= self.slots.len() {
                    self.slots.resize(index + 1, None);
                }
                if let Some(depth) = self.slots.get_mut(index) {
                    *depth = moved(self.depth, stack);
                }
            }
            Record::Exit { slot, .. } => {
                self.depth = self.slots.get(slot as usize).copied().flatten();
            }
            _ => {}
        }
        self.fresh = match record {
            Record::Lost { .. } => true,
            record => self.fresh && !record.is_timed(),
        };
    }
}

impl Pending {
    /// Composes the pending stack difference with `next`. Returns the number of frames dropped from
    /// the stack before the pending samples, and replaces the contents of `added` by the new
    /// frames. `None` if the stack difference would be too deep.
    fn compose(&self, next: Delta<'_>, added: &mut Vec<u32>) -> Option<u32> {
        let gone = next.dropped as usize;
        let stay = self.added.len().saturating_sub(gone);
        if stay + next.added.len() > MAX_DEPTH {
            return None;
        }
        let further = gone.saturating_sub(self.added.len());
        let dropped = self.dropped.checked_add(u32::try_from(further).ok()?)?;
        added.clear();
        added.extend_from_slice(&self.added[..stay]);
        added.extend_from_slice(next.added);
        Some(dropped)
    }
}

fn moved(depth: Option<u32>, stack: Delta<'_>) -> Option<u32> {
    depth?.checked_sub(stack.dropped)?.checked_add(u32::try_from(stack.added.len()).ok()?)
}
