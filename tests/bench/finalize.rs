//! Wait of a real application in MPI_Finalize, by step: this process repeats the steps after the
//! gathering of profiles on the data in the job's spool.

use std::time::{Duration, Instant};

use plimsoll_analysis::agreement::Proposal;
use plimsoll_analysis::diagnose::diagnose_alone;
use plimsoll_analysis::rank::Rank;
use plimsoll_analysis::totals::Totals;
use plimsoll_report::text;
use plimsoll_tests::artifacts::workspace_dir;
use plimsoll_tests::mpi::Mpi;
use plimsoll_tests::outcome::Outcome;
use plimsoll_tests::subject::Form;
use plimsoll_tests::subject_job::{Job, Watch};

use crate::ranks::recorded;
use crate::row::Row;

const LIMIT: Duration = Duration::from_secs(1800);

/// Measures LAMMPS in 4 and in 16 ranks.
pub fn lammps_rows(steps: u32) -> Vec<Row> {
    [4, 16].into_iter().flat_map(|ranks| job_rows(ranks, steps)).collect()
}

fn job_rows(ranks: u32, steps: u32) -> Vec<Row> {
    let job = lammps(ranks, steps);
    let whole_s = job.summary().number("/collection/finalize_s");
    let (info, inputs) = recorded(&job);
    let proposals = inputs.iter().map(|input| Proposal::of(&input.profile));
    let agreed = proposals.fold(Proposal::default(), Proposal::combine);
    let agreed = agreed.conclude(info.rules.clone());
    let begin = Instant::now();
    let mut totals = Totals::default();
    let add = |input| totals.add_rank(&Rank::new(input, &agreed), &agreed);
    inputs.iter().for_each(add);
    let reduction_s = begin.elapsed().as_secs_f64();
    let begin = Instant::now();
    let summary = diagnose_alone(inputs, &info).unwrap_or_else(|error| panic!("{error}"));
    let conclusion_s = begin.elapsed().as_secs_f64() - reduction_s;
    let begin = Instant::now();
    let written = text(&summary).len() + summary.to_json().map_or(0, |json| json.len());
    let writing_s = begin.elapsed().as_secs_f64();
    assert!(written > 0, "there is a report");
    let gathering_s = whole_s - reduction_s - conclusion_s - writing_s;
    let row = |what: &str, seconds| {
        Row::new(&format!("{what}, {ranks} ranks"), "lammps droplet", seconds, "s", whole_s)
    };
    vec![
        row("MPI_Finalize to the summary on disk", whole_s).target(0.5),
        row("of it combining the ranks of the node", reduction_s),
        row("of it concluding", conclusion_s),
        row("of it writing the reports", writing_s),
        row("of it the rest: barriers, gathering profiles", gathering_s),
    ]
}

/// Runs LAMMPS, watched.
pub fn lammps(ranks: u32, steps: u32) -> Outcome {
    let input = workspace_dir().join("tests/lammps/droplet.in");
    let mut arguments = format!("-in {} -log none -var steps {steps}", input.display());
    if ranks != 8 {
        // LAMMPS chooses the number of blocks in each direction.
        arguments += " -var across *";
    }
    Job::ranks("lmp", Mpi::OpenMpi, ranks)
        .form(Form::Installed)
        .arguments(&arguments)
        .variable("OMP_NUM_THREADS", "1")
        .watch(Watch::Run)
        .limit(LIMIT)
        .run()
        .succeeded()
}
