//! The communication matrix equals the subjects' own counts, call by call, and losses name the
//! ranks that are waited for.

use plimsoll_tests::mpi::{Mpi, needs};
use plimsoll_tests::outcome::Outcome;
use plimsoll_tests::subject::Form;
use plimsoll_tests::subject_job::{Job, Watch};
use plimsoll_tests::summary::Loss;
use serde_json::Value;

/// Number of ranks: four, or fewer if the MPI's ranks would disturb each other.
fn ranks(mpi: Mpi) -> u32 {
    if matches!(mpi, Mpi::Mpich | Mpi::Intel) { 2 } else { 4 }
}

fn talked(mpi: Mpi, form: Form, arguments: &str) -> Option<Outcome> {
    if !mpi.available() {
        return None;
    }
    let job = Job::ranks("talks", mpi, ranks(mpi)).form(form).arguments(arguments).shares_cores();
    let plain = job.run().succeeded();
    let watched = job.watch(Watch::Run).run().succeeded();
    watched.assert_same_as(&plain);
    Some(watched)
}

/// Returns the numbers of a matrix, row by row.
fn numbers(matrix: &Value, key: &str) -> Vec<f64> {
    let rows = matrix[key].as_array().unwrap_or_else(|| panic!("no {key} in {matrix}"));
    rows.iter().flat_map(|row| row.as_array().unwrap()).map(|it| it.as_f64().unwrap()).collect()
}

#[track_caller]
fn assert_counted(job: &Outcome, what: &str) {
    let matrix = job.summary().at("/communication/matrix");
    let ranks = job.truth().number("ranks") as u32;
    assert_eq!(matrix["ranks"], format!("0-{}", ranks - 1), "{what}: {matrix}");
    assert_eq!(numbers(matrix, "calls"), job.truth().numbers("sent"), "sent, {what}");
    assert_eq!(numbers(matrix, "received"), job.truth().numbers("received"), "received, {what}");
    assert_eq!(matrix["others"]["calls"], 0, "{what}: {matrix}");
}

const PATTERNS: [&str; 10] =
    ["ring", "pipeline", "sweep", "farm", "halo", "server", "some", "again", "freed", "matched"];

fn assert_patterns_counted(mpi: Mpi) {
    for pattern in PATTERNS {
        let Some(job) = talked(mpi, Form::C, &format!("sleep 7 2 3 {pattern}")) else { return };
        assert_counted(&job, pattern);
        let matrix = job.summary().at("/communication/matrix");
        let bytes = job.truth().numbers("sent_bytes");
        assert_eq!(numbers(matrix, "bytes"), bytes, "bytes, {pattern}");
        assert_eq!(matrix["unknown"]["received"], 0, "{pattern}: {matrix}");
    }
    // Open MPI 4 lacks partitioned requests.
    if mpi != Mpi::OpenMpi {
        let Some(job) = talked(mpi, Form::C, "sleep 7 2 3 parts") else { return };
        assert_counted(&job, "parts");
        let bytes = numbers(job.summary().at("/communication/matrix"), "bytes");
        assert_eq!(bytes, job.truth().numbers("sent_bytes"), "bytes, parts");
    }
    // The source of a message is unknown if its status is ignored.
    let Some(job) = talked(mpi, Form::C, "sleep 7 2 3 ignored") else { return };
    let matrix = job.summary().at("/communication/matrix");
    assert_counted(&job, "ignored");
    assert_eq!(matrix["unknown"]["received"], 7 * (ranks(mpi) - 1), "{matrix}");
}

#[test]
fn the_matrix_is_what_the_ranks_count_under_open_mpi() {
    assert_patterns_counted(Mpi::OpenMpi);
}

#[test]
#[ignore = "long: scripts/test --all"]
fn the_matrix_is_what_the_ranks_count_under_mpich() {
    assert_patterns_counted(Mpi::Mpich);
}

#[test]
#[ignore = "long: scripts/test --all"]
fn the_matrix_is_what_the_ranks_count_under_intel_mpi() {
    assert_patterns_counted(Mpi::Intel);
}

