//! Why a process cannot be observed.

use core::ffi::c_int;

/// Why a process is not observed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StartError {
    /// The shared segment could not be created or mapped; errno.
    Segment(c_int),
    /// No descriptor is left for it.
    Descriptors,
}

impl core::fmt::Display for StartError {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        match self {
            Self::Segment(errno) => write!(
                f,
                "no shared memory for the measurement (errno {errno}); raise the limits on address space and memory"
            ),
            Self::Descriptors => {
                write!(f, "no file descriptor is left for the measurement; raise `ulimit -n`")
            }
        }
    }
}

impl core::error::Error for StartError {}
