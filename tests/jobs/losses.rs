//! Losses of every kind are named, priced and explained, are not found where they are not, and tell how
//! long the run would last without them.

use plimsoll_tests::job::{Job, Watch};
use plimsoll_tests::load::undisturbed;
use plimsoll_tests::mpi::Mpi;
use plimsoll_tests::outcome::Outcome;
use plimsoll_tests::subject::Form;
use plimsoll_tests::summary::Loss;
use plimsoll_tests::truth::assert_within;

const TOLERANCE: f64 = 0.10;

fn job(subject: &str, mpi: Mpi, ranks: u32, arguments: &str) -> Job {
    Job::ranks(subject, mpi, ranks).arguments(arguments).watch(Watch::Run)
}

fn run(subject: &str, mpi: Mpi, ranks: u32, arguments: &str) -> Option<Outcome> {
    mpi.available().then(|| job(subject, mpi, ranks, arguments).run().succeeded())
}

/// Where ranks keep cores busy, or must not be held up by others.
fn run_alone(subject: &str, mpi: Mpi, ranks: u32, arguments: &str) -> Option<Outcome> {
    let job = job(subject, mpi, ranks, arguments);
    mpi.available().then(|| job.needs_all_cores().run().succeeded())
}

/// The worst loss is of that kind, costs what the subject says, and is told in the text with its cause.
fn assert_found(job: &Outcome, kind: &str) {
    let (summary, truth) = (job.summary(), job.truth());
    let worst = summary.worst();
    assert_eq!(worst.kind(), kind, "{}", job.text());
    let cause = truth.text("cause").expect("the subject has a loss");
    assert!(worst.cause_path().contains(&cause), "{}", job.text());
    assert!(job.text().contains(cause), "{}", job.text());
    assert_within("seconds", worst.seconds(), truth.number("expected_loss_s"), TOLERANCE);
    // What differs by chance between ranks is little beside it.
    let others_s: f64 = summary.losses().iter().skip(1).map(|loss| loss.seconds()).sum();
    assert!(others_s < 0.2 * worst.seconds(), "{}", job.text());
}

/// The run without the loss lasts as long as its summary says (ICS18, Figure 13).
fn assert_foretold(with: &Outcome, without: &Outcome, kind: &str) {
    let (summary, mended) = (with.summary(), without.summary());
    assert_eq!(mended.losses_of(kind).len(), 0, "{}", without.text());
    let worst = summary.worst();
    let foretold_s = worst.field("elapsed_without_s").as_f64().expect("a loss has its projection");
    assert_within("run", foretold_s, mended.number("/run/elapsed_s"), TOLERANCE);
}

#[test]
fn a_slow_rank_is_waited_for_in_messages() {
    for (arguments, symptom) in
        [("sleep 40 20 3", "MPI_Sendrecv"), ("sleep 40 20 3 waitall", "MPI_Waitall")]
    {
        let Some(job) = run("neighbours", Mpi::OpenMpi, 8, arguments) else { return };
        assert_found(&job, "load_imbalance");
        let summary = job.summary();
        let worst = summary.worst();
        assert_eq!(worst.symptom_path().last(), Some(&symptom), "{}", job.text());
        assert_eq!(
            (worst.field("slow_ranks"), worst.field("waiting_ranks")),
            (&"7".into(), &"0-6".into())
        );
    }
    let Some(job) = run("neighbours", Mpi::OpenMpi, 16, "sleep 20 40 3") else { return };
    assert_found(&job, "load_imbalance");
    let Some(job) = run("neighbours", Mpi::Mpich, 2, "sleep 40 20 3") else { return };
    assert_found(&job, "load_imbalance");
    let Some(job) = run_alone("neighbours", Mpi::OpenMpi, 8, "sleep 20 40 1") else { return };
    for kind in ["load_imbalance", "wait_for_partner", "frequent_communication"] {
        assert_eq!(job.summary().losses_of(kind).len(), 0, "{}", job.text());
    }
}