#[test]
#[ignore = "long: scripts/test --all"]
fn the_matrix_is_what_the_ranks_count_in_the_standard_abi() {
    assert_patterns_counted(Mpi::MpichWheelStandard);
}

#[test]
#[ignore = "long: scripts/test --all"]
fn the_matrix_is_what_the_ranks_count_in_fortran() {
    for mpi in [Mpi::OpenMpi, Mpi::Mpich] {
        for form in [Form::UseMpiF08, Form::UseMpi, Form::MpifH] {
            let Some(job) = talked(mpi, form, "sleep 7") else { return };
            assert_counted(&job, &format!("{mpi}, {form:?}"));
            let unknown = job.summary().at("/communication/matrix/unknown/received");
            assert_eq!(unknown.as_f64(), Some(job.truth().number("ignored")), "{mpi}, {form:?}");
        }
    }
}

/// Returns the rank that causes most of a pattern's wait time, and its fraction.
fn most_waited_for(job: &Outcome) -> (usize, f64) {
    let matrix = job.summary().at("/communication/matrix");
    let count = job.truth().number("ranks") as usize;
    let mut waits = vec![0.0; count];
    for (at, wait_s) in numbers(matrix, "wait_s").into_iter().enumerate() {
        waits[at % count] += wait_s;
    }
    let whole: f64 = waits.iter().sum();
    let (rank, most) =
        (0..count).map(|it| (it, waits[it])).max_by(|a, b| a.1.total_cmp(&b.1)).unwrap();
    (rank, most / whole)
}

#[test]
#[ignore = "long: scripts/test --all"]
fn ranks_wait_for_the_one_that_works_longer() {
    for pattern in ["halo", "farm"] {
        let arguments = format!("sleep 15 10 5 {pattern}");
        let Some(job) = talked(Mpi::OpenMpi, Form::C, &arguments) else { return };
        let slow = job.truth().number("slow") as usize;
        let (rank, part) = most_waited_for(&job);
        // The workers of a farm wait for the rank that hands out tasks.
        let expected = if pattern == "farm" { vec![0, slow] } else { vec![slow] };
        assert!(expected.contains(&rank), "{pattern}: rank {rank} has {part:.2}\n{}", job.text());
    }
}

/// Minimum severity of the losses that are judged.
const MIN_SEVERITY: f64 = 0.05;
/// Minimum fraction of a chain's waiting that must lead to its origin.
const MIN_ORIGIN_SHARE: f64 = 0.4;

/// Asserts that each large loss is put down to rank `slow`, and that chains of waiting ranks begin
/// there.
#[track_caller]
fn assert_origin(job: &Outcome, slow: &str, what: &str) {
    let losses = job.summary().losses();
    let is_large = |loss: &&Loss<'_>| {
        // Polling slows no rank in particular.
        let is_polling = loss.kind() == "frequent_communication";
        loss.field("severity").as_f64() >= Some(MIN_SEVERITY) && !is_polling
    };
    let mut with_partners = 0;
    for loss in losses.iter().filter(is_large) {
        assert_eq!(loss.field("slow_ranks"), slow, "{what}: {}\n{}", loss.kind(), job.text());
        with_partners += usize::from(!loss.field("waits_for")[0]["ranks"].is_null());
        if loss.kind() == "wait_for_partner" {
            let origin = loss.field("origin");
            assert_eq!(origin["ranks"], slow, "{what}: {origin}\n{}", job.text());
            assert!(origin["share"].as_f64() > Some(MIN_ORIGIN_SHARE), "{what}: {origin}");
            assert!(!origin["node"].is_null(), "{what}: {origin}\n{}", job.text());
        }
    }
    assert!(with_partners > 0, "{what}\n{}", job.text());
}

/// In some of these patterns, ranks wait for partners that wait themselves.
fn assert_origins(mpi: Mpi) {
    needs!(mpi);
    // In `again`, ranks poll with MPI_Testall: two ranks of other MPIs would disturb each other.
    let polls = (mpi == Mpi::OpenMpi).then_some("again");
    for pattern in ["ring", "pipeline", "sweep", "farm", "halo", "server"].into_iter().chain(polls)
    {
        let job = Job::ranks("talks", mpi, ranks(mpi)).watch(Watch::Run);
        job.arguments(&format!("sleep 15 10 5 {pattern}")).run_until(|job| {
            let slow = (job.truth().number("slow") as u32).to_string();
            assert_origin(job, &slow, &format!("{mpi}, {pattern}"));
            if ["pipeline", "sweep"].contains(&pattern) {
                let chains = job.summary().losses_of("wait_for_partner");
                let loss = chains.first().unwrap_or_else(|| panic!("{pattern}\n{}", job.text()));
                assert_pattern(job, loss, "late_sender");
            }
        });
    }
}

