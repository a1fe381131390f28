//! A summary as a script reads it: JSON, checked against the schema and against its own numbers.

use std::fs;
use std::path::Path;
use std::sync::OnceLock;

use serde_json::Value;

use crate::artifacts::workspace_dir;
use crate::lists::numbers;
use crate::per_rank_check::PerRank;

/// Returns the number with a name in a part of a summary.
///
/// # Panics
/// If there is none.
#[track_caller]
pub fn number(part: &Value, key: &str) -> f64 {
    part[key].as_f64().unwrap_or_else(|| panic!("no number {key} in {part}"))
}

/// The summary of one job or process.
#[derive(Clone, Debug)]
pub struct Summary {
    value: Value,
    per_rank: Option<PerRank>,
}

impl Summary {
    /// Reads a summary and its per-rank file; checks it against the schema, for [`contradictions`],
    /// and against that file.
    ///
    /// # Panics
    /// If the file is not a summary, or fails one of the checks.
    #[track_caller]
    pub fn read(path: &Path) -> Self {
        let text = fs::read_to_string(path)
            .unwrap_or_else(|error| panic!("cannot read {}: {error}", path.display()));
        let value: Value = serde_json::from_str(&text)
            .unwrap_or_else(|error| panic!("{} is no JSON: {error}", path.display()));
        let mut faults: Vec<_> = schema()
            .iter_errors(&value)
            .map(|fault| format!("{}: {fault}", fault.instance_path()))
            .collect();
        faults.extend(contradictions(&value));
        let per_rank = match value["per_rank"]["file"].as_str() {
            Some(name) => {
                PerRank::read(&path.with_file_name(name)).map_err(|e| faults.push(e)).ok()
            }
            None => None,
        };
        faults.extend(per_rank.iter().flat_map(|per_rank| per_rank.contradictions(&value)));
        assert!(faults.is_empty(), "{}:\n{}", path.display(), faults.join("\n"));
        Self { value, per_rank }
    }

    /// Returns whether no region and no task of OpenMP was measured.
    pub fn has_no_openmp(&self) -> bool {
        ["regions", "tasks"].iter().all(|key| self.value["openmp"][key] == serde_json::json!([]))
            && self.value["openmp"]["unmeasured"] == 0
    }

    /// Returns the times of single ranks, if there is a file of them.
    pub const fn per_rank(&self) -> Option<&PerRank> {
        self.per_rank.as_ref()
    }

    /// Returns the whole JSON value.
    pub const fn value(&self) -> &Value {
        &self.value
    }

    /// Returns the value at a JSON pointer.
    ///
    /// # Panics
    /// If the summary has no such value.
    #[track_caller]
    pub fn at(&self, pointer: &str) -> &Value {
        self.value.pointer(pointer).unwrap_or_else(|| panic!("no {pointer} in the summary"))
    }

    /// Returns the number at a JSON pointer.
    ///
    /// # Panics
    /// If there is none at that place.
    #[track_caller]
    pub fn number(&self, pointer: &str) -> f64 {
        let value = self.at(pointer);
        value.as_f64().unwrap_or_else(|| panic!("{pointer} is {value}, no number"))
    }

    /// Returns the text at a JSON pointer.
    ///
    /// # Panics
    /// If there is none at that place.
    #[track_caller]
    pub fn text(&self, pointer: &str) -> &str {
        let value = self.at(pointer);
        value.as_str().unwrap_or_else(|| panic!("{pointer} is {value}, no text"))
    }

