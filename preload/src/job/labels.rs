//! The user's label rules: rank 0 reads them and broadcasts them to all ranks. Functions that they
//! declare to synchronise ranks are looked up in the loaded modules.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use plimsoll_agent::observed_process::{LoadedFile, Observed};
use plimsoll_agent::regions::declared::{self, DeclaredFunction};
use plimsoll_analysis::rules::Rules;
use plimsoll_analysis::rules::file::read;
use plimsoll_binary::Structures;
use plimsoll_comm::mpi::launcher;
use plimsoll_summary::Label;
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
        let outcome = if trouble.is_of_all() { " No rules are in effect." } else { "" };
        complain(&format!("{LABELS}={shown}: {trouble}{outcome}"));
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

    /// Looks up the functions that the rules declare to synchronise ranks, in all modules that are
    /// loaded now.
    pub fn declare_functions(&self, observed: &Observed) {
        let rules = self.rules();
        if !rules.declare_synchronisations() || !self.settings.regions {
            return;
        }
        let mut structures = Structures::default();
        let files = observed.loaded_files();
        let found = files.iter().flat_map(|file| declared_in(file, &rules, &mut structures));
        declared::declare(found.collect());
    }
}

/// Returns the declared functions of a module, at their runtime addresses.
fn declared_in(
    file: &LoadedFile,
    rules: &Rules,
    structures: &mut Structures,
) -> Vec<DeclaredFunction> {
    let path = Path::new(OsStr::from_bytes(&file.path));
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    let module = structures.module(path.to_owned(), file.build_id.clone());
    let mut is_declared =
        |function: &str| rules.label_of(&name, function) == Some(Label::CollectiveSynchronisation);
    let parts = structures.functions_named(module, &mut is_declared);
    structures.forget();
    let at = |address: u64| address.wrapping_add(file.bias);
    parts
        .into_iter()
        .map(|part| DeclaredFunction {
            start: at(part.range.start),
            end: at(part.range.end),
            entry: at(part.entry),
        })
        .collect()
}
