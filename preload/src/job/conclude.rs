//! Evaluation of the profiles: from the ranks that this process collects to the summary, for every
//! kind of end.

use std::path::PathBuf;
use std::time::Instant;

use plimsoll_analysis::diagnose::diagnose_alone;
use plimsoll_analysis::input::{Cost, JobInfo, RankInput};
use plimsoll_collector::SpoolOutcome;
use plimsoll_comm::communicator::{Communicator, CommunicatorError, broadcast, reduce};
use plimsoll_comm::mpi::Abi;
use plimsoll_summary::settings::LABELS;
use plimsoll_summary::{Mpi, MpiAbi};
use plimsoll_sys::memory_kind::{MemoryKind, count_as};

use super::{Job, Phase, State, Taken, memory_report};
use crate::write_report::{self, Scope};
use crate::{log, own_threads, termination};

/// Guard of the thread that evaluates the profiles. Its drop lets the ranks that wait for the
/// report end: the report is written, or cannot be written.
pub(super) struct Concluding {
    job: &'static Job,
}

impl Drop for Concluding {
    fn drop(&mut self) {
        self.job.collector.acknowledge();
        self.job.state.lock().phase = Phase::Done;
        termination::finished();
    }
}

impl Job {
    /// Takes the ranks to be evaluated; `None` if another thread has taken them.
    pub(super) fn take(
        &'static self,
        ended: &str,
        complete: bool,
    ) -> Option<(Taken, JobInfo, Concluding)> {
        let mut state = self.state.lock();
        let taken = state.take()?;
        let info = self.info(&state, ended, complete);
        drop(state);
        Some((taken, info, Concluding { job: self }))
    }

    pub(super) fn info(&self, state: &State, ended: &str, complete: bool) -> JobInfo {
        let mpi = match &state.mpi {
            Some(side) => Mpi {
                library: Some(side.library.version.clone()),
                abi: match side.library.abi {
                    Abi::Mpich => MpiAbi::Mpich,
                    Abi::OpenMpi => MpiAbi::OpenMpi,
                    Abi::Standard => MpiAbi::Standard,
                },
            },
            None => Mpi { library: None, abi: MpiAbi::None },
        };
        let rules = self.rules();
        let mut settings = self.settings.in_effect();
        if rules.is_empty() {
            settings.remove(LABELS);
        }
        JobInfo {
            executable: self.executable.clone(),
            arguments: self.arguments.clone(),
            job: Some(self.id.clone()),
            started: self.started.rfc3339(),
            mpi,
            world_ranks: state.mpi.as_ref().map(|side| side.size),
            complete,
            incomplete: None,
            ended: ended.to_owned(),
            death: None,
            settings,
            rules,
            population: None,
            notes: state.mpi.iter().filter_map(|side| side.apart.clone()).collect(),
        }
    }

    /// Begins the report: collects what is left and names it, as far as the deadline allows. Later
    /// calls do nothing.
    fn collect_rest(&self) {
        self.stop_collector();
        termination::begin_report();
        self.collector.begin_report();
        // The stack of the application's thread may be nearly used up.
        own_threads::on_own_stack(|| self.collector.conclude());
    }

    /// Drops the structure of functions for which a collector of the job lacked the time: equal
    /// contexts then are equal on all nodes. Collective over `holders`.
    pub(super) fn agree_on_structure(
        &self,
        holders: &dyn Communicator,
    ) -> Result<(), CommunicatorError> {
        self.collect_rest();
        if holders.size() > 1 {
            let given_up = reduce(holders, self.collector.given_up(), |mut ours, theirs| {
                ours.extend(theirs);
                ours
            });
            self.collector.give_up(&broadcast(holders, given_up)?);
        }
        Ok(())
    }

    /// Returns the profiles of the ranks that this process collects; their end is described by
    /// `info`. Ends the spool as well; returns its path if the spool is complete.
    pub(super) fn profiles(
        &self,
        taken: &Taken,
        info: &mut JobInfo,
    ) -> (Vec<RankInput>, Option<PathBuf>) {
        self.collect_rest();
        let ranks = &taken.ranks;
        let mut inputs = Vec::new();
        for (key, rank) in ranks {
            let finish = || self.collector.finish(*key);
            let Some(profile) = own_threads::on_own_stack(finish).flatten() else {
                let reason = format!(
                    "The samples of rank {} could not be evaluated, so it is not in this report.",
                    rank.rank
                );
                log::warn(&reason);
                info.notes.push(reason);
                continue;
            };
            inputs.push(RankInput {
                rank: rank.rank,
                host: self.host.clone(),
                cores: rank.cores.clone(),
                clock: Self::clock_of(&taken.exchanges, rank),
                profile,
                cost: Cost::default(),
                spool_trouble: None,
            });
        }
        let memory = self.memory(inputs.len().max(1));
        inputs.iter_mut().for_each(|input| input.cost = memory_report::of_each(memory));
        if let Some(host) = inputs.first_mut() {
            host.cost.memory = Some(memory);
            host.cost.collector_cpu_ns = self.collector.cpu_ns();
            host.cost.structure_cpu_ns = self.collector.structure_cpu_ns();
        }
        let cost = |rank: u32| inputs.iter().find(|input| input.rank == rank).map(|i| i.cost);
        self.note(info, taken, |rank| cost(rank.rank).unwrap_or_default());
        let mut spool = None;
        if let (Some(outcome), Some(host)) = (self.collector.end_spool(), inputs.first_mut()) {
            host.cost.spool_bytes = outcome.bytes;
            host.spool_trouble = trouble(&outcome);
            spool = outcome.path.filter(|_| outcome.trouble.is_none());
        }
        self.forget_empty_folder();
        (inputs, spool)
    }

    pub(super) fn write_alone(
        &self,
        inputs: Vec<RankInput>,
        info: &JobInfo,
        entered: Instant,
        size: u32,
        part: Option<&str>,
        speaks: bool,
    ) {
        let collected = inputs.len();
        match count_as(MemoryKind::Analysis, || diagnose_alone(inputs, info)) {
            Ok(mut summary) => {
                summary.collection.finalize_s = Some(entered.elapsed().as_secs_f64());
                self.add_memory(&mut summary.collection, collected);
                let scope = Scope { ranks: size, part, speak: speaks };
                write_report::write(self, summary, None, &scope);
            }
            Err(error) if speaks => log::warn(&format!("no summary: {error}")),
            Err(_) => {}
        }
    }
}

/// Returns what the spool lacks, as the end of a sentence; `None` if it is complete.
fn trouble(outcome: &SpoolOutcome) -> Option<String> {
    let SpoolOutcome { halvings, lost, trouble, .. } = outcome;
    match trouble {
        // The trouble may be a whole sentence.
        Some(trouble) => {
            let trouble = trouble.trim_end_matches('.');
            Some(format!("{trouble} ({lost} records are not in it)"))
        }
        None if *halvings > 0 => Some(format!(
            "to stay within its bound it keeps one in {} of the later samples; raise \
             PLIMSOLL_MEMORY or lengthen PLIMSOLL_PERIOD",
            1u64 << (*halvings).min(63)
        )),
        None => None,
    }
}