    /// Returns all losses, the worst first.
    pub fn losses(&self) -> Vec<Loss<'_>> {
        list(&self.value["losses"]).iter().map(Loss).collect()
    }

    /// Returns the losses of one kind.
    pub fn losses_of(&self, kind: &str) -> Vec<Loss<'_>> {
        self.losses().into_iter().filter(|loss| loss.kind() == kind).collect()
    }

    /// Returns the worst loss.
    ///
    /// # Panics
    /// If there is none.
    #[track_caller]
    pub fn worst(&self) -> Loss<'_> {
        let worst = self.losses().into_iter().next();
        worst.unwrap_or_else(|| panic!("no loss; run {}", self.value["run"]))
    }

    /// Returns the outermost loop of a function.
    ///
    /// # Panics
    /// If there is none.
    #[track_caller]
    pub fn loop_of(&self, function: &str) -> &Value {
        let loops = list(&self.value["loops"]);
        let is_of = |it: &&Value| {
            let last = it["path"].as_array().and_then(|path| path.last());
            last.is_some_and(|frame| frame["kind"] == "loop" && frame["function"] == function)
        };
        loops.iter().find(is_of).unwrap_or_else(|| panic!("no loop of {function}: {loops:#?}"))
    }

    /// Returns the inclusive times and calls of all contexts of a function.
    pub fn of_function(&self, function: &str) -> FunctionTotals {
        let mut totals = FunctionTotals::default();
        for (index, node) in list(&self.value["tree"]["nodes"]).iter().enumerate() {
            if self.node_function(index) == Some(function) {
                totals.mean_s += node["inclusive"]["mean_s"].as_f64().unwrap_or(0.0);
                totals.sum_s += node["inclusive"]["sum_s"].as_f64().unwrap_or(0.0);
                totals.calls += node["calls"].as_f64().unwrap_or(0.0);
                totals.calls_exact &= node["calls_exact"] == true;
                totals.nodes.push(index);
            }
        }
        totals
    }

    /// Returns the modules (programs or libraries) that hold a function of this name.
    pub fn modules_of(&self, function: &str) -> Vec<String> {
        let frames = list(&self.value["tree"]["frames"]).iter();
        let mut modules: Vec<String> = frames
            .filter(|frame| frame["function"] == function)
            .filter_map(|frame| frame["module"].as_str().map(str::to_owned))
            .collect();
        modules.sort();
        modules.dedup();
        modules
    }

    /// Returns the functions from the outermost one to a node of the tree.
    pub fn path_to(&self, node: usize) -> Vec<&str> {
        let functions = self.outwards(node).filter_map(|node| self.node_function(node));
        let mut path: Vec<&str> = functions.collect();
        path.reverse();
        path
    }

    /// Returns a node of the tree and its callers, innermost first.
    pub fn outwards(&self, node: usize) -> impl Iterator<Item = usize> + '_ {
        let nodes = &self.value["tree"]["nodes"];
        let parent = |node: &usize| nodes[*node]["parent"].as_u64().map(|parent| parent as usize);
        std::iter::successors(Some(node), parent)
    }

    /// Returns the function of a context; `None` for loops and inlined calls.
    pub fn node_function(&self, node: usize) -> Option<&str> {
        let tree = &self.value["tree"];
        let frame = &tree["frames"][tree["nodes"][node]["frame"].as_u64()? as usize];
        let whole = frame["kind"] != "loop" && frame["kind"] != "inlined";
        frame["function"].as_str().filter(|_| whole)
    }
}

/// Totals of a function's contexts, which must not call each other.
#[derive(Clone, Debug, PartialEq)]
pub struct FunctionTotals {
    /// Mean inclusive seconds over all ranks.
    pub mean_s: f64,
    /// Sum of inclusive seconds over all ranks.
    pub sum_s: f64,
    /// Calls, over all ranks.
    pub calls: f64,
    /// Whether the number of calls is exact for all contexts.
    pub calls_exact: bool,
    /// Indices of the contexts.
    pub nodes: Vec<usize>,
}

impl Default for FunctionTotals {
    fn default() -> Self {
        Self { mean_s: 0.0, sum_s: 0.0, calls: 0.0, calls_exact: true, nodes: Vec::new() }
    }
}

/// One entry of `losses`.
#[derive(Clone, Copy, Debug)]
pub struct Loss<'a>(&'a Value);

impl<'a> Loss<'a> {
    /// Returns the kind of the loss.
    pub fn kind(&self) -> &'a str {
        self.0["kind"].as_str().unwrap_or_default()
    }

    /// Returns the seconds by which the run would be shorter.
    pub fn seconds(&self) -> f64 {
        self.0["seconds"].as_f64().unwrap_or(f64::NAN)
    }

    /// Returns the function to blame first, as the subjects name theirs: the innermost `work_`
    /// function on the first cause's path, with the names around it (`work::work_uneven`). The
    /// frames below it (the subjects' burning and sleeping, a system call) are how it works.
    pub fn first_cause(&self) -> Option<&'a str> {
        function_path(&self.0["causes"][0]["path"]).into_iter().rev().find(|function| {
            function.rsplit("::").next().is_some_and(|name| name.starts_with("work_"))
        })
    }

    /// Returns the functions from the outermost to the first cause.
    pub fn cause_path(&self) -> Vec<&'a str> {
        function_path(&self.0["causes"][0]["path"])
    }

    /// Returns the functions from the outermost to the call in which the other ranks wait.
    pub fn symptom_path(&self) -> Vec<&'a str> {
        function_path(&self.0["symptom"]["path"])
    }

    /// Returns a field of the loss.
    pub fn field(&self, key: &str) -> &'a Value {
        &self.0[key]
    }
}

/// Returns the functions of a path of frames; loops, inlined code and lines of one function count
/// once.
pub fn function_path(path: &Value) -> Vec<&str> {
    let mut functions: Vec<&str> = Vec::new();
    // Loops and inlined calls are parts of a function.
    let whole = |frame: &&Value| frame["kind"] != "loop" && frame["kind"] != "inlined";
    for function in list(path).iter().filter(whole).filter_map(|frame| frame["function"].as_str()) {
        if functions.last() != Some(&function) {
            functions.push(function);
        }
    }
    functions
}

