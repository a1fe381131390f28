//! Too few cores.

use super::*;
use crate::synthetic_run::{Doing, calling};

fn delayed(path: &'static str, wall_ns: u64, run_delay_ns: u64) -> Doing {
    Doing { run_delay_ns, ..crate::synthetic_run::doing(path, wall_ns) }
}

#[test]
fn more_ranks_than_cores_are_oversubscription_and_no_imbalance() {
    let mut subject = Subject::new(4);
    subject.cores = vec![0, 1];
    for step in 0..10 {
        // Equal work; the order in which ranks get a core is random.
        subject.step(BARRIER, |rank| {
            let delay = u64::from((rank + step) % 4) * 20 * MS;
            vec![delayed("main/relax", 50 * MS + delay, delay)]
        });
    }
    let summary = verdict(&subject);
    let loss = only_loss(&summary);
    assert_eq!((loss.kind, loss.label), (LossKind::Oversubscription, Label::Computation));
    assert_eq!(rounded(loss.seconds), 0.3);
    assert_eq!(path(&loss.symptom.path), "main/relax");
    assert_eq!(loss.waiting_ranks, "0-3");
    assert!(loss.advice.starts_with("4 ranks with 4 busy threads share 2 cores on sloop."));
    assert_eq!(summary.run.nodes[0].cores, 2);
    let node = &summary.tree.nodes[loss.symptom.node as usize];
    assert_eq!(rounded(node.counters["run_delay_s"]), 1.2);
}

#[test]
fn a_rank_that_works_more_is_uneven_also_where_cores_are_short() {
    let mut subject = Subject::new(4);
    subject.cores = vec![0, 1];
    for _ in 0..10 {
        subject.step(BARRIER, |rank| {
            let slow_ms = if rank == 2 { 100 } else { 20 };
            vec![delayed("main/relax", slow_ms * 2 * MS, slow_ms * MS)]
        });
    }
    let summary = verdict(&subject);
    let kinds: Vec<LossKind> = summary.losses.iter().map(|loss| loss.kind).collect();
    assert_eq!(kinds, [LossKind::LoadImbalance, LossKind::Oversubscription]);
    // 60 ms in each of ten instances, the first included.
    assert_eq!(rounded(summary.losses[0].seconds), 0.6);
    assert_eq!(rounded(summary.losses[1].seconds), 0.4);
    assert_eq!(rounded(summary.projection.elapsed_s), 1.0);
}

/// Sleeping ranks leave their cores to others: long transfers are then not explained by shared
/// cores.
#[test]
fn large_messages_are_a_loss_where_cores_are_short_but_free() {
    const MIB: u64 = 1 << 20;
    let subject = |work: &'static str| {
        let mut subject = Subject::new(4);
        subject.cores = vec![0, 1];
        for _ in 0..10 {
            subject.step(BARRIER, |_| {
                vec![
                    delayed(work, 100 * MS, 0),
                    delayed("main/prepare", 15 * MS, 5 * MS),
                    calling("main/pass_on/MPI_Sendrecv", 80 * MS, 1, 80 * MIB),
                ]
            });
        }
        verdict(&subject)
    };
    let found = |work: &'static str| -> Vec<(LossKind, f64)> {
        let summary = subject(work);
        summary.losses.iter().map(|loss| (loss.kind, rounded(loss.seconds))).collect()
    };
    // The 10 ms that `prepare` computes take 20 on shared cores; 5 of the additional 10 ms are in
    // the message's time.
    let delay = (LossKind::Oversubscription, 0.05);
    assert_eq!(found("main/solve/nanosleep"), [(LossKind::LargeMessage, 0.75), delay]);
    assert_eq!(found("main/solve"), [delay]);
}

/// Samples by wall clock see runnable threads also in file operations.
#[test]
fn file_operations_have_their_waiting_for_a_core_alone() {
    const MIB: u64 = 1 << 20;
    let found = |solve_delay_ms: u64| -> Vec<(LossKind, f64)> {
        let mut subject = Subject::new(1);
        subject.step(BARRIER, |_| {
            let write = calling("main/save/write", 1000 * MS, 300, 300 * MIB);
            vec![
                Doing { run_delay_ns: 600 * MS, ..write },
                delayed("main/solve", 1000 * MS, solve_delay_ms * MS),
            ]
        });
        let summary = verdict(&subject);
        summary.losses.iter().map(|loss| (loss.kind, rounded(loss.seconds))).collect()
    };
    let files = (LossKind::LargeIo, 1.0);
    assert_eq!(found(90), [files], "90 ms of 2 s are few");
    assert_eq!(found(400), [files, (LossKind::Oversubscription, 0.4)]);
}