#[test]
fn a_wavefront_waits_for_partners_and_is_no_imbalance() {
    let Some(with) = run("wavefront", Mpi::OpenMpi, 8, "sleep 10 30") else { return };
    assert_found(&with, "wait_for_partner");
    assert_eq!(with.summary().losses_of("load_imbalance").len(), 0, "{}", with.text());
    let summary = with.summary();
    let worst = summary.worst();
    assert_eq!(worst.symptom_path().last(), with.truth().text("symptom").as_ref());
    assert_eq!(worst.field("waiting_ranks"), "4-7", "{}", with.text());
    let Some(without) = run_alone("wavefront", Mpi::OpenMpi, 8, "sleep 10 30 1 free") else {
        return;
    };
    assert_foretold(&with, &without, "wait_for_partner");
    let Some(job) = run("wavefront", Mpi::Mpich, 2, "sleep 20 40") else { return };
    assert_found(&job, "wait_for_partner");
}

#[test]
fn polls_are_frequent_communication_of_the_loop_that_makes_them() {
    for mpi in [Mpi::OpenMpi, Mpi::Mpich] {
        let Some(with) = run_alone("polls", mpi, 2, "sleep 30 20 1") else { continue };
        let (summary, truth) = (with.summary(), with.truth());
        let worst = summary.worst();
        assert_eq!(worst.kind(), "frequent_communication", "{}", with.text());
        assert!(worst.cause_path().contains(&truth.text("cause").unwrap()), "{}", with.text());
        // While the loop has no core, it does not poll: that part is told as waiting for a core.
        let without_core = summary.losses_of("oversubscription");
        let found_s = worst.seconds() + without_core.iter().map(Loss::seconds).sum::<f64>();
        assert_within("seconds", found_s, truth.number("expected_loss_s"), TOLERANCE);
        assert_eq!(worst.field("polling"), true, "{}", with.text());
        let causes = worst.field("causes").as_array().expect("a loss has causes");
        let innermost = causes[0]["path"].as_array().and_then(|path| path.last());
        assert_eq!(innermost.map(|frame| &frame["kind"]), Some(&"loop".into()), "{}", with.text());
        let advice = worst.field("advice").as_str().unwrap_or_default();
        for poll in ["MPI_Iprobe", "MPI_Testall", "MPI_Test"] {
            assert!(advice.contains(poll), "{advice}");
        }
        let Some(without) = run_alone("polls", mpi, 2, "sleep 30 20 1 blocks") else { continue };
        let found = without.summary().losses_of("frequent_communication").len();
        assert_eq!(found, 0, "{}", without.text());
    }
}

/// As PPoPP20 found in AMG2013, BoomerAMG's ancestor (6.1, Table 4).
#[test]
fn multigrid_polls_when_it_is_set_up() {
    if !Mpi::OpenMpi.available() {
        return;
    }
    let job = Job::ranks("multigrid", Mpi::OpenMpi, 8).form(Form::Hypre).arguments("12 40");
    let job = job.watch(Watch::Run).run().succeeded();
    let summary = job.summary();
    let polls = summary.losses_of("frequent_communication");
    let loss = polls.first().unwrap_or_else(|| panic!("{}", job.text()));
    assert_eq!(loss.field("polling"), true, "{}", job.text());
    let cause = loss.field("causes")[0]["path"].as_array().and_then(|path| path.last());
    let cause = cause.unwrap_or_else(|| panic!("{}", job.text()));
    assert_eq!(
        (&cause["kind"], &cause["function"]),
        (&"loop".into(), &"hypre_DataExchangeList".into())
    );
    let advice = loss.field("advice").as_str().unwrap_or_default();
    for poll in ["MPI_Iprobe", "MPI_Testall", "MPI_Test"] {
        assert!(advice.contains(poll), "{advice}");
    }
    assert_eq!(summary.losses_of("wait_for_partner").len(), 0, "{}", job.text());
}

#[test]
fn large_messages_are_told_from_late_ones() {
    for mpi in [Mpi::OpenMpi, Mpi::Mpich] {
        let Some(with) = run_alone("messages", mpi, 2, "sleep 10 60 128") else { continue };
        let (summary, truth) = (with.summary(), with.truth());
        let large = summary.losses_of("large_message");
        let loss = large.first().unwrap_or_else(|| panic!("{}", with.text()));
        assert_within("seconds", loss.seconds(), truth.number("expected_loss_s"), TOLERANCE);
        assert_eq!(loss.symptom_path().last(), truth.text("symptom").as_ref());
        assert_eq!(loss.cause_path().last(), truth.text("cause").as_ref());
        let Some(without) = run_alone("messages", mpi, 2, "sleep 10 60 128 short") else {
            continue;
        };
        assert_eq!(without.summary().losses_of("large_message").len(), 0, "{}", without.text());
    }
}

