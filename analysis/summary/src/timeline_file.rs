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
/// Maximum number of cells of threads.
pub const MAX_THREAD_CELLS: usize = 250_000;

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
    /// Threads other than the communicating ones; `None` in files of earlier versions, if ranks
    /// share rows, and if the job keeps no single threads.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub threads: Option<ThreadGrid>,
}

/// A grid of cells, threads over time. Coarser than that of the ranks.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ThreadGrid {
    /// End of the last column, in seconds since the begin of the run; the first column begins with
    /// that of the ranks.
    pub end_s: f64,
    /// Number of columns, all of the same length.
    pub columns: u32,
    /// Rows by ascending rank, then by kind and number.
    pub rows: Vec<ThreadRow>,
    /// Index into [`Timeline::nodes`] of the call path with the most time, by row and column; -1 if
    /// unknown, and while the thread does not exist.
    pub cells: Vec<i32>,
    /// Fraction of each cell spent waiting for work, for other threads or in communication, 0 to
    /// 255, in the order of `cells`.
    pub wait: Vec<u8>,
    /// Number of threads that are left out, because there would be more than [`MAX_THREAD_CELLS`]
    /// cells: of the fastest threads of the ranks, or of all single threads, those with the least
    /// work.
    pub unlisted: u64,
}

/// Row of cells of one thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ThreadRow {
    /// Rank of the thread's process, which has a row of its own in [`Timeline::rows`].
    pub rank: u32,
    /// Kind of the thread.
    pub kind: ThreadKind,
    /// Number of the thread in the order in which those of its process were first seen.
    pub number: u32,
}

/// Kind of a thread among those of its process that do not communicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ThreadKind {
    /// The thread with the most work.
    Slowest,
    /// The thread with the least work.
    Fastest,
    /// Any thread, where each is kept by itself.
    Thread,
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
