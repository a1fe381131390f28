//! What can go wrong outside the numbers: reading and writing files.

use std::fmt;
use std::io;
use std::path::PathBuf;

/// Why a summary could not be read or a report not be written.
#[derive(Debug)]
pub enum Error {
    /// A file cannot be read.
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A file is no summary, or is damaged.
    NotASummary {
        /// What is wrong, with line and column where they are known.
        reason: String,
    },
    /// A file is a summary of a version that this build does not know.
    WrongSchema {
        /// Its version.
        found: String,
    },
    /// A file cannot be written.
    Write {
        /// The file or directory.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
    /// A report can be written neither where it belongs nor in the directory for such cases.
    NoPlace {
        /// Why not where it belongs.
        wanted: Box<Error>,
        /// Why not in the other.
        fallback: Box<Error>,
    },
}

impl fmt::Display for Error {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Read { path, source } => {
                write!(formatter, "{} cannot be read: {source}.", path.display())
            }
            Self::NotASummary { reason } => write!(
                formatter,
                "This is not a summary that Plimsoll wrote, or it is damaged: {reason}. Expected \
                 a file named *.plimsoll.json."
            ),
            Self::WrongSchema { found } => write!(
                formatter,
                "This summary has the schema {found:?}, but this version of Plimsoll reads \
                 \"plimsoll-summary/1\". Use the version that wrote it."
            ),
            Self::Write { path, source } => {
                write!(formatter, "{} cannot be written: {}", path.display(), remedy(source))
            }
            Self::NoPlace { wanted, fallback } => write!(
                formatter,
                "No report was written. {wanted} {fallback} Set PLIMSOLL_OUTPUT to a directory \
                 that can be written."
            ),
        }
    }
}

impl std::error::Error for Error {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Read { source, .. } | Self::Write { source, .. } => Some(source),
            Self::NoPlace { wanted, .. } => Some(wanted),
            Self::NotASummary { .. } | Self::WrongSchema { .. } => None,
        }
    }
}

/// The reason in words, for the cases that users meet.
fn remedy(source: &io::Error) -> String {
    match source.kind() {
        io::ErrorKind::StorageFull => "the disk is full.".into(),
        io::ErrorKind::QuotaExceeded => "the disk quota is used up.".into(),
        io::ErrorKind::PermissionDenied => "permission is denied.".into(),
        io::ErrorKind::ReadOnlyFilesystem => "the file system is read-only.".into(),
        io::ErrorKind::NotADirectory => "a part of its path is not a directory.".into(),
        _ => format!("{source}."),
    }
}
