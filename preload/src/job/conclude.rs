//! The end: what was measured becomes a summary, over the job's MPI or alone.

use std::fs::File;
use std::path::{Path, PathBuf};
use std::time::Instant;

use plimsoll_agent::{descriptors, process};
use plimsoll_analysis::diagnose::{diagnose_alone, diagnose_into};
use plimsoll_analysis::input::{Cost, JobInfo, RankInput};
use plimsoll_analysis::mpi::{Abi, is_linked_in};
use plimsoll_analysis::output::Side;
use plimsoll_analysis::per_rank::Table;
use plimsoll_analysis::settings::LABELS;
use plimsoll_analysis::spooled::telling;
use plimsoll_analysis::summary::{Mpi, MpiAbi};
use plimsoll_collector::SpoolOutcome;

use super::start::exchange_clocks;
use super::{Job, MpiSide, State, Together, get};
use crate::report::{self, Scope};
use crate::{ending, loading, say, surroundings, threads};

/// MPI_Finalize was entered: gathers, diagnoses, writes. `measured` runs a wait as a measured call.
pub fn finalize(measured: impl FnOnce(&mut dyn FnMut())) {
    let (Some(job), Some(observed)) = (get(), process::current()) else { return };
    let mut guard = job.state.lock();
    let state = &mut *guard;
    let together = |side: &MpiSide| !side.by_session || side.together.is_some();
    let Some(side) = state.mpi.as_mut().filter(|side| together(side) && !state.done) else {
        return;
    };
    if side.by_session {
        // They rest on a communicator of ours, which is freed below.
        super::forget_handles();
    }
    let entered = Instant::now();
    let together = side.together.take();
    let (rank, size, speaks) = (side.rank, side.size, side.speaks);
    if let Some(together) = &together {
        measured(&mut || {
            if let Err(error) = together.world.barrier() {
                say::debug(|| format!("waiting for the other ranks failed: {error}"));
            }
        });
    }
    observed.end(together.is_some());
    observed.stop();
    match together {
        Some(together) => {
            job.conclude(state, &together, entered, size);
            for communicator in [together.holders, together.node, together.world] {
                communicator.free();
            }
        }
        None => {
            job.own_rules();
            let info = job.info(state, "finalize", size == 1);
            let (inputs, _) = job.profiles(state, &info);
            job.write_alone(inputs, &info, entered, size, Some(&format!("rank{rank}")), speaks);
        }
    }
    state.done = true;
    job.stop_collector(state);
    job.collector.acknowledge();
    let house = state.keeping_house.take();
    drop(guard);
    ending::finished();
    loading::wake();
    if let Some(house) = house {
        threads::join(house);
    }
}

/// MPI_Session_finalize was entered: as [`finalize`], if the session has brought the ranks together.
/// The standard lets it wait for the others, as MPI_Finalize does (MPI-4.1, 11.3.1).
pub fn finalize_session(measured: impl FnOnce(&mut dyn FnMut())) {
    let by_session = |state: &State| state.mpi.as_ref().is_some_and(|side| side.by_session);
    if get().is_some_and(|job| by_session(&job.state.lock())) {
        finalize(measured);
    }
}

