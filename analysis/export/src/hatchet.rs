//! JSON that `hatchet.GraphFrame.from_json` reads: a graph of frames and a table with one row for
//! each context and rank. The index of the table is (node, rank); for the mean over ranks it is the
//! node. The columns `time` and `time (inc)` are seconds on a rank, `calls` is the sum over all
//! ranks.

use std::collections::BTreeMap;
use std::io::Write;

use serde::Serialize;

use crate::{CallForest, ExportError};

#[derive(Serialize)]
struct File<'a> {
    graph: [BTreeMap<u32, GraphNode<'a>>; 1],
    dataframe: Columns<'a>,
    dataframe_indices: &'static [&'static str],
    exclusive_metrics: [&'static str; 1],
    inclusive_metrics: [&'static str; 1],
}

#[derive(Serialize)]
struct GraphNode<'a> {
    data: Frame<'a>,
    children: Vec<u32>,
}

/// Frame as hatchet compares it: every frame has the same keys, and none is null.
#[derive(Serialize)]
struct Frame<'a> {
    name: &'a str,
    #[serde(rename = "type")]
    kind: &'static str,
}

/// The table by columns, which pandas accepts like rows and which is a fraction of the size.
#[derive(Default, Serialize)]
struct Columns<'a> {
    node: Vec<u32>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rank: Vec<u32>,
    name: Vec<&'a str>,
    #[serde(rename = "type")]
    kind: Vec<&'static str>,
    label: Vec<&'static str>,
    file: Vec<Option<&'a str>>,
    line: Vec<Option<u32>>,
    module: Vec<&'a str>,
    calls: Vec<u64>,
    #[serde(rename = "time (inc)")]
    inclusive: Vec<f64>,
    time: Vec<f64>,
}

pub fn write(forest: &CallForest<'_>, to: &mut dyn Write) -> Result<(), ExportError> {
    let mut graph = BTreeMap::new();
    for (index, node) in (0..).zip(&forest.nodes) {
        let frame = &forest.frames[node.frame as usize];
        let data = Frame { name: &frame.name, kind: frame.kind };
        graph.insert(index, GraphNode { data, children: Vec::new() });
        if let Some(parent) = node.parent.and_then(|parent| graph.get_mut(&parent)) {
            parent.children.push(index);
        }
    }
    let mut table = Columns::default();
    for lane in &forest.lanes {
        let own_s = forest.own_s(lane)?;
        let inclusive_s = forest.inclusive_s(&own_s);
        for (index, node) in (0..).zip(&forest.nodes) {
            let frame = &forest.frames[node.frame as usize];
            let context = forest.context(index);
            table.node.push(index);
            table.rank.extend(lane.rank);
            table.name.push(&frame.name);
            table.kind.push(frame.kind);
            table.label.push(context.label.name());
            table.file.push(frame.file.as_deref());
            table.line.push(frame.line);
            table.module.push(&frame.module);
            table.calls.push(if node.waits { 0 } else { context.calls });
        }
        table.inclusive.extend(inclusive_s);
        table.time.extend(own_s);
    }
    let file = File {
        graph: [graph],
        dataframe_indices: if table.rank.is_empty() { &["node"] } else { &["node", "rank"] },
        dataframe: table,
        exclusive_metrics: ["time"],
        inclusive_metrics: ["time (inc)"],
    };
    serde_json::to_writer(&mut *to, &file).map_err(std::io::Error::from)?;
    Ok(to.write_all(b"\n")?)
}
