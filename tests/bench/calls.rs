//! Cost of a wrapped call: the same calls in the same program, watched and unwatched by turns.

use plimsoll_tests::mpi::Mpi;
use plimsoll_tests::openmp_runtime::{Language, OpenMpRuntime};
use plimsoll_tests::outcome::Outcome;
use plimsoll_tests::subject::Form;
use plimsoll_tests::subject_job::{Job, Watch};

use crate::row::Row;
use crate::statistics::least;

/// A call of a subject, with its targets in ns; `None` without a target.
struct Call {
    name: &'static str,
    /// Maximum of what the wrapper adds.
    all: Option<f64>,
    /// Maximum of what counting messages by partner, and recording exemplary ones, adds.
    partners: Option<f64>,
}

const fn call(name: &'static str, all: Option<f64>, partners: Option<f64>) -> Call {
    Call { name, all, partners }
}

/// Calls of the subject `cheap_calls`.
const CALLS: [Call; 6] = [
    call("MPI_Iprobe", Some(25.0), Some(10.0)),
    call("MPI_Send", Some(25.0), Some(10.0)),
    call("MPI_Send and MPI_Recv", None, Some(10.0)),
    call("MPI_Sendrecv", None, Some(10.0)),
    call("MPI_Irecv, MPI_Isend and MPI_Waitall", None, Some(10.0)),
    call("pthread_mutex_lock", None, None),
];

/// Constructs of the subject `cheap_regions`, by the names that they have under GCC's runtime.
const RUNTIME_CALLS: [Call; 5] = [
    call("parallel region", Some(60.0), None),
    // 1 % of its 10 us.
    call("region of two threads", Some(100.0), None),
    call("GOMP_barrier", Some(60.0), None),
    call("omp_set_lock", Some(60.0), None),
    call("GOMP_critical_name_start", Some(60.0), None),
];

/// Measures the nanoseconds that the wrapper adds to a call.
pub fn rows(runs: usize, calls: u32) -> Vec<Row> {
    let job = Job::ranks("cheap_calls", Mpi::OpenMpi, 1);
    let mut rows = added("cheap_calls", &job, &CALLS, runs, calls);
    for runtime in OpenMpRuntime::ALL.into_iter().filter(|runtime| runtime.available()) {
        let job = Job::alone("cheap_regions").form(Form::OpenMp(Language::C, runtime));
        let subject = format!("cheap_regions, {}", runtime.name());
        rows.extend(added(&subject, &job, &RUNTIME_CALLS, runs, calls));
    }
    rows
}

/// One run of each kind, by turns.
struct Runs {
    bare: Outcome,
    /// `None` if no call exchanges messages.
    without_partners: Option<Outcome>,
    watched: Outcome,
}

/// Runs a subject in each way by turns, and returns the rows of its calls.
fn added(subject: &str, job: &Job, known: &[Call], runs: usize, calls: u32) -> Vec<Row> {
    let job = |watch| job.clone().arguments(&format!("burn {calls}")).watch(watch);
    let has_partners = known.iter().any(|call| call.partners.is_some());
    let without_partners = || job(Watch::Run).variable("PLIMSOLL_PARTNERS", "off").run();
    let run = |_| Runs {
        bare: job(Watch::Off).run(),
        without_partners: has_partners.then(without_partners),
        watched: job(Watch::Run).run(),
    };
    let runs: Vec<Runs> = (0..runs).map(run).collect();
    let shortest = |call: &str, which: fn(&Runs) -> Option<&Outcome>| {
        let outcomes = runs.iter().filter_map(which);
        least(outcomes.map(|outcome| outcome.truth().number(&format!("{call}_ns"))))
    };
    let rows = known.iter().flat_map(|it| {
        let bare = shortest(it.name, |runs| Some(&runs.bare));
        let watched = shortest(it.name, |runs| Some(&runs.watched));
        let row = |what: &str, added: f64, target: Option<f64>| {
            let row = Row::new(&format!("{what} {}", it.name), subject, added, "ns", bare);
            target.map_or(row.clone(), |most| row.target(most))
        };
        let by_partner = it.partners.map(|most| {
            let without = shortest(it.name, |runs| runs.without_partners.as_ref());
            row("of it by partner,", watched - without, Some(most))
        });
        let whole = row("added to a call of", watched - bare, it.all);
        std::iter::once(whole).chain(by_partner)
    });
    rows.collect()
}