#[test]
fn waiting_for_a_core_with_cores_enough_counts_when_it_is_much() {
    let subject = |delay_ms: u64| {
        let mut subject = Subject::new(2);
        subject.step(BARRIER, |_| vec![delayed("main/relax", 100 * MS, delay_ms * MS)]);
        subject
    };
    assert_eq!(verdict(&subject(3)).losses, []);
    let summary = verdict(&subject(10));
    assert_eq!(only_loss(&summary).kind, LossKind::Oversubscription);
    assert!(only_loss(&summary).advice.contains("binding"));
}

#[test]
fn advice_names_the_part_of_the_waiting_in_one_context() {
    for (others_ms, words) in [(10, "most of it in relax"), (30, "the largest part in relax (")] {
        let mut subject = Subject::new(2);
        subject.step(BARRIER, |_| {
            let others = ["main/assemble", "main/prepare"];
            let others = others.map(|path| delayed(path, 100 * MS, others_ms * MS));
            [&[delayed("main/relax", 100 * MS, 40 * MS)], &others[..]].concat()
        });
        let summary = verdict(&subject);
        let advice = &only_loss(&summary).advice;
        assert!(advice.contains(words), "{advice}");
    }
}

#[test]
fn advice_where_other_programs_run_mentions_partners_that_wait_for_a_core() {
    for (called_ms, is_mentioned) in [(100, true), (10, false)] {
        let mut subject = Subject::new(2);
        subject.step(BARRIER, |_| {
            let exchange = calling("main/exchange/MPI_Recv", called_ms * MS, 1, 0);
            vec![delayed("main/relax", 100 * MS, 20 * MS), exchange]
        });
        let summary = verdict(&subject);
        let is_one = |loss: &&Loss| loss.kind == LossKind::Oversubscription;
        let loss = summary.losses.iter().find(is_one).unwrap();
        let words = "shows only without other programs on the cores";
        assert_eq!(loss.advice.contains(words), is_mentioned, "{}", loss.advice);
    }
}

#[test]
fn cores_that_are_not_known_are_not_exceeded() {
    let mut subject = Subject::new(2);
    subject.cores = Vec::new();
    subject.step(BARRIER, |_| vec![delayed("main/relax", 100 * MS, 3 * MS)]);
    assert_eq!(verdict(&subject).losses, []);
}

/// Four ranks on four cores, each with a second thread that does this in a run of 1 s. In each step
/// the ranks wait for 3 ms for partners: a loss of 3 %, which is too small on a crowded node.
fn with_second_threads(other: Vec<Doing>) -> Summary {
    let mut subject = Subject::new(4);
    (subject.threads, subject.others) = (2, other);
    for _ in 0..10 {
        subject.step(BARRIER, |_| {
            let wait = calling("main/exchange/MPI_Recv", 3 * MS, 1, 0);
            vec![doing("main/exchange", 97 * MS), wait]
        });
    }
    verdict(&subject)
}

#[test]
fn threads_that_sleep_or_wait_do_not_crowd_a_node() {
    for path in [
        "help/pthread_cond_wait",
        "help/pthread_mutex_lock",
        "help/pthread_join",
        "help/nanosleep",
        "main/solve/OpenMP_idle",
    ] {
        let summary = with_second_threads(vec![doing(path, 1000 * MS)]);
        let mut kinds = summary.losses.iter().map(|loss| loss.kind);
        assert!(kinds.any(|kind| kind == LossKind::WaitForPartner), "{path}");
    }
}

#[test]
fn threads_crowd_a_node_by_as_much_as_they_compute() {
    for (computing_ms, is_crowded) in [(1000, true), (60, true), (40, false)] {
        let waiting_ms = 1000 - computing_ms;
        let summary = with_second_threads(vec![
            doing("help/compute", computing_ms * MS),
            doing("help/pthread_cond_wait", waiting_ms * MS),
        ]);
        assert_eq!(summary.losses.is_empty(), is_crowded, "{computing_ms} ms");
    }
    let mut subject = Subject::new(4);
    (subject.threads, subject.others) = (2, vec![doing("help/compute", 300 * MS)]);
    for _ in 0..10 {
        subject.step(BARRIER, |_| vec![delayed("main/relax", 100 * MS, 20 * MS)]);
    }
    // Of four threads that compute for 30 % of the run, one thread and a fifth of one are busy.
    let summary = verdict(&subject);
    let advice = &only_loss(&summary).advice;
    assert!(advice.starts_with("4 ranks with 6 busy threads share 4 cores on sloop."), "{advice}");
}
