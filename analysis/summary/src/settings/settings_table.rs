//! Table of all settings: one entry defines a variable's name, default, meaning, state and parser.
//! Parsing, its messages, and the options and help of `plimsoll run` come from here.

use std::ffi::OsStr;
use std::fmt;
use std::path;

use super::event_names::parse_events;
use super::quantity::{format_duration_ns, parse_boolean, parse_duration_ns, parse_size_bytes};
use super::rank_filter::RankFilter;
use super::sampling_request::SamplingRequest;
use super::{ClockChoice, Formats, MarksChoice, Settings, ThreadsChoice, Trace};
use crate::derived_metric::DerivedMetric;
use crate::glob::Glob;
use crate::report_names;

/// Whether a variable is implemented.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum State {
    /// The variable has an effect.
    Implemented,
    /// Set by `plimsoll run` or by developers of Plimsoll; not listed for users.
    Internal,
}

/// The result of parsing a value.
pub(super) enum Reading {
    /// The value is in effect.
    Taken,
    /// The value cannot be parsed; the default stays in effect.
    Unreadable,
    /// The value cannot be parsed for this reason; the default stays in effect.
    Wrong { reason: String },
    /// Another value is in effect.
    Replaced { used: String, reason: &'static str },
}

/// One setting.
pub struct Variable {
    /// Name in the environment.
    pub name: &'static str,
    /// Value if the variable is not set; empty: none.
    pub default: &'static str,
    /// Placeholder of the value in the help.
    pub placeholder: &'static str,
    /// Meaning, as a line of the help.
    pub meaning: &'static str,
    /// Description of a valid value: completes "expected ...".
    pub expected: &'static str,
    /// Whether the variable is implemented.
    pub state: State,
    pub(super) read: fn(&mut Settings, &OsStr) -> Reading,
}

impl Variable {
    /// Returns the name as an option of `plimsoll run`, without dashes.
    pub fn option(&self) -> String {
        self.name.trim_start_matches(PREFIX).to_ascii_lowercase().replace('_', "-")
    }
}

impl PartialEq for Variable {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

impl fmt::Debug for Variable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name)
    }
}

/// Prefix of every name.
pub const PREFIX: &str = "PLIMSOLL_";

/// Minimum sampling period, in nanoseconds: below it the samples measure mostly their own cost.
pub const MIN_PERIOD_NS: u64 = 100_000;
/// Maximum sampling period, in nanoseconds: beyond it most runs have too few samples.
pub const MAX_PERIOD_NS: u64 = 10_000_000_000;
/// Minimum memory per rank, in bytes: the smallest ring and a small context tree.
pub const MIN_MEMORY_BYTES: u64 = 1 << 20;

/// Name of the variable with the ranks that keep their samples.
pub const TRACE: &str = "PLIMSOLL_TRACE";
/// Name of the variable with derived metrics.
pub const METRICS: &str = "PLIMSOLL_METRICS";
/// Name of the variable with the file of label rules.
pub const LABELS: &str = "PLIMSOLL_LABELS";
/// Name of the variable with the aggregation of threads.
pub const THREADS: &str = "PLIMSOLL_THREADS";
/// Name of the variable with the ranks to watch.
pub const RANKS: &str = "PLIMSOLL_RANKS";
/// Name of the variable by which `plimsoll run` passes on its process id.
pub const ROOT_PID: &str = "PLIMSOLL_ROOT_PID";
/// Name of the variable with the library that `plimsoll run` preloads.
pub const LIBRARY: &str = "PLIMSOLL_LIBRARY";

const BOOLEAN: &str = "on or off (also 1/0, true/false, yes/no)";
const GLOBS: &str = "program names separated by commas, with * ? [a-z]";

