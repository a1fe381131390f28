//! Biclusters in sentences: ranks that differ from the others, and the contexts in which they
//! differ.

use plimsoll_summary::phrase::{counted, end_of, percent, ranks};
use plimsoll_summary::{Bicluster, Summary};

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
    let mut names: Vec<String> = Vec::new();
    let mut named = 0;
    for node in &nodes {
        let name = end_of(&summary.tree.path(*node));
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
