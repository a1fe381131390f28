//! Writes a summary to files, and a few lines of it to stderr.

use plimsoll_report::output::{FALLBACK, Side, write_with_side};
use plimsoll_report::{BRIEF_LINES, Files, brief};
use plimsoll_summary::Summary;

use crate::job::Job;
use crate::{environment, log};

/// Coverage of the reports, and whether their result is printed.
pub struct Scope<'a> {
    /// Number of ranks of the job.
    pub ranks: u32,
    /// Part of the job that the reports cover (`rank3`, `node2`); `None` for the whole job.
    pub part: Option<&'a str>,
    /// Whether to print the brief result on stderr.
    pub speak: bool,
}

/// Writes the reports of `summary` and the file of single ranks beside them. Returns whether a
/// report was written.
pub fn write(job: &Job, mut summary: Summary, side: Option<Side>, scope: &Scope<'_>) -> bool {
    let target = job.target(scope.ranks, scope.part);
    let formats = &job.settings.formats;
    let mut files = Files::of(&mut summary, formats);
    let written = write_with_side(&target, side, &mut files);
    let mut lines = BRIEF_LINES;
    let path = match &written {
        Ok(written) => {
            if let Some(error) = &written.fallback {
                log::warn(&format!(
                    "{error} The report goes to {FALLBACK} on {}: copy it from there.",
                    environment::host()
                ));
                lines -= 1;
            }
            written.files.first().map(|path| path.as_path())
        }
        Err(error) => {
            log::warn(&error.to_string());
            lines -= 1;
            None
        }
    };
    if scope.speak {
        log::block(&brief(&summary, path, lines));
    }
    written.is_ok_and(|written| !written.files.is_empty())
}