/// Returns the contradictions between a summary's numbers; empty if there are none.
pub fn contradictions(summary: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    let mut check = |holds: bool, fault: &dyn Fn() -> String| {
        if !holds {
            faults.push(fault());
        }
    };
    let number = |value: &Value| value.as_f64().unwrap_or(0.0);
    let elapsed_s = number(&summary["run"]["elapsed_s"]);
    let losses = list(&summary["losses"]);
    for (index, loss) in losses.iter().enumerate() {
        let (severity, seconds) = (number(&loss["severity"]), number(&loss["seconds"]));
        check((severity * elapsed_s - seconds).abs() <= 0.01 * elapsed_s, &|| {
            format!("losses[{index}]: {seconds} s of {elapsed_s} s are no severity of {severity}")
        });
        check(seconds > 0.0 && seconds <= elapsed_s, &|| {
            format!("losses[{index}]: {seconds} s of {elapsed_s} s")
        });
        let worse = index.checked_sub(1).map(|before| number(&losses[before]["severity"]));
        check(worse.is_none_or(|worse| severity <= worse), &|| {
            format!("losses[{index}] is worse than the one before")
        });
        for place in std::iter::once(&loss["symptom"]).chain(list(&loss["causes"])) {
            check(last_function(&place["path"]) == node_frame(summary, &place["node"]), &|| {
                format!("losses[{index}]: node {} is not the end of its path", place["node"])
            });
        }
    }
    let largest_s = losses.iter().map(|loss| number(&loss["seconds"])).fold(0.0, f64::max);
    let foretold_s = number(&summary["projection"]["elapsed_s"]);
    check(foretold_s <= elapsed_s - largest_s + 1e-6, &|| {
        format!("projection: {foretold_s} s without a loss of {largest_s} s of {elapsed_s} s")
    });
    for (index, it) in list(&summary["loops"]).iter().enumerate() {
        let (durations, begins) = (list(&it["durations_s"]), list(&it["begins_s"]));
        let known: Vec<f64> = begins.iter().filter_map(Value::as_f64).collect();
        let listed = it["first_iterations"].as_str().filter(|list| !list.is_empty());
        let numbered = listed.map_or(0, |list| numbers(list).len());
        check(begins.is_empty() || begins.len() == durations.len(), &|| {
            format!("loops[{index}]: {} begins of {} iterations", begins.len(), durations.len())
        });
        check(numbered == durations.len(), &|| {
            format!("loops[{index}]: {numbered} numbers of {} iterations", durations.len())
        });
        let within = known.iter().all(|it| (0.0..1.1 * elapsed_s).contains(it));
        check(known.is_sorted() && within, &|| format!("loops[{index}]: begins {known:?}"));
    }
    let clocks = ["offsets_us", "drift_ppm"].map(|key| list(&summary["clocks"][key]).len() as f64);
    check(clocks == [0.0; 2] || clocks == [number(&summary["run"]["ranks"]); 2], &|| {
        format!("clocks: {clocks:?} numbers are not one for each rank")
    });
    let (one, file) = (summary["run"]["ranks"] == 1, &summary["per_rank"]["file"]);
    let wanted = !one && summary["run"]["complete"] == true;
    check(if file.is_null() { !wanted } else { !one }, &|| format!("per_rank: the file is {file}"));
    for (index, node) in list(&summary["tree"]["nodes"]).iter().enumerate() {
        check(node_frame(summary, &index.into()).is_some(), &|| {
            format!("node {index} has no frame")
        });
        let Some(parent) = node["parent"].as_u64() else { continue };
        check(parent < index as u64, &|| format!("node {index} comes before its parent {parent}"));
        let above = &summary["tree"]["nodes"][parent as usize];
        let (inner, outer) =
            (number(&node["inclusive"]["sum_s"]), number(&above["inclusive"]["sum_s"]));
        check(inner <= outer * (1.0 + 1e-6) + 1e-6, &|| {
            format!("node {index} takes {inner} s, but its parent {parent} only {outer} s")
        });
    }
    for frame in list(&summary["tree"]["frames"]) {
        let is_own = frame["module"].as_str().is_some_and(|it| it.starts_with("libplimsoll."));
        check(!is_own, &|| format!("a function of the library is shown: {frame}"));
    }
    for (name, value) in summary["efficiency"].as_object().into_iter().flatten() {
        check((0.0..=1.0).contains(&value.as_f64().unwrap_or(0.0)), &|| {
            format!("efficiency {name} is {value}")
        });
    }
    faults
}

fn list(value: &Value) -> &[Value] {
    value.as_array().map_or(&[], Vec::as_slice)
}

