//! Warnings about settings: the problem and the expected value, in one sentence.

use std::fmt;

use super::settings_table::Variable;
use crate::printable::excerpt;

/// A setting that is not in effect as the user wrote it.
#[derive(Clone, Debug, PartialEq)]
pub enum Warning {
    /// The name is unknown.
    Unknown {
        /// The name.
        name: String,
        /// The most similar known name, if one is similar.
        suggestion: Option<&'static str>,
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
}

impl fmt::Display for Warning {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown { name, suggestion: Some(suggestion) } => {
                let name = excerpt(name);
                write!(formatter, "{name} is unknown and ignored; did you mean {suggestion}?")
            }
            Self::Unknown { name, suggestion: None } => write!(
                formatter,
                "{} is unknown and ignored; `plimsoll run --help` lists all settings.",
                excerpt(name)
            ),
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
        }
    }
}
