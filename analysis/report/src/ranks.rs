//! Kinds of ranks and of threads in sentences: which did alike, and which of them to look at.

use plimsoll_summary::phrase::{counted, seconds};
use plimsoll_summary::{RankCluster, Summary, ThreadCluster};

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

/// What threads did that do not communicate; `None` where none was seen.
pub fn thread_kinds(summary: &Summary) -> Option<String> {
    let clusters = &summary.thread_clusters;
    if clusters.is_empty() {
        return None;
    }
    let told: Vec<String> = clusters.iter().take(MOST).map(thread_kind).collect();
    let more = match clusters.len() - told.len() {
        0 => String::new(),
        more => format!("; and {more} more kinds"),
    };
    Some(format!("beside those that communicate: {}{more}.", told.join("; ")))
}

fn thread_kind(cluster: &ThreadCluster) -> String {
    let threads = counted(cluster.size, "thread");
    let routine = cluster.routine.as_ref().map(|name| format!(" in {name}")).unwrap_or_default();
    let each = if cluster.size == 1 { "" } else { " each" };
    let (work, mean) = (seconds(cluster.work_s), seconds(cluster.mean_s));
    let ranks = if cluster.ranks.contains(['-', ',']) { "ranks" } else { "rank" };
    format!("{threads}{routine} ({ranks} {}), computing {work} of {mean}{each}", cluster.ranks)
}