#[test]
fn large_files_are_told_with_the_function_that_writes_them() {
    let Some(with) = run("files", Mpi::OpenMpi, 4, "sleep 10 50 32") else { return };
    let (summary, truth) = (with.summary(), with.truth());
    let large = summary.losses_of("large_io");
    let loss = large.first().unwrap_or_else(|| panic!("{}", with.text()));
    assert_within("seconds", loss.seconds(), truth.number("expected_loss_s"), TOLERANCE);
    assert_eq!(loss.cause_path().last(), truth.text("cause").as_ref());
    assert_eq!(loss.field("label"), "io");
    let Some(without) = run_alone("files", Mpi::OpenMpi, 4, "sleep 10 50 32 memory") else {
        return;
    };
    assert_eq!(without.summary().losses_of("large_io").len(), 0, "{}", without.text());
}

#[test]
fn threads_that_share_a_lock_contend_for_it() {
    for mpi in [Mpi::OpenMpi, Mpi::Mpich] {
        let Some(with) = run("locks", mpi, 2, "sleep 30 10") else { continue };
        assert_found(&with, "lock_contention");
        let Some(without) = run_alone("locks", mpi, 2, "sleep 30 10 1 free") else { continue };
        assert_foretold(&with, &without, "lock_contention");
    }
}

#[test]
fn two_losses_in_two_phases_and_in_one() {
    let Some(job) = run("two", Mpi::OpenMpi, 8, "sleep 20 20 3") else { return };
    let (summary, truth) = (job.summary(), job.truth());
    for (kind, key, cause, slow) in [
        ("load_imbalance", "uneven_s", "work_uneven", "7"),
        ("serialization", "serial_s", "work_serial", "0"),
    ] {
        let found = summary.losses_of(kind);
        let loss = found.first().unwrap_or_else(|| panic!("no {kind}: {}", job.text()));
        assert_within(kind, loss.seconds(), truth.number(key), TOLERANCE);
        assert_eq!((loss.first_cause(), loss.field("slow_ranks")), (Some(cause), &slow.into()));
    }
    let losses = summary.losses();
    assert_ne!(losses[0].field("phase"), losses[1].field("phase"));

    let Some(job) = run("two", Mpi::OpenMpi, 8, "sleep 10 20 5 same") else { return };
    let (summary, truth) = (job.summary(), job.truth());
    for (kind, key, cause) in [
        ("wait_for_partner", "turns_s", "work_in_turn"),
        ("load_imbalance", "uneven_s", "work_uneven"),
    ] {
        let found = summary.losses_of(kind);
        let loss = found.first().unwrap_or_else(|| panic!("no {kind}: {}", job.text()));
        assert_within(kind, loss.seconds(), truth.number(key), TOLERANCE);
        let causes = loss.field("causes").to_string();
        assert!(causes.contains(cause), "{}", job.text());
    }
    let losses = summary.losses();
    assert_eq!(losses[0].field("phase"), losses[1].field("phase"));
    let all_s: f64 = losses.iter().map(|loss| loss.seconds()).sum();
    let left_s = summary.number("/run/elapsed_s") - all_s;
    assert_within("without both", summary.number("/projection/elapsed_s"), left_s, 0.05);
}

#[test]
fn causes_that_even_each_other_out_are_said_to() {
    let Some(job) = run("evened", Mpi::OpenMpi, 8, "sleep 30 20 3") else { return };
    let (summary, truth) = (job.summary(), job.truth());
    let worst = summary.worst();
    assert_eq!(worst.kind(), "load_imbalance", "{}", job.text());
    assert_within("seconds", worst.seconds(), truth.number("expected_loss_s"), TOLERANCE);
    assert_eq!(worst.field("evened_out"), true, "{}", job.text());
    assert_eq!(worst.first_cause(), truth.text("cause"), "{}", job.text());
    assert!(job.text().contains("partly even"), "{}", job.text());
    assert!(worst.field("causes").to_string().contains("work_second"), "{}", job.text());
}

