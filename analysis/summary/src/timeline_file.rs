//! Side file with the cells of the timeline: activity of each rank over time (PPoPP20, Figure 10).

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::Summary;
use crate::error::Error;

/// Last part of the name of the file.
pub const EXTENSION: &str = "timeline";
/// Maximum number of cells.
pub const MAX_CELLS: usize = 1_000_000;
/// Maximum number of rows and of columns.
pub const MAX_ROWS: usize = 512;

/// Version of the file's form.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum TimelineVersion {
    /// `plimsoll-timeline/1`.
    #[default]
    #[serde(rename = "plimsoll-timeline/1")]
    V1,
}

/// A grid of cells, ranks over time.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Timeline {
    /// Version of this form.
    pub schema: TimelineVersion,
    /// Begin of the first column, in seconds since the begin of the run on the reference's clock.
    pub begin_s: f64,
    /// End of the last column. The last column may reach beyond the end of the run.
    pub end_s: f64,
    /// Number of columns, all of the same length.
    pub columns: u32,
    /// Rows by ascending rank.
    pub rows: Vec<TimelineRow>,
    /// The call paths that cells may have, as indices into the nodes of the summary's tree.
    /// Symptoms and causes of losses are always among them.
    pub nodes: Vec<u32>,
    /// Index into `nodes` of the call path with the most time, by row and column; -1 if unknown. A
    /// path includes the paths below it that are not in `nodes` themselves.
    pub cells: Vec<i32>,
    /// Fraction of each cell spent in communication or waiting, 0 to 255, in the order of `cells`.
    pub wait: Vec<u8>,
}

/// Row of cells.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct TimelineRow {
    /// Rank list. Beyond [`MAX_ROWS`] ranks, neighbours share a row.
    pub ranks: String,
}

/// Returns the summary's note about a missing timeline.
pub fn note(reason: &dyn fmt::Display) -> String {
    format!("The timeline was not written. {reason}")
}

/// Takes the name of the timeline from those of all side files.
pub fn name_in(summary: &mut Summary, files: Result<&[String], &Error>) {
    let is_timeline = |name: &&String| name.ends_with(&format!(".{EXTENSION}"));
    summary.timeline.file = files.ok().and_then(|files| files.iter().find(is_timeline).cloned());
}
