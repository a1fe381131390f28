//! Rules of labels that declare functions to be synchronisations.

use std::fs;

use plimsoll_tests::digests::{By, digest, folder_of};
use plimsoll_tests::mpi::{Mpi, needs};
use plimsoll_tests::outcome::Outcome;
use plimsoll_tests::scratch::Scratch;
use plimsoll_tests::subject::Form;
use plimsoll_tests::subject_job::{Job, Watch, each_mpi};
use plimsoll_tests::summary::{Summary, function_path};
use plimsoll_tests::truth::assert_within;
use serde_json::Value;

/// Runs a subject with these rules.
fn with_rules(job: Job, rules: &str, assertions: impl Fn(&Outcome)) -> Outcome {
    let files = Scratch::new("declared");
    let file = files.path().join("rules");
    fs::write(&file, rules).expect("the file of rules can be written");
    job.variable("PLIMSOLL_LABELS", &file).watch(Watch::Run).run_until(assertions)
}

fn phases(summary: &Summary) -> &[Value] {
    summary.at("/phases").as_array().map_or(&[], Vec::as_slice)
}

fn instances(summary: &Summary) -> u64 {
    phases(summary).iter().filter_map(|phase| phase["instances"].as_u64()).sum()
}

/// Returns the number of instances that end in a function.
fn ending_in(summary: &Summary, function: &str) -> u64 {
    let ends = |phase: &&Value| function_path(&phase["ends_in"]).last() == Some(&function);
    phases(summary).iter().filter(ends).filter_map(|phase| phase["instances"].as_u64()).sum()
}

#[test]
fn a_declared_function_ends_phases_like_a_barrier() {
    for mpi in each_mpi() {
        for (how, function) in [("sendrecv", "meet"), ("requests", "meet")] {
            let job = || {
                let job = Job::ranks("declared", mpi, mpi.ranks());
                job.arguments(&format!("sleep 16 10 3 {how}"))
            };
            with_rules(job(), "meet* = collective_synchronisation\n", |job| {
                let (summary, truth) = (job.summary(), job.truth());
                let syncs = truth.number("global_syncs");
                assert_eq!(instances(summary) as f64, syncs + 1.0, "{:?}", phases(summary));
                assert_eq!(ending_in(summary, function) as f64, syncs, "{:?}", phases(summary));
                let worst = summary.worst();
                assert_eq!(worst.kind(), "load_imbalance", "{}", job.text());
                assert_within("seconds", worst.seconds(), truth.number("expected_loss_s"), 0.1);
                assert_eq!(worst.symptom_path().last(), Some(&function), "{}", job.text());
                assert_eq!(worst.first_cause(), truth.text("cause"), "{}", job.text());
            });
            with_rules(job(), "meet* = wait_partner\n", |job| {
                assert_eq!(instances(job.summary()), 1, "{}", job.text());
                assert!(job.summary().losses_of("load_imbalance").is_empty(), "{}", job.text());
            });
        }
    }
}

/// No sample need be in the function, nor between two calls of it.
#[test]
fn declared_functions_may_be_shorter_than_a_period() {
    for mpi in each_mpi() {
        let job = Job::ranks("declared", mpi, 2).arguments("burn 400 0.3 1");
        with_rules(job, "declared:meet = collective_synchronisation\n", |job| {
            let (summary, truth) = (job.summary(), job.truth());
            let syncs = truth.number("global_syncs");
            assert_eq!(ending_in(summary, "meet") as f64, syncs, "{:?}", phases(summary));
            let longest = phases(summary).iter().map(|phase| phase["instances"].as_u64()).max();
            assert_eq!(longest.flatten(), Some(399), "{:?}", phases(summary));
            assert_eq!(summary.at("/notes"), &Value::Array(Vec::new()), "{}", job.text());
        });
    }
}

#[test]
fn declared_functions_may_end_in_a_tail_call() {
    for mpi in each_mpi() {
        let job = Job::ranks("declared", mpi, 2).arguments("sleep 16 10 3 tail");
        with_rules(job, "meet* = collective_synchronisation\n", |job| {
            let (summary, truth) = (job.summary(), job.truth());
            let ended = ending_in(summary, "meet_by_tail_call") as f64;
            assert_eq!(ended, truth.number("global_syncs"), "{:?}", phases(summary));
            let uneven = summary.losses_of("load_imbalance");
            let loss_s: f64 = uneven.iter().map(|loss| loss.seconds()).sum();
            assert_within("seconds", loss_s, truth.number("expected_loss_s"), 0.1);
            assert_eq!(uneven[0].first_cause(), truth.text("cause"), "{}", job.text());
        });
    }
}

/// A declared function on a smaller communicator divides phases; a digest, which knows the calls
/// by the spool alone, has the same phases and losses.
#[test]
fn declared_functions_of_a_smaller_communicator_divide_phases() {
    needs!(Mpi::OpenMpi);
    let job = Job::ranks("declared", Mpi::OpenMpi, 4).arguments("sleep 32 10 3 rows");
    let done = with_rules(job, "meet = collective_synchronisation\n", |job| {
        let summary = job.summary();
        // One more communicator, and the end.
        assert_eq!(instances(summary), 2, "{:?}", phases(summary));
        let worst = summary.worst();
        assert_eq!(worst.kind(), "load_imbalance", "{}", job.text());
        // Within a row of two, one is slow in every second iteration.
        assert_within("seconds", worst.seconds(), 16.0 * 0.01, 0.15);
        assert_eq!(worst.symptom_path().last(), Some(&"meet"), "{}", job.text());
        assert_eq!(worst.first_cause(), Some("work_uneven"), "{}", job.text());
    });
    let folder = folder_of(&done.files_ending(".json")[0]).expect("there is a spool");
    let digested = digest(&folder, By::Threads(2));
    assert_eq!(instances(&digested), 2);
    assert_eq!(digested.worst().symptom_path().last(), Some(&"meet"));
    assert_eq!(digested.worst().seconds(), done.summary().worst().seconds());
}

/// PPoPP20, 6.1, Table 4: uneven work in the set-up of BoomerAMG shows where the ranks exchange who
/// needs which rows (hypre_NewCommPkgCreate there, hypre_MatvecCommPkgCreate in later versions).
/// The function that builds the coarse operator is a cause.
#[test]
#[ignore = "long: scripts/test --all"]
fn uneven_multigrid_shows_where_a_rule_says_that_ranks_meet() {
    needs!(Mpi::OpenMpi);
    let job = Job::ranks("multigrid", Mpi::OpenMpi, 2).form(Form::Hypre).arguments("48 3 0 3");
    with_rules(job, "hypre_MatvecCommPkgCreate = collective_synchronisation\n", |job| {
        let summary = job.summary();
        let uneven = summary.losses_of("load_imbalance");
        let shown = uneven.iter().find(|loss| {
            let path = loss.symptom_path();
            path.last() == Some(&"hypre_MatvecCommPkgCreate")
                && loss.cause_path().contains(&"hypre_BoomerAMGBuildCoarseOperatorKT")
        });
        assert!(shown.is_some(), "{}", job.text());
        assert!(ending_in(summary, "hypre_MatvecCommPkgCreate") >= 3, "{:?}", phases(summary));
    });
}
