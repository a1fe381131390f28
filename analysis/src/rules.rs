//! The user's rules from names of functions to labels, which come before the names that we know
//! (PPoPP20, 5.2: the mapping table).
//!
//! A rule is a line `PATTERN = LABEL`, or `MODULE:PATTERN = LABEL` for the functions of one program or
//! library. Later rules win. The label stands behind the last `=`, because names hold such signs
//! (`operator==`); comments have lines of their own, because names hold `#` (`main::{closure#0}`).

pub mod file;

use std::fmt;

use plimsoll_collector::profile::{Frame, FrameKind};
use serde::{Deserialize, Serialize};

use crate::glob::Glob;
use crate::label::Label;

/// Rules, in the order in which they were written. They travel as their text.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(from = "String", into = "String")]
pub struct Rules(Vec<Rule>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Rule {
    /// Modules that it is about; `None`: all.
    module: Option<Glob>,
    function: Glob,
    label: Label,
}

/// What is wrong with a line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Fault {
    /// It is no UTF-8.
    NotUtf8,
    /// There is no `=` in it.
    NoLabel,
    /// There is no such label.
    UnknownLabel(String),
    /// No function is named in front of the label.
    NoPattern,
    /// Nothing stands before the `:` behind which the function is named.
    NoModule,
}

/// A line that is no rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLine {
    /// Its number, from 1.
    pub number: usize,
    /// The line, as far as it can be shown.
    pub text: String,
    /// What is wrong with it.
    pub fault: Fault,
}

impl Rules {
    /// Reads rules, and what among them is none. Any bytes will do.
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

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The label that the rules give to each frame. Loops and lines have none: they are parts of the
    /// function that they lie in, and mean what it means there.
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
        let function: Vec<char> = frame.function.chars().collect();
        let module: Vec<char> = frame.module.chars().collect();
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

/// Where the module's `:` is: the first that is no part of a `::` or of brackets (`f[abi:cxx11]`).
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

/// Lines that a later version has written, and that this one cannot read, are passed over.
impl From<String> for Rules {
    fn from(text: String) -> Self {
        Self::parse(text.as_bytes()).0
    }
}

#[cfg(test)]
mod tests;
