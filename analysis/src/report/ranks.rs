//! Kinds of ranks in a sentence: which did alike, and which of them to look at.

use crate::summary::{RankCluster, Summary};

/// Kinds that are told one by one.
const MOST: usize = 4;

/// Which ranks did alike; `None` where all did, or nothing is known.
pub fn kinds(summary: &Summary) -> Option<String> {
    let clusters = &summary.clusters;
    if clusters.len() < 2 {
        return None;
    }
    let mut largest: Vec<&RankCluster> = clusters.iter().collect();
    largest.sort_by_key(|cluster| std::cmp::Reverse(cluster.size));
    let told: Vec<String> = largest.iter().take(MOST).map(|cluster| kind(cluster)).collect();
    let more = match clusters.len() - told.len() {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    Some(format!("{} kinds by what they did: {}{more}.", clusters.len(), told.join("; ")))
}

fn kind(cluster: &RankCluster) -> String {
    match cluster.size {
        1 => format!("rank {}", cluster.ranks),
        _ => format!("ranks {}, typically rank {}", cluster.ranks, cluster.representative),
    }
}
