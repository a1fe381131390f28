//! Biclusters in sentences: ranks that differ from the others, and the contexts in which they
//! differ.

use plimsoll_summary::phrase::{counted, end_of, percent, ranks};
use plimsoll_summary::{Bicluster, Frame, Summary};

/// Maximum number of biclusters in the text report.
const MAX_BICLUSTERS: usize = 2;
/// Maximum number of contexts named per bicluster.
const MAX_NAMES: usize = 2;

/// Returns a sentence for each of the biclusters that explain most.
pub fn patterns(summary: &Summary) -> Vec<String> {
    summary.biclusters.iter().take(MAX_BICLUSTERS).map(|it| pattern(summary, it)).collect()
}

/// Returns the sentence of one bicluster.
pub fn pattern(summary: &Summary, bicluster: &Bicluster) -> String {
    let mut nodes = bicluster.nodes.clone();
    let deviation_s = |node: &u32| {
        summary.tree.nodes.get(*node as usize).map_or(0.0, |node| node.exclusive.stddev_s)
    };
    nodes.sort_by(|a, b| deviation_s(b).total_cmp(&deviation_s(a)));
    let paths: Vec<Vec<Frame>> = nodes.iter().map(|node| summary.tree.path(*node)).collect();
    let shared = shared_end(&paths);
    let mut names: Vec<String> = Vec::new();
    let mut named = 0;
    for path in &paths {
        let name = end_of(&path[..path.len() - shared]);
        if names.contains(&name) {
            named += 1;
        } else if names.len() < MAX_NAMES {
            names.push(name);
            named += 1;
        }
    }
    let more = match nodes.len() - named {
        0 => String::new(),
        more => format!(" and {}", counted(more as u64, "further context")),
    };
    let ranks = ranks(&bicluster.ranks, summary.run.ranks);
    let is_one = ranks.starts_with("rank ");
    let differ = match (&bicluster.event, bicluster.sign > 0) {
        (None, true) if is_one => "spends more time".to_owned(),
        (None, true) => "spend more time".to_owned(),
        (None, false) if is_one => "spends less time".to_owned(),
        (None, false) => "spend less time".to_owned(),
        (Some(event), more) => {
            let verb = if is_one { "has" } else { "have" };
            format!("{verb} {} {event}", if more { "more" } else { "fewer" })
        }
    };
    format!(
        "{ranks} {differ} than the others in {}{more}: {} of the variance among ranks.",
        names.join(", "),
        percent(bicluster.variance_share)
    )
}

/// Returns the number of innermost frames that all paths have in common, so that the frame before
/// them tells the paths apart. At least one frame of each path is not counted.
fn shared_end(paths: &[Vec<Frame>]) -> usize {
    let [first, others @ ..] = paths else { return 0 };
    if others.is_empty() {
        return 0;
    }
    let depth = paths.iter().map(|path| path.len().saturating_sub(1)).min().unwrap_or(0);
    let is_shared = |at: &usize| {
        let end = &first[first.len() - 1 - at];
        others.iter().all(|path| path[path.len() - 1 - at] == *end)
    };
    (0..depth).take_while(is_shared).count()
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_summary::FrameKind;

    fn path(names: &[&str]) -> Vec<Frame> {
        let frame = |name: &&str| Frame::new(FrameKind::Function, *name, "program");
        names.iter().map(frame).collect()
    }

    #[test]
    fn paths_with_the_same_end_are_told_apart_by_the_frame_before_it() {
        let (east, west) = (path(&["main", "east", "work"]), path(&["main", "west", "work"]));
        assert_eq!(shared_end(&[east.clone(), west.clone()]), 1);
        assert_eq!(shared_end(&[east.clone(), path(&["main", "east"])]), 0);
        assert_eq!(shared_end(std::slice::from_ref(&east)), 0);
        assert_eq!(shared_end(&[]), 0);
        // One frame of each path stays.
        assert_eq!(shared_end(&[path(&["work"]), path(&["main", "work"])]), 0);
    }
}
