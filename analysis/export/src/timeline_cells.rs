//! Reads the side file `plimsoll-timeline/1`: which context each rank was in, over time.

use std::ops::Range;

use plimsoll_summary::timeline_file::{Timeline, TimelineRow};

use crate::ExportError;

/// Value of a cell with an unknown context.
const UNKNOWN: i32 = -1;
/// A cell that waits for this part of its time, in 255ths, counts as waiting.
const WAITING_CELL_THRESHOLD: u8 = 128;

/// Timeline that fits the summary's tree: each row and column has a cell, and each cell a known
/// context.
#[derive(Clone, Debug)]
pub struct TimelineCells(Timeline);

/// Neighbouring columns of a row with the same context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CellRun {
    /// The context, an index into the summary's tree.
    pub context: u32,
    /// Whether most of the time is waiting.
    pub waits: bool,
    /// First column.
    pub first: usize,
    /// Column after the last one.
    pub end: usize,
}

impl TimelineCells {
    /// Reads the cells. `contexts` is the number of nodes in the summary's tree.
    ///
    /// # Errors
    /// [`ExportError::Timeline`] if the file is damaged or does not fit the tree.
    pub fn from_json(json: &[u8], contexts: usize) -> Result<Self, ExportError> {
        let unusable = |reason: String| ExportError::Timeline(reason);
        // Another schema is no variant of TimelineVersion, and therefore an error here.
        let read: Timeline =
            serde_json::from_slice(json).map_err(|error| unusable(error.to_string()))?;
        let count = read.rows.len().checked_mul(read.columns as usize);
        if count != Some(read.cells.len()) || count != Some(read.wait.len()) {
            return Err(unusable("it has not one cell for each row and column".into()));
        }
        if !(read.begin_s.is_finite() && read.end_s.is_finite() && read.begin_s <= read.end_s) {
            return Err(unusable("it ends before it begins".into()));
        }
        if read.nodes.iter().any(|node| *node as usize >= contexts) {
            return Err(unusable("it names contexts that the summary does not have".into()));
        }
        let known = i64::from(UNKNOWN)..read.nodes.len() as i64;
        if read.cells.iter().any(|cell| !known.contains(&i64::from(*cell))) {
            return Err(unusable("a cell names a context that is not listed".into()));
        }
        Ok(Self(read))
    }

    /// Returns the rows, from top to bottom.
    pub fn rows(&self) -> &[TimelineRow] {
        &self.0.rows
    }

    /// Returns the begin of a column, in nanoseconds since the begin of the run; 0 before the run.
    pub fn begin_ns(&self, column: usize) -> u64 {
        let Timeline { begin_s, end_s, columns, .. } = self.0;
        let fraction = column as f64 / f64::from(columns.max(1));
        ((begin_s + fraction * (end_s - begin_s)) * 1e9).max(0.0).round() as u64
    }

    /// Runs of columns with the same context in a row, in order of time. Unknown cells are in none.
    pub fn runs(&self, row: usize) -> Vec<CellRun> {
        let mut runs: Vec<CellRun> = Vec::new();
        for (column, cell) in self.cells_of(row).enumerate() {
            let Some(context) = usize::try_from(self.0.cells[cell]).ok().map(|at| self.0.nodes[at])
            else {
                continue;
            };
            let waits = self.0.wait[cell] >= WAITING_CELL_THRESHOLD;
            match runs.last_mut() {
                Some(run) if run.end == column && run.context == context && run.waits == waits => {
                    run.end += 1;
                }
                _ => runs.push(CellRun { context, waits, first: column, end: column + 1 }),
            }
        }
        runs
    }

    /// Returns the part of a row's time that is waiting, 0 to 1, for each column.
    pub fn wait_fractions(&self, row: usize) -> impl Iterator<Item = f64> {
        self.0.wait[self.cells_of(row)].iter().map(|wait| f64::from(*wait) / 255.0)
    }

    /// Indices of a row's cells, in order of time.
    fn cells_of(&self, row: usize) -> Range<usize> {
        let columns = self.0.columns as usize;
        row * columns..(row + 1) * columns
    }
}
