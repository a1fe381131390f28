//! Cost of a wrapped call: the same calls in the same program, watched and unwatched by turns.

use plimsoll_tests::mpi::Mpi;
use plimsoll_tests::outcome::Outcome;
use plimsoll_tests::subject::Form;
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

/// Calls of the subject `cheap_regions`, with their target in ns.
const RUNTIME_CALLS: [(&str, Option<f64>); 4] = [
    ("parallel region", Some(60.0)),
    ("GOMP_barrier", Some(60.0)),
    ("omp_set_lock", Some(60.0)),
    ("GOMP_critical_name_start", Some(60.0)),
];

/// Measures the nanoseconds that the wrapper adds to a call.
pub fn rows(runs: usize, calls: u32) -> Vec<Row> {
    let job = Job::ranks("cheap_calls", Mpi::OpenMpi, 1);
    let runtime_job = Job::alone("cheap_regions").form(Form::By("gcc", &["-O2", "-fopenmp"]));
    let mut rows = added("cheap_calls", &job, &CALLS, runs, calls);
    rows.extend(added("cheap_regions", &runtime_job, &RUNTIME_CALLS, runs, calls));
    rows
}

/// Runs a subject unwatched and watched by turns, and returns a row for each of its calls.
fn added(
    subject: &str,
    job: &Job,
    known: &[(&str, Option<f64>)],
    runs: usize,
    calls: u32,
) -> Vec<Row> {
    let job = |watch| job.clone().arguments(&format!("burn {calls}")).watch(watch).run();
    let pairs: Vec<(Outcome, Outcome)> =
        (0..runs).map(|_| (job(Watch::Off), job(Watch::Run))).collect();
    let shortest = |call: &str, outcomes: &mut dyn Iterator<Item = &Outcome>| {
        least(outcomes.map(|outcome| outcome.truth().number(&format!("{call}_ns"))))
    };
    known
        .iter()
        .map(|(call, target)| {
            let bare = shortest(call, &mut pairs.iter().map(|(bare, _)| bare));
            let watched = shortest(call, &mut pairs.iter().map(|(_, watched)| watched));
            let name = format!("added to a call of {call}");
            let row = Row::new(&name, subject, watched - bare, "ns", bare);
            target.map_or(row.clone(), |most| row.target(most))
        })
        .collect()
}
