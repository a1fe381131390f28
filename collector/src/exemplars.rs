//! Exemplary messages of a process, in bounded memory: beyond [`MAX_MESSAGES`], messages in blocks
//! with the highest levels are kept. The level is the same at both ends of a message.

use plimsoll_agent::channels::BLOCK_SHIFT;
use plimsoll_wire::record::Message;

use crate::profile::instance_level;
use crate::raw_tree::RawId;

/// Maximum number of messages kept.
const MAX_MESSAGES: usize = 4096;

/// Exemplary messages, with the contexts of the calls that completed them.
#[derive(Debug, Default)]
pub(crate) struct Exemplars {
    level: u32,
    kept: Vec<(RawId, Message)>,
}

/// Returns the level of the block that a message belongs to.
pub fn level_of(number: u32) -> u32 {
    instance_level(u64::from(number >> BLOCK_SHIFT))
}

impl Exemplars {
    /// Adds a message completed by a call of a context.
    pub(crate) fn offer(&mut self, node: RawId, message: &Message) {
        if level_of(message.number) < self.level {
            return;
        }
        self.kept.push((node, *message));
        // Many channels with few messages each keep one number at all levels.
        while self.kept.len() > MAX_MESSAGES {
            self.level += 1;
            let level = self.level;
            self.kept.retain(|(_, message)| level_of(message.number) >= level);
            if self.level == u64::BITS {
                self.kept.clear();
            }
        }
    }

    /// Returns the level that the kept messages have at least.
    pub(crate) fn level(&self) -> u32 {
        self.level
    }

    /// Returns the messages in the order in which they were completed on each thread.
    pub(crate) fn kept(&self) -> &[(RawId, Message)] {
        &self.kept
    }

    /// Returns the approximate memory use in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        (self.kept.capacity() * size_of::<(RawId, Message)>()) as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_ends_keep_the_same_messages() {
        let with = |partners: u32| {
            let mut exemplars = Exemplars::default();
            for number in 0..10_000 {
                for partner in 0..partners {
                    exemplars.offer(1, &Message { number, partner, ..Message::default() });
                }
            }
            exemplars
        };
        let (few, many) = (with(1), with(5));
        assert!(few.level() < many.level() && many.kept().len() <= MAX_MESSAGES);
        let numbers = |it: &Exemplars| -> Vec<u32> {
            let of_0 = it.kept().iter().filter(|(_, message)| message.partner == 0);
            let numbers = of_0.map(|(_, message)| message.number);
            numbers.filter(|number| level_of(*number) >= many.level()).collect()
        };
        assert!(!numbers(&many).is_empty());
        assert_eq!(numbers(&few), numbers(&many));
        assert!(many.bytes() < 1 << 20);
    }

    #[test]
    fn one_number_on_many_channels_does_not_fill_memory() {
        let mut exemplars = Exemplars::default();
        (0..3 * MAX_MESSAGES as u32).for_each(|partner| {
            exemplars.offer(1, &Message { partner, ..Message::default() });
        });
        assert!(exemplars.kept().len() <= MAX_MESSAGES);
    }
}
