//! Errors of reading and writing spools.

use std::fmt;
use std::io;

use plimsoll_wire::record::MAX_DEPTH;

use super::frame::MAX_RAW_BYTES;

/// Reason why the payload of a frame cannot be decoded: this version's writer has not made it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadError {
    /// The payload ends inside a value.
    Truncated,
    /// An integer does not fit its field.
    Overflow,
    /// A stack has more new frames than [`MAX_DEPTH`].
    TooDeep,
    /// No record has this shape byte.
    UnknownShape(u8),
    /// A frame of a stack is not among the ids that the payload lists.
    UnknownId,
    /// The payload is longer than its content.
    Leftover,
}

impl fmt::Display for PayloadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Truncated => write!(f, "a payload ends inside a value"),
            Self::Overflow => write!(f, "an integer does not fit its field"),
            Self::TooDeep => write!(f, "a stack has more than {MAX_DEPTH} new frames"),
            Self::UnknownShape(shape) => write!(f, "no record has shape {shape:#04x}"),
            Self::UnknownId => write!(f, "a stack has an id that is not listed"),
            Self::Leftover => write!(f, "a payload holds more than it says"),
        }
    }
}

impl std::error::Error for PayloadError {}

/// Reason why a spool, or a frame of it, cannot be read or written.
#[derive(Debug)]
pub enum SpoolError {
    /// The file could not be read or written.
    Io(io::Error),
    /// The file does not begin as a spool does.
    NotASpool,
    /// The spool is of a format that this build does not know.
    Version(u32),
    /// A frame's payload is not one.
    Payload(PayloadError),
    /// A value is larger than a frame may be: its size in bytes.
    TooLarge(usize),
    /// A value cannot be written as JSON, or a text is not the JSON of the expected value.
    Json(serde_json::Error),
}

impl fmt::Display for SpoolError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => {
                // The number of the error says the same again.
                let error = error.to_string();
                let reason = error.split(" (os error ").next().unwrap_or_default();
                write!(f, "the spool cannot be read or written: {reason}")
            }
            Self::NotASpool => {
                write!(f, "this is not a spool, or its first bytes are damaged: name another file")
            }
            Self::Version(version) => write!(
                f,
                "the spool has format {version}: read it with the version of Plimsoll that wrote it"
            ),
            Self::Payload(error) => write!(f, "{error}: skip this frame"),
            Self::TooLarge(bytes) => write!(
                f,
                "a value of {bytes} bytes is larger than the {MAX_RAW_BYTES} of a frame: split it"
            ),
            Self::Json(error) => write!(f, "the value and its JSON do not fit: {error}"),
        }
    }
}

impl std::error::Error for SpoolError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io(error) => Some(error),
            Self::Json(error) => Some(error),
            Self::Payload(error) => Some(error),
            _ => None,
        }
    }
}

impl From<io::Error> for SpoolError {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl From<PayloadError> for SpoolError {
    fn from(error: PayloadError) -> Self {
        Self::Payload(error)
    }
}

impl From<serde_json::Error> for SpoolError {
    fn from(error: serde_json::Error) -> Self {
        Self::Json(error)
    }
}
