//! Diagnoses a job: the ranks agree on phases, their profiles are reduced, losses are derived from
//! the totals, all ranks are asked which of them a loss concerns, and the summary is written
//! (PPoPP20, 3.1 and 5).

use plimsoll_summary::error::Error;
use plimsoll_summary::timeline_file::{self, Timeline};
use serde::{Deserialize, Serialize};

use crate::agreement::{Agreed, Proposal};
use crate::biclusters::{self, Comparison};
use crate::broken_off::LastCommon;
use crate::canonical::CanonicalTree;
use crate::clocks::{Lowest, Reference, lower, lowest};
use crate::clusters::{self, Finished};
use crate::communicator::{Alone, Communicator, CommunicatorError, broadcast, reduce};
use crate::conclusion::{Conclusion, summary};
use crate::context_order::ordered;
use crate::groups;
use crate::input::{JobInfo, RankInput};
use crate::mpmd::{self, Members};
use crate::pairs;
use crate::per_rank::{self, Columns, Sheet, Table};
use crate::population;
use crate::queries::ask;
use crate::rank::{Rank, why_unusable};
use crate::sampled_phases;
use crate::slow_places;
use crate::summary::Summary;
use crate::timeline;
use crate::totals::Totals;
use crate::work_differences;

/// Reasons why there is no summary.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DiagnoseError {
    /// The processes could not exchange their values.
    #[error("the ranks could not be compared: {0}")]
    Exchange(#[from] CommunicatorError),
    /// No process had a usable profile.
    #[error("no rank was measured, so there is nothing to say")]
    NoRanks,
}

/// Diagnoses a job in which each process holds the profiles of any number of ranks, including none.
/// Returns the summary at process 0, `None` elsewhere. Collective.
pub fn diagnose(
    comm: &dyn Communicator,
    local: Vec<RankInput>,
    job: &JobInfo,
) -> Result<Option<Summary>, DiagnoseError> {
    diagnose_into(comm, local, job, None)
}

