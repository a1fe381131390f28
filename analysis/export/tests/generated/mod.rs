//! Generated runs: a summary, the side file with the times of its ranks, and its timeline.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::Write;

use plimsoll_export::RankRows;
use plimsoll_summary::npz::{self, Array};
use plimsoll_summary::{
    Frame, FrameKind, Label, Metric, NodeOfRun, RankCluster, SideFile, Summary, Tree, TreeNode,
};

use crate::summaries;

/// A run in which everything is known.
pub struct Run {
    pub summary: Summary,
    /// Inclusive seconds, by rank and context.
    pub inclusive_s: Vec<Vec<f64>>,
}

/// Seconds by lane and frame: of all contexts of the frame, those within each other once.
pub type Totals = BTreeMap<(String, String), f64>;

/// Numbers that look random and are the same each time.
pub struct Numbers(u64);

impl Numbers {
    pub fn below(&mut self, limit: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.0 >> 33) % limit
    }
}

/// A tree of `contexts` nodes: two roots, recursion, a path of 300 frames, calls that wait.
pub fn run(ranks: u32, contexts: u32) -> Run {
    let mut numbers = Numbers(u64::from(contexts));
    let mut tree = Tree { frames: frames(), nodes: Vec::new() };
    for index in 0..contexts {
        let parent = match index {
            0 | 5 => None,
            1..300 => Some(index - 1),
            _ => Some(numbers.below(u64::from(index)) as u32),
        };
        let is_leaf_of_deep_path = index == 299;
        let frame = match index {
            0 => 0,
            5 => 1,
            _ if is_leaf_of_deep_path => WAITING_FRAME,
            _ => 2 + numbers.below(WAITING_FRAME as u64 - 2) as u32,
        };
        tree.nodes.push(node(parent, frame));
    }
    let mut inclusive_s = Vec::new();
    for rank in 0..ranks {
        // A third of the contexts have no time of their own, and some ranks lack some contexts.
        let mut times: Vec<f64> = (0..contexts)
            .map(|context| match numbers.below(3) {
                0 if context != 299 => 0.0,
                _ => numbers.below(1 << 20) as f64 * 1e-6 * f64::from(1 + rank % 3),
            })
            .collect();
        for index in (0..contexts as usize).rev() {
            if let Some(parent) = tree.nodes[index].parent {
                times[parent as usize] += times[index];
            }
        }
        inclusive_s.push(times);
    }
    for (index, node) in tree.nodes.iter_mut().enumerate() {
        node.inclusive = metric(&inclusive_s.iter().map(|row| row[index]).collect::<Vec<_>>());
    }
    let wait_s = tree.nodes.get(299).map_or(0.0, |node| 0.75 * node.inclusive.mean_s);
    let mut at = Some(299).filter(|_| contexts > 299);
    while let Some(index) = at {
        tree.nodes[index as usize].idle_s = Some(wait_s);
        at = tree.nodes[index as usize].parent;
    }
    let mut summary = summaries::balanced();
    summary.run.ranks = ranks;
    summary.run.nodes =
        vec![NodeOfRun { host: "node".into(), ranks: format!("0-{}", ranks - 1), cores: ranks }];
    summary.per_rank = SideFile { file: Some("x.plimsoll.npz".into()) };
    summary.timeline = SideFile { file: Some("x.plimsoll.timeline".into()) };
    summary.clusters = clusters(ranks);
    summary.tree = tree;
    Run { summary, inclusive_s }
}

const WAITING_FRAME: u32 = 9;

/// Names as they occur: with separators of formats, templates, loops, none.
fn frames() -> Vec<Frame> {
    let function = |name: &str| summaries::function(name, Some(("solver.cc", 7)));
    vec![
        function("main"),
        function("worker"),
        function("solve"),
        function("Matrix<double, 3>::operator()"),
        function("a;b \"quoted\" \u{e9}\\"),
        summaries::loop_at("solve", "solver.cc", 12),
        Frame { line: None, file: None, offset: Some(64), ..summaries::loop_at("solve", "x", 1) },
        Frame { kind: FrameKind::Inlined, ..function("dot") },
        Frame { kind: FrameKind::Line, ..function("dot") },
        summaries::mpi("MPI_Allreduce"),
    ]
}

