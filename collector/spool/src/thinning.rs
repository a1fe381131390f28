//! Fewer samples in a stream that stays exact: a sample that is left out becomes part of the next
//! record.
//!
//! What is merged are the two things that a record says relative to the one before it:
//! - the interval that it closes: stamps add up, so that the record after closes both;
//! - the stack: of two differences, the second first takes away what the first has added, then what
//!   was there before. A frame that both leave is the same call still running.
//!
//! Slots that are announced after a sample that was left out are relative to a stack that the reader
//! does not see: their differences are merged with that sample's, too, and so is the number of
//! frames that an exit keeps. Tallies lie in the interval that the next timed record closes, which
//! still holds them. All these records stay, as do
//! - absolute stamps: the interval before them is not known;
//! - samples with off-CPU parts: what these parts are a part of is their own interval;
//! - the last sample before a pause, a resumption, an end or a loss, which say nothing of the stack.
//!
//! A tick that closes two intervals is a sample, since a tick's is one period; so a stream of which
//! no period is known keeps its ticks.

use plimsoll_wire::record::{Delta, MAX_DEPTH, Record, Stamp, tick_stamp};
use plimsoll_wire::segment::MAX_SLOTS;

/// Samples that were left out since the last timed record that was kept.
struct Pending {
    stamps: u64,
    dropped: u32,
    added: Vec<u32>,
    /// Of the last of them.
    entered: Option<u64>,
    truncated: bool,
    /// How many.
    samples: u64,
    /// Frames of the current stack that are still there.
    kept: u32,
}

/// Thins the stream of one thread.
pub(super) struct Thinning {
    /// The sampling period in stamps, where it is known.
    period: Option<u64>,
    /// Samples since the last that was kept.
    skipped: u32,
    pending: Option<Pending>,
    /// Depth of the whole stream's current stack; `None` where the stream contradicts itself.
    depth: Option<u32>,
    /// Depths of the slots' paths.
    slots: Vec<Option<u32>>,
    /// No timed record since the stream began or was lost.
    fresh: bool,
    /// Memory for stacks that were merged.
    stack: Vec<u32>,
}

/// A sample, or a tick as one.
#[derive(Clone, Copy)]
struct Sample<'a> {
    stamps: u64,
    stack: Delta<'a>,
    entered: Option<u64>,
    truncated: bool,
}

impl Thinning {
    /// A stream that begins, with its sampling period in stamps.
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

    /// Passes a record on to `keep`, or holds it back: of samples, one in 2^`level` is kept. `keep`
    /// also gets how many samples were merged into the record.
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
                // The step does not depend on where it begins.
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
            Record::Tally { .. } | Record::Partner { .. } => keep(record, 0),
            _ => {
                self.release(&mut keep);
                keep(record, 0);
            }
        }
        self.follow(record);
    }

    /// Passes on what is held back, as one sample.
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

    /// Holds a sample back, if it is one that is left out.
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
                kept: left,
            });
        }
        self.skipped += 1;
        true
    }

    /// False if nothing is held back, or the two make no sample.
    fn add_to_pending(&mut self, sample: &Sample<'_>) -> bool {
        let Some(pending) = &mut self.pending else { return false };
        let Some(stamps) = pending.stamps.checked_add(sample.stamps) else { return false };
        let Some(dropped) = pending.compose(sample.stack, &mut self.stack) else { return false };
        pending.stamps = stamps;
        pending.kept = pending.kept.saturating_sub(dropped - pending.dropped);
        pending.dropped = dropped;
        pending.added.clone_from(&self.stack);
        pending.entered = sample.entered;
        pending.truncated = sample.truncated;
        pending.samples += 1;
        true
    }

    /// Keeps a sample or tick, with what was held back before it.
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

    /// Keeps an exit, with what was held back before it.
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
                Record::Exit { slot, kept, duration, bytes, sync, off_cpu, .. },
            ) => {
                let stamp = Stamp::Delta(sum);
                let kept = kept.min(pending.kept);
                let record = Record::Exit { stamp, slot, kept, duration, bytes, sync, off_cpu };
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

    /// Follows the depth of the whole stream's stack.
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
    /// The stack that `next` leads to, as a difference to the one before what is held back: how many
    /// frames are dropped; the new ones replace those in `added`. `None` if it would be too deep.
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
