//! Slow nodes and cores, as opposed to uneven programs.

use super::*;
use crate::synthetic_run::{Doing, calling};

pub(super) const KERNELS: [(&str, u64); 4] =
    [("main/push", 40), ("main/deposit", 30), ("main/solve", 20), ("main/smooth", 10)];

/// Eight ranks on two nodes, ranks 4 to 7 on the second. Each step takes 100 ms of work where
/// `factor` is 1; it gets rank and kernel.
pub(super) fn two_nodes(factor: impl Fn(u32, usize) -> f64) -> Subject {
    let mut subject = ten_steps(8, |rank| {
        let kernel = |(at, (path, ms)): (usize, &(&'static str, u64))| {
            doing(path, (factor(rank, at) * (ms * MS) as f64) as u64)
        };
        KERNELS.iter().enumerate().map(kernel).collect()
    });
    subject.host = |rank| if rank < 4 { "sloop" } else { "ketch" };
    subject
}

fn on_ketch(rank: u32) -> f64 {
    if rank < 4 { 1.0 } else { 1.5 }
}

#[track_caller]
fn assert_imbalance(subject: &Subject) {
    let summary = verdict(subject);
    let kinds: Vec<LossKind> = summary.losses.iter().map(|loss| loss.kind).collect();
    assert_eq!(kinds, [LossKind::LoadImbalance]);
    assert_eq!((&summary.losses[0].node, summary.losses[0].factor), (&None, None));
}

#[test]
fn a_node_that_is_slow_in_all_contexts_is_the_loss_and_no_context_is() {
    let summary = verdict(&two_nodes(|rank, _| on_ketch(rank)));
    let loss = only_loss(&summary);
    assert_eq!((loss.kind, loss.node.as_deref()), (LossKind::SlowNode, Some("ketch")));
    assert_eq!(loss.factor.map(rounded), Some(1.5));
    assert_eq!((&*loss.slow_ranks, &*loss.waiting_ranks), ("4-7", "0-3"));
    assert_eq!(loss.causes, []);
    assert_eq!(path(&loss.symptom.path), BARRIER);
    // Ten steps take 150 ms each, and 100 ms with equal nodes.
    assert_eq!((rounded(loss.seconds), rounded(summary.projection.elapsed_s)), (0.5, 1.0));
    assert!(
        loss.advice.contains("1.50 times as long on node ketch (ranks 4-7)"),
        "{}",
        loss.advice
    );
    assert_eq!(summary.thresholds["min_slow_factor"], 1.1);
}

#[test]
fn several_slow_nodes_share_what_they_cost_together() {
    let mut subject = two_nodes(|rank, _| if rank >= 6 { 1.5 } else { 1.0 });
    subject.host = |rank| ["sloop", "brig", "yawl", "ketch"][rank as usize / 2];
    let summary = verdict(&subject);
    assert_eq!(only_loss(&summary).node.as_deref(), Some("ketch"));
    let mut subject = two_nodes(|rank, _| if rank >= 4 { 1.5 } else { 1.0 });
    subject.host = |rank| ["sloop", "brig", "yawl", "ketch"][rank as usize / 2];
    let summary = verdict(&subject);
    let found = summary.losses.iter().map(|loss| (loss.kind, rounded(loss.seconds)));
    let half = (LossKind::SlowNode, 0.25);
    assert_eq!(found.collect::<Vec<_>>(), [half, half]);
    assert_eq!(rounded(summary.projection.elapsed_s), 1.0);
}

#[test]
fn uneven_programs_are_no_slow_nodes() {
    // One kernel is slow on one node.
    assert_imbalance(&two_nodes(|rank, kernel| if kernel == 1 { on_ketch(rank) } else { 1.0 }));
    // Each kernel by another factor.
    assert_imbalance(&two_nodes(|rank, kernel| match kernel {
        _ if rank < 4 => 1.0,
        0 => 1.5,
        1 => 1.8,
        2 => 1.2,
        _ => 1.4,
    }));
    // Each rank of the node by another factor.
    assert_imbalance(&two_nodes(|rank, _| [1.0, 1.0, 1.0, 1.0, 1.3, 1.5, 1.7, 1.9][rank as usize]));
    // Three of the node's four ranks.
    assert_imbalance(&two_nodes(|rank, _| if rank >= 5 { 1.5 } else { 1.0 }));
    // A rank of another node, too.
    assert_imbalance(&two_nodes(|rank, _| if rank == 0 { 1.5 } else { on_ketch(rank) }));
    // Ranks of both nodes.
    assert_imbalance(&two_nodes(|rank, _| if rank % 4 >= 2 { 1.5 } else { 1.0 }));
}

/// One kernel with more to do on one node, called from several functions.
#[test]
fn one_function_in_several_contexts_is_no_evidence_of_a_slow_node() {
    let places = [("main/push/apply", 40), ("main/solve/apply", 30), ("main/smooth/apply", 30)];
    let mut subject = ten_steps(8, |rank| {
        let work = |(path, ms): (&'static str, u64)| {
            doing(path, (on_ketch(rank) * (ms * MS) as f64) as u64)
        };
        places.map(work).into_iter().collect()
    });
    subject.host = |rank| if rank < 4 { "sloop" } else { "ketch" };
    assert_imbalance(&subject);
}

/// A rank with more of everything may have more data.
#[test]
fn a_rank_alone_is_no_slow_core_by_its_time() {
    assert_imbalance(&two_nodes(|rank, _| if rank == 7 { 1.5 } else { 1.0 }));
    let mut subject = two_nodes(|rank, _| if rank == 7 { 1.5 } else { 1.0 });
    subject.host = |rank| if rank < 7 { "sloop" } else { "ketch" };
    assert_imbalance(&subject);
}

#[test]
fn a_node_with_more_data_or_more_calls_is_not_slow() {
    let subject = |calls: u64, bytes: u64| {
        let mut subject = ten_steps(8, |rank| {
            let more = if rank < 4 { 10 } else { 15 };
            let kernels = KERNELS.iter().map(|(path, ms)| doing(path, ms * more * MS / 10));
            let (calls, bytes) = if rank < 4 { (100, 1 << 20) } else { (calls, bytes) };
            kernels.chain([calling("main/MPI_Sendrecv", MS, calls, bytes)]).collect()
        });
        subject.host = |rank| if rank < 4 { "sloop" } else { "ketch" };
        subject
    };
    assert_eq!(only_loss(&verdict(&subject(100, 1 << 20))).kind, LossKind::SlowNode);
    assert_imbalance(&subject(150, 1 << 20));
    assert_imbalance(&subject(100, 3 << 19));
}

#[test]
fn one_or_two_contexts_prove_nothing() {
    let mut subject = ten_steps(8, |rank| {
        let more = if rank < 4 { 2 } else { 3 };
        vec![doing("main/push", 30 * more * MS), doing("main/solve", 20 * more * MS)]
    });
    subject.host = |rank| if rank < 4 { "sloop" } else { "ketch" };
    assert_imbalance(&subject);
}

/// Uneven work beside a slow node: another rank is slow in each step, so that all ranks of a node
/// have the same totals.
#[test]
fn uneven_work_beside_a_slow_node_counts_once() {
    let mut subject = Subject::new(8);
    subject.host = |rank| if rank < 4 { "sloop" } else { "ketch" };
    for step in 0..16 {
        subject.step(BARRIER, |rank| {
            let tenths = (10.0 * on_ketch(rank)) as u64;
            let kernel = |(path, ms): &(&'static str, u64)| {
                let more = if *path == "main/smooth" && step % 8 == rank { 3 } else { 1 };
                doing(path, ms * more * tenths * MS / 10)
            };
            KERNELS.iter().map(kernel).collect()
        });
    }
    let summary = verdict(&subject);
    let found = summary.losses.iter().map(|loss| (loss.kind, rounded(loss.seconds)));
    // The slowest rank of a step takes 180 ms on the slow node and 150 ms elsewhere; with equal
    // nodes, 120 ms; with equal work, 102.5 ms.
    let truth = [(LossKind::SlowNode, 8.0 * 0.06 + 8.0 * 0.03), (LossKind::LoadImbalance, 0.28)];
    assert_eq!(found.collect::<Vec<_>>(), truth);
    assert_eq!(rounded(summary.projection.elapsed_s), 16.0 * 0.1025);
    assert_eq!(causes(&summary.losses[1]), [("main/smooth".to_owned(), 0.28)]);
}

/// A rank that waits for a core half of its time.
fn delayed(path: &'static str, ms: u64) -> Doing {
    Doing { run_delay_ns: ms * MS, ..doing(path, 2 * ms * MS) }
}

#[test]
fn a_core_that_others_use_is_slow_and_neither_oversubscription_nor_imbalance() {
    let subject = || {
        ten_steps(8, |rank| {
            let kernel = |(path, ms): &(&'static str, u64)| match rank {
                3 => delayed(path, *ms),
                _ => doing(path, ms * MS),
            };
            KERNELS.iter().map(kernel).collect()
        })
    };
    let summary = verdict(&subject());
    let loss = only_loss(&summary);
    assert_eq!((loss.kind, loss.node.as_deref()), (LossKind::SlowCore, Some("sloop")));
    assert_eq!((loss.factor.map(rounded), &*loss.slow_ranks), (Some(2.0), "3"));
    assert_eq!((rounded(loss.seconds), rounded(summary.projection.elapsed_s)), (1.0, 1.0));
    // The only rank of a node: nothing tells whether other cores of the node are slow.
    let mut alone = subject();
    alone.host = |rank| if rank == 3 { "ketch" } else { "sloop" };
    let summary = verdict(&alone);
    let loss = only_loss(&summary);
    assert_eq!((loss.kind, loss.node.as_deref()), (LossKind::SlowNode, Some("ketch")));
}

/// On a node with more threads than cores, the job itself takes the cores from its ranks.
#[test]
fn a_crowded_node_is_oversubscribed_and_not_slow() {
    let mut subject = ten_steps(4, |rank| {
        let kernel = |(path, ms): &(&'static str, u64)| match rank {
            3 => delayed(path, *ms),
            _ => doing(path, ms * MS),
        };
        KERNELS.iter().map(kernel).collect()
    });
    subject.cores = vec![0, 1];
    let summary = verdict(&subject);
    assert_eq!(only_loss(&summary).kind, LossKind::Oversubscription);
}

#[test]
fn slow_places_do_not_depend_on_the_processes_that_hold_the_ranks() {
    let subject = two_nodes(|rank, _| on_ketch(rank));
    let truth = verdict(&subject);
    for processes in [2, 3] {
        let found = diagnose_on(processes, &subject.inputs(), &job());
        assert_eq!(found, truth, "{processes} processes");
    }
}
