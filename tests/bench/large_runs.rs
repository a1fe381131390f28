//! CPU time and memory of a comparison of large runs: the command reads and compares five synthetic
//! summaries.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::mem::MaybeUninit;
use std::path::Path;
use std::process::{Command, Stdio};

use plimsoll_tests::artifacts::{artifacts, workspace_dir};
use plimsoll_tests::scratch::Scratch;
use serde_json::{Value, json};

use crate::row::Row;

/// Ranks of the runs.
const RANKS: [u32; 5] = [64, 128, 256, 512, 1000];
/// Number of distinct functions, which contexts use in rotation.
const FUNCTIONS: u32 = 5000;
/// Number of contexts that one context calls.
const CALLEES: u32 = 3;
/// Exclusive time of a context, in seconds, summed over ranks.
const OWN_S: f64 = 0.01;

/// Measures CPU time and memory of `plimsoll diff` for five runs with `contexts` contexts.
pub fn rows(contexts: u32) -> Vec<Row> {
    let scratch = Scratch::new("large-runs");
    for ranks in RANKS {
        let path = scratch.path().join(format!("{ranks}.plimsoll.json"));
        write_run(&path, ranks, contexts).expect("the folder is ours");
    }
    let before = children();
    let mut command = Command::new(&artifacts().command);
    let status = command.arg("diff").arg(scratch.path()).stdout(Stdio::null()).status();
    assert!(status.expect("it starts").success(), "the runs are compared");
    let after = children();
    let cpu_s = after.cpu_s - before.cpu_s;
    let subject = format!("5 runs of up to 1000 ranks, {contexts} contexts");
    vec![
        Row::new("CPU time to compare runs", &subject, cpu_s, "s", 0.0).target(5.0),
        Row::new("memory to compare runs", &subject, after.memory_mb, "MB", 0.0).target(500.0),
    ]
}

/// Writes a summary of a real run with a synthetic tree.
fn write_run(path: &Path, ranks: u32, contexts: u32) -> std::io::Result<()> {
    let source = workspace_dir().join("analysis/compare/tests/growth/strong-16.plimsoll.json");
    let mut summary: Value = serde_json::from_slice(&std::fs::read(source)?)?;
    summary["run"]["ranks"] = ranks.into();
    summary["run"]["elapsed_s"] = (f64::from(contexts) * OWN_S / f64::from(ranks)).into();
    summary["losses"] = json!([]);
    summary["loops"] = json!([]);
    let frame = |number: u32| {
        json!({"kind": "function", "function": format!("solver::part_{number}::kernel"),
               "file": format!("/home/user/project/src/part_{}.cpp", number % 97),
               "line": number, "offset": null, "module": "solver"})
    };
    let frames: Vec<Value> = (0..FUNCTIONS).map(frame).collect();
    summary["tree"] = json!({"frames": frames, "nodes": []});
    // Written node by node: the memory of this process would count as that of the command, which
    // begins as a copy of it (getrusage(2)).
    let text = summary.to_string();
    let (head, tail) = text.split_once(NO_NODES).expect("the tree was just set");
    let mut file = BufWriter::new(File::create(path)?);
    write!(file, "{head}\"nodes\":[")?;
    for (index, node) in nodes(ranks, contexts).enumerate() {
        let separator = if index > 0 { "," } else { "" };
        write!(file, "{separator}{node}")?;
    }
    write!(file, "]{tail}")?;
    file.flush()
}

/// The empty list of contexts in a summary.
const NO_NODES: &str = "\"nodes\":[]";

fn nodes(ranks: u32, contexts: u32) -> impl Iterator<Item = Value> {
    let parent = |node: u32| node.checked_sub(1).map(|before| before / CALLEES);
    let mut inclusive_s = vec![OWN_S; contexts as usize];
    for node in (1..contexts).rev() {
        if let Some(parent) = parent(node) {
            inclusive_s[parent as usize] += inclusive_s[node as usize];
        }
    }
    let metric = move |sum_s: f64| {
        let mean_s = sum_s / f64::from(ranks);
        json!({"mean_s": mean_s, "min_s": mean_s * 0.9, "min_observed_s": mean_s * 0.9,
               "max_s": mean_s * 1.1, "sum_s": sum_s, "stddev_s": mean_s * 0.03, "ranks": ranks})
    };
    let node = move |node: u32| {
        let time_s = inclusive_s[node as usize] / f64::from(ranks);
        json!({"parent": parent(node), "frame": node % FUNCTIONS, "label": "computation",
               "calls": ranks * 7, "calls_exact": true, "balanced": true,
               "inclusive": metric(inclusive_s[node as usize]), "exclusive": metric(OWN_S),
               "idle_s": time_s * 0.1, "imb_s": time_s * 0.11, "wait_s": time_s * 0.12,
               "sum_imb_s": time_s * 0.13, "sum_wait_s": time_s * 0.14,
               "blame_inclusive_s": time_s * 0.15, "blame_exclusive_s": time_s * 0.01,
               "blame_fraction": 0.001, "counters": {}})
    };
    (0..contexts).map(node)
}

/// Resources of the children that have ended.
struct Children {
    /// CPU time of all of them, user and system: hardly affected by a busy machine.
    cpu_s: f64,
    /// Maximum memory of any, in MB.
    memory_mb: f64,
}

fn children() -> Children {
    let mut usage = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: the pointer is to memory of this type; the call fills it.
    let result = unsafe { libc::getrusage(libc::RUSAGE_CHILDREN, usage.as_mut_ptr()) };
    assert_eq!(result, 0, "the usage of children is known");
    // SAFETY: zeroes are a valid value of the type, and the call has filled it.
    let usage = unsafe { usage.assume_init() };
    let seconds = |time: libc::timeval| time.tv_sec as f64 + time.tv_usec as f64 * 1e-6;
    Children {
        cpu_s: seconds(usage.ru_utime) + seconds(usage.ru_stime),
        // The system counts in KiB.
        memory_mb: usage.ru_maxrss as f64 * 1024.0 / 1e6,
    }
}
