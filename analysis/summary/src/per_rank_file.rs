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
}

/// What a summary says where there is no table.
pub fn note(reason: &dyn fmt::Display) -> String {
    format!("The times of single ranks were not written. {reason}")
}

/// Says in a summary what the file of the table is called, or why there is none.
pub fn name_in(summary: &mut Summary, file: Result<Option<&str>, &Error>) {
    summary.per_rank.file = file.ok().flatten().map(str::to_owned);
    if let Err(reason) = file {
        summary.notes.push(note(reason));
    }
}
