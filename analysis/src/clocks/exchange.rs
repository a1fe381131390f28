//! Compares clocks by messages sent back and forth: for clocks with too few synchronisations, and
//! as a check of the fits to synchronisations.
//!
//! Each process measures its clock against that of its parent in the binary tree, and receives the
//! parent's lead over process 0. The number of steps is the number of levels of the tree.

use std::time::{Duration, Instant};

use plimsoll_sys::posix_clocks::clock_ns;

use crate::communicator::{Communicator, CommunicatorError};
use crate::input::Exchange;

/// Maximum number of questions of a process. The shortest round trip is used; few successive
/// questions are delayed by the same disturbance.
const QUESTIONS: u32 = 10;
/// Maximum time that a process spends on questions if messages are slow, mostly because cores are
/// oversubscribed.
const TIMEOUT: Duration = Duration::from_millis(20);

/// Messages to the parent process: ask for its clock, or end the questions.
const ASK: u8 = 1;
const END: u8 = 0;

/// Measures the clocks of all processes against process 0's clock. Collective.
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

/// Asks the parent process for the reading of its clock.
fn ask(
    comm: &dyn Communicator,
    above: u32,
    clock: &dyn Fn() -> i64,
) -> Result<Exchange, CommunicatorError> {
    let begun = Instant::now();
    // Round-trip time, our clock in the middle of the round trip, and the parent's clock.
    let mut best: Option<(i64, i64, i64)> = None;
    for question in 0..QUESTIONS {
        if question > 0 && begun.elapsed() > TIMEOUT {
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
    comm.send(above, &[END])?;
    let [ahead, error] = numbers(&comm.receive(above)?, above)?;
    let (way, ours, theirs) = best.unwrap_or_default();
    let ahead_ns = ahead.saturating_add(ours.saturating_sub(theirs));
    Ok(Exchange {
        at_ns: ours.saturating_sub(ahead_ns),
        ahead_ns,
        error_ns: (error as u64).saturating_add(way.unsigned_abs() / 2),
    })
}

/// Answers a child process until it has asked enough.
fn answer(
    comm: &dyn Communicator,
    below: u32,
    clock: &dyn Fn() -> i64,
    ours: Exchange,
) -> Result<(), CommunicatorError> {
    while comm.receive(below)? == [ASK] {
        comm.send(below, &clock().to_le_bytes())?;
    }
    let message = [ours.ahead_ns, ours.error_ns as i64].map(i64::to_le_bytes);
    comm.send(below, message.as_flattened())
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
    use crate::thread_ranks::run;

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
                // `at_ns` is on process 0's clock, which is the test's own clock, to within the
                // error.
                let ago_ns = now_ns - found.at_ns + found.error_ns as i64;
                assert!((0..10_000_000_000).contains(&ago_ns), "{found:?}");
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
