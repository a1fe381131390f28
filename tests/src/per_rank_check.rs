//! The per-rank file, as a script reads it, checked against the summary that it belongs to.

use std::collections::BTreeMap;
use std::fs;
use std::io::Read;
use std::path::Path;

use serde_json::Value;

/// Quantities before those of events.
const QUANTITIES: [&str; 3] = ["inclusive_s", "exclusive_s", "calls"];
/// Quantities of phases.
const OF_PHASES: [&str; 4] = ["phase_mean_s", "phase_min_s", "phase_max_s", "phase_longest_s"];

/// Times in seconds, calls and events of each rank in each context.
#[derive(Clone, Debug, PartialEq)]
pub struct PerRank {
    bytes: Vec<u8>,
    ranks: Vec<u32>,
    nodes: Vec<u32>,
    /// Names and numbers; those of a rank in all nodes stand together.
    quantities: Vec<(String, Vec<f32>)>,
}

impl PerRank {
    /// Reads a file as numpy does.
    ///
    /// # Errors
    /// If the file is malformed; the message names the fault.
    pub fn read(path: &Path) -> Result<Self, String> {
        let shown = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
        Self::new(fs::read(path).map_err(|error| shown(&error))?).map_err(|error| shown(&error))
    }

    fn new(bytes: Vec<u8>) -> Result<Self, String> {
        let arrays = arrays(&bytes).map_err(|error| error.to_string())?;
        let array = |name: &str| {
            let (_, file) = arrays.iter().find(|(it, _)| it == name).ok_or(format!("no {name}"))?;
            npy(file).ok_or(format!("{name} is no array"))
        };
        let words = |name: &str, kind: &str, shape: &[usize]| -> Result<Vec<[u8; 4]>, String> {
            let (header, words) = array(name)?;
            let sizes: String = shape.iter().map(|size| format!("{size}, ")).collect();
            let expected = format!(
                "{{'descr': '{kind}', 'fortran_order': True, 'shape': ({}), }}",
                sizes.trim_end()
            );
            let count: usize = shape.iter().product();
            match header.trim_end() == expected && words.len() == count {
                true => Ok(words),
                false => Err(format!("{name} has {} numbers: {header}", words.len())),
            }
        };
        let integers = |name: &str| -> Result<Vec<u32>, String> {
            let words = words(name, "<u4", &[array(name)?.1.len()])?;
            Ok(words.into_iter().map(u32::from_le_bytes).collect())
        };
        let (ranks, nodes, phases) = (integers("ranks")?, integers("nodes")?, integers("phases")?);
        for name in OF_PHASES {
            words(name, "<f4", &[nodes.len(), phases.len()])?;
        }
        let mut quantities = Vec::new();
        for (name, _) in &arrays {
            if !["ranks", "nodes", "phases"].contains(&&**name) && !OF_PHASES.contains(&&**name) {
                let numbers = words(name, "<f4", &[nodes.len(), ranks.len()])?;
                let numbers = numbers.into_iter().map(f32::from_le_bytes).collect();
                quantities.push((name.clone(), numbers));
            }
        }
        let names = quantities.iter().map(|(name, _)| name.as_str());
        if !names.take(QUANTITIES.len()).eq(QUANTITIES) {
            return Err(format!("other quantities than {QUANTITIES:?}"));
        }
        Ok(Self { ranks, nodes, quantities, bytes })
    }

    /// Returns the whole file.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Returns the ranks.
    pub fn ranks(&self) -> &[u32] {
        &self.ranks
    }

    /// Returns the values of all ranks in a node of the tree; `None` if the file has no such node
    /// or quantity: `inclusive_s`, `exclusive_s`, `calls`, `page-faults.inclusive`, and so on.
    pub fn of(&self, node: u64, quantity: &str) -> Option<Vec<f64>> {
        let column = self.nodes.iter().position(|one| u64::from(*one) == node)?;
        let (_, numbers) = self.quantities.iter().find(|(name, _)| name == quantity)?;
        let rows = numbers.chunks_exact(self.nodes.len());
        Some(rows.map(|row| f64::from(row[column])).collect())
    }

