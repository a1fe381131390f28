//! Reasons why a process cannot be observed.

use core::ffi::c_int;

/// Reason why a process is not observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartError {
    /// The shared segment could not be created or mapped; errno.
    Segment(c_int),
    /// No file descriptor is left for the segment.
    Descriptors,
    /// The limit on the address space leaves too little; value: a sufficient limit, in bytes.
    AddressSpace(u64),
    /// The limit on the file size leaves no room for one thread; value: a sufficient size, in
    /// bytes.
    FileSize(usize),
}

impl core::fmt::Display for StartError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Segment(errno) => write!(
                f,
                "no shared memory for the measurement (errno {errno}); raise the limits on \
                address space and memory"
            ),
            Self::Descriptors => {
                write!(f, "no file descriptor is left for the measurement; raise `ulimit -n`")
            }
            Self::AddressSpace(bytes) => write!(
                f,
                "the limit on address space leaves no room for the measurement; raise `ulimit -v` \
                to {} or more",
                bytes.div_ceil(1024)
            ),
            Self::FileSize(bytes) => write!(
                f,
                "the limit on the size of files leaves no room for the measurement; raise `ulimit \
                -f` to {} or more",
                bytes.div_ceil(1024)
            ),
        }
    }
}

impl core::error::Error for StartError {}
