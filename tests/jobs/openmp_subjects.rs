//! The subjects with threads alone: their truths must hold without Plimsoll, in each language and
//! under each OpenMP runtime. These tests do not need the library.

use plimsoll_tests::mpi::{Mpi, needs};
use plimsoll_tests::openmp_runtime::{Language, OpenMpRuntime, team};
use plimsoll_tests::outcome::Outcome;
use plimsoll_tests::subject::Form;
use plimsoll_tests::subject_job::Job;
use plimsoll_tests::truth::{Truth, assert_within};

const KINDS: [&str; 10] = [
    "static", "dynamic", "guided", "even", "serial", "critical", "convoy", "tasks", "regions",
    "nested",
];

const THREADS: u32 = 4;
const ITERATIONS: f64 = 5.0;
/// Work of one piece, in seconds.
const PIECE_S: f64 = 0.010;
/// Factor by which a slow piece takes longer.
const FACTOR: f64 = 3.0;

/// Sleeps are exact to the scheduler's delay, some tenths of a millisecond each.
const SLEEP_TOLERANCE: f64 = 0.06;
/// Threads that queue for a lock do not come in a fixed order, and do not queue at the end.
const QUEUE_TOLERANCE: f64 = 0.25;

fn arguments(how: &str) -> String {
    format!("sleep {ITERATIONS} {} {FACTOR} {how}", PIECE_S * 1e3)
}

fn alone(subject: &str, language: Language, runtime: OpenMpRuntime, how: &str) -> Job {
    let job = Job::alone(subject).form(Form::OpenMp(language, runtime));
    team(job.arguments(&arguments(how)).variable("OMP_CANCELLATION", "true"), THREADS)
}

/// Asserts what a kind's truth says of threads, instances and losses, by the kind's definition.
fn assert_kind(kind: &str, truth: &Truth) {
    let threads = f64::from(THREADS);
    let times_s = |pieces: f64| ITERATIONS * pieces * PIECE_S;
    let assert_loss = |kind: Option<&str>, loss_s: f64, tolerance: f64| {
        assert_eq!(truth.text("loss"), kind);
        assert_within("loss", truth.number("expected_loss_s"), loss_s, tolerance);
    };
    let assert_work = |work_s: f64| {
        let found_s: f64 = truth.numbers("work_s").iter().sum();
        assert_within("work of all threads", found_s, work_s, SLEEP_TOLERANCE);
    };
    let instances = match kind {
        "critical" | "convoy" => 1.0,
        "nested" => 2.0 * ITERATIONS,
        "regions" => 1000.0 * FACTOR * ITERATIONS,
        _ => ITERATIONS,
    };
    assert_eq!(truth.number("threads"), threads, "{kind}");
    assert_eq!(truth.number("instances"), instances, "{kind}");
    match kind {
        "static" | "nested" => {
            let mean = 2.0 * (threads - 1.0 + FACTOR) / threads;
            let loss_s = times_s(2.0 * FACTOR - mean);
            assert_loss(Some("thread_imbalance"), loss_s, SLEEP_TOLERANCE);
        }
        "even" => {
            assert_eq!((truth.text("loss"), truth.text("cause")), (None, None));
            assert!(truth.number("imbalance_s") < 0.05 * truth.number("region_s"));
        }
        "dynamic" => {
            assert_work(times_s(2.0 * threads + FACTOR));
            // libomp deals the iterations out first and lets threads steal from each other.
            assert!(truth.number("expected_loss_s") > times_s(FACTOR / 3.0), "{truth:?}");
        }
        "guided" => {
            assert_work(times_s(8.0 * threads - 4.0 + 16.0 * FACTOR));
            // One thread has all slow iterations.
            let mean = (8.0 * threads - 4.0 + 16.0 * FACTOR) / threads;
            assert!(truth.number("expected_loss_s") > 0.9 * times_s(16.0 * FACTOR - mean));
        }
        "serial" => {
            let loss_s = times_s(FACTOR) * (threads - 1.0) / threads;
            assert_loss(Some("serial_section"), loss_s, SLEEP_TOLERANCE);
        }
        "critical" => {
            let loss_s = times_s(threads - 1.0 - 0.1);
            assert_loss(Some("lock_contention"), loss_s, QUEUE_TOLERANCE);
        }
        "convoy" => {
            let loss_s = times_s(threads * FACTOR - FACTOR - 2.0);
            assert_loss(Some("lock_contention"), loss_s, QUEUE_TOLERANCE);
        }
        _ => {
            assert_eq!(truth.number("pieces"), 1000.0 * FACTOR * ITERATIONS);
            let loss = truth.text("loss").unwrap_or_default();
            assert!(loss.starts_with("fine_grained_") && loss.ends_with(kind), "{loss}");
        }
    }
}