    /// Returns the contradictions to the summary that the file belongs to.
    pub fn contradictions(&self, summary: &Value) -> Vec<String> {
        let mut faults = Vec::new();
        let nodes = summary["tree"]["nodes"].as_array().map_or(&[][..], Vec::as_slice);
        let ranks = summary["run"]["ranks"].as_u64();
        let counted = counted_nodes(summary);
        for node in self.nodes.iter().map(|node| u64::from(*node)) {
            let times = nodes.get(node as usize).unwrap_or(&Value::Null);
            let events = counted.get(&node).copied().unwrap_or(&Value::Null);
            for (quantity, _) in &self.quantities {
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

/// Returns the arrays of a file: names, and files in numpy's form. Their checksums are right.
fn arrays(bytes: &[u8]) -> Result<Vec<(String, Vec<u8>)>, rawzip::Error> {
    let archive = rawzip::ZipArchive::from_slice(bytes)?;
    let mut arrays = Vec::new();
    let mut entries = archive.entries();
    while let Some(entry) = entries.next_entry()? {
        let name = String::from_utf8_lossy(entry.file_path().as_bytes()).into_owned();
        let entry = archive.get_entry(entry.wayfinder())?;
        let mut file = Vec::new();
        entry.verifying_reader(entry.data()).read_to_end(&mut file)?;
        arrays.push((name.strip_suffix(".npy").unwrap_or(&name).to_owned(), file));
    }
    Ok(arrays)
}

/// Returns the header and the numbers of a file in numpy's form.
fn npy(file: &[u8]) -> Option<(&str, Vec<[u8; 4]>)> {
    let rest = file.strip_prefix(b"\x93NUMPY\x01\x00")?;
    let (length, rest) = rest.split_first_chunk()?;
    let (header, numbers) = rest.split_at_checked(usize::from(u16::from_le_bytes(*length)))?;
    let (words, left) = numbers.as_chunks();
    let is_aligned = (file.len() - numbers.len()).is_multiple_of(64);
    (left.is_empty() && is_aligned).then_some((std::str::from_utf8(header).ok()?, words.to_vec()))
}

/// Returns the events of each node that has some.
fn counted_nodes(summary: &Value) -> BTreeMap<u64, &Value> {
    let contexts = summary["counters"]["contexts"].as_array().map_or(&[][..], Vec::as_slice);
    contexts.iter().filter_map(|it| Some((it["node"].as_u64()?, &it["events"]))).collect()
}

#[cfg(test)]
mod tests {
    use plimsoll_summary::npz::{self, Array};
    use serde_json::json;

    use super::*;

    /// Builds a file of two ranks, two nodes and one phase.
    fn file(quantities: &[(&str, [f32; 4])]) -> Vec<u8> {
        let mut arrays =
            vec![Array::integers("ranks", 0..2), Array::integers("nodes", [0, 2].into_iter())];
        let of = |(name, numbers): &(&str, [f32; 4])| Array::floats(name, &[2, 2], numbers);
        arrays.extend(quantities.iter().map(of));
        arrays.push(Array::integers("phases", 1..2));
        arrays.extend(OF_PHASES.map(|name| Array::floats(name, &[2, 1], &[1.0; 2])));
        let mut bytes = Vec::new();
        npz::write(&mut bytes, &arrays, None).unwrap();
        bytes
    }

    const TIMES: [(&str, [f32; 4]); 3] = [
        ("inclusive_s", [3.0, 2.0, 5.0, 4.0]),
        ("exclusive_s", [1.0, 2.0, 1.0, 4.0]),
        ("calls", [9.0; 4]),
    ];

    #[test]
    fn times_are_found_and_held_against_the_tree() {
        let read = PerRank::new(file(&TIMES)).unwrap();
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
        let events = ("faults.inclusive", [0.0, 30.0, 0.0, 50.0]);
        let none = ["inclusive_s", "exclusive_s", "calls"].map(|name| (name, [0.0; 4]));
        let read = PerRank::new(file(&[&none[..], &[events]].concat())).unwrap();
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
        let good = file(&TIMES);
        let with = |from: &[u8], to: &[u8]| {
            let mut changed = good.clone();
            let places = (0..good.len()).filter(|at| good[*at..].starts_with(from));
            places.for_each(|at| changed[at..at + to.len()].copy_from_slice(to));
            changed
        };
        assert!(PerRank::new(good.clone()).is_ok());
        for bytes in [
            Vec::new(),
            b"text\n".to_vec(),
            good[1..].to_vec(),
            good[..good.len() - 1].to_vec(),
            file(&TIMES[..2]),
            with(b"nodes", b"knots"),
            with(&9f32.to_le_bytes(), &8f32.to_le_bytes()),
        ] {
            assert!(PerRank::new(bytes).is_err());
        }
    }
}
