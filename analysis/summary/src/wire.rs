//! The summary's JSON form, written and read.

use std::io::{self, Write};

use serde::{Deserialize, Serialize};
use serde_json::Serializer;
use serde_json::ser::Formatter;

use super::Summary;
use crate::error::Error;
use crate::printable::is_plain;

impl Summary {
    /// Writes the summary as one line of JSON with a line end. Characters that a terminal interprets or
    /// does not show, in names, are escaped. A float that is not finite becomes `null`, which
    /// [`Summary::from_json`] refuses where a number must stand.
    ///
    /// # Errors
    /// Those of `to`.
    pub fn write_json(&self, to: &mut dyn Write) -> io::Result<()> {
        self.serialize(&mut Serializer::with_formatter(&mut *to, Plain))?;
        to.write_all(b"\n")
    }

    /// The same in memory.
    ///
    /// # Errors
    /// None that memory has.
    pub fn to_json(&self) -> io::Result<Vec<u8>> {
        let mut json = Vec::new();
        self.write_json(&mut json)?;
        Ok(json)
    }

    /// Reads a summary and checks that its indices lead somewhere, so that nobody else need.
    ///
    /// # Errors
    /// [`Error::WrongSchema`] for another version, [`Error::NotASummary`] for all else.
    pub fn from_json(json: &[u8]) -> Result<Self, Error> {
        #[derive(Deserialize)]
        struct Version {
            schema: Option<String>,
        }
        let version: Version = serde_json::from_slice(json).map_err(not_a_summary)?;
        match version.schema.as_deref() {
            Some("plimsoll-summary/1") => {}
            Some(found) => return Err(Error::WrongSchema { found: found.into() }),
            None => return Err(Error::NotASummary { reason: "the key schema is missing".into() }),
        }
        let summary: Self = serde_json::from_slice(json).map_err(not_a_summary)?;
        summary.check().map_err(|reason| Error::NotASummary { reason })?;
        Ok(summary)
    }

    fn check(&self) -> Result<(), String> {
        let (frames, nodes) = (self.tree.frames.len(), self.tree.nodes.len());
        for (index, node) in self.tree.nodes.iter().enumerate() {
            if node.frame as usize >= frames {
                return Err(format!("tree.nodes[{index}] names a frame that does not exist"));
            }
            if node.parent.is_some_and(|parent| parent as usize >= index) {
                return Err(format!("tree.nodes[{index}] does not come after its parent"));
            }
        }
        for (index, loss) in self.losses.iter().enumerate() {
            let mut named = loss.causes.iter().map(|cause| cause.node).chain([loss.symptom.node]);
            if named.any(|node| node as usize >= nodes) {
                return Err(format!("losses[{index}] names a node that does not exist"));
            }
        }
        Ok(())
    }
}

/// Writes strings as a terminal may show them.
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
    fn what_is_no_summary_is_refused_with_a_reason() {
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
