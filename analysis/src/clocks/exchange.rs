//! How clocks stand to each other by messages sent back and forth, where synchronisations do not tell;
//! and to check what these tell.
//!
//! Each process measures against the one above it in the binary tree, and is told how that one stands
//! to the first: as many steps as the tree has levels, whatever the number of processes.

use std::time::{Duration, Instant};

use plimsoll_sys::clocks::clock_ns;

use crate::communicator::{Communicator, CommunicatorError};
use crate::input::Exchange;

/// Most questions that a process asks: the shortest way counts, and what delays one delays few of
/// its neighbours.
const QUESTIONS: u32 = 10;
/// How long it asks, where messages take long: as a rule because the cores are taken.
const PATIENCE: Duration = Duration::from_millis(20);

/// What a process asks of the one above it.
const ASK: u8 = 1;
const ENOUGH: u8 = 0;

/// Measures the clocks of all processes against process 0's. Collective.
pub fn exchange(comm: &dyn Communicator) -> Result<Exchange, CommunicatorError> {
    exchange_by(comm, &|| clock_ns(libc::CLOCK_MONOTONIC) as i64)
}

fn exchange_by(
    comm: &dyn Communicator,
    clock: &dyn Fn() -> i64,
) -> Result<Exchange, CommunicatorError> {
    let (rank, size) = (u64::from(comm.rank()), u64::from(comm.size()));
    let lowest_bit = if rank == 0 { size.next_power_of_two() } else { rank & rank.wrapping_neg() };
    let ours = match rank {
        0 => Exchange { at_ns: clock(), ahead_ns: 0, error_ns: 0 },
        _ => ask(comm, (rank - lowest_bit) as u32, clock)?,
    };
    let mut stride = lowest_bit / 2;
    while stride > 0 {
        if rank + stride < size {
            answer(comm, (rank + stride) as u32, clock, ours)?;
        }
        stride /= 2;
    }
    Ok(ours)
}

/// Asks the process above what its clock says.
fn ask(
    comm: &dyn Communicator,
    above: u32,
    clock: &dyn Fn() -> i64,
) -> Result<Exchange, CommunicatorError> {
    let begun = Instant::now();
    // Round trip, our clock in the middle of it, and theirs.
    let mut best: Option<(i64, i64, i64)> = None;
    for question in 0..QUESTIONS {
        if question > 0 && begun.elapsed() > PATIENCE {
            break;
        }
        let sent = clock();
        comm.send(above, &[ASK])?;
        let [theirs] = numbers(&comm.receive(above)?, above)?;
        let way = clock().saturating_sub(sent);
        if best.is_none_or(|(shortest, _, _)| way < shortest) {
            best = Some((way, sent.saturating_add(way / 2), theirs));
        }
    }
    comm.send(above, &[ENOUGH])?;
    let [ahead, error] = numbers(&comm.receive(above)?, above)?;
    let (way, ours, theirs) = best.unwrap_or_default();
    let ahead_ns = ahead.saturating_add(ours.saturating_sub(theirs));
    Ok(Exchange {
        at_ns: ours.saturating_sub(ahead_ns),
        ahead_ns,
        error_ns: (error as u64).saturating_add(way.unsigned_abs() / 2),
    })
}

/// Answers a process below.
fn answer(
    comm: &dyn Communicator,
    below: u32,
    clock: &dyn Fn() -> i64,
    ours: Exchange,
) -> Result<(), CommunicatorError> {
    while comm.receive(below)? == [ASK] {
        comm.send(below, &clock().to_le_bytes())?;
    }
    let told = [ours.ahead_ns, ours.error_ns as i64].map(i64::to_le_bytes);
    comm.send(below, told.as_flattened())
}

fn numbers<const N: usize>(bytes: &[u8], peer: u32) -> Result<[i64; N], CommunicatorError> {
    let (numbers, rest) = bytes.as_chunks::<8>();
    let numbers: Vec<i64> = numbers.iter().map(|bytes| i64::from_le_bytes(*bytes)).collect();
    numbers.try_into().ok().filter(|_| rest.is_empty()).ok_or_else(|| {
        let reason = format!("a clock's reading of {} bytes", bytes.len());
        CommunicatorError::Decode { peer, reason }
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::threads::run;

    #[test]
    fn clocks_that_are_apart_are_found_to_be_through_the_whole_tree() {
        let apart_ns =
            |rank: u32| i64::from(rank) * 3_700_000_000 - i64::from(rank % 3) * 250_000_000;
        for size in [1, 2, 3, 8, 13] {
            let found = run(size, |comm| {
                let clock = || clock_ns(libc::CLOCK_MONOTONIC) as i64 + apart_ns(comm.rank());
                exchange_by(comm, &clock).unwrap()
            });
            let now_ns = clock_ns(libc::CLOCK_MONOTONIC) as i64;
            for (rank, found) in (0..).zip(found) {
                let wrong_ns = found.ahead_ns.abs_diff(apart_ns(rank));
                assert!(wrong_ns <= found.error_ns, "{rank} of {size}: {found:?}");
                assert!(found.error_ns < 1_000_000_000, "{found:?}");
                // Told on the first one's clock, whose own reading begins the run.
                assert!((0..10_000_000_000).contains(&(now_ns - found.at_ns)), "{found:?}");
            }
        }
    }

    #[test]
    fn a_reading_of_another_length_is_named() {
        let error = numbers::<1>(&[0; 9], 4).unwrap_err();
        assert!(error.to_string().contains("9 bytes"), "{error}");
        assert_eq!(numbers::<2>(&[0; 16], 4), Ok([0, 0]));
    }
}
