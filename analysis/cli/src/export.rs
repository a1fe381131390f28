//! Exports of `plimsoll report`: the side files beside the summary, and the choice of ranks.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use plimsoll_sys::own_files::open_regular;

use crate::digest_command::{cores, first_found};
use crate::say;
use plimsoll_analysis::digest::{digest_with_instances, find};
use plimsoll_export::{
    CallForest, ExportError, Format, InstanceCounts, LaneChoice, RankRows, TimelineCells,
    adopt_instances, write, write_iterations,
};
use plimsoll_summary::printable::path as shown;
use plimsoll_summary::{SideFile, Summary};

/// Exports a summary read from `file`; standard input (`-`) has no side files.
pub fn export(
    format: Format,
    summary: &Summary,
    file: &Path,
    choice: &LaneChoice,
    to: &mut dyn Write,
) -> Result<(), ExportError> {
    let contexts = summary.tree.nodes.len();
    let rows = match open(&summary.per_rank, file, "The mean over ranks is exported") {
        Some(rows) => Some(RankRows::open(rows, contexts)?),
        None => None,
    };
    let has_time = matches!(format, Format::Firefox | Format::Perfetto);
    let timeline = match open(&summary.timeline, file, "The export has no timeline") {
        Some(mut cells) if has_time => {
            let mut json = Vec::new();
            let read = cells.read_to_end(&mut json);
            read.map_err(|error| ExportError::Timeline(error.to_string()))?;
            Some(TimelineCells::from_json(&json, contexts)?)
        }
        _ => None,
    };
    let forest = CallForest::new(summary, rows.as_ref(), choice)?;
    write(format, &forest, timeline.as_ref(), to)
}

/// Exports the representative iterations of loops of a summary read from `file`: as they ran if the
/// run's spool is beside the file, else the mean course of each cluster.
pub fn export_iterations(
    format: Format,
    summary: &Summary,
    file: &Path,
    to: &mut dyn Write,
) -> Result<(), ExportError> {
    const INSTEAD: &str = "The mean course of each cluster is exported.";
    let mut summary = summary.clone();
    match spooled(file) {
        Ok(spooled) => {
            let InstanceCounts { wanted, found } = adopt_instances(&mut summary, &spooled);
            if found < wanted {
                say(&format!(
                    "{} of {wanted} representative iterations are not in the spool. {INSTEAD}",
                    wanted - found
                ));
            }
        }
        Err(reason) => say(&format!("{reason} {INSTEAD}")),
    }
    let forest = CallForest::new(&summary, None, &LaneChoice::Automatic)?;
    write_iterations(format, &forest, to)
}

/// Returns the summary that the spool beside a summary file gives, with the representative
/// iterations of loops; or the reason why there is none, as a sentence.
fn spooled(file: &Path) -> Result<Summary, String> {
    const SUFFIX: &str = ".plimsoll.json";
    let name = file.file_name().unwrap_or_default().to_string_lossy();
    let Some(stem) = name.strip_suffix(SUFFIX) else {
        return Err(format!("Beside a file without the name *{SUFFIX}, no spool is looked for."));
    };
    let folder = file.with_file_name(format!("{stem}.plimsoll.d"));
    if !folder.is_dir() {
        return Err(format!("The spool {} is missing.", shown(&folder)));
    }
    let paths = find(&folder).map_err(|error| error.to_string())?;
    let summary = first_found(cores(), |comm| digest_with_instances(comm, &paths));
    let summary = summary.map_err(|error| error.to_string())?;
    summary.ok_or_else(|| format!("The spool {} has no ranks.", shown(&folder)))
}

/// Returns the ranks that `--ranks` selects.
pub fn lane_choice(ranks: Option<&str>) -> Result<LaneChoice, String> {
    match ranks {
        None => Ok(LaneChoice::Automatic),
        Some("all") => Ok(LaneChoice::All),
        Some(list) => match list.parse() {
            Ok(ranks) => Ok(LaneChoice::Ranks(ranks)),
            Err(error) => Err(format!("--ranks: {error}, or all.")),
        },
    }
}

/// Opens a side file; reports a missing one.
fn open(side: &SideFile, summary: &Path, without: &str) -> Option<File> {
    let name = side.file.as_deref()?;
    if summary == Path::new("-") {
        say(&format!("The side file {name} is not looked for beside standard input. {without}."));
        return None;
    }
    let path = summary.with_file_name(name);
    match open_regular(&path) {
        Ok(file) => Some(file),
        Err(error) => {
            let reason = match error.kind() {
                io::ErrorKind::NotFound => "is missing".to_owned(),
                _ => format!("cannot be opened: {error}"),
            };
            say(&format!("The side file {} {reason}. {without}.", shown(&path)));
            None
        }
    }
}
