//! The per-rank file, as a script reads it, checked against the summary that it belongs to.

use std::collections::BTreeMap;
use std::fs;
use std::path::Path;

use serde_json::Value;

/// Quantities before those of events.
const QUANTITIES: [&str; 3] = ["inclusive_s", "exclusive_s", "calls"];

/// Times in seconds, calls and events of each rank in each context.
#[derive(Clone, Debug, PartialEq)]
pub struct PerRank {
    bytes: Vec<u8>,
    header: Value,
    numbers: Vec<f32>,
}

impl PerRank {
    /// Reads a file: a line of JSON, and an array.
    ///
    /// # Errors
    /// If the file is malformed; the message names the fault.
    pub fn read(path: &Path) -> Result<Self, String> {
        let shown = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        Self::new(fs::read(path).map_err(|error| shown(&error))?).map_err(|error| shown(&error))
    }

    fn new(bytes: Vec<u8>) -> Result<Self, String> {
        let end = bytes.iter().position(|byte| *byte == b'\n').ok_or("no line")? + 1;
        let header: Value =
            serde_json::from_slice(&bytes[..end]).map_err(|error| error.to_string())?;
        let (words, rest) = bytes[end..].as_chunks::<4>();
        let numbers = words.iter().map(|word| f32::from_le_bytes(*word)).collect();
        let read = Self { header, numbers, bytes: Vec::new() };
        let nodes = read.list("nodes").len() as u64;
        let shape: Vec<u64> = read.list("shape").iter().filter_map(Value::as_u64).collect();
        let [ranks, quantities, width] = shape[..] else { return Err(format!("shape {shape:?}")) };
        let shape: Vec<u64> = read.list("phase_shape").iter().filter_map(Value::as_u64).collect();
        let [phases, 4, phase_width] = shape[..] else { return Err(format!("shape {shape:?}")) };
        let listed = phases == read.list("phases").len() as u64 && phase_width == width;
        let count = ranks * quantities * width + phases * 4 * width;
        let counted = listed
            && count == read.numbers.len() as u64
            && quantities == read.list("quantities").len() as u64;
        if end % 64 != 0 || !rest.is_empty() || !counted || width != nodes {
            return Err(format!(
                "{} numbers from byte {end} on: {}",
                read.numbers.len(),
                read.header
            ));
        }
        for (key, expected) in
            [("schema", serde_json::json!("plimsoll-ranks/1")), ("dtype", serde_json::json!("<f4"))]
        {
            if read.header[key] != expected {
                return Err(format!("{key} is {}", read.header[key]));
            }
        }
        if !read.list("quantities").starts_with(&QUANTITIES.map(Value::from)) {
            return Err(format!("quantities are {}", read.header["quantities"]));
        }
        Ok(Self { bytes, ..read })
    }

    fn list(&self, key: &str) -> &[Value] {
        self.header[key].as_array().map_or(&[], Vec::as_slice)
    }

    /// Returns the whole file.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the ranks, as a list with ranges.
    pub fn ranks(&self) -> &str {
        self.header["ranks"].as_str().unwrap_or_default()
    }

    /// Returns the values of all ranks in a node of the tree; `None` if the file has no such node
    /// or quantity: `inclusive_s`, `exclusive_s`, `calls`, `page-faults.inclusive`, and so on.
    pub fn of(&self, node: u64, quantity: &str) -> Option<Vec<f64>> {
        let (nodes, quantities) = (self.list("nodes"), self.list("quantities"));
        let column = nodes.iter().position(|one| one.as_u64() == Some(node))?;
        let quantity = quantities.iter().position(|one| one.as_str() == Some(quantity))?;
        let ranks = self.list("shape")[0].as_u64()? as usize;
        let rows = self.numbers.chunks_exact(quantities.len() * nodes.len()).take(ranks);
        let at = quantity * nodes.len() + column;
        Some(rows.map(|row| f64::from(row[at])).collect())
    }

    /// Returns the contradictions to the summary that the file belongs to.
    pub fn contradictions(&self, summary: &Value) -> Vec<String> {
        let mut faults = Vec::new();
        let nodes = summary["tree"]["nodes"].as_array().map_or(&[][..], Vec::as_slice);
        let ranks = summary["run"]["ranks"].as_u64();
        let counted = counted_nodes(summary);
        for node in self.list("nodes").iter().filter_map(Value::as_u64) {
            let times = nodes.get(node as usize).unwrap_or(&Value::Null);
            let events = counted.get(&node).copied().unwrap_or(&Value::Null);
            for quantity in self.list("quantities").iter().filter_map(Value::as_str) {
                let values = self.of(node, quantity).unwrap_or_default();
                let (expected, unit) = match quantity.rsplit_once('.') {
                    Some((event, kind)) => (&events[event][kind], ""),
                    None => (&times[quantity.trim_end_matches("_s")], "_s"),
                };
                // Calls have no statistics, and an event that some rank did not count has others.
                if quantity == "calls" || values.iter().any(|value| value.is_nan()) {
                    continue;
                }
                let min = values.iter().copied().fold(f64::INFINITY, f64::min);
                let max = values.iter().copied().fold(0.0, f64::max);
                let all = [("sum", values.iter().sum()), ("min", min), ("max", max)];
                for (statistic, value) in all {
                    // A context without events has none in the summary.
                    let absent = if unit.is_empty() { 0.0 } else { f64::NAN };
                    let statistic = format!("{statistic}{unit}");
                    let expected = expected[&statistic].as_f64().unwrap_or(absent);
                    let near = (value - expected).abs() <= expected * 1e-6;
                    if !near || Some(values.len() as u64) != ranks {
                        faults.push(format!(
                            "per_rank: {quantity} of node {node} has {statistic} {value}, not \
                             {expected}: {values:?}"
                        ));
                    }
                }
            }
        }
        faults
    }
}

