//! Replay of one thread's records: each timed record closes an interval, and the interval's time is
//! partitioned among contexts.
//!
//! A closed interval has three parts: the tallied calls, the work before the wrapped call that the
//! record reports (all of the work, if the record reports no call), and the time in that call. Work
//! is known only from samples, and belongs to the nearest one: two neighbouring samples share the
//! work between them equally; between a sample and a wrapped call, all work is the sample's, unless
//! a phase ended between. Work without such a sample is stored as unattributed between the two call
//! paths around it, and apportioned when the whole phase is known.

mod intervals;
mod unstamped;

use plimsoll_calls::requests::may_complete;
use plimsoll_calls::{CallClass, CallId, class};
use plimsoll_wire::lengths::LengthOf;
use plimsoll_wire::record::{Delta, OffCpu, Record, STAMP_SHIFT, Stamp, tick_stamp};
use plimsoll_wire::segment::MAX_SLOTS;

use crate::event_counts::Uncharged;
use crate::process_info::FinalThreadState;
use crate::profile::LONG_CALL_NS;
use crate::raw_tree::{ROOT, RawId};
use crate::region_values::RegionPlace;
use crate::replay_target::{CompletedSync, CorruptStream, ReplayTarget};
use crate::stack_position::{NOWHERE, StackPosition};

use intervals::Tallied;
use unstamped::Unstamped;

/// The state of one thread's stream.
pub(crate) struct Replay {
    /// Stamp of the last timed record.
    stamp: Option<u64>,
    /// Up to where the thread's time has been booked: its birth, where that is known, and then the
    /// latest of its stamps.
    booked: Option<u64>,
    place: StackPosition,
    /// Root under which the stacks and slots of the next records lie.
    root: RawId,
    /// Call paths of the thread's wrapped calls, by slot: [`MAX_SLOTS`], or none before the first
    /// of them is announced, since many threads make no such calls.
    slots: Vec<Option<StackPosition>>,
    tallied: Vec<Tallied>,
    /// Records without a stamp since the last timed record.
    unstamped: Vec<Unstamped>,
    /// Increments of perf events in the interval that is open.
    uncharged: Uncharged,
    /// Context of the last sample, if it was outside wrapped calls and in this phase.
    sampled: Option<RawId>,
    /// The last timed record was a sample outside wrapped calls.
    after_sample: bool,
    /// Nothing was read since the stream began or was lost: slots announced now are relative to
    /// the empty stack.
    fresh: bool,
    /// The stack is not known: nothing is read until a resynchronisation.
    lost: bool,
    /// Records are missing since the last timed record.
    gap: bool,
    paused: bool,
    ended: bool,
}

impl Replay {
    /// Creates a stream that is read from its beginning. `born` is when the thread's time begins to
    /// count; without it, its first record does.
    pub(crate) fn new(born: Option<u64>) -> Self {
        Self {
            stamp: None,
            booked: born,
            place: NOWHERE,
            root: ROOT,
            slots: Vec::new(),
            tallied: Vec::new(),
            unstamped: Vec::new(),
            uncharged: Uncharged::default(),
            sampled: None,
            after_sample: false,
            fresh: true,
            lost: false,
            gap: false,
            paused: false,
            ended: false,
        }
    }

    /// Sets the root under which the thread's stacks lie until its records say otherwise. Must be
    /// called before the first record.
    pub(crate) fn begin_in(&mut self, root: RawId) {
        if !self.lost {
            (self.root, self.place.node) = (root, root);
        }
    }

    /// Sets the stamp from which the thread's time counts: the begin of the measured run.
    pub(crate) fn begin_at(&mut self, begin: u64) {
        if self.stamp.is_none() {
            self.booked = Some(begin);
        }
    }

    /// Returns the stamp up to which the thread's time has been attributed.
    pub(crate) fn booked(&self) -> Option<u64> {
        self.booked
    }

