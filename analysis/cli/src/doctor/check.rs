//! One line of the doctor's list.

use serde::Serialize;

/// State of a checked item.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// The item works.
    Ok,
    /// Plimsoll measures less, or more coarsely.
    Limited,
    /// Plimsoll measures nothing.
    Failed,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// Name of the item; stable, for scripts.
    pub name: &'static str,
    /// Result of the check.
    pub state: State,
    /// Finding in words.
    pub found: String,
    /// Remedy; `None` if there is nothing to repair.
    pub remedy: Option<String>,
}

impl Check {
    /// Creates the check of an item that works.
    pub fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, state: State::Ok, found: found.into(), remedy: None }
    }

    /// Creates the check of an item that works in part.
    pub fn limited(
        name: &'static str,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let remedy = Some(remedy.into());
        Self { name, state: State::Limited, found: found.into(), remedy }
    }

    /// Creates the check of an item that prevents the measurement.
    pub fn failed(name: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        let remedy = Some(remedy.into());
        Self { name, state: State::Failed, found: found.into(), remedy }
    }
}
