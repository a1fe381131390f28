//! The end: what was measured becomes a summary, over the job's MPI or alone.

use std::cell::Cell;
use std::path::{Path, PathBuf};
use std::time::Instant;

use plimsoll_agent::process::{self, Observed};
use plimsoll_analysis::communicator::{Alone, Communicator};
use plimsoll_analysis::diagnose::{diagnose_alone, diagnose_into};
use plimsoll_analysis::input::{Cost, FirstDeath, JobInfo, MIN_OUTLIVED_NS, RankInput};
use plimsoll_analysis::mpi::joint::{PANIC, jointly};
use plimsoll_analysis::mpi::{Abi, is_linked_in, launch};
use plimsoll_analysis::output::Side;
use plimsoll_analysis::per_rank::Table;
use plimsoll_analysis::printable;
use plimsoll_analysis::settings::LABELS;
use plimsoll_analysis::spooled::telling;
use plimsoll_analysis::summary::{Mpi, MpiAbi};
use plimsoll_collector::{Death, SpoolOutcome};

use super::{Job, Phase, State, Taken, Together, get};
use crate::guard::{self, guarded};
use crate::report::{self, Scope};
use crate::{ending, loading, say, threads};

/// MPI_Finalize was entered: gathers, diagnoses, writes. `measured` runs a wait as a measured call.
pub fn finalize(measured: impl FnOnce(&mut dyn FnMut())) {
    let (Some(job), Some(observed)) = (get(), process::current()) else { return };
    let Some(Leaving { together, rank, size, speaks, by_session }) = job.leave() else { return };
    if by_session {
        // They rest on a communicator of ours, which is freed below.
        super::forget_handles();
    }
    let entered = Instant::now();
    let came = together.as_ref().is_none_or(|together| all_come(together, observed, measured));
    let end = || {
        observed.end(together.is_some());
        observed.stop();
    };
    guarded("end of the run", end, || ());
    match together {
        // Their part of the report is written where a rank of the node has ended.
        Some(_) if !came => {}
        Some(together) => {
            job.conclude(&together, entered, size);
            for communicator in [together.holders, together.node, together.world] {
                communicator.free();
            }
        }
        None => {
            let report = || {
                job.own_rules();
                let Some((taken, mut info, concluding)) = job.take("finalize", size == 1) else {
                    return;
                };
                threads::on_own_stack(move || {
                    let (inputs, _) = job.profiles(&taken, &mut info);
                    let part = format!("rank{rank}");
                    job.write_alone(inputs, &info, entered, size, Some(&part), speaks);
                    drop(concluding);
                });
            };
            guarded("report", report, || ());
        }
    }
    let end_threads = || {
        let house = {
            let mut state = job.state.lock();
            if state.phase == Phase::Collecting && !ending::is_requested() {
                // Something of ours failed, and nobody will evaluate anything.
                state.phase = Phase::Done;
                ending::finished();
            }
            state.keeping_house.take()
        };
        loading::wake();
        if let Some(house) = house {
            // Where another end came first, that thread still writes its report.
            threads::join(house);
        }
        job.stop_collector();
    };
    guarded("end of MPI_Finalize", end_threads, || ());
}

/// Waits for all ranks, as a measured call. `false` if one of this node's has ended, so that it will
/// not come.
fn all_come(
    together: &Together,
    observed: &Observed,
    measured: impl FnOnce(&mut dyn FnMut()),
) -> bool {
    // None before the wait: the others wait for this rank, whatever fails here.
    let came = Cell::new(None);
    let mut wait = || {
        let mut nobody_ended = || !ending::is_requested() && !observed.is_reported();
        let all = together.world.wait_for_all(&mut nobody_ended);
        came.set(Some(all.unwrap_or_else(|error| {
            say::debug(|| format!("waiting for the other ranks failed: {error}"));
            true
        })));
    };
    guarded("MPI_Finalize", || measured(&mut wait), || ());
    if came.get().is_none() {
        wait();
    }
    came.get().unwrap_or(true)
}

/// Held by the thread that evaluates the profiles. The drop lets the ranks that wait for the report
/// end: the report is written, or cannot be.
struct Concluding {
    job: &'static Job,
}

impl Drop for Concluding {
    fn drop(&mut self) {
        self.job.collector.acknowledge();
        self.job.state.lock().phase = Phase::Done;
        ending::finished();
    }
}

