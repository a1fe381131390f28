//! Reads the side file `plimsoll-timeline/1`: which context each rank was in, over time.

use serde::Deserialize;

use crate::ExportError;

const SCHEMA: &str = "plimsoll-timeline/1";
/// Value of a cell of which the context is not known.
const UNKNOWN: i64 = -1;
/// A cell that waits for this part of its time, in 255ths, counts as waiting.
const WAITING_CELL_THRESHOLD: u8 = 128;

/// The cells of a timeline: rows are ranks, columns are equal parts of the time.
#[derive(Clone, Debug, Deserialize)]
pub struct TimelineCells {
    schema: String,
    /// Begin of the first column, in seconds since the begin of the run.
    begin_s: f64,
    /// End of the last column, in seconds since the begin of the run.
    end_s: f64,
    columns: usize,
    rows: Vec<TimelineRow>,
    /// Indices into the summary's tree.
    nodes: Vec<u32>,
    /// For each row and column, an index into `nodes`, or [`UNKNOWN`].
    cells: Vec<i64>,
    /// For each cell the part of its time that is waiting, in 255ths.
    wait: Vec<u8>,
}

/// A row of the timeline.
#[derive(Clone, Debug, Deserialize)]
pub struct TimelineRow {
    /// Rank list.
    pub ranks: String,
}

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
        let read: Self =
            serde_json::from_slice(json).map_err(|error| unusable(error.to_string()))?;
        if read.schema != SCHEMA {
            return Err(unusable(format!("expected the schema \"{SCHEMA}\"")));
        }
        let count = read.rows.len().checked_mul(read.columns);
        if count != Some(read.cells.len()) || count != Some(read.wait.len()) {
            return Err(unusable("it has not one cell for each row and column".into()));
        }
        if !(read.begin_s.is_finite() && read.end_s.is_finite() && read.begin_s <= read.end_s) {
            return Err(unusable("it ends before it begins".into()));
        }
        if read.nodes.iter().any(|node| *node as usize >= contexts) {
            return Err(unusable("it names contexts that the summary does not have".into()));
        }
        let known = UNKNOWN..read.nodes.len() as i64;
        if read.cells.iter().any(|cell| !known.contains(cell)) {
            return Err(unusable("a cell names a context that is not listed".into()));
        }
        Ok(read)
    }

    /// The rows, from top to bottom.
    pub fn rows(&self) -> &[TimelineRow] {
        &self.rows
    }

    /// Begin of a column, in nanoseconds since the begin of the run; 0 for what lies before.
    pub fn begin_ns(&self, column: usize) -> u64 {
        let fraction = column as f64 / self.columns.max(1) as f64;
        ((self.begin_s + fraction * (self.end_s - self.begin_s)) * 1e9).max(0.0).round() as u64
    }

    /// Runs of columns with the same context in a row, in order of time. Unknown cells are in none.
    pub fn runs(&self, row: usize) -> Vec<CellRun> {
        let mut runs: Vec<CellRun> = Vec::new();
        for column in 0..self.columns {
            let cell = row * self.columns + column;
            let Some(context) = usize::try_from(self.cells[cell]).ok().map(|at| self.nodes[at])
            else {
                continue;
            };
            let waits = self.wait[cell] >= WAITING_CELL_THRESHOLD;
            match runs.last_mut() {
                Some(run) if run.end == column && run.context == context && run.waits == waits => {
                    run.end += 1;
                }
                _ => runs.push(CellRun { context, waits, first: column, end: column + 1 }),
            }
        }
        runs
    }

    /// The part of a row's time that is waiting, 0 to 1, for each column.
    pub fn wait_fractions(&self, row: usize) -> impl Iterator<Item = f64> {
        let cells = &self.wait[row * self.columns..(row + 1) * self.columns];
        cells.iter().map(|wait| f64::from(*wait) / 255.0)
    }
}
