//! Messages of a process by raw context and partner, in bounded memory: beyond [`MAX_VALUES`]
//! pairs, the partners with the least wait time of a context become one, [`OTHER_PARTNERS`].

use std::collections::HashMap;

use plimsoll_wire::record::{OTHER_PARTNERS, PartnerMessages, UNKNOWN_PARTNER};

use crate::raw_tree::RawId;

/// Maximum number of pairs of a context and a partner.
const MAX_VALUES: usize = 1 << 14;

/// Messages by context and partner.
#[derive(Debug, Default)]
pub(crate) struct PartnerValues {
    values: HashMap<(RawId, u32), PartnerMessages>,
}

/// Returns the values of a partner without messages.
pub(crate) fn none_with(partner: u32) -> PartnerMessages {
    PartnerMessages { partner, ..PartnerMessages::default() }
}

impl PartnerValues {
    /// Adds messages in calls of a context.
    pub(crate) fn add(&mut self, node: RawId, messages: &PartnerMessages) {
        let key = (node, messages.partner);
        if self.values.len() >= MAX_VALUES && !self.values.contains_key(&key) {
            self.fold();
        }
        self.values.entry(key).or_insert(none_with(messages.partner)).add(messages);
    }

    /// Messages by ascending context and partner.
    pub(crate) fn sorted(&self) -> Vec<(RawId, PartnerMessages)> {
        let mut all: Vec<_> = self.values.iter().map(|((node, _), it)| (*node, *it)).collect();
        all.sort_unstable_by_key(|(node, it)| (*node, it.partner));
        all
    }

    /// Returns the memory in use, in bytes, roughly.
    pub(crate) fn bytes(&self) -> u64 {
        let each = size_of::<((RawId, u32), PartnerMessages)>() + 1;
        (self.values.capacity() * each) as u64
    }

    /// Makes one of those three quarters of all partners that are waited for least, and get least.
    fn fold(&mut self) {
        let mut all = self.sorted();
        all.retain(|(_, it)| !matches!(it.partner, OTHER_PARTNERS | UNKNOWN_PARTNER));
        all.sort_by_key(|(_, it)| (it.waited, it.bytes, it.sent, it.received));
        all.truncate(all.len() / 4 * 3);
        for (node, messages) in all {
            self.values.remove(&(node, messages.partner));
            let others = self.values.entry((node, OTHER_PARTNERS));
            others.or_insert(none_with(OTHER_PARTNERS)).add(&messages);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_too_many_partners_those_stay_that_are_waited_for_most() {
        let mut values = PartnerValues::default();
        let count = 2 * MAX_VALUES as u32;
        for partner in 0..count {
            let waited = if partner % 1000 == 7 { 1000 + u64::from(partner) } else { 1 };
            let it = PartnerMessages { partner, sent: 1, bytes: 8, received: 2, waited };
            values.add(partner % 3, &it);
        }
        let all = values.sorted();
        assert!(all.len() <= MAX_VALUES && values.bytes() < 4 << 20);
        let sum = |value: fn(&PartnerMessages) -> u64| all.iter().map(|(_, it)| value(it)).sum();
        let sums: [u64; 3] = [sum(|it| it.sent), sum(|it| it.bytes), sum(|it| it.received)];
        assert_eq!(sums, [1, 8, 2].map(|each| each * u64::from(count)), "nothing is lost");
        let slow = |it: &PartnerMessages| it.partner % 1000 == 7;
        let kept = all.iter().filter(|(_, it)| slow(it)).count();
        assert_eq!(kept, (0..count).filter(|partner| partner % 1000 == 7).count());
    }
}
