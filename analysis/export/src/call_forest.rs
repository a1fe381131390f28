//! The model that all formats are written from: weighted call trees of ranks.

use std::path::Path;

use crate::{ExportError, RankRows};
use plimsoll_summary::Label;
use plimsoll_summary::phrase::counted;
use plimsoll_summary::ranks::RankSet;
use plimsoll_summary::{Frame, FrameKind, Summary, TreeNode};

/// Most ranks that have a lane each unless the user asks for more: viewers slow down beyond.
pub const MAX_LANES: u32 = 64;
/// Name of the frame in which a call waits.
pub const WAITING: &str = "[waiting]";

/// Which ranks an export shows.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LaneChoice {
    /// All ranks up to [`MAX_LANES`]; of more, the representatives of clusters.
    Automatic,
    /// The ranks of this set.
    Ranks(RankSet),
    /// Every rank.
    All,
}

/// The call trees of a run: one tree of contexts, and for each lane the times in it.
#[derive(Debug)]
pub struct CallForest<'a> {
    /// Summary of the run.
    pub summary: &'a Summary,
    /// Distinct frames: the summary's, and then the one for waiting.
    pub frames: Vec<ExportFrame>,
    /// Contexts of the summary under their indices, then the waits in them. A parent comes before
    /// its children.
    pub nodes: Vec<ForestNode>,
    /// The ranks that are shown.
    pub lanes: Vec<Lane>,
    rows: Option<&'a RankRows>,
    waits: Vec<Wait>,
}

/// A frame as viewers show it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExportFrame {
    /// Name, unique enough to tell the loops of a function apart.
    pub name: String,
    /// Name for formats without source lines: that of an MPI call has its line as well.
    pub name_with_line: String,
    /// Source file.
    pub file: Option<String>,
    /// Source line.
    pub line: Option<u32>,
    /// File name of the module; empty where there is none.
    pub module: String,
    /// `function`, `loop`, `inlined`, `mpi`, `line` or `wait`.
    pub kind: &'static str,
}

/// A calling context, or the waiting in one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ForestNode {
    /// Index of the calling context; `None` at the outermost frame.
    pub parent: Option<u32>,
    /// Index into the frames.
    pub frame: u32,
    /// Index into the summary's tree: itself, or the context that waits.
    pub context: u32,
    /// Whether it is the waiting in a context.
    pub waits: bool,
}

/// A rank, or the mean of all ranks, that is shown.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lane {
    /// Name in the viewer: `rank 3`, `rank 3 (stands for ranks 0-11)`, `mean of ranks 0-15`.
    pub name: String,
    /// The rank; `None` for the mean.
    pub rank: Option<u32>,
    /// Rank list that it stands for.
    pub ranks: String,
}

/// Waiting part of a context's time.
#[derive(Clone, Copy, Debug)]
struct Wait {
    context: u32,
    fraction: f64,
}

/// A stretch of a lane's time axis on which a node and all below it are laid out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// Index into the forest's nodes.
    pub node: u32,
    /// Begin, in nanoseconds.
    pub begin_ns: u64,
    /// Inclusive time, in nanoseconds, above 0.
    pub inclusive_ns: u64,
    /// The part of it at the end that is the node's own, in nanoseconds.
    pub own_ns: u64,
}