#[test]
#[ignore = "long: scripts/test --all"]
fn waiting_begins_at_the_slow_rank_under_open_mpi() {
    assert_origins(Mpi::OpenMpi);
}

#[test]
#[ignore = "long: scripts/test --all"]
fn waiting_begins_at_the_slow_rank_under_mpich() {
    assert_origins(Mpi::Mpich);
}

#[test]
#[ignore = "long: scripts/test --all"]
fn waiting_begins_at_the_slow_rank_under_intel_mpi() {
    assert_origins(Mpi::Intel);
}

#[test]
#[ignore = "long: scripts/test --all"]
fn waiting_begins_at_the_slow_rank_in_fortran() {
    for (mpi, form) in [
        (Mpi::OpenMpi, Form::UseMpiF08),
        (Mpi::OpenMpi, Form::UseMpi),
        (Mpi::Mpich, Form::UseMpiF08),
        (Mpi::Mpich, Form::MpifH),
    ] {
        needs!(mpi);
        let job = Job::ranks("talks", mpi, ranks(mpi)).form(form).watch(Watch::Run);
        job.arguments("sleep 15 10 5 pipeline").run_until(|job| {
            assert_counted(job, &format!("{mpi}, {form:?}"));
            assert_origin(job, "0", &format!("{mpi}, {form:?}"));
        });
    }
}

/// Asserts that most of a loss's waiting has this pattern, and that little of it has the other one
/// or is unknown. On busy cores a part of it is transfer.
#[track_caller]
fn assert_pattern(job: &Outcome, loss: &Loss<'_>, pattern: &str) {
    let lateness = loss.field("lateness");
    assert_eq!(loss.field("pattern"), pattern, "{lateness}\n{}", job.text());
    let other = if pattern == "late_sender" { "late_receiver" } else { "late_sender" };
    for least in [other, "unknown"] {
        assert!(lateness[least].as_f64() < Some(0.15), "{least}: {lateness}\n{}", job.text());
    }
}

#[test]
#[ignore = "long: scripts/test --all"]
fn senders_wait_for_late_receivers() {
    for mpi in [Mpi::OpenMpi, Mpi::Mpich, Mpi::Intel].into_iter().filter(|it| it.available()) {
        let job = Job::ranks("talks", mpi, 2).arguments("sleep 10 40 4 handover");
        job.watch(Watch::Run).run_until(|job| {
            assert_counted(job, "handover");
            // Receivers have a task of their own, so that the loss may be one between groups.
            let losses = job.summary().losses();
            let is_in = |loss: &&Loss<'_>| loss.symptom_path().last() == Some(&"MPI_Ssend");
            let loss = losses.iter().find(is_in).unwrap_or_else(|| panic!("{}", job.text()));
            assert_pattern(job, loss, "late_receiver");
        });
    }
}

/// In sums over the run all ranks work alike.
#[test]
#[ignore = "long: scripts/test --all"]
fn a_slow_rank_of_a_halo_is_found_also_when_it_changes() {
    needs!(Mpi::OpenMpi);
    let job = Job::ranks("talks", Mpi::OpenMpi, 4).arguments("sleep 30 20 4 wander");
    job.watch(Watch::Run).run_until(|job| {
        let losses = job.summary().losses_of("wait_for_partner");
        let loss = losses.first().unwrap_or_else(|| panic!("{}", job.text()));
        assert_pattern(job, loss, "late_sender");
        let origin = loss.field("origin");
        assert_eq!((&origin["ranks"], &origin["changes"]), (&"0-3".into(), &true.into()));
        assert!(origin["share"].as_f64() > Some(0.6), "{origin}\n{}", job.text());
    });
}
