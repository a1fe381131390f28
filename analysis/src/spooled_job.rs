//! Description of a job, joined from the spools of a digest.

use std::fmt;

use serde::{Deserialize, Serialize};

use crate::deaths::Lives;
use crate::input::{FINALIZED, JobInfo};
use crate::ranks::RankSet;
use crate::settings::{RANKS, RankFilter};
use crate::sources::{Source, conflict};
use crate::spooled::KILLED;

/// Maximum number of damages that a summary lists one by one.
const MAX_DAMAGES: usize = 5;

/// Reason why the spools do not describe a job.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum NoJob {
    /// No spool could be read; one sentence per reason.
    Unreadable(Vec<String>),
    /// The spools must not be merged: which ones, and what to do instead.
    Mixed(String),
}

/// Description of a job from some of its spools.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct SpooledJob {
    /// Note of the lowest rank's spool, with that rank; `None` if no spool could be read.
    pub first: Option<(u32, JobInfo)>,
    /// End of the job: the most severe of the ends that its spools record.
    pub ended: Option<String>,
    /// End of the job as recorded by a spool that has a regular end.
    pub regular: Option<String>,
    /// Whether all spools say that the job reached its end.
    pub complete: bool,
    /// Number of ranks of the job.
    pub size: u32,
    /// Ranks with a readable spool.
    pub ranks: RankSet,
    /// Ranks with samples in the spool; `None` if no rank was thinned out.
    pub kept: Option<RankSet>,
    /// Life times of the ranks.
    pub lives: Lives,
    /// Places in spools that could not be read.
    pub damages: Vec<String>,
    /// Ranks with a spool that is damaged or lacks its end.
    pub damaged: RankSet,
    /// Spools that could not be read, with the reason.
    pub unreadable: Vec<String>,
    /// Files that were read.
    pub sources: Vec<Source>,
}

impl SpooledJob {
    /// Joins the description from other spools.
    pub fn combine(mut self, other: Self) -> Self {
        if self.first.is_none() && self.unreadable.is_empty() {
            return other;
        }
        if other.first.is_none() && other.unreadable.is_empty() {
            return self;
        }
        let rank = |job: &Self| job.first.as_ref().map_or(u32::MAX, |(rank, _)| *rank);
        let has_note = [self.first.is_some(), other.first.is_some()];
        if rank(&other) < rank(&self) {
            self.first = other.first;
        }
        self.ended = self.ended.into_iter().chain(other.ended).max_by_key(|ended| severity(ended));
        self.regular = self.regular.or(other.regular);
        self.complete = match has_note {
            [true, true] => self.complete && other.complete,
            [true, false] => self.complete,
            _ => other.complete,
        };
        self.size = self.size.max(other.size);
        self.ranks = self.ranks.union(&other.ranks);
        self.kept = self.kept.or(other.kept);
        self.lives.combine(other.lives);
        self.damages.extend(other.damages);
        self.damages.sort();
        self.damages.dedup();
        self.damaged = self.damaged.union(&other.damaged);
        self.unreadable.extend(other.unreadable);
        self.unreadable.sort();
        self.unreadable.dedup();
        self.sources.extend(other.sources);
        self
    }

    /// Returns the job for the summary, or the reason why there is none.
    pub fn conclude(self) -> Result<JobInfo, NoJob> {
        if self.first.is_none() {
            return Err(NoJob::Unreadable(self.unreadable));
        }
        if let Some(reason) = conflict(&self.sources) {
            return Err(NoJob::Mixed(reason));
        }
        let expected = self.expected();
        let incomplete = self.incomplete(&expected);
        let Some((_, mut info)) = self.first else { return Err(NoJob::Unreadable(Vec::new())) };
        info.complete = self.complete && incomplete.is_none();
        info.incomplete = incomplete;
        let ended = self.regular.or(self.ended);
        info.ended = ended.unwrap_or_else(|| KILLED.to_owned());
        if self.kept.is_none() && self.ranks.len() < expected.len() {
            let found = &self.ranks;
            info.notes.push(format!("Of {} ranks, these have left a spool: {found}.", self.size));
        }
        if let Some(kept) = &self.kept {
            // A spool may be missing, or may still hold all of its ranks.
            let of = match &self.ranks {
                found if found == kept => "them alone".to_owned(),
                found => format!("those that are found, {found}"),
            };
            let how = match &info.population {
                Some(_) => "chosen at random, PLIMSOLL_TRACE=sample",
                None => "PLIMSOLL_TRACE=clusters",
            };
            info.notes.push(format!(
                "Of {} ranks, the samples of {kept} were kept: this is of {of} ({how}). The report \
                 of the run itself is of all.",
                self.size
            ));
        }
        for damage in self.unreadable {
            info.notes.push(format!("A spool could not be read: {damage}"));
        }
        let damages = self.damages.len();
        for damage in self.damages.into_iter().take(MAX_DAMAGES) {
            info.notes.push(format!("A spool is damaged: {damage}"));
        }
        if damages > MAX_DAMAGES {
            info.notes.push(format!("There are {} more damages.", damages - MAX_DAMAGES));
        }
        Ok(info)
    }