fn last_function(path: &Value) -> Option<&str> {
    list(path).last()?["function"].as_str()
}

fn node_frame<'a>(summary: &'a Value, node: &Value) -> Option<&'a str> {
    let tree = &summary["tree"];
    let frame = tree["nodes"][node.as_u64()? as usize]["frame"].as_u64()?;
    tree["frames"][frame as usize]["function"].as_str()
}

fn schema() -> &'static jsonschema::Validator {
    static SCHEMA: OnceLock<jsonschema::Validator> = OnceLock::new();
    SCHEMA.get_or_init(|| {
        let path = workspace_dir().join("analysis/schema/plimsoll-summary-1.schema.json");
        let text = fs::read_to_string(&path)
            .unwrap_or_else(|error| panic!("no schema {}: {error}", path.display()));
        let schema = serde_json::from_str(&text)
            .unwrap_or_else(|error| panic!("{} is no JSON: {error}", path.display()));
        jsonschema::validator_for(&schema)
            .unwrap_or_else(|error| panic!("{} is no schema: {error}", path.display()))
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn example() -> Value {
        let path = json!([{"function": "main"}, {"function": "work_b"}]);
        json!({
            "run": {"elapsed_s": 10.0, "ranks": 2, "complete": true},
            "per_rank": {"file": "x.plimsoll.npz"},
            "clocks": {"offsets_us": [0.0, -3.5], "drift_ppm": [0.0, 0.0]},
            "loops": [{
                "durations_s": [0.1, 0.2], "first_iterations": "0,3", "begins_s": [1.5, null],
            }],
            "projection": {"elapsed_s": 8.0},
            "efficiency": {"parallel": 0.8, "load_balance": 0.8, "communication": 1.0},
            "losses": [{
                "kind": "load_imbalance", "severity": 0.2, "seconds": 2.0,
                "symptom": {"path": [{"function": "main"}, {"function": "MPI_Barrier"}], "node": 1},
                "causes": [{"path": path, "node": 2}],
            }],
            "tree": {
                "frames": [
                    {"function": "main"}, {"function": "MPI_Barrier", "module": "libmpi.so.12"},
                    {"function": "work_b"},
                ],
                "nodes": [
                    {"parent": null, "frame": 0, "inclusive": {"sum_s": 20.0, "mean_s": 10.0}},
                    {"parent": 0, "frame": 1, "inclusive": {"sum_s": 4.0, "mean_s": 2.0},
                     "calls": 6, "calls_exact": true},
                    {"parent": 0, "frame": 2, "inclusive": {"sum_s": 16.0, "mean_s": 8.0},
                     "calls": 1, "calls_exact": false},
                ],
            },
        })
    }

    #[test]
    fn an_honest_summary_has_no_contradictions() {
        assert_eq!(contradictions(&example()), Vec::<String>::new());
    }

    #[test]
    fn contradictions_are_found() {
        for (pointer, wrong) in [
            ("/losses/0/seconds", json!(5.0)),
            ("/losses/0/severity", json!(0.9)),
            ("/losses/0/causes/0/node", json!(1)),
            ("/losses/0/symptom/node", json!(99)),
            ("/tree/nodes/2/inclusive/sum_s", json!(21.0)),
            ("/tree/nodes/1/parent", json!(2)),
            ("/tree/nodes/1/frame", json!(7)),
            ("/tree/frames/1/module", json!("libplimsoll.so")),
            ("/efficiency/parallel", json!(1.5)),
            ("/projection/elapsed_s", json!(9.0)),
            ("/clocks/drift_ppm", json!([0.0])),
            ("/loops/0/first_iterations", json!("0-2")),
            ("/loops/0/begins_s", json!([2.0, 1.0])),
            ("/per_rank/file", json!(null)),
        ] {
            let mut summary = example();
            *summary.pointer_mut(pointer).unwrap() = wrong;
            assert!(!contradictions(&summary).is_empty(), "{pointer} goes unnoticed");
        }
    }

    #[test]
    fn losses_and_functions_are_read_as_named() {
        let summary = Summary { value: example(), per_rank: None };
        let loss = summary.worst();
        assert_eq!(loss.first_cause(), Some("work_b"));
        assert_eq!(loss.symptom_path(), ["main", "MPI_Barrier"]);
        assert_eq!(summary.losses_of("serialization").len(), 0);
        let barrier = summary.of_function("MPI_Barrier");
        assert_eq!((barrier.calls, barrier.calls_exact), (6.0, true));
        assert_eq!(summary.path_to(2), ["main", "work_b"]);
    }

    #[test]
    fn loops_of_one_function_count_once() {
        let path =
            json!([{"function": "main"}, {"function": "main", "kind": "loop"}, {"function": "f"}]);
        assert_eq!(function_path(&path), ["main", "f"]);
    }
}
