//! Warnings about settings: the problem and the expected value, in one sentence.

use std::fmt;

use super::settings_table::Variable;
use crate::printable::excerpt;

/// Maximum number of unknown names that are shown.
const MAX_UNKNOWN: usize = 8;

/// An unknown name with the prefix of settings.
#[derive(Clone, Debug, PartialEq)]
pub struct UnknownName {
    /// The name.
    pub name: String,
    /// The most similar known name, if one is similar.
    pub suggestion: Option<&'static str>,
}

/// A setting that is not in effect as the user wrote it.
#[derive(Clone, Debug, PartialEq)]
pub enum Warning {
    /// Names are unknown; one warning for all of them.
    Unknown {
        /// The names, at least one.
        names: Vec<UnknownName>,
    },
    /// The value cannot be parsed; the default is in effect.
    Unreadable {
        /// The variable.
        variable: &'static Variable,
        /// The value.
        value: String,
    },
    /// The value cannot be parsed for a reason that can be named; the default is in effect.
    Wrong {
        /// The variable.
        variable: &'static Variable,
        /// The value.
        value: String,
        /// The reason, a sentence without its end.
        reason: String,
    },
    /// Another value is in effect.
    Replaced {
        /// The variable.
        variable: &'static Variable,
        /// The value.
        value: String,
        /// The value in effect.
        used: String,
        /// The reason, as the end of a sentence.
        reason: &'static str,
    },
    /// Samples interrupt calls of the program that wait.
    Interrupts,
}

impl fmt::Display for Warning {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { names } => unknown(formatter, names),
            Self::Unreadable { variable, value } => {
                let Variable { name, expected, default, .. } = variable;
                let value = excerpt(value);
                let instead = if default.is_empty() {
                    "it is ignored".into()
                } else {
                    format!("the default {default} is used")
                };
                write!(formatter, "{name}={value} cannot be read: expected {expected}; {instead}.")
            }
            Self::Wrong { variable, value, reason } => {
                let Variable { name, expected, .. } = variable;
                let (value, reason) = (excerpt(value), excerpt(reason));
                write!(formatter, "{name}={value} is ignored: {reason}; expected {expected}.")
            }
            Self::Replaced { variable, value, used, reason } => {
                let (name, value, used) = (variable.name, excerpt(value), excerpt(used));
                write!(formatter, "{name}={value}: {reason}; {used} is used.")
            }
            Self::Interrupts => formatter.write_str(
                "PLIMSOLL_REGIONS=off: samples interrupt the program where it waits, so that calls \
                 such as poll, select and sleep end early (EINTR).",
            ),
        }
    }
}

fn unknown(formatter: &mut fmt::Formatter<'_>, names: &[UnknownName]) -> fmt::Result {
    if let [UnknownName { name, suggestion: Some(suggestion) }] = names {
        let name = excerpt(name);
        return write!(formatter, "{name} is unknown and ignored; did you mean {suggestion}?");
    }
    let shown = names.iter().take(MAX_UNKNOWN).map(|UnknownName { name, suggestion }| {
        let meant = suggestion.map(|it| format!(" (did you mean {it}?)")).unwrap_or_default();
        format!("{}{meant}", excerpt(name))
    });
    let mut shown: Vec<String> = shown.collect();
    let more = names.len() - shown.len();
    if more > 0 {
        shown.push(format!("{more} more"));
    }
    let last = shown.pop().unwrap_or_default();
    let (first, are) = match shown.len() {
        0 => (String::new(), "is"),
        _ => (format!("{} and ", shown.join(", ")), "are"),
    };
    write!(
        formatter,
        "{first}{last} {are} unknown and ignored; `plimsoll run --help` lists all settings."
    )
}
