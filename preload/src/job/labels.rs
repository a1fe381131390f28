//! The user's rules of labels: the process that speaks for the job reads them, and tells them to all.

use plimsoll_analysis::rules::Rules;
use plimsoll_analysis::rules::file::read;
use plimsoll_comm::mpi::launch;
use plimsoll_summary::settings::{LABELS, Settings};

use super::Job;
use crate::say;

/// Reads them at the start of the process, unless another process is to tell them.
pub(super) fn read_at_start(settings: &Settings) -> Option<Rules> {
    let first = launch::told_rank().is_none_or(|rank| rank == 0);
    first.then(|| read_and(settings, say::warn))
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
    /// The rules as far as they are known.
    pub(super) fn rules(&self) -> Rules {
        self.rules.lock().clone().unwrap_or_default()
    }

    /// The rules of a process that speaks for itself; nobody needs to hear again what is wrong with them.
    pub(super) fn own_rules(&self) -> Rules {
        let quietly = |line: &str| say::debug(|| line.to_owned());
        let read = || read_and(&self.settings, quietly);
        self.rules.lock().get_or_insert_with(read).clone()
    }

    /// Takes the rules that hold for the job.
    pub(super) fn take_rules(&self, rules: Rules) {
        *self.rules.lock() = Some(rules);
    }
}
