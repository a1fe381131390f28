//! Settings of the user: values of the environment, parsed by one [`TABLE`].
//!
//! The preloaded library reads them before `main`: nothing here starts a thread, panics, or needs
//! more than an allocator.

mod event_names;
pub mod quantity;
mod rank_filter;
mod sampling_request;
mod settings_table;
mod warning;

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};

use crate::glob::Glob;
pub use event_names::{EventChoice, MAX_EVENTS};
pub use quantity::{format_duration_ns, parse_boolean, parse_duration_ns, parse_size_bytes};
pub use rank_filter::RankFilter;
pub use sampling_request::SamplingRequest;
use settings_table::Reading;
pub use settings_table::{
    LABELS, LIBRARY, MAX_PERIOD_NS, METRICS, MIN_MEMORY_BYTES, MIN_PERIOD_NS, PREFIX, RANKS,
    ROOT_PID, State, TABLE, THREADS, TRACE, Variable,
};
pub use warning::{UnknownName, Warning};

/// Clock of the samples, as requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClockChoice {
    /// CPU time of the thread.
    Cpu,
    /// Wall time.
    Wall,
}

/// Use of return-address marks, as requested.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MarksChoice {
    /// One mark after each sample, at the innermost frame that can be marked.
    On,
    /// No mark.
    Off,
    /// Marks at random frames, each checked by unwinding the whole stack: for testing Plimsoll.
    Verify,
}

/// Formats of the reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Formats {
    /// Text.
    pub text: bool,
    /// JSON.
    pub json: bool,
    /// HTML page.
    pub html: bool,
}

impl Default for Formats {
    fn default() -> Self {
        Self { text: true, json: true, html: true }
    }
}

/// Extent of the samples kept on disk.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Trace {
    /// Nothing.
    Off,
    /// Some ranks if the run has a report; otherwise all.
    Clusters,
    /// Randomly chosen ranks that suffice for this precision if the run has a report; otherwise
    /// all.
    Sample(SamplingRequest),
    /// All ranks.
    All,
}

/// Aggregation of the threads of a process (ESPT15, 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ThreadsChoice {
    /// As one sum.
    Sum,
    /// As the sum, with statistics over threads.
    Set,
    /// The slowest and the fastest thread by themselves, the rest as a sum.
    Key,
    /// As one sum for each set of visited call paths.
    Calltree,
    /// Each thread by itself.
    All,
}

impl ThreadsChoice {
    /// Returns the choice that a value of PLIMSOLL_THREADS stands for; `None` for other values.
    pub fn parse(value: &str) -> Option<Self> {
        match value.to_ascii_lowercase().as_str() {
            "sum" => Some(Self::Sum),
            "set" => Some(Self::Set),
            "key" => Some(Self::Key),
            "calltree" => Some(Self::Calltree),
            "all" => Some(Self::All),
            _ => None,
        }
    }
}

/// All settings.
#[derive(Clone, Debug, PartialEq)]
pub struct Settings {
    /// Sampling period.
    pub period_ns: u64,
    /// Clock of the samples; wall time if regions are off.
    pub clock: ClockChoice,
    /// Directory or name of the reports ([`crate::report_names`]).
    pub output: OsString,
    /// Formats of the reports.
    pub formats: Formats,
    /// Extent of the samples kept on disk.
    pub trace: Trace,
    /// Aggregation of the threads of a process.
    pub threads: ThreadsChoice,
    /// File with the user's rules of labels.
    pub labels: Option<PathBuf>,
    /// Whether MPI and blocking calls are wrapped.
    pub regions: bool,
    /// Whether parallel regions of OpenMP are measured; they are not without `regions`.
    pub openmp: bool,
    /// Whether messages are counted by partner.
    pub partners: bool,
    /// perf events to count.
    pub events: Vec<EventChoice>,
    /// Valid definitions of derived metrics: see
    /// [`crate::derived_metric`].
    pub metrics: Option<String>,
    /// Whether return addresses are marked.
    pub marks: MarksChoice,
    /// Programs to measure; empty: all.
    pub include: Vec<Glob>,
    /// Programs to leave alone.
    pub exclude: Vec<Glob>,
    /// Ranks to measure.
    pub ranks: RankFilter,
    /// Maximum memory per rank.
    pub memory_bytes: u64,
    /// 0 silent, 1 a short summary, 2 debug.
    pub verbose: u8,
    /// Whether Plimsoll is off.
    pub disable: bool,
    /// Process id of `plimsoll run`, if it was used.
    pub root_pid: Option<u32>,
    in_effect: BTreeMap<&'static str, String>,
}

