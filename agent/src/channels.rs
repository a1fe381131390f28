//! Channels: numbers the messages of a thread per channel, and chooses the exemplary messages that
//! are recorded with their times.
//!
//! MPI delivers the messages of one sender to one receiver in order if communicator and tag are
//! equal (MPI-4.1, 3.5): the k-th message sent is the k-th message received. Both ends number
//! their messages and choose exemplary ones by the number alone, so that both record the same
//! messages without communication. Blocks of successive messages are chosen, so that a delay can
//! be followed from one message to the next.

use core::mem::offset_of;
use core::ops::Range;

/// Number of entries of the table, a power of two.
const PLACES: usize = 1024;
/// Number of bits that a hash is shifted right to give a place.
const PLACE_SHIFT: u32 = u64::BITS - PLACES.ilog2();
/// Maximum number of channels of a thread. Messages of further channels are not exemplary.
const MAX_CHANNELS: u32 = PLACES as u32 / 4 * 3;
/// Tags of one channel are equal modulo this number.
pub const TAG_CLASSES: u32 = 16;
/// Binary logarithm of the number of successive messages that are chosen together.
pub const BLOCK_SHIFT: u32 = 3;
/// Binary logarithm of the number of blocks chosen among the first 2^n blocks each time n grows by
/// one.
const BLOCKS_SHIFT: u32 = 2;

/// Direction of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// This thread sends.
    Sent,
    /// This thread receives.
    Received,
}

/// Key of a channel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Channel {
    /// Direction of its messages.
    pub direction: Direction,
    /// Rank of the partner among all ranks.
    pub partner: u32,
    /// Number of the communicator among those with known ranks, less than 2^16.
    pub communicator: u32,
    /// Tag of a message; tags that are equal modulo [`TAG_CLASSES`] share a channel.
    pub tag: i32,
}

impl Channel {
    /// Returns the key in the table, never 0.
    #[inline(always)]
    fn key(self) -> u64 {
        let class = u64::from(self.tag as u32 % TAG_CLASSES);
        let direction = self.direction as u64;
        let communicator = u64::from(self.communicator & 0xffff);
        1 << 63 | direction << 52 | class << 48 | communicator << 32 | u64::from(self.partner)
    }
}

#[derive(Clone, Copy)]
struct Place {
    /// Key of the channel; 0: free.
    key: u64,
    /// Number of messages so far.
    messages: u32,
    /// Number of the next exemplary message; [`BROKEN`] if the numbering no longer agrees with that
    /// of the other end.
    exemplary: u32,
}

/// Number that no exemplary message has.
const BROKEN: u32 = u32::MAX;

impl Place {
    /// Takes the number of the next exemplary message; `None` if there are no more.
    #[cold]
    fn take_exemplary(&mut self, number: u32) -> Option<u32> {
        if number == BROKEN {
            return None;
        }
        self.exemplary = exemplary_after(number);
        Some(number)
    }
}

/// A thread's channels. Zeroed memory has none.
pub struct Channels {
    places: [Place; PLACES],
    used: u32,
    /// Number of times that the measurement was resumed: each time all numbers begin anew.
    pub epoch: u32,
    /// Time in calls of point-to-point communication so far, in time stamp counter ticks.
    pub waited: u64,
    /// Whether messages arrived from unknown senders or with unknown tags, so that received
    /// messages cannot be numbered.
    lacks_receives: bool,
}

impl Channels {
    /// Bytes of a table without channels that need no initial value: the places of such a table
    /// have no keys.
    pub(crate) const UNREAD: Range<usize> =
        offset_of!(Self, places)..offset_of!(Self, places) + size_of::<[Place; PLACES]>();

    /// Takes the number of the next message of a channel. Returns the number if the message is
    /// exemplary.
    #[inline(always)]
    pub fn next(&mut self, channel: Channel) -> Option<u32> {
        let place = self.find(channel.key())?;
        let number = place.messages;
        // After 2^32 messages no further one is exemplary.
        place.messages = number.wrapping_add(1);
        if number != place.exemplary {
            return None;
        }
        let number = place.take_exemplary(number)?;
        (channel.direction == Direction::Sent || !self.lacks_receives).then_some(number)
    }

    /// Chooses no more messages of a channel: a message was cancelled, so that the numbers of both
    /// ends may differ.
    pub fn break_off(&mut self, channel: Channel) {
        if let Some(place) = self.find(channel.key()) {
            place.exemplary = BROKEN;
        }
    }

    /// Chooses no more received messages: a message has arrived on an unknown channel.
    pub fn miss_receive(&mut self) {
        self.lacks_receives = true;
    }

    /// Numbers all messages anew, after messages were not measured.
    pub fn restart(&mut self) {
        self.clear();
        self.epoch = self.epoch.wrapping_add(1);
    }

    /// Returns whether the table holds channels.
    pub(crate) fn is_used(&self) -> bool {
        self.used > 0
    }

    /// Forgets all channels.
    pub fn clear(&mut self) {
        if self.used > 0 {
            self.places.iter_mut().for_each(|place| place.key = 0);
            self.used = 0;
        }
        self.lacks_receives = false;
    }

    #[inline(always)]
    fn find(&mut self, key: u64) -> Option<&mut Place> {
        let home = home(key);
        if self.places[home].key == key {
            return Some(&mut self.places[home]);
        }
        self.search(key, home)
    }

