//! Cost of a wrapped call: the same calls in the same program, watched and unwatched by turns.

use plimsoll_tests::mpi::Mpi;
use plimsoll_tests::outcome::Outcome;
use plimsoll_tests::subject_job::{Job, Watch};

use crate::row::Row;
use crate::statistics::least;

/// Calls of the subject `cheap_calls`, with their target in ns; `None` without a target.
const CALLS: [(&str, Option<f64>); 5] = [
    ("MPI_Iprobe", Some(25.0)),
    ("MPI_Send", Some(25.0)),
    ("MPI_Sendrecv", None),
    ("MPI_Irecv, MPI_Isend and MPI_Waitall", None),
    ("pthread_mutex_lock", None),
];

/// Measures the nanoseconds that the wrapper adds to a call.
pub fn rows(runs: usize, calls: u32) -> Vec<Row> {
    let job = |watch| {
        Job::ranks("cheap_calls", Mpi::OpenMpi, 1)
            .arguments(&format!("burn {calls}"))
            .watch(watch)
            .run()
    };
    let pairs: Vec<(Outcome, Outcome)> =
        (0..runs).map(|_| (job(Watch::Off), job(Watch::Run))).collect();
    let shortest = |call: &str, outcomes: &mut dyn Iterator<Item = &Outcome>| {
        least(outcomes.map(|outcome| outcome.truth().number(&format!("{call}_ns"))))
    };
    CALLS
        .iter()
        .map(|(call, target)| {
            let bare = shortest(call, &mut pairs.iter().map(|(bare, _)| bare));
            let watched = shortest(call, &mut pairs.iter().map(|(_, watched)| watched));
            let name = format!("added to a call of {call}");
            let row = Row::new(&name, "cheap_calls", watched - bare, "ns", bare);
            target.map_or(row.clone(), |most| row.target(most))
        })
        .collect()
}
