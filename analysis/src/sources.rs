//! Checks the spool files of a digest: all belong to one run, and each rank is in only one of them.

use serde::{Deserialize, Serialize};

use crate::ranks::RankSet;

/// One spool file: its run and its ranks.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Source {
    /// Path of the file.
    pub file: String,
    /// Identity of the run ([`crate::spooled::SpoolNote::run`]); `None` in spools of earlier
    /// builds.
    pub run: Option<String>,
    /// Path of the executable.
    pub executable: String,
    /// Number of ranks of the run.
    pub size: u32,
    /// Ranks in this file.
    pub ranks: RankSet,
}

impl Source {
    fn is_of_run_of(&self, other: &Self) -> bool {
        let is_alike = (self.size, &self.executable) == (other.size, &other.executable);
        match (&self.run, &other.run) {
            (Some(one), Some(other)) => one == other,
            _ => is_alike,
        }
    }
}

/// Returns the reason why the files must not be merged, and what to do instead; `None` if they may
/// be merged. A file that several threads or processes of a digest share may be listed several
/// times.
pub fn conflict(sources: &[Source]) -> Option<String> {
    let mut sources: Vec<&Source> = sources.iter().collect();
    sources.sort_by(|one, other| one.file.cmp(&other.file));
    sources.dedup_by(|one, other| one.file == other.file);
    let first = *sources.first()?;
    if let Some(other) = sources.iter().find(|source| !source.is_of_run_of(first)) {
        return Some(format!(
            "{} and {} are spools of two runs, and ranks of two runs must not be merged. Move the \
             spools of each run to a folder of their own, or digest a single file.",
            first.file, other.file
        ));
    }
    let mut seen = RankSet::default();
    for (index, source) in sources.iter().enumerate() {
        if let Some(rank) = source.ranks.iter().find(|rank| seen.contains(*rank)) {
            let holds = |earlier: &&&Source| earlier.ranks.contains(rank);
            let earlier = sources[..index].iter().find(holds).unwrap_or(&first);
            return Some(format!(
                "{} and {} both hold rank {rank}: one is a copy of the other, or of another run. \
                 Move one of them to another folder, or digest a single file.",
                earlier.file, source.file
            ));
        }
        seen = seen.union(&source.ranks);
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(file: &str, run: Option<&str>, ranks: std::ops::Range<u32>) -> Source {
        Source {
            file: file.to_owned(),
            run: run.map(str::to_owned),
            executable: "./app".to_owned(),
            size: 8,
            ranks: ranks.collect(),
        }
    }

    #[test]
    fn nodes_of_one_run_are_merged() {
        for run in [Some("a"), None] {
            let sources = [source("rank4", run, 4..8), source("rank0", run, 0..4)];
            assert_eq!(conflict(&sources), None);
        }
        // Processes of a digest share one file.
        assert_eq!(conflict(&[source("rank0", None, 0..4), source("rank0", None, 0..4)]), None);
        assert_eq!(conflict(&[]), None);
    }

    #[test]
    fn two_runs_are_told_apart_although_their_ranks_differ() {
        let message = conflict(&[source("x", Some("a"), 0..4), source("y", Some("b"), 4..8)]);
        let message = message.expect("they are of two runs");
        assert!(message.starts_with("x and y are spools of two runs"), "{message}");
        let larger = Source { size: 9, ..source("y", None, 4..8) };
        assert!(conflict(&[source("x", None, 0..4), larger]).is_some());
    }

    #[test]
    fn a_rank_in_two_files_is_named() {
        for run in [Some("a"), None] {
            let sources = [source("z", run, 2..5), source("x", run, 0..2), source("y", run, 4..8)];
            let message = conflict(&sources).expect("a rank is there twice");
            assert!(message.starts_with("y and z both hold rank 4"), "{message}");
        }
    }
}