impl Default for Settings {
    fn default() -> Self {
        let implemented = TABLE.iter().filter(|variable| variable.state == State::Implemented);
        let with_default = implemented.filter(|variable| !variable.default.is_empty());
        Self {
            period_ns: 4_000_000,
            clock: ClockChoice::Cpu,
            output: ".".into(),
            formats: Formats::default(),
            trace: Trace::Clusters,
            threads: ThreadsChoice::Key,
            labels: None,
            regions: true,
            openmp: true,
            partners: true,
            events: Vec::new(),
            metrics: None,
            marks: MarksChoice::On,
            include: Vec::new(),
            exclude: Vec::new(),
            ranks: RankFilter::default(),
            memory_bytes: 64 << 20,
            verbose: 1,
            disable: false,
            root_pid: None,
            in_effect: with_default
                .map(|variable| (variable.name, variable.default.to_owned()))
                .collect(),
        }
    }
}

impl Settings {
    /// Reads an environment. Variables of other programs are ignored; the first of repeated names
    /// counts, as for getenv; an empty value counts as unset.
    pub fn from_env(
        environment: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> (Self, Vec<Warning>) {
        let mut settings = Self::default();
        let mut warnings = Vec::new();
        let mut unknown: Vec<UnknownName> = Vec::new();
        let mut given: Vec<&'static str> = Vec::new();
        for (name, value) in environment {
            let name = name.to_string_lossy();
            if !name.starts_with(PREFIX) {
                continue;
            }
            let Some(variable) = TABLE.iter().find(|variable| variable.name == name) else {
                let suggestion = closest(&name);
                unknown.push(UnknownName { name: name.into_owned(), suggestion });
                continue;
            };
            if value.is_empty() || given.contains(&variable.name) {
                continue;
            }
            given.push(variable.name);
            warnings.extend(settings.take(variable, &value));
        }
        if !unknown.is_empty() {
            warnings.push(Warning::Unknown { names: unknown });
        }
        warnings.extend(settings.reconcile(given.contains(&"PLIMSOLL_CLOCK")));
        (settings, warnings)
    }

    fn take(&mut self, variable: &'static Variable, value: &OsStr) -> Option<Warning> {
        let shown = value.to_string_lossy().into_owned();
        let (effective, warning) = match (variable.read)(self, value) {
            Reading::Taken => (shown, None),
            Reading::Unreadable => {
                return Some(Warning::Unreadable { variable, value: shown });
            }
            Reading::Wrong { reason } => {
                return Some(Warning::Wrong { variable, value: shown, reason });
            }
            Reading::Replaced { used, reason } => {
                (used.clone(), Some(Warning::Replaced { variable, value: shown, used, reason }))
            }
        };
        if variable.state == State::Implemented {
            self.in_effect.insert(variable.name, effective);
        }
        warning
    }

    /// Switches to wall time without regions: samples on CPU time alone never see a wait.
    fn reconcile(&mut self, clock_given: bool) -> Vec<Warning> {
        if self.regions {
            return Vec::new();
        }
        let mut warnings = vec![Warning::Interrupts];
        if self.clock == ClockChoice::Wall {
            return warnings;
        }
        self.clock = ClockChoice::Wall;
        self.in_effect.insert("PLIMSOLL_CLOCK", "wall".into());
        let variable = TABLE.iter().find(|variable| variable.name == "PLIMSOLL_CLOCK");
        if let Some(variable) = variable.filter(|_| clock_given) {
            let (value, used) = ("cpu".into(), "wall".into());
            let reason = "with PLIMSOLL_REGIONS=off only wall time shows waiting";
            warnings.push(Warning::Replaced { variable, value, used, reason });
        }
        warnings
    }

    /// Returns whether the program is measured.
    pub fn watches_program(&self, program: &Path) -> bool {
        let among = |globs: &[Glob]| globs.iter().any(|glob| glob.matches(program));
        (self.include.is_empty() || among(&self.include)) && !among(&self.exclude)
    }

    /// Returns the values in effect, by variable: [`crate::Run::settings`].
    pub fn in_effect(&self) -> BTreeMap<String, String> {
        self.in_effect.iter().map(|(&name, value)| (name.to_owned(), value.clone())).collect()
    }
}

/// Parses one value like [`Settings::from_env`] and returns the warning.
pub fn check(variable: &'static Variable, value: &OsStr) -> Option<Warning> {
    Settings::default().take(variable, value)
}

/// Returns the most similar name: at most two letters wrong, or a third of a short name's.
fn closest(name: &str) -> Option<&'static str> {
    let name = name.trim_start_matches(PREFIX).to_ascii_uppercase();
    let public = TABLE.iter().filter(|variable| variable.state != State::Internal);
    let distances = public.map(|variable| {
        let meant = variable.name.trim_start_matches(PREFIX);
        (strsim::osa_distance(&name, meant), meant.len(), variable.name)
    });
    let (distance, length, meant) = distances.min()?;
    (distance <= 2.min(length / 3)).then_some(meant)
}

#[cfg(test)]
mod tests;