impl Job {
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
            complete,
            ended: ended.to_owned(),
            settings,
            rules,
            notes: state.mpi.iter().filter_map(|side| side.apart.clone()).collect(),
        }
    }

    /// The profiles of the ranks that this process collects, whose run ended as `info` says. Their
    /// spool ends with them: where it is, if it is whole.
    fn profiles(&self, state: &mut State, info: &JobInfo) -> (Vec<RankInput>, Option<PathBuf>) {
        let ranks = std::mem::take(&mut state.ranks);
        let memory_bytes = self.collector.memory_bytes() / ranks.len().max(1) as u64;
        let mut inputs = Vec::new();
        for (key, rank) in &ranks {
            // The application's own thread may have little of its stack left.
            let finish = || self.collector.finish(*key);
            let Some(profile) = threads::on_own_stack(finish).flatten() else { continue };
            inputs.push(RankInput {
                rank: rank.rank,
                host: self.host.clone(),
                cores: rank.cores.clone(),
                clock: Self::clock_of(state, rank),
                profile,
                cost: Cost { memory_bytes: Some(memory_bytes), ..Cost::default() },
                spool_trouble: None,
            });
        }
        if let Some(host) = inputs.first_mut() {
            host.cost.collector_cpu_ns = self.collector.cpu_ns();
            host.cost.structure_cpu_ns = self.collector.structure_cpu_ns();
        }
        let cost = |rank: u32| inputs.iter().find(|input| input.rank == rank).map(|i| i.cost);
        self.note(info, state, &ranks, |rank| cost(rank.rank).unwrap_or_default());
        let mut spool = None;
        if let (Some(outcome), Some(host)) = (self.collector.end_spool(), inputs.first_mut()) {
            host.cost.spool_bytes = outcome.bytes;
            host.spool_trouble = trouble(&outcome);
            spool = outcome.path.filter(|_| outcome.trouble.is_none());
        }
        self.forget_empty_folder();
        (inputs, spool)
    }

    fn conclude(&self, state: &mut State, together: &Together, entered: Instant, size: u32) {
        if let Err(error) = together.node.barrier() {
            say::warn(&format!("the ranks of this node did not come together: {error}"));
        }
        if !together.holds {
            return;
        }
        exchange_clocks(&together.holders, together.holds, state);
        let info = self.info(state, "finalize", true);
        let (inputs, spool) = self.profiles(state, &info);
        let mut told = None;
        // Scripts that read the values of single ranks find them by the JSON.
        let mut side = self.settings.formats.json.then(|| Side::new(self.target(size, None)));
        let table = side.as_mut().map(|side| side as &mut dyn Table);
        match diagnose_into(&together.holders, inputs, &info, table) {
            Ok(Some(mut summary)) => {
                summary.collection.finalize_s = Some(entered.elapsed().as_secs_f64());
                let scope = Scope { ranks: size, part: None, speak: true };
                let some = Some(telling(&summary)).filter(|some| some.len() < summary.run.ranks);
                let is_written = report::write(self, summary, side, &scope);
                // Without a report, samples are all there is of the run.
                told = some.filter(|_| is_written);
            }
            Ok(None) => {}
            Err(error) => say::warn(&format!("no summary: {error}")),
        }
        self.thin_spool(&together.holders, told, spool);
    }

    fn write_alone(
        &self,
        inputs: Vec<RankInput>,
        info: &JobInfo,
        entered: Instant,
        size: u32,
        part: Option<&str>,
        speaks: bool,
    ) {
        match diagnose_alone(inputs, info) {
            Ok(mut summary) => {
                summary.collection.finalize_s = Some(entered.elapsed().as_secs_f64());
                let scope = Scope { ranks: size, part, speak: speaks };
                report::write(self, summary, None, &scope);
            }
            Err(error) if speaks => say::warn(&format!("no summary: {error}")),
            Err(_) => {}
        }
    }
}

/// The process ends without MPI_Finalize: writes what this process holds. Runs on the process's
/// own thread.
pub fn write_incomplete(ended: &str) {
    let Some(job) = get() else { return };
    let entered = Instant::now();
    let mut guard = job.state.lock();
    let state = &mut *guard;
    if state.done {
        return;
    }
    state.done = true;
    job.stop_collector(state);
    if state.ranks.is_empty() {
        return;
    }
    let by_session = state.mpi.as_ref().filter(|side| side.by_session);
    if let Some(MpiSide { speaks: true, apart: Some(reason), .. }) = by_session {
        say::warn(reason);
    }
    let unseen = state.mpi.is_none().then(|| why_unseen(&job.executable)).flatten();
    // An exit is the regular end of what is not begun by MPI_Init.
    let alone = by_session.map_or(state.mpi.is_none(), |side| side.size == 1);
    let regular = alone && unseen.is_none() && ended == "exit";
    job.own_rules();
    let mut info = job.info(state, ended, regular);
    let told_rank = surroundings::rank_told_by_launcher();
    if let Some(reason) = unseen {
        if told_rank.is_none_or(|rank| rank == 0) {
            say::warn(&reason);
        }
        info.notes.push(reason);
    }
    let (inputs, _) = job.profiles(state, &info);
    if inputs.is_empty() {
        return;
    }
    let (size, part, speaks) = match &state.mpi {
        // Processes that a launcher started together, and that are nothing to each other for us.
        None => {
            (1, told_rank.map(|rank| format!("rank{rank}")), told_rank.is_none_or(|rank| rank == 0))
        }
        Some(side) if inputs.len() == side.size as usize => (side.size, None, side.rank == 0),
        Some(side) => (side.size, Some(format!("rank{}", side.rank)), side.speaks),
    };
    if let (Some(folder), true) = (job.spool_folder(), inputs.len() < size as usize) {
        let folder = folder.display();
        info.notes.push(format!("`plimsoll digest {folder}` joins what all nodes have written."));
    }
    job.write_alone(inputs, &info, entered, size, part.as_deref(), speaks);
    job.collector.acknowledge();
}

/// What a spool does not hold, as the end of a sentence.
fn trouble(outcome: &SpoolOutcome) -> Option<String> {
    let SpoolOutcome { halvings, lost, trouble, .. } = outcome;
    match trouble {
        Some(trouble) => Some(format!("{trouble} ({lost} records are not in it)")),
        None if *halvings > 0 => Some(format!(
            "to stay within its bound it keeps one in {} of the later samples; raise \
             PLIMSOLL_MEMORY or lengthen PLIMSOLL_PERIOD",
            1u64 << (*halvings).min(63)
        )),
        None => None,
    }
}

/// Why no MPI was seen in a process that has one.
fn why_unseen(executable: &str) -> Option<String> {
    let hide = |file: File| File::from(descriptors::hide(file.into()));
    is_linked_in(Path::new(executable), hide).then(|| {
        String::from(
            "MPI is linked statically into this program, where it cannot be watched: each process \
             writes a report of its own. Link the shared library to have ranks compared.",
        )
    })
}
