//! One line of the doctor's list.

use serde::Serialize;

/// How far something works.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum State {
    /// It works.
    Ok,
    /// Plimsoll measures, but less, or more coarsely.
    Limited,
    /// Plimsoll measures nothing.
    Failed,
}

/// One check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    /// What was looked at; stable, for scripts.
    pub name: &'static str,
    /// The verdict.
    pub state: State,
    /// What was found, in words.
    pub found: String,
    /// What to do; `None` where there is nothing to mend.
    pub remedy: Option<String>,
}

impl Check {
    /// Something that works.
    pub fn ok(name: &'static str, found: impl Into<String>) -> Self {
        Self { name, state: State::Ok, found: found.into(), remedy: None }
    }

    /// Something that works in part.
    pub fn limited(
        name: &'static str,
        found: impl Into<String>,
        remedy: impl Into<String>,
    ) -> Self {
        let remedy = Some(remedy.into());
        Self { name, state: State::Limited, found: found.into(), remedy }
    }

    /// Something that prevents the measurement.
    pub fn failed(name: &'static str, found: impl Into<String>, remedy: impl Into<String>) -> Self {
        let remedy = Some(remedy.into());
        Self { name, state: State::Failed, found: found.into(), remedy }
    }
}
