//! Times of losses, and the thresholds that decide about losses.

use super::*;
use crate::summary::{When, WhenKind};
use crate::synthetic_run::calling;

/// A hundred steps; in each the last rank takes `longer_ms(step)` longer.
fn steps(longer_ms: impl Fn(u64) -> u64) -> Subject {
    let mut subject = Subject::new(4);
    for step in 0..100 {
        let longer_ms = longer_ms(step);
        subject.step(BARRIER, |rank| {
            let more = if rank == 3 { longer_ms } else { 0 };
            vec![doing("main/solve", (20 + more) * MS)]
        });
    }
    subject
}

fn happens(subject: &Subject) -> Option<When> {
    only_loss(&verdict(subject)).when
}

#[test]
fn a_hiccup_is_confined_to_its_time() {
    let when = happens(&steps(|step| if step == 60 { 300 } else { 0 })).unwrap();
    assert_eq!(when.kind, WhenKind::Confined);
    // The slow step starts with 20 ms of even work; the loss begins at 1.22 s. Windows are 24 ms
    // long.
    assert!((when.from_s - 1.22).abs() < 0.05 && (when.to_s - 1.5).abs() < 0.06, "{when:?}");
    assert!(when.share >= 0.85 && when.share <= 1.0, "{when:?}");
}

#[test]
fn losses_of_all_steps_are_steady_or_grow() {
    let steady = happens(&steps(|_| 10)).unwrap();
    assert_eq!(steady.kind, WhenKind::Steady);
    assert!(steady.from_s < 0.1 && steady.to_s > 2.9, "{steady:?}");
    assert_eq!(happens(&steps(|step| step / 5)).map(|when| when.kind), Some(WhenKind::Growing));
    // Steady decrease is neither.
    assert_eq!(happens(&steps(|step| 20 - step / 5)), None);
}

#[test]
fn waits_at_all_places_of_a_synchronisation_are_one_loss_in_time() {
    let mut subject = Subject::new(4);
    let place = |rank| if rank == 0 { "main/loop/MPI_Barrier" } else { "main/MPI_Barrier" };
    for _ in 0..100 {
        let work_ms = |rank| if rank == 0 { 30 } else { 20 };
        subject.step_of_sites(place, |rank| vec![doing("main/solve", work_ms(rank) * MS)]);
    }
    let steady = happens(&subject).unwrap();
    assert_eq!(steady.kind, WhenKind::Steady);
    assert!(steady.from_s < 0.1 && steady.to_s > 2.9, "{steady:?}");
}

#[test]
fn the_summary_has_the_smallest_losses_that_were_in_force() {
    let fraction = |subject: &Subject, name: &str| {
        let summary = verdict(subject);
        rounded(summary.thresholds[name] / summary.run.elapsed_s)
    };
    let steady = steps(|_| 10);
    assert_eq!(fraction(&steady, "min_loss_s"), 0.01);
    assert_eq!(fraction(&steady, "min_communication_loss_s"), 0.01);
    // In a run of 200 ms, losses shorter than a period of 4 ms are not reported.
    let mut short = Subject::new(4);
    short.step(BARRIER, |_| vec![doing("main/solve", 200 * MS)]);
    assert_eq!(fraction(&short, "min_loss_s"), 0.02);
    // If ranks share cores, the threshold for communication losses is higher.
    let mut crowded = steps(|_| 0);
    crowded.cores = vec![0, 1];
    assert_eq!(fraction(&crowded, "min_communication_loss_s"), 0.05);
}

/// A thousand steps without a synchronisation of all ranks. For fifty steps each, another rank
/// works for 4 ms, and the others for 1 ms. All ranks spend the rest of a step in `call`, and
/// `even_ms`.
fn hot_spot(call: &'static str, even_ms: u64) -> Summary {
    let mut subject = Subject::new(4);
    let parts = |rank: u32| {
        let step = |step: u32| {
            let work_ms = if step / 50 % 4 == rank { 4 } else { 1 };
            let call = calling(call, (4 - work_ms + even_ms) * MS, 1, 8);
            [doing("main/loop/push", work_ms * MS), call]
        };
        (0..1000).flat_map(step).collect()
    };
    subject.step(BARRIER, parts);
    verdict(&subject)
}

#[test]
fn work_that_moves_from_rank_to_rank_is_uneven() {
    // The function that makes the calls may do nothing else.
    let calls = ["MPI_Neighbor_alltoall", "MPI_Waitall", "migrate/MPI_Waitall"];
    for call in calls.map(|call| format!("main/loop/{call}").leak()) {
        let summary = hot_spot(call, 0);
        let loss = only_loss(&summary);
        assert_eq!((loss.kind, loss.by_turns), (LossKind::LoadImbalance, true), "{call}");
        assert_eq!(rounded(loss.seconds), 2.25);
        assert_eq!((&*loss.slow_ranks, &*loss.waiting_ranks), ("", "0-3"));
        assert_eq!(causes(loss), [("main/loop/push".to_owned(), 2.25)]);
        assert!(loss.advice.contains("Even out each step's work"), "{}", loss.advice);
    }
}

#[test]
fn half_of_the_time_in_calls_is_uneven_if_work_moves() {
    // 2.25 ms of the calls of a step are waiting for the slow rank.
    for (even_ms, kind) in [(2, LossKind::LoadImbalance), (3, LossKind::FrequentCommunication)] {
        let summary = hot_spot("main/loop/MPI_Neighbor_alltoall", even_ms);
        assert_eq!(only_loss(&summary).kind, kind, "{even_ms}");
    }
}

/// Pairs of ranks poll in turn while the others wait for them: nobody works meanwhile.
#[test]
fn ranks_that_take_turns_at_calls_have_no_uneven_work() {
    for call in ["main/loop/MPI_Test", "main/loop/MPI_Neighbor_alltoall"] {
        let mut subject = Subject::new(4);
        let parts = |rank: u32| {
            let step = |step: u32| {
                let is_turn = step / 50 % 2 == rank / 2;
                let wait = calling("main/loop/MPI_Recv", 4 * MS, 1, 8);
                let part = if is_turn { calling(call, 4 * MS, 10, 8) } else { wait };
                [doing("main/loop/push", MS), part]
            };
            (0..1000).flat_map(step).collect()
        };
        subject.step(BARRIER, parts);
        let summary = verdict(&subject);
        let is_imbalance = |loss: &Loss| loss.kind == LossKind::LoadImbalance;
        assert!(!summary.losses.iter().any(is_imbalance), "{call}: {:?}", summary.losses);
    }
}
