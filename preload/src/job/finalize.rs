//! Regular end: MPI_Finalize, which brings the ranks together for one report.

use std::cell::Cell;
use std::time::Instant;

use plimsoll_agent::observed_process::{self, Observed};
use plimsoll_analysis::diagnose::diagnose_into;
use plimsoll_analysis::input::{FINALIZED, JobInfo};
use plimsoll_analysis::per_rank::Table;
use plimsoll_analysis::spooled::Kept;
use plimsoll_comm::communicator::{Alone, Communicator};
use plimsoll_comm::mpi::joint::{PANIC, jointly};
use plimsoll_report::output::Side;
use plimsoll_summary::printable;
use plimsoll_sys::memory_kind::{MemoryKind, count_as};

use super::conclude::Concluding;
use super::withdrawal::withdrawn;
use super::{Job, Phase, State, Taken, Together, get};
use crate::guard::{self, guarded};
use crate::write_report::{self, Scope};
use crate::{idle_code, loading, log, own_threads, termination};

/// Gathers the profiles, diagnoses them and writes the report, when MPI_Finalize is entered.
/// `measured` runs a wait as a measured call.
pub fn finalize(measured: impl FnOnce(&mut dyn FnMut())) {
    if let Some(job) = withdrawn() {
        return guarded("MPI_Finalize", || job.finalize_withdrawn(), || ());
    }
    let (Some(job), Some(observed)) = (get(), observed_process::current()) else { return };
    if guarded("memory", || job.withdraws_for_memory(), || false) {
        return guarded("MPI_Finalize", || job.finalize_withdrawn(), || ());
    }
    let Some(Leaving { together, rank, size, speaks, by_session }) = job.leave() else { return };
    if by_session {
        // The handle facts refer to a communicator of Plimsoll, which is freed below.
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
        // The report of this node was written when one of its ranks ended.
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
                let Some((taken, mut info, concluding)) = job.take(FINALIZED, size == 1) else {
                    return;
                };
                own_threads::on_own_stack(move || {
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
        let helper = {
            let mut state = job.state.lock();
            if state.phase == Phase::Collecting && !termination::is_requested() {
                // A step of Plimsoll failed, and no thread will evaluate the profiles.
                state.phase = Phase::Done;
                termination::finished();
            }
            state.helper.take()
        };
        loading::wake();
        if let Some(helper) = helper {
            // If another end came first, the joined thread is still writing its report.
            own_threads::join(helper);
        }
        job.stop_collector();
    };
    guarded("end of MPI_Finalize", end_threads, || ());
}

/// Waits for all ranks, as a measured call. Returns `false` if a rank of this node has ended, so
/// that it will not arrive.
fn all_come(
    together: &Together,
    observed: &Observed,
    measured: impl FnOnce(&mut dyn FnMut()),
) -> bool {
    // `None` before the wait. The other ranks wait for this one, so the wait is repeated below if
    // the measured call fails.
    let came = Cell::new(None);
    let mut wait = || {
        let mut nobody_ended = || {
            // This order matters: the collector announces that the ranks live on before it
            // announces the report.
            let reported = termination::is_requested() || observed.is_reported();
            !reported || termination::forbidden().is_some() || observed.is_outlived()
        };
        let all = together.world.wait_for_all(&mut nobody_ended);
        came.set(Some(all.unwrap_or_else(|error| {
            log::debug(|| format!("waiting for the other ranks failed: {error}"));
            true
        })));
    };
    guarded("MPI_Finalize", || measured(&mut wait), || ());
    if came.get().is_none() {
        wait();
    }
    came.get().unwrap_or(true)
}

/// State that a process takes into MPI_Finalize.
pub(super) struct Leaving {
    pub(super) together: Option<Together>,
    rank: u32,
    size: u32,
    speaks: bool,
    by_session: bool,
}

/// Runs [`finalize`] when MPI_Session_finalize is entered, if MPI began with a session. The
/// standard allows MPI_Session_finalize to wait for the other ranks, as MPI_Finalize does (MPI-4.1,
/// 11.3.1).
pub fn finalize_session(measured: impl FnOnce(&mut dyn FnMut())) {
    let by_session = |state: &State| state.mpi.as_ref().is_some_and(|side| side.by_session);
    if get().or_else(withdrawn).is_some_and(|job| by_session(&job.state.lock())) {
        finalize(measured);
    }
}

impl Job {
    /// Takes the state of MPI at the end of the run; `None` if nothing remains to be evaluated.
    pub(super) fn leave(&self) -> Option<Leaving> {
        let mut state = self.state.lock();
        let is_open = state.phase == Phase::Collecting;
        let side = state.mpi.as_mut().filter(|side| !side.by_session || side.is_together)?;
        // The other ranks wait for a rank that is together with them, even if its report is already
        // written.
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
            log::warn(&format!("the ranks of this node did not come together: {error}"));
        }
        if !together.holds {
            drop(self.take(FINALIZED, true));
            return;
        }
        self.exchange_clocks(&together.holders, together.holds);
        let taken = guarded("evaluation", || self.take(FINALIZED, true), || None);
        let done = if together.holders.size() > 1 {
            // Runs even without profiles, if another end came first: the other ranks wait for this
            // process.
            let work = || self.conclude_over(&together.holders, taken, entered, size);
            jointly(&together.holders, &[], work)
        } else if taken.is_some() {
            // No communication is needed, so the evaluation runs on a thread of Plimsoll: a signal
            // that stops the application's thread does not stop it.
            let work = move || self.conclude_over(&Alone, taken, entered, size);
            own_threads::on_own_stack(work).unwrap_or_else(|| Err(PANIC.to_owned()))
        } else {
            Ok(())
        };
        if let (Err(reason), 0) = (done, together.holders.rank()) {
            self.say_no_summary(&reason);
        }
    }

    /// Prints why there is no report, and names the spool that remains.
    fn say_no_summary(&self, reason: &str) {
        let kept = self.spool_folder().filter(|folder| folder.exists()).map(|folder| {
            format!(". `plimsoll digest {}` may still make one", printable::path(&folder))
        });
        log::warn(&format!("no summary: {reason}{}", kept.unwrap_or_default()));
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
            None => (Taken::default(), self.info(&self.state.lock(), FINALIZED, false), None),
        };
        self.agree_on_structure(holders).map_err(|error| error.to_string())?;
        let (inputs, spool) = self.profiles(&taken, &mut info);
        let collected = inputs.len();
        // The collector is not used any more, and the diagnosis needs other code.
        idle_code::unmap();
        // The table of single ranks is a file beside the JSON, which names it for scripts.
        let mut side = self.settings.formats.json.then(|| Side::new(self.target(size, None)));
        let table = side.as_mut().map(|side| side as &mut dyn Table);
        let summary =
            count_as(MemoryKind::Analysis, || diagnose_into(holders, inputs, &info, table));
        let kept = summary.map_err(|error| error.to_string())?.and_then(|mut summary| {
            summary.collection.finalize_s = Some(entered.elapsed().as_secs_f64());
            self.add_memory(&mut summary.collection, collected);
            let scope = Scope { ranks: size, part: None, speak: true };
            let kept = Kept::of(self.settings.trace, &summary);
            let is_written = write_report::write(self, summary, side, &scope);
            // Without a report, all samples stay on disk, since nothing else remains of the run.
            kept.filter(|_| is_written)
        });
        self.thin_spool(holders, kept, spool);
        Ok(())
    }
}
