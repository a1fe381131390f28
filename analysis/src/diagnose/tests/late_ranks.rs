//! Waiting for partners that no messages name: in collectives, in one-sided calls, and for other
//! jobs.

use plimsoll_collector::profile::{PartnerValue, UNKNOWN_PARTNER};
use plimsoll_report::text;

use super::*;
use crate::phrase::TIED;
use crate::synthetic_run::{Doing, calling};

/// Returns the largest loss by waiting for partners.
fn of_partners(summary: &Summary) -> &Loss {
    let mut losses = summary.losses.iter();
    losses.find(|loss| loss.kind == LossKind::WaitForPartner).expect("a wait for partners")
}

/// Returns the contexts that a loss names as causes, with their groups.
fn named(loss: &Loss) -> Vec<(String, Option<u32>)> {
    loss.causes.iter().map(|cause| (path(&cause.path), cause.group)).collect()
}

/// Ranks 1-3 wait in a broadcast for rank 0, which has its input to make, and have 40 ms more to do
/// after the broadcast: all ranks work equally long.
fn late_root(call: &'static str) -> Summary {
    verdict(&ten_steps(4, |rank| match rank {
        0 => vec![doing("main/step/make_input", 40 * MS), doing("main/step/solve", 60 * MS)],
        _ => vec![
            calling(call, 40 * MS, 1, 0),
            doing("main/step/solve", 60 * MS),
            doing("main/step/sort", 40 * MS),
        ],
    }))
}

#[test]
fn the_work_that_keeps_a_root_from_its_broadcast_is_the_cause() {
    for (call, remedy) in [
        ("main/MPI_Bcast", "begin the call as a nonblocking one"),
        ("main/step/MPI_Bcast", "begin the call as a nonblocking one"),
        ("main/step/MPI_Win_fence", "begin the call as a nonblocking one"),
        ("main/step/MPI_Win_flush", "before its target calls MPI"),
    ] {
        let summary = late_root(call);
        let loss = of_partners(&summary);
        assert_eq!(path(&loss.symptom.path), call);
        // 40 ms on rank 0, 10 ms on average.
        assert_eq!(causes(loss), [("main/step/make_input".to_owned(), 0.3)]);
        assert_eq!((&*loss.slow_ranks, &*loss.waiting_ranks), ("0", "1-3"));
        let advice = loss.advice.replace(TIED, " ");
        let sentence = "ranks 1-3 wait for rank 0, which is still in make_input (0.400 s)";
        assert!(advice.contains(sentence) && !advice.contains("equally long"), "{advice}");
        assert!(advice.contains(remedy), "{advice}");
        let caused_by = "make_input on rank 0, while others wait (75 % of the loss)";
        assert!(text(&summary).contains(caused_by), "{}", text(&summary));
    }
}

#[test]
fn a_rank_is_late_in_work_that_all_ranks_have_but_it_has_more() {
    let summary = verdict(&ten_steps(4, |rank| {
        let (before_ms, after_ms) = if rank == 0 { (80, 20) } else { (40, 60) };
        vec![
            doing("main/make_input", before_ms * MS),
            calling("main/MPI_Bcast", (80 - before_ms) * MS, 1, 0),
            doing("main/sort", after_ms * MS),
        ]
    }));
    let loss = of_partners(&summary);
    assert_eq!(causes(loss), [("main/make_input".to_owned(), 0.3)]);
    assert_eq!((&*loss.slow_ranks, &*loss.waiting_ranks), ("0", "1-3"));
    assert_eq!((rounded(loss.causes[0].mean_s), loss.causes[0].max_s), (0.5, 0.8));
}

#[test]
fn a_cause_is_named_at_the_depth_that_explains_it() {
    // The kernels of the input explain it only together.
    let summary = verdict(&ten_steps(4, |rank| match rank {
        0 => vec![
            doing("main/make_input", 16 * MS),
            doing("main/make_input/read_mesh", 24 * MS),
            doing("main/solve", 60 * MS),
        ],
        _ => vec![
            calling("main/MPI_Bcast", 40 * MS, 1, 0),
            doing("main/solve", 60 * MS),
            doing("main/sort", 40 * MS),
        ],
    }));
    assert_eq!(named(of_partners(&summary)), [("main/make_input".to_owned(), Some(0))]);
}

#[test]
fn ranks_that_wait_evenly_in_a_collective_wait_for_an_unknown_cause() {
    for call in ["main/step/MPI_Bcast", "main/MPI_Allreduce", "main/step/MPI_Win_start"] {
        let summary = verdict(&ten_steps(4, |rank| {
            // Nearly alike: no rank is late by a hundredth.
            let work_ns = 100 * MS + u64::from(rank) * MS / 4;
            vec![doing("main/step", work_ns), calling(call, 40 * MS, 1, 0)]
        }));
        let loss = of_partners(&summary);
        assert_eq!((causes(loss), &*loss.slow_ranks), (vec![], ""), "{call}");
        assert!(loss.advice.contains("the cause is not known"), "{}", loss.advice);
        assert!(!loss.advice.contains("equally long"), "{}", loss.advice);
        assert!(text(&summary).contains("Caused by  not known"), "{}", text(&summary));
    }
}

