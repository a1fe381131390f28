//! The spool: what the collector of one node sees, streamed to one file while a job runs.
//!
//! ```text
//! SpoolWriter:  record -> thinning -> columns -> frame -> file
//!               ring of a thread, as it is -------> frame -> file: a journal
//! SpoolReader:  file -> index or scan -> frame -> columns -> record
//! ```
//!
//! Whatever kills the writer, and whenever, all frames before stay readable: a file only grows (a journal,
//! until it begins anew), and a frame needs no other one, but that of a ring. Whatever the bytes are, the
//! reader neither panics nor takes more memory than the file's size and one frame's bound allow; a damaged
//! byte costs the frame that holds it, and of a ring what comes before the next whole stack.
//!
//! # Format
//! Integers of fixed size are little-endian, checks are CRC-32 (IEEE).
//!
//! A *preamble* of 16 bytes: `PLIMSPOL`, the format's version (u32), check of the twelve bytes before.
//! Then *frames*, one after another:
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
//! - meta: JSON of one value, `meta.rs`;
//! - addresses: interned addresses of one process, in `addresses.rs`;
//! - records: records of one thread, in [`columns`];
//! - index: where the frames since the last index are, in `index.rs`;
//! - ring: records of one thread as they stood in its ring, whole ones that go on from those before. An
//!   empty payload says that some are lost there: what follows counts from the next whole stack on.
//!
//! A spool that was ended in order has an index frame last, and behind it a *trailer* of 16 bytes:
//! `f5 50 4c 45`, offset of that index frame (u64), check of the twelve bytes before. Each index leads
//! to the one before it, up to the preamble. If one is damaged or the trailer is missing, the reader
//! goes from header to header.

mod addresses;
pub mod columns;
mod error;
mod frame;
mod index;
pub(crate) mod meta;
mod numbers;
mod payload;
mod reader;
mod scan;
mod standing;
mod stored;
#[cfg(test)]
mod tests;
mod thinning;
mod thread;
mod writer;

pub use addresses::{Address, Addresses};
pub use error::{PayloadError, SpoolError};
pub use frame::{HEADER_BYTES, Kind, MAX_RAW_BYTES, Stream};
pub use index::FrameInfo;
pub use payload::Payload;
pub use reader::{Cause, Damage, Frame, SpoolReader, Step, Walk};
pub use writer::{Restart, SpoolCounts, SpoolWriter};

/// Version of the format. It has only grown since the first, so that older files are read as well.
pub const VERSION: u32 = 4;

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

/// Reads the preamble at the beginning of `bytes`; an error unless it is whole and of a known version.
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
