//! LAMMPS, a real application: a droplet that lies in one corner of the box, balanced and not, and
//! a liquid that fills it.

use std::path::PathBuf;

use plimsoll_tests::artifacts::workspace_dir;
use plimsoll_tests::job::{Job, Watch};
use plimsoll_tests::mpi::Mpi;
use plimsoll_tests::outcome::Outcome;
use plimsoll_tests::subject::Form;
use plimsoll_tests::summary::Loss;

fn input(name: &str) -> PathBuf {
    workspace_dir().join("tests/lammps").join(name)
}

/// Eight ranks, each of one thread.
fn run(input_file: &str, variables: &str, options: &str) -> Outcome {
    let input = input(input_file);
    Job::ranks("lmp", Mpi::OpenMpi, 8)
        .form(Form::Installed)
        .arguments(&format!("-in {} -log none {variables}", input.display()))
        .variable("OMP_NUM_THREADS", "1")
        .options(options)
        .watch(Watch::Run)
        .needs_all_cores()
        .run()
        .succeeded()
}

fn seconds(losses: &[Loss<'_>]) -> f64 {
    losses.iter().map(Loss::seconds).sum()
}

#[test]
fn a_droplet_in_a_corner_is_load_imbalance_until_the_box_is_cut_for_it() {
    if !Mpi::OpenMpi.available() {
        return;
    }
    // A step lasts less than 20 ms: ten periods for it.
    let droplet = run("droplet.in", "", "--period 1ms");
    let summary = droplet.summary();
    let uneven = summary.losses_of("load_imbalance");
    let loss = uneven.first().unwrap_or_else(|| panic!("{}", droplet.text()));
    assert_eq!(loss.field("slow_ranks"), "0", "{}", droplet.text());
    let cause = loss.cause_path().pop().unwrap_or_default();
    assert!(
        ["LAMMPS_NS::PairLJCut::compute", "LAMMPS_NS::NPair"]
            .iter()
            .any(|name| cause.starts_with(name)),
        "the cause is {cause}"
    );
    let unbalanced_s = seconds(&uneven);
    let steps = summary.loop_of("LAMMPS_NS::Verlet::run");
    let of = |key: &str| steps["iterations"][key].as_u64().unwrap_or(0);
    // Steps that no sample or too few fell into are too short to say more of.
    let told_apart = of("accepted") + of("rejected");
    assert!((118..=120).contains(&told_apart) && of("accepted") >= 60, "{steps:#}");

    let cut = run("droplet.in", "-var balance rcb", "");
    let summary = cut.summary();
    let balanced_s = seconds(&summary.losses_of("load_imbalance"));
    assert!(balanced_s < 0.1 * unbalanced_s, "{balanced_s} s of {unbalanced_s} s\n{}", cut.text());
    assert_eq!(summary.losses_of("wait_for_partner").len(), 0, "{}", cut.text());
    assert_eq!(summary.losses_of("oversubscription").len(), 1, "{}", cut.text());
}

#[test]
fn a_melt_is_balanced() {
    if !Mpi::OpenMpi.available() {
        return;
    }
    let melt = run("melt.in", "", "");
    let summary = melt.summary();
    let losses = summary.losses_of("load_imbalance");
    let severity: f64 =
        losses.iter().map(|loss| loss.field("severity").as_f64().unwrap_or(1.0)).sum();
    assert!(severity < 0.02, "{}", melt.text());
}
