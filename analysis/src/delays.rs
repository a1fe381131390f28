//! Traces delays backwards from the waiting ranks to the ranks that compute meanwhile.
//!
//! A rank that is waited for may itself wait for another rank. Böhme, Geimer, Arnold, Voigtlaender
//! and Wolf (*Identifying the Root Causes of Wait States in Large-Scale Parallel Applications*, ACM
//! TOPC 3(2), 2016) trace each wait state of an event trace backwards. Here the sums over the run
//! are traced. Of the time that i waits for j, the part that j itself spends waiting is passed on
//! to the ranks that j waits for, in proportion; the remainder originates at j. A rank that in turn
//! waits for its own waiters, as neighbours in a halo exchange do, passes on the waiting that it
//! did not cause, until that waiting arrives at a rank that does not wait.

use std::collections::BTreeMap;

/// Time that the first rank of a pair waits for the second, in nanoseconds.
pub type Waits = BTreeMap<(u32, u32), f64>;

/// Propagation stops when the waiting still in motion is below this fraction of all waiting.
const MIN_FRACTION: f64 = 0.001;

/// Maximum number of propagation steps, per rank.
const STEPS_PER_RANK: usize = 8;

/// Returns the origins of the waiting `demand`, given `all` waiting between ranks: nanoseconds by
/// rank. Waiting that circulates without end is attributed to no rank.
pub fn origins(demand: &Waits, all: &Waits) -> BTreeMap<u32, f64> {
    let mut of: BTreeMap<u32, Vec<(u32, f64)>> = BTreeMap::new();
    for ((waiter, partner), ns) in all.iter().filter(|(_, ns)| **ns > 0.0) {
        of.entry(*waiter).or_default().push((*partner, *ns));
    }
    let waits_ns: BTreeMap<u32, f64> = of
        .iter()
        .map(|(waiter, for_whom)| (*waiter, for_whom.iter().map(|it| it.1).sum()))
        .collect();
    let own_wait_ns = |rank: u32| waits_ns.get(&rank).copied().unwrap_or(0.0);
    // Fraction of a pair's wait time that the partner passes on.
    let passed_on = |(waiter, partner): (u32, u32)| {
        let ns = all.get(&(waiter, partner)).copied().unwrap_or(0.0);
        if ns > 0.0 { (own_wait_ns(partner) / ns).min(1.0) } else { 0.0 }
    };
    let whole_ns: f64 = demand.values().sum();
    let mut begins: BTreeMap<u32, f64> = BTreeMap::new();
    let mut moving = demand.clone();
    // The longest chain without repetition contains all ranks; propagation among neighbours needs
    // more steps.
    for _ in 0..=STEPS_PER_RANK * of.len() {
        if moving.values().sum::<f64>() <= MIN_FRACTION * whole_ns {
            break;
        }
        let mut arrived: BTreeMap<u32, f64> = BTreeMap::new();
        for (pair, ns) in moving {
            let passed = passed_on(pair);
            *begins.entry(pair.1).or_default() += ns * (1.0 - passed);
            *arrived.entry(pair.1).or_default() += ns * passed;
        }
        moving = Waits::new();
        for (rank, ns) in arrived.into_iter().filter(|(_, ns)| *ns > 0.0) {
            for (partner, waited_ns) in of.get(&rank).into_iter().flatten() {
                *moving.entry((rank, *partner)).or_default() += ns * waited_ns / own_wait_ns(rank);
            }
        }
    }
    begins.retain(|_, ns| *ns > 0.0);
    begins
}

#[cfg(test)]
mod tests {
    use super::*;

    fn share(all: &Waits, rank: u32) -> f64 {
        let found = origins(all, all);
        found.get(&rank).copied().unwrap_or(0.0) / all.values().sum::<f64>()
    }

    #[test]
    fn a_pipeline_leads_to_its_slow_stage() {
        // Rank 0 takes 10 more than the others; each rank waits for its predecessor.
        let all: Waits = (1..8).map(|rank| ((rank, rank - 1), 10.0)).collect();
        assert!((share(&all, 0) - 1.0).abs() < 1e-9);
        // Rank 4 takes another 5: the ranks behind it wait for both.
        let all: Waits =
            (1..8).map(|rank| ((rank, rank - 1), if rank > 4 { 15.0 } else { 10.0 })).collect();
        let found = origins(&all, &all);
        assert!((found[&4] - 15.0).abs() < 1e-9, "{found:?}");
        assert!((found[&0] - 70.0).abs() < 1e-9, "{found:?}");
    }

    #[test]
    fn a_ring_leads_to_the_rank_that_waits_least() {
        let all: Waits = (0..6)
            .map(|rank| ((rank, (rank + 5) % 6), if rank == 3 { 0.5 } else { 10.0 }))
            .collect();
        assert!(share(&all, 3) > 0.9, "{}", share(&all, 3));
    }

    #[test]
    fn a_halo_leads_to_its_slow_row_although_calls_share_their_time() {
        // A periodic 4 x 4 grid: all ranks wait equally for their four neighbours, except the ranks
        // of row 1.
        let mut all = Waits::new();
        for (row, column) in (0..4).flat_map(|row| (0..4).map(move |column| (row, column))) {
            let of = |row: u32, column: u32| row % 4 * 4 + column % 4;
            let each_ns = if row == 1 { 0.1 } else { 2.5 };
            let neighbours = [
                of(row + 1, column),
                of(row + 3, column),
                of(row, column + 1),
                of(row, column + 3),
            ];
            neighbours
                .into_iter()
                .for_each(|it| *all.entry((of(row, column), it)).or_default() += each_ns);
        }
        let slow: f64 = (4..8).map(|rank| share(&all, rank)).sum();
        assert!(slow > 0.9, "{slow}");
    }

    #[test]
    fn even_waiting_begins_nowhere() {
        let all: Waits = (0..6).map(|rank| ((rank, (rank + 5) % 6), 10.0)).collect();
        assert!(origins(&all, &all).is_empty());
        assert!(origins(&Waits::new(), &all).is_empty());
    }
}