    /// Returns the ranks that have a spool if none is lost.
    fn expected(&self) -> RankSet {
        if let Some(kept) = &self.kept {
            return kept.clone();
        }
        let chosen = self.first.as_ref().and_then(|(_, job)| job.settings.get(RANKS));
        let chosen = chosen.and_then(|chosen| RankFilter::parse(chosen)).unwrap_or_default();
        (0..self.size).filter(|rank| chosen.contains(*rank)).collect()
    }

    /// Returns why the summary of a job that reached its end is incomplete, as the end of a
    /// sentence; `None` if the summary is complete, or if the job did not reach its end.
    fn incomplete(&self, expected: &RankSet) -> Option<String> {
        self.regular.as_ref()?;
        let missing: RankSet = expected.iter().filter(|rank| !self.ranks.contains(*rank)).collect();
        let mut reasons = Vec::new();
        if !self.damaged.is_empty() {
            reasons.push(format!("the spool of {} is damaged", Named(&self.damaged)));
        }
        if !missing.is_empty() {
            let what = if self.unreadable.is_empty() { "missing" } else { "missing or unreadable" };
            reasons.push(format!("the spool of {} is {what}", Named(&missing)));
        } else if !self.unreadable.is_empty() {
            reasons.push("a spool could not be read".to_owned());
        }
        (!reasons.is_empty()).then(|| reasons.join(", and "))
    }
}

/// Ranks with their noun: `rank 3`, `ranks 0-2`.
struct Named<'a>(&'a RankSet);

impl fmt::Display for Named<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let noun = if self.0.len() == 1 { "rank" } else { "ranks" };
        write!(formatter, "{noun} {}", self.0)
    }
}

/// Returns how severe an end is, where spools record different ends: the launcher ends all other
/// processes by SIGTERM after one process was killed.
fn severity(ended: &str) -> u32 {
    match ended {
        FINALIZED => 0,
        "exit" => 1,
        "signal 15" => 2,
        KILLED => 3,
        "abort" => 4,
        _ => 5,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::synthetic_run::job;

    fn part(ranks: std::ops::Range<u32>, complete: bool) -> SpooledJob {
        let ended = if complete { "finalize" } else { KILLED };
        SpooledJob {
            first: Some((ranks.start, job())),
            ended: Some(ended.to_owned()),
            regular: complete.then(|| ended.to_owned()),
            complete,
            size: 8,
            ranks: ranks.collect(),
            ..SpooledJob::default()
        }
    }

    fn ending(job: SpooledJob) -> (bool, String, Option<String>) {
        let info = job.conclude().unwrap();
        (info.complete, info.ended, info.incomplete)
    }

    #[test]
    fn all_spools_are_the_whole_job() {
        let whole = part(0..4, true).combine(part(4..8, true));
        assert_eq!(ending(whole), (true, "finalize".into(), None));
    }

    #[test]
    fn ranks_that_were_not_to_be_measured_are_not_missing() {
        let of_job = |chosen: &str| {
            let mut job = part(0..4, true);
            let (_, info) = job.first.as_mut().unwrap();
            info.settings.insert(RANKS.to_owned(), chosen.to_owned());
            job.conclude().unwrap()
        };
        let info = of_job("0-3,9");
        assert_eq!((info.complete, info.incomplete, info.notes), (true, None, Vec::new()));
        let missing = of_job("0-6:2").incomplete;
        assert_eq!(missing.as_deref(), Some("the spool of ranks 4,6 is missing"));
    }

    #[test]
    fn what_is_missing_of_a_job_that_reached_its_end_is_named() {
        let reason = |job: SpooledJob| {
            let (complete, ended, incomplete) = ending(job);
            assert_eq!((complete, ended.as_str()), (false, "finalize"));
            incomplete.expect("a reason")
        };
        assert_eq!(reason(part(0..7, true)), "the spool of rank 7 is missing");
        let damaged = SpooledJob { damaged: (4..8).collect(), ..part(4..8, true) };
        let job = part(0..4, true).combine(damaged);
        assert_eq!(reason(job), "the spool of ranks 4-7 is damaged");
        // A spool that is cut off still has its first note.
        let cut = SpooledJob { damaged: [2].into_iter().collect(), ..part(2..3, false) };
        let job = part(0..2, true).combine(cut).combine(part(3..8, true));
        assert_eq!(reason(job), "the spool of rank 2 is damaged");
        let unreadable =
            SpooledJob { unreadable: vec!["x: no spool.".into()], ..Default::default() };
        let job = unreadable.combine(part(0..6, true));
        assert_eq!(reason(job), "the spool of ranks 6-7 is missing or unreadable");
    }

    #[test]
    fn a_job_that_was_killed_was_killed() {
        let killed = part(0..4, false).combine(part(4..8, false));
        assert_eq!(ending(killed), (false, KILLED.into(), None));
    }
}
