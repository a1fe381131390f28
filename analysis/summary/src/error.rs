//! Errors of reading summaries and writing reports.

use std::io;
use std::path::PathBuf;

use crate::printable::{excerpt, path as shown};

/// Reason why a summary cannot be read or a report cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A file cannot be read.
    #[error("{} cannot be read: {}.", shown(path), reason(source))]
    Read {
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A file is no summary, or it is damaged.
    #[error(
        "This is not a summary that Plimsoll wrote, or it is damaged: {}. Expected a file named \
         *.plimsoll.json.",
        excerpt(reason)
    )]
    NotASummary {
        /// The defect, with line and column if they are known.
        reason: String,
    },
    /// A file is a summary of a schema version that this build does not read.
    #[error(
        "This summary has the schema \"{}\", but this version of Plimsoll reads \
         \"plimsoll-summary/1\". Use the version that wrote it.",
        excerpt(found)
    )]
    WrongSchema {
        /// The version in the file.
        found: String,
    },
    /// A file cannot be written.
    #[error("{} cannot be written: {}.", shown(path), reason(source))]
    Write {
        /// The file or directory.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// A report can be written neither to its target nor to the fallback directory.
    #[error("No report was written. {wanted} {fallback} {}", wanted.remedy())]
    NoPlace {
        /// The error at the target.
        #[source]
        wanted: Box<Error>,
        /// The error in the fallback directory.
        fallback: Box<Error>,
    },
}

impl Error {
    /// Returns a sentence that tells the user how to get the report or the spool written.
    pub fn remedy(&self) -> &'static str {
        match self {
            Self::Write { source, .. } if is_full(source) => {
                "Make room, or set PLIMSOLL_OUTPUT to a directory on another disk."
            }
            _ => "Set PLIMSOLL_OUTPUT to a directory that can be written.",
        }
    }
}

fn is_full(error: &io::Error) -> bool {
    matches!(error.kind(), io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded)
}

/// Returns the reason of an error in words, as the end of a sentence.
pub fn reason(error: &io::Error) -> String {
    let words = match error.kind() {
        io::ErrorKind::NotFound => "it does not exist",
        io::ErrorKind::StorageFull => "the disk is full",
        io::ErrorKind::QuotaExceeded => "the disk quota is used up",
        io::ErrorKind::PermissionDenied if error.raw_os_error().is_some() => "permission is denied",
        io::ErrorKind::ReadOnlyFilesystem => "the file system is read-only",
        io::ErrorKind::NotADirectory => "a part of its path is not a directory",
        io::ErrorKind::IsADirectory => "it is a directory",
        _ => return without_number(&error.to_string()),
    };
    words.to_owned()
}

/// Removes the error number from a system message; the words say the same.
fn without_number(message: &str) -> String {
    let words = message.rsplit_once(" (os error ").map_or(message, |(words, _)| words);
    words.trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn write(errno: i32) -> Error {
        Error::Write { path: "/scratch".into(), source: io::Error::from_raw_os_error(errno) }
    }

    #[test]
    fn reasons_are_words_without_repetition() {
        for (errno, words) in [
            (libc::ENOENT, "it does not exist"),
            (libc::EACCES, "permission is denied"),
            (libc::EISDIR, "it is a directory"),
            (libc::EIO, "Input/output error"),
        ] {
            assert_eq!(reason(&io::Error::from_raw_os_error(errno)), words);
            let read =
                Error::Read { path: "/x".into(), source: io::Error::from_raw_os_error(errno) };
            assert_eq!(read.to_string(), format!("/x cannot be read: {words}."));
        }
        let own = io::Error::new(io::ErrorKind::PermissionDenied, "another user owns it");
        assert_eq!(reason(&own), "another user owns it");
    }

    #[test]
    fn advice_fits_the_reason() {
        let nowhere = |errno| {
            let (wanted, fallback) = (Box::new(write(errno)), Box::new(write(libc::EACCES)));
            Error::NoPlace { wanted, fallback }.to_string()
        };
        assert!(nowhere(libc::ENOSPC).ends_with("directory on another disk."));
        assert!(nowhere(libc::EROFS).ends_with("a directory that can be written."));
    }
}
