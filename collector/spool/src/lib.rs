//! The spool: a file format for the records of a node's threads, written while a job runs.
//!
//! [`SpoolWriter`] takes records and appends compressed frames to a file; [`SpoolReader`] walks
//! over the frames of a file and returns their [`Payload`]s.
//!
//! ```text
//! SpoolWriter:  record -> thinning -> columns -> frame -> file
//!               ring of a thread, as it is -------> frame -> file: a journal
//! SpoolReader:  file -> index or scan -> frame -> columns -> record
//! ```
//!
//! # Design constraints
//! - All complete frames stay readable after the writer is killed at any instruction: a file only
//!   grows (a journal, until it restarts), and a frame depends on no other frame, except ring
//!   frames.
//! - The reader neither panics nor allocates more than the size of the file and the bound of one
//!   frame allow, for any bytes: spools come from crashed jobs and from other machines. A
//!   damaged byte costs the frame that contains it; in a ring, also the records before the next
//!   full stack.
//! - Meta values are JSON and optional keys have defaults, so that each version reads older files.
//! - The format knows records, not processes: the meaning of meta values is the writer's.
//!
//! # Format
//! Integers of fixed size are little-endian, checks are CRC-32 (IEEE).
//!
//! A *preamble* of 16 bytes: `PLIMSPOL`, the format's version (u32), check of the twelve bytes
//! before. Then *frames*, one after another:
//!
//! | bytes | what |
//! |---|---|
//! | 0..4 | `f5 50 4c 46`: never in UTF-8 |
//! | 4 | kind: 1 meta, 2 addresses, 3 records, 4 index, 5 ring |
//! | 5..8 | 0 |
//! | 8..12 | number of the stream: of several of one kind |
//! | 12..16 | sequence number of the frame in its stream, from 0 on: a gap shows what is lost |
//! | 16..20 | bytes of the payload before compression: at most [`MAX_RAW_BYTES`] |
//! | 20..24 | bytes of the payload after compression |
//! | 24..28 | check of the payload after compression |
//! | 28..32 | check of the bytes 0..28 |
//! | 32.. | payload: one zstd frame that says its content's size |
//!
//! Payloads:
//! - meta: JSON of one value, chosen by the writer;
//! - addresses: interned addresses of one process, in `address_columns.rs`;
//! - records: records of one thread, in [`columns`];
//! - index: where the frames since the last index are, in `index.rs`;
//! - ring: records of one thread as they stood in its ring, whole ones that go on from those
//!   before. An empty payload says that some are lost there: what follows counts from the next
//!   whole stack on.
//!
//! A spool that was ended in order has an index frame last, and behind it a *trailer* of 16 bytes:
//! `f5 50 4c 45`, offset of that index frame (u64), check of the twelve bytes before. Each index
//! leads to the one before it, up to the preamble. If one is damaged or the trailer is missing, the
//! reader goes from header to header.

#![forbid(unsafe_code)]

mod address_columns;
mod checkpoint;
pub mod columns;
mod frame;
mod index;
mod numbers;
mod payload;
mod reader;
mod scan;
mod spool_error;
mod stored;
#[cfg(test)]
mod tests;
mod thinning;
mod thread_stream;
mod writer;

pub use address_columns::{Address, Addresses};
pub use frame::{HEADER_BYTES, Kind, MAX_RAW_BYTES, Stream};
pub use index::FrameInfo;
pub use payload::Payload;
pub use reader::{Cause, Damage, Frame, SpoolReader, Step, Walk};
pub use spool_error::{PayloadError, SpoolError};
pub use writer::{Restart, SpoolCounts, SpoolWriter};

/// Version of the format. It has only grown since the first, so that older files are read as well.
pub const VERSION: u32 = 6;

/// Bytes of the preamble.
const PREAMBLE_BYTES: usize = 16;

const MAGIC: [u8; 8] = *b"PLIMSPOL";

fn preamble() -> [u8; PREAMBLE_BYTES] {
    let mut bytes = [0; PREAMBLE_BYTES];
    bytes[..8].copy_from_slice(&MAGIC);
    bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
    let check = crc32fast::hash(&bytes[..12]);
    bytes[12..].copy_from_slice(&check.to_le_bytes());
    bytes
}

/// Returns the version in the preamble at the beginning of `bytes`; an error unless it is whole and
/// known.
fn version(bytes: &[u8]) -> Result<(), SpoolError> {
    let bytes: &[u8; PREAMBLE_BYTES] = bytes.first_chunk().ok_or(SpoolError::NotASpool)?;
    let (checked, check) = bytes.split_last_chunk().ok_or(SpoolError::NotASpool)?;
    if !checked.starts_with(&MAGIC) || u32::from_le_bytes(*check) != crc32fast::hash(checked) {
        return Err(SpoolError::NotASpool);
    }
    let version = checked.last_chunk().ok_or(SpoolError::NotASpool)?;
    match u32::from_le_bytes(*version) {
        1..=VERSION => Ok(()),
        version => Err(SpoolError::Version(version)),
    }
}
