//! Partner table: totals of a thread's messages by call path and partner, flushed as
//! [`Record::Partner`].
//!
//! The table lies in the segment, so that totals that were not yet flushed are not lost with the
//! thread. The table is flushed once a second with the next record, when it is nearly full, and
//! when the slot of a call path is evicted.

use core::sync::atomic::{AtomicU32, Ordering};

use crate::thread_state::{add_owned, store_owned};
use plimsoll_wire::record::PartnerMessages;
use plimsoll_wire::segment::{MAX_PARTNERS, PartnerCounters};

/// Maximum number of entries in use: beyond it, probe sequences become long.
const MAX_USED: u32 = MAX_PARTNERS as u32 / 4 * 3;

/// Number of bits that a hash is shifted right to give a place.
const PLACE_SHIFT: u32 = u64::BITS - MAX_PARTNERS.ilog2();

/// Key of an entry: call path and partner.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Pair {
    /// Slot of the call path in the region table.
    pub slot: u16,
    /// Rank of the partner among all ranks.
    pub partner: u32,
}

impl Pair {
    fn key(self) -> u64 {
        (u64::from(self.slot) + 1) << 32 | u64::from(self.partner)
    }

    fn of(key: u64) -> Option<Self> {
        let slot = u16::try_from((key >> 32).checked_sub(1)?).ok()?;
        Some(Self { slot, partner: key as u32 })
    }
}

/// Adds messages to a table with `used` entries; their wait time is in ticks. Returns false, and
/// adds nothing, if the table has no room.
#[inline(always)]
#[must_use]
pub fn add(
    entries: &[PartnerCounters; MAX_PARTNERS],
    used: &AtomicU32,
    slot: u16,
    messages: &PartnerMessages,
) -> bool {
    let key = Pair { slot, partner: messages.partner }.key();
    let home = (key.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> PLACE_SHIFT) as usize;
    let entry = match entries[home].key.load(Ordering::Relaxed) == key {
        true => &entries[home],
        false => match search(entries, used, key, home) {
            Some(entry) => entry,
            None => return false,
        },
    };
    // Most calls have only some of these, which are known when the call is compiled.
    if messages.sent != 0 {
        add_owned(&entry.sent, messages.sent);
        add_owned(&entry.bytes, messages.bytes);
    }
    if messages.received != 0 {
        add_owned(&entry.received, messages.received);
    }
    add_owned(&entry.waited, messages.waited);
    true
}

/// Finds or adds the entry of a key that does not stand at its `home`. Returns `None` if the table
/// has no room.
#[inline(never)]
fn search<'t>(
    entries: &'t [PartnerCounters; MAX_PARTNERS],
    used: &AtomicU32,
    key: u64,
    home: usize,
) -> Option<&'t PartnerCounters> {
    let mut place = home;
    // The search ends, since at most `MAX_USED` entries are in use.
    loop {
        let entry = &entries[place];
        let found = entry.key.load(Ordering::Relaxed);
        if found == key {
            return Some(entry);
        }
        if found == 0 {
            let before = used.load(Ordering::Relaxed);
            if before >= MAX_USED {
                return None;
            }
            store_owned(used, before + 1);
            entry.key.store(key, Ordering::Relaxed);
            return Some(entry);
        }
        place = (place + 1) % MAX_PARTNERS;
    }
}

/// Frees all entries of a table with `used` entries.
pub fn clear_all(entries: &[PartnerCounters; MAX_PARTNERS], used: &AtomicU32) {
    // Never used entries take no memory; reading them would allocate pages.
    if used.load(Ordering::Relaxed) > 0 {
        entries.iter().for_each(clear);
        store_owned(used, 0);
    }
}

/// Reads an entry: slot and messages, with the wait time in ticks. Returns `None` if the entry is
/// unused.
pub fn read(entry: &PartnerCounters) -> Option<(u16, PartnerMessages)> {
    let pair = Pair::of(entry.key.load(Ordering::Relaxed))?;
    let value = |counter: &core::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
    let messages = PartnerMessages {
        partner: pair.partner,
        sent: value(&entry.sent),
        bytes: value(&entry.bytes),
        received: value(&entry.received),
        waited: value(&entry.waited),
    };
    Some((pair.slot, messages))
}

/// Frees an entry.
pub fn clear(entry: &PartnerCounters) {
    if entry.key.load(Ordering::Relaxed) == 0 {
        return;
    }
    let counters = [&entry.key, &entry.sent, &entry.bytes, &entry.received, &entry.waited];
    for counter in counters {
        counter.store(0, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;
    use proptest::prelude::*;

    fn entries() -> Box<[PartnerCounters; MAX_PARTNERS]> {
        // SAFETY: zeros are unused entries.
        unsafe { Box::<[PartnerCounters; MAX_PARTNERS]>::new_zeroed().assume_init() }
    }

    type Sums = HashMap<(u16, u32), [u64; 4]>;

    fn write_out(entries: &[PartnerCounters; MAX_PARTNERS], used: &AtomicU32, into: &mut Sums) {
        for (slot, it) in entries.iter().filter_map(read) {
            let sums = into.entry((slot, it.partner)).or_default();
            let values = [it.sent, it.bytes, it.received, it.waited];
            sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
        }
        clear_all(entries, used);
    }

    proptest! {
        #[test]
        fn sums_are_those_of_a_map(
            steps in prop::collection::vec(
                (0u16..300, 0u32..600, 0u64..3, 0u64..3, 0u64..9),
                0..1200,
            ),
        ) {
            let (entries, used) = (entries(), AtomicU32::new(0));
            let (mut found, mut truth) = (Sums::new(), Sums::new());
            for (slot, partner, sent, received, waited) in steps {
                let slot = slot % 256;
                // Those of the highest numbers stand for no single rank.
                let partner = if partner > 598 { u32::MAX - partner % 2 } else { partner };
                let it = PartnerMessages { partner, sent, bytes: 8 * sent, received, waited };
                if !add(&entries, &used, slot, &it) {
                    write_out(&entries, &used, &mut found);
                    prop_assert!(add(&entries, &used, slot, &it));
                }
                let sums = truth.entry((slot, partner)).or_default();
                let values = [sent, 8 * sent, received, waited];
                sums.iter_mut().zip(values).for_each(|(sum, value)| *sum += value);
            }
            write_out(&entries, &used, &mut found);
            prop_assert_eq!(found, truth);
            prop_assert!(entries.iter().all(|entry| read(entry).is_none()));
        }
    }

    #[test]
    fn a_full_table_refuses_new_partners_and_takes_known_ones() {
        let (entries, used) = (entries(), AtomicU32::new(0));
        let to = |partner| PartnerMessages { partner, sent: 1, ..PartnerMessages::default() };
        for partner in 0..MAX_USED {
            assert!(add(&entries, &used, 3, &to(partner)));
        }
        assert!(!add(&entries, &used, 3, &to(u32::MAX)));
        assert!(add(&entries, &used, 3, &to(7)));
        let of_7 = entries.iter().filter_map(read).find(|(_, it)| it.partner == 7);
        assert_eq!(of_7, Some((3, PartnerMessages { sent: 2, ..to(7) })));
    }
}