/// Asserts that the truth names a line with a construct of OpenMP.
fn assert_line(job: &Outcome) {
    let truth = job.truth();
    let file = truth.text("file").expect("a subject with OpenMP names its file");
    let path = plimsoll_tests::artifacts::workspace_dir().join("tests/programs").join(file);
    let source = std::fs::read_to_string(&path).expect("the subject was compiled");
    let line = source.lines().nth(truth.number("line") as usize - 1).unwrap_or_default();
    let construct = line.trim_start();
    let is_region = construct.starts_with("#pragma omp parallel")
        || construct.starts_with("!$omp parallel")
        || construct.starts_with("#pragma omp target");
    assert!(is_region, "{file} names {line:?} as a region");
}

#[test]
#[ignore = "long: scripts/test --all"]
fn each_kind_of_loss_is_what_its_subject_says() {
    for runtime in OpenMpRuntime::ALL.into_iter().filter(|runtime| runtime.available()) {
        for language in Language::ALL {
            // In C under each runtime, in the other languages under GCC's and one of each kind of
            // construct under the others.
            let all = language == Language::C || runtime == OpenMpRuntime::Gomp;
            let kinds = if all { &KINDS[..] } else { &["static", "critical", "tasks", "nested"] };
            for kind in kinds {
                let job = alone("openmp_kinds", language, runtime, kind);
                let job = job.run_until(|job| assert_kind(kind, &job.truth()));
                assert_line(&job);
                let checksum = if matches!(*kind, "critical" | "convoy") { 1 } else { 15 };
                let expected =
                    format!("openmp_kinds {kind}: 1 ranks, 5 iterations, checksum {checksum}\n");
                assert_eq!(job.stdout(), expected, "{language:?}, {runtime}");
            }
        }
    }
}

#[test]
#[ignore = "long: scripts/test --all"]
fn less_usual_regions_are_what_their_subject_says() {
    for runtime in OpenMpRuntime::ALL.into_iter().filter(|runtime| runtime.available()) {
        for (shape, threads, instances) in [
            ("cancel", THREADS, 5),
            // Of 1, 2, 3, 4 and 1 threads, the last one by a clause.
            ("changes", THREADS, 4),
            ("in_tasks", 2, 4 * 5),
            ("target", THREADS, 5),
            ("sections", 3, 5),
            ("ordered", THREADS, 5),
            ("single", THREADS, 5),
            ("nest_lock", THREADS, 5),
        ] {
            let job = alone("openmp_shapes", Language::C, runtime, shape).run().succeeded();
            let truth = job.truth();
            assert_eq!(truth.number("threads"), f64::from(threads), "{shape}, {runtime}");
            assert_eq!(truth.number("instances"), f64::from(instances), "{shape}, {runtime}");
            assert_line(&job);
        }
        let job = alone("openmp_shapes", Language::C, runtime, "stop").run().succeeded();
        assert_eq!(job.stdout(), "", "a worker has ended the process");
    }
}

#[test]
#[ignore = "long: scripts/test --all"]
fn regions_communicate_at_each_level_of_threads() {
    needs!(Mpi::OpenMpi);
    for runtime in OpenMpRuntime::ALL.into_iter().filter(|runtime| runtime.available()) {
        for how in ["funneled", "serialized", "multiple", "uneven"] {
            let job = Job::ranks("openmp_ranks", Mpi::OpenMpi, 4)
                .form(Form::OpenMp(Language::C, runtime))
                .arguments(&arguments(how));
            let job = team(job, 2).run_until(|job| {
                let truth = job.truth();
                if how == "uneven" {
                    // One of the two threads of the last rank.
                    let loss_s = ITERATIONS * PIECE_S * (FACTOR - 1.0) / 2.0;
                    assert_within("loss", truth.number("expected_loss_s"), loss_s, 0.15);
                } else if how == "funneled" {
                    // Three of four ranks wait for the last one.
                    let waited_s = ITERATIONS * PIECE_S * FACTOR * 3.0 / 4.0;
                    assert_within("in MPI", truth.number("waited_s"), waited_s, 0.15);
                }
            });
            assert_line(&job);
            let expected = format!("openmp_ranks {how}: 4 ranks, 5 iterations, checksum 150\n");
            assert_eq!(job.stdout(), expected, "{runtime}");
        }
    }
}

#[test]
fn workers_of_a_pool_wait_while_the_initial_thread_prepares() {
    let job = Job::alone("thread_pool").form(Form::Cxx).arguments("sleep 10 10 2 3");
    job.run_until(|job| {
        let truth = job.truth();
        assert_within("work alone", truth.number("prepared_s"), 0.100, SLEEP_TOLERANCE);
        for (work_s, idle_s) in truth.numbers("work_s").into_iter().zip(truth.numbers("idle_s")) {
            assert_within("work of a worker", work_s, 0.200, SLEEP_TOLERANCE);
            assert_within("idleness of a worker", idle_s, 0.100, 0.15);
        }
    });
}