    /// Forgets the stack, and ignores all records until the producer sends a whole one again.
    pub(crate) fn mark_gap(&mut self) {
        self.reset_stack();
        self.lost = true;
    }

    /// Returns whether a record may be applied: not after the last record, and after a loss only
    /// from a whole stack on.
    pub(crate) fn accepts(&self, record: &Record<'_>) -> bool {
        let lost = self.lost && !matches!(record, Record::Lost { .. }) && !resynchronises(record);
        !self.ended && !lost
    }

    fn reset_stack(&mut self) {
        self.place = NOWHERE;
        self.root = ROOT;
        self.slots.fill(None);
        self.tallied.clear();
        self.sampled = None;
        self.after_sample = false;
        self.fresh = true;
        self.gap = true;
    }

    /// Takes one record; says if it was a synchronisation.
    pub(crate) fn apply(
        &mut self,
        record: &Record<'_>,
        target: &mut ReplayTarget<'_>,
    ) -> Result<Option<CompletedSync>, CorruptStream> {
        if !self.accepts(record) {
            return Ok(None);
        }
        self.lost = false;
        if self.uncharged.is_none() || !record.is_timed() {
            return self.replay(record, target);
        }
        target.events.begin();
        let result = self.replay(record, target);
        target.events.settle(&std::mem::take(&mut self.uncharged));
        result
    }

    fn replay(
        &mut self,
        record: &Record<'_>,
        target: &mut ReplayTarget<'_>,
    ) -> Result<Option<CompletedSync>, CorruptStream> {
        match *record {
            Record::Slot { slot, stack } => {
                let path = self.place.under(self.root, target.tree).moved(stack, target)?;
                if self.slots.is_empty() {
                    self.slots.resize(MAX_SLOTS, None);
                }
                *self.slots.get_mut(slot as usize).ok_or(CorruptStream)? = Some(path);
            }
            Record::Tally { slot, count, sum, bytes, .. } => {
                self.tally(slot, count, sum, bytes, target)?;
            }
            Record::Partner { slot, messages } => {
                self.hold(Unstamped::Partner(self.context(slot)?, messages), target);
            }
            Record::Counts { in_call, counts } => self.uncharged.add(in_call, &counts),
            Record::Message { slot, message } => {
                self.hold(Unstamped::Message(self.context(slot)?, message), target);
            }
            Record::Region { slot, totals } => {
                let place = self.region(slot, target)?;
                // The path stays on stacks, also if the region lies before the run.
                target.regions.add_caller(totals.path, place.node);
                self.hold(Unstamped::Region(place, totals), target);
            }
            Record::Share { slot, number, totals } => {
                let place = self.region(slot, target)?;
                self.hold(Unstamped::Share(place, number, totals), target);
            }
            Record::Task { totals } => self.hold(Unstamped::Task(totals), target),
            Record::Length { of: LengthOf::Task(function), length } => {
                self.hold(Unstamped::TaskLength(function, length), target);
            }
            Record::Length { of: LengthOf::Region(slot), length } => {
                let place = self.region(slot, target)?;
                self.hold(Unstamped::RegionLength(place, length), target);
            }
            Record::LockWait { slot, totals } => {
                let place = self.region(slot, target)?;
                self.hold(Unstamped::LockWait(place, totals), target);
            }
            Record::Graft { path } => {
                self.root = target.tree.root_in(path);
                if self.place.depth(target.tree) == 0 {
                    // Time without a stack is charged to the thread where it lies.
                    self.place.node = self.root;
                }
            }
            Record::Sample { stamp, stack, entered, off_cpu, truncated } => {
                self.sample(stamp, stack, entered, off_cpu, truncated, target)?;
            }
            Record::Tick { delay, stack } => {
                let last = self.stamp.ok_or(CorruptStream)?;
                let now = tick_stamp(last, target.tick_period, delay).ok_or(CorruptStream)?;
                let stamp = Stamp::Delta(now.checked_sub(last).ok_or(CorruptStream)?);
                self.sample(stamp, stack, None, None, false, target)?;
            }
            Record::Exit { stamp, slot, common, duration, bytes, sync, off_cpu } => {
                return self.exit(stamp, slot, common, duration, bytes, sync, off_cpu, target);
            }
            Record::Pause { stamp } => {
                self.stop(stamp, target)?;
                if let Some(series) = target.series.as_deref_mut() {
                    series.give_up();
                }
                self.paused = true;
            }
            Record::Resume { stamp } => {
                self.stop(stamp, target)?;
                self.paused = false;
            }
            Record::End { stamp } => {
                self.stop(stamp, target)?;
                self.ended = true;
            }
            Record::Lost { .. } => self.reset_stack(),
        }
        Ok(None)
    }

