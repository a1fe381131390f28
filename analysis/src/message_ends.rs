//! Both ends of exemplary messages, brought together: where a rank waits, and when its partner
//! began to send or to receive.
//!
//! Each end is recorded by its own rank, with the number of the message in its channel, which is
//! equal at both ends (MPI-4.1, 3.5). Ends are thinned by a rule that depends only on properties
//! that both ends share, so that both ends of a message stay or go together.

use std::collections::BTreeMap;

use plimsoll_collector::profile::{ExemplaryMessage, NodeId, instance_level, message_level};
use serde::{Deserialize, Serialize};

use crate::clocks::Alignment;
use crate::rank::Rank;
use crate::thresholds::MAX_SIMULTANEOUS_FRACTION;

/// Maximum number of ends that a process holds.
const MAX_ENDS: usize = 1 << 14;
/// Binary logarithm of the number of successive ranks that form a block. Thinning keeps or removes
/// the messages between two blocks together.
const BLOCK_SHIFT: u32 = 6;

/// One end of a message. Times are nanoseconds on the reference clock since the begin of its run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct End {
    /// Rank at this end.
    pub rank: u32,
    /// Rank at the other end.
    pub partner: u32,
    /// Whether this end has sent the message.
    pub is_sent: bool,
    group: u32,
    tag: i32,
    /// Number of the message in its channel.
    pub number: u32,
    /// Begin of the call that sent or posted the message.
    pub posted_ns: i64,
    /// Begin of the call that completed the message.
    pub entered_ns: i64,
    /// Return of that call.
    pub left_ns: i64,
    /// Time that the rank had spent in point-to-point calls before that call.
    pub waited_ns: u64,
    /// Losses that show in the context of that call: bit i stands for loss i.
    pub losses: u32,
}

impl End {
    fn new(rank: u32, message: &ExemplaryMessage, losses: u32, at: impl Fn(u64) -> i64) -> Self {
        Self {
            rank,
            partner: message.partner,
            is_sent: message.is_sent,
            group: message.group,
            tag: message.tag,
            number: message.number,
            posted_ns: at(message.posted_ns),
            entered_ns: at(message.entered_ns),
            left_ns: at(message.left_ns),
            waited_ns: message.waited_ns,
            losses,
        }
    }

    /// Returns what both ends of a message have in common, except the direction.
    fn key(&self) -> (u32, u32, u32, u32, u32) {
        let (sender, receiver) = match self.is_sent {
            true => (self.rank, self.partner),
            false => (self.partner, self.rank),
        };
        (sender, receiver, self.group, ExemplaryMessage::class_of(self.tag), self.number)
    }

    /// Returns the level of the block of ranks that the message belongs to.
    fn block_level(&self) -> u32 {
        instance_level(u64::from(self.rank.min(self.partner) >> BLOCK_SHIFT))
    }
}

/// Ends of messages of some ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ends {
    /// Minimum [`message_level`] of the messages.
    level: u32,
    /// Minimum level of the blocks of ranks.
    block_level: u32,
    ends: Vec<End>,
}

impl Ends {
    /// Adds the messages of a rank. `shows` names the losses that show in a context. Adds nothing
    /// if the rank's clock is not aligned.
    pub fn add_rank(
        &mut self,
        rank: &Rank<'_>,
        alignment: &Alignment,
        shows: &BTreeMap<NodeId, Vec<usize>>,
    ) {
        let messages = &rank.input.profile.messages;
        let Some(clock) = alignment.clock(rank.input) else { return };
        self.level = self.level.max(messages.level);
        let losses = |node: &NodeId| {
            let shown = shows.get(node).into_iter().flatten();
            shown.fold(0, |bits, loss| bits | 1u32.checked_shl(*loss as u32).unwrap_or(0))
        };
        let end = |message: &ExemplaryMessage| {
            End::new(rank.input.rank, message, losses(&message.node), |ns| clock.reference_ns(ns))
        };
        self.ends.extend(messages.messages.iter().map(end));
        self.thin();
    }

    /// Adds the messages of other ranks.
    pub fn combine(&mut self, other: Self) {
        self.level = self.level.max(other.level);
        self.block_level = self.block_level.max(other.block_level);
        self.ends.extend(other.ends);
        self.thin();
    }

    /// Removes ends until at most [`MAX_ENDS`] remain, first by number, then by block of ranks.
    fn thin(&mut self) {
        loop {
            let (level, block_level) = (self.level, self.block_level);
            let is_kept =
                |end: &End| message_level(end.number) >= level && end.block_level() >= block_level;
            self.ends.retain(is_kept);
            if self.ends.len() <= MAX_ENDS {
                return;
            }
            let deeper = self.ends.iter().filter(|end| message_level(end.number) > level).count();
            match deeper >= MAX_ENDS / 4 || block_level == u64::BITS {
                true => self.level += 1,
                false => self.block_level += 1,
            }
            if self.level > u64::BITS {
                self.ends.clear();
            }
        }
    }