/// All variables.
pub static TABLE: [Variable; 21] = [
    Variable {
        name: "PLIMSOLL_PERIOD",
        default: "4ms",
        placeholder: "TIME",
        meaning: "Sampling period, 100us to 10s; units ns, us, ms, s",
        expected: "a time from 100us to 10s with its unit (ns, us, ms, s), such as 4ms",
        state: State::Implemented,
        read: read_period,
    },
    Variable {
        name: "PLIMSOLL_CLOCK",
        default: "cpu",
        placeholder: "CLOCK",
        meaning: "What drives the samples: cpu (time of the program's own code on the CPU) or wall \
                  (all time outside of wrapped calls)",
        expected: "cpu or wall",
        state: State::Implemented,
        read: |settings, value| {
            settings.clock = match text(value).as_str() {
                "cpu" => ClockChoice::Cpu,
                "wall" => ClockChoice::Wall,
                _ => return Reading::Unreadable,
            };
            Reading::Taken
        },
    },
    Variable {
        name: "PLIMSOLL_OUTPUT",
        default: ".",
        placeholder: "PLACE",
        meaning: "Where reports go: a directory, or a name with %e executable, %j job id, %h host, \
                  %p pid, %n ranks, %t time; created if missing, never overwritten",
        expected: "a directory, or a name with %e %j %h %p %n %t (%% is a percent sign)",
        state: State::Implemented,
        read: |settings, value| {
            if !report_names::is_pattern_valid(value) {
                return Reading::Unreadable;
            }
            settings.output = value.into();
            Reading::Taken
        },
    },
    Variable {
        name: "PLIMSOLL_FORMATS",
        default: "text,json,html",
        placeholder: "LIST",
        meaning: "What rank 0 writes: text, json, html (a page for a browser)",
        expected: "a list of text, json, html, separated by commas",
        state: State::Implemented,
        read: read_formats,
    },
    Variable {
        name: TRACE,
        default: "clusters",
        placeholder: "WHAT",
        meaning: "Spool of samples: off, clusters (one rank of each cluster is kept), \
                  sample:confidence=95%,error=3% (random ranks, enough for this precision), all",
        expected: "off, clusters, all, or sample:confidence=95%,error=3% (confidence from 50% to \
                   99.9%, error from 0.1% to 50%)",
        state: State::Implemented,
        read: read_trace,
    },
    Variable {
        name: "PLIMSOLL_COUNTERS",
        default: "",
        placeholder: "LIST",
        meaning: "Perf events per call path: cycles, instructions, cache-misses, page-faults, ...",
        expected: "at most 8 perf events, separated by commas, such as \
                   cycles,instructions,page-faults (names as in `perf list`, or rNNNN)",
        state: State::Implemented,
        read: read_counters,
    },
    Variable {
        name: METRICS,
        default: "",
        placeholder: "LIST",
        meaning: "Metrics derived from the counters: `ipc = instructions / cycles; ...`",
        expected: "definitions such as `ipc = instructions / cycles`, separated by semicolons",
        state: State::Implemented,
        read: |settings, value| {
            let value = value.to_string_lossy();
            match DerivedMetric::parse_list(&value) {
                Ok(_) => {
                    settings.metrics = Some(value.into_owned());
                    Reading::Taken
                }
                Err(reason) => Reading::Wrong { reason },
            }
        },
    },
    Variable {
        name: THREADS,
        default: "key",
        placeholder: "HOW",
        meaning: "How threads of a process are merged: sum, set, key, calltree, all",
        expected: "sum, set, key, calltree or all",
        state: State::Implemented,
        read: |settings, value| match ThreadsChoice::parse(&text(value)) {
            Some(threads) => {
                settings.threads = threads;
                Reading::Taken
            }
            None => Reading::Unreadable,
        },
    },
    Variable {
        name: LABELS,
        default: "",
        placeholder: "FILE",
        meaning: "File with rules that say what functions are for, a line each: PATTERN = LABEL",
        expected: "a file",
        state: State::Implemented,
        read: |settings, value| {
            // The program may change its directory before the file is read.
            settings.labels = Some(path::absolute(value).unwrap_or_else(|_| value.into()));
            Reading::Taken
        },
    },
    Variable {
        name: "PLIMSOLL_MARKS",
        default: "on",
        placeholder: "HOW",
        meaning: "Return-address marks, which separate calls: on, off, or verify (slow)",
        expected: "on, off or verify",
        state: State::Implemented,
        read: |settings, value| {
            let value = text(value);
            settings.marks = match parse_boolean(&value) {
                Some(true) => MarksChoice::On,
                Some(false) => MarksChoice::Off,
                None if value.eq_ignore_ascii_case("verify") => MarksChoice::Verify,
                None => return Reading::Unreadable,
            };
            Reading::Taken
        },
    },
    Variable {
        name: "PLIMSOLL_REGIONS",
        default: "on",
        placeholder: "ON|OFF",
        meaning: "Wrappers of MPI and of blocking calls; off: samples only, on wall time, which \
                  interrupt calls of the program (EINTR)",
        expected: BOOLEAN,
        state: State::Implemented,
        read: |settings, value| read_boolean(&mut settings.regions, value),
    },
    Variable {
        name: "PLIMSOLL_OPENMP",
        default: "on",
        placeholder: "ON|OFF",
        meaning: "Measurement of OpenMP: parallel regions, barriers, locks",
        expected: BOOLEAN,
        state: State::Implemented,
        read: |settings, value| read_boolean(&mut settings.openmp, value),
    },
    Variable {
        name: "PLIMSOLL_INCLUDE",
        default: "",
        placeholder: "GLOBS",
        meaning: "Programs to watch, and no others: names with * ? [a-z], separated by commas",
        expected: GLOBS,
        state: State::Implemented,
        read: |settings, value| {
            settings.include = globs(value);
            Reading::Taken
        },
    },
    Variable {
        name: "PLIMSOLL_EXCLUDE",
        default: "",
        placeholder: "GLOBS",
        meaning: "Programs to leave alone, in the same form",
        expected: GLOBS,
        state: State::Implemented,
        read: |settings, value| {
            settings.exclude = globs(value);
            Reading::Taken
        },
    },
    Variable {
        name: RANKS,
        default: "all",
        placeholder: "RANKS",
        meaning: "Ranks to watch: all, or a list such as 0-3,8,16-30:2",
        expected: "all, or a list of ranks such as 0-3,8,16-30:2",
        state: State::Implemented,
        read: |settings, value| match RankFilter::parse(&text(value)) {
            Some(ranks) => {
                settings.ranks = ranks;
                Reading::Taken
            }
            None => Reading::Unreadable,
        },
    },
    Variable {
        name: "PLIMSOLL_MEMORY",
        default: "64MiB",
        placeholder: "SIZE",
        meaning: "Most memory per rank; units KiB, MiB, GiB, KB, MB, GB",
        expected: "a size with its unit (KiB, MiB, GiB, KB, MB, GB), such as 64MiB",
        state: State::Implemented,
        read: |settings, value| match parse_size_bytes(&text(value)) {
            Some(bytes) if bytes < MIN_MEMORY_BYTES => {
                settings.memory_bytes = MIN_MEMORY_BYTES;
                Reading::Replaced { used: "1MiB".into(), reason: "that is too little" }
            }
            Some(bytes) => {
                settings.memory_bytes = bytes;
                Reading::Taken
            }
            None => Reading::Unreadable,
        },
    },
    Variable {
        name: "PLIMSOLL_VERBOSE",
        default: "1",
        placeholder: "LEVEL",
        meaning: "What is said on stderr: 0 nothing, 1 a short summary, 2 for debugging",
        expected: "0, 1 or 2",
        state: State::Implemented,
        read: |settings, value| {
            settings.verbose = match text(value).as_str() {
                "0" => 0,
                "1" => 1,
                "2" => 2,
                _ => return Reading::Unreadable,
            };
            Reading::Taken
        },
    },
    Variable {
        name: "PLIMSOLL_DISABLE",
        default: "",
        placeholder: "1",
        meaning: "1: do nothing at all",
        expected: "1 or 0",
        state: State::Implemented,
        read: |settings, value| read_boolean(&mut settings.disable, value),
    },
    Variable {
        name: "PLIMSOLL_PARTNERS",
        default: "on",
        placeholder: "ON|OFF",
        meaning: "Messages by partner; off: their cost shows in a benchmark",
        expected: BOOLEAN,
        state: State::Internal,
        read: |settings, value| read_boolean(&mut settings.partners, value),
    },
    Variable {
        name: ROOT_PID,
        default: "",
        placeholder: "PID",
        meaning: "Process id of what `plimsoll run` started",
        expected: "a process id",
        state: State::Internal,
        read: |settings, value| match text(value).parse() {
            Ok(pid) => {
                settings.root_pid = Some(pid);
                Reading::Taken
            }
            Err(_) => Reading::Unreadable,
        },
    },
    Variable {
        name: LIBRARY,
        default: "",
        placeholder: "FILE",
        meaning: "The library that `plimsoll run` preloads, where it does not stand beside it",
        expected: "a file",
        state: State::Internal,
        read: nothing,
    },
];

