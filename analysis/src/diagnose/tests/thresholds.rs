//! Tests of the thresholds from both sides: a change of one by a tenth changes a verdict here.

use super::*;
use crate::summary::TreeNode;

/// A microsecond, in nanoseconds.
const US: u64 = 1_000;

/// Returns the node of the summary's tree at a path.
fn at<'a>(summary: &'a Summary, wanted: &str) -> &'a TreeNode {
    let mut nodes = (0..).zip(&summary.tree.nodes);
    let found = nodes.find(|(node, _)| path(&summary.tree.path(*node)) == wanted);
    found.unwrap_or_else(|| panic!("no {wanted}")).1
}

/// A run of 10 s; evenly spread work on its two ranks would shorten each step of 100 ms by
/// `lost_us`.
fn losing(lost_us: u64) -> Subject {
    let mut subject = Subject::new(2);
    subject.step(BARRIER, |_| vec![]);
    for _ in 0..100 {
        subject.step(BARRIER, |rank| {
            let less_ns = if rank == 0 { 2 * lost_us * US } else { 0 };
            vec![doing("main/assemble", 100 * MS - less_ns)]
        });
    }
    subject
}

#[test]
fn a_loss_is_more_than_a_hundredth_of_the_run() {
    assert_eq!(rounded(only_loss(&verdict(&losing(1050))).severity), 0.0105);
    assert_eq!(verdict(&losing(950)).losses, []);
}

/// Returns the functions named by the only segment of a run of 1 s. Uneven work costs a tenth of
/// the run, and every rank waits in MPI_Recv for `wait_us` in total, half of that below the call.
fn named_beside_a_wait(wait_us: u64) -> Vec<String> {
    let mut subject = Subject::new(2);
    subject.step(BARRIER, |_| vec![]);
    for _ in 0..10 {
        subject.step(BARRIER, |rank| {
            let wait_ns = wait_us * US / 10;
            let work_ns = if rank == 0 { 80 * MS } else { 100 * MS - wait_ns };
            vec![
                doing("main/assemble", work_ns),
                doing("main/MPI_Recv", wait_ns / 2),
                doing("main/MPI_Recv/libmpi.so.40+0x10", wait_ns / 2),
            ]
        });
    }
    let summary = verdict(&subject);
    let [segment] = &summary.segments[..] else { panic!("{:#?}", summary.segments) };
    segment.nodes.iter().map(|node| path(&summary.tree.path(*node))).collect()
}

#[test]
fn a_segment_names_calls_that_wait_for_a_thousandth_of_the_run() {
    assert_eq!(named_beside_a_wait(1050), ["main/assemble", "main/MPI_Recv"]);
    assert_eq!(named_beside_a_wait(950), ["main/assemble"]);
}

/// Returns whether `main/relax` is balanced on two ranks that spend 40 ms there on average, one
/// `more_us` more and one `more_us` less. The time of main varies by a quarter: 1 s and 0.6 s.
fn is_balanced(more_us: u64) -> bool {
    let mut subject = Subject::new(2);
    subject.step(BARRIER, |_| vec![]);
    subject.step(BARRIER, |rank| match rank {
        0 => vec![
            doing("main/relax", 40 * MS + more_us * US),
            doing("main/solve", 960 * MS - more_us * US),
        ],
        _ => vec![
            doing("main/relax", 40 * MS - more_us * US),
            doing("main/solve", 560 * MS + more_us * US),
            doing("helper", 400 * MS),
        ],
    });
    at(&verdict(&subject), "main/relax").balanced.unwrap()
}

#[test]
fn a_balanced_context_varies_little_more_than_the_root() {
    // 1.1 times a quarter, plus a sampling period of 4 ms in 40 ms, plus a hundredth: 0.385 of 40
    // ms.
    assert!(is_balanced(15_380));
    assert!(!is_balanced(15_420));
}

/// Four ranks that wait 100, 200, 300 and 600 ms in MPI_Recv; each copies for 50 ms of that time.
fn idle() -> Summary {
    let mut subject = Subject::new(4);
    subject.step(BARRIER, |_| vec![]);
    subject.step(BARRIER, |rank| {
        let in_call = [100, 200, 300, 600][rank as usize] * MS;
        vec![
            doing("main/solve", 1000 * MS - in_call),
            doing("main/take/MPI_Recv", in_call - 50 * MS),
            doing("main/take/MPI_Recv/opal_memcpy", 50 * MS),
        ]
    });
    verdict(&subject)
}

#[test]
fn idleness_is_time_in_calls_that_wait_less_what_they_copy() {
    let summary = idle();
    // 300 ms on average, minus 50 ms of copying.
    for (path, truth) in [
        ("main", 0.25),
        ("main/solve", 0.0),
        ("main/take", 0.25),
        ("main/take/MPI_Recv", 0.25),
        ("main/take/MPI_Recv/opal_memcpy", 0.0),
    ] {
        assert_eq!(at(&summary, path).idle_s.map(rounded), Some(truth), "{path}");
    }
}

#[test]
fn blame_is_the_mean_idleness_of_the_ranks() {
    let summary = idle();
    // Ranks take equally long in main, but not in its callees.
    assert_eq!(at(&summary, "main").balanced, Some(true));
    assert_eq!(at(&summary, "main/take").balanced, Some(false));
    assert_eq!(at(&summary, "main").blame_exclusive_s.map(rounded), Some(0.25));
    assert_eq!(at(&summary, "main/take").blame_inclusive_s.map(rounded), Some(0.0));
}

/// Returns the losses of a run of 0.3 s that even work would shorten by 6 ms, with a requested
/// sampling period of 4 ms and an effective period of `kept_ms`.
fn losses_at_period(kept_ms: u64) -> Vec<Loss> {
    let mut subject = Subject::new(2);
    subject.step(BARRIER, |_| vec![]);
    subject.step(BARRIER, |rank| {
        vec![doing("main/assemble", if rank == 0 { 288 * MS } else { 300 * MS })]
    });
    let mut inputs = subject.inputs();
    for input in &mut inputs {
        input.profile.kept_period_ns = kept_ms * MS;
    }
    diagnose_alone(inputs, &job()).unwrap().losses
}

#[test]
fn a_loss_is_at_least_a_sampling_period_that_the_timers_keep() {
    assert_eq!(losses_at_period(4).len(), 1);
    assert_eq!(losses_at_period(10), []);
}
