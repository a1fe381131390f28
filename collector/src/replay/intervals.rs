//! A closed interval, partitioned: tallied calls, work, the wrapped call at its end.

use plimsoll_wire::record::OffCpu;

use super::Replay;
use crate::account::Between;
use crate::raw_tree::{ROOT, RawId};
use crate::replay_target::ReplayTarget;
use crate::time_series::Span;

/// Calls that were tallied since the last timed record.
#[derive(Clone, Copy)]
pub(super) struct Tallied {
    pub(super) node: RawId,
    pub(super) sum: u64,
    pub(super) count: u64,
    pub(super) bytes: u64,
    /// Short times between polls, summed.
    pub(super) poll_gaps: u64,
}

/// Parts of a closed interval.
pub(super) struct Parts {
    pub(super) work: u64,
    /// Part of the work that lies between polls of polling loops.
    pub(super) poll_gaps: u64,
    pub(super) inside: u64,
    /// Where the work and the tallied calls lie, up to the entry of the wrapped call at the end.
    pub(super) before: Span,
    /// Where that call lies.
    pub(super) call: Span,
    /// The record itself lies within the run, and the measurement was not paused.
    pub(super) counted: bool,
}

impl Replay {
    /// Closes the interval that ends at `now` with a wrapped call open in its last `duration`:
    /// attributes the tallied calls and the records without a stamp, and returns the rest.
    pub(super) fn pass(&mut self, now: u64, duration: u64, target: &mut ReplayTarget<'_>) -> Parts {
        self.add_unstamped(now, target);
        let window = target.window;
        let booked = self.booked.unwrap_or(now);
        self.booked = Some(now.min(window.end).max(booked));
        if booked < window.begin {
            // The run has begun since: what was seen before says nothing of it.
            self.sampled = None;
        }
        let from = window.clip(booked);
        // Counters of two cores may differ a little: no time is booked twice.
        let to = window.clip(now).max(from);
        if self.paused {
            target.account.pause(to - from);
            if let Some(temporal_tree) = target.temporal_tree.as_deref_mut() {
                temporal_tree.pause(to - from);
            }
            self.tallied.clear();
            let nothing = Span { begin: to, end: to };
            return Parts {
                work: 0,
                poll_gaps: 0,
                inside: 0,
                before: nothing,
                call: nothing,
                counted: false,
            };
        }
        let counted = window.holds(now);
        target.account.pass(to - from);
        let entry = now.saturating_sub(duration).clamp(from, to);
        let (before, call) = (Span { begin: from, end: entry }, Span { begin: entry, end: to });
        let poll_gaps = self.tallied.iter().map(|tallied| tallied.poll_gaps);
        let poll_gaps = poll_gaps.fold(0, u64::saturating_add);
        let work = entry - from - self.book_tallied(before, counted, target);
        Parts { work, poll_gaps: poll_gaps.min(work), inside: to - entry, before, call, counted }
    }

    /// Books the tallied calls, scaled down where they exceed the time they lie in (their sums are
    /// rounded, and the run may begin between them).
    fn book_tallied(&mut self, before: Span, counted: bool, target: &mut ReplayTarget<'_>) -> u64 {
        let available = before.end - before.begin;
        let total: u128 = self.tallied.iter().map(|tallied| u128::from(tallied.sum)).sum();
        let scaled = |sum: u128| {
            if total <= u128::from(available) { sum } else { sum * u128::from(available) / total }
        };
        let mut sum = 0u128;
        for tallied in self.tallied.drain(..) {
            let earlier = scaled(sum);
            sum += u128::from(tallied.sum);
            target.spend(tallied.node, (scaled(sum) - earlier) as u64, before);
            if counted {
                target.account.call(tallied.node, tallied.count, tallied.bytes);
            }
        }
        scaled(sum) as u64
    }

    /// Attributes the work outside wrapped calls before one of them: to the last sample, if there
    /// is one.
    ///
    /// Of it, the thread waited for a core as long as `off_cpu` says.
    pub(super) fn work_before(
        &self,
        parts: &Parts,
        off_cpu: Option<OffCpu>,
        between: Between,
        target: &mut ReplayTarget<'_>,
    ) {
        let (stamps, span) = (parts.work, parts.before);
        let delay = target.rate.stamps(off_cpu.unwrap_or_default().run_delay_ns).min(stamps);
        match self.sampled {
            _ if self.gap => target.charge_unsampled((ROOT, ROOT), stamps, span),
            Some(node) => {
                target.work(node, stamps, delay, span);
                target.account.poll_gap(node, parts.poll_gaps);
            }
            None => {
                // Nobody worked while waiting for a core: that part is not shared out.
                target.work(target.tree.parent(between.0), delay, delay, span);
                target.charge_unsampled(between, stamps - delay, span);
            }
        }
    }
}
