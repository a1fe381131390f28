//! The side file with the times of each rank: where its bytes go, and what the summary says of it.

use std::fmt;

use crate::Summary;
use crate::error::Error;

/// Last part of the name of the file.
pub const EXTENSION: &str = "ranks";

/// Where a table is kept.
pub trait Table {
    /// Puts bytes at a place; bytes between them and what is there already may come later.
    fn write_at(&mut self, offset: u64, bytes: &[u8]) -> Result<(), Error>;
    /// All bytes have come.
    fn finish(&mut self) -> Result<(), Error>;
    /// Some bytes will never come: there is to be no table.
    fn discard(&mut self);
    /// Writes a whole further file beside the table, with this extension in place of the table's.
    fn attach(&mut self, extension: &str, content: &[u8]) -> Result<(), Error>;
}

/// What a summary says where there is no table.
pub fn note(reason: &dyn fmt::Display) -> String {
    format!("The times of single ranks were not written. {reason}")
}

/// Takes the name of the table from those of all side files, or the reason why there are none.
pub fn name_in(summary: &mut Summary, files: Result<&[String], &Error>) {
    let is_table = |name: &&String| name.ends_with(&format!(".{EXTENSION}"));
    summary.per_rank.file = files.ok().and_then(|files| files.iter().find(is_table).cloned());
    if let Err(reason) = files {
        summary.notes.push(note(reason));
    }
}