    /// Finds or adds a channel that does not stand at its `home`.
    #[inline(never)]
    fn search(&mut self, key: u64, home: usize) -> Option<&mut Place> {
        let mut at = home;
        // The search ends, since at most `MAX_CHANNELS` places are in use.
        loop {
            let found = self.places[at].key;
            if found == key {
                break;
            }
            if found == 0 {
                if self.used == MAX_CHANNELS {
                    return None;
                }
                self.used += 1;
                self.places[at] = Place { key, messages: 0, exemplary: 0 };
                break;
            }
            at = (at + 1) % PLACES;
        }
        Some(&mut self.places[at])
    }
}

/// Returns the place where a key stands if no other key has taken it.
#[inline(always)]
fn home(key: u64) -> usize {
    // The upper bits of the product: only they depend on all bits of the key.
    (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> PLACE_SHIFT) as usize
}

/// Returns the number of messages that an exemplary message stands for: the first 64 messages of a
/// channel are all exemplary, and a quarter of the blocks or less of each later range.
pub fn stride(number: u64) -> u64 {
    let block = number >> BLOCK_SHIFT;
    1 << block.checked_ilog2().unwrap_or(0).saturating_sub(BLOCKS_SHIFT)
}

/// Returns the number of the exemplary message that follows an exemplary message in its channel.
fn exemplary_after(number: u32) -> u32 {
    let next = u64::from(number) + 1;
    let block = (next >> BLOCK_SHIFT).next_multiple_of(stride(next));
    let first = block << BLOCK_SHIFT;
    // The whole block is exemplary.
    u32::try_from(first.max(next)).unwrap_or(BROKEN)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use proptest::prelude::*;

    fn channels() -> Box<Channels> {
        // SAFETY: zeros are no channels.
        unsafe { Box::<Channels>::new_zeroed().assume_init() }
    }

    /// Returns whether a message is exemplary, given its number in its channel.
    fn is_exemplary(number: u32) -> bool {
        let block = number >> BLOCK_SHIFT;
        block < 1 << (BLOCKS_SHIFT + 1) || u64::from(block) & (stride(number.into()) - 1) == 0
    }

    #[test]
    fn the_next_exemplary_message_is_the_next_by_the_rule() {
        let mut next = 0;
        for number in 0..1 << 20 {
            if is_exemplary(number) {
                assert_eq!(number, next);
                next = exemplary_after(number);
            }
        }
        assert_eq!(exemplary_after(u32::MAX - 1), BROKEN);
    }

    fn channel(partner: u32, tag: i32) -> Channel {
        Channel { direction: Direction::Sent, partner, communicator: 1, tag }
    }

    #[test]
    fn exemplary_messages_stand_for_all_and_grow_with_the_logarithm() {
        for count in [1u32, 64, 1000, 4096, 100_000, 1 << 20] {
            let exemplary: Vec<u32> = (0..count).filter(|number| is_exemplary(*number)).collect();
            let all: u64 = exemplary.iter().map(|number| stride((*number).into())).sum();
            assert!(all.abs_diff(count.into()) <= u64::from(count) / 4, "{all} of {count}");
            assert!(exemplary.len() <= 64 + 32 * (count.ilog2() as usize), "{count}");
        }
        assert!((0..64).all(is_exemplary));
        let block = |at| (at..at + 8).all(is_exemplary);
        assert!(block(1 << 19) && !is_exemplary((1 << 19) + 8));
    }

    #[test]
    fn channels_of_a_partner_have_different_places() {
        for partner in 0..100 {
            let received = Channel { direction: Direction::Received, ..channel(partner, 0) };
            let elsewhere = Channel { communicator: 2, ..channel(partner, 0) };
            let of = |it: Channel| home(it.key());
            let first = of(channel(partner, 0));
            let others = [received, elsewhere, channel(partner, 1), channel(partner, 8)].map(of);
            assert!(!others.contains(&first), "{partner}: {first} {others:?}");
        }
    }

    #[test]
    fn wildcards_of_unknown_senders_end_the_numbering_of_receives_alone() {
        let mut channels = channels();
        let received = Channel { direction: Direction::Received, ..channel(3, 5) };
        assert_eq!([channels.next(received), channels.next(channel(3, 5))], [Some(0); 2]);
        channels.miss_receive();
        assert_eq!([channels.next(received), channels.next(channel(3, 5))], [None, Some(1)]);
        channels.restart();
        assert_eq!((channels.next(received), channels.epoch), (Some(0), 1));
        channels.break_off(received);
        assert_eq!(channels.next(received), None);
    }

    proptest! {
        #[test]
        fn numbers_are_those_of_a_map(
            steps in prop::collection::vec((0u32..2000, 0i32..40), 0..3000),
        ) {
            let (mut channels, mut truth) = (channels(), HashMap::<(u32, i32), u32>::new());
            for (partner, tag) in steps {
                let known = truth.len() as u32;
                let key = (partner, tag % TAG_CLASSES as i32);
                if known == MAX_CHANNELS && !truth.contains_key(&key) {
                    prop_assert_eq!(channels.next(channel(partner, tag)), None);
                    continue;
                }
                let number = truth.entry(key).or_default();
                let expected = is_exemplary(*number).then_some(*number);
                prop_assert_eq!(channels.next(channel(partner, tag)), expected);
                *number += 1;
            }
        }
    }
}
