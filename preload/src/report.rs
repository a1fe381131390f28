//! A summary becomes files, and a few lines on stderr.

use plimsoll_analysis::output::{Side, write_with_side};
use plimsoll_analysis::per_rank::name_in;
use plimsoll_analysis::report::{BRIEF_LINES, brief, text};
use plimsoll_analysis::summary::Summary;

use crate::job::Job;
use crate::say;

/// What the reports are of, and who hears of them.
pub struct Scope<'a> {
    /// Number of ranks of the job.
    pub ranks: u32,
    /// The part of the job that they are of (`rank3`, `node2`).
    pub part: Option<&'a str>,
    /// Say on stderr what came out.
    pub speak: bool,
}

/// Writes the reports of `summary`, with the file beside them; whether there is one now.
pub fn write(job: &Job, mut summary: Summary, side: Option<Side>, scope: &Scope<'_>) -> bool {
    let target = job.target(scope.ranks, scope.part);
    let formats = &job.settings.formats;
    let written = write_with_side(&target, side, |file| {
        name_in(&mut summary, file);
        let mut contents: Vec<(&str, Vec<u8>)> = Vec::new();
        if formats.text {
            contents.push(("txt", text(&summary).into_bytes()));
        }
        if formats.json {
            match serde_json::to_vec_pretty(&summary) {
                Ok(bytes) => contents.push(("json", bytes)),
                Err(error) => say::warn(&format!("the summary cannot be written as JSON: {error}")),
            }
        }
        Ok(contents)
    });
    let mut lines = BRIEF_LINES;
    let path = match &written {
        Ok(written) => {
            if let Some(error) = &written.fallback {
                say::warn(&format!("{error} The report goes to another place."));
                lines -= 1;
            }
            written.files.first().map(|path| path.as_path())
        }
        Err(error) => {
            say::warn(&error.to_string());
            lines -= 1;
            None
        }
    };
    if scope.speak {
        say::block(&brief(&summary, path, lines));
    }
    written.is_ok_and(|written| !written.files.is_empty())
}
