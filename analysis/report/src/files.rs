//! The reports of a run as files.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use super::{text, write_page};
use crate::output::Reports;
use plimsoll_summary::error::Error;
use plimsoll_summary::settings::Formats;
use plimsoll_summary::{Summary, per_rank_file, timeline_file};

const TEXT: &str = "txt";
const JSON: &str = "json";
const HTML: &str = "html";

/// Reports of a summary.
pub struct Files<'s> {
    summary: &'s mut Summary,
    extensions: Vec<&'static str>,
    /// Directory of the files beside the summary; `None` without such files.
    beside: Option<PathBuf>,
}

impl<'s> Files<'s> {
    /// Builds the reports in the requested formats.
    pub fn of(summary: &'s mut Summary, formats: &Formats) -> Self {
        let wanted = [(TEXT, formats.text), (JSON, formats.json), (HTML, formats.html)];
        let extensions = wanted.into_iter().filter_map(|(it, is)| is.then_some(it)).collect();
        Self { summary, extensions, beside: None }
    }
}

impl Reports for Files<'_> {
    fn name_sides(&mut self, sides: Result<&[PathBuf], &Error>) {
        self.beside = sides.ok().and_then(|paths| paths.first()?.parent()).map(Path::to_owned);
        let name =
            |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let names = sides.map(|paths| paths.iter().map(name).collect::<Vec<_>>());
        let names = names.as_deref().map_err(|error| *error);
        per_rank_file::name_in(self.summary, names);
        timeline_file::name_in(self.summary, names);
    }

    fn extensions(&self) -> &[&'static str] {
        &self.extensions
    }

    fn write(&self, extension: &str, to: &mut dyn Write) -> io::Result<()> {
        match extension {
            TEXT => to.write_all(text(self.summary).as_bytes()),
            HTML => write_page(self.summary, self.beside.as_deref(), to),
            _ => self.summary.write_json(to),
        }
    }
}