#[test]
fn a_late_rank_waits_less_than_half_as_long_as_those_that_wait_for_it() {
    let found = |waited_ms: u64| {
        let summary = verdict(&ten_steps(4, |rank| match rank {
            0 => vec![
                calling("main/MPI_Bcast", waited_ms * MS, 1, 0),
                doing("main/make_input", 40 * MS),
                doing("main/solve", 60 * MS),
            ],
            _ => vec![
                calling("main/MPI_Bcast", 60 * MS, 1, 0),
                doing("main/solve", 60 * MS),
                doing("main/sort", 40 * MS),
            ],
        }));
        named(of_partners(&summary)).len()
    };
    assert_eq!((found(29), found(31)), (1, 0));
}

/// Ranks 1 and 2 begin to access the window of rank 0, which posts it late; rank 3 has a task of
/// its own. All work equally long.
fn late_target(of_target: &'static str) -> Summary {
    verdict(&ten_steps(4, |rank| match rank {
        0 => vec![
            doing("main/late_part", 40 * MS),
            calling("main/MPI_Win_wait", MS, 1, 0),
            doing(of_target, 60 * MS),
        ],
        3 => vec![doing("main/other_task", 100 * MS)],
        _ => vec![calling("main/MPI_Win_start", 40 * MS, 1, 0), doing("main/group_work", 100 * MS)],
    }))
}

#[test]
fn a_group_that_waits_for_its_late_member_does_not_wait_for_work_that_all_do() {
    let summary = late_target("main/group_work");
    let loss = of_partners(&summary);
    assert_eq!(path(&loss.symptom.path), "main/MPI_Win_start");
    assert_eq!(named(loss), [("main/late_part".to_owned(), Some(0))]);
    assert_eq!((&*loss.slow_ranks, &*loss.waiting_ranks), ("0", "1-2"));
}

#[test]
fn a_group_may_wait_for_a_rank_of_another_group() {
    let summary = late_target("main/target_work");
    let loss = of_partners(&summary);
    let first = &loss.causes[0];
    assert_eq!((&*path(&first.path), first.max_s), ("main/late_part", 0.4));
    assert_eq!((&*loss.slow_ranks, &*loss.waiting_ranks), ("0", "1-2"));
    assert!(causes(loss).iter().all(|it| it.0 != "main/group_work"), "{:?}", causes(loss));
    // Other functions may be the cause, too, and share the loss.
    let shares: f64 = loss.causes.iter().map(|cause| cause.share).sum();
    assert!(loss.causes.len() > 1 && shares < 1.0 + 1e-9, "{:?}", causes(loss));
    let advice = loss.advice.replace(TIED, " ");
    assert!(advice.contains("for rank 0, which may be in late_part"), "{advice}");
}

/// Four ranks that receive from each other or from a spawned job, and work in the function that
/// receives.
fn received_from(partner: impl Fn(u32) -> u32) -> Summary {
    let subject = ten_steps(4, |rank| {
        let before = u64::from(rank) * 50 * MS;
        vec![doing("main/sweep/MPI_Recv", before), doing("main/sweep/block", 50 * MS)]
    });
    let mut inputs = subject.inputs();
    for input in &mut inputs {
        let name = |node: u32| &input.profile.tree.frame_of(node).function;
        let mut nodes = 0..input.profile.tree.nodes.len() as u32;
        let Some(node) = nodes.find(|node| name(*node) == "MPI_Recv") else { continue };
        let (partner, waited_ns) = (partner(input.rank), u64::from(input.rank) * 500 * MS);
        let value = PartnerValue { node, partner, sent: 0, bytes: 8, received: 10, waited_ns };
        input.profile.partners.push(value);
    }
    diagnose_alone(inputs, &job()).unwrap()
}

#[test]
fn a_stage_waits_for_ranks_of_its_job() {
    let among_ranks = received_from(|rank| rank.saturating_sub(1));
    assert_eq!(named(of_partners(&among_ranks)), [("main/sweep/block".to_owned(), None)]);
    let from_another_job = received_from(|_| UNKNOWN_PARTNER);
    let loss = of_partners(&from_another_job);
    assert_eq!(named(loss), []);
    assert!(loss.advice.contains("processes outside of the job"), "{}", loss.advice);
}

#[test]
fn messages_to_the_outermost_function_wait_for_its_only_work() {
    let found = |second: &[Doing]| {
        let summary = verdict(&ten_steps(4, |rank| {
            let wait = doing("main/MPI_Recv", u64::from(rank) * 50 * MS);
            [&[wait, doing("main/block", 50 * MS)], second].concat()
        }));
        named(of_partners(&summary))
    };
    assert_eq!(found(&[]), [("main/block".to_owned(), None)]);
    assert_eq!(found(&[doing("main/filter", 4 * MS)]), [("main/block".to_owned(), None)]);
    assert_eq!(found(&[doing("main/filter", 50 * MS)]), []);
}