    /// The place of the regions that are made, or of the waits, by calls through a slot.
    fn region(&self, slot: u32, target: &ReplayTarget<'_>) -> Result<RegionPlace, CorruptStream> {
        Ok(RegionPlace { node: self.context(slot)?, is_main: target.is_main })
    }

    /// Returns the context of a slot.
    fn context(&self, slot: u32) -> Result<RawId, CorruptStream> {
        let path = self.slots.get(slot as usize).copied().flatten();
        Ok(path.ok_or(CorruptStream)?.node)
    }

    /// Calls through a slot that lie in the interval that is open.
    fn tally(
        &mut self,
        slot: u32,
        count: u64,
        sum: u64,
        bytes: u64,
        target: &ReplayTarget<'_>,
    ) -> Result<(), CorruptStream> {
        let path = self.slots.get(slot as usize).copied().flatten().ok_or(CorruptStream)?;
        // The time of a call that the tree cannot hold stays with the context that it holds.
        let count = if path.clipped == 0 { count } else { 0 };
        let polls = call(path.node, target).and_then(class) == Some(CallClass::Polling);
        let (bytes, poll_gaps) = if polls { (0, bytes >> STAMP_SHIFT) } else { (bytes, 0) };
        self.tallied.push(Tallied { node: path.node, sum, count, bytes, poll_gaps });
        Ok(())
    }

    /// Accounts for what is in no record when the run ends at `end`: the counters in `last`, work
    /// up to the entry of the wrapped call that is open, if one is, and that call. Returns the
    /// number of counters that are lost because their slots are unknown.
    pub(crate) fn close(
        &mut self,
        end: u64,
        last: &FinalThreadState,
        target: &mut ReplayTarget<'_>,
    ) -> u64 {
        if self.ended {
            return 0;
        }
        let mut lost = 0;
        for record in last.records() {
            // Shares and durations are lost with their region, which is counted.
            let is_detail = matches!(record, Record::Share { .. } | Record::Length { .. });
            let unknown = self.replay(&record, target).is_err();
            lost += u64::from(unknown && !is_detail);
        }
        let open = last.open;
        let path = open.and_then(|(slot, _)| self.slots.get(slot as usize).copied().flatten());
        let duration = match (path, open) {
            (Some(_), Some((_, entry))) => end.saturating_sub(entry),
            _ => 0,
        };
        let place = self.place;
        let from = self.since(end, target);
        target.events.begin();
        let parts = self.pass(end, duration, target);
        match path {
            Some(path) => {
                let common = place.common(path, target.tree);
                let entry = end.saturating_sub(duration);
                target.set_stack(path.node, common, false, (from, entry, entry));
                self.work_before(&parts, None, place.between(path, common, target.tree), target);
                target.spend_inside(path.node, parts.inside, parts.call);
            }
            None => {
                let context = target.tree.outside_calls(place.node);
                self.work_before(&parts, None, (context, context), target);
            }
        }
        target.events.settle(&std::mem::take(&mut self.uncharged));
        self.ended = true;
        lost
    }

