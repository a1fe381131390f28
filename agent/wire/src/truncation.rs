//! Reasons for missing outer frames of a stack.

/// Reason why an unwind did not reach the outermost frame; its number indexes
/// [`crate::segment::Thread::truncated`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Truncation {
    /// No loaded file contains the code of a frame: generated code, a library that is being
    /// unloaded, or a stack that was overwritten.
    UnknownCode,
    /// The caller of a frame cannot be found: the file has no unwind table for this code, or the
    /// stack cannot be read.
    NoCaller,
    /// The stack is deeper than [`crate::record::MAX_DEPTH`] frames.
    TooDeep,
    /// The table of addresses is full.
    TableFull,
}

impl Truncation {
    /// Number of reasons.
    pub const COUNT: usize = 4;
}
