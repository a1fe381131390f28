//! Sequences of messages that fail on all ranks or on none, so that no rank waits for a failed one.
//!
//! A rank that fails between its messages tells all other ranks that it has left. A rank that waits
//! for a message of that rank then fails in turn. All ranks meet at the end; until then each rank
//! receives and discards the messages that are still on their way, so that no send blocks.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::communicator::{Communicator, broadcast, reduce};

use super::mpi_communicator::{MpiCommunicator, MpiError};

/// The reason that other ranks receive for a panic; the panicking rank logs the details.
pub const PANIC: &str = "an error of our own";

/// Runs `work`, which may send and receive among the ranks of `all` and of `parts` of it, but must
/// not call MPI's collective functions. If it fails on one rank or panics, it fails on all.
/// Collective over `all`.
pub fn jointly<T>(
    all: &MpiCommunicator,
    parts: &[&MpiCommunicator],
    work: impl FnOnce() -> Result<T, String>,
) -> Result<T, String> {
    let result = catch_unwind(AssertUnwindSafe(work)).unwrap_or_else(|_| Err(PANIC.to_owned()));
    let everywhere = || parts.iter().copied().chain([all]);
    if result.is_err() {
        everywhere().for_each(MpiCommunicator::leave);
    }
    let met = all.wait_for_all(&mut || {
        everywhere().for_each(MpiCommunicator::discard);
        true
    });
    // Receive the messages of ranks that left, even if no rank waited for them.
    everywhere().for_each(MpiCommunicator::discard);
    everywhere().for_each(MpiCommunicator::begin_anew);
    agreed(all, met.map_err(|error| error.to_string()).and(result))
}

/// Returns the result if all ranks have one, else the error of another rank. Collective.
pub fn agreed<T>(all: &MpiCommunicator, result: Result<T, String>) -> Result<T, String> {
    let failure = result.as_ref().err().map(|reason| format!("rank {}: {reason}", all.rank()));
    let first = reduce(all, failure, Option::or);
    match broadcast(all, first) {
        Ok(None) => result,
        Ok(Some(reason)) => Err(reason),
        Err(error) => Err(error.to_string()),
    }
}

/// Like [`agreed`], for a communicator that all ranks have made together.
pub fn all_made(
    all: &MpiCommunicator,
    made: Result<MpiCommunicator, MpiError>,
) -> Result<MpiCommunicator, String> {
    agreed(all, made.map_err(|error| error.to_string()))
}