    fn sample(
        &mut self,
        stamp: Stamp,
        stack: Delta<'_>,
        entered: Option<u64>,
        off_cpu: Option<OffCpu>,
        is_truncated: bool,
        target: &mut ReplayTarget<'_>,
    ) -> Result<(), CorruptStream> {
        let previous = self.stamp;
        let now = self.advance(stamp, target.window.latest)?;
        let common =
            self.place.depth(target.tree).checked_sub(stack.dropped).ok_or(CorruptStream)?;
        let place = self.place.under(self.root, target.tree).moved(stack, target)?;
        let from = self.since(now, target);
        let parts = self.pass(now, entered.unwrap_or(0), target);
        let between = self.place.between(place, common, target.tree);
        let when = match entered {
            // A call that was open before goes on; a new one began when it did.
            Some(since) if target.tree.depth(target.tree.outside_calls(place.node)) >= common => {
                let entry = now.saturating_sub(since).max(from);
                (from, entry, entry)
            }
            _ if self.after_sample => (from, now - (now - from) / 2, now),
            _ => (from, from, now),
        };
        if is_truncated {
            target.stack_truncated();
        } else {
            target.set_stack(place.node, common, true, when);
        }
        match entered {
            Some(_) => {
                self.work_before(&parts, off_cpu, between, target);
                target.spend_inside(place.node, parts.inside, parts.call);
                self.sampled = None;
                self.after_sample = false;
            }
            None => {
                if self.gap {
                    // What happened in a gap is not known: least of all that it all was here.
                    target.charge_unsampled((ROOT, ROOT), parts.work, parts.before);
                } else {
                    let delay = target.rate.stamps(off_cpu.unwrap_or_default().run_delay_ns);
                    // Of two neighbouring samples each has the half that is nearer to it.
                    let nearer = self.sampled.filter(|_| self.after_sample);
                    let (earlier, waited) =
                        nearer.map_or((0, 0), |_| (parts.work / 2, delay.min(parts.work) / 2));
                    // Until its first sample, a process mostly started: only the last period is
                    // known to be work of the sample.
                    let is_first = previous.is_none() && target.is_main;
                    let started = match is_first {
                        true => parts.work.saturating_sub(target.period.max(delay)),
                        false => 0,
                    };
                    target.charge_unsampled((ROOT, ROOT), started, parts.before);
                    let mut span = parts.before;
                    if let Some(node) = nearer {
                        let (first, second) = span.halves();
                        target.work(node, earlier, waited, first);
                        target.account.poll_gap(node, parts.poll_gaps / 2);
                        span = second;
                    }
                    let later = parts.work - earlier - started;
                    target.work(place.node, later, delay - waited, span);
                    let poll_gaps = parts.poll_gaps - nearer.map_or(0, |_| parts.poll_gaps / 2);
                    target.account.poll_gap(place.node, poll_gaps.min(later));
                    if let (true, Some(series)) = (delay > 0, target.series.as_deref_mut()) {
                        series.wait(delay - waited, waited);
                    }
                    if let (true, Some(previous)) = (self.after_sample, previous) {
                        target.periods.add(now.saturating_sub(previous));
                    }
                }
                self.sampled = target.window.holds(now).then_some(place.node);
                self.after_sample = true;
            }
        }
        if parts.counted {
            target.account.sample(place.node);
            place.count_begun(common, stack.dropped > 0, target.tree, target.account);
        }
        self.place = place;
        self.settle();
        Ok(())
    }

