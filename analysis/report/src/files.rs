//! The reports of a run as files.

use std::io::{self, Write};

use super::text;
use crate::output::Reports;
use plimsoll_summary::Summary;
use plimsoll_summary::error::Error;
use plimsoll_summary::per_rank_file::name_in;

const TEXT: &str = "txt";
const JSON: &str = "json";

/// The reports of a summary.
pub struct Files<'s> {
    summary: &'s mut Summary,
    extensions: Vec<&'static str>,
}

impl<'s> Files<'s> {
    /// Those that are wanted: for people, and for scripts.
    pub fn of(summary: &'s mut Summary, has_text: bool, has_json: bool) -> Self {
        let wanted = [(TEXT, has_text), (JSON, has_json)];
        let extensions = wanted.into_iter().filter_map(|(it, is)| is.then_some(it)).collect();
        Self { summary, extensions }
    }
}

impl Reports for Files<'_> {
    fn name_side(&mut self, side: Result<Option<&str>, &Error>) {
        name_in(self.summary, side);
    }

    fn extensions(&self) -> &[&'static str] {
        &self.extensions
    }

    fn write(&self, extension: &str, to: &mut dyn Write) -> io::Result<()> {
        match extension {
            TEXT => to.write_all(text(self.summary).as_bytes()),
            _ => self.summary.write_json(to),
        }
    }
}
