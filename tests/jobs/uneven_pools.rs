//! Threads of a pool outside of OpenMP that work unevenly while the initial thread waits for them.

use plimsoll_tests::mpi::{Mpi, needs};
use plimsoll_tests::outcome::Outcome;
use plimsoll_tests::subject::Form;
use plimsoll_tests::subject_job::{Job, Watch};
use plimsoll_tests::truth::assert_within;

const TOLERANCE: f64 = 0.10;

fn pool(job: Job, how: &str, check: impl Fn(&Outcome)) {
    let job = job.form(Form::Cxx).arguments(&format!("sleep 20 10 3 {how}"));
    job.watch(Watch::Run).run_until(check);
}

#[track_caller]
fn assert_uneven(job: &Outcome) {
    let truth = job.truth();
    let losses = job.summary().losses();
    let largest = losses.first().unwrap_or_else(|| panic!("no loss: {}", job.text()));
    assert_eq!(Some(largest.kind()), truth.text("loss"), "{}", job.text());
    assert_within("loss", largest.seconds(), truth.number("expected_loss_s"), TOLERANCE);
    let (path, cause) = (largest.cause_path(), truth.text("cause").expect("there is a cause"));
    assert!(path.iter().any(|it| it.contains(cause)), "{cause} is not in {path:?}");
    let advice = largest.field("advice").as_str().expect("there is advice");
    assert!(advice.contains("pool::serve, the slowest of 4 threads"), "{advice}");
    let text = job.text();
    assert!(!text.contains("No verdict") && !text.contains("There may be more"), "{text}");
}

#[test]
fn uneven_threads_of_a_pool_are_a_loss_and_even_ones_are_not() {
    pool(Job::alone("uneven_pool"), "uneven", assert_uneven);
    for how in ["even", "helper"] {
        pool(Job::alone("uneven_pool"), how, |job| {
            assert!(job.summary().losses_of("thread_imbalance").is_empty(), "{}", job.text());
        });
    }
    needs!(Mpi::OpenMpi);
    pool(Job::ranks("uneven_pool", Mpi::OpenMpi, 2), "uneven", assert_uneven);
}