/// Like [`diagnose`], and additionally writes per-rank values and the timeline to `table` on
/// process 0; the argument is ignored elsewhere. The table of per-rank values stays empty for a job
/// with one rank. If writing fails, the summary carries a note. Collective.
pub fn diagnose_into(
    comm: &dyn Communicator,
    mut local: Vec<RankInput>,
    job: &JobInfo,
    mut table: Option<&mut dyn Table>,
) -> Result<Option<Summary>, DiagnoseError> {
    let mut left_out = Vec::new();
    local.retain(|input| {
        let reason = why_unusable(&input.profile);
        left_out.extend(reason.map(|reason| (input.rank, reason)));
        reason.is_none()
    });
    let Agreement { mut agreed, lowest, by_samples, divided_at } = agree(comm, &local, job)?;
    let mut noted = Vec::new();
    if by_samples && agreed.ranks > 0 {
        noted = sampled_phases::resolve(comm, &mut local, &lowest)?;
        agreed = agree(comm, &local, job)?.agreed;
        agreed.by_samples = true;
    } else if let Some(last) = divided_at {
        local.iter_mut().for_each(|input| last.divide(&mut input.profile));
        agreed = agree(comm, &local, job)?.agreed;
    }
    if agreed.ranks == 0 {
        return Err(DiagnoseError::NoRanks);
    }
    let reference = Reference::learn(comm, &local, lowest, by_samples)?;
    let mut totals = Totals::default();
    left_out.into_iter().for_each(|(rank, reason)| totals.job.leave_out(rank, reason));
    let mut ranks: Vec<Rank<'_>> = local.iter().map(|input| Rank::new(input, &agreed)).collect();
    for rank in &ranks {
        totals.add_rank(rank, &agreed);
        totals.clocks.add_rank(rank.input, &reference);
    }
    let totals = reduce(comm, totals, Totals::combine);
    let (mut conclusion, mut failure) = match totals {
        Ok(totals) => {
            let conclude = |totals| Conclusion::new(ordered(totals), &agreed, reference);
            (totals.map(conclude), None)
        }
        Err(error) => (None, Some(error)),
    };
    // Process 0 passes an earlier failure on to all ranks in its next broadcast.
    let to_all = |failure: &Option<CommunicatorError>| failure.clone().map_or(Ok(()), Err);
    let inquiry = to_all(&failure).map(|()| conclusion.as_ref().map(Conclusion::slow_inquiry));
    let slow_places = slow_places::find(comm, &ranks, inquiry)?;
    slow_places::even_out(&mut ranks, &slow_places);
    let divergences = to_all(&failure).map(|()| conclusion.as_ref().map(Conclusion::divergences));
    let answers = root_only(comm, &mut failure, groups::ask(comm, &ranks, divergences))?;
    let members = conclusion.as_mut().zip(answers).map(|(it, answers)| it.form_groups(answers));
    let sheet = table.is_some().then(|| conclusion.as_ref().and_then(Conclusion::sheet)).flatten();
    let clusters = conclusion.as_mut().map(Conclusion::take_clusters);
    let concluded = conclusion.as_ref().zip(clusters);
    let population =
        concluded.as_ref().and_then(|(conclusion, clusters)| conclusion.population(job, clusters));
    let root_values = to_all(&failure).map(|()| {
        concluded.map(|(conclusion, clusters)| RootBroadcast {
            contexts: conclusion.contexts(),
            clusters,
            comparisons: conclusion.comparisons(),
            population: population.as_ref().map(|(_, plan)| plan.clone()),
            columns: sheet.as_ref().map(|sheet| sheet.columns().clone()),
            members: members.unwrap_or_default(),
        })
    });
    let RootBroadcast {
        mut contexts,
        clusters,
        comparisons,
        population: sample_plan,
        columns,
        members,
    } = broadcast(comm, root_values)?;
    let groups = mpmd::add_up(comm, &ranks, &agreed, &mut contexts, &members);
    let groups = root_only(comm, &mut failure, groups)?;
    let even = slow_places::add_up(comm, &ranks, &agreed, &mut contexts, &slow_places);
    let even = root_only(comm, &mut failure, even)?.map(|even| (slow_places, even));
    if let Some((conclusion, groups)) = conclusion.as_mut().zip(groups) {
        conclusion.find_losses(groups, even);
    }
    let wanted = to_all(&failure)
        .map(|()| conclusion.as_mut().map(|conclusion| conclusion.pairs_wanted(&clusters)));
    let sums = root_only(comm, &mut failure, pairs::collect(comm, &ranks, wanted))?;
    let begins = conclusion.as_mut().zip(sums).map(|(it, sums)| it.follow_pairs(sums));
    let begins = to_all(&failure).map(|()| begins);
    let work = root_only(comm, &mut failure, pairs::ask_for_work(comm, &ranks, begins))?;
    if let Some((conclusion, work)) = conclusion.as_mut().zip(work) {
        conclusion.name_origins(work, &clusters);
    }
    let queries = to_all(&failure).map(|()| conclusion.as_ref().map(Conclusion::queries));
    let answers = ask(comm, &ranks, queries);
    let questions = to_all(&failure).map(|()| conclusion.as_ref().map(Conclusion::work_questions));
    let differences = work_differences::ask(comm, &ranks, questions);
    let differences = root_only(comm, &mut failure, differences)?.unwrap_or_default();
    let plan = to_all(&failure).map(|()| conclusion.as_ref().map(|it| it.plan(table.is_some())));
    let over_time = timeline::add_up(comm, &ranks, &mut contexts, plan);
    let over_time = root_only(comm, &mut failure, over_time)?;
    let rank_clusters = clusters::shown(comm, &local, &mut contexts, &clusters);
    drop(clusters);
    let biclusters = biclusters::find(comm, &local, &mut contexts, &comparisons);
    let moments = match &sample_plan {
        Some(plan) => population::add_up(comm, &ranks, &mut contexts, plan),
        None => Ok(None),
    };
    let mut rows_error = None;
    if let Some(columns) = columns {
        // All processes wait for process 0's requests for rows, even if an earlier step failed.
        let all_ok =
            answers.is_ok() && rank_clusters.is_ok() && biclusters.is_ok() && moments.is_ok();
        let wanted: Option<(&Sheet, &mut dyn Table)> = match (&sheet, &mut table) {
            (Some(sheet), Some(table)) if all_ok => Some((sheet, &mut **table)),
            _ => None,
        };
        rows_error = per_rank::collect(comm, &local, (&mut contexts, &columns), wanted).err();
    }
    let answers = answers?.zip(rank_clusters?);
    let biclusters = biclusters?;
    let sampled = population
        .zip(moments?)
        .map(|((purpose, plan), moments)| population::conclude(purpose, &plan, &moments, job));
    let timeline = conclusion.as_ref().zip(over_time.as_ref());
    let timeline = timeline.and_then(|(conclusion, over_time)| conclusion.timeline(over_time));
    let untimed = timeline.zip(table).and_then(|(timeline, table)| attach(&timeline, table).err());
    // Free the inputs first: the summary is made from the totals alone, and inputs and totals are
    // both large.
    drop(ranks);
    drop((local, contexts));
    let mut summary = conclusion.zip(answers).map(|(conclusion, (answers, clusters))| {
        let answers = (&answers[..], &differences);
        let places = sampled.is_some().then(|| conclusion.places());
        let mut summary = summary(conclusion, answers, (clusters, &biclusters), &over_time, job);
        if let Some((sampled, places)) = sampled.zip(places) {
            sampled.add_to(&mut summary, &places);
        }
        summary
    });
    if let Some(summary) = &mut summary {
        summary.notes.extend(noted);
        summary.notes.extend(rows_error.map(|reason| per_rank::note(&reason)));
        summary.notes.extend(untimed.map(|reason| timeline_file::note(&reason)));
    }
    Ok(summary)
}