impl<'a> CallForest<'a> {
    /// Builds the forest. Without `rows`, the only lane is the mean over ranks.
    ///
    /// # Errors
    /// [`ExportError::NoRankRows`] and [`ExportError::UnknownRank`] for ranks without times.
    pub fn new(
        summary: &'a Summary,
        rows: Option<&'a RankRows>,
        choice: &LaneChoice,
    ) -> Result<Self, ExportError> {
        let mut frames: Vec<ExportFrame> = summary.tree.frames.iter().map(export_frame).collect();
        let wait_frame = frames.len() as u32;
        frames.push(ExportFrame {
            name: WAITING.into(),
            name_with_line: WAITING.into(),
            file: None,
            line: None,
            module: String::new(),
            kind: "wait",
        });
        let contexts = (0..).zip(&summary.tree.nodes);
        let mut nodes: Vec<ForestNode> = contexts
            .map(|(context, node)| ForestNode {
                parent: node.parent,
                frame: node.frame,
                context,
                waits: false,
            })
            .collect();
        let waits = waits(&summary.tree.nodes);
        nodes.extend(waits.iter().map(|wait| ForestNode {
            parent: Some(wait.context),
            frame: wait_frame,
            context: wait.context,
            waits: true,
        }));
        Ok(Self { summary, frames, nodes, lanes: lanes(summary, rows, choice)?, rows, waits })
    }

    /// Returns the run's name in viewers: its executable and ranks.
    pub fn title(&self) -> String {
        let run = &self.summary.run;
        let name = Path::new(&run.executable).file_name().unwrap_or_default().to_string_lossy();
        format!("{name}, {}", counted(run.ranks.into(), "rank"))
    }

    /// Returns the nodes from the outermost one to `node`.
    pub fn node_path(&self, node: u32) -> Vec<u32> {
        let outer = |node: &u32| self.nodes[*node as usize].parent;
        let mut path: Vec<u32> = std::iter::successors(Some(node), outer).collect();
        path.reverse();
        path
    }

    /// Returns the frames of a node's path, outermost first: indices into the frames.
    pub fn path(&self, node: u32) -> Vec<u32> {
        self.node_path(node).into_iter().map(|node| self.nodes[node as usize].frame).collect()
    }

    /// Returns the context behind a node.
    pub fn context(&self, node: u32) -> &'a TreeNode {
        &self.summary.tree.nodes[self.nodes[node as usize].context as usize]
    }

    /// Returns the node of the waiting in a context, if any of it is waiting.
    pub fn wait_of(&self, context: u32) -> Option<u32> {
        let wait = self.waits.binary_search_by_key(&context, |wait| wait.context).ok()?;
        Some((self.summary.tree.nodes.len() + wait) as u32)
    }

    /// Seconds of a lane in each node itself. They add up over a subtree to the inclusive time of
    /// its root.
    ///
    /// # Errors
    /// [`ExportError::RankRows`] if the side file cannot be read.
    pub fn own_s(&self, lane: &Lane) -> Result<Vec<f64>, ExportError> {
        let contexts = &self.summary.tree.nodes;
        let mut inclusive: Vec<f64> =
            contexts.iter().map(|node| node.inclusive.mean_s.max(0.0)).collect();
        if let (Some(rank), Some(rows)) = (lane.rank, self.rows) {
            // A context that is not in the file varies little over ranks: the mean stands for it.
            for (node, time) in rows.nodes().iter().zip(rows.inclusive_s(rank)?) {
                inclusive[*node as usize] = f64::from(time);
            }
        }
        let mut own = exclusive(contexts, &inclusive);
        for wait in &self.waits {
            let all = own[wait.context as usize];
            own[wait.context as usize] = all * (1.0 - wait.fraction);
            own.push(all * wait.fraction);
        }
        Ok(own)
    }

    /// Seconds of each node with all below it.
    pub fn inclusive_s(&self, own_s: &[f64]) -> Vec<f64> {
        let mut inclusive = own_s.to_vec();
        for (index, node) in self.nodes.iter().enumerate().rev() {
            if let Some(parent) = node.parent {
                inclusive[parent as usize] += inclusive[index];
            }
        }
        inclusive
    }

    /// Lays out the nodes with time along an axis in whole nanoseconds, each within its parent: a
    /// parent comes before its children, and neighbours follow each other.
    pub fn spans(&self, own_s: &[f64]) -> Vec<Span> {
        let own_ns: Vec<u64> = own_s.iter().map(|time_s| (time_s * 1e9).round() as u64).collect();
        let mut inclusive_ns = own_ns.clone();
        for (index, node) in self.nodes.iter().enumerate().rev() {
            if let Some(parent) = node.parent {
                inclusive_ns[parent as usize] += inclusive_ns[index];
            }
        }
        // Where the next child of each node begins.
        let mut next_ns = vec![0; self.nodes.len()];
        let mut next_root_ns = 0;
        let mut spans = Vec::new();
        for (index, node) in self.nodes.iter().enumerate() {
            let next =
                node.parent.map_or(&mut next_root_ns, |parent| &mut next_ns[parent as usize]);
            let begin_ns = *next;
            *next += inclusive_ns[index];
            next_ns[index] = begin_ns;
            if inclusive_ns[index] > 0 {
                let (inclusive_ns, own_ns) = (inclusive_ns[index], own_ns[index]);
                spans.push(Span { node: index as u32, begin_ns, inclusive_ns, own_ns });
            }
        }
        // Of two spans with equal begin, the longer one comes first and encloses the other; equal
        // spans keep their order.
        spans.sort_by_key(|span| (span.begin_ns, u64::MAX - span.inclusive_ns));
        spans
    }
}

