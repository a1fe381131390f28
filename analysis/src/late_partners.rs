//! Late senders, late receivers, and the ranks that computed while others waited: derived from
//! messages that are recorded at both ends.
//!
//! Late sender and late receiver are Scalasca's patterns. A wait is followed backwards as by
//! Böhme, Geimer, Arnold, Voigtlaender and Wolf (*Identifying the Root Causes of Wait States in
//! Large-Scale Parallel Applications*, ACM TOPC 3(2), 2016): a partner that is late because of its
//! own wait passes the delay on to the rank that it waited for; the rest originates at the partner.
//! Single waits are followed, not sums over the run, so that a changing origin is found.

use std::collections::BTreeMap;

use crate::delays::Waits;
use crate::message_ends::{Call, Late, Lateness};

/// Minimum fraction of the waiting for late senders that is for stages of a pipeline. The first
/// rank of a chain is none: it does not receive.
const MIN_STAGE_FRACTION: f64 = 0.3;

/// Maximum number of waits that a delay is followed through.
const MAX_STEPS: usize = 256;
/// Maximum part of a delay that may be waiting in calls without a record, for the delay to be
/// followed.
const MAX_UNRECORDED_FRACTION: f64 = 0.25;

/// Time in a loss's calls by its reason, in nanoseconds; each call counts for the calls that it
/// stands for.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Reasons {
    /// The partner had not begun to send.
    pub late_sender_ns: f64,
    /// The partner had not begun to receive.
    pub late_receiver_ns: f64,
    /// Both had begun.
    pub transfer_ns: f64,
    /// Unknown, because the other end of a message is unknown.
    pub unknown_ns: f64,
}

impl Reasons {
    /// Returns the sum.
    pub fn whole_ns(&self) -> f64 {
        self.late_sender_ns + self.late_receiver_ns + self.transfer_ns + self.unknown_ns
    }

    fn add(&mut self, call: &Call) {
        let weight = call.weight as f64;
        let (duration_ns, late_ns) = (call.duration_ns() as f64, call.late_ns() as f64);
        match call.late.map(|late| late.kind) {
            Some(Lateness::LateSender) => self.late_sender_ns += weight * late_ns,
            Some(Lateness::LateReceiver) => self.late_receiver_ns += weight * late_ns,
            None => {}
        }
        let rest_ns = weight * (duration_ns - late_ns);
        match call.lacks_ends {
            true => self.unknown_ns += rest_ns,
            false => self.transfer_ns += rest_ns,
        }
    }
}

/// Origins of one loss's waiting by message number and rank, in nanoseconds: messages of equal
/// number belong to the same step of most programs.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Origins {
    /// Waiting by number of the late message and rank at which the delay originates.
    pub steps: BTreeMap<u32, BTreeMap<u32, f64>>,
    /// Waiting for late partners, followed or not.
    pub whole_ns: f64,
}

impl Origins {
    /// Returns the waiting by rank over all steps.
    pub fn ranks(&self) -> BTreeMap<u32, f64> {
        let mut sums: BTreeMap<u32, f64> = BTreeMap::new();
        for (rank, ns) in self.steps.values().flatten() {
            *sums.entry(*rank).or_default() += ns;
        }
        sums
    }
}

/// Calls of all ranks.
pub struct LatePartners {
    /// Calls by rank and time.
    calls: BTreeMap<u32, Vec<Call>>,
}

/// Delay that is followed: `rank` was expected from `from_ns` on, and came at `until_ns`.
#[derive(Clone, Copy)]
struct Delay {
    rank: u32,
    from_ns: i64,
    until_ns: i64,
    ns: f64,
}

impl LatePartners {
    /// Takes calls in the order of rank and time.
    pub fn new(calls: Vec<Call>) -> Self {
        let mut by_rank: BTreeMap<u32, Vec<Call>> = BTreeMap::new();
        for call in calls {
            by_rank.entry(call.rank).or_default().push(call);
        }
        Self { calls: by_rank }
    }

    fn of_loss(&self, loss: usize) -> impl Iterator<Item = &Call> {
        let bit = 1u32.checked_shl(loss as u32).unwrap_or(0);
        self.calls.values().flatten().filter(move |call| call.losses & bit != 0)
    }

