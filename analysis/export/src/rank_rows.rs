//! Inclusive times of single ranks, from the file beside the summary.

use std::fs::File;

use plimsoll_summary::per_rank_file::{INCLUSIVE, RankTable};
use plimsoll_summary::ranks::RankSet;

use crate::ExportError;

/// The times of single ranks in a file. Rows are read one at a time, when they are asked for.
#[derive(Debug)]
pub struct RankRows {
    table: RankTable,
    /// Index of the inclusive times among the quantities.
    inclusive: usize,
}

impl RankRows {
    /// Reads the lists of a side file. `contexts` is the number of nodes in the summary's tree.
    ///
    /// # Errors
    /// [`ExportError::RankRows`] if the file is damaged or does not fit the tree.
    pub fn open(file: File, contexts: usize) -> Result<Self, ExportError> {
        let table = RankTable::open(file).map_err(|error| unusable(&error.to_string()))?;
        if table.nodes.iter().any(|node| *node as usize >= contexts) {
            return Err(unusable("it names contexts that the summary does not have"));
        }
        match table.quantities.iter().position(|name| name == INCLUSIVE) {
            Some(inclusive) => Ok(Self { table, inclusive }),
            None => Err(unusable("it has no inclusive times")),
        }
    }

    /// Returns the measured ranks.
    pub const fn ranks(&self) -> &RankSet {
        &self.table.ranks
    }

    /// Returns the contexts with known times, as indices into the summary's tree.
    pub fn nodes(&self) -> &[u32] {
        &self.table.nodes
    }

    /// Returns the inclusive seconds of a rank in each of [`Self::nodes`].
    ///
    /// # Errors
    /// [`ExportError::UnknownRank`] for a rank without times, [`ExportError::RankRows`] if they
    /// cannot be read.
    pub fn inclusive_s(&self, rank: u32) -> Result<Vec<f32>, ExportError> {
        let Some(position) = self.table.ranks.position(rank) else {
            return Err(ExportError::UnknownRank { rank, known: self.table.ranks.to_string() });
        };
        let times = self
            .table
            .values(self.inclusive, position)
            .map_err(|error| unusable(&error.to_string()))?;
        match times.iter().all(|time| time.is_finite() && *time >= 0.0) {
            true => Ok(times),
            false => Err(unusable(&format!("times of rank {rank} are no times"))),
        }
    }
}

fn unusable(reason: &str) -> ExportError {
    ExportError::RankRows(reason.into())
}