/// Returns the part of each context's inclusive time that is in none of its children. Children that
/// are longer than their parent together, by rounding or because a mean replaces a rank's time, are
/// shortened.
fn exclusive(contexts: &[TreeNode], inclusive: &[f64]) -> Vec<f64> {
    let mut in_children = vec![0.0; contexts.len()];
    for (node, time) in contexts.iter().zip(inclusive) {
        if let Some(parent) = node.parent {
            in_children[parent as usize] += time;
        }
    }
    let mut fitted = inclusive.to_vec();
    let mut own = inclusive.to_vec();
    for (index, node) in contexts.iter().enumerate() {
        if let Some(parent) = node.parent.map(|parent| parent as usize) {
            if in_children[parent] > fitted[parent] {
                fitted[index] *= fitted[parent] / in_children[parent];
            }
            own[parent] -= fitted[index];
        }
        own[index] = fitted[index];
    }
    own.iter().map(|time| time.max(0.0)).collect()
}

/// Returns the contexts in which ranks wait: the calls that the analysis charges idleness to, with
/// what is below them, and calls that do nothing but wait.
fn waits(contexts: &[TreeNode]) -> Vec<Wait> {
    let idle = |node: &TreeNode| node.idle_s.unwrap_or(0.0) > 0.0;
    let mut idle_below = vec![false; contexts.len()];
    for node in contexts {
        if let (Some(parent), true) = (node.parent, idle(node)) {
            idle_below[parent as usize] = true;
        }
    }
    let mut fractions: Vec<f64> = Vec::with_capacity(contexts.len());
    for (node, below) in contexts.iter().zip(idle_below) {
        let outer = node.parent.map_or(0.0, |parent| fractions[parent as usize]);
        fractions.push(match outer > 0.0 {
            true => outer,
            false if node.calls_exact && node.label.is_a(Label::Wait) => 1.0,
            false if idle(node) && !below && thread_mean_s(node) > 0.0 => {
                (node.idle_s.unwrap_or(0.0) / thread_mean_s(node)).min(1.0)
            }
            false => 0.0,
        });
    }
    let waits = (0..).zip(fractions).filter(|(_, fraction)| *fraction > 0.0);
    waits.map(|(context, fraction)| Wait { context, fraction }).collect()
}

/// Returns the mean time of a waiting call in one thread, which its idleness is a part of. In
/// threads that do not communicate, inclusive times are sums over the threads of a rank, but
/// imbalance and wait are those of a mean thread (ICS18, Table 1).
fn thread_mean_s(node: &TreeNode) -> f64 {
    let imb_s = node.imb_s.filter(|_| node.label.is_a(Label::CollectiveSynchronisation));
    let mean_s = imb_s.unwrap_or(0.0) + node.wait_s.unwrap_or(0.0);
    if mean_s > 0.0 { mean_s } else { node.inclusive.mean_s }
}