    /// Returns whether all exemplary messages of all ranks are here.
    pub fn are_all(&self) -> bool {
        self.level == 0 && self.block_level == 0
    }

    /// Returns the calls that completed the messages, in the order of rank and time. `error_ns` is
    /// the error of the clocks.
    pub fn calls(&self, error_ns: i64) -> Vec<Call> {
        let mut messages: BTreeMap<_, [Vec<&End>; 2]> = BTreeMap::new();
        for end in &self.ends {
            messages.entry(end.key()).or_default()[usize::from(end.is_sent)].push(end);
        }
        let mut calls: BTreeMap<(u32, i64, i64), Call> = BTreeMap::new();
        for [received, sent] in messages.values() {
            // A number that a rank has used twice belongs to channels of two threads.
            let is_pair = received.len() == 1 && sent.len() == 1 && received[0].tag == sent[0].tag;
            for (ours, theirs) in [(received, sent), (sent, received)] {
                for end in ours {
                    let other = theirs.first().filter(|_| is_pair).copied();
                    let call = calls.entry((end.rank, end.entered_ns, end.left_ns));
                    call.or_insert_with(|| Call::new(end)).add(end, other, error_ns);
                }
            }
        }
        calls.into_values().collect()
    }
}

/// Reason why a rank waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Lateness {
    /// The partner had not begun to send.
    LateSender,
    /// The partner had not begun to receive.
    LateReceiver,
}

/// Partner that came last.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Late {
    /// Rank of the partner.
    pub partner: u32,
    /// When it began to send or to receive.
    pub until_ns: i64,
    /// Reason of the delay.
    pub kind: Lateness,
}

/// A call that completed exemplary messages.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Call {
    /// Rank of the caller.
    pub rank: u32,
    /// Begin of the call, in nanoseconds on the reference clock.
    pub entered_ns: i64,
    /// Return of the call.
    pub left_ns: i64,
    /// Time that the rank had spent in point-to-point calls before.
    pub waited_ns: u64,
    /// Losses that show in the context of the call, as bits.
    pub losses: u32,
    /// Number of calls that this call stands for.
    pub weight: u64,
    /// Lowest number of its messages.
    pub number: u32,
    /// Partner that came last during the call; `None` if all known partners came before.
    pub late: Option<Late>,
    /// Whether the other end of a message is unknown.
    pub lacks_ends: bool,
}

impl Call {
    fn new(end: &End) -> Self {
        Self {
            rank: end.rank,
            entered_ns: end.entered_ns,
            left_ns: end.left_ns,
            waited_ns: end.waited_ns,
            losses: 0,
            weight: 1,
            number: end.number,
            late: None,
            lacks_ends: false,
        }
    }

    fn add(&mut self, end: &End, other: Option<&End>, error_ns: i64) {
        self.losses |= end.losses;
        self.weight = self.weight.max(ExemplaryMessage::stride_of(end.number));
        self.number = self.number.min(end.number);
        let Some(other) = other else {
            self.lacks_ends = true;
            return;
        };
        let until_ns = other.posted_ns;
        if until_ns > self.left_ns.saturating_add(error_ns) {
            // A message cannot arrive before it is sent: the numbers do not agree. A send can
            // return before the receive is posted; it did not wait for that.
            self.lacks_ends |= !end.is_sent;
            return;
        }
        let until_ns = until_ns.min(self.left_ns);
        let kind = match end.is_sent {
            true => Lateness::LateReceiver,
            false => Lateness::LateSender,
        };
        let late = Late { partner: other.rank, until_ns, kind };
        let is_last = self.late.is_none_or(|known| self.ends_wait(late, known, error_ns));
        if until_ns > self.entered_ns && is_last {
            self.late = Some(late);
        }
    }

    /// Returns whether the call waited for `late` rather than for `other`. A receive always needs
    /// its sender, but a send of few bytes does not need its receiver: of a send and a receive
    /// begun at nearly the same time, the call waited for the send.
    fn ends_wait(&self, late: Late, other: Late, error_ns: i64) -> bool {
        let is_much_later = |receiver: Late, sender: Late| {
            let late_ns = (receiver.until_ns - self.entered_ns) as f64;
            let nearly_ns = error_ns.max((MAX_SIMULTANEOUS_FRACTION * late_ns) as i64);
            receiver.until_ns - sender.until_ns > nearly_ns
        };
        match (late.kind, other.kind) {
            (Lateness::LateReceiver, Lateness::LateSender) => is_much_later(late, other),
            (Lateness::LateSender, Lateness::LateReceiver) => !is_much_later(other, late),
            _ => late.until_ns > other.until_ns,
        }
    }

    /// Returns the duration of the call in nanoseconds.
    pub fn duration_ns(&self) -> u64 {
        u64::try_from(self.left_ns - self.entered_ns).unwrap_or(0)
    }