fn node(parent: Option<u32>, frame: u32) -> TreeNode {
    let waits = frame == WAITING_FRAME;
    TreeNode {
        parent,
        frame,
        label: if waits { Label::CollectiveSynchronisation } else { Label::Computation },
        calls: if waits { 1000 } else { 0 },
        calls_exact: waits,
        ..TreeNode::default()
    }
}

fn metric(times: &[f64]) -> Metric {
    let sum_s: f64 = times.iter().sum();
    let observed = times.iter().copied().filter(|time| *time > 0.0);
    Metric {
        mean_s: sum_s / times.len() as f64,
        min_s: times.iter().copied().fold(f64::INFINITY, f64::min),
        min_observed_s: observed.clone().reduce(f64::min),
        max_s: times.iter().copied().fold(0.0, f64::max),
        sum_s,
        stddev_s: 0.0,
        ranks: observed.count() as u32,
        estimate: None,
    }
}

/// Even and odd ranks.
fn clusters(ranks: u32) -> Vec<RankCluster> {
    let list = |first: u32| format!("{first}-{}:2", ranks - 2 + first);
    let cluster = |first| RankCluster {
        ranks: list(first),
        size: ranks / 2,
        representative: first + 2,
        distance: Some(0.5),
    };
    vec![cluster(0), cluster(1)]
}

/// Writes the side file with the times of the contexts that are chosen.
pub fn rank_rows(run: &Run, chosen: impl Fn(u32) -> bool) -> RankRows {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(&rank_bytes(run, chosen)).unwrap();
    open(file, run).unwrap()
}

pub fn open(mut file: File, run: &Run) -> Result<RankRows, plimsoll_export::ExportError> {
    std::io::Seek::rewind(&mut file).unwrap();
    RankRows::open(file, run.summary.tree.nodes.len())
}

pub fn rank_bytes(run: &Run, chosen: impl Fn(u32) -> bool) -> Vec<u8> {
    let ranks = run.inclusive_s.len();
    let nodes: Vec<u32> =
        (0..run.summary.tree.nodes.len() as u32).filter(|node| chosen(*node)).collect();
    let shape = [nodes.len(), ranks];
    let times =
        run.inclusive_s.iter().flat_map(|row| nodes.iter().map(|node| row[*node as usize] as f32));
    let arrays = [
        Array::integers("ranks", 0..ranks as u32),
        Array::integers("nodes", nodes.iter().copied()),
        Array::floats("exclusive_s", &shape, &vec![-1.0; nodes.len() * ranks]),
        Array::floats("inclusive_s", &shape, &times.collect::<Vec<f32>>()),
    ];
    let mut bytes = Vec::new();
    npz::write(&mut bytes, &arrays, None).unwrap();
    bytes
}

/// Returns the timeline of two rows with 100 columns from 0 s to 10 s: 40 columns in context 299,
/// waiting; 30 unknown; 30 in context 298, its caller, working.
pub fn timeline_json() -> Vec<u8> {
    let row = [vec![1; 40], vec![-1; 30], vec![0; 30]].concat();
    let wait = [vec![255; 40], vec![0; 30], vec![12; 30]].concat();
    let (cells, wait) = ([row.clone(), row].concat(), [wait.clone(), wait].concat());
    let timeline = serde_json::json!({
        "schema": "plimsoll-timeline/1", "begin_s": 0.0, "end_s": 10.0, "columns": 100,
        "rows": [{"ranks": "0"}, {"ranks": "1-3"}], "nodes": [298, 299],
        "cells": cells, "wait": wait,
    });
    timeline.to_string().into_bytes()
}

/// Returns the totals that a reader must find, from the run alone. `name` gives a lane's name.
pub fn expected(run: &Run, lanes: &[(String, Vec<f64>)], names: &[String]) -> Totals {
    let nodes = &run.summary.tree.nodes;
    let mut totals = Totals::new();
    for (lane, times) in lanes {
        for (index, node) in nodes.iter().enumerate() {
            let mut around = node.parent;
            while let Some(at) = around.filter(|at| nodes[*at as usize].frame != node.frame) {
                around = nodes[at as usize].parent;
            }
            if around.is_none() {
                let key = (lane.clone(), names[node.frame as usize].clone());
                *totals.entry(key).or_default() += times[index];
            }
        }
    }
    totals.retain(|_, time| *time > 0.0);
    totals
}
