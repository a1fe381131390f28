//! The calling-context tree: hot paths with their times.

use super::WIDTH;
use super::page::Page;
use super::region_lines::table;
use super::sentence::words;
use super::text::{has_mpi, headline};
use plimsoll_summary::phrase::{frame, frame_with_place};
use plimsoll_summary::{Estimate, FrameKind, Label, Metric, Summary, Tree, TreeNode};

/// Minimum time of a shown context, as a fraction of the total time.
const MIN_FRACTION: f64 = 0.005;
/// Minimum time of an only callee, as a fraction of its caller's time, to be drawn on its caller's
/// line.
const SAME_FRACTION: f64 = 0.995;
/// Maximum indentation: deeper contexts are drawn below each other.
const MAX_INDENT: usize = 48;

/// Returns the whole tree, without contexts below half a percent.
pub fn tree(summary: &Summary) -> String {
    let mut page = Page::new(WIDTH);
    page.paragraph("", &headline(summary), 2);
    page.line("");
    page.append(view(summary, usize::MAX));
    let regions = table(summary);
    if !regions.is_empty() {
        page.line("");
        regions.iter().for_each(|line| page.line(line));
    }
    page.text("")
}

/// Returns the hottest contexts, on at most `lines` lines with the heading.
pub fn view(summary: &Summary, lines: usize) -> Page {
    let tree = &summary.tree;
    let total_s: f64 = roots(tree).map(time_s).sum();
    // The index of a parent is smaller and its time is not, so each context is preceded by its
    // callers.
    let mut hottest: Vec<usize> = (0..tree.nodes.len())
        .filter(|index| {
            let time_s = time_s(&tree.nodes[*index]);
            time_s > 0.0 && time_s >= total_s * MIN_FRACTION
        })
        .collect();
    hottest.sort_by(|a, b| {
        let time_s = |index: &usize| time_s(&tree.nodes[*index]);
        time_s(b).total_cmp(&time_s(a)).then(a.cmp(b))
    });
    // Chains share a line, so more contexts than lines may fit: search the largest number that
    // does.
    let (mut fits, mut most) = (lines.min(hottest.len()), hottest.len());
    while fits < most {
        let middle = (fits + most).div_ceil(2);
        if draw(summary, &hottest[..middle], total_s).len() <= lines {
            fits = middle;
        } else {
            most = middle - 1;
        }
    }
    let mut page = draw(summary, &hottest[..fits], total_s);
    page.truncate(lines);
    page
}

fn roots(tree: &Tree) -> impl Iterator<Item = &TreeNode> {
    tree.nodes.iter().filter(|node| node.parent.is_none())
}

/// Draws these contexts, which must be sorted by falling time and include all their callers.
fn draw(summary: &Summary, shown: &[usize], total_s: f64) -> Page {
    let tree = &summary.tree;
    let mut children: Vec<Vec<usize>> = vec![Vec::new(); tree.nodes.len()];
    let mut open: Vec<(usize, usize)> = Vec::new();
    for &index in shown {
        match tree.nodes[index].parent {
            Some(parent) => children[parent as usize].push(index),
            None => open.push((index, 0)),
        }
    }
    let mut page = Page::new(WIDTH);
    let is_estimated = tree.nodes.iter().any(|node| node.inclusive.estimate.is_some());
    page.line(match is_estimated {
        true => "   seconds    +- %       %  calling context (estimated mean over all ranks)",
        false if !has_mpi(summary) => {
            "   seconds       %  calling context (with all that it calls)"
        }
        false => "   seconds       %  calling context (mean over ranks, with all that it calls)",
    });
    // The stack ends with the next context to draw. An explicit stack, because trees can be deeper
    // than the call stack allows.
    open.reverse();
    while let Some((mut index, depth)) = open.pop() {
        let own_s = time_s(&tree.nodes[index]);
        let indent = (2 * depth).min(MAX_INDENT);
        let error = if is_estimated { error_column(&tree.nodes[index]) } else { String::new() };
        let part = 100.0 * own_s / total_s;
        let mut line = format!("{own_s:10.2}{error} {part:7.1}  {:indent$}", "");
        line.push_str(&name(tree, index));
        while let [child] = children[index][..] {
            let link = format!(" > {}", name(tree, child));
            let same = time_s(&tree.nodes[child]) >= SAME_FRACTION * own_s;
            if !same || line.len() + link.len() > WIDTH {
                break;
            }
            line.push_str(&link);
            index = child;
        }
        page.line(&line);
        open.extend(children[index].iter().rev().map(|child| (*child, depth + 1)));
    }
    page
}

/// Returns the mean inclusive time over all ranks: the estimate, if the ranks are a sample.
fn time_s(node: &TreeNode) -> f64 {
    let Metric { mean_s, estimate, .. } = node.inclusive;
    estimate.map_or(mean_s, |estimate| estimate.mean_s)
}

/// Returns the column with the half-width of the interval in percent of the mean.
fn error_column(node: &TreeNode) -> String {
    match node.inclusive.estimate {
        Some(Estimate { mean_s, high_s, .. }) if mean_s > 0.0 => {
            format!(" {:7.1}", 100.0 * (high_s - mean_s) / mean_s)
        }
        _ => " ".repeat(8),
    }
}

fn name(tree: &Tree, index: usize) -> String {
    let node = &tree.nodes[index];
    let Some(it) = tree.frames.get(node.frame as usize) else { return "?".into() };
    let name = if it.kind == FrameKind::Loop { frame(it) } else { frame_with_place(it) };
    match node.label {
        Label::Computation => name,
        // The name of an MPI call shows its kind already.
        _ if it.kind == FrameKind::Mpi => name,
        label => format!("{name} [{}]", words(label)),
    }
}