/// What a process takes along into MPI_Finalize.
struct Leaving {
    together: Option<Together>,
    rank: u32,
    size: u32,
    speaks: bool,
    by_session: bool,
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
    /// The run ends for this process; `None` if there is nothing to be concluded.
    fn leave(&self) -> Option<Leaving> {
        let mut state = self.state.lock();
        let is_open = state.phase == Phase::Collecting;
        let side = state.mpi.as_mut().filter(|side| !side.by_session || side.is_together)?;
        // Others wait for a rank that has come together with them, whatever became of its report.
        (is_open || side.together.is_some()).then(|| Leaving {
            together: side.together.take(),
            rank: side.rank,
            size: side.size,
            speaks: side.speaks,
            by_session: side.by_session,
        })
    }

    /// Takes what there is to be evaluated; `None` if another thread has.
    fn take(&'static self, ended: &str, complete: bool) -> Option<(Taken, JobInfo, Concluding)> {
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
            complete,
            incomplete: None,
            ended: ended.to_owned(),
            death: None,
            settings,
            rules,
            notes: state.mpi.iter().filter_map(|side| side.apart.clone()).collect(),
        }
    }

    /// The profiles of the ranks that this process collects, and that ended as `info` says. Their
    /// spool ends with them: where it is, if it is whole.
    fn profiles(&self, taken: &Taken, info: &mut JobInfo) -> (Vec<RankInput>, Option<PathBuf>) {
        self.stop_collector();
        let ranks = &taken.ranks;
        let memory_bytes = self.collector.memory_bytes() / ranks.len().max(1) as u64;
        let mut inputs = Vec::new();
        // The application's own thread may have little of its stack left.
        threads::on_own_stack(|| self.collector.conclude(ending::advance));
        for (key, rank) in ranks {
            ending::advance();
            self.collector.advance();
            let finish = || self.collector.finish(*key);
            let Some(profile) = threads::on_own_stack(finish).flatten() else {
                let reason = format!(
                    "The samples of rank {} could not be evaluated, so it is not in this report.",
                    rank.rank
                );
                say::warn(&reason);
                info.notes.push(reason);
                continue;
            };
            inputs.push(RankInput {
                rank: rank.rank,
                host: self.host.clone(),
                cores: rank.cores.clone(),
                clock: Self::clock_of(&taken.exchanges, rank),
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
        self.note(info, taken, |rank| cost(rank.rank).unwrap_or_default());
        let mut spool = None;
        if let (Some(outcome), Some(host)) = (self.collector.end_spool(), inputs.first_mut()) {
            host.cost.spool_bytes = outcome.bytes;
            host.spool_trouble = trouble(&outcome);
            spool = outcome.path.filter(|_| outcome.trouble.is_none());
        }
        self.forget_empty_folder();
        ending::advance();
        self.collector.advance();
        (inputs, spool)
    }

    /// Ends the run of all ranks that this process collects with the first death among them.
    fn end_at_first_death(&self, taken: &Taken) -> Option<FirstDeath> {
        let Death { key, at_ns, outlived_ns } = self.collector.end_at_first_death()?;
        let (_, rank) = taken.ranks.iter().find(|(of, _)| *of == key)?;
        (outlived_ns > MIN_OUTLIVED_NS).then_some(FirstDeath { rank: rank.rank, at_ns })
    }

    fn conclude(&'static self, together: &Together, entered: Instant, size: u32) {
        if let Err(error) = together.node.barrier() {
            say::warn(&format!("the ranks of this node did not come together: {error}"));
        }
        if !together.holds {
            drop(self.take("finalize", true));
            return;
        }
        self.exchange_clocks(&together.holders, together.holds);
        let taken = guarded("evaluation", || self.take("finalize", true), || None);
        let done = if together.holders.size() > 1 {
            // Also with nothing, where another end came first: the others wait for this process.
            let work = || self.conclude_over(&together.holders, taken, entered, size);
            jointly(&together.holders, &[], work)
        } else if taken.is_some() {
            // Nobody is to be talked to: a signal that stops the application's thread, to end it,
            // does not stop this one.
            let work = move || self.conclude_over(&Alone, taken, entered, size);
            threads::on_own_stack(work).unwrap_or_else(|| Err(PANIC.to_owned()))
        } else {
            Ok(())
        };
        if let (Err(reason), 0) = (done, together.holders.rank()) {
            self.say_no_summary(&reason);
        }
    }

    /// Says why there is no report, and what there is instead.
    fn say_no_summary(&self, reason: &str) {
        let kept = self.spool_folder().filter(|folder| folder.exists()).map(|folder| {
            format!(". `plimsoll digest {}` may still make one", printable::path(&folder))
        });
        say::warn(&format!("no summary: {reason}{}", kept.unwrap_or_default()));
    }

    fn conclude_over(
        &self,
        holders: &dyn Communicator,
        taken: Option<(Taken, JobInfo, Concluding)>,
        entered: Instant,
        size: u32,
    ) -> Result<(), String> {
        guard::raise("reduction");
        let (taken, mut info, _concluding) = match taken {
            Some((taken, info, concluding)) => (taken, info, Some(concluding)),
            None => (Taken::default(), self.info(&self.state.lock(), "finalize", false), None),
        };
        let (inputs, spool) = self.profiles(&taken, &mut info);
        // Scripts that read the values of single ranks find them by the JSON.
        let mut side = self.settings.formats.json.then(|| Side::new(self.target(size, None)));
        let table = side.as_mut().map(|side| side as &mut dyn Table);
        let summary = diagnose_into(holders, inputs, &info, table);
        let told = summary.map_err(|error| error.to_string())?.and_then(|mut summary| {
            summary.collection.finalize_s = Some(entered.elapsed().as_secs_f64());
            ending::advance();
            let scope = Scope { ranks: size, part: None, speak: true };
            let some = Some(telling(&summary)).filter(|some| some.len() < summary.run.ranks);
            let is_written = report::write(self, summary, side, &scope);
            // Without a report, samples are all there is of the run.
            some.filter(|_| is_written)
        });
        self.thin_spool(holders, told, spool);
        Ok(())
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
/// own thread. `false` if another thread is writing the report of a regular end.
pub fn write_incomplete(ended: &str) -> bool {
    let Some(job) = get() else { return true };
    let entered = Instant::now();
    job.own_rules();
    let Some((taken, mut info, _concluding)) = job.take(ended, false) else { return false };
    job.stop_collector();
    if taken.ranks.is_empty() {
        return true;
    }
    let place = Place::of(&job.state.lock());
    if let Some(reason) = &place.complaint {
        say::warn(reason);
    }
    let unseen = place.world.is_none().then(|| why_unseen(&job.executable)).flatten();
    // An exit is the regular end of what is not begun by MPI_Init.
    info.complete = place.is_alone && unseen.is_none() && ended == "exit";
    let told_rank = launch::told_rank();
    if let Some(reason) = unseen {
        if told_rank.is_none_or(|rank| rank == 0) {
            say::warn(&reason);
        }
        info.notes.push(reason);
    }
    info.death = job.end_at_first_death(&taken);
    let (inputs, _) = job.profiles(&taken, &mut info);
    if inputs.is_empty() {
        return true;
    }
    let (size, part, speaks) = match place.world {
        // Processes that a launcher started together, and that are nothing to each other for us.
        None => {
            (1, told_rank.map(|rank| format!("rank{rank}")), told_rank.is_none_or(|rank| rank == 0))
        }
        Some((rank, size)) if inputs.len() == size as usize => (size, None, rank == 0),
        Some((rank, size)) => (size, Some(format!("rank{rank}")), place.speaks),
    };
    if let (Some(folder), true) = (job.spool_folder(), inputs.len() < size as usize) {
        let folder = folder.display();
        info.notes.push(format!("`plimsoll digest {folder}` joins what all nodes have written."));
    }
    job.write_alone(inputs, &info, entered, size, part.as_deref(), speaks);
    true
}

/// Where in a job this process is.
struct Place {
    /// Rank and size, once MPI is known.
    world: Option<(u32, u32)>,
    speaks: bool,
    /// It is nobody's rank but its own.
    is_alone: bool,
    /// What keeps the ranks of a session apart, for the one that says so.
    complaint: Option<String>,
}

impl Place {
    fn of(state: &State) -> Self {
        let Some(side) = &state.mpi else {
            return Self { world: None, speaks: false, is_alone: true, complaint: None };
        };
        Self {
            world: Some((side.rank, side.size)),
            speaks: side.speaks,
            is_alone: side.by_session && side.size == 1,
            complaint: side.apart.clone().filter(|_| side.by_session && side.speaks),
        }
    }
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
    is_linked_in(Path::new(executable)).then(|| {
        String::from(
            "MPI is linked statically into this program, where it cannot be watched: each process \
             writes a report of its own. Link the shared library to have ranks compared.",
        )
    })
}