fn text(value: &OsStr) -> String {
    value.to_string_lossy().trim().to_ascii_lowercase()
}

fn nothing(_: &mut Settings, _: &OsStr) -> Reading {
    Reading::Taken
}

fn read_boolean(setting: &mut bool, value: &OsStr) -> Reading {
    let Some(is_on) = parse_boolean(&text(value)) else { return Reading::Unreadable };
    *setting = is_on;
    Reading::Taken
}

fn read_period(settings: &mut Settings, value: &OsStr) -> Reading {
    let Some(asked_ns) = parse_duration_ns(&text(value)) else { return Reading::Unreadable };
    settings.period_ns = asked_ns.clamp(MIN_PERIOD_NS, MAX_PERIOD_NS);
    if settings.period_ns == asked_ns {
        return Reading::Taken;
    }
    let reason = if asked_ns < MIN_PERIOD_NS {
        "so short a period would slow the program down"
    } else {
        "so long a period would leave too few samples"
    };
    Reading::Replaced { used: format_duration_ns(settings.period_ns), reason }
}

fn read_formats(settings: &mut Settings, value: &OsStr) -> Reading {
    let mut formats = Formats { text: false, json: false, html: false };
    for name in text(value).split(',').map(str::trim) {
        match name {
            "text" => formats.text = true,
            "json" => formats.json = true,
            "html" => formats.html = true,
            _ => return Reading::Unreadable,
        }
    }
    settings.formats = formats;
    Reading::Taken
}

fn read_trace(settings: &mut Settings, value: &OsStr) -> Reading {
    let value = text(value);
    settings.trace = match value.as_str() {
        "off" => Trace::Off,
        "clusters" => Trace::Clusters,
        "all" => Trace::All,
        _ => match SamplingRequest::parse(&value) {
            Some(Ok(request)) => Trace::Sample(request),
            Some(Err(reason)) => return Reading::Wrong { reason },
            None => return Reading::Unreadable,
        },
    };
    Reading::Taken
}

fn read_counters(settings: &mut Settings, value: &OsStr) -> Reading {
    match parse_events(&value.to_string_lossy()) {
        Ok(events) => {
            settings.events = events;
            Reading::Taken
        }
        Err(reason) => Reading::Wrong { reason },
    }
}

fn globs(value: &OsStr) -> Vec<Glob> {
    let list = value.to_string_lossy();
    list.split(',').map(str::trim).filter(|glob| !glob.is_empty()).map(Glob::new).collect()
}
