//! Why a payload could not be read on.

use std::fmt;

use plimsoll_agent::record::MAX_DEPTH;

/// Why the payload of a frame could not be read on: it was not made by this version's writer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PayloadError {
    /// It ends inside a value.
    Truncated,
    /// An integer does not fit its field.
    Overflow,
    /// A stack has more new frames than [`MAX_DEPTH`].
    TooDeep,
    /// No record has this shape byte.
    UnknownShape(u8),
    /// A frame of a stack is not among the ids that the payload lists.
    UnknownId,
    /// It holds more than it says.
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
