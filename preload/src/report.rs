//! A summary becomes files, and a few lines on stderr.

use plimsoll_analysis::output::{Report, write_reports};
use plimsoll_analysis::report::{BRIEF_LINES, brief, text};
use plimsoll_analysis::summary::Summary;

use crate::job::Job;
use crate::say;

/// Writes the reports of `summary`. `part`: the reports are of one part of the job (`rank3`,
/// `node2`). `speak`: say on stderr what came out.
pub fn write(job: &Job, summary: &Summary, ranks: u32, part: Option<&str>, speak: bool) {
    let target = job.target(ranks, part);
    let mut contents: Vec<(&str, Vec<u8>)> = Vec::new();
    if job.settings.formats.text {
        contents.push(("txt", text(summary).into_bytes()));
    }
    if job.settings.formats.json {
        match serde_json::to_vec_pretty(summary) {
            Ok(bytes) => contents.push(("json", bytes)),
            Err(error) => say::warn(&format!("the summary cannot be written as JSON: {error}")),
        }
    }
    let reports: Vec<Report> =
        contents.iter().map(|(extension, content)| Report { extension, content }).collect();
    let written = write_reports(&target, &reports);
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
    if speak {
        say::block(&brief(summary, path, lines));
    }
}
