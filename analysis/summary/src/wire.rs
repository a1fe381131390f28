//! JSON form of the summary, written and read.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};
use serde_json::Serializer;
use serde_json::ser::Formatter;

use super::{Loss, Summary};
use crate::error::Error;
use crate::printable::is_plain;

impl Summary {
    /// Writes the summary as one line of JSON with a line end. Characters in names that a terminal
    /// interprets or does not show are escaped. A float that is not finite becomes `null`, which
    /// [`Summary::from_json`] refuses for required numbers.
    ///
    /// # Errors
    /// Those of `to`.
    pub fn write_json(&self, to: &mut dyn Write) -> io::Result<()> {
        self.serialize(&mut Serializer::with_formatter(&mut *to, Plain))?;
        to.write_all(b"\n")
    }

    /// Returns the JSON that [`Summary::write_json`] writes.
    ///
    /// # Errors
    /// None: memory has no write errors.
    pub fn to_json(&self) -> io::Result<Vec<u8>> {
        let mut json = Vec::new();
        self.write_json(&mut json)?;
        Ok(json)
    }

    /// Reads a summary and checks its indices, so that callers need not.
    ///
    /// # Errors
    /// [`Error::WrongSchema`] for another version, [`Error::NotASummary`] for all else.
    pub fn from_json(json: &[u8]) -> Result<Self, Error> {
        let summary: Self = read_keys(json)?;
        let nodes = summary.tree.nodes.iter().map(|node| (node.frame, node.parent));
        check_indices(summary.tree.frames.len(), nodes, &summary.losses)?;
        Ok(summary)
    }
}

/// Reads some keys of a summary, those of `T`, and skips the others. `T` must have the key `schema`
/// of type [`SchemaVersion`](crate::SchemaVersion), so that other versions are refused.
///
/// # Errors
/// [`Error::WrongSchema`] for another version, [`Error::NotASummary`] for all else.
pub fn read_keys<'j, T: Deserialize<'j>>(json: &'j [u8]) -> Result<T, Error> {
    // Most files are summaries of this version: only others cost a second pass for the reason.
    serde_json::from_slice(json).map_err(|error| match other_version(json) {
        Ok(()) => not_a_summary(error),
        Err(other) => other,
    })
}

/// Returns an error for JSON without a schema or with another version.
fn other_version(json: &[u8]) -> Result<(), Error> {
    #[derive(Deserialize)]
    struct Version {
        schema: Option<String>,
    }
    let version: Version = serde_json::from_slice(json).map_err(not_a_summary)?;
    match version.schema.as_deref() {
        Some("plimsoll-summary/1") => Ok(()),
        Some(found) => Err(Error::WrongSchema { found: found.into() }),
        None => Err(Error::NotASummary { reason: "the key schema is missing".into() }),
    }
}

/// Checks that all indices of a summary are valid. `nodes` are the frame and the parent of each
/// node of the tree.
///
/// # Errors
/// [`Error::NotASummary`] with the first invalid index.
pub fn check_indices(
    frames: usize,
    nodes: impl ExactSizeIterator<Item = (u32, Option<u32>)>,
    losses: &[Loss],
) -> Result<(), Error> {
    let wrong = |reason: String| Err(Error::NotASummary { reason });
    let count = nodes.len();
    for (index, (frame, parent)) in nodes.enumerate() {
        if frame as usize >= frames {
            return wrong(format!("tree.nodes[{index}] names a frame that does not exist"));
        }
        if parent.is_some_and(|parent| parent as usize >= index) {
            return wrong(format!("tree.nodes[{index}] does not come after its parent"));
        }
    }
    for (index, loss) in losses.iter().enumerate() {
        let symptoms = [&loss.symptom].into_iter().chain(&loss.also_in);
        let mut named =
            loss.causes.iter().map(|cause| cause.node).chain(symptoms.map(|it| it.node));
        if named.any(|node| node as usize >= count) {
            return wrong(format!("losses[{index}] names a node that does not exist"));
        }
    }
    Ok(())
}

/// Formatter of strings that escapes characters for a terminal.
struct Plain;

impl Formatter for Plain {
    fn write_string_fragment<W: ?Sized + Write>(
        &mut self,
        to: &mut W,
        text: &str,
    ) -> io::Result<()> {
        let mut rest = text;
        while let Some((at, char)) = rest.char_indices().find(|(_, char)| !is_plain(*char)) {
            to.write_all(&rest.as_bytes()[..at])?;
            for unit in char.encode_utf16(&mut [0; 2]) {
                write!(to, "\\u{unit:04x}")?;
            }
            rest = &rest[at + char.len_utf8()..];
        }
        to.write_all(rest.as_bytes())
    }
}

fn not_a_summary(error: serde_json::Error) -> Error {
    Error::NotASummary { reason: error.to_string() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_damaged_summary_is_refused_with_a_reason() {
        for (json, reason) in [
            ("", "damaged"),
            ("{", "damaged"),
            ("[1,2]", "damaged"),
            ("{}", "the key schema is missing"),
            (r#"{"schema":"plimsoll-summary/9"}"#, "the schema \"plimsoll-summary/9\""),
            (r#"{"schema":"plimsoll-summary/1"}"#, "missing field `run`"),
        ] {
            let message = Summary::from_json(json.as_bytes()).unwrap_err().to_string();
            assert!(message.contains(reason), "{json}: {message}");
        }
    }
}