    /// Returns the part of the duration in which the last partner had not come.
    pub fn late_ns(&self) -> u64 {
        let late_ns = self.late.map_or(0, |late| late.until_ns - self.entered_ns);
        u64::try_from(late_ns).unwrap_or(0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(rank: u32, partner: u32, is_sent: bool, number: u32, times: [i64; 3]) -> End {
        let [posted_ns, entered_ns, left_ns] = times;
        End {
            rank,
            partner,
            is_sent,
            group: 1,
            tag: 7,
            number,
            posted_ns,
            entered_ns,
            left_ns,
            waited_ns: 0,
            losses: 1,
        }
    }

    fn calls(ends: Vec<End>) -> Vec<Call> {
        Ends { ends, ..Ends::default() }.calls(0)
    }

    fn late(calls: &[Call], rank: u32) -> Option<(u32, i64, Lateness)> {
        let call = calls.iter().find(|call| call.rank == rank).unwrap();
        call.late.map(|late| (late.partner, late.until_ns, late.kind))
    }

    #[test]
    fn a_receiver_waits_for_a_late_sender_and_a_sender_for_a_late_receiver() {
        let found =
            calls(vec![end(0, 1, true, 3, [80, 80, 90]), end(1, 0, false, 3, [10, 10, 91])]);
        assert_eq!((late(&found, 0), late(&found, 1)), (None, Some((0, 80, Lateness::LateSender))));
        let found =
            calls(vec![end(0, 1, true, 3, [10, 10, 90]), end(1, 0, false, 3, [70, 70, 91])]);
        let expected = Some((1, 70, Lateness::LateReceiver));
        assert_eq!((late(&found, 0), late(&found, 1)), (expected, None));
        assert_eq!(found[0].late_ns(), 60);
    }

    #[test]
    fn a_wait_for_several_messages_is_one_for_the_last_partner() {
        let found = calls(vec![
            end(1, 0, false, 3, [5, 10, 91]),
            end(1, 2, false, 3, [5, 10, 91]),
            end(0, 1, true, 3, [8, 8, 9]),
            end(2, 1, true, 3, [85, 85, 86]),
        ]);
        assert_eq!(found.len(), 3);
        assert_eq!(late(&found, 1), Some((2, 85, Lateness::LateSender)));
    }

    #[test]
    fn a_partner_that_begins_to_send_and_to_receive_together_is_a_late_sender() {
        // Rank 0 exchanges messages with rank 1 and waits for both; rank 1 sends at 1000 ns.
        let found = |received_ns: i64| {
            let found = calls(vec![
                end(0, 1, true, 3, [5, 10, 1200]),
                end(0, 1, false, 3, [5, 10, 1200]),
                end(1, 0, true, 3, [1000, 1250, 1260]),
                end(1, 0, false, 3, [received_ns, 1250, 1260]),
            ]);
            late(&found, 0)
        };
        for received_ns in [990, 1000, 1020] {
            assert_eq!(found(received_ns), Some((1, 1000, Lateness::LateSender)), "{received_ns}");
        }
        assert_eq!(found(1150), Some((1, 1150, Lateness::LateReceiver)));
    }

    #[test]
    fn ends_that_contradict_each_other_are_unknown() {
        // Sent after it arrived; another tag; a number used twice; no other end.
        let arrived = end(1, 0, false, 3, [10, 10, 90]);
        let sent = end(0, 1, true, 3, [50, 50, 60]);
        let cases = [
            vec![arrived, end(0, 1, true, 3, [95, 95, 96])],
            vec![arrived, End { tag: 23, ..sent }],
            vec![arrived, sent, end(0, 1, true, 3, [20, 20, 30])],
            vec![arrived],
        ];
        for case in cases {
            let found = calls(case);
            let call = found.iter().find(|call| call.rank == 1).unwrap();
            assert!(call.lacks_ends && call.late.is_none(), "{call:?}");
        }
        assert!(!calls(vec![arrived, sent])[1].lacks_ends);
    }

    #[test]
    fn a_send_does_not_wait_for_a_receive_posted_after_its_return() {
        let found =
            calls(vec![end(0, 1, true, 3, [10, 10, 20]), end(1, 0, false, 3, [70, 70, 71])]);
        assert_eq!((late(&found, 0), found[0].lacks_ends), (None, false));
    }

    #[test]
    fn both_ends_of_a_message_are_thinned_alike() {
        let mut parts: Vec<Ends> = (0..8).map(|_| Ends::default()).collect();
        for rank in 0..4096u32 {
            let next = (rank + 1) % 4096;
            for number in 0..64 {
                parts[rank as usize / 512].ends.push(end(rank, next, true, number, [1, 1, 2]));
                parts[next as usize / 512].ends.push(end(next, rank, false, number, [1, 1, 3]));
            }
        }
        parts.iter_mut().for_each(Ends::thin);
        let mut all = Ends::default();
        parts.into_iter().for_each(|part| all.combine(part));
        assert!((MAX_ENDS / 64..=MAX_ENDS).contains(&all.ends.len()), "{}", all.ends.len());
        assert!(!all.are_all());
        assert!(all.calls(0).iter().all(|call| !call.lacks_ends));
    }
}
