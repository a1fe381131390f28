//! What is wrong with a setting, in a sentence that says what is expected.

use std::fmt;

use super::table::Variable;
use crate::printable::excerpt;

/// A setting that was not taken as it was written.
#[derive(Clone, Debug, PartialEq)]
pub enum Warning {
    /// No variable has this name.
    Unknown {
        /// The name.
        name: String,
        /// The name that was probably meant.
        suggestion: Option<&'static str>,
    },
    /// The value cannot be read; the default is used.
    Unreadable {
        /// The variable.
        variable: &'static Variable,
        /// The value.
        value: String,
    },
    /// Another value is used instead.
    Replaced {
        /// The variable.
        variable: &'static Variable,
        /// The value.
        value: String,
        /// The value that is used.
        used: String,
        /// Why.
        reason: &'static str,
    },
    /// The variable, or a value of it, has no effect so far.
    NotYet {
        /// What has none.
        what: String,
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
            Self::Replaced { variable, value, used, reason } => {
                let (name, value, used) = (variable.name, excerpt(value), excerpt(used));
                write!(formatter, "{name}={value}: {reason}; {used} is used.")
            }
            Self::NotYet { what } => {
                write!(formatter, "{} is not implemented yet; ignored.", excerpt(what))
            }
        }
    }
}