#[test]
fn groups_with_unequal_tasks_are_one_loss() {
    let Some(job) = run("coupled", Mpi::OpenMpi, 8, "sleep 30 20 3") else { return };
    assert_found(&job, "group_imbalance");
    let summary = job.summary();
    let worst = summary.worst();
    assert_eq!(
        (worst.field("slow_ranks"), worst.field("waiting_ranks")),
        (&"6-7".into(), &"0-5".into())
    );
    assert_eq!((worst.field("group"), &worst.field("causes")[0]["group"]), (&1.into(), &1.into()));
}

/// What is uneven in each group is one loss with a cause from each (PPoPP20, 5.4).
#[test]
fn groups_that_are_uneven_within_are_one_loss_of_them_all() {
    let Some(job) = run("coupled", Mpi::OpenMpi, 8, "sleep 30 20 3 within") else { return };
    let (summary, truth) = (job.summary(), job.truth());
    let worst = summary.worst();
    assert_eq!(worst.kind(), "load_imbalance", "{}", job.text());
    assert_within("seconds", worst.seconds(), truth.number("expected_loss_s"), TOLERANCE);
    assert!(worst.field("group").is_null(), "{}", job.text());
    let mut groups = Vec::new();
    for cause in worst.field("causes").as_array().expect("a loss has causes") {
        groups.extend(cause["group"].as_u64());
    }
    groups.sort_unstable();
    assert_eq!(groups, [0, 1], "{}", job.text());
    assert_eq!(summary.losses().len(), 1, "{}", job.text());
}

/// Of each kind a subject, its arguments, and those with which it does the same without the loss.
const SUBJECTS: [(&str, &str, &str, &str); 9] = [
    ("load_imbalance", "imbalance", "40 20 3", "40 20 3 even"),
    ("load_imbalance", "neighbours", "30 20 3", "30 30 1"),
    ("serialization", "serial", "30 20 2", "30 40 0"),
    ("group_imbalance", "coupled", "30 20 3", "30 40 1"),
    ("wait_for_partner", "wavefront", "20 40", "20 40 1 free"),
    ("frequent_communication", "polls", "30 20 1", "30 20 1 blocks"),
    ("large_message", "messages", "20 60 64", "20 60 64 short"),
    ("large_io", "files", "10 50 32", "10 50 32 memory"),
    ("lock_contention", "locks", "90 10", "90 10 1 free"),
];

/// ICS18, Figure 13.
#[test]
fn the_run_time_without_a_loss_is_foretold() {
    if !Mpi::Mpich.available() {
        return;
    }
    for (kind, subject, with, without) in SUBJECTS {
        let job = |arguments| job(subject, Mpi::Mpich, 2, &format!("sleep {arguments}"));
        let without =
            undisturbed(&job(without), |outcome| outcome.summary().losses_of(kind).is_empty());
        let mended_s = without.summary().number("/run/elapsed_s");
        let with = undisturbed(&job(with), |outcome| {
            let summary = outcome.summary();
            let foretold_s = summary.worst().field("elapsed_without_s").as_f64();
            foretold_s.is_some_and(|foretold_s| (foretold_s / mended_s - 1.0).abs() < TOLERANCE)
        });
        assert_eq!(with.summary().worst().kind(), kind, "{}", with.text());
        assert_foretold(&with, &without, kind);
    }
}

#[test]
fn two_ranks_that_burn_lose_what_they_say() {
    if !Mpi::Mpich.available() {
        return;
    }
    for (kind, subject, with, _) in SUBJECTS {
        let job = job(subject, Mpi::Mpich, 2, &format!("burn {with}"));
        let job = undisturbed(&job, |outcome| {
            let (summary, truth) = (outcome.summary(), outcome.truth());
            let of_truth = summary.worst().seconds() / truth.number("expected_loss_s");
            summary.worst().kind() == kind && (of_truth - 1.0).abs() < TOLERANCE
        });
        assert_found(&job, kind);
    }
}

#[test]
fn sixteen_ranks_that_sleep_lose_what_they_say() {
    // Whoever polls or moves data needs a core for it.
    let asleep = |kind: &str| !kind.starts_with("large_") && kind != "frequent_communication";
    for (kind, subject, with, _) in SUBJECTS.into_iter().filter(|it| asleep(it.0)) {
        let run = run(subject, Mpi::OpenMpi, 16, &format!("sleep {with}"));
        let Some(job) = run else { return };
        assert_found(&job, kind);
    }
}
