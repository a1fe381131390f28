//! LAMMPS, a real application: a droplet in one corner of the box, balanced and not, a liquid that
//! fills the box, atoms that one rank writes for all, and partitions with different tasks.

use std::path::PathBuf;

use plimsoll_tests::artifacts::workspace_dir;
use plimsoll_tests::mpi::{Mpi, needs};
use plimsoll_tests::outcome::Outcome;
use plimsoll_tests::subject::Form;
use plimsoll_tests::subject_job::{Job, Watch};
use plimsoll_tests::summary::Loss;

fn input(name: &str) -> PathBuf {
    workspace_dir().join("tests/lammps").join(name)
}

/// Returns a job of eight ranks with one thread each.
fn job(input_file: &str, variables: &str, options: &str) -> Job {
    let input = input(input_file);
    Job::ranks("lmp", Mpi::OpenMpi, 8)
        .form(Form::Installed)
        .arguments(&format!("-in {} -log none {variables}", input.display()))
        .variable("OMP_NUM_THREADS", "1")
        .options(options)
        .watch(Watch::Run)
}

fn seconds(losses: &[Loss<'_>]) -> f64 {
    losses.iter().map(Loss::seconds).sum()
}

#[test]
#[ignore = "long: scripts/test --all"]
fn a_droplet_in_a_corner_is_load_imbalance_until_the_box_is_cut_for_it() {
    needs!(Mpi::OpenMpi);
    // A step lasts less than 20 ms: ten periods for it.
    let corner = job("droplet.in", "", "--period 1ms").run_until(|corner| {
        let summary = corner.summary();
        let uneven = summary.losses_of("load_imbalance");
        let loss = uneven.first().unwrap_or_else(|| panic!("{}", corner.text()));
        assert_eq!(loss.field("slow_ranks"), "0", "{}", corner.text());
        let cause = loss.cause_path().pop().unwrap_or_default();
        assert!(
            ["LAMMPS_NS::PairLJCut::compute", "LAMMPS_NS::NPair"]
                .iter()
                .any(|name| cause.starts_with(name)),
            "the cause is {cause}"
        );
        // Rank 0 has most of the droplet, so no other rank is similar.
        let kinds = summary.at("/clusters").as_array().expect("clusters are a list");
        let ranks: Vec<&str> = kinds.iter().filter_map(|it| it["ranks"].as_str()).collect();
        assert!(ranks.contains(&"0"), "{ranks:?}");
        let steps = summary.loop_of("LAMMPS_NS::Verlet::run");
        let of = |key: &str| steps["iterations"][key].as_u64().unwrap_or(0);
        // Steps with too few samples are too short to be judged.
        let told_apart = of("accepted") + of("rejected");
        assert!((118..=120).contains(&told_apart) && of("accepted") >= 60, "{steps:#}");
    });
    let uneven_s = seconds(&corner.summary().losses_of("load_imbalance"));
    job("droplet.in", "-var balance rcb", "").run_until(|cut| {
        let summary = cut.summary();
        let even_s = seconds(&summary.losses_of("load_imbalance"));
        // Eight ranks on two cores: by LAMMPS's own timers, the slowest rank's Pair and Neigh still
        // take 20 to 50 ms longer than the mean, a twentieth to an eighth of the loss before.
        assert!(even_s < 0.15 * uneven_s, "{even_s} s of {uneven_s} s\n{}", cut.text());
        assert_eq!(summary.losses_of("wait_for_partner").len(), 0, "{}", cut.text());
        assert_eq!(summary.losses_of("oversubscription").len(), 1, "{}", cut.text());
    });
}

#[test]
fn a_melt_is_balanced() {
    needs!(Mpi::OpenMpi);
    job("melt.in", "", "").run_until(|melt| {
        let losses = melt.summary().losses_of("load_imbalance");
        let severity: f64 =
            losses.iter().map(|loss| loss.field("severity").as_f64().unwrap_or(1.0)).sum();
        assert!(severity < 0.02, "{}", melt.text());
    });
}

#[test]
fn atoms_that_one_rank_writes_are_serialization() {
    needs!(Mpi::OpenMpi);
    job("dump.in", "", "--period 1ms").run_until(|dump| {
        let summary = dump.summary();
        let serial = summary.losses_of("serialization");
        let loss = serial.first().unwrap_or_else(|| panic!("{}", dump.text()));
        assert_eq!(loss.field("slow_ranks"), "0", "{}", dump.text());
        assert_eq!(loss.cause_path().last(), Some(&"LAMMPS_NS::DumpCustom::write_lines"));
        assert_eq!(summary.worst().kind(), "serialization", "{}", dump.text());
    });
}

/// Asserts the loss between the two partitions of a run; the second, of two ranks, has more work.
fn assert_groups(job: &Outcome, task: &str) {
    let summary = job.summary();
    let between = summary.losses_of("group_imbalance");
    let loss = between.first().unwrap_or_else(|| panic!("{}", job.text()));
    assert_eq!(loss.field("slow_ranks"), "6-7", "{}", job.text());
    let advice = loss.field("advice").as_str().unwrap_or_default();
    // The task is a function, maybe with its caller, or, if nearly all of its time is in one loop,
    // that loop.
    let places = ["{}, which takes", "{} (called by ", "{} (mostly in ", "the loop at {}+0x"];
    let names_task = places
        .map(|place| place.replace("{}", task))
        .iter()
        .any(|place| advice.starts_with(&format!("Ranks 6-7 have a task of their own, {place}")));
    assert!(names_task, "{advice}");
    let phase = loss.field("phase").as_u64().expect("a loss has a phase");
    let phase = summary.at(&format!("/phases/{phase}"));
    assert_eq!(phase["kind"], "mpmd");
    let groups = phase["groups"].as_array().expect("a phase has groups");
    let ranks: Vec<_> = groups.iter().map(|group| group["ranks"].as_str().unwrap_or("")).collect();
    assert_eq!(ranks, ["0-5", "6-7"]);
}

#[test]
#[ignore = "long: scripts/test --all"]
fn partitions_with_tasks_of_their_own_are_groups() {
    needs!(Mpi::OpenMpi);
    let partitions = "-screen none -partition 6 2";
    for (input, task) in [
        ("split.in", "LAMMPS_NS::PPPM::compute"),
        ("partitions.in", "LAMMPS_NS::PairLJSmooth::compute"),
    ] {
        job(input, partitions, "--period 1ms").run_until(|job| assert_groups(job, task));
    }
}