fn lanes(
    summary: &Summary,
    rows: Option<&RankRows>,
    choice: &LaneChoice,
) -> Result<Vec<Lane>, ExportError> {
    let Some(rows) = rows else {
        return match choice {
            LaneChoice::Automatic => Ok(vec![mean_lane(summary)]),
            _ => Err(ExportError::NoRankRows),
        };
    };
    let single = |rank: u32| Lane {
        name: format!("rank {rank}"),
        rank: Some(rank),
        ranks: rank.to_string(),
    };
    match choice {
        LaneChoice::Ranks(ranks) => {
            if let Some(rank) = ranks.iter().find(|rank| !rows.ranks().contains(*rank)) {
                return Err(ExportError::UnknownRank { rank, known: rows.ranks().to_string() });
            }
            Ok(ranks.iter().map(single).collect())
        }
        LaneChoice::Automatic if rows.ranks().len() > MAX_LANES => {
            let clusters = summary.clusters.iter();
            let known = clusters.filter(|cluster| rows.ranks().contains(cluster.representative));
            let lanes: Vec<Lane> = known
                .map(|cluster| Lane {
                    name: match cluster.size {
                        1 => format!("rank {}", cluster.representative),
                        _ => format!(
                            "rank {} (stands for ranks {})",
                            cluster.representative, cluster.ranks
                        ),
                    },
                    rank: Some(cluster.representative),
                    ranks: cluster.ranks.clone(),
                })
                .collect();
            Ok(if lanes.is_empty() { vec![mean_lane(summary)] } else { lanes })
        }
        LaneChoice::Automatic | LaneChoice::All => Ok(rows.ranks().iter().map(single).collect()),
    }
}

fn mean_lane(summary: &Summary) -> Lane {
    let nodes = summary.run.nodes.iter().map(|node| &*node.ranks);
    let lists: Vec<&str> = nodes.filter(|ranks| !ranks.is_empty()).collect();
    let ranks: RankSet = lists.join(",").parse().unwrap_or_default();
    let name = match ranks.len() {
        0 | 1 => format!("rank {}", ranks.first().unwrap_or_default()),
        _ => format!("mean of ranks {ranks}"),
    };
    Lane { name, rank: None, ranks: ranks.to_string() }
}

fn export_frame(frame: &Frame) -> ExportFrame {
    let place = frame.file.as_deref().map(|file| {
        let file = file.rsplit('/').next().unwrap_or(file);
        frame.line.map_or_else(|| file.to_owned(), |line| format!("{file}:{line}"))
    });
    let function = &frame.function;
    let call = place.as_ref().filter(|_| frame.kind == FrameKind::Mpi);
    let call = call.map(|place| format!("{function} at {place}"));
    let (name, kind) = match (frame.kind, place) {
        (FrameKind::Loop, Some(place)) => (format!("loop at {place} in {function}"), "loop"),
        (FrameKind::Loop, None) => match frame.offset {
            Some(offset) => (format!("loop at {function}+{offset:#x}"), "loop"),
            None => (format!("loop in {function}"), "loop"),
        },
        (FrameKind::Line, Some(place)) => (format!("{place} in {function}"), "line"),
        (FrameKind::Line, None) => (format!("line in {function}"), "line"),
        (FrameKind::Inlined, _) => (format!("{function} (inlined)"), "inlined"),
        (FrameKind::Mpi, _) => (function.clone(), "mpi"),
        (FrameKind::Function, _) => (function.clone(), "function"),
    };
    let (file, line, module) = (frame.file.clone(), frame.line, frame.module.clone());
    let name_with_line = call.unwrap_or_else(|| name.clone());
    ExportFrame { name, name_with_line, file, line, module, kind }
}
