//! The summary's JSON form, written and read.

use serde::Deserialize;

use super::Summary;
use crate::error::Error;
use crate::printable::is_plain;

impl Summary {
    /// The summary as one line of JSON with a line end. Characters that a terminal interprets or does
    /// not show, in names, are escaped.
    ///
    /// # Errors
    /// None for summaries whose floats are finite; a float that is not becomes `null`, which
    /// [`Summary::from_json`] refuses where a number must stand.
    pub fn to_json(&self) -> Result<Vec<u8>, Error> {
        let json = serde_json::to_string(self).map_err(not_a_summary)?;
        let mut escaped = String::with_capacity(json.len() + 1);
        for char in json.chars() {
            // Outside of strings everything is plain.
            if is_plain(char) {
                escaped.push(char);
            } else {
                let units = &mut [0; 2];
                let units = char.encode_utf16(units).iter();
                escaped.extend(units.map(|unit| format!("\\u{unit:04x}")));
            }
        }
        escaped.push('\n');
        Ok(escaped.into_bytes())
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
