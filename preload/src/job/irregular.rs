//! Irregular end, without MPI_Finalize: writes the report of the ranks that this process holds.

use std::path::Path;
use std::time::Instant;

use plimsoll_analysis::input::{FirstDeath, MIN_OUTLIVED_NS};
use plimsoll_collector::Death;
use plimsoll_comm::mpi::{is_linked_in, launcher};

use super::{Job, State, Taken, get, withdrawal};
use crate::{heap, log, termination};

/// Writes the report of the ranks that this process holds, when the process ends without
/// MPI_Finalize. Runs on Plimsoll's own thread. Returns `false` if another thread is writing the
/// report of a regular end.
pub fn write_incomplete(ended: &str) -> bool {
    let Some(job) = get() else { return true };
    let entered = Instant::now();
    if job.state.lock().holds() && !heap::has_room() {
        withdrawal::tell_exhausted();
        return true;
    }
    job.own_rules();
    let Some((taken, mut info, _concluding)) = job.take(ended, false) else { return false };
    job.stop_collector();
    if taken.ranks.is_empty() {
        return true;
    }
    if let Some(forbidden) = termination::forbidden() {
        job.collector.outlive();
        log::warn(&format!(
            "the program restricts its {forbidden}, and is measured until here only. \
             To have all of it measured, run it without that restriction."
        ));
    }
    let place = JobPosition::of(&job.state.lock());
    if let Some(reason) = &place.complaint {
        log::warn(reason);
    }
    let unseen = place.world.is_none().then(|| why_unseen(&job.executable)).flatten();
    // A process without MPI_Init ends regularly by an exit.
    info.complete = place.is_alone && unseen.is_none() && ended == "exit";
    let launcher_rank = launcher::launcher_rank().filter(|_| !launcher::is_alone());
    if let Some(reason) = unseen {
        if launcher_rank.is_none_or(|rank| rank == 0) {
            log::warn(&reason);
        }
        info.notes.push(reason);
    }
    info.death = job.end_at_first_death(&taken);
    let (inputs, _) = job.profiles(&taken, &mut info);
    if inputs.is_empty() {
        return true;
    }
    let (size, part, speaks) = match place.world {
        // Processes that a launcher started together, but without an MPI that connects them here.
        None => (
            1,
            launcher_rank.map(|rank| format!("rank{rank}")),
            launcher_rank.is_none_or(|rank| rank == 0),
        ),
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

/// Place of this process in the job.
struct JobPosition {
    /// Rank and number of ranks; `None` until MPI is known.
    world: Option<(u32, u32)>,
    speaks: bool,
    /// Whether the process is the only rank of its job.
    is_alone: bool,
    /// Reason why the ranks of a session are apart; `None` unless this process prints the messages
    /// of the job.
    complaint: Option<String>,
}

impl JobPosition {
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

impl Job {
    /// Ends the run of all collected ranks at the first death among them. Returns that death;
    /// `None` if no rank outlived it by more than [`MIN_OUTLIVED_NS`].
    fn end_at_first_death(&self, taken: &Taken) -> Option<FirstDeath> {
        let Death { key, at_ns, outlived_ns } = self.collector.end_at_first_death()?;
        let (_, rank) = taken.ranks.iter().find(|(of, _)| *of == key)?;
        (outlived_ns > MIN_OUTLIVED_NS).then_some(FirstDeath { rank: rank.rank, at_ns })
    }
}

/// Returns why MPI was not observed in a program that contains one; `None` if the program contains
/// none.
fn why_unseen(executable: &str) -> Option<String> {
    is_linked_in(Path::new(executable)).then(|| {
        String::from(
            "MPI is linked statically into this program, where it cannot be watched: each process \
             writes a report of its own. Link the shared library to have ranks compared.",
        )
    })
}
