//! The user's label rules: rank 0 reads them and broadcasts them to all ranks.

use plimsoll_analysis::rules::Rules;
use plimsoll_analysis::rules::file::read;
use plimsoll_comm::mpi::launcher;
use plimsoll_summary::settings::{LABELS, Settings};

use super::Job;
use crate::log;

/// Reads the label rules at the start of the process; `None` if rank 0 will broadcast them to this
/// process.
pub(super) fn read_at_start(settings: &Settings) -> Option<Rules> {
    let first = launcher::launcher_rank().is_none_or(|rank| rank == 0);
    first.then(|| read_and(settings, log::warn))
}

fn read_and(settings: &Settings, complain: impl FnOnce(&str)) -> Rules {
    let Some(path) = &settings.labels else { return Rules::default() };
    let (rules, trouble) = read(path);
    if let Some(trouble) = trouble {
        let shown = settings.in_effect().remove(LABELS).unwrap_or_default();
        complain(&format!("{LABELS}={shown}: {trouble}"));
    }
    rules
}

impl Job {
    /// Returns the label rules; no rules while they are unknown.
    pub(super) fn rules(&self) -> Rules {
        self.rules.lock().clone().unwrap_or_default()
    }

    /// Returns the label rules of a process that reports by itself, reading them if necessary.
    /// Errors in the file are printed in debug output only, since rank 0 reports them.
    pub(super) fn own_rules(&self) -> Rules {
        let quietly = |line: &str| log::debug(|| line.to_owned());
        let read = || read_and(&self.settings, quietly);
        self.rules.lock().get_or_insert_with(read).clone()
    }

    /// Sets the label rules of the job.
    pub(super) fn take_rules(&self, rules: Rules) {
        *self.rules.lock() = Some(rules);
    }
}
