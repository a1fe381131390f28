//! The user's rules from function names to labels, with priority over the names that we know
//! (PPoPP20, 5.2: the mapping table).
//!
//! A rule is a line `PATTERN = LABEL`, or `MODULE:PATTERN = LABEL` for the functions of one program
//! or library. Later rules win. The label follows the last `=`, because names may contain that sign
//! (`operator==`); comments have lines of their own, because names may contain `#`
//! (`main::{closure#0}`).

pub mod file;

use std::fmt;

use plimsoll_collector::profile::{Frame, FrameKind};
use serde::{Deserialize, Serialize};

use crate::glob::Glob;
use crate::label::Label;

/// Rules in the order of the file. Serialised as their text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Rules(Vec<Rule>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    /// Modules to which the rule applies; `None` for all.
    module: Option<Glob>,
    function: Glob,
    label: Label,
}

/// Error in a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// The line is not UTF-8.
    NotUtf8,
    /// The line has no `=`.
    NoLabel,
    /// The label is unknown.
    UnknownLabel(String),
    /// There is no function name before the label.
    NoPattern,
    /// There is no module name before the `:`.
    NoModule,
}

/// A line that is not a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLine {
    /// Line number, from 1.
    pub number: usize,
    /// Text of the line, as far as it can be shown.
    pub text: String,
    /// Error in the line.
    pub fault: Fault,
}

impl Rules {
    /// Reads rules. Returns the rules and the lines that are no rules. Accepts any bytes.
    pub fn parse(bytes: &[u8]) -> (Self, Vec<BadLine>) {
        let bytes = bytes.strip_prefix(b"\xef\xbb\xbf").unwrap_or(bytes);
        let (mut rules, mut bad) = (Vec::new(), Vec::new());
        for (line, number) in bytes.split(|byte| *byte == b'\n').zip(1..) {
            let line = line.trim_ascii();
            // Comments may be in any encoding.
            if line.is_empty() || line.starts_with(b"#") {
                continue;
            }
            match str::from_utf8(line).map_err(|_| Fault::NotUtf8).and_then(Rule::parse) {
                Ok(rule) => rules.push(rule),
                Err(fault) => {
                    let text = String::from_utf8_lossy(line).into_owned();
                    bad.push(BadLine { number, text, fault });
                }
            }
        }
        (Self(rules), bad)
    }

    /// Returns whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Returns the label that the rules give to each frame. Loops and lines have none: they are
    /// parts of the function that contains them, and have its meaning.
    pub fn labels(&self, frames: &[Frame]) -> Vec<Option<Label>> {
        if self.is_empty() {
            return vec![None; frames.len()];
        }
        frames.iter().map(|frame| self.label(frame)).collect()
    }

    fn label(&self, frame: &Frame) -> Option<Label> {
        if matches!(frame.kind, FrameKind::Loop | FrameKind::Line) {
            return None;
        }
        self.label_of(&frame.module, &frame.function)
    }

    /// Returns whether any rule declares functions to be synchronisations.
    pub fn declare_synchronisations(&self) -> bool {
        self.0.iter().any(|rule| rule.label == Label::CollectiveSynchronisation)
    }

    /// Returns the label that the rules give to a function; `None` if no rule matches.
    pub fn label_of(&self, module: &str, function: &str) -> Option<Label> {
        let function: Vec<char> = function.chars().collect();
        let module: Vec<char> = module.chars().collect();
        let fits = |rule: &&Rule| {
            rule.function.fits(&function)
                && rule.module.as_ref().is_none_or(|glob| glob.fits(&module))
        };
        self.0.iter().rfind(fits).map(|rule| rule.label)
    }
}

impl Rule {
    fn parse(line: &str) -> Result<Self, Fault> {
        let (names, label) = line.rsplit_once('=').ok_or(Fault::NoLabel)?;
        let label = label.trim();
        let known = Label::ALL.into_iter().find(|it| it.name().eq_ignore_ascii_case(label));
        let label = known.ok_or_else(|| Fault::UnknownLabel(label.to_owned()))?;
        let (module, function) = match module_end(names) {
            Some(end) => (Some(names[..end].trim()), &names[end + 1..]),
            None => (None, names),
        };
        let function = function.trim();
        if function.is_empty() {
            return Err(Fault::NoPattern);
        }
        if module == Some("") {
            return Err(Fault::NoModule);
        }
        Ok(Self {
            module: module.map(Glob::of_functions),
            function: Glob::of_functions(function),
            label,
        })
    }
}

/// Returns the position of the module's `:`: the first that is not part of a `::` and not inside of
/// brackets (`f[abi:cxx11]`).
fn module_end(names: &str) -> Option<usize> {
    let bytes = names.as_bytes();
    let mut depth = 0usize;
    let mut at = 0;
    while at < bytes.len() {
        match bytes[at] {
            b'[' => depth += 1,
            b']' => depth = depth.saturating_sub(1),
            b':' if bytes.get(at + 1) == Some(&b':') => at += 1,
            b':' if depth == 0 => return Some(at),
            _ => {}
        }
        at += 1;
    }
    None
}

impl fmt::Display for Rule {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        if let Some(module) = &self.module {
            write!(formatter, "{module}:")?;
        }
        write!(formatter, "{} = {}", self.function, self.label)
    }
}

impl From<Rules> for String {
    fn from(rules: Rules) -> Self {
        rules.0.iter().map(|rule| format!("{rule}\n")).collect()
    }
}

/// Ignores lines that a later version has written and this version cannot read.
impl From<String> for Rules {
    fn from(text: String) -> Self {
        Self::parse(text.as_bytes()).0
    }
}

#[cfg(test)]
mod tests;
