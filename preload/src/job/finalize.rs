//! The regular end: MPI_Finalize, which brings the ranks together for one report.

use std::cell::Cell;
use std::time::Instant;

use plimsoll_agent::process::{self, Observed};
use plimsoll_analysis::diagnose::diagnose_into;
use plimsoll_analysis::input::JobInfo;
use plimsoll_analysis::per_rank::Table;
use plimsoll_analysis::spooled::telling;
use plimsoll_comm::communicator::{Alone, Communicator};
use plimsoll_comm::mpi::joint::{PANIC, jointly};
use plimsoll_report::output::Side;
use plimsoll_summary::printable;
use plimsoll_sys::memory_kind::{MemoryKind, count_as};

use super::conclude::Concluding;
use super::withdrawal::withdrawn;
use super::{Job, Phase, State, Taken, Together, get};
use crate::guard::{self, guarded};
use crate::report::{self, Scope};
use crate::{ending, loading, say, threads};

/// MPI_Finalize was entered: gathers, diagnoses, writes. `measured` runs a wait as a measured call.
pub fn finalize(measured: impl FnOnce(&mut dyn FnMut())) {
    if let Some(job) = withdrawn() {
        return guarded("MPI_Finalize", || job.finalize_withdrawn(), || ());
    }
    let (Some(job), Some(observed)) = (get(), process::current()) else { return };
    if guarded("memory", || job.withdraws_for_memory(), || false) {
        return guarded("MPI_Finalize", || job.finalize_withdrawn(), || ());
    }
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
        let mut nobody_ended = || {
            // In this order: that all live on is said before it is said that there is a report.
            let reported = ending::is_requested() || observed.is_reported();
            !reported || ending::is_by_filter() || observed.is_outlived()
        };
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

/// What a process takes along into MPI_Finalize.
pub(super) struct Leaving {
    pub(super) together: Option<Together>,
    rank: u32,
    size: u32,
    speaks: bool,
    by_session: bool,
}

/// MPI_Session_finalize was entered: as [`finalize`], if the session has brought the ranks together.
/// The standard lets it wait for the others, as MPI_Finalize does (MPI-4.1, 11.3.1).
pub fn finalize_session(measured: impl FnOnce(&mut dyn FnMut())) {
    let by_session = |state: &State| state.mpi.as_ref().is_some_and(|side| side.by_session);
    if get().or_else(withdrawn).is_some_and(|job| by_session(&job.state.lock())) {
        finalize(measured);
    }
}

impl Job {
    /// The run ends for this process; `None` if there is nothing to be concluded.
    pub(super) fn leave(&self) -> Option<Leaving> {
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
        let collected = inputs.len();
        // Scripts that read the values of single ranks find them by the JSON.
        let mut side = self.settings.formats.json.then(|| Side::new(self.target(size, None)));
        let table = side.as_mut().map(|side| side as &mut dyn Table);
        let summary =
            count_as(MemoryKind::Analysis, || diagnose_into(holders, inputs, &info, table));
        let told = summary.map_err(|error| error.to_string())?.and_then(|mut summary| {
            summary.collection.finalize_s = Some(entered.elapsed().as_secs_f64());
            self.add_memory(&mut summary.collection, collected);
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
}