    /// Returns why ranks wait in the calls in which a loss shows.
    pub fn reasons(&self, loss: usize) -> Reasons {
        let mut reasons = Reasons::default();
        self.of_loss(loss).for_each(|call| reasons.add(call));
        reasons
    }

    /// Returns how long ranks wait in the calls in which a loss shows, by rank and by the partner
    /// that came last.
    pub fn waits(&self, loss: usize) -> Waits {
        let mut waits = Waits::new();
        for call in self.of_loss(loss) {
            let Some(late) = call.late else { continue };
            let ns = call.weight as f64 * call.late_ns() as f64;
            *waits.entry((call.rank, late.partner)).or_default() += ns;
        }
        waits
    }

    /// Returns the mean time from the receive of a message, in a call in which a loss shows, until
    /// the receiver sends the message of the same number for which another rank waits there: the
    /// duration of a pipeline's stage, in nanoseconds. `None` if little of the waiting is for ranks
    /// that receive first.
    pub fn stage_ns(&self, loss: usize) -> Option<f64> {
        let (mut stage_ns, mut of_stages_ns, mut whole_ns) = (0.0, 0.0, 0.0);
        for call in self.of_loss(loss) {
            let Some(Late { partner, until_ns, kind: Lateness::LateSender }) = call.late else {
                continue;
            };
            let late_ns = call.weight as f64 * call.late_ns() as f64;
            whole_ns += late_ns;
            let theirs = self.calls.get(&partner).map_or(&[][..], Vec::as_slice);
            let received = theirs.iter().rev().find(|it| {
                let is_before = it.entered_ns < until_ns && it.left_ns <= until_ns;
                is_before && it.number == call.number && it.losses & call.losses != 0
            });
            if let Some(received) = received {
                of_stages_ns += late_ns;
                stage_ns += late_ns * (until_ns - received.left_ns) as f64;
            }
        }
        (of_stages_ns > MIN_STAGE_FRACTION * whole_ns).then(|| stage_ns / of_stages_ns)
    }

    /// Returns the ranks that computed while others waited in the calls in which a loss shows.
    pub fn origins(&self, loss: usize) -> Origins {
        let mut origins = Origins::default();
        for call in self.of_loss(loss) {
            let Some(Late { partner, until_ns, .. }) = call.late else { continue };
            let ns = call.late_ns() as f64;
            let weight = call.weight as f64;
            origins.whole_ns += weight * ns;
            let delay = Delay { rank: partner, from_ns: call.entered_ns, until_ns, ns };
            let step = origins.steps.entry(call.number).or_default();
            self.follow(delay, |rank, ns| *step.entry(rank).or_default() += weight * ns);
        }
        origins
    }

    /// Follows a delay backwards and reports the ranks at which its parts originate. Parts that
    /// cannot be followed are not reported.
    fn follow(&self, delay: Delay, mut found: impl FnMut(u32, f64)) {
        let mut open = vec![delay];
        for _ in 0..MAX_STEPS {
            let Some(delay) = open.pop() else { return };
            let Some(calls) = self.recorded(&delay) else { continue };
            let mut rest_ns = delay.ns;
            for call in calls.iter().rev().filter(|call| call.entered_ns < delay.until_ns) {
                let Some(late) = call.late else { continue };
                if late.until_ns <= delay.from_ns {
                    break;
                }
                let passed_ns = rest_ns.min(call.late_ns() as f64);
                open.push(Delay {
                    rank: late.partner,
                    from_ns: call.entered_ns,
                    until_ns: late.until_ns,
                    ns: passed_ns,
                });
                rest_ns -= passed_ns;
            }
            if rest_ns > 0.0 {
                found(delay.rank, rest_ns);
            }
        }
    }