/// Returns the events of each node that has some.
fn counted_nodes(summary: &Value) -> BTreeMap<u64, &Value> {
    let contexts = summary["counters"]["contexts"].as_array().map_or(&[][..], Vec::as_slice);
    contexts.iter().filter_map(|it| Some((it["node"].as_u64()?, &it["events"]))).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn file(shape: [u64; 3], numbers: &[f32]) -> Vec<u8> {
        let quantities: Vec<&str> =
            QUANTITIES.into_iter().chain((shape[1] == 4).then_some("faults.inclusive")).collect();
        let header = json!({
            "schema": "plimsoll-ranks/1", "ranks": "0-1", "nodes": [0, 2],
            "quantities": quantities, "dtype": "<f4", "shape": shape,
            "phases": [1], "phase_quantities": ["mean_s", "min_s", "max_s", "longest_s"],
            "phase_shape": [1, 4, 2],
        });
        let mut bytes = header.to_string().into_bytes();
        bytes.resize(bytes.len().next_multiple_of(64) + 63, b' ');
        bytes.push(b'\n');
        bytes.extend(numbers.iter().chain(&[1.0; 8]).flat_map(|number| number.to_le_bytes()));
        bytes
    }

    const NUMBERS: [f32; 12] = [3.0, 2.0, 1.0, 2.0, 9.0, 9.0, 5.0, 4.0, 1.0, 4.0, 9.0, 9.0];

    #[test]
    fn times_are_found_and_held_against_the_tree() {
        let read = PerRank::new(file([2, 3, 2], &NUMBERS)).unwrap();
        assert_eq!(read.of(2, "inclusive_s"), Some(vec![2.0, 4.0]));
        assert_eq!(read.of(0, "exclusive_s"), Some(vec![1.0, 1.0]));
        assert_eq!(read.of(1, "inclusive_s"), None);
        let metric = |sum_s: f64, min_s: f64, max_s: f64| -> Value {
            json!({"sum_s": sum_s, "min_s": min_s, "max_s": max_s})
        };
        let work = json!({"inclusive": metric(6.0, 2.0, 4.0), "exclusive": metric(6.0, 2.0, 4.0)});
        let main = json!({"inclusive": metric(8.0, 3.0, 5.0), "exclusive": metric(2.0, 1.0, 1.0)});
        let mut summary =
            json!({"run": {"ranks": 2}, "tree": {"nodes": [main, {"inclusive": 1}, work]}});
        assert_eq!(read.contradictions(&summary), Vec::<String>::new());
        for (pointer, wrong) in [
            ("/run/ranks", json!(3)),
            ("/tree/nodes/2/exclusive/sum_s", json!(6.001)),
            ("/tree/nodes/0/inclusive/max_s", json!(4.0)),
        ] {
            let right = std::mem::replace(summary.pointer_mut(pointer).unwrap(), wrong);
            assert!(!read.contradictions(&summary).is_empty(), "{pointer} goes unnoticed");
            *summary.pointer_mut(pointer).unwrap() = right;
        }
    }

    #[test]
    fn events_are_found_and_held_against_their_statistics() {
        let mut numbers = [0.0; 16];
        (numbers[7], numbers[15]) = (30.0, 50.0);
        let read = PerRank::new(file([2, 4, 2], &numbers)).unwrap();
        assert_eq!(read.of(2, "faults.inclusive"), Some(vec![30.0, 50.0]));
        let none = json!({"sum_s": 0.0, "min_s": 0.0, "max_s": 0.0});
        let node = json!({"inclusive": none, "exclusive": none});
        let events = json!({"faults": {"inclusive": {"sum": 80.0, "min": 30.0, "max": 50.0}}});
        let mut summary = json!({
            "run": {"ranks": 2}, "tree": {"nodes": [node, node, node]},
            "counters": {"contexts": [{"node": 2, "events": events}]},
        });
        assert_eq!(read.contradictions(&summary), Vec::<String>::new());
        summary["counters"]["contexts"][0]["events"]["faults"]["inclusive"]["min"] = json!(31.0);
        assert_eq!(read.contradictions(&summary).len(), 1);
    }

    #[test]
    fn a_malformed_file_is_refused() {
        for bytes in [
            Vec::new(),
            b"text\n".to_vec(),
            file([2, 3, 2], &NUMBERS[1..]),
            file([2, 2, 3], &NUMBERS),
            file([1, 3, 4], &NUMBERS),
            file([2, 3, 2], &NUMBERS)[..286].to_vec(),
            file([2, 3, 2], &NUMBERS)[1..].to_vec(),
        ] {
            assert!(PerRank::new(bytes).is_err());
        }
    }
}