/// Writes the timeline to a file beside the table.
fn attach(timeline: &Timeline, table: &mut dyn Table) -> Result<(), Error> {
    // Serialising a structure of strings and numbers cannot fail.
    let content = serde_json::to_vec(timeline).unwrap_or_default();
    table.attach(timeline_file::EXTENSION, &content)
}

/// Returns the ranks' answers and, on process 0, turns an error into `failure` so that process 0
/// goes on: the other processes do not know of an error of process 0 until its next broadcast.
fn root_only<T>(
    comm: &dyn Communicator,
    failure: &mut Option<CommunicatorError>,
    answers: Result<Option<T>, CommunicatorError>,
) -> Result<Option<T>, CommunicatorError> {
    match answers {
        Err(error) if comm.rank() == 0 && failure.is_none() => {
            *failure = Some(error);
            Ok(None)
        }
        answers => answers,
    }
}

/// Data that process 0 broadcasts once it has the totals.
#[derive(Serialize, Deserialize)]
struct RootBroadcast {
    contexts: CanonicalTree,
    clusters: Finished,
    /// Inputs of the search for contexts and ranks that vary together.
    comparisons: Vec<Comparison>,
    /// Request for the variance of the ranks; `None` if the job samples no ranks.
    population: Option<population::Plan>,
    /// Columns of the table; `None` without a table.
    columns: Option<Columns>,
    /// Members of each process group; all processes add up the values of these groups.
    members: Members,
}

/// Diagnoses the ranks of one process without communication: for a process without MPI, or if the
/// ranks cannot communicate.
pub fn diagnose_alone(local: Vec<RankInput>, job: &JobInfo) -> Result<Summary, DiagnoseError> {
    // The only process is process 0.
    diagnose(&Alone, local, job)?.ok_or(DiagnoseError::NoRanks)
}

/// Result of the ranks' agreement, before their values are added.
#[derive(Serialize, Deserialize)]
struct Agreement {
    agreed: Agreed,
    lowest: Lowest,
    /// Whether any rank has samples only (no records of calls).
    by_samples: bool,
    /// Synchronisation at which the ranks' runs are to be divided; `None` if they reached their
    /// end.
    divided_at: Option<LastCommon>,
}

/// Lets the ranks agree; of the job's descriptions, that of process 0 counts. Collective.
fn agree(
    comm: &dyn Communicator,
    local: &[RankInput],
    job: &JobInfo,
) -> Result<Agreement, CommunicatorError> {
    let proposals = local.iter().map(|input| Proposal::of(&input.profile));
    let ours = proposals.fold(Proposal::default(), Proposal::combine);
    let by_samples = local.iter().any(|input| input.profile.series.is_some());
    let ours = (ours, lowest(local), by_samples);
    let all = reduce(comm, ours, |(ours, low, some), (theirs, other, others)| {
        (ours.combine(theirs), lower(low, other), some || others)
    });
    let conclude = |(all, lowest, by_samples): (Proposal, Lowest, bool)| Agreement {
        agreed: all.conclude(job.rules.clone()),
        lowest,
        by_samples,
        divided_at: all.last_common().filter(|_| job.is_broken_off()),
    };
    broadcast(comm, all.map(|all| all.map(conclude)))
}

#[cfg(test)]
mod tests;