    /// Returns the calls of the delayed rank; `None` if too much of its waiting during the delay
    /// was in calls without a record.
    fn recorded(&self, delay: &Delay) -> Option<&[Call]> {
        let calls = self.calls.get(&delay.rank)?;
        let first = calls.partition_point(|call| call.entered_ns <= delay.from_ns);
        let first = first.saturating_sub(1);
        let end = calls.partition_point(|call| call.entered_ns < delay.until_ns);
        let next = calls.get(end)?;
        let before_ns = calls[first..].first().filter(|call| call.entered_ns <= delay.from_ns);
        let before_ns = before_ns.map_or(0, |call| call.waited_ns);
        let recorded_ns: u64 = calls[first.min(end)..end].iter().map(Call::duration_ns).sum();
        let waited_ns = next.waited_ns.saturating_sub(before_ns);
        let unrecorded_ns = waited_ns.saturating_sub(recorded_ns) as f64;
        (unrecorded_ns <= MAX_UNRECORDED_FRACTION * delay.ns).then_some(&calls[..end])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Ranks of a program in which messages are sent at once, and receives wait for them.
    struct Timeline {
        now_ns: Vec<i64>,
        waited_ns: Vec<u64>,
        calls: Vec<Call>,
    }

    impl Timeline {
        fn new(ranks: usize) -> Self {
            Self { now_ns: vec![0; ranks], waited_ns: vec![0; ranks], calls: Vec::new() }
        }

        fn work(&mut self, rank: u32, ns: i64) {
            self.now_ns[rank as usize] += ns;
        }

        /// Lets a rank wait until all of `sent` have been sent: by which rank, and when.
        fn receive(&mut self, rank: u32, number: u32, sent: &[(u32, i64)]) {
            let at = rank as usize;
            let entered_ns = self.now_ns[at];
            let (partner, until_ns) = *sent.iter().max_by_key(|(_, at_ns)| *at_ns).unwrap();
            let kind = Lateness::LateSender;
            let late = (until_ns > entered_ns).then_some(Late { partner, until_ns, kind });
            let left_ns = until_ns.max(entered_ns) + 1;
            self.calls.push(Call {
                rank,
                entered_ns,
                left_ns,
                waited_ns: self.waited_ns[at],
                losses: 1,
                weight: 1,
                number,
                late,
                lacks_ends: false,
            });
            self.waited_ns[at] += (left_ns - entered_ns) as u64;
            self.now_ns[at] = left_ns;
        }

        /// Records a send that does not wait.
        fn send(&mut self, rank: u32, number: u32) -> (u32, i64) {
            let now_ns = self.now_ns[rank as usize];
            let waited_ns = self.waited_ns[rank as usize];
            self.calls.push(Call {
                rank,
                entered_ns: now_ns,
                left_ns: now_ns,
                waited_ns,
                losses: 0,
                weight: 1,
                number,
                late: None,
                lacks_ends: false,
            });
            (rank, now_ns)
        }

        fn partners(mut self) -> LatePartners {
            self.calls.sort_by_key(|call| (call.rank, call.entered_ns, call.left_ns));
            LatePartners::new(self.calls)
        }
    }

    /// Returns a chain of ranks in which each receives, works and sends, 20 times.
    fn pipeline(work: impl Fn(u32, u32) -> i64) -> LatePartners {
        let mut timeline = Timeline::new(5);
        for step in 0..20 {
            let mut sent = None;
            for rank in 0..5 {
                if let Some(sent) = sent {
                    timeline.receive(rank, step, &[sent]);
                }
                timeline.work(rank, work(rank, step));
                sent = Some(timeline.send(rank, step));
            }
        }
        timeline.partners()
    }

    fn share(partners: &LatePartners, of: impl Fn(u32) -> bool) -> f64 {
        let origins = partners.origins(0);
        let ranks = origins.ranks();
        let ours: f64 = ranks.iter().filter(|(rank, _)| of(**rank)).map(|it| it.1).sum();
        ours / origins.whole_ns
    }

    #[test]
    fn a_pipeline_leads_to_its_slow_stage() {
        let slow_first = pipeline(|rank, _| if rank == 0 { 1000 } else { 200 });
        assert!(share(&slow_first, |rank| rank == 0) > 0.9, "{:?}", slow_first.origins(0).ranks());
        let reasons = slow_first.reasons(0);
        assert!(reasons.late_sender_ns > 0.98 * reasons.whole_ns(), "{reasons:?}");
        // Rank 2 takes longest; rank 1 waits for rank 0 a little.
        let slow_middle = pipeline(|rank, _| [300, 200, 1000, 200, 200][rank as usize]);
        assert!(share(&slow_middle, |rank| rank == 2) > 0.8, "{:?}", slow_middle.origins(0));
    }

    /// Rows of ranks that exchange messages with both neighbours in each step.
    fn halo(rows: u32, steps: u32, work: impl Fn(u32, u32) -> i64) -> LatePartners {
        let mut timeline = Timeline::new(rows as usize);
        for step in 0..steps {
            let sent: Vec<_> = (0..rows)
                .map(|row| {
                    timeline.work(row, work(row, step));
                    timeline.send(row, step)
                })
                .collect();
            for row in 0..rows {
                let near = [row.checked_sub(1), Some(row + 1).filter(|it| *it < rows)];
                let from: Vec<_> = near.into_iter().flatten().map(|it| sent[it as usize]).collect();
                timeline.receive(row, step, &from);
            }
        }
        timeline.partners()
    }

    #[test]
    fn a_slow_row_of_a_halo_is_found_also_when_it_changes() {
        let steady = halo(8, 40, |row, _| if row == 3 { 1000 } else { 200 });
        assert!(share(&steady, |row| row == 3) > 0.9, "{:?}", steady.origins(0).ranks());
        let changing = halo(8, 40, |row, step| if row == step / 8 + 1 { 1000 } else { 200 });
        assert!(share(&changing, |row| (1..=5).contains(&row)) > 0.9);
        for step in [4, 12, 20, 28, 36] {
            let origins = changing.origins(0);
            let of_step = &origins.steps[&step];
            let most = of_step.iter().max_by(|a, b| a.1.total_cmp(b.1)).unwrap();
            assert_eq!(*most.0, step / 8 + 1, "{of_step:?}");
        }
    }

    #[test]
    fn a_stage_lasts_from_a_receive_to_the_send_of_that_number() {
        // The first step fills the pipeline; only rank 0 does not receive.
        let stage_ns = pipeline(|rank, _| if rank == 0 { 100 } else { 300 }).stage_ns(0);
        assert_eq!(stage_ns, Some(300.0));
        // Ranks that send first are no stages.
        assert_eq!(halo(8, 40, |row, _| if row == 3 { 1000 } else { 200 }).stage_ns(0), None);
    }

    #[test]
    fn a_call_waits_for_the_partner_that_comes_last() {
        let waits = halo(5, 40, |row, _| if row == 2 { 1000 } else { 200 }).waits(0);
        let of = |rank: u32| -> Vec<u32> {
            let of_rank = waits.iter().filter(|((waiter, _), ns)| *waiter == rank && **ns > 0.0);
            of_rank.map(|((_, partner), _)| *partner).collect()
        };
        assert_eq!([of(0), of(1), of(3), of(4)], [vec![1], vec![2], vec![2], vec![3]]);
    }

    #[test]
    fn a_delay_through_calls_without_a_record_is_not_attributed() {
        let whole = pipeline(|rank, _| if rank == 0 { 1000 } else { 200 });
        let mut calls: Vec<Call> = whole.calls.values().flatten().cloned().collect();
        // Rank 1 waits as before, but of its waits only the counter tells.
        calls.retain(|call| call.rank != 1 || call.losses == 0);
        let lacking = LatePartners::new(calls);
        let ranks = lacking.origins(0).ranks();
        assert!(ranks.get(&1).copied().unwrap_or(0.0) < 0.1 * lacking.origins(0).whole_ns);
    }

    #[test]
    fn time_after_both_have_begun_is_transfer_or_unknown() {
        let call = |lacks_ends| Call {
            rank: 0,
            entered_ns: 0,
            left_ns: 100,
            waited_ns: 0,
            losses: 1,
            weight: 2,
            number: 0,
            late: Some(Late { partner: 1, until_ns: 30, kind: Lateness::LateReceiver }),
            lacks_ends,
        };
        let reasons = LatePartners::new(vec![call(false)]).reasons(0);
        assert_eq!((reasons.late_receiver_ns, reasons.transfer_ns), (60.0, 140.0));
        let reasons = LatePartners::new(vec![call(true)]).reasons(0);
        assert_eq!((reasons.late_receiver_ns, reasons.unknown_ns), (60.0, 140.0));
        assert_eq!(LatePartners::new(vec![call(true)]).reasons(1), Reasons::default());
    }
}