    #[allow(clippy::too_many_arguments, reason = "they are the fields of one record")]
    fn exit(
        &mut self,
        stamp: Stamp,
        slot: u32,
        common: u32,
        duration: u64,
        bytes: u64,
        sync: Option<plimsoll_wire::sync_id::SyncId>,
        off_cpu: Option<OffCpu>,
        target: &mut ReplayTarget<'_>,
    ) -> Result<Option<CompletedSync>, CorruptStream> {
        let now = self.advance(stamp, target.window.latest)?;
        let path = self.slots.get(slot as usize).copied().flatten().ok_or(CorruptStream)?;
        let depth = self.place.depth(target.tree);
        let common = common.min(depth).min(path.depth(target.tree));
        let from = self.since(now, target);
        let parts = self.pass(now, duration, target);
        let was_open = common == path.depth(target.tree);
        let entry = if was_open { now } else { now.saturating_sub(duration).max(from) };
        let is_declared = target.addresses.is_declared(target.tree.address(path.node));
        if is_declared {
            // The frames of the function are those of its calls, which are known already.
            let caller = target.tree.parent(path.node);
            target.set_stack(caller, common, false, (now, now, now));
        } else {
            target.set_stack(path.node, common, false, (from, entry, entry));
            target.leave(path.node, now);
        }
        let between = self.place.between(path, common, target.tree);
        self.work_before(&parts, off_cpu, between, target);
        target.spend_inside(path.node, parts.inside, parts.call);
        if parts.counted {
            if !is_declared {
                target.account.call(path.node, u64::from(path.clipped == 0), bytes);
            }
            if duration >= target.rate.stamps(LONG_CALL_NS) {
                let within = duration.min(now.saturating_sub(target.window.begin));
                target.account.long_call(path.node, within);
            }
            path.count_begun(common, depth > common, target.tree, target.account);
        }
        self.place = path;
        self.after_sample = false;
        let counted = target.window.holds(now);
        if sync.is_some() && counted {
            self.sampled = None;
        }
        self.settle();
        Ok(sync.map(|sync| CompletedSync {
            subgroup: sync.subgroup,
            index: sync.index,
            node: path.node,
            stamp: now,
            is_completion: completes(path.node, target),
            counted,
        }))
    }

    /// Applies a timed record without a stack.
    fn stop(&mut self, stamp: Stamp, target: &mut ReplayTarget<'_>) -> Result<(), CorruptStream> {
        let now = self.advance(stamp, target.window.latest)?;
        let parts = self.pass(now, 0, target);
        let context = target.tree.outside_calls(self.place.node);
        self.work_before(&parts, None, (context, context), target);
        self.after_sample = false;
        self.settle();
        Ok(())
    }

    /// Reads a stamp; a resynchronisation also clears what the stream said before it.
    fn advance(&mut self, stamp: Stamp, latest: u64) -> Result<u64, CorruptStream> {
        let now = match stamp {
            Stamp::Delta(delta) => {
                self.stamp.and_then(|last| last.checked_add(delta)).ok_or(CorruptStream)?
            }
            Stamp::Resync(now) => {
                if !self.fresh {
                    self.reset_stack();
                }
                now
            }
        };
        if now > latest {
            return Err(CorruptStream);
        }
        self.stamp = Some(now);
        Ok(now)
    }

    /// Returns the earliest stamp at which something seen at `now` may have happened: after the
    /// last attributed time, and not before the run.
    fn since(&self, now: u64, target: &ReplayTarget<'_>) -> u64 {
        self.booked.unwrap_or(now).max(target.window.begin).min(now)
    }

    fn settle(&mut self) {
        self.fresh = false;
        self.gap = false;
    }
}

fn resynchronises(record: &Record<'_>) -> bool {
    matches!(
        record,
        Record::Sample { stamp: Stamp::Resync(_), .. }
            | Record::Exit { stamp: Stamp::Resync(_), .. }
            | Record::Pause { stamp: Stamp::Resync(_) }
            | Record::Resume { stamp: Stamp::Resync(_) }
            | Record::End { stamp: Stamp::Resync(_) }
    )
}

/// Returns whether a context is a call that may complete nonblocking ones.
fn completes(node: RawId, target: &ReplayTarget<'_>) -> bool {
    call(node, target).is_some_and(may_complete)
}

/// Returns the wrapped call that a context is; `None` if the context is no wrapped call.
fn call(node: RawId, target: &ReplayTarget<'_>) -> Option<CallId> {
    let (value, ..) = target.tables.address(target.tree.address(node))?;
    CallId::try_from(value).ok()
}
