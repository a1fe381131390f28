//! Exports: a summary in the file formats of other tools' viewers.
//!
//! Entry point: [`CallForest::new`] builds one weighted call tree per rank (or per representative
//! of a cluster, or one of the mean over ranks), and [`write`] writes the trees in a [`Format`].
//! Each format has a module of its own, which knows nothing but [`CallForest`] and
//! [`TimelineCells`].
//!
//! Design constraints:
//! - The time of a context in a lane is its inclusive time on that rank in the summary's side file.
//!   Viewers add up the exclusive times of a subtree, so exclusive times are differences of
//!   inclusive times here, not SC10's hybrid.
//! - Waiting has a frame of its own below the call that waits.
//! - A format without an order of time gets totals. Formats with a time axis get the totals laid
//!   out along the axis in the order of the call tree, and say so in the name of the process; the
//!   cells of the timeline are a second process.

#![forbid(unsafe_code)]

mod call_forest;
mod collapsed;
mod firefox;
mod hatchet;
mod iteration_instances;
mod iteration_lanes;
mod perfetto;
pub mod perfetto_messages;
mod pprof;
pub mod pprof_messages;
mod rank_rows;
mod speedscope;
mod timeline_cells;

use std::io::{self, Write};

use thiserror::Error;

pub use call_forest::{CallForest, LaneChoice};
pub use iteration_instances::{InstanceCounts, adopt_instances};
pub use rank_rows::RankRows;
pub use timeline_cells::TimelineCells;

/// Reason why a summary cannot be exported.
#[derive(Debug, Error)]
pub enum ExportError {
    /// The side file with the times of single ranks is damaged or belongs to another summary.
    #[error("the side file with the times of single ranks cannot be used: {0}.")]
    RankRows(String),
    /// The side file with the timeline's cells is damaged or belongs to another summary.
    #[error("the side file with the timeline cannot be used: {0}.")]
    Timeline(String),
    /// Single ranks are asked for, and there is no side file with their times.
    #[error(
        "the times of single ranks are not known: the side file *.plimsoll.npz must lie beside \
         the summary. Leave out --ranks to export the mean over all ranks."
    )]
    NoRankRows,
    /// A rank is asked for that the run did not have.
    #[error("rank {rank} was not measured; the run's ranks are {known}.")]
    UnknownRank {
        /// The rank.
        rank: u32,
        /// Rank list of the measured ranks.
        known: String,
    },
    /// Representative iterations are asked for, and the summary has none.
    #[error(
        "no loop has representative iterations: none takes 5 % of the run with iterations that \
         samples tell apart, or an earlier version wrote the summary. Leave out --iterations."
    )]
    NoIterations,
    /// Representative iterations are asked for in a format without a time axis.
    #[error("--iterations is for formats with a time axis: --format perfetto or firefox.")]
    NoTimeAxis,
    /// The export cannot be written.
    #[error(transparent)]
    Write(#[from] io::Error),
}

/// A file format.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// Brendan Gregg's collapsed stacks, one line per call path.
    Collapsed,
    /// Firefox Profiler's processed profile, JSON.
    Firefox,
    /// JSON that `hatchet.GraphFrame.from_json` reads.
    Hatchet,
    /// Perfetto's protobuf trace of track events.
    Perfetto,
    /// pprof's profile.proto, compressed with gzip.
    Pprof,
    /// speedscope's JSON.
    Speedscope,
}

impl Format {
    /// Every format, by name.
    pub const ALL: [Self; 6] = [
        Self::Collapsed,
        Self::Firefox,
        Self::Hatchet,
        Self::Perfetto,
        Self::Pprof,
        Self::Speedscope,
    ];

    /// Returns the name on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Collapsed => "collapsed",
            Self::Firefox => "firefox",
            Self::Hatchet => "hatchet",
            Self::Perfetto => "perfetto",
            Self::Pprof => "pprof",
            Self::Speedscope => "speedscope",
        }
    }

    /// Returns the format of a name on the command line.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|format| format.name() == name)
    }

    /// Returns whether the file is binary, so that a terminal cannot show it.
    pub const fn is_binary(self) -> bool {
        matches!(self, Self::Perfetto | Self::Pprof)
    }
}

/// Writes an export. Formats with a time axis, firefox and perfetto, also show the timeline.
///
/// # Errors
/// [`ExportError::RankRows`] if the side file cannot be read, [`ExportError::Write`] for `to`.
pub fn write(
    format: Format,
    forest: &CallForest<'_>,
    timeline: Option<&TimelineCells>,
    to: &mut dyn Write,
) -> Result<(), ExportError> {
    match format {
        Format::Collapsed => collapsed::write(forest, to),
        Format::Firefox => firefox::write(forest, timeline, to),
        Format::Hatchet => hatchet::write(forest, to),
        Format::Perfetto => perfetto::write(forest, timeline, to),
        Format::Pprof => pprof::write(forest, to),
        Format::Speedscope => speedscope::write(forest, to),
    }
}

/// Writes only the representative iterations of loops, a lane for each cluster of iterations.
///
/// # Errors
/// [`ExportError::NoIterations`] without described loops, [`ExportError::NoTimeAxis`] for other
/// formats than firefox and perfetto, [`ExportError::Write`] for `to`.
pub fn write_iterations(
    format: Format,
    forest: &CallForest<'_>,
    to: &mut dyn Write,
) -> Result<(), ExportError> {
    let loops = iteration_lanes::iteration_lanes(forest.summary);
    if loops.is_empty() {
        return Err(ExportError::NoIterations);
    }
    match format {
        Format::Firefox => firefox::write_iterations(forest, &loops, to),
        Format::Perfetto => perfetto::write_iterations(forest, &loops, to),
        _ => Err(ExportError::NoTimeAxis),
    }
}
