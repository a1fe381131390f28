//! Errors of reading and writing spools.

use std::io;

use plimsoll_wire::record::MAX_DEPTH;

use super::frame::MAX_RAW_BYTES;

/// Reason why the payload of a frame cannot be decoded: this version's writer has not made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PayloadError {
    /// The payload ends inside a value.
    #[error("a payload ends inside a value")]
    Truncated,
    /// An integer does not fit its field.
    #[error("an integer does not fit its field")]
    Overflow,
    /// A stack has more new frames than [`MAX_DEPTH`].
    #[error("a stack has more than {MAX_DEPTH} new frames")]
    TooDeep,
    /// No record has this shape byte.
    #[error("no record has shape {0:#04x}")]
    UnknownShape(u8),
    /// A frame of a stack is not among the ids that the payload lists.
    #[error("a stack has an id that is not listed")]
    UnknownId,
    /// The payload is longer than its content.
    #[error("a payload holds more than it says")]
    Leftover,
}

/// Reason why a spool, or a frame of it, cannot be read or written.
#[derive(Debug, thiserror::Error)]
pub enum SpoolError {
    /// The file could not be read or written.
    #[error("the spool cannot be read or written: {}", without_number(.0))]
    Io(#[from] io::Error),
    /// The file does not begin as a spool does.
    #[error("this is not a spool, or its first bytes are damaged: name another file")]
    NotASpool,
    /// The spool is of a format that this build does not know.
    #[error("the spool has format {0}: read it with the version of Plimsoll that wrote it")]
    Version(u32),
    /// A frame's payload is not one.
    #[error("{0}: skip this frame")]
    Payload(#[from] PayloadError),
    /// A value is larger than a frame may be: its size in bytes.
    #[error("a value of {0} bytes is larger than the {MAX_RAW_BYTES} of a frame: split it")]
    TooLarge(usize),
    /// A value cannot be written as JSON, or a text is not the JSON of the expected value.
    #[error("the value and its JSON do not fit: {0}")]
    Json(#[from] serde_json::Error),
}

/// Returns the message of an error without its number, which says the same again.
fn without_number(error: &io::Error) -> String {
    let error = error.to_string();
    error.split(" (os error ").next().unwrap_or_default().to_owned()
}
