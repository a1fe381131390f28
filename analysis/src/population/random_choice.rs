//! Random choice of ranks.

use crate::random::Random;

/// Brings `number` randomly chosen ranks to the front of a list and returns them, in random order:
/// the first steps of a Fisher-Yates shuffle. Each subset is equally likely.
pub fn chosen<'r>(ranks: &'r mut [u32], number: u32, random: &mut Random) -> &'r [u32] {
    let number = (number as usize).min(ranks.len());
    for at in 0..number {
        // With 64 bits, the remainder prefers no rank by more than 2^-32.
        let left = (ranks.len() - at) as u64;
        ranks.swap(at, at + (random.next() % left) as usize);
    }
    &ranks[..number]
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    /// Values of another implementation, for scripts that repeat the choice of a summary.
    #[test]
    fn the_choice_of_a_seed_can_be_repeated() {
        let mut random = Random::new(2_271_560_481);
        let (mut first, mut second) = ((0..12).collect::<Vec<_>>(), (12..16).collect::<Vec<_>>());
        assert_eq!(chosen(&mut first, 4, &mut random), [0, 9, 1, 3]);
        assert_eq!(chosen(&mut second, 2, &mut random), [13, 15]);
    }

    #[test]
    fn each_subset_is_equally_likely() {
        let mut random = Random::new(3);
        let mut times: BTreeMap<Vec<u32>, u32> = BTreeMap::new();
        for _ in 0..20_000 {
            let mut ranks = [0, 1, 2, 3, 4, 5];
            let mut subset = chosen(&mut ranks, 3, &mut random).to_vec();
            subset.sort_unstable();
            *times.entry(subset).or_default() += 1;
        }
        assert_eq!(times.len(), 20);
        // Expected are 1000 each, with a standard deviation of 31.
        assert!(times.values().all(|times| (850..1150).contains(times)), "{times:?}");
    }

    #[test]
    fn all_ranks_are_chosen_where_there_are_no_more() {
        let mut random = Random::new(4);
        let mut ranks = [7, 3, 5];
        let mut all = chosen(&mut ranks, 9, &mut random).to_vec();
        all.sort_unstable();
        assert_eq!(all, [3, 5, 7]);
        assert_eq!(chosen(&mut [], 2, &mut random), [0; 0]);
    }
}
