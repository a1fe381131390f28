//! The brief summary on stderr at the end of the job.

use std::path::Path;

use super::page::Page;
use super::text::{MAX_PARAGRAPH_LINES, has_mpi, headline, in_brief, irregular_end, verdict};
use super::{WIDTH, tree_text};
use plimsoll_summary::Summary;
use plimsoll_summary::printable::whole_path;

/// Maximum number of lines in the job's stderr, warnings at its start included.
pub const BRIEF_LINES: usize = 20;
/// Prefix of each line.
const PREFIX: &str = "plimsoll: ";
/// Maximum number of losses shown; all losses are in the report.
const MAX_LOSSES: usize = 4;
/// Maximum number of notes shown.
const MAX_NOTES: usize = 2;
/// Maximum number of lines of the tree of a process without MPI.
const TREE_LINES: usize = 10;

/// Returns the brief summary in at most `lines` lines (at least one), each with prefix and line
/// end. The last line names the report.
pub fn brief(summary: &Summary, report: Option<&Path>, lines: usize) -> String {
    let mut page = Page::new(WIDTH - PREFIX.len());
    page.paragraph("", &headline(summary), 2);
    if let Some(end) = irregular_end(summary) {
        page.paragraph("", &end, 2);
    }
    if summary.losses.is_empty() {
        page.paragraph("", &verdict(summary), 2);
        if !has_mpi(summary) && !summary.tree.nodes.is_empty() {
            page.append(tree_text::view(summary, TREE_LINES));
        }
    }
    for (index, loss) in summary.losses.iter().take(MAX_LOSSES).enumerate() {
        page.paragraph(&format!("{}. ", index + 1), &in_brief(summary, loss), 3);
        if index == 0 {
            page.paragraph("   advice: ", &loss.advice, MAX_PARAGRAPH_LINES);
        }
    }
    for note in summary.notes.iter().take(MAX_NOTES) {
        page.paragraph("note: ", note, 2);
    }
    page.truncate(lines.clamp(1, BRIEF_LINES) - 1);
    let last = match report {
        Some(path) => format!("report: {}", whole_path(path)),
        None => "no report was written".into(),
    };
    format!("{}{PREFIX}{last}\n", page.text(PREFIX))
}
