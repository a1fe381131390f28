//! Clusters of ranks and of threads in sentences: their members and representatives; the aggregated
//! threads of processes.

use plimsoll_summary::phrase::{counted, frame, rank_list, seconds};
use plimsoll_summary::{RankCluster, Summary, ThreadCluster, ThreadRole};

/// Maximum number of clusters that are named one by one.
const MAX_CLUSTERS: usize = 4;
/// Maximum length of a list of ranks, in characters.
const MAX_LIST_CHARS: usize = 40;

/// Returns the clusters of ranks, largest first; `None` if all ranks behave alike or nothing is
/// known.
pub fn rank_clusters(summary: &Summary) -> Option<String> {
    let clusters = &summary.clusters;
    if clusters.len() < 2 {
        return None;
    }
    let mut largest: Vec<&RankCluster> = clusters.iter().collect();
    largest.sort_by_key(|cluster| std::cmp::Reverse(cluster.size));
    let named: Vec<String> =
        largest.iter().take(MAX_CLUSTERS).map(|cluster| rank_cluster(cluster)).collect();
    let more = match clusters.len() - named.len() {
        0 => String::new(),
        more => format!("; and {more} more"),
    };
    Some(format!("{}{more}.", named.join("; ")))
}

fn rank_cluster(cluster: &RankCluster) -> String {
    let list = rank_list(&cluster.ranks, MAX_LIST_CHARS);
    match cluster.size {
        1 => format!("rank {list}"),
        _ => format!("ranks {list} (representative: rank {})", cluster.representative),
    }
}

/// Returns the clusters of all threads but one of each rank, the one with phases. Other threads may
/// communicate too (MPI_THREAD_MULTIPLE). `None` if there is no other thread.
pub fn thread_clusters(summary: &Summary) -> Option<String> {
    let clusters = &summary.thread_clusters;
    if clusters.is_empty() {
        return None;
    }
    let named: Vec<String> = clusters.iter().take(MAX_CLUSTERS).map(thread_cluster).collect();
    let more = match clusters.len() - named.len() {
        0 => String::new(),
        more => format!("; and {more} more clusters"),
    };
    Some(format!("besides one thread of each rank: {}{more}.", named.join("; ")))
}

fn thread_cluster(cluster: &ThreadCluster) -> String {
    let threads = counted(cluster.size, "thread");
    let routine = cluster.routine.as_ref().map(|name| format!(" in {name}")).unwrap_or_default();
    let each = if cluster.size == 1 { "" } else { " each" };
    let (work, mean) = (seconds(cluster.work_s), seconds(cluster.mean_s));
    let list = rank_list(&cluster.ranks, MAX_LIST_CHARS);
    let ranks = if cluster.ranks.contains(['-', ',']) { "ranks" } else { "rank" };
    format!("{threads}{routine} ({ranks} {list}), computing {work} of {mean}{each}")
}

/// Returns the computation of threads by their role in their processes; `None` if no process has
/// several threads or if threads are kept as one sum.
pub fn thread_roles(summary: &Summary) -> Option<String> {
    /// Maximum number of roles that are named: all of the aggregation `key`.
    const MAX_ROLES: usize = 4;
    let threads = &summary.threads;
    if threads.roles.len() < 3 {
        return None;
    }
    let named: Vec<String> = threads.roles.iter().take(MAX_ROLES).map(thread_role).collect();
    let more = match threads.roles.len() - named.len() {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    let mut sentence = format!("computation of a thread: {}{more}", named.join(", "));
    if let Some((it, last)) =
        threads.distinction.as_ref().and_then(|it| Some((it, it.path.last()?)))
    {
        let (slowest, fastest) = (seconds(it.slowest_s), seconds(it.fastest_s));
        let place = frame(last);
        sentence.push_str(&format!(
            ". The slowest differ from the fastest mostly in {place}: {slowest} against {fastest}"
        ));
    }
    sentence.push('.');
    Some(sentence)
}

fn thread_role(role: &ThreadRole) -> String {
    format!("{} {}", role.role, seconds(role.work_s))
}
